"""The predictive score of query rows, and its gradient by the kernel's parameters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..approximations.local import (
    Neighbourhoods,
    PullBack,
    Sites,
    coefficients,
    local_rows,
    predicted,
    pulled_back,
)
from ..approximations.local_gradient import (
    ByRows,
    by_coefficients,
    by_neighbours,
    by_own_terms,
    by_residual,
    kernel_gradient,
    through_coefficients,
)
from ..approximations.sparse import SparsePrior
from ..inference.links import Link
from ..inference.local_sites import Cavity, Local, cavities
from ..rows.executor import Executor
from ..rows.source import RowSource, labels_and_weights

# Mean score, in nats, below any other.
WORST_SCORE = -1e3
# Standard deviation of the log-normal prior, about 1, of the factor of the variances. It matters for few rows, to whose
# queries the factor is soon fitted: ringnorm, 500 rows, NLL .219 with 1, .205 with .3, .202 with .1; 1500 rows .082,
# .067, .071; on other sets no more than by chance.
LOG_SCALE_SPREAD = 0.3


def standard_error(values: np.ndarray, weight: np.ndarray) -> float:
    """Of the weighted mean of values (n,), independent of each other; NaN of a single one."""
    if len(values) < 2:
        return float("nan")
    share = weight / np.sum(weight)
    return float(np.sqrt(np.sum((share * (values - share @ values)) ** 2) * len(values) / (len(values) - 1)))


@dataclass(frozen=True)
class Scores:
    """log p(y) (q,) of query rows in nats, and their weighted mean."""

    values: np.ndarray
    weight: np.ndarray

    @property
    def mean(self) -> float:
        return float(np.average(self.values, weights=self.weight))

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return standard_error(self.values, self.weight)


@dataclass(frozen=True)
class QueryScore:
    """log p(y) of query rows, predicted from support rows, as a function of the kernel and a factor of the variances.

    The parameters are the kernel's ``theta``, and the logarithm of the factor. The sites of the support rows that the
    queries see are those of one sweep from given ones, at each kernel anew: what the sites make of a change of the
    kernel is part of the gradient. The neighbours stay.

    Attributes
    ----------
    prior : SparsePrior, its inducing points stay
    support, queries : sources of rows with labels and weights
    index, query_index : (n, k) and (q, k), neighbours of both among the support rows
    sites : of the support rows
    link : Link
    """

    executor: Executor
    prior: SparsePrior
    support: RowSource
    queries: RowSource
    index: np.ndarray
    query_index: np.ndarray
    sites: Sites
    link: Link

    @cached_property
    def seen(self) -> np.ndarray:
        """The support rows that are neighbours of a query."""
        return np.unique(self.query_index)

    @cached_property
    def labels(self) -> tuple[np.ndarray, np.ndarray]:
        return labels_and_weights(self.queries)

    def at(self, parameters: np.ndarray) -> Evaluated:
        """The score; O(n m (m + d)) and O(k^2 (m + d) + k^3) for each row that is seen."""
        theta, scale = parameters[:-1], float(np.exp(parameters[-1]))
        prior = self.prior.rebuilt([self.prior.spec.with_theta(theta)], self.prior.Z)
        rows = local_rows(self.executor, prior, self.support)
        local = Local(self.support, prior.core, rows, self.index, self.link)
        q = coefficients(self.executor, self.support, rows, self.sites)
        cavity = cavities(self.executor, local, self.sites, q, self.seen)
        sites = self.sites[0].copy(), self.sites[1].copy()
        for all_rows, found in zip(sites, cavity.sites(), strict=True):
            all_rows[:, self.seen] = found
        q = coefficients(self.executor, self.support, rows, sites)
        query_rows = local_rows(self.executor, prior, self.queries)
        at = Neighbourhoods(prior.core, rows, sites, q, query_rows, self.query_index)
        mean, variance = predicted(self.executor, at)
        y, weight = self.labels
        values, (d_mean, d_variance) = self.link.scores(mean, scale * variance, y)
        share = weight / np.sum(weight)
        d_mean, d_variance = share * d_mean, scale * share * d_variance
        d_log_scale = float(np.sum(d_variance * variance))
        return Evaluated(self, prior, cavity, at, Scores(values, weight), d_mean, d_variance, d_log_scale)

    def objective(self, parameters: np.ndarray) -> tuple[float, np.ndarray]:
        """Minus the mean score and the factor's prior, and their gradient: what a minimiser takes.

        Where numbers leave the range of what can be factorised the score is ``WORST_SCORE``: a step back.
        """
        try:
            evaluated = self.at(parameters)
            value, gradient = evaluated.scores.mean, evaluated.gradient()
        except ValueError:
            return -WORST_SCORE, np.zeros_like(parameters)
        if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
            return -WORST_SCORE, np.zeros_like(parameters)
        share = 1.0 / (LOG_SCALE_SPREAD**2 * float(np.sum(self.labels[1])))
        value -= 0.5 * share * parameters[-1] ** 2
        gradient[-1] -= share * parameters[-1]
        return -value, -gradient


@dataclass(frozen=True)
class Evaluated:
    """A score, and all that its gradient needs.

    Attributes
    ----------
    prior : SparsePrior, at the parameters in question
    cavity : Cavity, of the rows that are seen
    at : Neighbourhoods, of the queries
    d_mean, d_variance, d_log_scale : (C, q), (C, q) and a number, derivatives of the mean score by the predictions
        before their variances get the factor, and by its logarithm
    """

    problem: QueryScore
    prior: SparsePrior
    cavity: Cavity
    at: Neighbourhoods
    scores: Scores
    d_mean: np.ndarray
    d_variance: np.ndarray
    d_log_scale: float

    def gradient(self) -> np.ndarray:
        """Gradient of the mean score by the parameters; some four times what the score takes."""
        problem, at, rows = self.problem, self.at, self.at.support
        found, pairs = pulled_back(problem.executor, PullBack(at, self.d_mean, self.d_variance))
        total, by_sites = by_neighbours(at.index, len(rows.a), found)
        by_q = by_coefficients(found, at.rows.a, self.d_mean, self.d_variance)
        more, by_more_sites = through_coefficients(at.q, at.sites, rows, *by_q)
        total += more
        by_sites = by_sites[0] + by_more_sites[0], by_sites[1] + by_more_sites[1]
        through_sites, more_pairs = self._through_sweep(by_sites)
        total += through_sites
        parts = [
            (problem.support, rows, total),
            (problem.queries, at.rows, ByRows(found["d_a"], np.sum(self.d_variance, axis=0))),
        ]
        by_kernel = kernel_gradient(self.prior, parts, [a + b for a, b in zip(pairs, more_pairs, strict=True)])
        return np.append(by_kernel, self.d_log_scale)

    def _through_sweep(self, by_sites: Sites) -> tuple[ByRows, list[np.ndarray]]:
        """What the sites that the sweep made pass on; those that it started from are constants."""
        problem, at, seen = self.problem, self.cavity.at, self.problem.seen
        rows, n = at.support, len(at.support.a)
        of_seen = np.ascontiguousarray(by_sites[0][:, seen]), np.ascontiguousarray(by_sites[1][:, seen])
        d_mean, d_variance = self.cavity.pull_back(of_seen)
        found, pairs = pulled_back(problem.executor, PullBack(at, d_mean, d_variance))
        total, _ = by_neighbours(at.index, n, found)
        own = found["own"]
        d_residual, _ = by_own_terms(at.own_terms, at.sites[0][:, seen], at.rows.residual, own[:, :, 0], own[:, :, 1])
        seen_rows = by_residual(at.rows, d_residual)
        seen_rows += ByRows(found["d_a"], np.sum(d_variance, axis=0))
        total += seen_rows.spread(seen, n)
        more, _ = through_coefficients(at.q, at.sites, rows, *by_coefficients(found, at.rows.a, d_mean, d_variance))
        total += more
        return total, pairs
