"""Values far from all others: what they are, and that fits and predictions have them at limits."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF
from support.fits import quietly
from support.reference import moons

from xgpc import GPClassifier
from xgpc.plotting import DecisionBoundaryDisplay

RANDOM = np.random.default_rng(0)
NONE = -np.inf, np.inf
CLEAN = {
    "normal": RANDOM.normal(size=1000),
    "uniform": RANDOM.uniform(size=1000),
    "log-normal": np.exp(RANDOM.normal(size=1000)),
    "counts": RANDOM.poisson(0.3, 1000),
    "many zeros": np.maximum(RANDOM.normal(-1.0, 1.0, 1000), 0.0),
    "two values": np.where(RANDOM.uniform(size=1000) < 0.01, 1e6, 0.0),
    "one value": np.full(1000, -9999.0),
    "two clusters": np.where(RANDOM.uniform(size=1000) < 0.1, 500.0, 0.0) + RANDOM.normal(size=1000),
}
# What is far, and how much of it.
CODES = {"below": (-1e7, 0.01), "above": (1e7, 0.003), "a row": (1e9, 0.0011), "a fifth": (-1e7, 0.2)}


def with_codes(values, code, share):
    return np.where(np.arange(len(values)) < share * len(values), code, values)


def of(values, weight=None):
    """Limits that a fit has for its only feature."""
    X = np.asarray(values, dtype=np.float64)[:, None]
    model = quietly(
        GPClassifier(RBF(), n_inducing=1, optimizer=None, max_iter=1), X, np.arange(len(X)) % 2, sample_weight=weight
    )
    limits = model.encoding_.limits if model.encoding_ else ()
    return (limits[0].low, limits[0].high) if limits else NONE


@pytest.mark.parametrize("name", CLEAN)
def test_tails_that_thin_out_stay(name):
    assert of(CLEAN[name]) == NONE


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("name", ["normal", "uniform", "log-normal", "counts", "many zeros", "two clusters"])
def test_codes_are_beyond_a_limit_near_the_others(name, code):
    value, share = CODES[code]
    # At most a quarter of the values without the one that most rows have.
    share *= 0.2 if name in ("counts", "many zeros") and code == "a fifth" else 1.0
    values = with_codes(CLEAN[name], value, share)
    others = values[values != value]
    low, high = of(values)
    near, far = (low, high) if value < 0.0 else (high, low)
    assert np.isinf(far)
    assert abs(near) <= np.max(np.abs(others)) + 4.0 * np.ptp(others)
    assert np.mean((others >= low) & (others <= high)) >= 0.985


def test_codes_on_both_sides_and_of_several_kinds():
    values = np.concatenate([CLEAN["normal"], [-1e4, -9e3, 1e6, 1e8, 5e7]])
    low, high = of(values)
    assert -20.0 < low < -2.0
    assert 2.0 < high < 20.0


def test_a_code_beside_two_values_leaves_these_apart():
    values = with_codes(np.arange(1000) % 2, -9999.0, 0.01)
    low, high = of(values)
    assert (low, high) == (-1.0, np.inf)


def test_many_values_that_differ_are_no_codes():
    """What one row in ten has may tell, if it varies; a single value of theirs is kept apart by its limit."""
    cluster = CLEAN["two clusters"]
    assert of(cluster) == NONE
    low, high = of(np.where(cluster > 100.0, 500.0, cluster))
    assert low == -np.inf
    assert high > np.max(cluster[cluster < 100.0])


@given(st.sampled_from(sorted(CLEAN)), st.sampled_from(sorted(CODES)), st.integers(-200, 200))
def test_limits_scale_and_turn_with_the_values(name, code, power):
    values = with_codes(CLEAN[name], *CODES[code])
    low, high = of(values)
    assert of(2.0**power * values) == (2.0**power * low, 2.0**power * high)
    assert of(-values) == (-high, -low)


@settings(deadline=None)
@given(st.sampled_from(sorted(CODES)), st.integers(0, 100))
def test_weights_equal_repeats(code, seed):
    values = with_codes(CLEAN["normal"], *CODES[code])
    repeats = np.random.default_rng(seed).integers(1, 4, len(values))
    assert of(values, repeats.astype(np.float64)) == of(np.repeat(values, repeats))


def coded(n=240, seed=0, code=-9999.0):
    """Moons with a feature of noise, of which each cell in fifty is a code."""
    X, y = moons(n, seed)
    random = np.random.default_rng(seed)
    X = np.column_stack([X, random.normal(size=n)])
    return np.where(random.uniform(size=X.shape) < 0.02, code, X), y


X, Y = coded()


def model(**options):
    return GPClassifier(**{"n_inducing": 15, "n_neighbors": 0, "max_iter": 15, "random_state": 0, **options})


@pytest.fixture(scope="module")
def fitted():
    return quietly(model(), X, Y)


def at_limits(encoding, rows):
    low, high = np.full(rows.shape[1], -np.inf), np.full(rows.shape[1], np.inf)
    for one in encoding.limits:
        low[one.feature], high[one.feature] = one.low, one.high
    return np.clip(rows, low, high)


def test_a_row_far_out_spoils_no_fit():
    rows, y = moons(300)
    others, labels = moons(500, seed=1)
    clean = quietly(model(), rows, y)
    rows = np.vstack([rows, [1e8, 1e8]])
    for options in ({}, {"feature_transform": None}, {"inducing_points": "all"}):
        found = quietly(model(**options), rows, np.append(y, 0))
        assert found.score(others, labels) > clean.score(others, labels) - 0.02
        np.testing.assert_allclose(found.kernel_.k2.length_scale, clean.kernel_.k2.length_scale, rtol=1.0)
    assert clean.encoding_ is None


def test_codes_cost_no_more_than_what_they_hide(fitted):
    """The mean log probability of other rows with codes is near that of a fit to values at hand-made limits."""
    others, labels = coded(600, seed=1)
    by_hand = quietly(model(), np.clip(X, -4.0, 4.0), Y).predict_log_proba(np.clip(others, -4.0, 4.0))
    rows = np.arange(len(labels))
    gained = fitted.predict_log_proba(others)[rows, labels] - by_hand[rows, labels]
    assert np.mean(gained) > -0.02


def test_all_rows_are_predicted_at_the_limits(fitted):
    rows = np.vstack([X[:40], 1e5 * X[:40], -1e5 * X[:40]])
    np.testing.assert_array_equal(fitted.encoding_.encode(rows), at_limits(fitted.encoding_, rows))
    np.testing.assert_array_equal(fitted.predict_proba(rows), fitted.predict_proba(at_limits(fitted.encoding_, rows)))
    np.testing.assert_array_equal(fitted.predict_proba(rows), fitted.predict_proba(csr_matrix(rows)))
    batches = [rows[:50], rows[50:]]
    np.testing.assert_allclose(np.vstack(list(fitted.predict_proba_batches(batches))), fitted.predict_proba(rows))
    assert fitted.elbo(X, Y) == pytest.approx(fitted.elbo(at_limits(fitted.encoding_, X), Y))


def test_a_fit_is_that_of_rows_at_the_limits(fitted):
    off = quietly(model(feature_transform=None), at_limits(fitted.encoding_, X), Y)
    assert off.encoding_ is None
    assert off.elbo_ == fitted.elbo_
    np.testing.assert_array_equal(off.predict_proba(at_limits(fitted.encoding_, X)), fitted.predict_proba(X))
    neighbours = quietly(model(n_neighbors=6), X, Y)
    assert np.max(np.abs(neighbours.posterior_.to_arrays()["rows"])) < 100.0


def test_pictures_are_of_values_within_limits(fitted):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    display = DecisionBoundaryDisplay.from_estimator(fitted, X, Y)
    assert np.ptp(display.x) < 100.0


def test_the_history_names_features_and_limits():
    frame = pytest.importorskip("pandas").DataFrame(X, columns=["a", "b", "c"])
    frame["a"] = moons(len(X))[0][:, 0]
    found = quietly(model(), frame, Y)
    assert [one.feature for one in found.encoding_.limits] == [1, 2]
    (told,) = [text for text in found.history_["decision"] if "a wide gap separates" in text]
    assert "'a'" not in told
    assert f"'b' below {found.encoding_.limits[0].low:.4g}" in told


def test_inducing_points_that_are_given_have_the_limits_of_the_rows():
    given = model(inducing_points=X[:20], learn_inducing=False, optimizer=None)
    found = quietly(given, X, Y)
    assert found.encoding_.limits
    np.testing.assert_array_equal(found.inducing_points_, at_limits(found.encoding_, X[:20]))


def test_a_warm_start_goes_on_where_limits_differ(fitted):
    warm = clone(fitted).set_params(warm_start=True)
    quietly(warm, X, Y)
    points = warm.inducing_points_
    warm.set_params(optimizer=None)
    quietly(warm, np.clip(X, -5.0, 5.0), Y)
    assert warm.encoding_ is None
    np.testing.assert_array_equal(warm.inducing_points_, points)


def test_what_stays_as_it_is(tmp_path):
    """Sparse rows, whose zeros would not stay, and memory maps, which are read where they are."""
    assert quietly(model(), csr_matrix(X), Y).encoding_ is None
    np.save(tmp_path / "X.npy", X)
    mapped = quietly(model(), np.load(tmp_path / "X.npy", mmap_mode="r"), Y)
    assert mapped.encoding_ is None
    assert any("memory map" in text for text in mapped.history_["decision"])


def test_numbers_of_tables_have_limits():
    frame = pytest.importorskip("pandas").DataFrame({"level": np.where(Y, "a", "b"), "x": X[:, 0], "y": X[:, 1]})
    frame.loc[::7, "y"] = np.nan
    found = quietly(model(), frame, Y)
    places = [found.encoding_.matrix_names[one.feature] for one in found.encoding_.limits]
    assert places == ["x", "y"]
    np.testing.assert_array_less(np.abs(found.encoding_.encode(frame)), 100.0)


def test_single_precision_stays_single():
    single = X.astype(np.float32)
    found = quietly(model(), single, Y)
    assert found.encoding_.within_limits(single).dtype == np.float32
    np.testing.assert_allclose(found.predict_proba(single), quietly(model(), X, Y).predict_proba(X), atol=0.02)


DATA = {
    "columns": [],
    "dtype": "",
    "limits": [[0, -1.0, 2.0, 0.0, 0.0, []], [2, float("-inf"), 1.0, 0.5, 1.0, [0.0, 2.0, 0.0]]],
}


def test_encodings_that_are_not_valid_are_refused(fitted):
    Encoding = type(fitted.encoding_)
    assert json.loads(json.dumps(Encoding.from_data(DATA).to_data())) == DATA
    nan, rest = float("nan"), [0.0, 0.0, []]
    for bad in (
        [],
        {},
        None,
        [[0, 1.0]],
        [[0, 0.0, 1.0]],
        [[0, 2.0, 1.0, *rest]],
        [[2, 0.0, 1.0, *rest], [0, 0.0, 1.0, *rest]],
        [[0, nan, 1.0, *rest]],
        [[-1, 0.0, 1.0, *rest]],
        [[0, 0.0, 1.0, nan, 0.0, []]],
        [[0, 0.0, 1.0, 0.0, 0.0, [nan]]],
        [[0, 0.0, 1.0, 0.0, 0.0, ["a"]]],
    ):
        with pytest.raises(ValueError, match="not valid"):
            Encoding.from_data({**DATA, "limits": bad})


@pytest.mark.parametrize("value", ["none", True, 1.0])
def test_other_transforms_are_refused(value):
    with pytest.raises(ValueError, match="feature_transform must be 'auto' or None"):
        model(feature_transform=value).fit(X, Y)


def test_few_rows_have_no_limits():
    values = np.append(np.arange(18.0), 1e6)
    assert of(values) == NONE
    assert of(np.append(values, 3.5))[1] < 1e6
