"""Scores of rows whose labels are left out, and what a richer model has to gain: points, a kernel, neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from ..approximations.base import KernelPosterior
from ..inference.ascent import Point
from ..inference.history import History
from ..inference.prior_mean import base_rates

# Nats by which a costlier model must raise the mean log probability of held-out rows, besides a standard error. (With
# half of it a linear problem took a costlier model by chance.)
LEAST_GAIN = 2e-3
# The bound must rise by this many nats for each added inducing point; further learning then gains about four times as
# much. (With .05, NLL of waveform, thyroid and bank-marketing is higher by .0005 to .003, and of eight other sets the
# same.) With several classes it must rise by as much for each class, because each takes as long, and the points of many
# classes would take minutes. (If it had to rise once for all classes, nine of 27 fits to 2500 rows, three each of nine
# sets, would have more points and take two to three times as long; their NLL would be lower by .0001 to .016, most for
# waveform, waveform-noise and wine-quality-white.)
MIN_GAIN = 0.025

# Whether a rise is enough; the rise in words; and what is required as the end of this sentence, empty if the words
# already say it.
Rise = tuple[bool, str, str]


@dataclass(frozen=True)
class Scores:
    """log p(y) (r,) of held-out rows, in nats, their weights (r,), and groups (r,) if some depend on each other.

    ``rows`` says which rows these are.
    """

    values: np.ndarray
    weight: np.ndarray
    groups: np.ndarray | None = None
    rows: str = "held-out rows"

    def __sub__(self, other: Scores) -> Scores:
        """Paired differences for the same rows."""
        return replace(self, values=self.values - other.values)

    def at(self, rows: np.ndarray) -> Scores:
        """The scores of some of these rows, by their numbers (r,)."""
        groups = None if self.groups is None else self.groups[rows]
        return replace(self, values=self.values[rows], weight=self.weight[rows], groups=groups)

    @property
    def mean(self) -> float:
        return float(np.average(self.values, weights=self.weight))

    @property
    def error(self) -> float:
        """Standard error of the mean, from sums over groups if there are groups; NaN for a single row or group."""
        share = self.weight / np.sum(self.weight)
        parts = share * (self.values - share @ self.values)
        if self.groups is not None:
            parts = np.bincount(np.unique(self.groups, return_inverse=True)[1], parts)
        n = len(parts)
        return float(np.sqrt(np.sum(parts**2) * n / (n - 1))) if n > 1 else float("nan")

    @property
    def error_or_zero(self) -> float:
        """``error``; 0 for a single row or group, which has none."""
        return float(np.nan_to_num(self.error))

    def optimism(self, n_learned: float) -> float:
        """Nats a row that p parameters, fitted to these n rows, seem to gain too much: p / n, by Akaike (1974)."""
        return n_learned / float(np.sum(self.weight))

    def above(self, other: Scores, nats: float = 0.0, is_costlier: bool = False) -> Rise:
        """Whether these scores are higher by more than ``nats`` a row; negative ``nats`` allow a fall.

        Those of a costlier model must be higher by the larger of ``LEAST_GAIN`` and a standard error besides.
        """
        gains = self - other
        if is_costlier:
            nats += max(gains.error_or_zero, LEAST_GAIN)
        if nats < 0.0:
            return gains.mean > nats, f"{gains.words}; it must not fall by more than {-nats:.2g}", ""
        return gains.mean > nats, gains.words, f"it must rise by more than {nats:.2g}" if nats else "it must rise"

    @property
    def words(self) -> str:
        """These differences as a sentence."""
        error = "" if np.isnan(self.error) else f" +- {self.error:.2g}"
        return f"The mean log probability of {len(self.values)} {self.rows} changes by {self.mean:+.3g}{error} nats"


def joined(scores: Sequence[Scores]) -> Scores:
    """The scores of the rows of several splits."""
    groups = [part.groups for part in scores if part.groups is not None]
    values, weights = np.concatenate([part.values for part in scores]), np.concatenate([part.weight for part in scores])
    return Scores(values, weights, np.concatenate(groups) if groups else None)


class Gain(NamedTuple):
    """Log probabilities of rows by a fit that left them out, and of the same rows under the class frequencies.

    ``n_learned`` is the effective number of parameters that were fitted to these rows all the same. ``beginning``
    starts the sentence ``words``: it says how the rows were left out.
    """

    scores: Scores
    base: Scores
    n_learned: float
    beginning: str

    @classmethod
    def of(cls, scores: Scores, codes: np.ndarray, totals: np.ndarray, beginning: str, n_learned: float = 0.0) -> Self:
        """The gain of rows of the classes ``codes`` (r,) over class frequencies in proportion to ``totals`` (C,)."""
        return cls(scores, replace(scores, values=np.log(base_rates(totals))[codes]), n_learned, beginning)

    @property
    def nats(self) -> float:
        """Gain of the mean log probability over the class frequencies."""
        return (self.scores - self.base).mean - self.scores.optimism(self.n_learned)

    @property
    def error(self) -> float:
        """Standard error of ``nats``, NaN for a single row or group."""
        return (self.scores - self.base).error

    @property
    def is_shown(self) -> bool:
        """Whether the gain is positive; if no parameters were fitted to the rows, above its standard error."""
        return self.nats > (0.0 if self.n_learned else (self.scores - self.base).error_or_zero)

    def is_above(self, richer: Gain) -> bool:
        """Whether this gain, of a simpler fit, is higher by more than the standard error of their difference."""
        return self.nats - richer.nats > (self.scores - richer.scores).error_or_zero

    @property
    def words(self) -> str:
        optimism = self.scores.optimism(self.n_learned)
        less = f", less {optimism:.2g} for the parameters fitted to them" if self.n_learned else ""
        error = "" if np.isnan(self.error) else f", with a standard error of the difference of {self.error:.2g}"
        return (
            f"{self.beginning} a mean log probability of {self.scores.mean:.4g} nats{less}; under the class "
            f"frequencies it is {self.base.mean:.4g}{error}"
        )


def gain_per_point(simpler: Point[KernelPosterior], richer: Point[KernelPosterior]) -> float:
    """Gain of the bound, in nats, for each further point of each latent function of the richer posterior."""
    n_more = richer.q.prior.n_inducing - simpler.q.prior.n_inducing
    return (richer.elbo - simpler.elbo) / (n_more * richer.q.n_latents)


def rise_by_points(simpler: Point[KernelPosterior], richer: Point[KernelPosterior]) -> Rise:
    """The rise of the bound by more inducing points."""
    gain, and_class = gain_per_point(simpler, richer), " and class" if richer.q.n_latents > 1 else ""
    words = f"The bound changes by {richer.elbo - simpler.elbo:+.3g} nats, {gain:+.3g} for each new point{and_class}"
    return gain >= MIN_GAIN, words, f"at least {MIN_GAIN:g} for each is required"


def accept(rise: Rise, option: str, history: History, **columns: float) -> bool:
    """Whether the richer model is kept; the history records this, the rise, and ``option``, what that model has."""
    is_enough, words, required = rise
    reason = words if is_enough or not required else f"{words}; {required}"
    history.add(**columns, decision=f"{'Taken' if is_enough else 'Not taken'}: {option}. {reason}.")
    return is_enough
