"""Split R-hat and effective sample size: against loops, theory of autoregressions, and their invariances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from xgpc.gibbs.diagnostics import effective_sample_size, split, split_r_hat

repeatable = settings(deadline=None, derandomize=True, max_examples=40)
shapes = {"seed": st.integers(0, 2**20), "c": st.integers(1, 5), "s": st.integers(4, 61)}


def autoregression(rho, shape, random):
    """Stationary chains (c, s, ...) of variance one, each value rho times the one before plus noise."""
    x = random.normal(size=shape)
    for t in range(1, shape[1]):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1.0 - rho**2) * x[:, t]
    return x


def naive_halves(chains):
    half = len(chains[0]) // 2
    return [part for chain in chains for part in (chain[:half], chain[len(chain) - half :])]


def naive_r_hat(chains):
    """Bayesian data analysis, third edition, equations (11.1) to (11.4)."""
    halves = naive_halves(chains)
    m, n = len(halves), len(halves[0])
    means = [sum(half) / n for half in halves]
    grand = sum(means) / m
    B = n / (m - 1) * sum((mean - grand) ** 2 for mean in means)
    W = sum(sum((x - mean) ** 2 for x in half) / (n - 1) for half, mean in zip(halves, means, strict=True)) / m
    return np.sqrt(((n - 1) / n * W + B / n) / W)


def naive_effective_sample_size(chains):
    """Vehtari et al. 2021, equations (10) to (13), the autocovariances summed as they are defined."""
    halves = [np.array(half) for half in naive_halves(chains)]
    m, n = len(halves), len(halves[0])
    W = np.mean([half.var(ddof=1) for half in halves])
    total = (n - 1) / n * W + np.var([half.mean() for half in halves], ddof=1)

    def correlation(t):
        if t == 0:
            return 1.0
        products = 0.0
        for half in halves:
            centred = half - half.mean()
            rho = sum(centred[i] * centred[i + t] for i in range(n - t)) / sum(centred**2)
            products += half.var(ddof=1) * rho / m
        return 1.0 - (W - products) / total

    tau, smallest = -1.0, np.inf
    for k in range(n // 2):
        pair = correlation(2 * k) + correlation(2 * k + 1)
        if pair <= 0.0:
            break
        smallest = min(smallest, pair)
        tau += 2.0 * smallest
    return m * n / max(tau, 1.0 / np.log10(m * n))


@repeatable
@given(rho=st.floats(-0.9, 0.97), shift=st.sampled_from([0.0, 0.5, 10.0]), **shapes)
def test_equal_the_loops_over_their_definitions(seed, c, s, rho, shift):
    random = np.random.default_rng(seed)
    chains = autoregression(rho, (c, s), random) + shift * np.arange(c)[:, None]
    assert split_r_hat(chains) == pytest.approx(naive_r_hat(chains), rel=1e-10)
    assert effective_sample_size(chains) == pytest.approx(naive_effective_sample_size(chains), rel=1e-8)


@repeatable
@given(**shapes)
def test_trailing_axes_are_quantities_of_their_own(seed, c, s):
    random = np.random.default_rng(seed)
    chains = autoregression(0.5, (c, s, 2, 3), random) * random.uniform(0.1, 10.0, (2, 3))
    chains[:, :, 1, 1] = 4.0
    for diagnostic in (split_r_hat, effective_sample_size):
        each = [[diagnostic(chains[:, :, i, j]) for j in range(3)] for i in range(2)]
        assert diagnostic(chains).shape == (2, 3)
        assert_allclose(diagnostic(chains), each, rtol=1e-10)
        assert np.array_equal(np.isnan(diagnostic(chains)), [[False] * 3, [False, True, False]])
    assert effective_sample_size(chains[..., :0, :]).shape == (0, 3)


def test_an_odd_number_of_draws_leaves_the_middle_one_out():
    chains = np.arange(14.0).reshape(2, 7)
    assert np.array_equal(split(chains), [[0, 1, 2], [7, 8, 9], [4, 5, 6], [11, 12, 13]])
    assert np.array_equal(split(chains[:, :6]), [[0, 1, 2], [7, 8, 9], [3, 4, 5], [10, 11, 12]])


def test_constant_chains_that_differ_never_meet():
    chains = np.repeat([[1.0], [2.0]], 10, axis=1)
    assert split_r_hat(chains) == np.inf
    assert np.isnan(effective_sample_size(chains))
