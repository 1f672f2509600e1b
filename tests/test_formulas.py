"""Small formulas and rules that fits are made of, which no fit tells by itself."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF, DotProduct
from support.internals import (
    LEAST_GAIN,
    SMALL_TILT,
    ArraySource,
    Distinct,
    History,
    KernelSpec,
    Scores,
    SparsePrior,
    _slope_of_precision,
    accept,
    polya_gamma_variance,
    projected_sums,
)
from support.online import X


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.floats(0.0, 1e3) | st.floats(0.9 * SMALL_TILT, 1.1 * SMALL_TILT) | st.floats(0.0, 1e-3))
def test_polya_gamma_variance_is_mpmaths(c):
    with mpmath.workdps(60):
        x = mpmath.mpf(c)
        expected = (
            (mpmath.tanh(x / 2) / x - mpmath.sech(x / 2) ** 2 / 2) / (2 * x**2) if c > 1e-15 else 1 / mpmath.mpf(24)
        )
    assert polya_gamma_variance(np.array([c]))[0] == pytest.approx(float(expected), rel=1e-11)


def test_slope_of_the_sites_precision():
    """Near zero, where it is a series, about the change to the closed form, and far: to 3e-7, where the series ends."""
    xi = np.concatenate([[1e-300, 1e-12, 1e-6], np.geomspace(1e-3, 0.06, 40), [0.0499999, 0.05, 0.3, 1, 7, 40, 900]])
    slope = _slope_of_precision(np.concatenate([xi, -xi, [0.0]]))
    with mpmath.workdps(60):
        f = [
            mpmath.diff(lambda t: mpmath.tanh(t / 2) / (2 * t), x) if x > 1e-5 else -x / 24 for x in map(mpmath.mpf, xi)
        ]
    expected = np.array([float(value) for value in f])
    np.testing.assert_allclose(slope, np.concatenate([expected, -expected, [0.0]]), rtol=3e-7)


def is_accepted(gains, weight):
    """Whether a model that gains so much for held-out rows is kept, and the sentence that says so."""
    history = History()
    found = accept(Scores(np.zeros(len(gains)), weight), Scores(gains, weight), "It:", history)
    return found, history.arrays()["decision"][0]


def test_weights_count_in_the_comparison():
    gains = np.array([0.3, 0.1, -0.2, 0.05])
    assert is_accepted(gains, np.array([1.0, 1.0, 1e-6, 1.0]))[0]
    assert not is_accepted(gains, np.array([1.0, 1.0, 3.0, 1.0]))[0]
    # More than a standard error, and more than what it costs.
    assert not is_accepted(np.full(4, 0.9 * LEAST_GAIN), np.ones(4))[0]
    better, words = is_accepted(np.array([0.0, 2.0]), np.ones(2))
    assert not better
    assert words.startswith("It: the mean log probability of 2 held-out rows changes by +1 +- 1 nats: not taken, as ")


@pytest.mark.parametrize("n_latents", [1, 3])
def test_sites_of_copies_are_shares_of_their_sum(n_latents):
    rng = np.random.default_rng(0)
    weight = rng.gamma(2.0, size=40)
    found = Distinct.of(ArraySource(rng.integers(0, 3, (40, 2)).astype(float), np.ones(40), weight))
    r = found.source.n_rows
    assert r < 10
    sites = rng.gamma(2.0, size=(n_latents, r)), rng.normal(size=(n_latents, r))
    parts = found.parts(sites)
    for whole, part, again in zip(sites, parts, found.sums(parts), strict=True):
        assert_allclose(again, whole, rtol=1e-13)
        assert_allclose(part / weight, (whole / found.source.weight)[:, found.place], rtol=1e-13)


def test_sums_are_restated_where_the_jitter_is_another():
    """z = T z' with both jitters: the quadratic form and the linear term are those of the same inducing values."""
    spec = KernelSpec(DotProduct() + RBF(), 2)
    before = SparsePrior.build(spec, X[:6])
    prior = SparsePrior.build(spec, np.vstack([X[:6], 50.0 + X[6:8]]))
    rng = np.random.default_rng(0)
    half, h, later = rng.normal(size=(6, 6)), rng.normal(size=6), rng.normal(size=8)
    P = half @ half.T
    wide_P, wide_h = projected_sums((np.tril(P), h), before, prior)
    z = before.Linv @ (prior.L @ later)[:6]
    assert np.linalg.norm(z - later[:6]) > 0.0
    full = wide_P + np.tril(wide_P, -1).T
    assert later @ full @ later == pytest.approx(z @ P @ z)
    assert later @ wide_h == pytest.approx(z @ h)
