"""Which columns of a table are features: the index that pandas writes is none, and labels are compared."""

import pickle

import numpy as np
import pytest
from support.fits import without_warnings

from xgpc import BayesianLinearClassifier, GPClassifier
from xgpc.rows import from_parquet

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")

N = 60


def small(**parameters):
    return GPClassifier(**{"n_inducing": 8, "max_iter": 5, "optimizer": None, "random_state": 0, **parameters})


def frame(seed=0):
    """Two numbers, a level and the class, sorted by the class."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"a": rng.normal(size=N), "b": rng.normal(size=N), "town": rng.choice(["Ulm", "Kiel"], N)})
    table["class"] = np.where(table["a"] + 0.5 * rng.normal(size=N) > 0.0, "yes", "no")
    return table.sort_values("class")


INDEXES = {
    "unnamed": (lambda table: table, ["__index_level_0__"]),
    "named": (lambda table: table.rename_axis("id"), ["id"]),
    "two": (
        lambda table: table.set_index([pd.Index(np.arange(N) ** 2, name="id"), pd.Index(np.arange(N) ** 3)]),
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
                assert len(model.encoding_.encode(given)) == N
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
