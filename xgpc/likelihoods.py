"""Registry of likelihoods: their bounds, the compiled site of each, and the link for prediction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from . import _engine


def logit_log_probabilities(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """log p(y = -1) and log p(y = +1), (n, 2), for latent values N(mean, variance) under the logistic link.

    Evaluated for the less probable class. In its far tail the normal scale mixture is too thin; there
    E[sigma(f)] = exp(m + v/2) E[sigma(-g)], g ~ N(m + v, v), an identity, keeps the relative accuracy.
    """
    below = -np.abs(mean)
    tilted = below + variance < 0.0
    small = np.log(_engine.logistic_normal_mean(np.where(tilted, -(below + variance), below), variance))
    small += np.where(tilted, below + 0.5 * variance, 0.0)
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
LIKELIHOODS = {"logit": Likelihood("logit", ("exact", "polya-gamma"), logit_log_probabilities)}


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
