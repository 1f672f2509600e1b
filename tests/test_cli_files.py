"""CSV and Parquet files of the command line: columns, cells that are wrong, forms, and more rows than memory takes."""

import gzip
import io
import os
import signal
import subprocess
import sys
from csv import reader
from datetime import datetime

import numpy as np
import pytest
from support.fits import quietly

from xgpc import GPClassifier

pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
import pandas as pd
import pyarrow as pa
from pyarrow import csv, parquet

OPTIONS = ["--inducing", "8", "--max-iter", "3"]
PARAMETERS = {"n_inducing": 8, "max_iter": 3, "random_state": 0}


def people():
    """Names of rows, text, truth values, codes and numbers, of which text and ages miss some, and classes."""
    rng, n = np.random.default_rng(0), 120
    frame = pd.DataFrame({"name": [f"row {i}" for i in range(n)], "town": rng.choice(["Ulm", "Bonn", "Kiel"], n)})
    frame = frame.assign(member=rng.random(n) < 0.4, code=rng.choice([10, 20, 30], n), age=rng.integers(18, 80, n))
    frame = frame.assign(age=frame.age.astype(float), pay=rng.normal(size=n))
    score = 2.0 * (frame.town == "Ulm") + frame.pay + 0.5 * rng.normal(size=n)
    frame.loc[::7, "town"] = None
    frame.loc[3::7, "age"] = np.nan
    return frame.assign(y=np.where(score > 0.7, "yes", "no"))


def numbers(n=400, labels=("no", "yes")):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, n))
    return pd.DataFrame({"a": a, "y": np.array(labels)[(a + 0.5 * rng.normal(size=n) > 0.0).astype(int)], "b": b})


def written(frame, path):
    if path.name.endswith(".parquet"):
        frame.to_parquet(path, row_group_size=70, index=False)
    else:
        frame.to_csv(path, index=False, compression="gzip" if path.suffix.lower() == ".gz" else None)
    return str(path)


@pytest.fixture
def model(tmp_path):
    return str(tmp_path / "model.npz")


def probabilities(out):
    return csv.read_csv(io.BytesIO(out.encode())).to_pandas().filter(like="probability").to_numpy()


def to_fit(data, model):
    return ["fit", data, "--target", "y", "--model", model, *OPTIONS]


def saved(frame, path):
    estimator = quietly(GPClassifier(**PARAMETERS, optimizer=None), frame[["a", "b"]], frame["y"])
    estimator.save(path)
    return estimator


@pytest.mark.parametrize("kind", ["data.csv", "data.csv.gz", "DATA.CSV.GZ", "data.parquet", "-"])
def test_a_table_is_fitted_and_predicted_as_the_estimator_does(kind, tmp_path, model, run):
    frame = people()
    X, y = frame.drop(columns=["name", "y"]), frame["y"]
    expected = quietly(GPClassifier(**PARAMETERS), X, y)
    path, text = (kind, frame.to_csv(index=False).encode()) if kind == "-" else (written(frame, tmp_path / kind), None)
    out, _ = run(*to_fit(path, model), "--drop", "name", text=text)
    assert "features                 5\n  categorical              'town'\n" in out
    fitted = GPClassifier.load(model)
    assert fitted.encoding_ == expected.encoding_
    assert fitted.feature_names_in_.tolist() == list(X)
    out, err = run("predict", model, path, text=text)
    assert err == ""
    np.testing.assert_array_equal(probabilities(out), expected.predict_proba(X))
    out, _ = run("evaluate", model, path, "--target", "y", text=text)
    assert f"{np.mean(expected.predict(X) != y):.4f}" in out


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_columns_are_found_by_name_after_any_separator(separator, tmp_path, model, run):
    # Labels of text that look like numbers.
    frame = numbers(labels=("1", "02"))
    estimator = saved(frame, model)
    name = 'größe "5"' + separator + 5 * ",;\t".replace(separator, "")
    other = frame.assign(**{name: "row 1; 2"})[[name, "b", "a", "y"]]
    other.to_csv(tmp_path / "other.csv", sep=separator, index=False, encoding="utf-8-sig")
    out, _ = run("predict", model, tmp_path / "other.csv")
    np.testing.assert_array_equal(probabilities(out), estimator.predict_proba(frame[["a", "b"]]))
    assert "  400\n" in run("evaluate", model, tmp_path / "other.csv", "--target", "y").out


def test_columns_are_dropped_and_named_by_options(tmp_path, model, run, fails):
    fit = to_fit(written(people(), tmp_path / "data.csv"), model)
    out, _ = run(*fit, "--drop", "name", "town", "--drop", "age", "--categorical", "code")
    assert "features                 3\n  categorical              'code'\n" in out
    fitted = GPClassifier.load(model)
    assert fitted.feature_names_in_.tolist() == ["member", "code", "pay"]
    assert fitted.encoding_.columns[1].levels == ("10", "20", "30")
    fails([*fit, "--drop", "nam"], "lacks the columns ['nam'] (did you mean 'name'?); it has ['name', 'town'")
    fails([*fit, "--categorical", "z"], "lacks the columns ['z']; it has")
    fails([*fit, "--categorical", "code", "town", "--drop", "town"], "--categorical names ['town'], which --drop")
    fails([*fit, "--drop", "name", "town", "member", "code", "age", "pay"], "rows and 0 columns")
    few = written(people()[["code", "town"]], tmp_path / "few.csv")
    fails(["predict", model, few], "lacks the columns ['member', 'pay']; it has ['code', 'town']")


@pytest.mark.parametrize("first", ["", "Unnamed: 0"])
def test_a_first_column_without_a_name_that_counts_the_rows_is_no_feature(first, tmp_path, model, run):
    frame, path = numbers(40), tmp_path / "data.csv"
    for index, features in ((range(40), ["a", "b"]), (range(1, 41), [first, "a", "b"])):
        frame.set_index(pd.Index(index, name=first)).to_csv(path)
        _, err = run(*to_fit(path, model))
        assert (f"note: The column '{first}' is the index of a data frame" in err) == (len(features) == 2)
        assert GPClassifier.load(model).feature_names_in_.tolist() == features
        run("predict", model, path)


def test_columns_are_kept_beside_the_predictions(tmp_path, model, run, fails):
    frame = numbers()
    key = ["NA", "null", "-nan", "", *(f"{i:03d}" for i in range(4, len(frame)))]
    data = written(frame.assign(key=key, when="2024-01-31"), tmp_path / "data.csv")
    run(*to_fit(data, model), "--drop", "key", "when")
    plain, _ = run("predict", model, data)
    out, _ = run("predict", model, data, "--keep", "key", "when", "--keep", "a")
    rows, lines = list(reader(io.StringIO(out))), list(reader(io.StringIO(plain)))
    assert rows[0] == ["key", "when", "a", *lines[0]]
    assert [row[:2] for row in rows[1:]] == [[one, "2024-01-31"] for one in key]
    assert [float(row[2]) for row in rows[1:]] == frame["a"].tolist()
    assert [row[3:] for row in rows] == lines
    fails(["predict", model, data, "--keep", "kei"], "lacks the columns ['kei'] (did you mean 'key'?)")
    clash = written(frame.assign(prediction=1), tmp_path / "clash.csv")
    keep = ["predict", model, clash, "--keep", "prediction", "--output", tmp_path / "out.csv"]
    fails(keep, "'prediction' cannot be kept: the predictions have a column of this name")
    assert not (tmp_path / "out.csv").exists()


def test_a_typing_error_in_a_number_is_named(tmp_path, model, run, fails, tuned):
    tuned(batch_rows=50)
    frame, path = people()[["town", "pay", "y"]], tmp_path / "data.csv"
    typed = frame.astype({"pay": object})
    typed.loc[70, "pay"] = "13o4"
    for columns in (["town", "pay", "y"], ["pay", "y"]):
        assert "levels" not in run(*to_fit(written(frame[columns], path), model)).err
        data = written(typed[columns], path)
        for command in (["predict", model, data], ["evaluate", model, data, "--target", "y"]):
            fails(command, "In column 'pay': line 72: '13o4' is no number; correct or empty it")
    other = tmp_path / "other.npz"
    doubt = "The column 'pay' has numbers in nearly all rows, but row 70 has the text '13o4'", "--categorical of the c"
    for name, place in (("data.csv", "line 72 of the file"), ("data.parquet", "row 70 of the data, counted from 0")):
        data = written(typed.astype({"pay": str}), tmp_path / name)
        fails(to_fit(data, other), *doubt, f"The first such row is {place}.")
    assert "categorical              'town', 'pay'\n" in run(*to_fit(path, other), "--categorical", "pay").out


def test_lines_of_a_file_are_those_that_an_editor_counts(tmp_path, model, fails):
    """Empty lines, and lines within cells, count."""
    rows = "1,'p\n\nq',u\n\n2,r,v\n".replace("'", '"') * 20
    value = "infinity, of 'a' in row 40; leave out such rows, or put in numbers. The first such row is line"
    for last, message in (("inf,s,u\n", value), ("3,s\n", "CSV parse error: line")):
        (tmp_path / "data.csv").write_text(f"a,b,y\n{rows}{last}")
        fails(to_fit(tmp_path / "data.csv", model), f"{message} {1 + rows.count(chr(10)) + 1}")


LISTS = pa.array([[0.5]] * 40)
TIMES = pa.array([datetime(2024, 1, 31)] * 40)
TO_FIT, TO_EVALUATE = to_fit("DATA", "NEW"), ["evaluate", "MODEL", "DATA", "--target", "y"]
# The column of a Parquet file that is replaced, what replaces it, and a command with what its error says.
BAD_COLUMNS = {
    "lists as a feature": ("a", LISTS, TO_FIT, "The column 'a' has values that are neither numbers nor text"),
    "lists as classes": ("y", LISTS, TO_FIT, "list<element: double>"),
    "lists to predict": ("a", LISTS, ["predict", "MODEL", "DATA"], "array element with a sequence"),
    "lists to keep": ("y", LISTS, ["predict", "MODEL", "DATA", "--keep", "y"], "nested columns ['y']; write Parquet"),
    "times as a feature": ("b", TIMES, TO_FIT, "X has dates or durations in the columns ['b']"),
    "times to compare": ("y", TIMES, TO_EVALUATE, "not among the model's classes [0, 1]"),
    "a feature as the target": ("y", TIMES, [*TO_EVALUATE, "--target", "b"], "not among the model's classes [0, 1]"),
    "a long name": ("y", TIMES, ["predict", "MODEL", "n" * 5000], "cannot read 'nnn"),
}


@pytest.mark.parametrize("name", BAD_COLUMNS)
def test_columns_that_do_not_serve_are_one_line(name, tmp_path, model, fails):
    frame, path = numbers(40, labels=(0, 1)), str(tmp_path / "data.parquet")
    saved(frame, model)
    column, cells, command, message = BAD_COLUMNS[name]
    table = pa.Table.from_pandas(frame, preserve_index=False)
    parquet.write_table(table.set_column(table.schema.names.index(column), column, cells), path)
    places = {"DATA": path, "MODEL": model, "NEW": tmp_path / "new.npz"}
    fails([places.get(one, one) for one in command], message)


# Content of a file, parts of the error, of which {} is the file, and its ending if it is not .csv.
BAD_TABLES = {
    "empty": ("", ["'{}'", "The file is empty"]),
    "empty lines": ("\n\n", ["'{}'", "The file is empty"]),
    "header only": ("a,b,y\n", ["columns, but no rows"]),
    "header without an end": ("a,b,y", ["'{}'", "a header, and no rows"]),
    "repeated column": ("a,b,a,y\n1,2,3,u\n", ["'{}'", "multiple columns named a"]),
    "short row": ("a,b,y\n1,2,u\n1,2\n", ["'{}'", "'{}': CSV parse error: line 3: Expected 3 columns, got 2"]),
    "no target": ("a,b,z\n1,2,u\n2,3,v\n", ["lacks the columns ['y']", "['a', 'b', 'z']"]),
    "no feature": ("y\nu\nv\n", ["0 columns"]),
    "empty label": ("a,b,y\n1,2,\n2,3,v\n", ["missing labels, the first in row 0"]),
    "nan label": ("a,b,y\n1,2,1\n2,3,nan\n", ["missing labels, the first in row 1"]),
    "one class": ("a,b,y\n1,2,u\n2,3,u\n", ["1 class", "two classes", "in Python"]),
    "Latin-1": ("a,b,y\n1,Köln,u\n2,Ulm,v\n".encode("latin-1"), ["'{}'", "UTF8", "Data are CSV files in UTF-8 with"]),
    "Latin-1 in names": ("a,Maß,y\n1,2,u\n".encode("latin-1"), ["'{}'", "utf-8", "Data are CSV files in UTF-8 with"]),
    "an archive": (b"PK\x03\x04\x1b[2J\n\x00,\x00\n", ["'{}'", "Data are CSV files in UTF-8 with"]),
    "names of rows": ("a,b,y\n1,2,u\n2,3,v\n3,4,w\n", ["column 'y'", "3 different", "no classes"]),
    "measurements": ("a,y\n1,.5\n2,1\n3,2\n4,2\n", ["0.5", "measurement"]),
    "huge": ("a,b,y\n1,1e200,u\n2,3,v\n", ["1e+200", "scale"]),
    "UTF-16": ("a,y\n1,u\n".encode("utf-16"), ["'{}'"]),
    "cut": (gzip.compress(b"a,class\n" + b"1,no\n" * 999)[:-20], ["'{}'"], ".csv.gz"),
    "not packed": ("a,y\n1,no\n", ["'{}'"], ".csv.gz"),
    "not Parquet": ("a,y\n1,no\n", ["'{}'"], ".parquet"),
    "empty Parquet": ("", ["'{}'"], ".parquet"),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_bad_tables_are_one_line_that_names_the_place(name, tmp_path, model, fails):
    content, fragments, ending = (*BAD_TABLES[name], ".csv")[:3]
    path = tmp_path / f"data{ending}"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    fails(["fit", path, "--target", "y", "--model", model], *(text.format(path) for text in fragments))
    assert os.listdir(tmp_path) == [path.name]


def test_a_column_that_was_empty_may_have_text(tmp_path, model, run):
    frame = numbers(60).assign(note=np.nan)
    run(*to_fit(written(frame, tmp_path / "empty.csv"), model))
    empty, full = (written(frame.assign(note=note), tmp_path / f"{note}.csv") for note in (np.nan, "text"))
    assert run("predict", model, full).out == run("predict", model, empty).out


def test_missing_numbers_are_told_once_and_without_the_count_of_a_batch(tmp_path, model, run, tuned):
    tuned(batch_rows=50)
    frame = numbers(200)
    saved(frame, model)
    frame.loc[[3, 4, 60], "b"] = np.nan
    err = run("predict", model, written(frame, tmp_path / "data.csv")).err
    assert err.startswith("xgpc: warning: X has missing numbers (NaN) in 'b'. The training rows missed none there")
    assert err.count("\n") == 1


def test_a_file_without_rows_is_not_compared(tmp_path, model, fails):
    frame = numbers(40)
    saved(frame, model)
    fails(["evaluate", model, written(frame[:0], tmp_path / "none.csv"), "--target", "y"], "none.csv' has no rows")


def test_cells_that_do_not_follow_the_types_of_the_first_rows_are_one_line(tmp_path, model, run, fails, tuned):
    tuned(csv_bytes=400)
    path, rows = tmp_path / "data.csv", "a,b,y\n" + "1,2,u\n2,3,v\n" * 100
    path.write_text(f"{rows}1.5,2,u\n")
    run(*to_fit(path, model))
    path.write_text(f"{rows}1,two,u\n")
    fails(to_fit(path, model), "In column 'b': line 202: 'two' is no number")


@pytest.fixture
def small_memory(tuned):
    tuned(memory=1000, batch_rows=60, csv_bytes=4000)


def test_files_of_a_folder_that_differ_are_one_line(tmp_path, model, fails):
    folder = tmp_path / "data.parquet"
    folder.mkdir()
    for name, columns in (("1", {"a": [True, False]}), ("2", {"a": [1.0, 2.0]})):
        parquet.write_table(pa.table({"b": [1.0, 2.0], "y": [0, 1]} | columns), folder / name)
    fails(to_fit(str(folder), model), "has the type double in the column 'a'")
    saved(numbers(40), model)
    fails(["predict", model, str(folder)], "has the type double in the column 'a'")


@pytest.mark.parametrize("labels", [("no", "yes"), (0, 1)], ids=["text", "numbers"])
@pytest.mark.parametrize("name", ["data.csv", "data.csv.gz", "data.parquet"])
def test_more_rows_than_memory_takes_are_read_in_batches(name, labels, tmp_path, model, run, small_memory, tuned):
    frame, path = numbers(labels=labels), tmp_path / name
    fit = [*to_fit(written(frame, path), model), "--optimizer", "none", "--neighbors", "0"]
    run(*fit)
    found = GPClassifier.load(model)
    # The fit itself keeps so few rows: it is the same.
    expected = quietly(GPClassifier(**PARAMETERS, optimizer=None, n_neighbors=0), frame[["a", "b"]], frame["y"])
    assert found.elbo_ == expected.elbo_
    assert found.classes_.tolist() == list(labels)
    out, _ = run("predict", model, path)
    np.testing.assert_array_equal(probabilities(out), expected.predict_proba(frame[["a", "b"]]))
    assert "  400\n" in run("evaluate", model, path, "--target", "y").out
    tuned(kept_rows=150)
    run(*fit)
    assert any("learned from 150 of 400 rows" in text for text in GPClassifier.load(model).history_["decision"])
    assert sorted(os.listdir(tmp_path)) == sorted([name, os.path.basename(model)])


def test_more_rows_than_memory_takes_must_be_numbers(tmp_path, model, run, fails, small_memory):
    fit = to_fit(written(people(), tmp_path / "data.csv"), model)
    fails(fit, "Column 'name' has levels")
    fails([*fit, "--drop", "name", "town"], "in 'age'. Put in numbers")
    numbers = [*fit, "--drop", "name", "town", "age"]
    fails([*numbers, "--categorical", "code"], "categorical_features=['code'] is only for fit")
    run(*numbers)


def test_predictions_are_written_as_the_name_says(tmp_path, model, run, fails):
    names = ("plain.csv", "packed.csv.gz", "PACKED.GZ", "columns.parquet", "plain")
    plain, packed, capital, columns, nameless = outputs = [tmp_path / name for name in names]
    path = written(numbers(), tmp_path / "data.csv")
    run(*to_fit(path, model))
    plain.write_text("old")
    plain.chmod(0o640)
    for output in outputs:
        assert run("predict", model, path, "--output", output) == ("", "")
    text = plain.read_text()
    assert text == run("predict", model, path).out == nameless.read_text()
    assert plain.stat().st_mode & 0o777 == 0o640
    assert packed.read_bytes() == capital.read_bytes()
    assert gzip.decompress(packed.read_bytes()).decode() == text
    pd.testing.assert_frame_equal(pd.read_parquet(columns), pd.read_csv(io.StringIO(text)), check_exact=True)
    before = sorted(os.listdir(tmp_path))
    for name in ("x.xlsx", "x.txt", "x.xlsx.gz", "x.parquet.gz", "x.npz"):
        fails(["predict", model, path, "--output", tmp_path / name], f"{name}' must end in .csv")
    assert sorted(os.listdir(tmp_path)) == before


def test_an_error_of_reading_is_not_one_of_writing(tmp_path, model, run, fails):
    path, output = tmp_path / "data.parquet", tmp_path / "out.csv"
    run(*to_fit(written(numbers(), path), model))
    content, metadata = bytearray(path.read_bytes()), parquet.ParquetFile(path).metadata
    page = metadata.row_group(metadata.num_row_groups - 1).column(0).data_page_offset
    content[page : page + 8] = bytes(8)
    path.write_bytes(content)
    for command in (["predict", model, path, "--output", output], ["evaluate", model, path, "--target", "y"]):
        fails(command, f"{str(path)!r}: ")
    assert not output.exists()


posix = pytest.mark.skipif(os.name != "posix", reason="signals of this system")

# Standard input that sends its reader a signal.
ENDED = """
import io, os, signal, sys
from xgpc.app.cli import command

class Ending(io.RawIOBase):
    def readable(self):
        return True

    def readinto(self, memory):
        os.kill(os.getpid(), signal.SIG{})
        memory[:4] = b"a,b\\n"
        return 4

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.stdin = io.TextIOWrapper(io.BufferedReader(Ending()))
sys.argv = ["xgpc", "fit", "-", "--target", "b", "--model", sys.argv[1]]
sys.exit(command())
"""

# The package's imports end as if interrupted.
INTERRUPTED = """
import sys
import _xgpc_command

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "scipy":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
sys.exit(_xgpc_command.main())
"""


def python(script, *arguments, cwd):
    return subprocess.run([sys.executable, "-c", script, *arguments], cwd=cwd, capture_output=True, text=True)


@posix
@pytest.mark.parametrize(("name", "word"), [("TERM", "terminated"), ("INT", "interrupted")])
def test_a_fit_that_a_signal_ends_leaves_no_files(tmp_path, name, word):
    done = python(ENDED.format(name), str(tmp_path / "model.npz"), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (128 + signal.Signals[f"SIG{name}"], f"xgpc: {word}\n")
    assert os.listdir(tmp_path) == []


def test_an_interrupt_of_the_imports_is_one_line(tmp_path):
    done = python(INTERRUPTED, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (130, "xgpc: interrupted\n")
