"""Values far from all others: what they are, and that fits and predictions have them at limits."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from sklearn.gaussian_process.kernels import RBF
from support.fits import quietly
from support.reference import moons

from xgpc import GPClassifier
from xgpc.onnx import to_onnx

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


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(sorted(CLEAN)), st.sampled_from(sorted(CODES)), st.integers(-200, 200))
def test_limits_scale_and_turn_with_the_values(name, code, power):
    values = with_codes(CLEAN[name], *CODES[code])
    low, high = of(values)
    assert of(2.0**power * values) == (2.0**power * low, 2.0**power * high)
    assert of(-values) == (-high, -low)


@settings(deadline=None, max_examples=12)
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
model = partial(GPClassifier, n_inducing=15, n_neighbors=0, max_iter=15, random_state=0)


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


def test_what_stays_as_it_is(tmp_path):
    """Sparse rows, whose zeros would not stay, and memory maps, which are read where they are."""
    assert quietly(model(), csr_matrix(X), Y).encoding_ is None
    np.save(tmp_path / "X.npy", X)
    mapped = quietly(model(), np.load(tmp_path / "X.npy", mmap_mode="r"), Y)
    assert mapped.encoding_ is None
    assert any("memory map" in text for text in mapped.history_["decision"])


def test_weights_equal_repeats_of_rows():
    repeats = np.random.default_rng(3).integers(1, 4, len(X))
    options = {"kernel": RBF(1.0), "n_inducing": 1, "optimizer": None, "max_iter": 1}
    weighted = quietly(model(**options), X, Y, sample_weight=repeats.astype(np.float64))
    repeated = quietly(model(**options), np.repeat(X, repeats, axis=0), np.repeat(Y, repeats))
    assert weighted.encoding_.limits == repeated.encoding_.limits


def test_rows_within_limits_do_not_depend_on_other_rows_or_layout(fitted):
    encode = fitted.encoding_.encode
    rows = np.vstack([X, 30.0 * X, np.full((1, 3), 1e9)])
    moved = encode(rows)
    np.testing.assert_array_equal(moved, np.vstack([encode(row[None]) for row in rows]))
    np.testing.assert_array_equal(moved, encode(np.asfortranarray(rows)))
    np.testing.assert_array_equal(encode(moved), moved)
    assert encode(rows.astype(np.float32)).dtype == np.float32


def test_a_fit_says_which_values_are_limited(fitted):
    (text,) = [text for text in fitted.decisions_ if "a wide gap separates" in text]
    assert "are moved to limits" in text
    assert all(f"feature {one.feature} below {one.low:.4g}" in text for one in fitted.encoding_.limits)
    assert [one.feature for one in fitted.encoding_.limits] == [0, 1, 2]


def test_onnx_models_predict_alike(fitted):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(to_onnx(fitted).SerializeToString(), providers=["CPUExecutionProvider"])
    rows = np.vstack([X, np.full((1, 3), -9999.0), 10.0 * X[:50]])
    np.testing.assert_allclose(session.run(["probabilities"], {"X": rows})[0], fitted.predict_proba(rows), atol=1e-5)
