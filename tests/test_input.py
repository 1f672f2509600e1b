"""What the estimator is given: bad data and parameters are refused, odd but valid data give probabilities."""

import math
from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF
from support.fits import quietly, refuses
from support.reference import moons

from xgpc import BayesianLinearClassifier, GPClassifier
from xgpc.gibbs import GibbsClassifier

ROWS, LABELS = moons(40)


def replaced(value):
    X = ROWS.copy()
    X[3, 1] = value
    return X


def masked(values):
    """With the first of them masked."""
    return np.ma.array(values, mask=np.arange(np.size(values)).reshape(np.shape(values)) == 0)


BAD = {
    "nan": (replaced(np.nan), LABELS, {}, "NaN"),
    "infinity": (replaced(np.inf), LABELS, {}, "infinity"),
    "huge": (replaced(1e200), LABELS, {}, "scale the features"),
    "one class": (ROWS, np.zeros(40), {}, "1 class"),
    "regression": (ROWS, ROWS[:, 0], {}, "Unknown label type"),
    "empty": (np.empty((0, 2)), np.empty(0), {}, "minimum of 1 is required"),
    "no features": (np.empty((40, 0)), LABELS, {}, "0 feature"),
    "1-D": (ROWS[:, 0], LABELS, {}, "2D array"),
    "complex": (ROWS + 1j, LABELS, {}, "Complex data"),
    "strings": (ROWS.astype(str).astype(object) + "x", LABELS, {}, "convert string to float"),
    "lengths": (ROWS, LABELS[:-1], {}, "inconsistent numbers of samples"),
    "weights negative": (ROWS, LABELS, {"sample_weight": -np.ones(40)}, "sample_weight must not be negative"),
    "weights nan": (ROWS, LABELS, {"sample_weight": np.full(40, np.nan)}, "NaN"),
    "weights of one class": (ROWS, LABELS, {"sample_weight": LABELS}, "rows of two classes"),
    "weights huge": (ROWS, LABELS, {"sample_weight": np.full(40, 1e300)}, "Weights .* between 1e-100 and 1e"),
    "weights tiny": (ROWS, LABELS, {"sample_weight": np.full(40, 1e-310)}, "Weights .* between 1e-100 and 1e"),
    "weights strings": (ROWS, LABELS, {"sample_weight": ["a"] * 40}, "real number for each of the 40 rows.*got .'a', "),
    "weights digits": (ROWS, LABELS, {"sample_weight": np.array(["1.5"] * 40)}, "real number .*'1.5'.*cast"),
    "weights by name": (ROWS, LABELS, {"sample_weight": "balanced"}, "class_weight takes.*got 'balanced'"),
    "weights by class": (ROWS, LABELS, {"sample_weight": {0: 1.0, 1: 2.0}}, "real number .*got {0: 1.0, 1: 2.0}"),
    "weights dates": (ROWS, LABELS, {"sample_weight": np.zeros(40, "M8[D]")}, "real number .*got .*cast .*M8"),
    "weights complex": (ROWS, LABELS, {"sample_weight": np.ones(40) * 1j}, "real number .*got .*complex"),
    "weights ragged": (ROWS, LABELS, {"sample_weight": [[1.0], [1.0, 2.0]]}, r"real number .*got \[\[1.0\], \[1.0, "),
    "weights beyond the prior's": (ROWS, LABELS, {"sample_weight": np.full(40, 1e90)}, r"1e\+12; got .* rounded away"),
    "weights masked": (ROWS, LABELS, {"sample_weight": masked(np.ones(40))}, r"shape \(40,\) has masked values \(1\)"),
    "masked": (masked(ROWS), LABELS, {}, r"shape \(40, 2\) has masked values \(1\), .* numpy\.ma\.filled"),
    "labels masked": (ROWS, masked(LABELS), {}, r"shape \(40,\) has masked values \(1\)"),
    "groups masked": (ROWS, LABELS, {"groups": masked(np.arange(40))}, r"shape \(40,\) has masked values \(1\)"),
    "weights short": (ROWS, LABELS, {"sample_weight": np.ones(3)}, "real number for each of the 40 rows.*shape"),
}


@pytest.mark.parametrize(("X", "y", "extra", "message"), BAD.values(), ids=BAD)
def test_bad_data_is_refused_and_leaves_the_estimator_as_it_was(X, y, extra, message):
    model = GPClassifier(n_inducing=10, random_state=0)
    for state in (model, clone(model).fit(ROWS, LABELS)):
        refuses(message, state.fit, X, y, **extra)


ODD = {
    "more inducing points than rows": (ROWS, {"n_inducing": 1000}),
    "duplicated inducing points": (ROWS, {"inducing_points": np.repeat(ROWS[:5], 4, axis=0)}),
    "duplicated rows": (np.repeat(ROWS[:20], 2, axis=0), {}), "one distinct row": (np.ones((40, 2)), {}),
    "constant feature": (np.column_stack([ROWS, np.full(40, 7.0)]), {}), "huge scale": (1e100 * ROWS, {}),
    "tiny scale": (1e-200 * ROWS, {}), "mixed scales": (ROWS * [1e-8, 1e8], {}),
    "far from the origin": (ROWS + 1e8, {}), "one row of each class": (ROWS[np.argsort(LABELS)][[0, -1]], {}),
    "kernel of another scale": (1e9 * ROWS, {"kernel": RBF(1.0), "optimizer": None}),
    "separable": (np.column_stack([np.sort(ROWS[:, 0]) + 10 * np.arange(40), np.zeros(40)]), {}),
}  # fmt: skip


@pytest.mark.parametrize(("X", "params"), ODD.values(), ids=ODD)
def test_odd_but_valid_data_gives_probabilities(X, params):
    y = np.sort(LABELS)[[0, -1]] if len(X) == 2 else LABELS
    model = quietly(GPClassifier(random_state=0, **params), X, y)
    proba = model.predict_proba(X)
    assert np.all(np.isfinite(proba))
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
    assert np.isfinite(model.elbo_)
    assert len(model.inducing_points_) <= max(len(X), 20)


@pytest.mark.parametrize("part", range(3))
def test_masked_values_are_refused_wherever_rows_are_given(part):
    model = GPClassifier(n_inducing=5, n_neighbors=0, optimizer=None, random_state=0)
    given = [ROWS, LABELS, np.ones(40)]
    given[part] = masked(given[part])
    fitted = clone(model).fit(ROWS, LABELS)
    for call in (
        lambda: model.fit_batches([tuple(given)]),
        lambda: model.partial_fit(given[0], given[1], sample_weight=given[2]),
        lambda: GPClassifier(inducing_points=masked(ROWS[:5])).fit(ROWS, LABELS),
        lambda: fitted.predict(masked(ROWS)),
        lambda: fitted.predict_proba(masked(ROWS)),
        lambda: list(fitted.predict_proba_batches([masked(ROWS)])),
    ):
        refuses(r"has masked values \(1\)", call)


@pytest.mark.parametrize("weight", [1e-100, 1e12])
@pytest.mark.parametrize(
    "params", [{"n_neighbors": 0}, {"n_neighbors": 5}, {"inducing_points": "all"}, {"batch_size": 20}], ids=str
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_weights_may_be_as_large_or_small_as_is_said(weight, params, n_classes):
    y = LABELS + (n_classes == 3) * (ROWS[:, 0] > 1.0)
    model = GPClassifier(n_inducing=10, max_iter=5, random_state=0, **params)
    for weights in (np.full(40, weight), np.where(np.arange(40) % 3, 1.0, weight)):
        quietly(model, ROWS, y, sample_weight=weights)
        assert np.all(np.isfinite(model.predict_log_proba(ROWS)))


def test_scale_of_the_features_does_not_matter():
    expected = GPClassifier(random_state=0).fit(ROWS, LABELS)
    for factor in (1e100, 1e-200, 1e-290):
        scaled = GPClassifier(random_state=0).fit(factor * ROWS, LABELS)
        np.testing.assert_allclose(scaled.predict_proba(factor * ROWS), expected.predict_proba(ROWS), atol=1e-4)
        # Nor does a feature that is used count as constant.
        np.testing.assert_allclose(scaled.feature_spread_, factor * expected.feature_spread_)
        np.testing.assert_allclose(scaled.feature_importances_, expected.feature_importances_, atol=1e-4)
        assert "length scales            feature" in scaled.summary()


def test_rows_below_the_range_of_normal_numbers_are_told_apart_and_are_near_each_other():
    for params in ({"inducing_points": "all"}, {"n_inducing": 10}):
        model = GPClassifier(RBF(), optimizer=None, **params).fit(1e-310 * ROWS, LABELS)
        p = model.predict_proba(1e-310 * ROWS)
        np.testing.assert_allclose(p, np.broadcast_to(p[0], p.shape))


pd = pytest.importorskip("pandas")

CLASSIFIERS = {"GPClassifier": GPClassifier, "linear": BayesianLinearClassifier, "Gibbs": GibbsClassifier}
ARRAY = np.array(["exact", "kernel"])
# What no common argument may be, whatever its name.
NEVER = (ARRAY, np.zeros((2, 2)), len, {}, {1: 2}, object(), -0.5, math.nan, -math.inf, 1j, b"auto", "other")
BAD_ARGUMENTS = {
    "tol": (True, False, math.inf, -1, "1", None, [1e-4], np.array([1e-4, 1e-4])),
    "verbose": (-1, 1.0, None, "yes", [1], np.array([1, 2])), "max_iter": (0, 1.0, True, None, "auto", np.array([3])),
    "batch_size": (0, 1.5, True, "auto"), "n_jobs": (0, 1.0, True, "2"), "n_inducing": (0, 1.5, True, None),
    "share": (None, 1, "all", ["kernel"]), "precision": (None, 32, "single", "float32", np.float32),
    "bound": (None, 1, ["exact"]), "likelihood": (None, 1, ["logit"]), "learn_inducing": (None, 1, "yes"),
    "warm_start": (None, 0, "no"), "fit_intercept": (None, 1, "yes"), "optimizer": ("sgd", 1, ["profile"]),
    "inducing_points": ("grid", "All"), "n_restarts_optimizer": (-1, True, None),
    "length_scale_prior": (0, 0.0, 1e-4, -1.0, True, math.inf, "weak", [1.0]), "subset_sizes": ("all", 10, [], [2, 1]),
    "learning_rate": (True, 0.0, "fast", (1.0,)), "label_noise": (0, 0.5, True, None),
    "guess_rate": (1, 1.0, True, None), "lapse_rate": (1, 1.0, True, None),
    "mean": (None, True, math.nan, math.inf, "base", ["base-rate"], [0.0, "1"], [[1.0]]),
    "max_time": (0, 0.0, -1, True, math.inf, "10"), "keep_on_interrupt": (None, 1, "yes"),
    "callback": ("print", 1, True, [print]),
}  # fmt: skip
GOOD = {
    "tol": (0, 0.0, 1e-4, np.float32(1e-3)), "verbose": (0, False, np.int64(0), np.False_), "max_iter": (np.int32(5),),
    "n_jobs": (None, -1, 2), "batch_size": (None, 10), "share": ("kernel", "none"), "subset_sizes": (None, (10, 20)),
    "precision": ("double", "mixed"),
    "warm_start": (True, np.False_), "label_noise": ("learn",), "learn_inducing": (False,), "fit_intercept": (False,),
    "max_time": (None, 100, 1e3, np.float32(50.0)), "keep_on_interrupt": (False, np.True_),
    "callback": (None, print), "length_scale_prior": (None, "auto", 1, np.float32(0.5)),
    "mean": (0, -1, np.float32(0.5), "base-rate"), "guess_rate": (0, 0.0), "lapse_rate": (np.float32(0.0),),
}  # fmt: skip
# Of which there is more that is allowed.
OWN_RULES = "class_weight inducing_points kernel learning_rate likelihood n_chains n_proposals n_samples n_warmup"
OWN_RULES = [*OWN_RULES.split(), "prior_variance", "random_state", "thin"]
CASES = [
    (kind, name, value)
    for kind, classifier in CLASSIFIERS.items()
    for name in classifier().get_params()
    for value in (*BAD_ARGUMENTS.get(name, ()), *(() if name in OWN_RULES else NEVER))
    # Any number can be a mean, any function one that can be called, and an array of text can be names of columns.
    if (name, repr(value)) not in (("mean", "-0.5"), ("callback", repr(len)))
    if not (name == "categorical_features" and isinstance(value, np.ndarray))
]


@pytest.mark.parametrize(
    ("kind", "name", "value"), CASES, ids=lambda value: "object" if type(value) is object else repr(value)
)
def test_arguments_that_are_not_allowed_are_refused_before_anything_is_learned(kind, name, value, monkeypatch):
    model = CLASSIFIERS[kind]().set_params(**{name: value})
    monkeypatch.setattr("xgpc.estimator.training_data", lambda *arguments: pytest.fail("looked at the data"))
    refuses(rf"{name} must be .*; got ", model.fit, ROWS, LABELS)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in GOOD.items() for value in values])
def test_arguments_that_are_allowed(name, value):
    for model in (GPClassifier(max_iter=2, n_inducing=4), BayesianLinearClassifier(max_iter=2)):
        if name in model.get_params():
            assert quietly(model.set_params(**{name: value}), ROWS, LABELS).predict(ROWS).shape == LABELS.shape


DATES = pd.date_range("2020-01-01", periods=len(ROWS))
TIMES = {
    "dates": pd.DataFrame({"when": DATES, "x": ROWS[:, 0]}),
    "dates alone": pd.DataFrame({"when": DATES}),
    "periods": pd.DataFrame({"x": ROWS[:, 0], "when": pd.period_range("2020-01-01", periods=len(ROWS))}),
    "objects": pd.DataFrame({"x": ROWS[:, 0], "when": DATES.date}),
    "zones": pd.DataFrame({"x": ROWS[:, 0], "when": DATES.tz_localize("UTC")}),
    "durations": pd.DataFrame({"when": DATES - DATES[0], "x": ROWS[:, 0]}),
    "two": pd.DataFrame({"when": DATES, "x": ROWS[:, 0], "since": DATES - DATES[0]}),
}


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("rows", TIMES.values(), ids=TIMES)
def test_dates_and_durations_are_refused_by_the_names_of_their_columns(kind, rows):
    names = [str(name) for name in rows.columns if name != "x"]
    with pytest.raises(ValueError, match=rf"dates or durations in the columns \[{', '.join(map(repr, names))}\]; turn"):
        CLASSIFIERS[kind]().fit(rows, LABELS)


NAMES = np.array(["no", "yes"], dtype=object)[LABELS]


def with_missing(missing, kind=list):
    return kind([missing if i in (3, 8) else name for i, name in enumerate(NAMES)])


MISSING = {
    "pandas.NA": pd.Series(with_missing(pd.NA)),
    "pandas strings": pd.Series(with_missing(pd.NA), dtype="string"),
    "None": with_missing(None),
    "NaN": np.array(with_missing(math.nan), dtype=object),
    "NaN of NumPy": np.where(np.isin(np.arange(len(LABELS)), [3, 8]), math.nan, LABELS),
    "NaT": pd.Series(with_missing(pd.NaT), dtype=object),
    "categories": pd.Series(with_missing(None), dtype="category"),
    "truth": pd.Series([pd.NA if i in (3, 8) else y == 1 for i, y in enumerate(LABELS)], dtype="boolean"),
}


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("case", MISSING)
def test_missing_labels_are_counted(kind, case):
    with pytest.raises(ValueError, match=r"y has 2 missing labels, the first in row 3: (None|<NA>|nan|NaT)\."):
        CLASSIFIERS[kind]().fit(ROWS, MISSING[case])


POINTS, CODES = moons(60)
LARGE = 2**60
LARGE_LABELS = LARGE + CODES
model = partial(GPClassifier, RBF(0.5), n_inducing=5, optimizer=None, random_state=0)


def halves(*labels):
    return [(POINTS[:30], labels[0]), (POINTS[30:], labels[-1])]


KINDS = {
    "bytes": np.array([b"a", b"b"])[CODES],
    "objects": np.array([1, 2], dtype=object)[CODES],
    "a mixture": np.array([1, "a"], dtype=object)[CODES],
    "bytes as objects": np.array([b"a", b"b"], dtype=object)[CODES],
    "complex numbers": 1j * CODES,
    "dates": np.array(["2026-01-01", "2026-01-02"], dtype="datetime64[D]")[CODES],
    "durations": np.array([1, 2], dtype="timedelta64[s]")[CODES],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [10, 1000])
def test_labels_of_other_kinds_are_refused_for_any_number_of_rows(tuned, kind, size):
    tuned(kept_rows=size)
    y, message = KINDS[kind], r"Labels must be text|y is an array of objects|Complex data"
    batches = halves(y[:30], y[30:])
    for method, given in {"fit": (POINTS, y), "partial_fit": (POINTS, y), "fit_batches": (batches,)}.items():
        refuses(message, getattr(model(), method), *given)


@pytest.mark.parametrize("later", [CODES[30:].astype(float), LARGE_LABELS[30:].astype(float)])
def test_large_integers_beside_floats_are_refused(later):
    with pytest.raises(ValueError, match=r"integers as large as 11529215046068469\d\d .*rounded"):
        model().fit_batches(halves(LARGE_LABELS[:30], later))
    refuses("rounded", model().partial_fit, POINTS, LARGE_LABELS, classes=[LARGE, LARGE + 1, 1.5])


@pytest.mark.parametrize("labels", [LARGE_LABELS, CODES == 1])
@pytest.mark.parametrize("kind", ["nullable", "arrow", "frame", "array"])
@pytest.mark.filterwarnings("ignore:A column-vector y was passed")
def test_labels_of_nullable_types_are_those_of_numpy(labels, kind):
    y = pd.Series(labels).convert_dtypes(dtype_backend="pyarrow" if kind == "arrow" else "numpy_nullable")
    y = {"frame": y.to_frame(), "array": y.array}.get(kind, y)
    for fitted in (model().fit(POINTS, y), model().fit_batches([(POINTS, y)])):
        np.testing.assert_array_equal(fitted.classes_, np.unique(labels), strict=True)


@pytest.mark.parametrize("source", [(POINTS, CODES), [POINTS, CODES], (POINTS, CODES, CODES), (POINTS, CODES[:, None])])
def test_the_arrays_of_one_batch_are_no_source(source):
    refuses(r"Write fit_batches\(\[\(X, y\)\]\)", model().fit_batches, source)
