"""Numbers that are missing: the mean next to an indicator in tables, an error that says where in arrays."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from support.frames import fitted, small

from xgpc import BayesianLinearClassifier, GPClassifier

pd, polars, pyarrow = map(pytest.importorskip, ("pandas", "polars", "pyarrow"))


def frame(n=120):
    rng = np.random.default_rng(0)
    columns = {"town": rng.choice(["Ulm", "Bonn", "Kiel"], n), "member": rng.random(n) < 0.4, "pay": rng.normal(size=n)}
    table = pd.DataFrame(columns)
    return table, ((table["town"] == "Ulm") * 2.0 + table["pay"] > 0.7).to_numpy()


def assert_means_stand_in(call, gaps, means, count):
    """A call to a table with gaps says once what it does, and gives what it does of a table with means."""
    with pytest.warns(UserWarning, match=rf"{count}\. The training rows missed none there: their mean") as caught:
        found = call(gaps)
    assert len(caught) == 1
    for one, other in zip(np.atleast_1d(found), np.atleast_1d(call(means)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_missing_numbers_are_the_mean_next_to_an_indicator():
    X = pd.DataFrame({"a": [1.0, 2.0, np.nan, 6.0] * 10, "b": np.arange(40.0)})
    y, weight = np.arange(40) % 2, np.tile([1.0, 1.0, 1.0, 2.0], 10)
    model = fitted(X, y, sample_weight=weight)
    columns = [(one.name, one.fill, one.has_missing) for one in model.encoding_.columns]
    assert columns == [("a", 3.75, True), ("b", np.average(X["b"], weights=weight), False)]
    rows = model.encoding_.encode(X.iloc[:4])
    np.testing.assert_array_equal(rows, [[1, 0, 0], [2, 1, 0], [3.75, 2, 1], [6, 3, 0]])
    assert model.encoding_.matrix_names == ("a", "b", "missingindicator_a")
    # Rows of weight 0 tell nothing.
    more = pd.concat([X, pd.DataFrame({"a": [1e6], "b": [np.nan]})])
    again = fitted(more, np.append(y, 1), sample_weight=np.append(weight, 0.0))
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))


def test_numbers_that_only_rows_to_predict_miss_are_the_mean_as_if_seen():
    table, y = frame()
    # The truth values and the pay of all training rows are known.
    gaps = table.assign(member=table["member"].astype("boolean"))
    gaps.loc[:2, "pay"] = np.nan
    gaps.loc[4, "member"] = pd.NA
    means = gaps.fillna({"pay": table["pay"].mean()}).assign(member=table["member"].astype(float))
    means.loc[4, "member"] = table["member"].mean()
    model = fitted(table, y)
    for call in (
        model.predict, model.predict_proba, model.predict_latent, lambda X: model.elbo(X, y), model.encoding_.encode
    ):  # fmt: skip
        assert_means_stand_in(call, gaps, means, r"4 missing numbers \(NaN\): 1 in 'member', 3 in 'pay'")


def test_arrays_must_have_all_numbers():
    X, y = np.random.default_rng(0).normal(size=(30, 12)), np.arange(30) % 2
    bad = X.copy()
    bad[3:5, 1] = bad[7, 2] = np.nan
    found = r"X has 3 missing numbers \(NaN\): 2 in feature 1, 1 in feature 2\. Put in numbers, as .*SimpleImputer"
    for given in (bad, bad.astype(np.float32), csr_array(bad), bad.tolist()):
        with pytest.raises(ValueError, match=rf"{found}.* give a data frame") as caught:
            small().fit(given, y)
        assert "HistGradientBoosting" not in str(caught.value)
        with pytest.raises(ValueError, match=rf"{found} does in a pipeline\.$"):
            BayesianLinearClassifier().fit(given, y)
    with pytest.raises(
        ValueError, match=r"X has 3 missing .*: 2 in feature 1, 1 in feature 2\. .*SimpleImputer.*data frame"
    ):
        small(categorical_features=[0]).fit(bad, y)
    with pytest.raises(ValueError, match=rf"{found}.* or give a data frame"):
        fitted(X, y).predict(bad)
    with (
        pytest.raises(ValueError, match=r"X has 2 missing numbers \(NaN\): 2 in 'b'\. "),
        pytest.warns(UserWarning, match="names"),
    ):
        fitted(pd.DataFrame(X[:, :2], columns=["a", "b"]), y).predict(bad[:, :2])
    levels = fitted(np.round(X), y, categorical_features=[0])
    with pytest.raises(ValueError, match=r"X has 3 missing numbers .* in 'feature 1'.* give a data frame"):
        levels.predict(bad)
    with pytest.raises(ValueError, match=r"X has 360 missing .* 30 in feature 4 and 7 more\."):
        small().fit(np.full((30, 12), np.nan), y)
    assert np.all(np.isfinite(fitted(pd.DataFrame(bad), y).predict_proba(pd.DataFrame(bad))))


# Numbers of which four are missing, as each library has them.
GAPS = pd.DataFrame({"a": [np.nan, np.nan, *range(2, 6)], "b": np.arange(6.0) ** 2, "c": [0, 1, pd.NA, 3, pd.NA, 5]})
GAPS = GAPS.astype({"c": "Int64"})
OBJECTS = GAPS.astype(object).where(GAPS.notna(), None)
TABLES = {
    "pandas": GAPS,
    "objects": OBJECTS,
    "polars": polars.from_dicts(OBJECTS.to_dict("records")),
    "arrow": pyarrow.Table.from_pandas(GAPS),
}


@pytest.mark.parametrize("gaps", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("weighted", [False, True])
def test_numbers_that_only_rows_to_predict_miss_in_a_table_of_numbers(gaps, weighted, tmp_path):
    """The model of numbers alone has no encoding, and keeps the means all the same."""
    rng = np.random.default_rng(0)
    X, y = pd.DataFrame(rng.normal(size=(40, 3)), columns=["a", "b", "c"]), np.arange(40) % 2
    weight = rng.gamma(2.0, size=40) if weighted else None
    model = fitted(X, y, sample_weight=weight)
    assert model.encoding_ is None
    means = np.average(X, axis=0, weights=weight)
    np.testing.assert_allclose(model.feature_mean_, means, rtol=1e-12)
    rows = GAPS.to_numpy(float, na_value=np.nan)
    filled = pd.DataFrame(np.where(np.isnan(rows), model.feature_mean_, rows), columns=["a", "b", "c"])
    model.save(tmp_path / "model.npz")
    for one in (model, GPClassifier.load(tmp_path / "model.npz")):
        for call in (one.predict_proba, one.predict, one.predict_latent):
            assert_means_stand_in(call, gaps, filled, r"4 missing numbers \(NaN\): 2 in 'a', 2 in 'c'")
    with pytest.raises(ValueError, match="4 missing numbers"), pytest.warns(UserWarning, match="names"):
        model.predict(rows)
