"""Registry of likelihoods: their bounds, the compiled site of each, and the link for prediction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import erfcx

from . import _engine


def _alternating_weights(terms: int) -> np.ndarray:
    """Weights that sum an alternating series from its first terms (Cohen, Rodriguez Villegas & Zagier 2000, alg. 1)."""
    d = (3.0 + np.sqrt(8.0)) ** terms
    d = 0.5 * (d + 1.0 / d)
    b, c, weights = -1.0, -d, []
    for k in range(terms):
        c = b - c
        weights.append(c / d)
        b *= (k + terms) * (k - terms) / ((k + 0.5) * (k + 1.0))
    return np.array(weights)


# Their relative error is 5.8^-terms: 14 stay below that of the normal scale mixture, 4e-9.
SERIES_WEIGHTS = _alternating_weights(14)
# Probabilities below this lose digits in the mixture, whose error is absolute.
SERIES_BELOW = 0.05


def logit_log_probabilities(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """log p(y = -1) and log p(y = +1), (n, 2), for latent values N(mean, variance) under the logistic link.

    Absolute error below 1e-8, in either tail (tests/test_sites.py).

    Notes
    -----
    Evaluated for the less probable class, a = |mean|, v = variance, f ~ N(-a, v). The normal scale mixture alone is too
    thin in the tail. For a > v, E[sigma(f)] = exp(v/2 - a) E[sigma(g)], g ~ N(a - v, v), an identity, has its second
    factor above one half. Else, where the mixture's value is small, the geometric series of sigma on each side of zero
    gives, with x = a / sqrt(2 v) and t = sqrt(v / 2),

        E[sigma(f)] = exp(-x^2) / 2 * (erfcx(x) + sum_{j >= 1} (-1)^(j-1) (erfcx(j t - x) - erfcx(j t + x))).
    """
    a = np.abs(mean)
    tilted = a > variance
    small = _engine.logistic_normal_mean(np.where(tilted, a - variance, -a), variance)
    thin = ~tilted & (small < SERIES_BELOW)
    small = np.log(np.where(thin, 1.0, small)) + np.where(tilted, 0.5 * variance - a, 0.0)
    if np.any(thin):
        root = np.sqrt(2.0 * variance[thin])
        x = a[thin] / root
        steps = np.outer(np.arange(1.0, len(SERIES_WEIGHTS) + 1.0), variance[thin] / root)
        series = erfcx(x) + SERIES_WEIGHTS @ (erfcx(steps - x) - erfcx(steps + x))
        small[thin] = np.log(0.5 * series) - x * x
    large = np.log1p(-np.exp(small))
    positive = mean > 0.0
    return np.column_stack([np.where(positive, small, large), np.where(positive, large, small)])


@dataclass(frozen=True)
class Likelihood:
    """One likelihood p(y | f), y in {-1, +1}.

    Attributes
    ----------
    name : str
    bounds : names of its sites, the best first ("auto" means that one)
    log_probabilities : (mean, variance) -> (n, 2) predictive log probabilities of -1 and +1
    """

    name: str
    bounds: tuple[str, ...]
    log_probabilities: Callable[[np.ndarray, np.ndarray], np.ndarray]

    def site(self, bound: str) -> int:
        """Number of the compiled site function of a bound."""
        return _engine.SITES[self.name, bound]

    def expected_log_likelihood(self, bound: str, mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> float:
        """Sum over points of the bound's term, in nats; y is -1 or +1."""
        ell, precision, linear = np.empty((3, len(y)))
        _engine.sites(self.site(bound), mean, variance, y, np.empty(0), ell, precision, linear)
        return float(np.sum(ell))


# The exact bound is closer to the posterior and needs fewer iterations than Polya-Gamma's at the same cost each.
LIKELIHOODS = {"logit": Likelihood("logit", ("exact", "polya-gamma", "taylor"), logit_log_probabilities)}


def resolve(likelihood: str, bound: str) -> tuple[Likelihood, str]:
    """Look up a likelihood and one of its bounds by name.

    Raises
    ------
    ValueError
        For an unknown name; the message lists the known ones.
    """
    if likelihood not in LIKELIHOODS:
        raise ValueError(f"likelihood must be one of {sorted(LIKELIHOODS)}; got {likelihood!r}.")
    found = LIKELIHOODS[likelihood]
    if bound == "auto":
        return found, found.bounds[0]
    if bound not in found.bounds:
        raise ValueError(
            f"bound must be 'auto' or, with likelihood {likelihood!r}, one of {list(found.bounds)}; got {bound!r}."
        )
    return found, bound
