"""Command line with more than two classes; likelihoods and systems by name."""

import csv
import io

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.metrics import accuracy_score, log_loss, mean_squared_error, roc_auc_score
from sklearn.preprocessing import label_binarize

from xgpc import GPClassifier, systems
from xgpc.app.cli import main
from xgpc.app.tables import are_measurements
from xgpc.likelihoods import LIKELIHOODS
from xgpc.metrics import expected_calibration_error

FEATURES = ["sepal length", "sepal width"]
CLASSES = ["setosa", "versicolor", "virginica"]
OPTIONS = ["--inducing", "8", "--seed", "3", "--max-iter", "30"]
PARAMS = {"n_inducing": 8, "random_state": 3, "max_iter": 30}
LATENTS = [f"latent_{moment}_{name}" for moment in ("mean", "variance") for name in CLASSES]
TWO_CLASS = [{"likelihood": name} for name in LIKELIHOODS if not LIKELIHOODS[name].multi_class and name != "logit"]


def write_csv(path, names, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    return str(path)


def read(text):
    header, *rows = csv.reader(io.StringIO(text))
    return header, [row[0] for row in rows], np.array([[float(cell) for cell in row[1:]] for row in rows])


def as_arguments(params):
    return [text for name, value in params.items() for text in (f"--{name.replace('_', '-')}", str(value))]


def reported(text):
    return [tuple(part.strip() for part in line.strip().split("  ", 1)) for line in text.splitlines()]


@pytest.fixture(scope="module")
def data():
    """Two features of three overlapping classes, and their numbers: (n, 2) and (n,) for training and test.

    No two rows are equal: the area under the curve depends on how those of two classes are ordered, which is round-off.
    """
    bunch = load_iris()
    X, y = bunch.data[:, :2] + 1e-3 * np.random.default_rng(0).normal(size=(150, 2)), bunch.target
    return X[::2], y[::2], X[1::2], y[1::2]


@pytest.fixture(scope="module")
def estimator(data):
    return GPClassifier(**PARAMS).fit(data[0], np.array(CLASSES)[data[1]])


@pytest.fixture(scope="module")
def files(data, tmp_path_factory):
    """A folder with train.csv, test.csv (names of the classes) and the model of the first."""
    folder = tmp_path_factory.mktemp("classes")
    for name, X, y in (("train", *data[:2]), ("test", *data[2:])):
        write_csv(folder / f"{name}.csv", [*FEATURES, "species"], [[*x, CLASSES[c]] for x, c in zip(X, y, strict=True)])
    arguments = ["--target", "species", "--model", str(folder / "model.npz")]
    assert main(["fit", str(folder / "train.csv"), *arguments, *OPTIONS]) == 0
    return folder


def fit(files, tmp_path, *options):
    """Fit the training rows; the model's file."""
    path = str(tmp_path / "model.npz")
    arguments = ["fit", str(files / "train.csv"), "--target", "species", "--model", path]
    assert main([*arguments, *OPTIONS, *options]) == 0
    return path


def test_predictions_are_the_librarys(files, data, estimator, capsys):
    X = data[2]
    assert main(["predict", str(files / "model.npz"), str(files / "test.csv")]) == 0
    header, labels, numbers = read(capsys.readouterr().out)
    assert header == ["prediction", *(f"probability_{name}" for name in CLASSES), *LATENTS]
    assert labels == estimator.predict(X).tolist()
    np.testing.assert_array_equal(numbers[:, :3], estimator.predict_proba(X))
    np.testing.assert_array_equal(numbers[:, 3:], np.column_stack(estimator.predict_latent(X)))


def test_evaluate_prints_scikit_learns_scores(files, data, estimator, capsys):
    X, y = data[2:]
    assert main(["evaluate", str(files / "model.npz"), str(files / "test.csv"), "--target", "species"]) == 0
    p = estimator.predict_proba(X)
    squares = 3.0 * mean_squared_error(label_binarize(y, classes=range(3)), p)
    assert reported(capsys.readouterr().out) == [
        ("rows", "75"),
        ("error", f"{1.0 - accuracy_score(y, np.argmax(p, axis=1)):.4f}"),
        ("mean NLL (nats)", f"{log_loss(y, p):.4f}"),
        ("Brier score (0 to 2)", f"{squares:.4f}"),
        ("AUC (one-vs-rest mean)", f"{roc_auc_score(y, p, multi_class='ovr'):.4f}"),
        ("calibration error (ECE)", f"{expected_calibration_error(y, p):.4f}"),
    ]


def test_fit_reports_the_likelihood_that_logit_stands_for(files, estimator, capsys, tmp_path):
    path = fit(files, tmp_path, "--likelihood", "logit")
    values = dict(reported(capsys.readouterr().out))
    assert values["classes"] == "setosa 33.3%, versicolor 33.3%, virginica 33.3%"
    assert values["likelihood"] == "softmax, bound exact"
    assert values["bound (ELBO)"].startswith(f"{estimator.elbo_:.2f} nats")
    assert values["inducing points"] == "8"
    assert GPClassifier.load(path).classes_.tolist() == CLASSES


def test_options_of_several_classes(files, data, capsys, tmp_path):
    options = {"likelihood": "multinomial-probit", "bound": "additive-noise", "share": "none", "max_iter": 3}
    path = fit(files, tmp_path, *as_arguments(options))
    rows = reported(capsys.readouterr().out)
    model = GPClassifier.load(path)
    del model.feature_names_in_
    with pytest.warns(match="max_iter"):
        same = GPClassifier(**{**PARAMS, **options}).fit(data[0], np.array(CLASSES)[data[1]])
    np.testing.assert_array_equal(model.predict_proba(data[2]), same.predict_proba(data[2]))
    assert {name: getattr(model, name) for name in options} == options
    assert ("label noise", f"{same.label_noise_:.3g}") in rows
    assert ("inducing points", "8 for each class") in rows
    kernels = [value for name, value in rows if name == "kernel"]
    assert kernels == [f"{c}: {k.k1} * RBF(length_scale=[...])" for c, k in zip(CLASSES, same.kernel_, strict=True)]


def test_integer_classes_and_numbers_as_names(data, capsys, tmp_path):
    X, y = data[:2]
    # Not in the order of the numbers, and compared as numbers.
    numbers = np.array([20, -3, 7])[y]
    train = write_csv(tmp_path / "train.csv", [*FEATURES, "y"], [[*x, c] for x, c in zip(X, numbers, strict=True)])
    other = write_csv(tmp_path / "b.csv", [*FEATURES, "y"], [[*x, f"{c}.0"] for x, c in zip(X, numbers, strict=True)])
    model = str(tmp_path / "model.npz")
    assert main(["fit", train, "--target", "y", "--model", model, *OPTIONS]) == 0
    same = GPClassifier(**PARAMS).fit(X, numbers)
    assert GPClassifier.load(model).classes_.tolist() == [-3, 7, 20]
    capsys.readouterr()
    assert main(["predict", model, train]) == 0
    header, labels, values = read(capsys.readouterr().out)
    assert header[1:4] == ["probability_-3", "probability_7", "probability_20"]
    assert labels == [str(c) for c in same.predict(X)]
    np.testing.assert_array_equal(values[:, :3], same.predict_proba(X))
    assert main(["evaluate", model, other, "--target", "y"]) == 0
    assert f"{np.mean(same.predict(X) != numbers):.4f}" == dict(reported(capsys.readouterr().out))["error"]


def test_evaluate_rows_without_a_class(files, data, estimator, capsys, tmp_path):
    X, y = data[2][data[3] > 0], data[3][data[3] > 0]
    path = write_csv(tmp_path / "two.csv", [*FEATURES, "y"], [[*x, CLASSES[c]] for x, c in zip(X, y, strict=True)])
    assert main(["evaluate", str(files / "model.npz"), path, "--target", "y"]) == 0
    values = dict(reported(capsys.readouterr().out))
    assert values["AUC (one-vs-rest mean)"] == "undefined: a class has no rows"
    assert values["mean NLL (nats)"] == f"{log_loss(y, estimator.predict_proba(X), labels=range(3)):.4f}"


def test_softmax_of_two_classes_has_two_latent_functions(data, capsys, tmp_path):
    X, y = data[0][data[1] > 0], np.array(CLASSES)[data[1][data[1] > 0]]
    train = write_csv(tmp_path / "train.csv", [*FEATURES, "y"], [[*x, c] for x, c in zip(X, y, strict=True)])
    model = str(tmp_path / "model.npz")
    assert main(["fit", train, "--target", "y", "--model", model, "--likelihood", "softmax", *OPTIONS]) == 0
    same = GPClassifier(likelihood="softmax", **PARAMS).fit(X, y)
    capsys.readouterr()
    assert main(["predict", model, train]) == 0
    header, _, values = read(capsys.readouterr().out)
    assert header[3:] == [name for name in LATENTS if not name.endswith("setosa")]
    np.testing.assert_array_equal(values, np.column_stack([same.predict_proba(X), *same.predict_latent(X)]))
    assert main(["evaluate", model, train, "--target", "y"]) == 0
    assert list(dict(reported(capsys.readouterr().out)))[3:5] == ["Brier score", "AUC"]


def given_to_the_estimator(files, monkeypatch, options):
    """Parameters of the classifier that ``xgpc fit`` would fit, those that are not the default."""
    seen = {}

    def stop(self, X, y):
        seen.update(self.get_params())
        raise KeyboardInterrupt

    monkeypatch.setattr(GPClassifier, "fit", stop)
    arguments = ["fit", str(files / "train.csv"), "--target", "species", "--model", str(files / "unused.npz")]
    assert main([*arguments, *options]) == 130
    default = {**GPClassifier().get_params(), "n_jobs": -1, "random_state": 0}
    return {name: value for name, value in seen.items() if value != default[name]}


@pytest.mark.parametrize("name", sorted(set(systems) - {"linear-BSVM"}))
def test_systems_are_their_parameters(files, name, monkeypatch):
    expected = {key: value for key, value in systems[name].items() if (key, value) != ("likelihood", "logit")}
    assert given_to_the_estimator(files, monkeypatch, ["--system", name]) == expected


def test_options_override_those_of_the_system(files, monkeypatch):
    before = {name: dict(system) for name, system in systems.items()}
    options = ["--batch-size", "7", "--optimizer", "none", "--system", "S-BSVM", "--bound", "auto", "--share", "none"]
    options += ["--inducing", "30"]
    expected = {"likelihood": "svm", "optimizer": None, "batch_size": 7, "share": "none", "n_inducing": 30}
    assert given_to_the_estimator(files, monkeypatch, options) == expected
    assert given_to_the_estimator(files, monkeypatch, []) == {}
    assert {name: dict(system) for name, system in systems.items()} == before


@pytest.mark.parametrize("params", [*TWO_CLASS, {"bound": "polya-gamma"}, {"optimizer": "hybrid"}], ids=str)
def test_what_is_for_two_classes_gives_the_librarys_error(files, data, params, capsys, tmp_path):
    with pytest.raises(ValueError, match=r"must be|is for two classes; for 3|is not for") as error:
        GPClassifier(**params).fit(*data[:2])
    arguments = ["fit", str(files / "train.csv"), "--target", "species", "--model", str(tmp_path / "model.npz")]
    capsys.readouterr()
    assert main(arguments + as_arguments(params)) == 2
    assert capsys.readouterr() == ("", f"xgpc: error: {error.value}\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("option", "name", "listed"),
    [("--likelihood", "cauchit", "multinomial-step"), ("--bound", "lower", "additive-noise"),
     ("--share", "points", "kernel"), ("--system", "linear-BSVM", "GPCaug-mc")],
)  # fmt: skip
def test_unknown_names_are_refused(files, option, name, listed, capsys, tmp_path):
    arguments = ["fit", str(files / "train.csv"), "--target", "species", "--model", str(tmp_path / "model.npz")]
    assert main([*arguments, option, name]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [all(text in line for text in (option, repr(name), listed)) for line in lines] == [True]


def test_help_names_every_likelihood_bound_and_system(capsys):
    assert main(["fit", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split()).replace("- ", "-")
    names = [*LIKELIHOODS, *(bound for likelihood in LIKELIHOODS.values() for bound in likelihood.bounds), *systems]
    assert [name for name in names if name not in text] == ["linear-BSVM"]
    assert "2048" in text


def test_measurements_are_numbers_that_are_not_whole():
    assert are_measurements(np.array(["0.5", "1", "2"]))
    assert not are_measurements(np.array([1.0, 2.0]))
    assert not are_measurements(np.array(["0.5", "a"]))
    assert not are_measurements(np.array(["99999999999999999999", "1"]))
