"""Files of the command line: Parquet, compressed CSV, standard input, and more rows than are kept in memory."""

import gzip
import io
import os
import types

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from xgpc import GPClassifier
from xgpc.app import training
from xgpc.app.cli import main
from xgpc.app.columns import Wanted
from xgpc.app.tables import read_table
from xgpc.app.training import training_rows
from xgpc.learning import stages

N = 400
LABELS = {"text": ["no", "yes"], "numbers": ["0", "1"]}


def columns(labels):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, N))
    return {"a": a, "class": np.array(labels)[(a + 0.5 * rng.normal(size=N) > 0.0).astype(int)], "b": b}


def csv_of(labels):
    lines = [
        f"{a!r},{label},{b!r}" for a, label, b in zip(*(v.tolist() for v in columns(labels).values()), strict=True)
    ]
    return "\n".join(["a,class,b", *lines, ""])


@pytest.fixture(params=["csv", "csv.gz", "parquet", "parquet of integers"])
def data(request, tmp_path):
    """A file, and the values of its column of labels as text."""
    kind, labels = request.param, LABELS["numbers" if "integers" in request.param else "text"]
    path = tmp_path / f"data.{kind.split()[0]}"
    if kind == "csv":
        path.write_text(csv_of(labels))
    elif kind == "csv.gz":
        path.write_bytes(gzip.compress(csv_of(labels).encode()))
    else:
        table = columns(labels)
        if "integers" in kind:
            table["class"] = table["class"].astype(int)
        pq.write_table(pa.table(table), path, row_group_size=70)
    return path, labels


def standard_input(monkeypatch, text):
    file = io.BytesIO(text.encode())
    monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=file))
    return file


def test_all_commands_take_all_files(data, tmp_path, capsys):
    path, labels = data
    model, output = tmp_path / "model.npz", tmp_path / "predicted.csv"
    arguments = [str(path), "--target", "class"]
    assert main(["fit", *arguments, "--model", str(model), "--inducing", "8", "--max-iter", "2"]) == 0
    assert main(["predict", str(model), str(path), "--output", str(output)]) == 0
    assert main(["evaluate", str(model), *arguments]) == 0
    fitted = GPClassifier.load(model)
    assert fitted.classes_.astype(str).tolist() == labels
    assert fitted.feature_names_in_.tolist() == ["a", "b"]
    assert len(output.read_text().splitlines()) == N + 1
    assert "Brier score" in capsys.readouterr().out
    assert sorted(os.listdir(tmp_path)) == sorted([path.name, model.name, output.name])


def test_all_files_are_the_same_table(data):
    path, labels = data
    table, expected = read_table(str(path), Wanted("class")), columns(labels)
    np.testing.assert_array_equal(table.X, np.column_stack([expected["a"], expected["b"]]))
    assert table.target == expected["class"].tolist()
    assert table.features == ["a", "b"]
    again = read_table(str(path), Wanted(features=["b"]))
    np.testing.assert_array_equal(again.X[:, 0], expected["b"])
    assert again.target == []


def test_standard_input(tmp_path, monkeypatch, capsys):
    text = csv_of(LABELS["text"])
    model = str(tmp_path / "model.npz")
    options = ["--target", "class"]
    given = standard_input(monkeypatch, text)
    assert main(["fit", "-", *options, "--model", model, "--inducing", "8", "--max-iter", "2"]) == 0
    assert not given.closed
    standard_input(monkeypatch, text)
    assert main(["predict", model, "-"]) == 0
    assert "prediction,probability_no" in capsys.readouterr().out
    standard_input(monkeypatch, "a,b,class\n1,2\n")
    assert main(["evaluate", model, "-", *options]) == 2
    assert "'standard input', line 2: 2 cells" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", None)
    assert main(["predict", model, "-"]) == 2
    assert "standard input is closed" in capsys.readouterr().err


@pytest.fixture
def small_memory(monkeypatch):
    monkeypatch.setattr(training, "IN_MEMORY", 1000)
    monkeypatch.setattr(training, "BATCH_ROWS", 60)
    monkeypatch.setattr(stages, "LAST_ROWS", 150)


def described(rows):
    return rows.features, rows.n_rows, rows.classes.tolist()


def test_rows_that_stay_in_files_are_described_as_those_in_memory(data, tmp_path, monkeypatch):
    path, _ = data
    with training_rows(str(path), Wanted("class"), tmp_path) as in_memory:
        expected = described(in_memory)
    monkeypatch.setattr(training, "IN_MEMORY", 1000)
    monkeypatch.setattr(training, "BATCH_ROWS", 60)
    with training_rows(str(path), Wanted("class"), tmp_path) as rows:
        assert described(rows) == expected
        options = {"n_inducing": 8, "optimizer": None, "n_neighbors": 0, "random_state": 0}
        found = GPClassifier(**options)
        rows.fit(found)
    other = GPClassifier(**options)
    in_memory.fit(other)
    # Few rows for the fit, if many for this memory: it is the same.
    assert found.elbo_ == other.elbo_
    assert found.classes_.dtype == other.classes_.dtype


def test_commands_fit_rows_that_stay_in_files(data, tmp_path, small_memory, capsys):
    path, labels = data
    model = tmp_path / "model.npz"
    arguments = ["fit", str(path), "--target", "class", "--model", str(model), "--inducing", "8", "--max-iter", "3"]
    assert main(arguments) == 0
    assert f"  {N}\n" in capsys.readouterr().out
    fitted = GPClassifier.load(model)
    assert fitted.classes_.astype(str).tolist() == labels
    assert any("learned from 150 of 400 rows" in text for text in fitted.history_["decision"])
    assert main(["evaluate", str(model), str(path), "--target", "class"]) == 0
    # The temporary files are gone.
    assert sorted(os.listdir(tmp_path)) == sorted([path.name, model.name])


def test_a_bad_cell_far_in_a_large_file_is_named(tmp_path, small_memory, capsys):
    lines = csv_of(LABELS["text"]).splitlines()
    lines[300] = "1.0,no,x"
    path = tmp_path / "data.csv"
    path.write_text("\n".join(lines))
    assert main(["fit", str(path), "--target", "class", "--model", str(tmp_path / "model.npz")]) == 2
    assert "line 301, column 'b': 'x' is not allowed" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["data.csv"]


def test_one_class_in_a_large_file(data, tmp_path, small_memory, capsys):
    path = tmp_path / "one.csv"
    path.write_text("a,class\n" + "".join(f"{i},no\n" for i in range(300)))
    assert main(["fit", str(path), "--target", "class", "--model", str(tmp_path / "model.npz")]) == 2
    assert "1 class, 'no'" in capsys.readouterr().err


BROKEN = {
    "cut.csv.gz": (gzip.compress(b"a,class\n" + b"1,no\n" * 999)[:-20], "not a whole file of gzip"),
    "other.csv.gz": (b"a,class\n1,no\n", "not a whole file of gzip"),
    "other.parquet": (b"a,class\n1,no\n", "[Pp]arquet"),
    "empty.parquet": (b"", "[Pp]arquet"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files(tmp_path, name, capsys):
    content, message = BROKEN[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_table(str(path), Wanted("class"))
    assert main(["fit", str(path), "--target", "class", "--model", str(tmp_path / "model.npz")]) == 2
    assert name in capsys.readouterr().err
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("memory", [0, 2**30])
def test_a_parquet_file_that_is_broken_inside(tmp_path, monkeypatch, memory, capsys):
    monkeypatch.setattr(training, "IN_MEMORY", memory)
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table(columns(LABELS["text"])), path)
    content = bytearray(path.read_bytes())
    content[4:3000] = bytes(2996)
    path.write_bytes(content)
    assert main(["fit", str(path), "--target", "class", "--model", str(tmp_path / "model.npz")]) == 2
    assert f"cannot read {str(path)!r}" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", ["parquet", "csv.gz"])
def test_files_that_there_are_not(tmp_path, suffix):
    with pytest.raises(ValueError, match=r"cannot read .*No such file"):
        read_table(str(tmp_path / f"none.{suffix}"), Wanted())


def test_bad_values_of_a_parquet_file(tmp_path, capsys):
    path, model = tmp_path / "data.parquet", str(tmp_path / "model.npz")
    table = pa.table({"a": [1.0, np.inf, 2.0], "class": ["x", "y", "x"]})
    pq.write_table(table, path)
    assert main(["fit", str(path), "--target", "class", "--model", model]) == 2
    error = capsys.readouterr().err
    assert f"{str(path)!r}, row 2, column 'a': inf: features must be finite" in error
    assert "batch" not in error
    late = {"a": np.arange(3.0), "class": ["x", None, "y"]}
    pq.write_table(pa.table({name: [*values] * 30_000 for name, values in late.items()}).slice(2), path)
    assert main(["fit", str(path), "--target", "class", "--model", model]) == 2
    assert "row 3, column 'class': a missing label" in capsys.readouterr().err
    numbers = np.zeros(70_000)
    numbers[69_000] = np.inf
    pq.write_table(pa.table({"b": np.zeros(70_000), "a": numbers, "class": ["x", "y"] * 35_000}), path)
    assert main(["fit", str(path), "--target", "class", "--model", model]) == 2
    assert "row 69001, column 'a': inf: features must be finite" in capsys.readouterr().err
    pq.write_table(table, path)
    assert main(["fit", str(path), "--target", "z", "--model", model]) == 2
    assert f"{str(path)!r} has no target column 'z'; its columns are 'a', 'class'" in capsys.readouterr().err


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model, and the CSV file that it was fitted to."""
    folder = tmp_path_factory.mktemp("saved")
    path, model = folder / "data.csv", folder / "model.npz"
    path.write_text(csv_of(LABELS["text"]))
    arguments = [str(path), "--target", "class", "--model", str(model), "--inducing", "8", "--max-iter", "2"]
    assert main(["fit", *arguments]) == 0
    return str(model), str(path)


def test_predictions_are_written_as_the_name_says(saved, tmp_path):
    names = ["plain.csv", "packed.csv.gz", "PACKED.GZ", "columns.parquet", "plain"]
    for name in names:
        assert main(["predict", *saved, "--output", str(tmp_path / name)]) == 0
    text = (tmp_path / names[0]).read_text()
    for name in names[1:3]:
        packed = (tmp_path / name).read_bytes()
        assert gzip.decompress(packed).decode() == text
    assert (tmp_path / names[1]).read_bytes() == (tmp_path / names[2]).read_bytes()
    assert (tmp_path / names[4]).read_text() == text
    table = pq.read_table(tmp_path / names[3])
    head, *lines = text.splitlines()
    assert table.column_names == head.split(",")
    rows = [",".join([label, *map(repr, numbers)]) for label, *numbers in zip(*table.to_pydict().values(), strict=True)]
    assert rows == lines
    assert sorted(os.listdir(tmp_path)) == sorted(names)


@pytest.mark.parametrize("name", ["x.xlsx", "x.txt", "x.xlsx.gz", "x.parquet.gz", "x.npz"])
def test_predictions_in_an_unknown_form_are_refused_before_any_work(tmp_path, capsys, name):
    """There is no model, which is not looked for."""
    assert main(["predict", "model.npz", "data.csv", "--output", str(tmp_path / name)]) == 2
    assert f"{name}' must end in .csv, .csv.gz (compressed by gzip) or .parquet" in capsys.readouterr().err
    assert not os.listdir(tmp_path)


def test_a_parquet_file_of_predictions_needs_pyarrow(saved, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("xgpc.app.output.find_spec", lambda name: None)
    assert main(["predict", *saved, "--output", str(tmp_path / "columns.parquet")]) == 2
    assert "needs pyarrow: pip install 'xgpc[parquet]'" in capsys.readouterr().err
    assert not os.listdir(tmp_path)


def test_a_fit_tells_how_it_goes_if_it_is_asked(saved, tmp_path, capsys):
    arguments = ["fit", saved[1], "--target", "class", "--model", str(tmp_path / "model.npz"), "--inducing", "8"]
    assert main([*arguments, "--max-iter", "2", "--max-time", "1000"]) == 0
    out, err = capsys.readouterr()
    assert main([*arguments, "--max-iter", "2", "--max-time", "1000", "--verbose"]) == 0
    told = capsys.readouterr()
    assert [line.split()[0] for line in told.out.splitlines()] == [line.split()[0] for line in out.splitlines()]
    lines = told.err.splitlines()
    assert lines[0].startswith("xgpc: checking: 0.0 s, 1000 s left")
    assert any(line.startswith("xgpc: The posterior has a bound") for line in lines)
    assert set(err.splitlines()) <= set(lines)
