"""A richer model, kept if it is better: more inducing points, a kernel for each class, or neighbours.

Each kind of richer model has a function that proposes two candidates for the same rows, the simpler and the richer one;
``accept`` compares them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from ..approximations.base import KernelPrior
from ..inference.history import History

# Nats by which a costlier model must raise the mean log probability of held-out rows, besides a standard error.
LEAST_GAIN = 2e-3
# Nats for each added inducing point by which the bound must rise; on magic, further learning then gained four times it.
MIN_GAIN = 0.05

T = TypeVar("T")


class Rise(NamedTuple):
    """Whether a rise is enough; the rise and the requirement in words."""

    is_enough: bool
    words: str
    required: str


@dataclass(frozen=True)
class Scores:
    """log p(y) (r,) of held-out rows, in nats, and the rows' weights (r,)."""

    values: np.ndarray
    weight: np.ndarray

    def __sub__(self, other: Scores) -> Scores:
        """Paired differences for the same rows."""
        return Scores(self.values - other.values, self.weight)

    @property
    def mean(self) -> float:
        return float(np.average(self.values, weights=self.weight))

    @property
    def error(self) -> float:
        """Standard error of the mean; NaN for a single row."""
        n = len(self.values)
        if n < 2:
            return float("nan")
        share = self.weight / np.sum(self.weight)
        return float(np.sqrt(np.sum((share * (self.values - share @ self.values)) ** 2) * n / (n - 1)))

    def rise_from(self, simpler: Scores) -> Rise:
        gains = self - simpler
        mean, error = gains.mean, gains.error
        of_rows = f"the mean log probability of {len(gains.values)} held-out rows changes by {mean:+.3g} +- {error:.2g}"
        required = f"it must rise by more than {LEAST_GAIN:g} and its standard error"
        return Rise(mean > max(error, LEAST_GAIN), f"{of_rows} nats", required)


@dataclass(frozen=True)
class Bound:
    """A bound in nats, and the prior whose inducing points it is for."""

    elbo: float
    prior: KernelPrior

    def gain_per_point(self, simpler: Bound) -> float:
        """Nats for each point of each kernel that the prior has more than a simpler one."""
        n_more = self.prior.n_inducing - simpler.prior.n_inducing
        return (self.elbo - simpler.elbo) / (n_more * len(self.prior.groups))

    def rise_from(self, simpler: Bound) -> Rise:
        gain, n_more = self.gain_per_point(simpler), self.prior.n_inducing - simpler.prior.n_inducing
        whose = " and class" if len(self.prior.groups) > 1 else ""
        total = gain * n_more * len(self.prior.groups)
        words = f"changes the bound by {total:+.3g} nats, {gain:+.3g} for each new point{whose}"
        return Rise(gain >= MIN_GAIN, words, f"at least {MIN_GAIN:g} is required")


class Candidate(NamedTuple, Generic[T]):
    """A model, and its value on the rows on which it is compared."""

    model: T
    value: Any


def accept(simpler: Candidate[Any], richer: Candidate[Any], subject: str, history: History, **columns: float) -> bool:
    """Whether the richer model is kept; the history records why, in a sentence that begins with ``subject``."""
    rise = richer.value.rise_from(simpler.value)
    verdict = "taken" if rise.is_enough else f"not taken, as {rise.required}"
    history.add(**columns, decision=f"{subject} {rise.words}: {verdict}.")
    return bool(rise.is_enough)
