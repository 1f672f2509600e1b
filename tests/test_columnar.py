"""Rows in files of Parquet, Arrow and NumPy, and which columns of a table are features."""

import datetime
import itertools
import threading
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF
from support.fits import clone_of, refuses, reloaded, without_warnings

from xgpc import BayesianLinearClassifier, GPClassifier
from xgpc.rows import from_arrow, from_npy, from_parquet

N, SIXTY = 900, 60
small = partial(GPClassifier, n_inducing=8, max_iter=5, optimizer=None, random_state=0)


def table(dtype=np.float32):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2)).astype(dtype)
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=N) > 0.0, "yes", "no")
    columns = {"a": X[:, 0], "class": y, "b": X[:, 1], "weight": rng.uniform(1.0, 2.0, N)}
    return pa.table(columns), X, y, columns["weight"]


def written(data, path, **options):
    pq.write_table(data, path, **options)
    return path


def predicted(fit, source):
    return np.vstack(list(fit.predict_proba_batches(source)))


@pytest.fixture
def small_batches(tuned):
    tuned(batch_rows=200)


@pytest.mark.parametrize("kind", ["file", "folder", "data set", "table"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_a_file(tmp_path, small_batches, kind, dtype):
    data, *arrays = table(dtype)
    path, folder = written(data, tmp_path / "rows.parquet", row_group_size=130), tmp_path / "folder"
    folder.mkdir()
    written(data.slice(0, 500), folder / "1.parquet", row_group_size=130)
    written(data.slice(500), folder / "2.parquet")
    read = from_parquet if kind in ("file", "folder") else from_arrow
    rows = {"file": str(path), "folder": folder, "data set": ds.dataset(path), "table": data}[kind]
    source = read(rows, target="class", weight="weight")
    assert source.feature_names == ["a", "b"]
    for _ in range(2):
        found = [np.concatenate(parts) for parts in zip(*source, strict=True)]
        assert found[0].dtype == dtype
        for array, expected in zip(found, arrays, strict=True):
            np.testing.assert_array_equal(array, expected)
    assert max(len(batch[0]) for batch in source) <= 200


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"target": "z"}, r"lacks the columns \['z'\];"),
        ({"target": "clas"}, r"lacks the columns \['clas'\] \(did you mean 'class'\?\)"),
        ({"columns": ["A", "B"]}, r"\(did you mean 'a', 'b'\?\)"),
        ({"columns": "ab"}, r"must be a list of names; got the text 'ab'"),
        ({"columns": ["a", "z"]}, r"lacks the columns \['z'\]"),
        ({"columns": ["a", "a"]}, "none of them twice"),
        ({"columns": ["a", "class"], "target": "class"}, "none of them twice"),
        ({"columns": []}, "one column or more"),
        ({"weight": "weight"}, "name their target"),
        ({"target": "class", "weight": "class"}, "weight='class' is also the target: name another column"),
        ({"target": 3}, r"given by their names, as text; got \[3\]. The data have \['a', 'class'"),
        ({"target": "class", "columns": [0, 1]}, r"as text; got \[0, 1\]"),
        ({"target": "class", "weight": ["a"]}, r"as text; got \[\['a'\]\]"),
    ],
)
def test_columns_that_cannot_be(given, message):
    refuses(message, from_arrow, table()[0], **given)


@pytest.mark.parametrize("data", ["rows.parquet", np.ones((2, 2)), [1]], ids=str)
def test_data_that_are_not_of_arrow(data):
    refuses("takes a pyarrow.dataset.Dataset or pyarrow.Table; got a .*from_parquet", from_arrow, data, target="y")


LATER = {
    "class": (
        {"class": [True, False]},
        {"class": [1, 2]},
        "1.parquet' has the type int64 in the column 'class', and others bool",
    ),
    "truth": (
        {"a": [True, False]},
        {"a": [0.5, 2.0]},
        "1.parquet' has the type double in the column 'a', and others bool",
    ),
    "text": (
        {"a": [0.5, 2.0]},
        {"a": ["1", "2"]},
        "1.parquet' has the type string in the column 'a', and others double",
    ),
    "lacks": ({}, {"a": None}, r"file '.*1.parquet' lacks the columns \['a'\]"),
    "single": ({"a": np.float32([0.1, 2.0])}, {"a": [1e300, 0.1]}, None),
    "whole": ({"a": [1, 2]}, {"a": [0.5, 2.0]}, None),
    "empty": ({"a": [1.0, 2.0]}, {"a": pa.nulls(2)}, None),
    "levels": ({"class": ["x", "y"]}, {"class": pa.array(["y", "x"]).dictionary_encode()}, None),
    "unread": ({"d": [True, False]}, {"d": ["x", "y"]}, None),
}
PLAIN = {"b": [1.0, 2.0], "class": [0, 1], "a": [0.0, 1.0]}


def of_two_files(folder, kind):
    """The tables of two files, and their paths."""
    columns = [
        {name: values for name, values in (PLAIN | more).items() if values is not None} for more in LATER[kind][:2]
    ]
    tables = [pa.table(each) for each in columns]
    return tables, [written(data, folder / f"{i}.parquet") for i, data in enumerate(tables)]


@pytest.mark.parametrize("kind", LATER)
def test_types_that_differ_between_files_round_nothing(tmp_path, kind):
    """Rows are those of a list of the files' tables, or an error names file, column and types."""
    (tables, paths), message = of_two_files(tmp_path, kind), LATER[kind][2]
    read = partial(from_parquet, paths, target="class", columns=["a", "b"])
    if message is None:
        for j, name in enumerate(("a", "class")):
            found = [value for X, y in read() for value in (X["a"], y)[j].tolist()]
            assert found == [value for data in tables for value in data[name].to_pylist()]
        return
    refuses(message, read)


def test_types_of_a_data_set_that_its_maker_chose(tmp_path):
    _, paths = of_two_files(tmp_path, "single")
    wide, narrow = (ds.dataset(paths, pa.schema([("a", kind)])) for kind in (pa.float64(), pa.float32()))
    for chosen, rounded in ((wide, 1e300), (narrow, np.inf), (ds.dataset(paths).filter(ds.field("b") > 0.0), np.inf)):
        assert [value for X in from_arrow(chosen, columns=["a"]) for value in X["a"].to_pylist()][2] == rounded


def test_paths_that_have_no_rows(tmp_path):
    (tmp_path / "folder").mkdir()
    refuses("folder '.*folder' has no Parquet files", from_parquet, tmp_path / "folder")
    refuses("must have files alone; got the folders", from_parquet, [tmp_path / "rows.parquet", tmp_path / "folder"])


@pytest.mark.parametrize(
    ("feature", "message"),
    [("class", "Column 'class' has levels"), ("when", r"dates or durations in the columns \['when'\]")],
)
def test_features_that_are_no_numbers(feature, message):
    data = table()[0].append_column("when", pa.array([datetime.date(2020, 1, 1)] * N))
    refuses(message, GPClassifier().fit_batches, from_arrow(data, target="weight", columns=["a", feature]))


def test_complex_numbers_are_refused(tmp_path):
    for name, array in {"X": np.ones((2, 2)) + 1j, "y": np.arange(2)}.items():
        np.save(tmp_path / f"{name}.npy", array)
    refuses(r"X.npy' has complex numbers; save real ones\.$", from_npy, tmp_path / "X.npy", tmp_path / "y.npy")


@pytest.mark.parametrize("size", [N, 300])
def test_a_fit_to_a_file_is_that_to_arrays(tmp_path, tuned, small_batches, size):
    tuned(kept_rows=size)
    data, X, y, weight = table()
    path = written(data, tmp_path / "rows.parquet", row_group_size=130)
    arrays = {"X": X, "y": y, "weight": weight}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    source = from_parquet(path, target="class", weight="weight")
    npy = from_npy(*(tmp_path / f"{name}.npy" for name in arrays))
    model = small(RBF(1.0), inducing_points=X[:10].astype(float))
    expected, of_file, of_arrays = (clone(model).fit_batches(rows) for rows in ([(X, y, weight)], source, npy))
    found = predicted(of_file, from_arrow(data, columns=["a", "b"])), of_arrays.predict_proba(X.view())
    for probabilities in found:
        np.testing.assert_array_equal(probabilities, expected.predict_proba(X))
    assert of_file.feature_names_in_.tolist() == ["a", "b"]
    assert of_file.classes_.tolist() == ["no", "yes"]


def test_rows_to_predict_have_their_columns_by_name(tmp_path):
    data, *_ = table()
    fit = small().fit_batches(from_arrow(data, target="class", columns=["a", "b"]))
    expected = predicted(fit, from_arrow(data, columns=["a", "b"]))
    for source in (
        from_arrow(data, columns=["b", "a"]),
        from_arrow(data),
        from_arrow(data, target="class"),
        from_parquet(written(data, tmp_path / "rows.parquet")),
    ):
        np.testing.assert_array_equal(predicted(fit, source), expected)
    few, words = from_arrow(data.select(["a", "class"])), from_arrow(pa.table({"a": [1.0], "b": ["x"]}))
    refuses(r"lacks the columns \['b'\].*it has \['a', 'class'\]", fit.predict_proba_batches, few)
    refuses("X has text", next, fit.predict_proba_batches(words))


def test_a_bad_row_has_the_names_of_its_file_and_column(tmp_path, small_batches):
    data, *_ = table()
    values = data.column("b").to_numpy().copy()
    values[750] = np.inf
    bad = data.set_column(data.schema.get_field_index("b"), "b", pa.array(values))
    paths = [written(data, tmp_path / "good.parquet"), written(bad, tmp_path / "bad.parquet")]
    chosen = {"target": "class", "columns": ["a", "b"]}
    fit = small().fit_batches(from_parquet(paths[0], **chosen))
    for use in (
        lambda: GPClassifier().fit_batches(from_parquet(paths, **chosen)),
        lambda: predicted(fit, from_parquet(paths)),
    ):
        (note,) = refuses("X has a value of infinity, of 'b' in row 150", use).__notes__
        assert note == f"(row 750 of {str(paths[1])!r}, batch {-(-N // 200) + 3} of the source, counted from 0)"


def test_a_file_that_breaks_between_readings_is_an_error(tmp_path, tuned):
    tuned(kept_rows=300)
    path = written(table()[0], tmp_path / "rows.parquet")
    source, readings = from_parquet(path, target="class"), itertools.count()

    def breaking():
        if next(readings) == 1:
            path.write_bytes(path.read_bytes()[:-2000])
        return iter(source)

    refuses(None, small().fit_batches, breaking, error=(ValueError, OSError))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("xgpc-reader")]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_bit_that_has_changed_is_an_error_where_pages_have_checksums(tmp_path, version):
    options = {"write_page_checksum": True, "use_dictionary": False, "data_page_version": version}
    path, chosen = written(table()[0], tmp_path / "rows.parquet", **options), {"target": "class", "columns": ["a", "b"]}
    model = small().fit_batches(from_parquet(path, **chosen))
    content = bytearray(path.read_bytes())
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    # Amid the values, behind the page's header.
    content[column.data_page_offset + column.total_compressed_size // 2] ^= 1
    path.write_bytes(content)
    for read in (
        lambda: model.fit_batches(from_parquet(path, **chosen)),
        lambda: predicted(model, from_parquet(path)),
    ):
        # Arrow reads ahead: no batch is named.
        assert not hasattr(refuses("checksum", read, error=OSError), "__notes__")


pd = pytest.importorskip("pandas")


def frame():
    """Two numbers, a level and the class, sorted by the class."""
    rng = np.random.default_rng(0)
    numbers = pd.DataFrame(rng.normal(size=(SIXTY, 2)), columns=["a", "b"])
    y = np.where(numbers["a"] + 0.5 * rng.normal(size=SIXTY) > 0.0, "yes", "no")
    return numbers.assign(**{"town": rng.choice(["Ulm", "Kiel"], SIXTY), "class": y}).sort_values("class")


INDEXES = {
    "unnamed": (lambda table: table, ["__index_level_0__"]),
    "named": (lambda table: table.rename_axis("id"), ["id"]),
    "two": (
        lambda table: table.set_index([pd.Index(np.arange(SIXTY) ** 2, name="id"), pd.Index(np.arange(SIXTY) ** 3)]),
        ["id", "__index_level_1__"],
    ),
    "a count": (lambda table: table.reset_index(drop=True), []),
}


@pytest.fixture(params=INDEXES)
def indexed(request):
    """A frame, and the columns that its index has in Parquet."""
    change, names = INDEXES[request.param]
    return change(frame()), names


def assert_fit_without_index(model, features, names):
    assert model.feature_names_in_.tolist() == features
    told = [text for text in model.decisions_ if "is the index" in text or "are the index" in text]
    assert len(told) == bool(names)
    assert all(repr(name) in text for name in names for text in told)


def test_an_index_in_a_parquet_file_is_no_feature(indexed, tmp_path):
    table, names = indexed
    table.drop(columns="town").to_parquet(tmp_path / "rows.parquet")
    source = from_parquet(tmp_path / "rows.parquet", target="class")
    assert (source.feature_names, source.index) == (["a", "b"], names)
    model = without_warnings(small().fit_batches, source)
    assert_fit_without_index(model, ["a", "b"], names)
    expected = without_warnings(small().fit, table[["a", "b"]], table["class"]).predict_proba(table[["a", "b"]])
    np.testing.assert_array_equal(predicted(model, from_parquet(tmp_path / "rows.parquet")), expected)


@pytest.mark.parametrize("features", [["a", "b"], ["a", "b", "town"]], ids=["numbers", "levels"])
def test_an_index_in_a_table_of_arrow_is_no_feature(indexed, features):
    table, names = indexed
    arrow, y = pa.Table.from_pandas(table[features]), table["class"]
    assert arrow.column_names == features + names
    expected = without_warnings(small().fit, table[features], y).predict_proba(table[features])
    for given in (arrow, arrow.combine_chunks().to_batches()[0]):
        model = without_warnings(small().fit, given, y)
        assert_fit_without_index(model, features, names)
        np.testing.assert_array_equal(model.predict_proba(given), expected)
        np.testing.assert_allclose(predicted(model, [given]), expected, rtol=1e-12)
        if model.encoding_ is not None:
            assert len(model.encoding_.encode(given)) == SIXTY
    if "town" not in features:
        assert BayesianLinearClassifier().fit(arrow, y).n_features_in_ == 2
        assert without_warnings(small().fit_batches, [(arrow, y)]).feature_names_in_.tolist() == features


SWAPPED = [(0, 1), (10, 20), (("a", 1), ("a", 2)), (pd.Timestamp(0), pd.Timestamp(1))]


@pytest.mark.parametrize("labels", SWAPPED, ids=str)
@pytest.mark.parametrize("features", [["a", "b"], ["a", "town"]], ids=["numbers", "levels"])
def test_labels_that_are_not_text_are_compared(labels, features, tmp_path):
    table = frame()
    y, X = table["class"], table[features].set_axis(pd.Index(labels), axis=1)
    swapped = X[[labels[1], labels[0]]]
    model = without_warnings(small().fit, X, y)
    expected = model.predict_proba(X)
    for one in (model, reloaded(model, tmp_path), clone_of(model)):
        np.testing.assert_array_equal(one.predict_proba(X), expected)
        # By position.
        np.testing.assert_array_equal(one.predict_proba(X.to_numpy()), expected)
        for bad in (swapped, X.set_axis([labels[0], 99], axis=1)):
            refuses(r"X has the columns \[.*; the model was fitted to \[.*same order", one.predict, bad)
    refuses("same order", model.elbo, swapped, y)
    # The next fit remembers its own, and arrays have none.
    without_warnings(model.fit, swapped, y)
    model.predict(swapped)
    if features == ["a", "b"]:
        without_warnings(model.fit, X.to_numpy(), y)
        model.predict(swapped)
        without_warnings(without_warnings(model.fit, X, y).fit_batches, [(X.to_numpy(), y)])
        model.predict(swapped)
        refuses("same order", BayesianLinearClassifier().fit(X, y).predict, swapped)
