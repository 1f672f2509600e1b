"""Texts that the command line reads and prints: long lines, other digits, names that a terminal cannot show."""

import contextlib
import io

import numpy as np
import pytest

from xgpc import GPClassifier
from xgpc.app.cli import main
from xgpc.app.columns import Wanted
from xgpc.app.tables import are_measurements, encode_labels, parse_labels, read_table
from xgpc.data.frames import Levels

# Of the csv module, in characters of a cell.
FIELD_LIMIT = 131_072


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_first_line_may_be_longer_than_any_cell(tmp_path, delimiter):
    names = [f"feature {i} of many with a long name" for i in range(5000)]
    header = delimiter.join([*names, "y"])
    assert len(header) > FIELD_LIMIT
    path = tmp_path / "wide.csv"
    rows = [delimiter.join([*(f"{i + j}.5" for j in range(5000)), "ab"[i % 2]]) for i in range(3)]
    path.write_text("\n".join([header, *rows]))
    table = read_table(str(path), Wanted("y"))
    assert table.features == names
    np.testing.assert_array_equal(table.X, np.add.outer(np.arange(3.0), np.arange(5000.0)) + 0.5)
    assert table.target == ["a", "b", "a"]


@pytest.mark.parametrize("line", [0, 1, 2])
def test_a_cell_that_is_too_long_is_named_as_that(tmp_path, line):
    lines = ["a,y", "1,u", "2,v"]
    lines[line] += "x" * FIELD_LIMIT
    (tmp_path / "long.csv").write_text("\n".join(lines))
    with pytest.raises(ValueError, match=r"field larger than field limit"):
        read_table(str(tmp_path / "long.csv"), Wanted("y"))


DIGITS = ["٣", "1٢", "\uff13", "१.५", "1_0", "\u22121", "1e٣"]


@pytest.mark.parametrize("cell", DIGITS)
def test_numbers_are_in_plain_digits(tmp_path, cell):
    path = tmp_path / "data.csv"
    path.write_text(f"a,y\n1,u\n{cell},v\n", encoding="utf-8")
    with pytest.raises(ValueError, match=rf"line 3, column 'a': '{cell}' is not allowed; put in a finite number"):
        read_table(str(path), Wanted("y"))


@pytest.mark.parametrize("cell", ["٣", "\uff13", "1_0"])
def test_labels_in_other_digits_are_text(tmp_path, cell):
    assert parse_labels([cell, "1", "2"]).tolist() == [cell, "1", "2"]
    assert not are_measurements(np.array([cell, "0.5"]))
    path = tmp_path / "data.csv"
    path.write_text(f"a,y\n1,3\n2,{cell}\n", encoding="utf-8")
    table = read_table(str(path), Wanted("y"))
    with pytest.raises(ValueError, match=rf"line 3, column 'y': '{cell}' is not a class of the model"):
        encode_labels(table, "y", np.array([3, 10]))


@pytest.mark.parametrize("option", ["--inducing", "--max-iter", "--seed", "--jobs", "--batch-size"])
@pytest.mark.parametrize("text", ["٣", "3_0", "\uff13"])
def test_integers_of_options_are_in_plain_digits(tmp_path, capsys, option, text):
    arguments = ["fit", str(tmp_path / "data.csv"), "--target", "y", "--model", str(tmp_path / "model.npz")]
    assert main([*arguments, option, text]) == 2
    assert f"argument {option}: must be " in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0", "-1", "inf", "nan", "soon"])
def test_time_is_a_positive_number_of_seconds(tmp_path, capsys, text):
    arguments = ["fit", "data.csv", "--target", "y", "--model", str(tmp_path / "model.npz")]
    assert main([*arguments, f"--max-time={text}"]) == 2
    assert "argument --max-time: must be a positive number of seconds; got" in capsys.readouterr().err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table with names that ASCII does not have, and the model of it."""
    folder = tmp_path_factory.mktemp("text")
    rng = np.random.default_rng(0)
    rows = [f"{x:.4f},{z:.4f},{'größer' if x > 0 else 'kleiner'}" for x, z in rng.normal(size=(40, 2))]
    (folder / "data.csv").write_text("\n".join(["Übermaß,b,Größe", *rows]), encoding="utf-8")
    arguments = ["fit", str(folder / "data.csv"), "--target", "Größe", "--model", str(folder / "model.npz")]
    assert main([*arguments, "--inducing", "4", "--max-iter", "5"]) == 0
    return folder


@pytest.fixture
def run(folder, monkeypatch):
    """A function that runs the command line in the folder, with standard output in ASCII: status, output, errors."""
    monkeypatch.chdir(folder)

    def run(*arguments):
        # As Python opens them where PYTHONIOENCODING is ascii.
        out = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
        err = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="backslashreplace")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(list(arguments))
        for stream in (out, err):
            stream.flush()
        return status, out.buffer.getvalue(), err.buffer.getvalue()

    return run


def test_reports_escape_what_standard_output_has_no_code_for(folder, run):
    arguments = ["data.csv", "--target", "Größe"]
    status, out, _ = run("fit", *arguments, "--model", "other.npz", "--inducing", "4", "--max-iter", "5")
    assert status == 0
    assert rb"gr\xf6\xdfer" in out
    assert rb"\xdcberma\xdf" in out
    assert GPClassifier.load(folder / "other.npz").classes_.tolist() == ["größer", "kleiner"]
    assert run("evaluate", "model.npz", *arguments)[0] == 0


def test_tables_of_names_that_standard_output_has_no_code_for_go_to_a_file(folder, run):
    status, out, err = run("predict", "model.npz", "data.csv")
    assert (status, out) == (2, b"")
    assert rb"standard output is ascii, which has no '\xf6'; use --output FILE" in err
    assert run("predict", "model.npz", "data.csv", "--output", "out.csv")[0] == 0
    assert "probability_größer" in (folder / "out.csv").read_text(encoding="utf-8")


# Missing numbers, and no rows.


def columns_of(table):
    return [column.levels if isinstance(column, Levels) else column.values.tolist() for column in table.X.columns]


def test_numbers_are_missing_where_pandas_reads_them_so(tmp_path):
    pd = pytest.importorskip("pandas")
    words = ["", "NA", "N/A", "#N/A", "#NA", "<NA>", "NaN", "nan", "-nan", "NULL", "null", "None", "n/a", "1.#IND"]
    lines = ["a,b,y", *(f"{i}.5,{word},{'uv'[i % 2]}" for i, word in enumerate(words)), *40 * ["1,2,u"]]
    path = tmp_path / "gaps.csv"
    path.write_text("\n".join(lines))
    _, found = columns_of(read_table(str(path), Wanted("y")))
    np.testing.assert_array_equal(found, pd.read_csv(path)["b"])
    # Most of the first cells may be missing: they do not make a column of numbers text.
    path.write_text("a,y\nNA,u\nNA,v\nNaN,u\n3,v\n")
    np.testing.assert_array_equal(columns_of(read_table(str(path), Wanted("y"))), [[np.nan, np.nan, np.nan, 3.0]])
    # Of text they are names.
    path.write_text("a,y\nNA,u\nred,v\nblue,u\n,v\n")
    assert columns_of(read_table(str(path), Wanted("y"))) == [["NA", "red", "blue"]]
    for word in ("NAN", "inf", "missing", "-"):
        path.write_text(f"a,y\n1,u\n2,v\n{word},v\n")
        with pytest.raises(ValueError, match=rf"line 4, column 'a': '{word}' is not allowed; .* or nothing or NA if"):
            read_table(str(path), Wanted("y"))
    path.write_text("a,y\n1,u\nNA,v\n")
    with pytest.raises(ValueError, match="line 3, column 'a': 'NA' is not allowed"):
        read_table(str(path), Wanted("y", may_miss=False))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_numbers_that_only_rows_to_predict_miss_are_those_of_a_data_frame(ending, tmp_path, capsys):
    pd = pytest.importorskip("pandas")
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    X = np.random.default_rng(0).normal(size=(40, 2))
    frame, path = pd.DataFrame(X, columns=["a", "b"]), str(tmp_path / "model.npz")
    model = GPClassifier(n_inducing=4, optimizer=None).fit(frame, X[:, 0] > 0.0)
    model.save(path)
    gaps = frame[:5].copy()
    gaps.loc[1, "a"] = gaps.loc[[2, 3], "b"] = np.nan
    gaps.to_csv(tmp_path / "gaps.csv", index=False, na_rep="NA")
    if ending == "parquet":
        gaps.to_parquet(tmp_path / "gaps.parquet")
    capsys.readouterr()
    assert main(["predict", path, str(tmp_path / f"gaps.{ending}")]) == 0
    out, err = capsys.readouterr()
    assert err.startswith("xgpc: warning: X has 3 missing numbers (NaN): 1 in 'a', 2 in 'b'. The training rows missed")
    assert err.count("\n") == 1
    with pytest.warns(UserWarning, match="1 in 'a', 2 in 'b'"):
        expected = model.predict_proba(gaps)
    found = [[float(cell) for cell in line.split(",")[1:3]] for line in out.splitlines()[1:]]
    np.testing.assert_array_equal(found, expected)
    # Models that were saved by versions before do not know the means.
    del model.feature_mean_
    model.save(path)
    assert main(["predict", path, str(tmp_path / f"gaps.{ending}")]) == 2
    assert "put in" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["numbers", "gaps", "levels"])
@pytest.mark.parametrize("labels", [np.array([0, 1]), np.array(["no", "yes"], dtype=object)], ids=["numbers", "text"])
def test_no_rows_to_predict_are_predictions_of_no_rows(kind, labels, tmp_path, capsys):
    pd = pytest.importorskip("pandas")
    X = np.random.default_rng(0).normal(size=(40, 2))
    frame = pd.DataFrame(X, columns=["a", "b"])
    if kind == "gaps":
        frame.loc[0, "a"] = np.nan
    if kind == "levels":
        frame["b"] = pd.Categorical(np.where(X[:, 1] > 0.0, "up", "down"))
    model = GPClassifier(n_inducing=4, optimizer=None).fit(frame, labels[(X[:, 0] > 0.0).astype(int)])
    model.save(tmp_path / "model.npz")
    paths = {
        name: str(tmp_path / name) for name in ("model.npz", "none.csv", "some.csv", "none.parquet", "out.parquet")
    }
    frame[1:3].to_csv(paths["some.csv"], index=False)
    (tmp_path / "none.csv").write_text("b,a\n")
    header, *rows = _predicted(paths["model.npz"], paths["some.csv"], capsys)
    assert len(rows) == 2
    assert _predicted(paths["model.npz"], paths["none.csv"], capsys) == [header]
    (tmp_path / "none.csv").write_text("b\n")
    assert main(["predict", paths["model.npz"], paths["none.csv"]]) == 2
    assert "lacks the feature 'a'" in capsys.readouterr().err
    (tmp_path / "none.csv").write_text("b,a,y\n")
    assert main(["evaluate", paths["model.npz"], paths["none.csv"], "--target", "y"]) == 2
    assert "no rows" in capsys.readouterr().err
    pytest.importorskip("pyarrow")
    frame[:0].to_parquet(paths["none.parquet"])
    assert _predicted(paths["model.npz"], paths["none.parquet"], capsys) == [header]
    types = []
    for given in ("none.parquet", "some.csv"):
        assert main(["predict", paths["model.npz"], paths[given], "--output", paths["out.parquet"]]) == 0
        types.append(pd.read_parquet(paths["out.parquet"]).dtypes)
    pd.testing.assert_series_equal(*types)


def _predicted(model, data, capsys):
    """Lines of the predictions of a file."""
    capsys.readouterr()
    assert main(["predict", model, data]) == 0
    return capsys.readouterr().out.splitlines()
