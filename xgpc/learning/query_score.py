"""The predictive score of held-out (query) rows, and its gradient with respect to the kernel parameters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..approximations.local import Coefficients, moments
from ..approximations.local_gradient import ByRows, by_earlier, by_moments, by_neighbours, kernel_gradient
from ..approximations.local_rows import (
    Conditional,
    Neighbourhoods,
    PullBack,
    Sites,
    all_conditionals,
    local_rows,
    pulled_back,
)
from ..approximations.sparse import SparsePrior
from ..inference.links import Link
from ..inference.local_sites import Cavity, Conditioned, Local, cavities, conditioned
from ..kernels.prior import NO_PRIOR, LengthScalePrior
from ..rows.executor import Executor
from ..rows.source import RowSource, labels_and_weights

# Mean score, in nats, that is lower than any real one.
WORST_SCORE = -1e3
# Standard deviation of the log-normal prior, centred at 1, of the variance factor. Without this prior few query rows
# overfit the factor: ringnorm, 500 rows, had NLL .205 with .3 and .219 with 1.
LOG_SCALE_SPREAD = 0.3


def standard_error(values: np.ndarray, weight: np.ndarray) -> float:
    """Standard error of the weighted mean of independent values (n,); NaN if there is only one."""
    if len(values) < 2:
        return float("nan")
    share = weight / np.sum(weight)
    return float(np.sqrt(np.sum((share * (values - share @ values)) ** 2) * len(values) / (len(values) - 1)))


@dataclass(frozen=True)
class Scores:
    """log p(y) (q,) of held-out rows, in nats, and its weighted mean."""

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
    support: RowSource
    queries: RowSource
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
        rows = local_rows(self.executor, prior, self.support)
        local = Local(self.support, prior.core, rows, self.index, self.n_earlier, self.link)
        among = local.neighbourhoods(self.sites)
        found = conditioned(self.executor, among, with_earlier=True)
        q = found.q()
        cavity = cavities(self.executor, local, self.sites, found.neighbours, q)
        query_rows = local_rows(self.executor, prior, self.queries)
        at = Neighbourhoods(prior.core, rows, cavity.sites(), query_rows, self.query_index)
        (answer,) = all_conditionals(self.executor, at)
        b_mean, b_variance = moments(self.executor, answer, q)
        mean, variance = answer.mean + b_mean, answer.variance + b_variance
        y, weight = self.labels
        values, (d_mean, d_variance) = self.link.scores(mean, scale * variance, y)
        share = weight / np.sum(weight)
        d_mean, d_variance = share * d_mean, scale * share * d_variance
        d_log_scale = float(np.sum(d_variance * variance))
        scores = Scores(values, weight)
        return Evaluated(self, prior, among, found, q, cavity, at, answer, scores, d_mean, d_variance, d_log_scale)

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
    among : Neighbourhoods of the support rows among themselves, with the given sites
    found : Conditioned, from ``among``
    q : Coefficients
    cavity : Cavity of the support rows
    at, answer : neighbourhoods of the query rows, and the conditionals given their neighbours
    d_mean, d_variance, d_log_scale : (C, q), (C, q) and a number, derivatives of the mean score with respect to the
        predicted means and unscaled variances, and to the logarithm of the factor
    """

    problem: QueryScore
    prior: SparsePrior
    among: Neighbourhoods
    found: Conditioned
    q: Coefficients
    cavity: Cavity
    at: Neighbourhoods
    answer: Conditional
    scores: Scores
    d_mean: np.ndarray
    d_variance: np.ndarray
    d_log_scale: float

    def gradient(self) -> np.ndarray:
        """Gradient of the mean score with respect to the parameters; it takes about four times as long as the score."""
        problem, rows = self.problem, self.among.support
        d_b, by_q = by_moments(problem.executor, self.answer, self.q, self.d_mean, self.d_variance)
        pulled = pulled_back(problem.executor, PullBack(self.at, [Conditional(d_b, self.d_variance, self.d_mean)]))
        total, by_sites = by_neighbours(problem.executor, self.at.index, len(rows.a), pulled.sets[0])
        queries = ByRows(pulled.d_a, np.sum(self.d_variance, axis=0))
        through_sites, pairs = self._through_sweep(by_sites, by_q)
        total += through_sites
        parts = [(problem.support, rows, total), (problem.queries, self.at.rows, queries)]
        by_kernel = kernel_gradient(
            problem.executor, self.prior, parts, [a + b for a, b in zip(pulled.pairs, pairs, strict=True)]
        )
        return np.append(by_kernel, self.d_log_scale)

    def _through_sweep(self, by_sites: Sites, by_q: Coefficients) -> tuple[ByRows, list[np.ndarray]]:
        """Back-propagate through the sweep's sites and q(z); the sites before the sweep are constants."""
        executor, among, found = self.problem.executor, self.among, self.found
        assert found.earlier is not None
        by = self.cavity.vjp(by_sites)
        d_b, more = by_moments(executor, found.neighbours, self.q, by.b_mean, by.b_variance)
        by_q = Coefficients(by_q.w + more.w, by_q.V + more.V)
        given = [Conditional(d_b, by.variance, by.mean), by_earlier(executor, found.earlier, among.sites, self.q, by_q)]
        pulled = pulled_back(executor, PullBack(among, given))
        total = ByRows(pulled.d_a, sum(np.sum(part.variance, axis=0) for part in given))
        for of_set in pulled.sets:
            total += by_neighbours(executor, among.index, len(among.support.a), of_set)[0]
        return total, pulled.pairs
