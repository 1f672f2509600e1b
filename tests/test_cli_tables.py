"""Tables of the command line: text, truth values and empty cells of files, and which columns are features."""

import gzip
import io
import types

import numpy as np
import pytest
from support.fits import quietly

from xgpc import GPClassifier
from xgpc.app import delimited, training
from xgpc.app.cli import main
from xgpc.app.columns import Wanted
from xgpc.app.tables import read_table
from xgpc.rows import columnar

N = 120
OPTIONS = ["--inducing", "8", "--max-iter", "3"]
PARAMETERS = {"n_inducing": 8, "max_iter": 3, "random_state": 0}


def values(seed=0):
    """Columns of cells, None where one is empty: names of rows, text, truth values, codes, numbers and classes."""
    rng = np.random.default_rng(seed)
    town, pay = rng.choice(["Ulm", "Bonn", "Kiel"], N).tolist(), rng.normal(size=N).tolist()
    age = [float(one) for one in rng.integers(18, 80, N)]
    columns = {"name": [f"row {i}" for i in range(N)], "town": town, "member": (rng.random(N) < 0.4).tolist()}
    columns |= {"code": rng.choice([10, 20, 30], N).tolist(), "age": age, "pay": pay}
    score = 2.0 * (np.array(town) == "Ulm") + np.array(pay) + 0.5 * rng.normal(size=N)
    for i in range(0, N, 7):
        columns["town"][i] = columns["age"][(i + 3) % N] = None
    return columns, np.where(score > 0.7, "yes", "no").tolist()


def csv_of(columns):
    lines = [list(columns), *zip(*columns.values(), strict=True)]
    return "\n".join(",".join("" if cell is None else str(cell) for cell in line) for line in lines) + "\n"


def written(tmp_path, columns, name="data.csv"):
    (tmp_path / name).write_text(csv_of(columns))
    return str(tmp_path / name)


def error_of(capsys, *arguments):
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def report_of(capsys, *arguments):
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr()


def probabilities(out):
    return np.array([line.split(",")[1:3] for line in out.splitlines()[1:]], dtype=float)


def not_installed(module):
    raise ImportError(module)


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "standard input", "parquet"])
def test_a_table_is_fitted_and_predicted_as_the_estimator_does(tmp_path, monkeypatch, capsys, kind):
    pd = pytest.importorskip("pandas")
    columns, y = values()
    frame = pd.DataFrame(columns).drop(columns="name").astype({"age": float})
    expected = quietly(GPClassifier(**PARAMETERS), frame, y)
    path, model = written(tmp_path, {**columns, "y": y}), tmp_path / "model.npz"
    if kind == "parquet":
        path = str(tmp_path / "data.parquet")
        pd.DataFrame({**columns, "y": y}).to_parquet(path)
    elif kind == "csv.gz":
        path = str(tmp_path / "data.csv.gz")
        (tmp_path / "data.csv.gz").write_bytes(gzip.compress(csv_of({**columns, "y": y}).encode()))
    elif kind == "standard input":
        path = "-"

    def run(*arguments):
        text = csv_of({**columns, "y": y}).encode()
        monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=io.BytesIO(text)))
        return report_of(capsys, *arguments)

    if kind != "parquet":
        # CSV needs no other library.
        monkeypatch.setattr(columnar, "_pyarrow", not_installed)
    out, _ = run("fit", path, "--target", "y", "--model", model, "--drop", "name", *OPTIONS)
    assert "features                 5\n  categorical              'town'\n" in out
    fitted = GPClassifier.load(model)
    assert fitted.encoding_ == expected.encoding_
    assert fitted.feature_names_in_.tolist() == ["town", "member", "code", "age", "pay"]
    out, err = run("predict", model, path)
    assert err == ""
    np.testing.assert_array_equal(probabilities(out), expected.predict_proba(frame))
    out, _ = run("evaluate", model, path, "--target", "y")
    assert f"{np.mean(expected.predict(frame) != np.array(y)):.4f}" in out


def test_models_of_tables_from_python_are_used(tmp_path, capsys):
    pd = pytest.importorskip("pandas")
    columns, y = values()
    frame = pd.DataFrame(columns)[["code", "member", "pay"]]
    for given, chosen in ((frame, ["code"]), (frame.astype({"code": "category", "member": "category"}), "from_dtype")):
        model = quietly(GPClassifier(**PARAMETERS, categorical_features=chosen), given, y)
        model.save(tmp_path / "model.npz")
        # Codes that are numbers are compared as such.
        cells = {name: frame[name].tolist() for name in ("pay", "code", "member")}
        cells["code"] = [f"{code}.0" for code in cells["code"]]
        out, _ = report_of(capsys, "predict", tmp_path / "model.npz", written(tmp_path, cells))
        np.testing.assert_array_equal(probabilities(out), model.predict_proba(given))
    # Without names, by the columns' positions.
    array = np.array([columns["town"], columns["pay"]], dtype=object).T
    model = quietly(GPClassifier(**PARAMETERS, categorical_features=[0]), array, y)
    model.save(tmp_path / "model.npz")
    cells = {"a": columns["town"], "b": columns["pay"]}
    out, _ = report_of(capsys, "predict", tmp_path / "model.npz", written(tmp_path, cells))
    np.testing.assert_array_equal(probabilities(out), model.predict_proba(array))
    err = error_of(capsys, "predict", tmp_path / "model.npz", written(tmp_path, {"a": columns["town"]}))
    assert "has 1 feature columns, but the model was fitted to 2, without names" in err


def columns_of(tmp_path, text, **wanted):
    (tmp_path / "data.csv").write_text(text)
    X = read_table(str(tmp_path / "data.csv"), Wanted(**wanted)).X
    if isinstance(X, np.ndarray):
        return X.T.tolist()
    return [
        [column.levels[code] if code >= 0 else None for code in column.codes.tolist()]
        if hasattr(column, "levels")
        else [None if np.isnan(value) else value for value in column.values.tolist()]
        for column in X.columns
    ]


def test_cells_tell_what_columns_are(tmp_path):
    text = "n,t,b,empty,code,mixed\n1,x,True,,1,12\n,,FALSE,,2,x 1\n2.5,y,,3,3,y\n"
    found = columns_of(tmp_path, text)
    assert found == [[1, None, 2.5], ["x", None, "y"], [1, 0, None], [None, None, 3], [1, 2, 3], ["12", "x 1", "y"]]
    found = columns_of(tmp_path, text, categorical=["code", "b"], drop=["t", "mixed", "n", "empty"])
    assert found == [["True", "FALSE", None], ["1", "2", "3"]]


def test_table_lines_and_blank_lines(tmp_path):
    path = tmp_path / "blank.csv"
    path.write_text('\n"a",b\r\n1, 2\r\n\r\n-3e-1,"4"\r\n\n')
    table = read_table(str(path), Wanted("b"))
    assert table.features == ["a"]
    assert table.X.tolist() == [[1.0], [-0.3]]
    assert table.target == ["2", "4"]
    assert list(table.lines) == [3, 5]


def test_the_first_rows_tell_and_later_ones_that_differ_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "DECIDING_CELLS", 6)
    assert columns_of(tmp_path, "a,b\nx,1\ny,2\nz,3\n4,4\n") == [["x", "y", "z", "4"], [1, 2, 3, 4]]
    with pytest.raises(ValueError, match=r"line 5, column 'a': 'x' is not allowed; .* \(--categorical 'a'\)"):
        columns_of(tmp_path, "a,b\n1,1\n2,2\n3,3\nx,4\n")
    assert columns_of(tmp_path, "a,b\n1,1\n2,2\n3,3\nx,4\n", categorical=["a"])[0] == ["1", "2", "3", "x"]


@pytest.mark.parametrize("cell", ["l7", "1,5", "NaN?", "inf", "1_0", "-", "true story"])
def test_a_typo_in_a_column_of_numbers_is_named(tmp_path, capsys, cell):
    columns = {"a": [float(i) for i in range(N)], "y": ["u", "v"] * (N // 2)}
    columns["a"][15] = f'"{cell}"'
    path, model = written(tmp_path, columns), tmp_path / "model.npz"
    err = error_of(capsys, "fit", path, "--target", "y", "--model", model)
    assert f"{path!r}, line 17, column 'a': {cell!r} is not allowed; put in a finite number such as 1.5" in err
    assert "or nothing or NA if it is missing, or remove the row; or leave the column out (--drop)" in err
    assert "(--categorical 'a')" in err
    columns["a"][15] = 15.0
    assert main(["fit", written(tmp_path, columns), "--target", "y", "--model", str(model), *OPTIONS]) == 0
    columns["a"][15] = f'"{cell}"'
    err = error_of(capsys, "predict", model, written(tmp_path, columns))
    assert f"line 17, column 'a': {cell!r} is not allowed; put in a finite number" in err
    assert "categorical" not in err
    columns["a"][15] = None
    told = "X has 1 missing number (NaN): 1 in 'a'. The training rows missed none there: their mean stands for such"
    assert told in report_of(capsys, "predict", model, written(tmp_path, columns)).err


def test_numbers_with_commas_are_no_names(tmp_path):
    with pytest.raises(ValueError, match=r"line 2, column 'a': '1,5' is not allowed"):
        columns_of(tmp_path, "a;y\n1,5;u\n2,5;v\n1.000,5;v\n")


def test_columns_are_dropped_and_named_by_options(tmp_path, capsys):
    columns, y = values()
    path, model = written(tmp_path, {**columns, "y": y}), tmp_path / "model.npz"
    fit = ["fit", path, "--target", "y", "--model", model, *OPTIONS]
    out, _ = report_of(capsys, *fit, "--drop", "name", "town", "--drop", "age", "--categorical", "code")
    assert "features                 3\n  categorical              'code'\n" in out
    fitted = GPClassifier.load(model)
    assert fitted.feature_names_in_.tolist() == ["member", "code", "pay"]
    assert fitted.encoding_.columns[1].levels == ("10", "20", "30")
    for options, message in (
        (["--drop", "nam"], "has no feature 'nam', which --drop names (did you mean 'name'?); its columns are 'name'"),
        (["--categorical", "z"], "has no feature 'z', which --categorical names; its columns are"),
        (["--drop", "y"], "has no feature 'y', which --drop names; it is the target."),
        (["--drop", "code", "--categorical", "code"], "the column 'code' is named by --drop and by --categorical"),
        (["--drop", *columns], "has no column besides the target 'y' and 'name' and 'town'"),
    ):
        assert message in error_of(capsys, *fit, *options)


@pytest.mark.parametrize("name", ["m.pkl", "m", "m.joblib", "npz"])
def test_models_are_files_of_arrays_and_their_names_say_so(tmp_path, capsys, name):
    columns, y = values()
    err = error_of(capsys, "fit", written(tmp_path, {**columns, "y": y}), "--target", "y", "--model", tmp_path / name)
    assert f"{name}' must end in .npz: it is a file of arrays, and no pickle" in err
    assert not (tmp_path / name).exists()


def test_numbers_that_only_rows_to_predict_miss_are_warned_of_once(tmp_path, capsys):
    columns, y = values()
    path, model = written(tmp_path, {**columns, "y": y}), tmp_path / "model.npz"
    report_of(capsys, "fit", path, "--target", "y", "--model", model, "--drop", "name", *OPTIONS)
    columns["pay"][3] = columns["code"][5] = None
    out, err = report_of(capsys, "predict", model, written(tmp_path, columns))
    assert np.all(np.isfinite(probabilities(out)))
    assert err.startswith("xgpc: warning: X has 2 missing numbers (NaN): 1 in 'code', 1 in 'pay'. The training rows")
    assert err.count("\n") == 1


def test_an_index_in_a_parquet_file_is_told_of_and_no_feature(tmp_path, capsys):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    columns, y = values()
    path, model = tmp_path / "data.parquet", tmp_path / "model.npz"
    frame = pd.DataFrame({"pay": columns["pay"], "y": y}).sort_values("y")
    fit = ["fit", path, "--target", "y", "--model", model, *OPTIONS]
    for table, name in ((frame, "__index_level_0__"), (frame.rename_axis("id"), "id")):
        table.to_parquet(path)
        err = report_of(capsys, *fit).err
        told = f"The column {name!r} is the index of a data frame that pandas wrote, and no feature."
        assert err.splitlines()[0] == f"xgpc: note: {str(path)!r}: {told}"
        assert GPClassifier.load(model).feature_names_in_.tolist() == ["pay"]
        assert report_of(capsys, "evaluate", model, path, "--target", "y").err == ""
        # Who names it knows of it.
        assert "note" not in report_of(capsys, *fit, "--drop", name).err
    (frame.set_axis(np.arange(N) % 3).rename_axis("id")).to_parquet(path)
    assert "note" not in report_of(capsys, *fit, "--categorical", "id").err
    assert GPClassifier.load(model).feature_names_in_.tolist() == ["pay", "id"]
    assert GPClassifier.load(model).encoding_.columns[1].levels == (0, 1, 2)


def test_text_in_the_place_of_numbers_of_a_parquet_file(tmp_path, capsys):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns, y = values()
    model, path = tmp_path / "model.npz", tmp_path / "data.parquet"
    numbers = {"pay": columns["pay"], "y": y}
    report_of(capsys, "fit", written(tmp_path, numbers), "--target", "y", "--model", model, *OPTIONS)
    pq.write_table(pa.table({"pay": columns["town"]}), path)
    err = error_of(capsys, "predict", model, path)
    assert f"{str(path)!r}, column 'pay': it is text, and the model was fitted to numbers" in err
    pq.write_table(pa.table({"pay": [1.0, None]}), path)
    assert "X has 1 missing number (NaN): 1 in 'pay'" in report_of(capsys, "predict", model, path).err
    pq.write_table(pa.table({"pay": [1.0, np.inf]}), path)
    assert "row 2, column 'pay': inf: features must be finite" in error_of(capsys, "predict", model, path)
    pq.write_table(pa.table({"pay": pa.array([0, 1], pa.date32())}), path)
    assert f"{str(path)!r}: X has dates or durations in the columns ['pay']" in error_of(capsys, "predict", model, path)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_more_rows_than_are_kept_in_memory_must_be_numbers(tmp_path, monkeypatch, capsys, kind):
    monkeypatch.setattr(training, "IN_MEMORY", 1000)
    monkeypatch.setattr(training, "BATCH_ROWS", 20)
    columns, y = values()
    path, model = written(tmp_path, {**columns, "y": y}), tmp_path / "model.npz"
    if kind == "parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        path = str(tmp_path / "data.parquet")
        pq.write_table(pa.table({**columns, "y": y}), path)
    fit = ["fit", path, "--target", "y", "--model", model, *OPTIONS]
    expected = {
        "csv": ["the rows take more than", "so many must be numbers", "but 'name', 'town' are text; leave them out"],
        "parquet": ["The feature 'name' is of type string: features must be numbers"],
    }
    err = error_of(capsys, *fit)
    assert all(text in err for text in expected[kind])
    missing = {"csv": "line 4, column 'age': the number is missing", "parquet": "row 3, column 'age': nan"}
    assert missing[kind] in error_of(capsys, *fit, "--drop", "name", "town")
    report_of(capsys, *fit, "--drop", "name", "town", "age")
    assert GPClassifier.load(model).feature_names_in_.tolist() == ["member", "code", "pay"]
