"""Numbers that are missing: the mean next to an indicator in tables, an error that says where in arrays."""

import json

import numpy as np
import pytest
from scipy.sparse import csr_array
from support import fits

from xgpc import BayesianLinearClassifier, GPClassifier
from xgpc.rows.encoding import Encoding, NumberColumn

pd = pytest.importorskip("pandas")


def small(**parameters):
    return GPClassifier(**{"n_inducing": 12, "max_iter": 5, "random_state": 0, **parameters})


def fitted(X, y, sample_weight=None, **parameters):
    return fits.quietly(small(**parameters), X, y, sample_weight=sample_weight)


def frame(n=120):
    rng = np.random.default_rng(0)
    columns = {"town": rng.choice(["Ulm", "Bonn", "Kiel"], n), "member": rng.random(n) < 0.4, "pay": rng.normal(size=n)}
    table = pd.DataFrame(columns)
    return table, ((table["town"] == "Ulm") * 2.0 + table["pay"] > 0.7).to_numpy()


def test_missing_numbers_are_the_mean_next_to_an_indicator():
    X = pd.DataFrame({"a": [1.0, 2.0, np.nan, 6.0] * 10, "b": np.arange(40.0)})
    y, weight = np.arange(40) % 2, np.tile([1.0, 1.0, 1.0, 2.0], 10)
    model = fitted(X, y, sample_weight=weight)
    assert model.encoding_.columns == (
        NumberColumn("a", 3.75, True),
        NumberColumn("b", np.average(X["b"], weights=weight), False),
    )
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
    calls = [
        model.predict,
        model.predict_proba,
        model.predict_latent,
        lambda X: model.elbo(X, y),
        model.encoding_.encode,
    ]
    for call in calls:
        said = r"4 missing numbers \(NaN\): 1 in 'member', 3 in 'pay'\. The training rows missed none there"
        with pytest.warns(UserWarning, match=said) as caught:
            found = call(gaps)
        assert len(caught) == 1
        for one, other in zip(np.atleast_1d(found), np.atleast_1d(call(means)), strict=True):
            np.testing.assert_array_equal(one, other)
    # Files keep the means.
    assert Encoding.from_data(json.loads(json.dumps(model.encoding_.to_data()))) == model.encoding_


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
        ValueError, match=r"X has 3 missing .*: 2 in column 1, 1 in column 2\. .*SimpleImputer.*data frame"
    ):
        small(categorical_features=[0]).fit(bad, y)
    with pytest.raises(ValueError, match=rf"{found}.* or fit to a data frame"):
        fitted(X, y).predict(bad)
    with pytest.raises(ValueError, match=r"X has 2 missing numbers \(NaN\): 2 in 'b'\. "):
        fitted(pd.DataFrame(X[:, :2], columns=["a", "b"]), y).predict(pd.DataFrame(bad[:, :2], columns=["a", "b"]))
    levels = fitted(np.round(X), y, categorical_features=[0])
    with pytest.raises(ValueError, match=r"X has 3 missing numbers .* in 'column 1'.* give a data frame"):
        levels.predict(bad)
    with pytest.raises(ValueError, match=r"X has 360 missing .* 30 in feature 9 and others in 2 more columns\."):
        small().fit(np.full((30, 12), np.nan), y)
    assert np.all(np.isfinite(fitted(pd.DataFrame(bad), y).predict_proba(pd.DataFrame(bad))))
