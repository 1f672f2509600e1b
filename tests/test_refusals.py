"""What is refused, and what names the extra that it needs: a line for each kind that no other file has."""

import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, WhiteKernel
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from support.fits import quietly
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


def small(kernel=None, **options):
    return GPClassifier(kernel, **{"n_inducing": 5, "optimizer": None, "random_state": 0, **options})


def fitted(kernel=None, **options):
    return small(kernel, **options).fit(X, Y)


REFUSED = {
    "label noise": (lambda: small(label_noise=0.1).fit(X, THREE), "label_noise=0.1 is for bounds 'additive-noise'"),
    "weights of classes": (lambda: small(class_weight="even").fit(X, Y), "Got 'even' instead"),
    "text as a weight": (lambda: small(class_weight={0: "a", 1: 1.0}).fit(X, Y), "string to float: 'a'"),
    "a negative weight": (lambda: fitted(class_weight={0: -1.0, 1: 1.0}), "class_weight must be positive"),
    "dates": (lambda: small().fit(np.arange(80).reshape(40, 2).astype("M8[D]"), Y), "X has dates or durations"),
    "noise alone": (lambda: small(WhiteKernel()).fit(X, Y), "white noise alone"),
    "length scales": (lambda: small(RBF([1.0] * 3)).fit(X, Y), "3 length scales but X has 2 features"),
    "no kernel": (lambda: small("rbf").fit(X, Y), "scikit-learn kernel object"),
    "no length scale": (lambda: small(RBF(0.0)).fit(X, Y), "positive and finite"),
    "bounds of restarts": (
        lambda: small(RBF(1.0, (1e-3, np.inf)), optimizer="profile", n_restarts_optimizer=1).fit(X, Y),
        "n_restarts_optimizer needs finite bounds",
    ),
    "points of NaN": (lambda: small(inducing_points=[[np.nan, 1.0]]).fit(X, Y), "inducing points contain NaN"),
    "points of text": (lambda: small(inducing_points=[["a", "b"]]).fit(X, Y), "numeric array"),
    "wide points": (lambda: small(inducing_points=np.ones((3, 5))).fit(X, Y), r"shape \(m, 2\).*got \(3, 5\)"),
    "levels in batches": (
        lambda: small(categorical_features=[0]).fit_batches([(X, Y)]),
        r"categorical_features=\[0\] is only for fit",
    ),
    "text in batches": (lambda: small().fit_batches([(named(X).assign(b="Ulm"), Y)]), "Column 'b' has levels"),
    "a correction": (lambda: fitted().predict_latent(X, corrected=True), "corrected=True is for likelihood='logit'"),
    "a joint correction": (
        lambda: fitted(bound="polya-gamma").predict_latent(X, return_cov=True, corrected=True),
        "no corrected joint covariance",
    ),
    "paths": (
        lambda: fitted(Matern(1.0, nu=2.2)).sample_latent(X, method="pathwise"),
        r"is for compiled kernels; Matern\(.*nu=2\.2\) is called, because Matern is no compiled kernel",
    ),
    "no draws": (lambda: fitted().sample_latent(X, 0), "n_samples must be a positive integer"),
    "importances of others": (
        lambda: ImportanceDisplay.from_estimator(LinearSVC().fit(X, Y)),
        "LinearSVC has no feature_importances_ to draw",
    ),
    "labels of a picture": (
        lambda: ReliabilityDisplay.from_estimator(fitted(), X, Y + 5),
        "labels .* that are not among the model's classes",
    ),
    "information": (
        lambda: mutual_information(LogisticRegression().fit(X, Y), X),
        "must be a fitted GPClassifier or BayesianLinearClassifier",
    ),
    "a model before its fit": (lambda: select(GPClassifier(), X, 2), "not fitted"),
    "no path": (lambda: from_parquet([]), "path is an empty list"),
    "columns": (lambda: small(categorical_features=["c"]).fit(named(X), Y), "has 'c': names must be among"),
    "positions": (lambda: small(categorical_features=[4]).fit(X, Y), r"has 4: .* positions are from"),
    "a mask of columns": (lambda: small(categorical_features=[True]).fit(X, Y), "is a mask of 1 columns; X has 2"),
    "probabilities": (lambda: expected_calibration_error([0, 1], [0.5, 1.1]), "must be"),
    "outcomes": (lambda: expected_calibration_error([0, 2], [0.5, 0.5]), "must be"),
    "rows of probabilities": (lambda: expected_calibration_error([0], [[1.5, -0.5, 0.0]]), "must be"),
    "bins": (lambda: expected_calibration_error([0, 1], [0.5, 0.5], 0), "must be"),
    "an exponent": (lambda: small(RBF() ** 10**9).fit(X, Y), "multiplies out to more than"),
    "a kernel's exponent": (lambda: small(RBF() ** 10**400).fit(X, Y), r"exponent 10+ of .* is not supported"),
    "a parameter of no kernel": (lambda: small().set_params(kernel__length_scale=2.0), "kernel is None"),
    "another likelihood of a stream": (
        lambda: fitted(n_neighbors=0).set_params(likelihood="probit").partial_fit(X, Y),
        r"likelihood 'logit' .* bound 'exact'",
    ),
    "a stream of a full process": (
        lambda: fitted(inducing_points="all").set_params(inducing_points="kmeans").partial_fit(X, Y),
        "full Gaussian process",
    ),
    "a stream with neighbours": (
        lambda: fitted(n_neighbors=5).partial_fit(X, Y, n_new_inducing=2),
        "n_new_inducing=2 is for models without neighbours",
    ),
    "unequal numbers": (lambda: expected_calibration_error([0, 1], [0.5]), "one-dimensional, not empty and of the"),
    "a classifier without probabilities": (
        lambda: predictive_entropy(LinearSVC().fit(X, Y), X),
        "classifier with predict_proba; LinearSVC has no predict_proba",
    ),
    "a label of a picture": (
        lambda: ReliabilityDisplay.from_estimator(small().fit(X, THREE), X, THREE, label=7),
        r"label must be one of \[0, 1, 2\] or None; got 7",
    ),
    "huge points": (lambda: small(inducing_points=1e299 * np.ones((3, 2))).fit(X, Y), "value of size .*e"),
    "too many rows": (lambda: small().fit(ENDLESS, ENDLESS[:, 0]), "Got 2147483648 rows .* at most 2147483647"),
    "too many rows to predict": (
        lambda: fitted().predict_proba(ENDLESS),
        "predict_proba_batches, which take rows batch",
    ),
    "one weight for many rows": (lambda: small().fit(X, Y, [1.0]), r"got \[1.0\]: an array of shape \(1,\)"),
    "classes without an order": (
        lambda: small().fit(X, Y, classes=[{0}, 1j]),
        r"all whole numbers or .* got \[\{0\}, 1j\]",
    ),
    "a number of points": (lambda: small(inducing_points=100).fit(X, Y), r"n_inducing is their number\); got 100\."),
    "a number of NumPy": (lambda: small(max_iter=np.float64(2.5)).fit(X, Y), "a positive integer; got 2.5"),
    "a class twice": (lambda: small().fit(X, Y, classes=[0, 1, 1]), r"each once, .* got \[0, 1, 1\]"),
    "a word for a covariance": (
        lambda: fitted().predict_latent(X, return_cov="yes"),
        "return_cov must be True or False; got 'yes'",
    ),
    "a word for gradients": (
        lambda: BayesianLinearClassifier().fit(X, Y).predict_latent(X, return_grad="no"),
        "return_grad must be True or False; got 'no'",
    ),
    "no labels": (lambda: small().fit(X, None), "the target y is None: give the label of each row"),
    "no rows": (lambda: small().fit(None, Y), "Expected 2D array, or a table; got a NoneType"),
    "a dictionary": (lambda: fitted().predict({"a": [1.0]}), "Expected 2D array, or a table; got a dict"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_is_refused_with_a_reason(kind):
    call, message = REFUSED[kind]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("path", [5, None, True])
def test_a_file_needs_a_name(path):
    """The system takes a number for a file that is open."""
    model = fitted()
    for call in (GPClassifier.load, model.save, model.report(X, Y).save):
        with pytest.raises(TypeError, match=rf"name of a file must be text or a path, .*; got {path}\."):
            call(path)


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
    with pytest.raises(ValueError, match="Only labels that are numbers, booleans or strings"):
        model.save(tmp_path / "model.npz")
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_not_alike_or_no_matrices_are_refused(tmp_path):
    table = named(X).assign(y=Y)
    others = {"lacking": table[["a", "y"]], "text": table.assign(b="x")}
    for name, one in {"whole": table, **others}.items():
        one.to_parquet(tmp_path / f"{name}.parquet")
    for name, message in {"lacking": "40 in 'b'", "text": "string: 'x'"}.items():
        with pytest.raises(ValueError, match=message):
            small().fit_batches(from_parquet([tmp_path / "whole.parquet", tmp_path / f"{name}.parquet"], target="y"))
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", Y[:3])
    (tmp_path / "text.npy").write_text("a,b")
    with pytest.raises(ValueError, match="a value for each row"):
        from_npy(tmp_path / "X.npy", tmp_path / "y.npy")
    with pytest.raises(ValueError, match="no array that can be mapped"):
        from_npy(tmp_path / "text.npy", tmp_path / "y.npy")


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
    with pytest.raises(ImportError, match=message):
        call()


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
