"""The predictive score of held-out (query) rows, and its gradient with respect to the kernel parameters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..approximations.local_gradient import (
    ByConditional,
    ByRows,
    by_coefficients,
    by_earlier,
    by_natural,
    conditional_vjp,
    kernel_gradient,
    moments_vjp,
)
from ..approximations.local_rows import (
    Coefficients,
    Conditional,
    Neighbourhoods,
    Sites,
    local_rows,
    moments,
    site_terms,
)
from ..approximations.sparse import SparsePrior
from ..inference.links import Link
from ..inference.local_sites import Local, Sweep
from ..kernels.prior import NO_PRIOR, LengthScalePrior
from ..rows.executor import Executor
from ..rows.source import ArraySource, labels_and_weights
from .candidates import Scores

# Mean score, in nats, that is lower than any real one.
WORST_SCORE = -1e3
# Standard deviation of the log-normal prior, centred at 1, of the variance factor. Without this prior few query rows
# overfit the factor: ringnorm, 500 rows, had NLL .205 with .3 and .219 with 1.
LOG_SCALE_SPREAD = 0.3


@dataclass(frozen=True)
class QueryScore:
    """log p(y) of query rows, predicted from support rows, as a function of kernel parameters and a variance factor.

    The parameters are the kernel's ``theta`` and the logarithm of the factor. At each kernel one sweep updates the
    given sites; the predictions use the updated sites, and the gradient includes their dependence on the kernel. q(z)
    is computed from the given sites. The neighbours stay the same.

    Attributes
    ----------
    prior : SparsePrior, whose inducing points stay fixed
    support, queries : sources of rows with labels and weights
    index, n_earlier : neighbours of the support rows among themselves, as from ``in_order``
    query_index : (q, k), neighbours of the query rows among the support rows
    sites : sites of the support rows
    link : Link
    length_scale_prior : LengthScalePrior
    """

    executor: Executor
    prior: SparsePrior
    support: ArraySource
    queries: ArraySource
    index: np.ndarray
    n_earlier: np.ndarray
    query_index: np.ndarray
    sites: Sites
    link: Link
    length_scale_prior: LengthScalePrior = NO_PRIOR

    @cached_property
    def labels(self) -> tuple[np.ndarray, np.ndarray]:
        return labels_and_weights(self.queries)

    def at(self, parameters: np.ndarray) -> Evaluated:
        """Evaluate the score: O(n m (m + d)), and O(k^2 (m + d) + k^3) for each row."""
        theta, scale = parameters[:-1], float(np.exp(parameters[-1]))
        prior = self.prior.rebuilt([self.prior.spec.with_theta(theta)], self.prior.Z)
        rows, query_rows = (local_rows(self.executor, prior, source.X) for source in (self.support, self.queries))
        local = Local(self.executor, self.support, prior.core, rows, self.index, self.n_earlier, self.link)
        sweep = Sweep.of(local, self.sites, keep_all=True)
        at = Neighbourhoods(prior.core, rows, sweep.sites(), query_rows, self.query_index)
        answer = at.conditional(self.executor)
        b_mean, b_variance = moments(self.executor, answer.b, sweep.q)
        mean, variance = answer.mean + b_mean, answer.variance + b_variance
        y, weight = self.labels
        values, (d_mean, d_variance) = self.link.scores(mean, scale * variance, y)
        share = weight / np.sum(weight)
        d_mean, d_variance = share * d_mean, scale * share * d_variance
        by_score = d_mean, d_variance, float(np.sum(d_variance * variance))
        return Evaluated(self, prior, sweep, at, answer, Scores(values, weight), *by_score)

    def objective(self, parameters: np.ndarray) -> tuple[float, np.ndarray]:
        """Negative of the mean score plus log priors of factor and length scales, and its gradient, for a minimiser.

        If a factorisation fails, the score is ``WORST_SCORE``, so that the line search steps back.
        """
        try:
            evaluated = self.at(parameters)
            value, gradient = evaluated.scores.mean, evaluated.gradient()
        except ValueError:
            return -WORST_SCORE, np.zeros_like(parameters)
        if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
            return -WORST_SCORE, np.zeros_like(parameters)
        # The score is a mean over rows, so the log priors are divided by the total weight.
        share = 1.0 / float(np.sum(self.labels[1]))
        of_factor = share / LOG_SCALE_SPREAD**2
        value -= 0.5 * of_factor * parameters[-1] ** 2
        gradient[-1] -= of_factor * parameters[-1]
        log_prior, by_theta = self.length_scale_prior.at(evaluated.prior.spec)
        value += share * log_prior
        gradient[:-1] += share * by_theta
        return -value, -gradient


@dataclass(frozen=True)
class Evaluated:
    """A score, and the intermediate results that its gradient needs.

    Attributes
    ----------
    prior : SparsePrior, at these parameters
    sweep : Sweep of the support rows, from the given sites
    at, answer : neighbourhoods of the query rows, and the conditionals given their neighbours
    d_mean, d_variance, d_log_scale : (C, q), (C, q) and a number, derivatives of the mean score with respect to the
        predicted means and unscaled variances, and to the logarithm of the factor
    """

    problem: QueryScore
    prior: SparsePrior
    sweep: Sweep
    at: Neighbourhoods
    answer: Conditional
    scores: Scores
    d_mean: np.ndarray
    d_variance: np.ndarray
    d_log_scale: float

    def gradient(self) -> np.ndarray:
        """Gradient of the mean score with respect to the parameters; it takes about four times as long as the score."""
        executor, at, q, b = self.problem.executor, self.at, self.sweep.q, self.answer.b

        def given(rows: slice) -> list[ByConditional]:
            d_mean, d_variance = self.d_mean[:, rows].copy(), self.d_variance[:, rows].copy()
            return [(moments_vjp(b[:, rows], q, d_mean, d_variance), d_variance, d_mean)]

        pulled = conditional_vjp(executor, at, 1, given)
        by_q = by_coefficients(executor, b, self.d_mean, self.d_variance)
        support, pairs = self._through_sweep(pulled.sites, by_q)
        support += pulled.support
        parts = [
            (self.problem.support.X, at.support.a, support),
            (self.problem.queries.X, at.rows.a, pulled.rows),
        ]
        pairs = [of_queries + other for of_queries, other in zip(pulled.pairs, pairs, strict=True)]
        return np.append(kernel_gradient(executor, self.prior, parts, pairs), self.d_log_scale)

    def _through_sweep(self, by_sites: Sites, by_q: Coefficients) -> tuple[ByRows, list[np.ndarray]]:
        """Back-propagate through the sweep's sites and q(z); the sites before the sweep are constants."""
        sweep, sites, executor = self.sweep, self.problem.sites, self.problem.executor
        neighbours, earlier, q, among = sweep.neighbours, sweep.earlier, sweep.q, sweep.local.neighbourhoods(sites)
        assert earlier is not None
        d_b_mean, d_b_variance, d_variance, d_mean = sweep.vjp(by_sites)
        more = by_coefficients(executor, neighbours.b, d_b_mean, d_b_variance)
        natural = by_natural(q, Coefficients(by_q.w + more.w, by_q.V + more.V))
        s, g = site_terms(earlier.variance, earlier.mean, sites)

        def given(rows: slice) -> list[ByConditional]:
            d_b = moments_vjp(neighbours.b[:, rows], q, d_b_mean[:, rows], d_b_variance[:, rows])
            of_earlier = by_earlier(earlier.b[:, rows], (s[:, rows], g[:, rows]), *natural)
            return [(d_b, d_variance[:, rows].copy(), d_mean[:, rows].copy()), of_earlier]

        pulled = conditional_vjp(executor, among, 2, given)
        support = pulled.rows
        support += pulled.support
        return support, pulled.pairs
