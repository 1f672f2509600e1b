"""The command line: its commands give what the library gives, and its errors are one line."""

import io
import os
import subprocess
import sys
from unittest.mock import Mock

import numpy as np
import pytest

pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
import pandas as pd
from pyarrow import csv
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.metrics import log_loss
from support.fits import refuses

from xgpc import GPClassifier, __version__, systems
from xgpc.app.cli import main
from xgpc.likelihoods import LIKELIHOODS
from xgpc.metrics import scores

PARAMETERS = {"n_inducing": 8, "random_state": 3, "max_iter": 30}
OPTIONS = ["--inducing", "8", "--seed", "3", "--max-iter", "30"]
MODEL = "model.npz"


def reported(text):
    pairs = (line.strip().split("  ", 1) for line in text.splitlines() if line.startswith("  "))
    return {name: value.strip() for name, value in pairs}


class Problem:
    """A file of training rows, a model that was fitted to it by the command line, and the same model of the library."""

    def __init__(self, folder, bunch, features, n_rows):
        # No two rows are equal: the order of equal rows of two classes, which the AUC depends on, would be round-off.
        self.X = bunch.data[:n_rows, features] + 1e-3 * np.random.default_rng(0).normal(size=(n_rows, len(features)))
        self.y = bunch.target_names[bunch.target[:n_rows]].astype(str)
        self.frame = pd.DataFrame(self.X, columns=[str(bunch.feature_names[j]) for j in features])
        # The target is between the features.
        self.frame.insert(1, "kind", self.y)
        self.data, self.model = str(folder / "data.csv"), str(folder / MODEL)
        self.frame.to_csv(self.data, index=False)
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


def test_predict_equals_the_estimator_bit_for_bit(problem, run):
    X, estimator = problem.X, problem.estimator
    out, err = run("predict", problem.model, problem.data)
    table = csv.read_csv(io.BytesIO(out.encode())).to_pandas()
    classes, latents = estimator.classes_.tolist(), [f"_{name}" for name in estimator.classes_]
    latents = latents if len(latents) > 2 else [""]
    assert table.columns.tolist() == [
        "prediction", *(f"probability_{name}" for name in classes), *(f"latent_mean{one}" for one in latents),
        *(f"latent_variance{one}" for one in latents),
    ]  # fmt: skip
    assert err == ""
    assert table["prediction"].tolist() == estimator.predict(X).tolist()
    expected = np.column_stack([estimator.predict_proba(X), *estimator.predict_latent(X)])
    np.testing.assert_array_equal(table.iloc[:, 1:], expected)


def test_evaluate_prints_the_scores(problem, run):
    found = scores(problem.y, problem.estimator.predict_log_proba(problem.X), problem.estimator.classes_)
    titles = {"error": "error", "nll": "mean NLL (nats)", "brier": "Brier score", "auc": "AUC"}
    if len(problem.estimator.classes_) > 2:
        titles |= {"brier": "Brier score (0 to 2)", "auc": "AUC (one-vs-rest mean)"}
    titles["ece"] = "calibration error (ECE)"
    values = reported(run("evaluate", problem.model, problem.data, "--target", "kind").out)
    assert values == {"rows": str(len(problem.y)), **{title: f"{found[name]:.4f}" for name, title in titles.items()}}


def given_to_the_estimator(two, run, monkeypatch, options):
    """Parameters of the classifier that ``xgpc fit`` would fit, those that are not the default."""
    seen = {}

    def stop(self, X, y):
        seen.update(self.get_params())
        raise KeyboardInterrupt

    monkeypatch.setattr(GPClassifier, "fit", stop)
    run("fit", two.data, "--target", "kind", "--model", two.model, *options, status=130)
    default = {**GPClassifier().get_params(), "n_jobs": -1, "random_state": 0}
    return {name: value for name, value in seen.items() if value != default[name]}


@pytest.mark.parametrize("name", sorted(set(systems) - {"linear-BSVM"}))
def test_systems_are_their_parameters(two, name, run, monkeypatch):
    expected = {key: value for key, value in systems[name].items() if (key, value) != ("likelihood", "logit")}
    assert given_to_the_estimator(two, run, monkeypatch, ["--system", name]) == expected


def test_options_are_parameters_and_override_those_of_the_system(two, run, monkeypatch):
    before = {name: dict(system) for name, system in systems.items()}
    assert given_to_the_estimator(two, run, monkeypatch, []) == {}
    options = ["--optimizer", "none", "--system", "S-BSVM", "--bound", "auto", "--share", "none", "--batch-size", "7"]
    options += ["--inducing", "30", "--neighbors", "0", "--max-time", "1e4", "--max-iter", "150", "--jobs", "2"]
    assert given_to_the_estimator(two, run, monkeypatch, options) == {
        "likelihood": "svm", "optimizer": None, "batch_size": 7, "share": "none", "n_inducing": 30, "n_neighbors": 0,
        "max_time": 1e4, "max_iter": 150, "n_jobs": 2,
    }  # fmt: skip
    assert {name: dict(system) for name, system in systems.items()} == before


def test_evaluate_without_rows_of_a_class(problem, run, tmp_path):
    kept, path = problem.y != problem.estimator.classes_[0], tmp_path / "some.csv"
    problem.frame[kept].to_csv(path, index=False)
    values = reported(run("evaluate", problem.model, path, "--target", "kind").out)
    p = problem.estimator.predict_proba(problem.X[kept])
    (auc,) = (value for name, value in values.items() if name.startswith("AUC"))
    assert auc.startswith("undefined: ")
    assert values["mean NLL (nats)"] == f"{log_loss(problem.y[kept], p, labels=problem.estimator.classes_):.4f}"


# Arguments, in which DATA, MODEL and OLD are the files of a problem and an old model, and what the error says.
BAD = {
    "no command": ([], "--help"),
    "an unknown command": (["tune"], "tune"),
    "no target": (["fit", "DATA"], "--target"),
    "an unknown option": (["fit", "DATA", "--target", "kind", "--model", "OLD", "--colour", "red"], "--colour red"),
    "a number that is refused": (["fit", "DATA", "--target", "kind", "--model", "OLD", "--inducing", "-3"], "-3"),
    "a number that is none": (["fit", "DATA", "--target", "kind", "--model", "OLD", "--max-time", "soon"], "'soon'"),
    "a name": (["fit", "DATA", "--target", "kind", "--model", "OLD", "--likelihood", "cauchit"], "multinomial-step"),
    "a system": (["fit", "DATA", "--target", "kind", "--model", "OLD", "--system", "linear-BSVM"], "GPCaug-mc"),
    "a seed": (["fit", "DATA", "--target", "kind", "--model", "OLD", "--seed", "-1"], "from 0 to 2**32 - 1"),
    "a column": (["fit", "DATA", "--target", "size", "--model", "OLD"], "lacks the columns ['size']"),
    "no data": (["fit", "none.csv", "--target", "kind", "--model", "OLD"], "cannot read 'none.csv'"),
    "no data to predict": (["predict", "MODEL", "none.csv", "--output", "out.csv"], "cannot read 'none.csv'"),
    "a folder for data": (["evaluate", "MODEL", ".", "--target", "kind"], "directory"),
    "no model": (["predict", "none", "DATA"], "No such file"),
    "a table for a model": (["predict", "DATA", "DATA", "--output", "out.csv"], "xgpc fit"),
    "a cut model": (["predict", "OLD", "DATA", "--output", "out.csv"], "xgpc fit"),
    "no folder": (["fit", "DATA", "--target", "kind", "--model", f"none/{MODEL}"], "cannot write"),
    "a folder for an output": (["predict", "MODEL", "DATA", "--output", "."], "cannot write"),
    "an input for an output": (["predict", "MODEL", "DATA", "--output", "DATA"], "also an input"),
    "a model for an output": (["predict", "MODEL", "DATA", "--output", "MODEL"], "also an input"),
    "another ending": (["fit", "DATA", "--target", "kind", "--model", "m.pkl"], "must end in .npz"),
    "a folder for a page": (["evaluate", "MODEL", "DATA", "--target", "kind", "--html", "."], "cannot write"),
    "a model for a page": (["evaluate", "MODEL", "DATA", "--target", "kind", "--html", "MODEL"], "also an input"),
    "a full device": (["predict", "MODEL", "DATA", "--output", "/dev/full"], "space"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_arguments_are_one_line_and_write_nothing(two, kind, fails, tmp_path, monkeypatch):
    if kind == "a full device" and not os.path.exists("/dev/full"):
        pytest.skip("needs a device that is always full")
    monkeypatch.chdir(tmp_path)
    old = tmp_path / "old.npz"
    with open(two.model, "rb") as file:
        old.write_bytes(file.read()[:-200])
    before = old.read_bytes()
    files = {"DATA": two.data, "MODEL": two.model, "OLD": old}
    arguments, fragment = BAD[kind]
    fails([files.get(one, one) for one in arguments], fragment)
    assert os.listdir(tmp_path) == [old.name]
    assert old.read_bytes() == before


@pytest.mark.parametrize("option", ["--likelihood=probit", "--optimizer=hybrid"])
def test_what_is_for_two_classes_gives_the_librarys_error(three, option, fails, tmp_path):
    name, value = option.removeprefix("--").split("=")
    library = GPClassifier(**{name: value})
    error = refuses(r"must be|is for two classes; for 3|is not for", library.fit, three.X, three.y)
    fails(["fit", three.data, "--target", "kind", "--model", tmp_path / MODEL, option], f"error: {error}\n")


@pytest.mark.parametrize(
    ("raised", "status", "message"),
    [
        (KeyboardInterrupt, 130, "xgpc: interrupted\n"),
        (MemoryError, 2, "xgpc: error: not enough memory;"),
        (OSError(28, "No space left"), 2, "xgpc: error: cannot write"),
    ],
)
def test_a_fit_that_ends_early_leaves_the_old_model(two, raised, status, message, run, tmp_path, monkeypatch):
    monkeypatch.setattr(GPClassifier, "save" if isinstance(raised, OSError) else "fit", Mock(side_effect=raised))
    (tmp_path / MODEL).write_text("kept")
    out, err = run("fit", two.data, "--target", "kind", "--model", tmp_path / MODEL, *OPTIONS, status=status)
    assert out == ""
    assert err.startswith(message)
    assert err.count("\n") == 1
    assert (tmp_path / MODEL).read_text() == "kept"
    assert os.listdir(tmp_path) == [MODEL]


def test_warnings_are_one_line_for_each_reason(two, run, tmp_path):
    fit = ["fit", two.data, "--target", "kind", "--model", tmp_path / MODEL, *OPTIONS]
    lines = run(*fit, "--max-iter", "1").err.splitlines()
    assert 1 <= len(lines) <= 2
    assert all(line.startswith("xgpc: warning: max_iter=1 was reached before tol=0.0001 by the ") for line in lines)
    lines = run(*fit, "--neighbors", "5", "--batch-size", "50").err.splitlines()
    assert [line for line in lines if line.startswith("xgpc: warning: n_neighbors=5 is not followed. ")]


def test_the_help_of_the_command_imports_neither_learning_nor_scikit_learn(tmp_path):
    text = """
import sys
from xgpc.app.cli import main
main(["--help"])
sys.exit(any(name.startswith(("xgpc.learning", "scipy.optimize", "sklearn")) for name in sys.modules))
"""
    assert subprocess.run([sys.executable, "-c", text], cwd=tmp_path, stdout=subprocess.DEVNULL).returncode == 0


def test_version_and_help(run):
    assert run("--version").out == f"xgpc {__version__}\n"
    text = run("--help").out
    assert f"xgpc fit train.csv --target diagnosis --model {MODEL}" in text
    assert all(command in text for command in ("demo", "fit", "predict", "evaluate"))
    text = "".join(run("fit", "--help").out.split())
    names = [*LIKELIHOODS, *(bound for bounds in LIKELIHOODS.values() for bound in bounds), *systems]
    assert [name for name in names if name not in text] == ["linear-BSVM"]


def test_the_module_ends_quietly_when_its_reader_has_gone(two, tmp_path):
    command = [sys.executable, "-m", "xgpc", "predict", two.model, two.data]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


def test_what_needs_an_extra_says_so(fails, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as without:
        for name in ("xgpc.app.commands", "xgpc.app.tables"):
            without.delitem(sys.modules, name, raising=False)
        without.setitem(sys.modules, "pyarrow", None)
        fails(["fit", "data.csv", "--target", "y", "--model", MODEL], "need pyarrow: pip install 'xgpc[app]'")
    assert os.listdir(tmp_path) == []


def test_the_demonstration_prints_scores_of_three_models_and_writes_a_page(run, tmp_path, tuned):
    tuned(demo_splits=2)
    out, err = run("demo", "--seed", "1", "--html", tmp_path / "page.html")
    assert err == ""
    assert all(len(line) < 160 for line in out.splitlines())
    ours, linear, trees = (float(cell) for cell in reported(out)["mean NLL (nats)"].split())
    assert ours < 0.9 * linear
    assert ours < 0.7 * trees
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("<figcaption>") == 12
    assert all(name in page for name in ("GPClassifier", "logistic regression", "boosted trees", "pixel_2_5"))
