"""What the classifiers refuse alike: constructor arguments, dates, and labels that are missing."""

import datetime
import math

import numpy as np
import pytest
from support.fits import without_warnings
from support.reference import moons

from xgpc import BayesianLinearClassifier, GPClassifier
from xgpc.gibbs import GibbsClassifier

pd = pytest.importorskip("pandas")

X, Y = moons(40)
CLASSIFIERS = {"GPClassifier": GPClassifier, "linear": BayesianLinearClassifier, "Gibbs": GibbsClassifier}
ARRAY = np.array(["exact", "kernel"])
# What no common argument may be, whatever its name.
NEVER = (ARRAY, np.zeros((2, 2)), len, {}, {1: 2}, object(), -0.5, math.nan, -math.inf, 1j, b"auto", "other")
BAD = {
    "tol": (True, False, math.inf, -1, "1", None, [1e-4], np.array([1e-4, 1e-4])),
    "verbose": (-1, 1.0, None, "yes", [1], np.array([1, 2])),
    "max_iter": (0, 1.0, True, None, "auto", np.array([3])),
    "batch_size": (0, 1.5, True, "auto"),
    "n_jobs": (0, 1.0, True, "2"),
    "n_inducing": (0, 1.5, True, None),
    "share": (None, 1, "all", ["kernel"]),
    "precision": (None, 32, "single", "float32", np.float32),
    "bound": (None, 1, ["exact"]),
    "likelihood": (None, 1, ["logit"]),
    "learn_inducing": (None, 1, "yes"),
    "warm_start": (None, 0, "no"),
    "fit_intercept": (None, 1, "yes"),
    "optimizer": ("sgd", 1, ["profile"]),
    "inducing_points": ("grid", "All"),
    "n_restarts_optimizer": (-1, True, None),
    "length_scale_prior": (0, 0.0, 1e-4, -1.0, True, math.inf, "weak", [1.0]),
    "subset_sizes": ("all", 10, [], [2, 1]),
    "learning_rate": (True, 0.0, "fast", (1.0,)),
    "label_noise": (0, 0.5, True, None),
    "mean": (None, True, math.nan, math.inf, "base", ["base-rate"], [0.0, "1"], [[1.0]]),
    "max_time": (0, 0.0, -1, True, math.inf, "10"),
    "keep_on_interrupt": (None, 1, "yes"),
    "checkpoint": ("", 1, b"fit.npz", True),
    "callback": ("print", 1, True, [print]),
}
GOOD = {
    "tol": (0, 0.0, 1e-4, np.float32(1e-3)), "verbose": (0, False, np.int64(0), np.False_), "max_iter": (np.int32(5),),
    "n_jobs": (None, -1, 2), "batch_size": (None, 10), "share": ("kernel", "none"), "subset_sizes": (None, (10, 20)),
    "precision": ("double", "mixed"),
    "warm_start": (True, np.False_), "label_noise": ("learn",), "learn_inducing": (False,), "fit_intercept": (False,),
    "max_time": (None, 100, 1e3, np.float32(50.0)), "keep_on_interrupt": (False, np.True_), "checkpoint": (None,),
    "callback": (None, print), "length_scale_prior": (None, "auto", 1, np.float32(0.5)),
    "mean": (0, -1, np.float32(0.5), "base-rate"),
}  # fmt: skip
# Of which there is more that is allowed.
OWN_RULES = (
    "class_weight",
    "inducing_points",
    "kernel",
    "learning_rate",
    "likelihood",
    "n_chains",
    "n_proposals",
    "n_samples",
    "n_warmup",
    "prior_variance",
    "random_state",
    "thin",
)
CASES = [
    (kind, name, value)
    for kind, classifier in CLASSIFIERS.items()
    for name in classifier().get_params()
    for value in (*BAD.get(name, ()), *(() if name in OWN_RULES else NEVER))
    # Any number can be a mean, any text is a path, any function one that can be called, and an array of text can be
    # names of columns.
    if not (name == "mean" and repr(value) == "-0.5")
    if not (name == "checkpoint" and isinstance(value, str) and value)
    if not (name == "callback" and value is len)
    if not (name == "categorical_features" and isinstance(value, np.ndarray))
]


@pytest.mark.parametrize(
    ("kind", "name", "value"), CASES, ids=lambda value: "object" if type(value) is object else repr(value)
)
def test_arguments_that_are_not_allowed_are_refused_before_anything_is_learned(kind, name, value, monkeypatch):
    model = CLASSIFIERS[kind]().set_params(**{name: value})
    monkeypatch.setattr("xgpc.estimator.training_data", lambda *arguments: pytest.fail("looked at the data"))
    with pytest.raises(ValueError, match=rf"{name} must be .*; got "):
        model.fit(X, Y)
    assert set(vars(model)) == set(model.get_params())


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in GOOD.items() for value in values])
def test_arguments_that_are_allowed(name, value):
    for kind in ("GPClassifier", "linear"):
        model = CLASSIFIERS[kind](max_iter=2)
        if name in model.get_params():
            if kind == "GPClassifier":
                model.set_params(n_inducing=4)
            without_warnings(model.set_params(**{name: value}).fit, X, Y)
            assert model.predict(X).shape == Y.shape


DATES = pd.date_range("2020-01-01", periods=len(X))
TIMES = {
    "dates": pd.DataFrame({"when": DATES, "x": X[:, 0]}),
    "dates alone": pd.DataFrame({"when": DATES}),
    "periods": pd.DataFrame({"x": X[:, 0], "when": pd.period_range("2020-01-01", periods=len(X))}),
    "objects": pd.DataFrame({"x": X[:, 0], "when": pd.Series([datetime.date(2020, 1, 1)] * len(X), dtype=object)}),
    "zones": pd.DataFrame({"x": X[:, 0], "when": DATES.tz_localize("UTC")}),
    "durations": pd.DataFrame({"when": DATES - DATES[0], "x": X[:, 0]}),
    "two": pd.DataFrame({"when": DATES, "x": X[:, 0], "since": DATES - DATES[0]}),
}


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("case", TIMES)
def test_dates_and_durations_are_refused_by_the_names_of_their_columns(kind, case):
    rows = TIMES[case]
    names = [str(name) for name in rows.columns if name != "x"]
    with pytest.raises(ValueError, match=rf"dates or durations in the columns \[{', '.join(map(repr, names))}\]; turn"):
        CLASSIFIERS[kind]().fit(rows, Y)


NAMES = np.array(["no", "yes"], dtype=object)[Y]


def with_missing(missing, kind=list):
    return kind([missing if i in (3, 8) else name for i, name in enumerate(NAMES)])


MISSING = {
    "pandas.NA": pd.Series(with_missing(pd.NA)),
    "pandas strings": pd.Series(with_missing(pd.NA), dtype="string"),
    "None": with_missing(None),
    "NaN": np.array(with_missing(math.nan), dtype=object),
    "NaT": pd.Series(with_missing(pd.NaT), dtype=object),
    "categories": pd.Series(with_missing(None), dtype="category"),
    "truth": pd.Series([pd.NA if i in (3, 8) else y == 1 for i, y in enumerate(Y)], dtype="boolean"),
}


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("case", MISSING)
def test_missing_labels_are_counted(kind, case):
    with pytest.raises(ValueError, match="y has 2 missing labels, the first in row 3: "):
        CLASSIFIERS[kind]().fit(X, MISSING[case])


def test_inducing_points_too_large_to_compute_with_are_refused():
    with pytest.raises(ValueError, match=r"inducing_points has a value of size .*e\+299; at most 1e\+140"):
        GPClassifier(inducing_points=1e299 * np.ones((3, 2))).fit(X, Y)
