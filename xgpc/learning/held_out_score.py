"""The predictive score of held-out rows, and its gradient with respect to the kernel parameters.

Reverse differentiation leads from the gradient by predictions to that by conditionals, and from these to whitened rows,
residual variances and sites of the training rows; then through q(z), the sweep's sites and the whitening, to the kernel
parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from .. import _engine
from .._kernels import KernelGradient
from ..approximations.local_rows import Coefficients, Neighbourhoods, blocks_for, local_rows, row_sums
from ..approximations.sparse import SparsePrior, symmetric
from ..inference.history import History
from ..inference.local_sites import Local, Sweep
from ..kernels.prior import NO_PRIOR, LengthScalePrior
from ..rows.coinciding import Sites
from ..rows.executor import Executor, parts_for, parts_of
from ..rows.source import ArraySource
from ..statistics import Sums
from .minimise import SHORT_PATIENCE, minimise
from .scores import Scores, joined

# Mean score, in nats, that is lower than any real one.
WORST_SCORE = -1e3
# Standard deviation, in logarithms, of the prior of the variance factor, centred at 1, and of its change when it is
# fitted again. Without this prior the factor overfits if held-out rows are few: on 500 rows of ringnorm NLL was .205
# with .3 and .219 with 1.
LOG_SCALE_SPREAD = 0.3
# L-BFGS ends a round when SHORT_PATIENCE iterations together raise the score by less than LEAST_RISE of it. (The paired
# standard error of the rise is no limit: it falls as fast as the steps.)
LEAST_RISE = 1e-3

Arrays = tuple[np.ndarray, ...]


class Evaluated(NamedTuple):
    """The scores, and a function that computes the gradient of their mean by the parameters."""

    scores: Scores
    gradient: Callable[[], np.ndarray]


@dataclass(frozen=True)
class HeldOutScore:
    """log p(y) of held-out rows, predicted from support rows, as a function of kernel parameters and a variance factor.

    The parameters are the kernel's ``theta`` and the logarithm of the factor. At each kernel one sweep updates the
    given sites; the predictions use the updated sites, and the gradient includes their dependence on the kernel. q(z)
    is computed from the given sites. The neighbours stay the same.

    Attributes
    ----------
    local : support rows, without ``blocks``, at the kernel where learning starts; its inducing points stay fixed
    support, held_out : sources of rows with labels and weights
    held_out_index : (q, k), neighbours of the held-out rows among the support rows
    sites : sites of the support rows
    prior_share : share of the log priors in the objective, so that those of several splits count once in their sum
    """

    local: Local
    support: ArraySource
    held_out: ArraySource
    held_out_index: np.ndarray
    sites: Sites
    length_scale_prior: LengthScalePrior = NO_PRIOR
    prior_share: float = 1.0

    @cached_property
    def _by_nearest(self) -> tuple[ArraySource, np.ndarray, np.ndarray]:
        """Held-out rows and their neighbours, sorted by the nearest row, so that consecutive rows read the same memory;
        and the place of each given row."""
        order = np.argsort(self.held_out_index[:, 0], kind="stable")
        return self.held_out.sample(order), self.held_out_index[order], np.argsort(order)

    def at(self, parameters: np.ndarray) -> Evaluated:
        """Evaluate the score: O(n m (m + d)), and O(k^2 (m + d) + k^3) for each row."""
        executor, site, scale = self.local.executor, self.local.site, float(np.exp(parameters[-1]))
        prior = self.local.prior
        prior = prior.rebuilt([prior.spec.with_theta(parameters[:-1])], prior.Z)
        local = Local.of(executor, self.support, prior, (self.local.index, self.local.n_earlier), site)
        # The gradient reads the neighbourhoods' covariances again.
        held_out, index, place = self._by_nearest
        sweep, blocks = Sweep(local, self.sites, keep_b=True), blocks_for(*index.shape)
        held_out_rows, y = local_rows(executor, prior, held_out.X), held_out.y
        at = Neighbourhoods(prior.core, local.rows, held_out_rows, sweep.sites(), index, blocks=blocks)
        share = held_out.weight / np.sum(held_out.weight)

        C, m = sweep.q.w.shape
        values, scaled, by_q = np.empty(len(y)), np.empty(len(y)), Sums([np.zeros((C, m)), np.zeros((C, m, m))])
        d_mean, d_variance = np.empty((2, C, len(y)))

        def part(rows: slice) -> Sums:
            conditional = at.empty(rows.stop - rows.start)
            at.condition(rows.start, rows.stop, [conditional])
            b_mean, b_variance = sweep.q.moments(conditional.b)
            mean, variance = conditional.mean + b_mean, scale * (conditional.variance + b_variance)
            values[rows], by_moments = site.record.cavity.scores(site, mean, variance, y[rows])
            d_mean[:, rows], d_variance[:, rows] = share[rows] * by_moments[0], scale * share[rows] * by_moments[1]
            scaled[rows] = np.sum(by_moments[1] * variance, axis=0)
            return row_sums(conditional.b, d_mean[:, rows], d_variance[:, rows])

        executor.fold(part, parts_for(len(y), C), by_q.__iadd__)
        gradient = partial(self._gradient, sweep, at, (d_mean, d_variance), by_q, float(share @ scaled))
        return Evaluated(Scores(values[place], self.held_out.weight), gradient)

    def _gradient(
        self, sweep: Sweep, at: Neighbourhoods, by_moments: Arrays, by_q: Sums, by_log_scale: float
    ) -> np.ndarray:
        """Gradient of the mean score by the parameters; it takes about one and a half times as long as the score.

        The arguments are gradients: by predicted means and unscaled variances (C, r), by q(z) where predictions use it
        directly, and by the logarithm of the factor.
        """
        d_mean, d_variance = by_moments
        executor, prior, q = sweep.local.executor, sweep.local.prior, sweep.q
        support, held_out = ByRows(self.support.X, at.support.a), ByRows(self._by_nearest[0].X, at.rows.a)
        by_predictions = q.V, q.w, d_variance, d_mean, d_variance, d_mean
        by_sites, pairs = conditional_vjp(executor, at, [by_predictions], held_out, support)
        # Through the sweep's sites and q(z); the sites before the sweep are constants.
        d_b_mean, d_b_variance, d_variance, d_mean = sweep.vjp(by_sites)
        by_q = Sums(part.copy() for part in by_q)
        parts = parts_for(*d_mean.shape[::-1])
        executor.fold(
            lambda rows: row_sums(sweep.b[rows.start], d_b_mean[:, rows], d_b_variance[:, rows]), parts, by_q.__iadd__
        )
        neighbours = q.V, q.w, d_b_variance, d_b_mean, d_variance, d_mean
        neighbourhoods = sweep.local.neighbourhoods(self.sites)
        _, more = conditional_vjp(executor, neighbourhoods, [neighbours, by_natural(q, *by_q)], support, support)
        pairs = [of_held_out + other for of_held_out, other in zip(pairs, more, strict=True)]
        return np.append(kernel_gradient(executor, prior, [support, held_out], pairs), by_log_scale)

    def objective(self, parameters: np.ndarray) -> tuple[float, np.ndarray, Scores]:
        """Negative of the mean score plus log priors of factor and length scales, its gradient, and the scores.

        If a factorisation fails, the scores are ``WORST_SCORE``, so that the line search steps back.
        """
        weight = self.held_out.weight
        failed = -WORST_SCORE, np.zeros_like(parameters), Scores(np.full_like(weight, WORST_SCORE), weight)
        try:
            evaluated = self.at(parameters)
            value, gradient = evaluated.scores.mean, evaluated.gradient()
        except ValueError:
            return failed
        if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
            return failed
        # The score is a mean over rows, so the log priors are divided by the total weight.
        share = self.prior_share / float(np.sum(weight))
        precision = share / LOG_SCALE_SPREAD**2
        value -= 0.5 * precision * parameters[-1] ** 2
        gradient[-1] -= precision * parameters[-1]
        log_prior, by_theta = self.length_scale_prior.at(self.local.prior.spec.with_theta(parameters[:-1]))
        value += share * log_prior
        gradient[:-1] += share * by_theta
        return -value, -gradient, evaluated.scores


def mean_objective(splits: Sequence[HeldOutScore], parameters: np.ndarray) -> tuple[float, np.ndarray, Scores]:
    """The objective for the held-out rows of several splits, each predicted from the support rows of its split."""
    values, gradients, scores = zip(*(split.objective(parameters) for split in splits), strict=True)
    shares = np.array([np.sum(part.weight) for part in scores])
    shares /= np.sum(shares)
    return float(shares @ values), shares @ np.array(gradients), joined(scores)


class Maximum(NamedTuple):
    """The largest score, as far as the optimizer got.

    Attributes
    ----------
    parameters, scores : (p,), and the scores there
    scale : (p,), units of the parameters in which the score has about the same curvature along each, as far as the
        optimizer's steps have shown it
    start_scores : the scores at the start
    """

    parameters: np.ndarray
    scores: Scores
    scale: np.ndarray
    start_scores: Scores
    n_iter: int
    n_evaluations: int


def maximised(
    splits: Sequence[HeldOutScore],
    start: np.ndarray,
    scale: np.ndarray,
    limits: np.ndarray,
    max_iter: int,
    history: History,
) -> Maximum:
    """Maximise a score by L-BFGS, until ``SHORT_PATIENCE`` iterations raise it by less than its share ``LEAST_RISE``.

    Parameters
    ----------
    start, limits : (p,) and (p, 2), parameters and their bounds
    scale : (p,), units of the parameters for the optimizer
    max_iter : most iterations; 0 only computes the scores at the start
    """
    if not max_iter:
        scores = joined([split.at(start).scores for split in splits])
        return Maximum(start, scores, scale, scores, 0, 0)
    value, gradient, start_scores = mean_objective(splits, start)
    # The first step has a length of about one.
    unit = float(np.linalg.norm(scale * gradient))
    best = value, start, start_scores
    if not unit:
        return Maximum(start, start_scores, scale, start_scores, 0, 1)

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best
        if np.array_equal(x, start / scale):
            return value / unit, scale * gradient / unit
        parameters = np.clip(scale * x, *limits.T)
        trial_value, by_parameters, scores = mean_objective(splits, parameters)
        best = min(best, (trial_value, parameters, scores), key=lambda result: result[0])
        history.tell(held_out_score=-trial_value)
        return trial_value / unit, scale * by_parameters / unit

    # A line search has at most 20 evaluations.
    at_most, bounds = (max_iter, 20 * max_iter), limits / scale[:, None]
    end, _ = minimise(objective, start / scale, bounds, LEAST_RISE / SHORT_PATIENCE, *at_most, good=np.inf)
    # Scaled by the roots of the diagonal of L-BFGS's inverse Hessian; the median unit is one.
    units = scale * np.sqrt(np.maximum(inverse_diagonal(end.hess_inv.sk, end.hess_inv.yk), np.finfo(float).eps))
    return Maximum(best[1], best[2], units / np.median(units), start_scores, end.nit, end.nfev)


def inverse_diagonal(steps: np.ndarray, changes: np.ndarray) -> np.ndarray:
    """Diagonal (p,) of the inverse Hessian that L-BFGS makes of the identity, from steps (c, p) and the changes (c, p)
    of the gradient: theorem 2.2 of Byrd, Nocedal and Schnabel (1994), in O(c^2 p) time.
    """
    products = steps @ changes.T
    A = solve_triangular(np.triu(products), steps)
    middle = np.diag(np.diag(products)) + changes @ changes.T
    return np.asarray(1.0 + np.sum(A * (middle @ A - 2.0 * changes), axis=0))


class ByRows:
    """Rows X (n, d), their whitened rows a (n, m), and gradients: by a, also through the residual variances, and by
    k(x, x) (n,)."""

    def __init__(self, X: np.ndarray, a: np.ndarray):
        # np.zeros_like would write to its memory here, in one thread; np.zeros leaves that to the first use.
        self.X, self.a, self.by_a, self.by_diagonal = X, a, np.zeros(a.shape), np.zeros(len(a))


def by_natural(q: Coefficients, by_w: np.ndarray, by_V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gradients by P and h, where w = V h and V = P^-1, from those by w and V, lower triangles."""
    u = np.einsum("cij,cj->ci", q.V, by_w)
    outer = u[:, :, None] * q.w[:, None]
    return -q.V @ symmetric(np.tril(by_V)) @ q.V - 0.5 * (outer + np.swapaxes(outer, 1, 2)), u


def conditional_vjp(
    executor: Executor, at: Neighbourhoods, by_conditionals: list[Arrays], by_rows: ByRows, by_support: ByRows
) -> tuple[Sites, list[np.ndarray]]:
    """Add to the gradients by the rows and by their neighbours, from the gradient by conditionals.

    ``by_conditionals`` has, for each set of neighbours, what ``_local.Neighbourhoods.vjp`` takes. Returns the gradient
    by the neighbours' sites, and by terms, shapes and scales of the kernel, as far as pairs of rows depend on them.
    """
    (r, k), (n, m), C = at.index.shape, at.support.a.shape, len(at.sites[0])
    parts, by_near, pairs = parts_for(r, C * len(by_conditionals)), np.zeros((n, 1 + 2 * C)), []
    size, spare = parts[0].stop, list[list[Arrays]]()

    def part(rows: slice) -> tuple[slice, list[Arrays], Arrays]:
        # Writing to memory that is new to the process takes longer than the computation, so arrays are used again.
        try:
            written = spare.pop()
        except IndexError:
            written = [tuple([np.empty((C, size, width)) for width in (k, k, m, m)]) for _ in by_conditionals]
            written.append((np.empty((size, m)), np.empty(size), np.empty((size, k, 1 + 2 * C))))
        return rows, written, at.vjp(rows.start, rows.stop, by_conditionals, written[:-1], *written[-1])

    def add(gradients: tuple[slice, list[Arrays], Arrays]) -> None:
        rows, written, sums = gradients
        own_a, own_diagonal, by_neighbours = written[-1]
        by_rows.by_a[rows] += own_a[: rows.stop - rows.start]
        by_rows.by_diagonal[rows] += own_diagonal[: rows.stop - rows.start]
        at.spread(rows.start, rows.stop, written[:-1], by_neighbours, by_support.by_a, by_near)
        pairs.append(sums)
        spare.append(written)

    executor.fold(part, parts, add)
    by_support.by_diagonal += by_near[:, 0]
    return np.ascontiguousarray(by_near[:, 1:].T).reshape(2, C, n), [sum(each) for each in zip(*pairs, strict=True)]


def kernel_gradient(executor: Executor, prior: SparsePrior, parts: list[ByRows], pairs: list[np.ndarray]) -> np.ndarray:
    """Gradient by the kernel's ``theta``, from those by rows, and the pairs' sums of terms, shapes and scales.

    A = K_nm L^-T and K_mm = L L^T: dF/dK_nm = dF/dA L^-1, and dF/dK_mm = -L^-T S L^-1 / 2, S the lower triangle of
    dF/dA^T A made symmetric.
    """
    core, Linv, (m, d) = prior.core, prior.Linv, prior.Z.shape
    cross, gram, inner = KernelGradient.empty(core), KernelGradient.empty(core), np.zeros((m, m))

    def part(by_rows: ByRows, rows: slice) -> tuple[KernelGradient, np.ndarray]:
        gradient, d_a = KernelGradient.empty(core), by_rows.by_a[rows]
        work = _engine.workspace(rows.stop - rows.start, m, d)
        _engine.kernel_gradient(core, by_rows.X[rows], d_a @ Linv, by_rows.by_diagonal[rows], work, gradient)
        return gradient, d_a.T @ by_rows.a[rows]

    for by_rows in parts:
        for gradient, product in executor.each(partial(part, by_rows), parts_of(len(by_rows.X))):
            cross += gradient
            inner += product
    G = -0.5 * Linv.T @ symmetric(np.tril(inner)) @ Linv
    # K_mm has jitter in proportion to its mean diagonal.
    G += prior.jitter * np.trace(G) / m * np.eye(m)
    _engine.kernel_gradient(core, prior.Z, np.ascontiguousarray(G), np.zeros(m), _engine.workspace(m, m, d), gram)
    # The gradient by log length scales is a sum of W_ij (x_i - x_j)^2. For rows and inducing points, ``squares`` are
    # its part with x_i^2, which the spec adds unchanged; so the whole sum of the pairs is added there.
    terms, shapes, _, _, squares = cross.arrays
    for total, pair in zip((terms, shapes, squares), pairs, strict=True):
        total += pair
    return prior.spec.gradient(core, cross, gram)[0]
