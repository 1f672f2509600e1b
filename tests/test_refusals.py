"""What is refused, and what names the extra that it needs: a line for each kind that no other file has."""

import sys
from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, WhiteKernel
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.svm import LinearSVC
from support.fits import quietly, refuses
from support.frames import named
from support.gibbs import small as sampler
from support.reference import moons

from xgpc import BayesianLinearClassifier, GPClassifier, systems
from xgpc.acquisition import mutual_information, predictive_entropy, select
from xgpc.metrics import expected_calibration_error
from xgpc.onnx import register
from xgpc.plotting import ImportanceDisplay, ReliabilityDisplay
from xgpc.rows import from_npy, from_parquet

X, Y = moons(40)
THREE = Y + (X[:, 0] > 1.0)
# So many rows that to read them would take a minute, in the memory of one.
ENDLESS = np.broadcast_to(np.zeros(2), (2**31, 2))
small = partial(GPClassifier, n_inducing=5, optimizer=None, random_state=0)


def fitted(kernel=None, **options):
    return small(kernel, **options).fit(X, Y)


def later(model, **options):
    return model.set_params(**options).partial_fit(X, Y)


UNBOUNDED, LINEAR, LOGISTIC = RBF(1.0, (1e-3, np.inf)), BayesianLinearClassifier(), LogisticRegression().fit(X, Y)
calibration = ReliabilityDisplay.from_estimator
# Calls by the errors that they end with.
REFUSED = {
    "label_noise=0.1 is for bounds 'additive-noise'": lambda: small(label_noise=0.1).fit(X, THREE),
    "class_weight must be 'balanced', None, or a dict of .*; got 'even'": lambda: fitted(class_weight="even"),
    "string to float: 'a'": lambda: fitted(class_weight={0: "a", 1: 1.0}),
    "class_weight must be positive": lambda: fitted(class_weight={0: -1.0, 1: 1.0}),
    "X has dates or durations": lambda: small().fit(np.arange(80).reshape(40, 2).astype("M8[D]"), Y),
    "white noise alone": lambda: fitted(WhiteKernel()),
    "positive and finite": lambda: fitted(RBF(0.0)),
    "RBF must have a number or a flat list as length_scale; got": lambda: fitted(RBF(np.ones((2, 2)))),
    "n_restarts_optimizer needs finite bounds": lambda: fitted(UNBOUNDED, optimizer="profile", n_restarts_optimizer=1),
    "inducing_points has a value of size nan": lambda: fitted(inducing_points=[[np.nan, 1.0]]),
    "numeric array": lambda: fitted(inducing_points=[["a", "b"]]),
    r"shape \(m, 2\).*got \(3, 5\)": lambda: fitted(inducing_points=np.ones((3, 5))),
    "corrected=True is for likelihood='logit'": lambda: fitted().predict_latent(X, corrected=True),
    "no corrected joint covariance": lambda: fitted(bound="polya-gamma").predict_latent(X, True, True),
    r"is for compiled kernels; Matern\(.*nu=2\.2\) is called, because Matern is no compiled kernel": lambda: fitted(
        Matern(1.0, nu=2.2)
    ).sample_latent(X, method="pathwise"),
    "n_samples must be a positive integer": lambda: fitted().sample_latent(X, 0),
    "LinearSVC has no feature_importances_ to draw": lambda: ImportanceDisplay.from_estimator(LinearSVC().fit(X, Y)),
    "labels .* that are not among the model's classes": lambda: calibration(fitted(), X, Y + 5),
    "must be a fitted GPClassifier or BayesianLinearClassifier": lambda: mutual_information(LOGISTIC, X),
    "not fitted": lambda: select(GPClassifier(), X, 2),
    "path is an empty list": lambda: from_parquet([]),
    "has 'c': names must be among": lambda: small(categorical_features=["c"]).fit(named(X), Y),
    r"has 4: .* positions are from": lambda: fitted(categorical_features=[4]),
    "is a mask of 1 columns; X has 2": lambda: fitted(categorical_features=[True]),
    "probability must be between 0 and 1": lambda: expected_calibration_error([0, 1], [0.5, 1.1]),
    "y_true must be 0 to 1": lambda: expected_calibration_error([0, 2], [0.5, 0.5]),
    "rows that sum to one": lambda: expected_calibration_error([0], [[1.5, -0.5, 0.0]]),
    r"exponent 10+ of .* is not supported": lambda: fitted(RBF() ** 10**400),
    "kernel is None": lambda: small().set_params(kernel__length_scale=2.0),
    r"likelihood 'logit' .* bound 'exact'": lambda: later(fitted(n_neighbors=0), likelihood="probit"),
    "full Gaussian process": lambda: later(fitted(inducing_points="all"), inducing_points="kmeans"),
    "n_new_inducing=2 is for models without neighbours": lambda: fitted(n_neighbors=5).partial_fit(
        X, Y, n_new_inducing=2
    ),
    "dimensional, not empty and of the same length": lambda: expected_calibration_error([0, 1], [0.5]),
    "classifier with predict_proba; LinearSVC has no": lambda: predictive_entropy(LinearSVC().fit(X, Y), X),
    r"label must be one of \[0, 1, 2\] or None; got 7": lambda: calibration(small().fit(X, THREE), X, THREE, label=7),
    "value of size .*e": lambda: fitted(inducing_points=1e299 * np.ones((3, 2))),
    "Got 2147483648 rows .* at most 2147483647": lambda: small().fit(ENDLESS, ENDLESS[:, 0]),
    "predict_proba_batches, which take rows batch": lambda: fitted().predict_proba(ENDLESS),
    r"got \[1.0\]: an array of shape \(1,\)": lambda: small().fit(X, Y, [1.0]),
    r"all whole numbers or .* got \[\{0\}, 1j\]": lambda: small().fit(X, Y, classes=[{0}, 1j]),
    r"n_inducing is their number\); got 100\.": lambda: fitted(inducing_points=100),
    "a positive integer; got 2.5": lambda: fitted(max_iter=np.float64(2.5)),
    r"each once, .* got \[0, 1, 1\]": lambda: small().fit(X, Y, classes=[0, 1, 1]),
    "return_cov must be True or False; got 'yes'": lambda: fitted().predict_latent(X, return_cov="yes"),
    "return_grad must be True or False; got 'no'": lambda: LINEAR.fit(X, Y).predict_latent(X, return_grad="no"),
    "likelihood='ordinal-logit' is for GPOrdinalClassifier": lambda: fitted(likelihood="ordinal-logit"),
    "Rows must have 2 features; got 3": lambda: fitted(n_neighbors=5).posterior_.marginals(np.zeros((1, 3))),
    "KFold.* leaves a single row to learn from .* Give more rows, a": lambda: small(
        n_neighbors=1, optimizer="profile", held_out_split=KFold(2)
    ).fit(np.eye(2), [0, 1]),
    "the target y is None: give the label of each row": lambda: small().fit(X, None),
    "Expected 2D array, or a table; got a NoneType": lambda: small().fit(None, Y),
    "Expected 2D array, or a table; got a dict": lambda: fitted().predict({"a": [1.0]}),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_is_refused_with_a_reason(message):
    refuses(message, REFUSED[message])


@pytest.mark.parametrize("path", [5, None, True])
def test_a_file_needs_a_name(path):
    """The system takes a number for a file that is open."""
    model = fitted()
    for call in (GPClassifier.load, model.save, model.report(X, Y).save):
        refuses(rf"name of a file must be text or a path, .*; got {path}\.", call, path, error=TypeError)


def test_an_unknown_system_names_the_known_ones():
    with pytest.raises(KeyError, match=r"'XGPC' is none of the systems \['X-GPC', .*'linear-BSVM'\]"):
        systems["XGPC"]
    assert systems.get("XGPC") is None
    assert "XGPC" not in systems


def test_groups_that_are_all_the_same_are_warned_of():
    with pytest.warns(UserWarning, match="groups are all 'a': .* or leave groups out"):
        small().fit(X, Y, groups=["a"] * 40)


@pytest.mark.parametrize("options", [{"batch_size": 40}, {"learning_rate": 0.1}])
def test_a_fit_says_that_it_has_no_mini_batches(options):
    told = "are not followed: mini-batches need a batch_size below the number of rows, 40."
    model = quietly(small(**options, max_iter=5), X, Y)
    [sentence] = [text for text in model.decisions_ if told in text]
    assert str(next(iter(options.values()))) in sentence
    followed = quietly(small(batch_size=10, learning_rate=0.1, max_iter=5), X, Y)
    assert not [text for text in followed.decisions_ if told in text]


def test_labels_that_could_not_be_read_are_not_written(tmp_path):
    model = fitted()
    model.classes_ = np.array([0, "a"], dtype=object)
    refuses("Only labels that are numbers, booleans or strings", model.save, tmp_path / "model.npz")
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_no_matrices_are_refused(tmp_path):
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", Y[:3])
    (tmp_path / "text.npy").write_text("a,b")
    refuses("a value for each row", from_npy, tmp_path / "X.npy", tmp_path / "y.npy")
    refuses("no array that can be mapped", from_npy, tmp_path / "text.npy", tmp_path / "y.npy")


def test_memory_that_is_not_there_is_told_of(tuned):
    tuned(most_bytes=1e3)
    with pytest.warns(UserWarning, match="with 5 inducing points needs about .* GB"):
        small().fit(X, THREE)


EXTRAS = {
    "polyagamma": (lambda: sampler().fit(X, Y), "pip install polyagamma tqdm"),
    "pyarrow.dataset": (lambda: from_parquet("rows.parquet"), r"pip install 'xgpc\[parquet\]'"),
    "matplotlib.figure": (lambda: ReliabilityDisplay.from_estimator(fitted(), X, Y), r"pip install 'xgpc\[plot\]'"),
    "skl2onnx": (register, r"pip install 'xgpc\[onnx\]'"),
}


@pytest.mark.parametrize("module", EXTRAS)
def test_what_needs_an_extra_names_it(module, monkeypatch):
    call, message = EXTRAS[module]
    monkeypatch.setitem(sys.modules, module, None)
    refuses(message, call, error=ImportError)


@pytest.mark.parametrize(("kernel", "reason"), [(RBF(1.0), "one length scale"), (DotProduct(), "a factor without")])
def test_kernels_without_length_scales_for_each_feature_have_no_importances(kernel, reason):
    with pytest.raises(AttributeError, match=f"has no feature_importances_: .*{reason}"):
        _ = fitted(kernel).feature_importances_


def test_a_warm_start_begins_anew_where_features_or_classes_are_others():
    model = small(warm_start=True).fit(X, Y)
    assert "begins anew" in model.fit(X[:, :1], Y).decisions_[0]
    assert "begins anew" in model.fit(X[:, :1], np.where(Y, "a", "b")).decisions_[0]


@pytest.mark.parametrize("optimizer", ["profile", "alternate", "adam", "joint"])
def test_nothing_to_learn_is_no_error(optimizer):
    kernel = ConstantKernel(2.0, "fixed") * RBF(1.0, "fixed")
    model = small(kernel, inducing_points=X[:9], learn_inducing=False, bound="polya-gamma", tol=1e-8)
    one, other = (quietly(clone(model).set_params(optimizer=each), X, Y) for each in (optimizer, None))
    assert one.kernel_ == kernel
    assert one.elbo_ == pytest.approx(other.elbo_, rel=1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_chains_show_how_far_they_are(capsys):
    sampler(verbose=1, n_samples=12, thin=2, n_proposals=4, n_warmup=3).fit(X, Y)
    assert "16/16" in capsys.readouterr().err
