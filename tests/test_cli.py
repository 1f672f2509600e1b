"""The command line: its commands give what the library gives, and its errors are one line."""

import csv
import io
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("pyarrow")
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from xgpc import GPClassifier, __version__, systems
from xgpc.app import demo
from xgpc.app.arguments import MODEL_ENDING
from xgpc.app.cli import main
from xgpc.likelihoods import LIKELIHOODS
from xgpc.metrics import expected_calibration_error

PARAMETERS = {"n_inducing": 8, "random_state": 3, "max_iter": 30}
OPTIONS = ["--inducing", "8", "--seed", "3", "--max-iter", "30"]
MODEL = f"model{MODEL_ENDING}"


def write_csv(path, columns):
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([columns, *zip(*columns.values(), strict=True)])
    return str(path)


def predictions(text):
    header, *rows = csv.reader(io.StringIO(text))
    return header, [row[0] for row in rows], np.array([[float(cell) for cell in row[1:]] for row in rows])


def reported(text):
    pairs = (line.strip().split("  ", 1) for line in text.splitlines() if line.startswith("  "))
    return {name: value.strip() for name, value in pairs}


@pytest.fixture
def xgpc(capsys):
    """Run a command that succeeds; its output and what it says on standard error."""

    def run(*arguments):
        capsys.readouterr()
        assert main([str(argument) for argument in arguments]) == 0
        return capsys.readouterr()

    return run


@pytest.fixture
def fails(capsys):
    """Run a command that fails with one line on standard error, which has the fragments in it."""

    def run(arguments, *fragments):
        capsys.readouterr()
        assert main([str(argument) for argument in arguments]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("xgpc: error: ")
        assert err.count("\n") == 1
        for fragment in fragments:
            assert fragment in err

    return run


class Problem:
    """A file of training rows, a model that was fitted to it by the command line, and the same model of the library."""

    def __init__(self, folder, bunch, features, n_rows):
        # No two rows are equal: the order of equal rows of two classes, which the AUC depends on, would be round-off.
        self.X = bunch.data[:n_rows, features] + 1e-3 * np.random.default_rng(0).normal(size=(n_rows, len(features)))
        self.y = bunch.target_names[bunch.target[:n_rows]].astype(str)
        self.names = [str(bunch.feature_names[j]) for j in features]
        # The target is between the features.
        columns = dict(zip(self.names, self.X.T.tolist(), strict=True))
        first, *others = self.names
        self.columns = {first: columns[first], "kind": self.y, **{name: columns[name] for name in others}}
        self.data, self.model = write_csv(folder / "data.csv", self.columns), str(folder / MODEL)
        self.estimator = GPClassifier(**PARAMETERS).fit(self.X, self.y)
        assert main(["fit", self.data, "--target", "kind", "--model", self.model, *OPTIONS]) == 0


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return Problem(tmp_path_factory.mktemp("two"), load_breast_cancer(), [0, 1, 4], 200)


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    return Problem(tmp_path_factory.mktemp("three"), load_iris(), [0, 1], 150)


@pytest.fixture(params=["two", "three"])
def problem(request):
    return request.getfixturevalue(request.param)


def test_predict_equals_the_estimator_bit_for_bit(problem, xgpc):
    X, estimator = problem.X, problem.estimator
    out, err = xgpc("predict", problem.model, problem.data)
    header, labels, numbers = predictions(out)
    classes, latents = estimator.classes_.tolist(), [f"_{name}" for name in estimator.classes_]
    latents = latents if len(latents) > 2 else [""]
    assert header == [
        "prediction", *(f"probability_{name}" for name in classes), *(f"latent_mean{one}" for one in latents),
        *(f"latent_variance{one}" for one in latents),
    ]  # fmt: skip
    assert err == ""
    assert labels == estimator.predict(X).tolist()
    expected = np.column_stack([estimator.predict_proba(X), *estimator.predict_latent(X)])
    np.testing.assert_array_equal(numbers, expected)


def test_evaluate_prints_scikit_learns_scores(problem, xgpc):
    p, y = problem.estimator.predict_proba(problem.X), problem.y
    code = np.searchsorted(problem.estimator.classes_, y)
    if p.shape[1] == 2:
        scores = {"Brier score": brier_score_loss(code, p[:, 1]), "AUC": roc_auc_score(code, p[:, 1])}
    else:
        auc = roc_auc_score(code, p, multi_class="ovr")
        scores = {"Brier score (0 to 2)": np.mean(np.sum((p - np.eye(3)[code]) ** 2, axis=1))}
        scores["AUC (one-vs-rest mean)"] = auc
    scores = {"error": np.mean(np.argmax(p, axis=1) != code), "mean NLL (nats)": log_loss(y, p), **scores}
    scores["calibration error (ECE)"] = expected_calibration_error(code, p)
    values = reported(xgpc("evaluate", problem.model, problem.data, "--target", "kind").out)
    assert values == {"rows": str(len(y)), **{name: f"{score:.4f}" for name, score in scores.items()}}


def test_fit_reports_and_saves_what_the_estimator_finds(three, xgpc, tmp_path):
    options = ["--likelihood", "logit", "--jobs", "1"]
    out, err = xgpc("fit", three.data, "--target", "kind", "--model", tmp_path / MODEL, *OPTIONS, *options)
    values = reported(out)
    assert err == ""
    assert (values["rows"], values["inducing points"]) == ("150", "8")
    assert values["likelihood"] == "softmax, bound exact"
    assert values["bound (ELBO)"].startswith(f"{three.estimator.elbo_:.2f} nats")
    assert os.listdir(tmp_path) == [MODEL]
    model = GPClassifier.load(tmp_path / MODEL)
    assert model.feature_names_in_.tolist() == three.names
    assert model.classes_.tolist() == three.estimator.classes_.tolist()


def given_to_the_estimator(two, monkeypatch, options):
    """Parameters of the classifier that ``xgpc fit`` would fit, those that are not the default."""
    seen = {}

    def stop(self, X, y):
        seen.update(self.get_params())
        raise KeyboardInterrupt

    monkeypatch.setattr(GPClassifier, "fit", stop)
    assert main(["fit", two.data, "--target", "kind", "--model", two.model, *options]) == 130
    default = {**GPClassifier().get_params(), "n_jobs": -1, "random_state": 0}
    return {name: value for name, value in seen.items() if value != default[name]}


@pytest.mark.parametrize("name", sorted(set(systems) - {"linear-BSVM"}))
def test_systems_are_their_parameters(two, name, monkeypatch):
    expected = {key: value for key, value in systems[name].items() if (key, value) != ("likelihood", "logit")}
    assert given_to_the_estimator(two, monkeypatch, ["--system", name]) == expected


def test_options_are_parameters_and_override_those_of_the_system(two, monkeypatch):
    before = {name: dict(system) for name, system in systems.items()}
    assert given_to_the_estimator(two, monkeypatch, []) == {}
    options = ["--optimizer", "none", "--system", "S-BSVM", "--bound", "auto", "--share", "none", "--batch-size", "7"]
    options += ["--inducing", "30", "--neighbors", "0", "--max-time", "1e4", "--max-iter", "150", "--jobs", "2"]
    assert given_to_the_estimator(two, monkeypatch, options) == {
        "likelihood": "svm", "optimizer": None, "batch_size": 7, "share": "none", "n_inducing": 30, "n_neighbors": 0,
        "max_time": 1e4, "max_iter": 150, "n_jobs": 2,
    }  # fmt: skip
    assert {name: dict(system) for name, system in systems.items()} == before


def test_whole_numbers_as_classes_are_kept_and_compared_as_numbers(three, xgpc, tmp_path):
    # Not in the order of the numbers.
    codes = np.array([20, -3, 7])[np.searchsorted(three.estimator.classes_, three.y)]
    train = write_csv(tmp_path / "train.csv", {**three.columns, "kind": codes})
    other = write_csv(tmp_path / "other.csv", {**three.columns, "kind": codes.astype(float)})
    xgpc("fit", train, "--target", "kind", "--model", tmp_path / MODEL, *OPTIONS)
    assert GPClassifier.load(tmp_path / MODEL).classes_.tolist() == [-3, 7, 20]
    header, labels, _ = predictions(xgpc("predict", tmp_path / MODEL, train).out)
    assert header[1:4] == ["probability_-3", "probability_7", "probability_20"]
    assert set(labels) == {"-3", "7", "20"}
    outs = [xgpc("evaluate", tmp_path / MODEL, path, "--target", "kind").out for path in (train, other)]
    assert outs[0] == outs[1]


def test_evaluate_without_rows_of_a_class(problem, xgpc, tmp_path):
    kept = problem.y != problem.estimator.classes_[0]
    columns = {name: np.asarray(values)[kept] for name, values in problem.columns.items()}
    path = write_csv(tmp_path / "some.csv", columns)
    values = reported(xgpc("evaluate", problem.model, path, "--target", "kind").out)
    p = problem.estimator.predict_proba(problem.X[kept])
    (auc,) = (value for name, value in values.items() if name.startswith("AUC"))
    assert auc.startswith("undefined: ")
    assert values["mean NLL (nats)"] == f"{log_loss(problem.y[kept], p, labels=problem.estimator.classes_):.4f}"


def test_a_model_without_feature_names_takes_all_columns(two, xgpc, fails, tmp_path):
    two.estimator.save(tmp_path / MODEL)
    columns = dict(zip("abc", two.X[:4].T.tolist(), strict=True))
    path = write_csv(tmp_path / "data.csv", columns)
    found = predictions(xgpc("predict", tmp_path / MODEL, path).out)[2]
    np.testing.assert_array_equal(found[:, :2], two.estimator.predict_proba(two.X[:4]))
    del columns["c"]
    fails(["predict", tmp_path / MODEL, write_csv(tmp_path / "data.csv", columns)], "2 features", "3 features")


@pytest.mark.parametrize(
    ("options", "fragments"),
    [
        (["--inducing", "-3"], ["n_inducing", "-3"]),
        (["--inducing", "many"], ["--inducing", "'many'", "--help"]),
        (["--bound", "lower"], ["--bound", "'lower'", "polya-gamma", "--help"]),
        (["--likelihood", "cauchit"], ["--likelihood", "'cauchit'", "multinomial-step"]),
        (["--system", "linear-BSVM"], ["--system", "'linear-BSVM'", "GPCaug-mc"]),
        (["--batch-size", "1.5"], ["--batch-size", "'1.5'"]),
        (["--optimizer", "sgd"], ["--optimizer", "'sgd'", "profile"]),
        (["--seed", "-1"], ["Seed must be between 0 and"]),
        (["--max-time", "0"], ["max_time", "0"]),
        (["--max-time", "soon"], ["--max-time", "'soon'"]),
        (["--colour", "red"], ["unrecognized arguments: --colour red"]),
        (["--target", "size"], ["lacks the columns ['size']", "'kind'"]),
    ],
)
def test_bad_options(two, options, fragments, fails, tmp_path):
    fails(["fit", two.data, "--target", "kind", "--model", tmp_path / MODEL, *options], *fragments)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("option", ["--likelihood=probit", "--bound=polya-gamma", "--optimizer=hybrid"])
def test_what_is_for_two_classes_gives_the_librarys_error(three, option, fails, tmp_path):
    name, value = option.removeprefix("--").split("=")
    with pytest.raises(ValueError, match=r"must be|is for two classes; for 3|is not for") as error:
        GPClassifier(**{name: value}).fit(three.X, three.y)
    fails(["fit", three.data, "--target", "kind", "--model", tmp_path / MODEL, option], f"error: {error.value}\n")


@pytest.mark.parametrize("arguments", [[], ["tune"], ["fit"], ["demo", "--output", "picture.txt"]])
def test_usage_errors(arguments, fails, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fails(arguments)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("command", ["fit", "predict", "evaluate"])
@pytest.mark.parametrize(("name", "fragment"), [("nothing.csv", "No such file"), (".", "directory")])
def test_data_that_cannot_be_read(two, command, name, fragment, fails, tmp_path):
    data = str(tmp_path / name)
    arguments = {
        "fit": ["fit", data, "--target", "y", "--model", tmp_path / MODEL],
        "predict": ["predict", two.model, data, "--output", tmp_path / "out.csv"],
        "evaluate": ["evaluate", two.model, data, "--target", "y"],
    }
    fails(arguments[command], "cannot read", fragment, repr(data))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("content", [None, b"a,b\n1,2\n", b""])
def test_files_that_are_not_models(two, content, fails, tmp_path):
    path = tmp_path / MODEL
    # None: the model, cut off.
    with open(two.model, "rb") as file:
        path.write_bytes(file.read()[:-200] if content is None else content)
    fails(["predict", path, two.data, "--output", tmp_path / "out.csv"], repr(str(path)), "xgpc fit")
    fails(["predict", tmp_path / "none", two.data], repr(str(tmp_path / "none")), "No such file", "xgpc fit")
    assert os.listdir(tmp_path) == [MODEL]


@pytest.mark.parametrize("command", ["fit", "predict", "demo"])
@pytest.mark.parametrize("name", ["nowhere/out.png", "folder.png", "file/out.png"])
def test_outputs_that_cannot_be_written(two, command, name, fails, tmp_path):
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "file").touch()
    output = str(tmp_path / name)
    arguments = {
        "fit": ["fit", two.data, "--target", "kind", "--model", output],
        "predict": ["predict", two.model, two.data, "--output", output],
        "demo": ["demo", "--output", output],
    }
    fails(arguments[command], "cannot write", repr(output), "directory")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder.png"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_device_is_reported_and_not_replaced(two, fails):
    fails(["predict", two.model, two.data, "--output", "/dev/full"], "cannot write '/dev/full'", "space")
    assert not os.path.isfile("/dev/full")


def test_inputs_are_not_replaced_and_models_end_as_such(two, fails, tmp_path):
    for arguments in (
        ["fit", two.data, "--target", "kind", "--model", two.data],
        ["predict", two.model, two.data, "--output", two.data],
        ["predict", two.model, two.data, "--output", two.model],
    ):
        fails(arguments, "also an input")
    fails(["fit", two.data, "--target", "kind", "--model", tmp_path / "m.pkl"], f"m.pkl' must end in {MODEL_ENDING}")


@pytest.mark.parametrize(
    ("raised", "status", "message"),
    [
        (KeyboardInterrupt, 130, "xgpc: interrupted\n"),
        (MemoryError, 2, "xgpc: error: not enough memory;"),
        (OSError(28, "No space left"), 2, "xgpc: error: cannot write"),
    ],
)
def test_a_fit_that_ends_early_leaves_the_old_model(two, raised, status, message, capsys, tmp_path, monkeypatch):
    def stop(self, *arguments):
        raise raised

    monkeypatch.setattr(GPClassifier, "save" if isinstance(raised, OSError) else "fit", stop)
    (tmp_path / MODEL).write_text("kept")
    assert main(["fit", two.data, "--target", "kind", "--model", str(tmp_path / MODEL), *OPTIONS]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(message)
    assert err.count("\n") == 1
    assert (tmp_path / MODEL).read_text() == "kept"
    assert os.listdir(tmp_path) == [MODEL]


def test_warnings_are_one_line_for_each_reason(two, xgpc, tmp_path):
    fit = ["fit", two.data, "--target", "kind", "--model", tmp_path / MODEL, *OPTIONS]
    lines = xgpc(*fit, "--max-iter", "1").err.splitlines()
    assert 1 <= len(lines) <= 2
    assert all(line.startswith("xgpc: warning: max_iter=1 was reached before tol=0.0001 by the ") for line in lines)
    lines = xgpc(*fit, "--neighbors", "5", "--batch-size", "50").err.splitlines()
    assert [line for line in lines if line.startswith("xgpc: warning: n_neighbors=5 is not followed. ")]


def test_a_fit_tells_how_it_goes_if_it_is_asked(two, xgpc, tmp_path):
    fit = ["fit", two.data, "--target", "kind", "--model", tmp_path / MODEL, *OPTIONS, "--max-time", "1000"]
    quiet, told = xgpc(*fit), xgpc(*fit, "--verbose")
    assert reported(told.out).keys() == reported(quiet.out).keys()
    lines = told.err.splitlines()
    assert lines[0].startswith("xgpc: checking: 0.0 s, 1000 s left")
    assert set(quiet.err.splitlines()) <= set(lines)


def test_version_and_help(xgpc):
    assert xgpc("--version").out == f"xgpc {__version__}\n"
    text = xgpc("--help").out
    assert f"xgpc fit train.csv --target diagnosis --model {MODEL}" in text
    assert all(command in text for command in ("demo", "fit", "predict", "evaluate"))
    text = "".join(xgpc("fit", "--help").out.split())
    names = [*LIKELIHOODS, *(bound for bounds in LIKELIHOODS.values() for bound in bounds), *systems]
    assert [name for name in names if name not in text] == ["linear-BSVM"]


def test_the_module_ends_quietly_when_its_reader_has_gone(two, tmp_path):
    command = [sys.executable, "-m", "xgpc", "predict", two.model, two.data]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


def test_names_that_a_terminal_has_no_code_for_are_escaped_in_reports(two, tmp_path):
    path = write_csv(tmp_path / "data.csv", {**two.columns, "Größe": two.columns["kind"]})
    command = [sys.executable, "-m", "xgpc", "fit", path, "--target", "kind", "--model", MODEL, *OPTIONS]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=True)
    assert rb"'Gr\xf6\xdfe'" in done.stdout


def test_what_needs_an_extra_says_so(fails, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as without:
        for name in ("xgpc.app.commands", "xgpc.app.tables"):
            without.delitem(sys.modules, name, raising=False)
        without.setitem(sys.modules, "pyarrow", None)
        fails(["fit", "data.csv", "--target", "y", "--model", MODEL], "need pyarrow: pip install 'xgpc[app]'")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(demo, "SPLITS", 1)
    assert main(["demo"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "No picture without matplotlib: pip install 'xgpc[plot]'"
    assert os.listdir(tmp_path) == []


def test_the_demonstration_prints_and_draws_scores_of_three_models(xgpc, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "SPLITS", 2)
    out, err = xgpc("demo", "--seed", "1", "--output", tmp_path / "picture.png")
    assert err == ""
    assert all(len(line) < 160 for line in out.splitlines())
    ours, linear, trees = (float(cell) for cell in reported(out)["mean NLL (nats)"].split())
    assert ours < 0.6 * linear
    assert ours < 1.2 * trees
    from matplotlib.image import imread

    picture = imread(tmp_path / "picture.png")
    assert picture.shape[0] > 600
    assert picture.shape[1] > 1500
    assert np.std(picture[..., :3]) > 0.1
    monkeypatch.setattr(demo, "SPLITS", 1)
    for ending, start in (("pdf", b"%PDF"), ("svg", b"<?xml")):
        xgpc("demo", "--output", tmp_path / f"picture.{ending}")
        assert (tmp_path / f"picture.{ending}").read_bytes().startswith(start)
