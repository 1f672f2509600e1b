"""Rows in files: Parquet, Arrow data sets, and NumPy's."""

import datetime
import pickle
import threading
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from sklearn.gaussian_process.kernels import RBF
from support.fits import without_warnings

from xgpc import BayesianLinearClassifier, GPClassifier
from xgpc.rows import from_arrow, from_npy, from_parquet

N = 900


def table(dtype=np.float32, labels=("no", "yes")):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2)).astype(dtype)
    codes = (X[:, 0] + 0.5 * rng.normal(size=N) > 0.0).astype(int)
    columns = {"a": X[:, 0], "class": np.array(labels)[codes], "b": X[:, 1], "weight": rng.uniform(1.0, 2.0, N)}
    return pa.table(columns), X, np.array(labels)[codes], columns["weight"]


def gathered(source):
    batches = [batch if isinstance(batch, tuple) else (batch,) for batch in source]
    return [np.concatenate(parts) for parts in zip(*batches, strict=True)]


@pytest.fixture
def small_batches(tuned):
    tuned(batch_rows=200)


@pytest.mark.parametrize("kind", ["file", "folder", "data set", "table"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_a_file(tmp_path, small_batches, kind, dtype):
    data, X, y, weight = table(dtype)
    names = {"target": "class", "weight": "weight"}
    if kind == "folder":
        pq.write_table(data.slice(0, 500), tmp_path / "1.parquet", row_group_size=130)
        pq.write_table(data.slice(500), tmp_path / "2.parquet")
        source = from_parquet(tmp_path, **names)
    else:
        path = tmp_path / "rows.parquet"
        pq.write_table(data, path, row_group_size=130)
        file = str(path) if kind == "file" else None
        source = (
            from_parquet(file, **names) if file else from_arrow(data if kind == "table" else ds.dataset(path), **names)
        )
    assert source.feature_names == ["a", "b"]
    for _ in range(2):
        found = gathered(source)
        assert found[0].dtype == dtype
        for array, expected in zip(found, (X, y, weight), strict=True):
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
    ],
)
def test_columns_that_cannot_be(given, message):
    with pytest.raises(ValueError, match=message):
        from_arrow(table()[0], **given)


@pytest.mark.parametrize(
    ("feature", "message"),
    [("class", "Column 'class' has levels"), ("when", r"dates or durations in the columns \['when'\]")],
)
def test_features_that_are_no_numbers(feature, message):
    data = table()[0].append_column("when", pa.array([datetime.date(2020, 1, 1)] * N))
    with pytest.raises(ValueError, match=message):
        GPClassifier().fit_batches(from_arrow(data, target="weight", columns=["a", feature]))


@pytest.mark.parametrize("size", [N, 300])
def test_a_fit_to_a_file_is_that_to_arrays(tmp_path, tuned, small_batches, size):
    """Of few rows, and of more than there are learned from."""
    tuned(kept_rows=size)
    data, X, y, weight = table()
    pq.write_table(data, tmp_path / "rows.parquet", row_group_size=130)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    np.save(tmp_path / "weight.npy", weight)
    options = {"kernel": RBF(1.0), "inducing_points": X[:10].astype(float), "optimizer": None, "random_state": 0}
    fits = [
        GPClassifier(**options).fit_batches(source)
        for source in (
            [(X, y, weight)],
            from_parquet(tmp_path / "rows.parquet", target="class", weight="weight"),
            from_npy(tmp_path / "X.npy", tmp_path / "y.npy", tmp_path / "weight.npy"),
        )
    ]
    expected = fits[0].predict_proba(X)
    for fit in fits[1:]:
        np.testing.assert_array_equal(fit.predict_proba(X.view()) if fit is fits[2] else predicted(fit, data), expected)
    assert fits[1].feature_names_in_.tolist() == ["a", "b"]
    assert fits[1].classes_.tolist() == ["no", "yes"]


def predicted(fit, data):
    return np.vstack(list(fit.predict_proba_batches(from_arrow(data, columns=["a", "b"]))))


def test_rows_to_predict_have_their_columns_by_name(tmp_path):
    data, *_ = table()
    fit = GPClassifier(RBF(1.0), n_inducing=5, optimizer=None).fit_batches(
        from_arrow(data, target="class", columns=["a", "b"])
    )
    pq.write_table(data, tmp_path / "rows.parquet")
    expected = predicted(fit, data)
    sources = [
        from_arrow(data, columns=["b", "a"]),
        from_arrow(data),
        from_arrow(data, target="class"),
        from_parquet(tmp_path / "rows.parquet"),
    ]
    for source in sources:
        np.testing.assert_array_equal(np.vstack(list(fit.predict_proba_batches(source))), expected)
    with pytest.raises(ValueError, match=r"lacks the columns \['b'\].*it has \['a', 'class'\]"):
        fit.predict_proba_batches(from_arrow(data.select(["a", "class"])))
    with pytest.raises(ValueError, match="X has text"):
        next(fit.predict_proba_batches(from_arrow(pa.table({"a": [1.0], "b": ["x"]}))))


def test_a_bad_row_has_the_names_of_its_file_and_column(tmp_path, small_batches):
    data, *_ = table()
    values = data.column("b").to_numpy().copy()
    values[750] = np.inf
    bad = data.set_column(data.schema.get_field_index("b"), "b", pa.array(values))
    paths = [tmp_path / "good.parquet", tmp_path / "bad.parquet"]
    pq.write_table(data, paths[0])
    pq.write_table(bad, paths[1])
    names = ["a", "b"]
    fit = GPClassifier(RBF(1.0), n_inducing=5, optimizer=None).fit_batches(
        from_parquet(paths[0], target="class", columns=names)
    )
    for use in (
        lambda: GPClassifier().fit_batches(from_parquet(paths, target="class", columns=names)),
        lambda: list(fit.predict_proba_batches(from_parquet(paths))),
    ):
        with pytest.raises(ValueError, match="X has a value of infinity, of 'b' in row 150") as error:
            use()
        (note,) = error.value.__notes__
        number = -(-N // 200) + 3
        assert note == f"(row 750 of {str(paths[1])!r}, batch {number} of the source, counted from 0)"


def test_a_file_that_breaks_between_readings_is_an_error(tmp_path, tuned):
    tuned(kept_rows=300)
    path = tmp_path / "rows.parquet"
    data = table()[0]
    pq.write_table(data, path)
    source, readings = from_parquet(path, target="class"), []

    def breaking():
        readings.append(None)
        if len(readings) == 2:
            path.write_bytes(path.read_bytes()[:-2000])
        return iter(source)

    fit = GPClassifier(RBF(1.0), n_inducing=5, optimizer=None)
    before = dict(fit.__dict__)
    with pytest.raises((ValueError, OSError)):
        fit.fit_batches(breaking)
    assert fit.__dict__ == before
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("xgpc-reader")]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_bit_that_has_changed_is_an_error_where_pages_have_checksums(tmp_path, version):
    path, data = tmp_path / "rows.parquet", table()[0]
    pq.write_table(data, path, write_page_checksum=True, use_dictionary=False, data_page_version=version)
    model = GPClassifier(RBF(1.0), n_inducing=5, optimizer=None, n_neighbors=0, random_state=0)
    model.fit_batches(from_parquet(path, target="class", columns=["a", "b"]))
    written = bytearray(path.read_bytes())
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    # Amid the values, behind the page's header.
    written[column.data_page_offset + column.total_compressed_size // 2] ^= 1
    path.write_bytes(written)
    for read in (
        lambda: model.fit_batches(from_parquet(path, target="class", columns=["a", "b"])),
        lambda: list(model.predict_proba_batches(from_parquet(path))),
    ):
        with pytest.raises(OSError, match="checksum"):
            read()


# Which columns of a table are features: the index that pandas writes is none, and labels are compared.

pd = pytest.importorskip("pandas")

SIXTY = 60
small = partial(GPClassifier, n_inducing=8, max_iter=5, optimizer=None, random_state=0)


def frame(seed=0):
    """Two numbers, a level and the class, sorted by the class."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "a": rng.normal(size=SIXTY),
            "b": rng.normal(size=SIXTY),
            "town": rng.choice(["Ulm", "Kiel"], SIXTY),
        }
    )
    table["class"] = np.where(table["a"] + 0.5 * rng.normal(size=SIXTY) > 0.0, "yes", "no")
    return table.sort_values("class")


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


def said(model):
    return [text for text in model.history_.get("decision", ()) if "is the index" in text or "are the index" in text]


def test_an_index_in_a_parquet_file_is_no_feature(indexed, tmp_path):
    table, names = indexed
    table.drop(columns="town").to_parquet(tmp_path / "rows.parquet")
    source = from_parquet(tmp_path / "rows.parquet", target="class")
    assert (source.feature_names, source.index) == (["a", "b"], names)
    model = without_warnings(small().fit_batches, source)
    assert model.feature_names_in_.tolist() == ["a", "b"]
    assert len(said(model)) == bool(names)
    assert all(repr(name) in text for name in names for text in said(model))
    expected = without_warnings(small().fit, table[["a", "b"]], table["class"]).predict_proba(table[["a", "b"]])
    (found,) = model.predict_proba_batches(from_parquet(tmp_path / "rows.parquet"))
    np.testing.assert_array_equal(found, expected)


def test_an_index_in_a_table_of_arrow_is_no_feature(indexed):
    table, names = indexed
    for features in (["a", "b"], ["a", "b", "town"]):
        arrow = pa.Table.from_pandas(table[features])
        assert arrow.column_names == features + names
        expected = without_warnings(small().fit, table[features], table["class"])
        for given in (arrow, arrow.combine_chunks().to_batches()[0]):
            model = without_warnings(small().fit, given, table["class"])
            assert model.feature_names_in_.tolist() == features
            assert len(said(model)) == bool(names)
            np.testing.assert_array_equal(model.predict_proba(given), expected.predict_proba(table[features]))
            (found,) = model.predict_proba_batches([given])
            np.testing.assert_allclose(found, expected.predict_proba(table[features]), rtol=1e-12)
            if model.encoding_ is not None:
                assert len(model.encoding_.encode(given)) == SIXTY
    arrow = pa.Table.from_pandas(table[["a", "b"]])
    assert BayesianLinearClassifier().fit(arrow, table["class"]).n_features_in_ == 2
    batches = without_warnings(small().fit_batches, [(arrow, table["class"])])
    assert batches.feature_names_in_.tolist() == ["a", "b"]


SWAPPED = [(0, 1), (10, 20), (("a", 1), ("a", 2)), (pd.Timestamp(0), pd.Timestamp(1))]


@pytest.mark.parametrize("labels", SWAPPED, ids=str)
@pytest.mark.parametrize("features", [["a", "b"], ["a", "town"]], ids=["numbers", "levels"])
def test_labels_that_are_not_text_are_compared(labels, features, tmp_path):
    table = frame()
    y = table["class"]
    X = table[features].set_axis(pd.Index(labels), axis=1)
    model = without_warnings(small().fit, X, y)
    expected = model.predict_proba(X)
    model.save(tmp_path / "model.npz")
    for one in (model, GPClassifier.load(tmp_path / "model.npz"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(one.predict_proba(X), expected)
        # By position.
        np.testing.assert_array_equal(one.predict_proba(X.to_numpy()), expected)
        for bad in (X[[labels[1], labels[0]]], X.set_axis([labels[0], 99], axis=1)):
            with pytest.raises(ValueError, match=r"X has the columns \[.*; the model was fitted to \[.*same order"):
                one.predict(bad)
    with pytest.raises(ValueError, match="same order"):
        model.elbo(X[[labels[1], labels[0]]], y)
    # The next fit remembers its own, and arrays have none.
    without_warnings(model.fit, X[[labels[1], labels[0]]], y)
    model.predict(X[[labels[1], labels[0]]])
    if features == ["a", "b"]:
        without_warnings(model.fit, X.to_numpy(), y)
        model.predict(X[[labels[1], labels[0]]])
        without_warnings(without_warnings(model.fit, X, y).fit_batches, [(X.to_numpy(), y)])
        model.predict(X[[labels[1], labels[0]]])
        linear = BayesianLinearClassifier().fit(X, y)
        with pytest.raises(ValueError, match="same order"):
            linear.predict(X[[labels[1], labels[0]]])
