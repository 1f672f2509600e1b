"""The gradient of a function of local predictions by the kernel: from predictions to rows, and on to its parameters.

Derivatives by whitened rows, residual variances and sites are collected at the training rows; q(z), the sites of one
sweep and the whitening are then differentiated as the sums over rows that they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .. import _local
from .._kernels import KernelGradient
from ..rows.executor import Executor, parts_of, workspace
from .local_rows import Coefficients, Neighbourhoods, Sites, site_terms_vjp
from .sparse import SparsePrior

# Gradients by b (C, r, m), and by the variance and mean (C, r) of a conditional.
ByConditional = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class ByRows:
    """Gradient by whitened rows a (n, m), which residual variances and k(x, x) depend on, and by k(x, x) (n,)."""

    a: np.ndarray
    diagonal: np.ndarray

    def __iadd__(self, other: ByRows) -> ByRows:
        np.add(self.a, other.a, out=self.a)
        np.add(self.diagonal, other.diagonal, out=self.diagonal)
        return self


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

        def part(rows: slice, X: np.ndarray = X, a: np.ndarray = a, found: ByRows = found) -> tuple[Any, np.ndarray]:
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
