"""Which columns of a table are features: the index that pandas writes is none, and labels are compared."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from xgpc import BayesianLinearClassifier, GPClassifier
from xgpc.rows import Reservoir, from_arrow, from_parquet

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pq = pytest.importorskip("pyarrow.parquet")

N = 60


def small(**parameters):
    return GPClassifier(**{"n_inducing": 8, "max_iter": 5, "optimizer": None, "random_state": 0, **parameters})


def quietly(fit, *given):
    """What a method that fits returns, without its warnings of convergence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fit(*given)


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
    model = quietly(small().fit_batches, source)
    assert model.feature_names_in_.tolist() == ["a", "b"]
    assert len(said(model)) == bool(names)
    assert all(repr(name) in text for name in names for text in said(model))
    expected = quietly(small().fit, table[["a", "b"]], table["class"]).predict_proba(table[["a", "b"]])
    (found,) = model.predict_proba_batches(from_parquet(tmp_path / "rows.parquet"))
    np.testing.assert_array_equal(found, expected)


def test_an_index_in_a_table_of_arrow_is_no_feature(indexed):
    table, names = indexed
    for features in (["a", "b"], ["a", "b", "town"]):
        arrow = pa.Table.from_pandas(table[features])
        assert arrow.column_names == features + names
        expected = quietly(small().fit, table[features], table["class"])
        for given in (arrow, arrow.combine_chunks().to_batches()[0]):
            model = quietly(small().fit, given, table["class"])
            assert model.feature_names_in_.tolist() == features
            assert len(said(model)) == bool(names)
            np.testing.assert_array_equal(model.predict_proba(given), expected.predict_proba(table[features]))
            (found,) = model.predict_proba_batches([given])
            np.testing.assert_allclose(found, expected.predict_proba(table[features]), rtol=1e-12)
            if model.encoding_ is not None:
                assert len(model.encoding_.encode(given)) == N
    arrow = pa.Table.from_pandas(table[["a", "b"]])
    assert BayesianLinearClassifier().fit(arrow, table["class"]).n_features_in_ == 2
    batches = quietly(small().fit_batches, [(arrow, table["class"])])
    assert batches.feature_names_in_.tolist() == ["a", "b"]
    reservoir = Reservoir(5, random_state=0)
    reservoir.add(arrow, table["class"])
    assert reservoir.rows()[0].shape == (5, 2)


def test_who_names_the_index_gets_it(tmp_path):
    table = frame().rename_axis("id").drop(columns="town")
    table.to_parquet(tmp_path / "rows.parquet")
    for source in (
        from_parquet(tmp_path / "rows.parquet", target="class", columns=["a", "id"]),
        from_arrow(pa.Table.from_pandas(table), target="class", columns=["a", "id"]),
    ):
        model = quietly(small().fit_batches, source)
        assert model.feature_names_in_.tolist() == ["a", "id"]
        assert not said(model)
        # To predict, too, as the model has it.
        rows = table.reset_index()[["a", "id"]].astype(float)
        found = model.predict_proba(pa.Table.from_pandas(table[["a"]]))
        np.testing.assert_array_equal(found, model.predict_proba(rows))
    assert from_parquet(tmp_path / "rows.parquet", target="id", columns=["a"]).target == "id"
    assert from_parquet(tmp_path / "rows.parquet", target="class", weight="id").index == []
