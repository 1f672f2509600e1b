"""Command line and CSV files."""

import csv
import io
import os
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from xgpc import GPClassifier, __version__
from xgpc.app import demo
from xgpc.app.cli import main
from xgpc.app.tables import parse_labels
from xgpc.metrics import expected_calibration_error

FEATURES = ["mean radius", "mean texture", "mean smoothness"]
OPTIONS = ["--inducing", "12", "--seed", "3"]


def write_csv(path, names, rows, delimiter=",", encoding="utf-8"):
    with open(path, "w", encoding=encoding, newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows([names, *rows])
    return path


@pytest.fixture(scope="module")
def data():
    """Three features (n, 3), integer labels and their names."""
    bunch = load_breast_cancer()
    columns = [bunch.feature_names.tolist().index(name) for name in FEATURES]
    return bunch.data[:200, columns], bunch.target[:200], bunch.target_names[bunch.target[:200]]


@pytest.fixture(scope="module")
def estimator(data):
    X, _, names = data
    return GPClassifier(n_inducing=12, random_state=3).fit(X, names)


@pytest.fixture(scope="module")
def files(data, tmp_path_factory):
    """A folder with data.csv, its target between the features, and the model that was fitted to it."""
    folder = tmp_path_factory.mktemp("files")
    X, _, names = data
    rows = [[x[0], name, x[1], x[2]] for x, name in zip(X.tolist(), names, strict=True)]
    write_csv(folder / "data.csv", [FEATURES[0], "diagnosis", *FEATURES[1:]], rows)
    arguments = ["fit", str(folder / "data.csv"), "--target", "diagnosis", "--model", str(folder / "model.npz")]
    assert main([*arguments, *OPTIONS]) == 0
    return folder


def reported(text):
    """Values of a report by name."""
    pairs = (line.strip().split("  ", 1) for line in text.splitlines() if line.startswith("  "))
    return {name: value.strip() for name, value in pairs}


def predictions(text):
    header, *rows = csv.reader(io.StringIO(text))
    return header, [row[0] for row in rows], np.array([[float(cell) for cell in row[1:]] for row in rows])


def read_archive(path):
    with np.load(path) as arrays:
        return dict(arrays)


def assert_fails(capsys, arguments, *fragments):
    """Exit status 2, nothing on stdout, and one line on stderr that contains the fragments."""
    capsys.readouterr()
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("xgpc: error: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    for fragment in fragments:
        assert fragment in err


def test_predict_equals_the_estimator_bit_for_bit(files, data, estimator, capsys):
    X = data[0]
    assert main(["predict", str(files / "model.npz"), str(files / "data.csv")]) == 0
    out, err = capsys.readouterr()
    header, labels, numbers = predictions(out)
    assert err == ""
    assert header == ["prediction", "probability_benign", "probability_malignant", "latent_mean", "latent_variance"]
    assert labels == estimator.predict(X).tolist()
    np.testing.assert_array_equal(numbers[:, :2], estimator.predict_proba(X))
    np.testing.assert_array_equal(numbers[:, 2:], np.column_stack(estimator.predict_latent(X)))


def test_evaluate_prints_the_estimators_scores(files, data, estimator, capsys):
    X, _, names = data
    assert main(["evaluate", str(files / "model.npz"), str(files / "data.csv"), "--target", "diagnosis"]) == 0
    values = reported(capsys.readouterr().out)
    p = estimator.predict_proba(X)[:, 1]
    outcome = names == "malignant"
    assert values == {
        "rows": "200",
        "error": f"{np.mean(estimator.predict(X) != names):.4f}",
        "mean NLL (nats)": f"{log_loss(outcome, p):.4f}",
        "Brier score": f"{brier_score_loss(outcome, p):.4f}",
        "AUC": f"{roc_auc_score(outcome, p):.4f}",
        "calibration error (ECE)": f"{expected_calibration_error(outcome, p):.4f}",
    }


def test_fit_reports_and_saves_what_the_estimator_finds(files, estimator, capsys, tmp_path):
    arguments = ["fit", str(files / "data.csv"), "--target", "diagnosis", "--model", str(tmp_path / "model.npz")]
    assert main([*arguments, *OPTIONS, "--jobs", "1"]) == 0
    out, err = capsys.readouterr()
    values = reported(out)
    assert err == ""
    assert values["rows"] == "200"
    assert values["inducing points"] == "12"
    assert values["bound (ELBO)"].startswith(f"{estimator.elbo_:.2f} nats")
    assert os.listdir(tmp_path) == ["model.npz"]
    model = GPClassifier.load(tmp_path / "model.npz")
    assert model.feature_names_in_.tolist() == FEATURES
    assert model.n_jobs == 1


def test_options_reach_the_estimator(files, tmp_path):
    path = str(tmp_path / "model.npz")
    arguments = ["fit", str(files / "data.csv"), "--target", "diagnosis", "--model", path, "--inducing", "7"]
    options = ["--bound", "polya-gamma", "--batch-size", "50", "--optimizer", "none", "--max-iter", "150"]
    assert main([*arguments, *options, "--max-time", "1e4"]) == 0
    model = GPClassifier.load(path)
    assert (model.bound, model.batch_size, model.optimizer, model.max_iter) == ("polya-gamma", 50, None, 150)
    assert len(model.inducing_points_) == 7
    assert model.max_time == 1e4


@pytest.mark.parametrize(
    ("delimiter", "encoding"), [(",", "utf-8"), (";", "utf-8"), ("\t", "utf-8"), (",", "utf-8-sig")]
)
def test_columns_are_found_by_name(files, data, estimator, capsys, tmp_path, delimiter, encoding):
    X = data[0][:5]
    rows = [[f"row {i}, {i}", x[2], x[0], "", x[1]] for i, x in enumerate(X.tolist())]
    names = ["größe", FEATURES[2], FEATURES[0], "diagnosis", FEATURES[1]]
    path = write_csv(tmp_path / "other.csv", names, rows, delimiter, encoding)
    assert main(["predict", str(files / "model.npz"), str(path)]) == 0
    numbers = predictions(capsys.readouterr().out)[2]
    np.testing.assert_array_equal(numbers[:, :2], estimator.predict_proba(X))


def test_output_file_equals_standard_output_and_replaces_a_file(files, capsys, tmp_path):
    arguments = ["predict", str(files / "model.npz"), str(files / "data.csv")]
    output = tmp_path / "out.csv"
    output.write_text("old")
    output.chmod(0o640)
    assert main([*arguments, "--output", str(output)]) == 0
    assert capsys.readouterr().out == ""
    assert main(arguments) == 0
    assert output.read_text() == capsys.readouterr().out
    assert output.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["out.csv"]


@pytest.mark.parametrize(
    ("cells", "labels", "kind"),
    [
        (["0", "1", "1"], [0, 1, 1], "i"),
        (["1.0", "2", "1"], [1.0, 2.0, 1.0], "f"),
        (["0", "no", "1"], ["0", "no", "1"], "U"),
        (["0.5", "1.5", "0.5"], ["0.5", "1.5", "0.5"], "U"),
        (["1_0", "10", "10"], ["1_0", "10", "10"], "U"),
        (["99999999999999999999", "1", "1"], ["99999999999999999999", "1", "1"], "U"),
    ],
)
def test_labels_are_numbers_if_all_are(cells, labels, kind):
    parsed = parse_labels(cells)
    assert parsed.dtype.kind == kind
    assert parsed.tolist() == labels


def test_integer_labels_are_kept_and_compared_as_numbers(data, capsys, tmp_path):
    X, code, _ = data
    model = str(tmp_path / "model.npz")
    train = write_csv(tmp_path / "train.csv", [*FEATURES, "y"], [[*x, c] for x, c in zip(X, code, strict=True)])
    other = write_csv(tmp_path / "other.csv", [*FEATURES, "y"], [[*x, f"{c}.0"] for x, c in zip(X, code, strict=True)])
    assert main(["fit", str(train), "--target", "y", "--model", model, *OPTIONS]) == 0
    assert GPClassifier.load(model).classes_.tolist() == [0, 1]
    outputs = []
    for path in (train, other):
        capsys.readouterr()
        assert main(["evaluate", model, str(path), "--target", "y"]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    assert main(["predict", model, str(train)]) == 0
    assert set(predictions(capsys.readouterr().out)[1]) == {"0", "1"}


def test_evaluate_rows_of_one_class(files, data, capsys, tmp_path):
    X, _, names = data
    rows = [[*x, "benign"] for x in X[names == "benign"]]
    path = write_csv(tmp_path / "one.csv", [*FEATURES, "diagnosis"], rows)
    assert main(["evaluate", str(files / "model.npz"), str(path), "--target", "diagnosis"]) == 0
    values = reported(capsys.readouterr().out)
    assert values["AUC"].startswith("undefined")
    assert 0.0 <= float(values["error"]) < 0.5


def test_model_without_feature_names(data, estimator, capsys, tmp_path):
    X = data[0][:4]
    path = tmp_path / "model.npz"
    estimator.save(path)
    table = write_csv(tmp_path / "data.csv", ["a", "b", "c"], X.tolist())
    assert main(["predict", str(path), str(table)]) == 0
    np.testing.assert_array_equal(predictions(capsys.readouterr().out)[2][:, :2], estimator.predict_proba(X))
    narrow = write_csv(tmp_path / "narrow.csv", ["a", "b"], X[:, :2].tolist())
    assert_fails(capsys, ["predict", str(path), str(narrow)], "2 feature columns", "fitted to 3")


BAD_TABLES = {
    "empty": (b"", ["is empty"]),
    "blank": (b"\n\n", ["is empty"]),
    "header only": (b"a,b,y\n", ["no rows"]),
    "repeated column": (b"a,b,a,y\n1,2,3,u\n", ["line 1", "'a'", "rename"]),
    "unnamed column": (b",b,y\n1,2,u\n", ["column 1 has no name"]),
    "short row": (b"a,b,y\n1,2,u\n1,2\n", ["line 3", "2 cells", "3 columns"]),
    "long row": (b"a,b,y\n1,2,u\n1,2,3,v\n", ["line 3", "4 cells", "3 columns"]),
    "no target": (b"a,b,z\n1,2,u\n2,3,v\n", ["no target column 'y'", "'a', 'b', 'z'"]),
    "no feature": (b"y\nu\nv\n", ["no column besides the target"]),
    "text": (b"a,b,y\n1,2,u\n1,two,v\n", ["line 3", "column 'b'", "'two'", "number"]),
    "decimal comma": (b"a;b;y\n1,5;2;u\n1;2;v\n", ["line 2", "column 'a'", "'1,5'"]),
    "infinite": (b"a,b,y\n1,-inf,u\n2,3,v\n", ["line 2", "column 'b'", "'-inf'", "finite"]),
    "overflow": (b"a,b,y\n1,1e999,u\n2,3,v\n", ["line 2", "column 'b'", "'1e999'", "finite"]),
    "underscore": (b"a,b,y\n1,1_0,u\n2,3,v\n", ["line 2", "column 'b'", "'1_0'"]),
    "no cell": (b"a,b,y\n1,,u\n2,,v\n", ["column 'b'", "no values"]),
    "empty label": (b"a,b,y\n1,2,\n2,3,v\n", ["line 2", "column 'y'", "empty"]),
    "nan label": (b"a,b,y\n1,2,1\n2,3,nan\n", ["line 3", "column 'y'", "'nan'"]),
    "Latin 1": ("a,b,y\n1,2,größe\n".encode("latin-1"), ["not UTF-8", "0xf6"]),
    "UTF-16": ("a,b,y\n1,2,u\n".encode("utf-16"), ["not UTF-8"]),
    "open quote": (b'a,b,y\n1,2,"u\n2,3,v\n', ["not well-formed CSV", "quotation"]),
    "one class": (b"a,b,y\n1,2,u\n2,3,u\n", ["column 'y'", "1 class, 'u'", "two or more"]),
    "names of rows": (b"a,b,y\n1,2,u\n2,3,v\n3,4,w\n", ["column 'y'", "3 different", "'u', 'v', 'w'", "each row"]),
    "measurements": (b"a,y\n1,.5\n2,1\n3,2\n4,2\n", ["column 'y'", "3 different values in 4 rows", "measurements"]),
    "huge": (b"a,b,y\n1,1e200,u\n2,3,v\n", ["1e+200", "scale"]),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_fit_refuses_bad_tables(name, capsys, tmp_path):
    content, fragments = BAD_TABLES[name]
    (tmp_path / "data.csv").write_bytes(content)
    model = tmp_path / "model.npz"
    model.write_text("kept")
    assert_fails(capsys, ["fit", str(tmp_path / "data.csv"), "--target", "y", "--model", str(model)], *fragments)
    assert sorted(os.listdir(tmp_path)) == ["data.csv", "model.npz"]
    assert model.read_text() == "kept"


@pytest.mark.parametrize(
    ("options", "fragments"),
    [
        (["--inducing", "-3"], ["--inducing", "at least 1", "'-3'"]),
        (["--inducing", "0"], ["--inducing", "at least 1", "'0'"]),
        (["--inducing", "many"], ["--inducing", "integer", "'many'"]),
        (["--bound", "lower"], ["--bound", "'lower'", "polya-gamma"]),
        (["--batch-size", "1.5"], ["--batch-size", "integer", "'1.5'"]),
        (["--optimizer", "sgd"], ["--optimizer", "'sgd'", "profile"]),
        (["--seed", "-1"], ["--seed", "from 0 to 4294967295", "'-1'"]),
        (["--seed", str(2**32)], ["--seed", "from 0 to 4294967295"]),
        (["--jobs", "0"], ["--jobs", "-1 for all", "'0'"]),
        (["--colour", "red"], ["unrecognized arguments: --colour red"]),
    ],
)
def test_fit_refuses_bad_options(files, options, fragments, capsys, tmp_path):
    arguments = ["fit", str(files / "data.csv"), "--target", "diagnosis", "--model", str(tmp_path / "model.npz")]
    assert_fails(capsys, arguments + options, "--help", *fragments)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("command", ["fit", "predict", "evaluate"])
@pytest.mark.parametrize(("name", "fragment"), [("nothing.csv", "No such file"), (".", "directory")])
def test_data_that_cannot_be_read(files, command, name, fragment, capsys, tmp_path):
    data = str(tmp_path / name)
    arguments = {
        "fit": ["fit", data, "--target", "y", "--model", str(tmp_path / "model.npz")],
        "predict": ["predict", str(files / "model.npz"), data, "--output", str(tmp_path / "out.csv")],
        "evaluate": ["evaluate", str(files / "model.npz"), data, "--target", "y"],
    }
    assert_fails(capsys, arguments[command], "cannot read", fragment, repr(data))
    assert os.listdir(tmp_path) == []


def test_missing_features_are_named(files, data, capsys, tmp_path):
    path = write_csv(tmp_path / "data.csv", [FEATURES[1], "x"], data[0][:, :2].tolist())
    arguments = ["predict", str(files / "model.npz"), str(path), "--output", str(tmp_path / "out.csv")]
    assert_fails(capsys, arguments, "lacks the features 'mean radius', 'mean smoothness'", "'mean texture', 'x'")
    assert os.listdir(tmp_path) == ["data.csv"]


@pytest.mark.parametrize("target", ["diagnosis", "other"])
def test_evaluate_refuses_unknown_labels_and_targets(files, data, target, capsys, tmp_path):
    rows = [[*x, "benign"] for x in data[0][:3]] + [[*data[0][3], "unsure"]]
    path = write_csv(tmp_path / "data.csv", [*FEATURES, "diagnosis"], rows)
    expected = {"diagnosis": ["line 5", "'unsure'", "'benign', 'malignant'"], "other": ["no target column 'other'"]}
    arguments = ["evaluate", str(files / "model.npz"), str(path), "--target", target]
    assert_fails(capsys, arguments, *expected[target])


BAD_MODELS = {
    "table": lambda path, good: path.write_text("a,b\n1,2\n"),
    "other archive": lambda path, good: np.savez(path, a=np.ones(3)),
    "pickle": lambda path, good: np.savez(path, header=np.array([{"a": 1}], dtype=object)),
    "empty": lambda path, good: path.touch(),
    "truncated": lambda path, good: path.write_bytes(good.read_bytes()[:-200]),
    "impossible shape": lambda path, good: np.savez(path, **{**read_archive(good), "Z": np.zeros(0)}),
    "directory": lambda path, good: path.mkdir(),
    "nothing": lambda path, good: None,
}


@pytest.mark.parametrize("kind", BAD_MODELS)
def test_files_that_are_not_models(files, kind, capsys, tmp_path):
    path = tmp_path / "bad.npz"
    BAD_MODELS[kind](path, files / "model.npz")
    before = os.listdir(tmp_path)
    arguments = ["predict", str(path), str(files / "data.csv"), "--output", str(tmp_path / "out.csv")]
    assert_fails(capsys, arguments, repr(str(path)), "model", "xgpc fit")
    assert os.listdir(tmp_path) == before


@pytest.mark.parametrize("command", ["fit", "predict", "demo"])
@pytest.mark.parametrize("kind", ["no directory", "directory", "below a file"])
def test_outputs_that_cannot_be_written(files, command, kind, capsys, tmp_path):
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "file").touch()
    names = {"no directory": "nowhere/out.png", "directory": "folder.png", "below a file": "file/out.png"}
    output = str(tmp_path / names[kind])
    arguments = {
        "fit": ["fit", str(files / "data.csv"), "--target", "diagnosis", "--model", output],
        "predict": ["predict", str(files / "model.npz"), str(files / "data.csv"), "--output", output],
        "demo": ["demo", "--output", output],
    }
    assert_fails(capsys, arguments[command], "cannot write", repr(output), "directory")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder.png"]
    assert os.listdir(tmp_path / "folder.png") == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_device_is_reported_and_not_replaced(files, capsys):
    arguments = ["predict", str(files / "model.npz"), str(files / "data.csv"), "--output", "/dev/full"]
    assert_fails(capsys, arguments, "cannot write '/dev/full'", "space")
    assert not os.path.isfile("/dev/full")


def test_inputs_are_not_replaced(files, capsys):
    data, model = str(files / "data.csv"), str(files / "model.npz")
    before = sorted(os.listdir(files))
    assert_fails(capsys, ["fit", data, "--target", "diagnosis", "--model", data], "also an input")
    assert_fails(capsys, ["predict", model, data, "--output", data], "also an input")
    assert_fails(capsys, ["predict", model, data, "--output", model], "also an input")
    assert sorted(os.listdir(files)) == before


@pytest.mark.parametrize("arguments", [[], ["tune"], ["fit"], ["demo", "--output", "picture.txt"]])
def test_usage_errors(arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_fails(capsys, arguments)
    assert os.listdir(tmp_path) == []


def test_failure_while_saving_leaves_the_old_model(files, capsys, tmp_path, monkeypatch):
    def savez(file, **arrays):
        file.write(b"part")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", savez)
    model = tmp_path / "model.npz"
    model.write_text("kept")
    arguments = ["fit", str(files / "data.csv"), "--target", "diagnosis", "--model", str(model), *OPTIONS]
    assert_fails(capsys, arguments, "No space left on device")
    assert os.listdir(tmp_path) == ["model.npz"]
    assert model.read_text() == "kept"


@pytest.mark.parametrize(
    ("raised", "status", "message"),
    [(KeyboardInterrupt, 130, "xgpc: interrupted\n"), (MemoryError, 2, "xgpc: error: not enough memory;")],
)
def test_interrupt_and_lack_of_memory(files, raised, status, message, capsys, tmp_path, monkeypatch):
    def fit(self, X, y):
        raise raised

    monkeypatch.setattr(GPClassifier, "fit", fit)
    arguments = ["fit", str(files / "data.csv"), "--target", "diagnosis", "--model", str(tmp_path / "model.npz")]
    assert main(arguments) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(message)
    assert err.count("\n") == 1
    assert os.listdir(tmp_path) == []


def test_lack_of_convergence_is_one_line_for_each_reason(files, capsys, tmp_path):
    arguments = ["fit", str(files / "data.csv"), "--target", "diagnosis", "--model", str(tmp_path / "model.npz")]
    assert main([*arguments, *OPTIONS, "--max-iter", "1"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert 1 <= len(lines) <= 2
    assert all(line.startswith("xgpc: warning: max_iter=1 was reached before tol=0.0001 by the ") for line in lines)
    assert len(set(lines)) == len(lines)
    assert not GPClassifier.load(tmp_path / "model.npz").converged_


def test_neighbours_that_mini_batches_do_not_have_are_warned_of(files, tmp_path, capsys):
    arguments = ["fit", str(files / "data.csv"), "--target", "diagnosis", "--model", str(tmp_path / "model.npz")]
    assert main([*arguments, "--inducing", "4", "--neighbors", "5", "--batch-size", "50"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("xgpc: warning: n_neighbors=5 is not followed. ")]


def test_version_and_help(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"xgpc {__version__}\n"
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert "xgpc fit train.csv --target diagnosis --model model.npz" in text
    assert all(command in text for command in ("demo", "fit", "predict", "evaluate"))


def test_module_ends_quietly_when_its_reader_has_gone(files, tmp_path):
    command = [sys.executable, "-m", "xgpc", "predict", str(files / "model.npz"), str(files / "data.csv")]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


@pytest.fixture(scope="module")
def demonstration():
    return demo.run(1)


def test_demo_prints_what_its_models_yield(demonstration, capsys, tmp_path):
    path = tmp_path / "picture.png"
    assert main(["demo", "--seed", "1", "--output", str(path)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    model = demonstration.models[demo.OURS]
    assert model.summary() in out
    values = {name: value.split("  ") for name, value in reported(out).items()}
    # Means over the splits, of which the first has the model that is shown.
    for column, (name, one) in enumerate(demonstration.models.items()):
        proba = one.predict_proba(demonstration.X_test)
        runs = demonstration.found[name]
        assert runs[0]["nll"] == pytest.approx(log_loss(demonstration.y_test, proba))
        assert runs[0]["error"] == pytest.approx(np.mean(one.predict(demonstration.X_test) != demonstration.y_test))
        for key, row in (("error", "error"), ("nll", "mean NLL (nats)")):
            shown = [cell for cell in values[row] if cell.strip()]
            assert float(shown[column]) == pytest.approx(np.mean([run[key] for run in runs]), abs=6e-5)
    ours, linear, _ = (np.mean([run["nll"] for run in runs]) for runs in demonstration.found.values())
    assert ours < 0.6 * linear
    assert all(len(line) < 160 for line in out.splitlines())
    assert os.listdir(tmp_path) == ["picture.png"]
    from matplotlib.image import imread

    picture = imread(path)
    assert picture.shape[0] > 600
    assert picture.shape[1] > 1500
    assert np.std(picture[..., :3]) > 0.1


@pytest.mark.parametrize("file_format", ["pdf", "svg"])
def test_demo_picture_formats(demonstration, tmp_path, file_format):
    path = tmp_path / "picture"
    demonstration.draw(path, file_format)
    start = {"pdf": b"%PDF", "svg": b"<?xml"}
    assert path.read_bytes().startswith(start[file_format])


def test_demo_without_matplotlib_says_how_to_get_it(demonstration, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(demo, "run", lambda seed: demonstration)
    assert main(["demo"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines()[-1] == "No picture without matplotlib: pip install 'xgpc[plot]'"
    assert os.listdir(tmp_path) == []
