"""The predictive score of held-out (query) rows, and its gradient with respect to the kernel parameters.

The gradient by predictions is pulled back to conditionals, and from these to whitened rows, residual variances and
sites of the training rows; then through q(z), the sweep's sites and the whitening, to the kernel parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from .. import _local
from .._kernels import KernelGradient
from ..approximations.local_rows import (
    Coefficients,
    Conditional,
    Neighbourhoods,
    local_rows,
    moments,
    site_terms,
    site_terms_vjp,
)
from ..approximations.sparse import SparsePrior
from ..inference.links import Link
from ..inference.local_sites import Local, Sweep
from ..kernels.prior import NO_PRIOR, LengthScalePrior
from ..rows.coinciding import Sites
from ..rows.executor import Executor, parts_of, workspace
from ..rows.source import ArraySource, labels_and_weights
from .candidates import Scores

# Mean score, in nats, that is lower than any real one.
WORST_SCORE = -1e3
# Standard deviation of the log-normal prior, centred at 1, of the variance factor. Without this prior few query rows
# overfit the factor: ringnorm, 500 rows, had NLL .205 with .3 and .219 with 1.
LOG_SCALE_SPREAD = 0.3
# Gradients by b (C, r, m), and by the variance and mean (C, r) of a conditional.
ByConditional = tuple[np.ndarray, np.ndarray, np.ndarray]


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

        # The core takes arrays without gaps, hence the copies.
        def given(rows: slice) -> list[ByConditional]:
            d_mean, d_variance = self.d_mean[:, rows].copy(), self.d_variance[:, rows].copy()
            return [(moments_vjp(b[:, rows], q, d_mean, d_variance), d_variance, d_mean)]

        pulled = conditional_vjp(executor, at, 1, given)
        by_q = by_coefficients(executor, b, self.d_mean, self.d_variance)
        support, pairs = self._through_sweep(pulled.sites, by_q)
        parts = [
            (self.problem.support.X, at.support.a, support + pulled.support),
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
        return pulled.rows + pulled.support, pulled.pairs


@dataclass(frozen=True)
class ByRows:
    """Gradient by whitened rows a (n, m), which residual variances and k(x, x) depend on, and by k(x, x) (n,)."""

    a: np.ndarray
    diagonal: np.ndarray

    def __add__(self, other: ByRows) -> ByRows:
        return ByRows(self.a + other.a, self.diagonal + other.diagonal)


class Pulled(NamedTuple):
    """A gradient by conditionals as gradients by other quantities."""

    support: ByRows  # by the rows that are neighbours, and by those that they predict
    rows: ByRows
    sites: Sites  # by the neighbours' sites, (C, n)
    pairs: list[np.ndarray]  # by terms, shapes and scales of the kernel, as far as pairs of rows depend on them


def moments_vjp(b: np.ndarray, q: Coefficients, d_mean: np.ndarray, d_variance: np.ndarray) -> np.ndarray:
    """Gradient (C, r, m) by b, from those by the means and variances (C, r) of b.z."""
    return d_mean[..., None] * q.w[:, None] + 2.0 * d_variance[..., None] * (b @ q.V)


def by_coefficients(executor: Executor, b: np.ndarray, d_mean: np.ndarray, d_variance: np.ndarray) -> Coefficients:
    """Gradient by w and V, from those by the means and variances (C, r) of b.z for b (C, r, m)."""

    def part(rows: slice) -> tuple[np.ndarray, np.ndarray]:
        here = b[:, rows]
        by_w = np.einsum("cr,crm->cm", d_mean[:, rows], here)
        return by_w, np.swapaxes(here * d_variance[:, rows, None], 1, 2) @ here

    d_w, d_V = zip(*executor.each(part, parts_of(b.shape[1])), strict=True)
    return Coefficients(np.sum(d_w, axis=0), np.sum(d_V, axis=0))


def by_natural(q: Coefficients, by_q: Coefficients) -> tuple[np.ndarray, np.ndarray]:
    """Gradients by P and h, where w = V h and V = P^-1, from those by w and V."""
    u = np.einsum("cij,cj->ci", q.V, by_q.w)
    outer = u[:, :, None] * q.w[:, None]
    return -q.V @ by_q.V @ q.V - 0.5 * (outer + np.swapaxes(outer, 1, 2)), u


def by_earlier(b: np.ndarray, terms: Sites, d_P: np.ndarray, d_h: np.ndarray) -> ByConditional:
    """Gradient by rows' conditionals given earlier neighbours, from the one by P = I + sum s b b^T and h = sum g b.

    ``terms`` are the rows' s and g, see ``site_terms``; the sites are constants.
    """
    s, g = terms
    product = b @ d_P
    d_s, d_g = np.einsum("crm,crm->cr", product, b), np.einsum("crm,cm->cr", b, d_h)
    d_b = 2.0 * s[..., None] * product + g[..., None] * d_h[:, None]
    return d_b, *site_terms_vjp(terms, d_s, d_g)


def conditional_vjp(
    executor: Executor, at: Neighbourhoods, n_sets: int, given: Callable[[slice], list[ByConditional]]
) -> Pulled:
    """Pull a gradient by conditionals back; ``given`` makes that of some rows, by each set of neighbours.

    It takes three times as long as the conditionals.
    """
    (r, k), (n, m), C = at.index.shape, at.support.a.shape, len(at.sites[0])
    pulled = [tuple(np.empty((C, r, width)) for width in (k, k, m, m, k, k)) for _ in range(n_sets)]
    rows, support = ByRows(np.empty((r, m)), np.empty(r)), ByRows(np.zeros((n, m)), np.zeros(n))

    def part(here: slice) -> tuple[np.ndarray, ...]:
        of_sets = given(here)
        rows.diagonal[here] = np.sum([d_variance for _, d_variance, _ in of_sets], axis=(0, 1))
        return at.compiled.vjp(here.start, here.stop, of_sets, pulled, rows.a)

    pairs = executor.each(part, parts_of(r))
    width = -(-m // executor.n_threads)
    executor.each(lambda first: at.compiled.spread(first, min(first + width, m), pulled, support.a), range(0, m, width))
    sites, flat = np.zeros((2, C, n)), at.index.ravel()
    for gamma, chi, _, _, *by_sites in pulled:
        support.diagonal[:] -= np.bincount(flat, np.sum(chi * gamma, axis=0).ravel(), minlength=n)
        sites += [[np.bincount(flat, one.ravel(), minlength=n) for one in values] for values in by_sites]
    return Pulled(support, rows, (sites[0], sites[1]), [np.sum(each, axis=0) for each in zip(*pairs, strict=True)])


def kernel_gradient(
    executor: Executor,
    prior: SparsePrior,
    parts: list[tuple[np.ndarray, np.ndarray, ByRows]],
    pairs: list[np.ndarray],
) -> np.ndarray:
    """Gradient by the kernel's ``theta``, from those by rows, and the pairs' sums of terms, shapes and scales.

    Each of the ``parts`` has rows X (n, d), whitened rows (n, m), and the gradient by these. A = K_nm L^-T and
    K_mm = L L^T: dF/dK_nm = dF/dA L^-1, and dF/dK_mm = -L^-T S L^-1 / 2, S the lower triangle of dF/dA^T A made
    symmetric.
    """
    core, Linv, (m, d) = prior.core, prior.Linv, prior.Z.shape
    cross, gram, inner = KernelGradient.empty(core), KernelGradient.empty(core), np.zeros((m, m))
    for X, a, found in parts:

        def part(
            rows: slice, X: np.ndarray = X, a: np.ndarray = a, found: ByRows = found
        ) -> tuple[KernelGradient, np.ndarray]:
            gradient, d_a, work = KernelGradient.empty(core), found.a[rows], workspace(rows.stop - rows.start, m, d)
            _local.kernel_gradient(core, X[rows], d_a @ Linv, found.diagonal[rows], work, gradient)
            return gradient, d_a.T @ a[rows]

        for gradient, product in executor.each(part, parts_of(len(X))):
            cross += gradient
            inner += product
    S = np.tril(inner) + np.tril(inner, -1).T
    G = -0.5 * Linv.T @ S @ Linv
    # K_mm has jitter in proportion to its mean diagonal.
    G += prior.jitter * np.trace(G) / m * np.eye(m)
    _local.kernel_gradient(core, prior.Z, np.ascontiguousarray(G), np.zeros(m), workspace(m, m, d), gram)
    # By log length scales, sum W_ij (x_i - x_j)^2 is all that pairs have. Of that sum for rows and inducing points
    # ``squares`` are the part with x^2, which the spec adds as it is: so theirs can be added there.
    terms, shapes, _, _, squares = cross.arrays
    for total, pair in zip((terms, shapes, squares), pairs, strict=True):
        total += pair
    return prior.spec.gradient(core, cross, gram)[0]
