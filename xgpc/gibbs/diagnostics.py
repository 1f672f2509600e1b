"""Convergence of Markov chains: split R-hat and effective sample size."""

from __future__ import annotations

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft


def split(chains: np.ndarray) -> np.ndarray:
    """Split chains (c, s, ...), s >= 4, into halves (2 c, s // 2, ...); if s is odd, the middle draw is left out."""
    half = chains.shape[1] // 2
    return np.concatenate([chains[:, :half], chains[:, -half:]])


def _variances(halves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean variance within chains, and an estimate of the total variance, which is larger while chains differ."""
    n = halves.shape[1]
    # Subtract one of the draws: equal draws then give zeros, whose mean has no rounding error.
    centred = halves - halves[:1, :1]
    within = np.mean(np.var(centred, axis=1, ddof=1), axis=0)
    between = np.var(np.mean(centred, axis=1), axis=0, ddof=1)
    return within, within * (n - 1) / n + between


def split_r_hat(chains: np.ndarray) -> np.ndarray:
    """Split R-hat (...) of chains (c, s, ...): 1 if the halves of all chains have the same distribution.

    A quantity that does not vary has NaN.

    References
    ----------
    Gelman, Carlin, Stern, Dunson, Vehtari, Rubin. Bayesian data analysis, third edition, 2013. Equations (11.1) to
    (11.4).
    """
    within, total = _variances(split(chains))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt(total / within)


def effective_sample_size(chains: np.ndarray) -> np.ndarray:
    """Number (...) of independent draws that estimate a mean as well as the chains (c, s, ...) do.

    A quantity that does not vary has NaN. O(c s log s) for each quantity.

    References
    ----------
    Vehtari, Gelman, Simpson, Carpenter, Buerkner. Rank-normalization, folding, and localization: an improved R-hat.
    Bayesian Analysis 2021. Equations (10) to (13), without ranks. Autocorrelations are summed as in Geyer, Practical
    Markov chain Monte Carlo, 1992, section 3.3: in pairs, until a pair is not positive, and no pair counts more than
    the one before.
    """
    halves = split(chains)
    c, n = halves.shape[:2]
    within, total = _variances(halves)
    centred = halves - np.mean(halves, axis=1, keepdims=True)
    spectrum = rfft(centred, next_fast_len(2 * n), axis=1)
    covariances = irfft(np.abs(spectrum) ** 2, next_fast_len(2 * n), axis=1)[:, :n] / n
    with np.errstate(invalid="ignore", divide="ignore"):
        correlations = 1.0 - (within - np.mean(covariances, axis=0) * n / (n - 1)) / total
    even = n - n % 2
    pairs = correlations[:even:2] + correlations[1:even:2]
    positive = np.cumprod(pairs > 0.0, axis=0)
    time = 2.0 * np.sum(np.minimum.accumulate(pairs, axis=0) * positive, axis=0) - 1.0
    # Chains with negative autocorrelation beat independent draws. This limit keeps the estimate finite.
    time = np.maximum(time, 1.0 / np.log10(c * n))
    return np.where(within > 0.0, c * n / time, np.nan)
