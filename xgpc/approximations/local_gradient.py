"""The gradient of a function of local predictions by the kernel: what reaches rows goes on to the kernel's parameters.

Derivatives by whitened rows, residual variances and sites are collected at the training rows; q(z), the sites of one
sweep and the whitening are then differentiated as the sums over rows that they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from .. import _local
from .._kernels import KernelGradient
from ..rows.block import Block
from ..rows.executor import Cost, Executor, parts_of, workspace
from ..rows.memory import empty
from ..rows.source import RowSource
from .local import Coefficients, site_terms
from .local_rows import Conditional, LocalRows, Pulled, Sites
from .sparse import SparsePrior


@dataclass(frozen=True)
class ByRows:
    """Gradient by whitened rows a (n, m), which residual variances and k(x, x) depend on, and by k(x, x) (n,)."""

    a: np.ndarray
    diagonal: np.ndarray

    def __iadd__(self, other: ByRows) -> ByRows:
        np.add(self.a, other.a, out=self.a)
        np.add(self.diagonal, other.diagonal, out=self.diagonal)
        return self


def by_moments(
    executor: Executor, found: Conditional, q: Coefficients, d_mean: np.ndarray, d_variance: np.ndarray
) -> tuple[np.ndarray, Coefficients]:
    """Gradients by b (C, r, m), and by w and V, of a function of b.w and b.V b, by which it has those given (C, r)."""
    d_b = empty(found.b.shape)

    def fill(rows: slice) -> tuple[np.ndarray, np.ndarray]:
        b, by_mean, by_variance = found.b[:, rows], d_mean[:, rows], d_variance[:, rows, None]
        d_b[:, rows] = by_mean[..., None] * q.w[:, None] + 2.0 * by_variance * (b @ q.V)
        return np.einsum("cr,crm->cm", by_mean, b), np.swapaxes(b * by_variance, 1, 2) @ b

    d_w, d_V = zip(*executor.each(fill, parts_of(d_b.shape[1])), strict=True)
    return d_b, Coefficients(np.sum(d_w, axis=0), np.sum(d_V, axis=0))


def by_earlier(
    executor: Executor, earlier: Conditional, sites: Sites, q: Coefficients, by_q: Coefficients
) -> Conditional:
    """Gradient by what earlier neighbours say of one by w and V = P^-1, w = V h; the sites are constants.

    P = I + sum s b b^T and h = sum g b over the rows, with their ``site_terms`` s and g.
    """
    s, g = site_terms(earlier, sites)
    d_b, d_s, d_g = empty(earlier.b.shape), np.empty_like(s), np.empty_like(g)
    u = np.einsum("cij,cj->ci", q.V, by_q.w)
    outer = u[:, :, None] * q.w[:, None]
    H = -q.V @ by_q.V @ q.V - 0.5 * (outer + np.swapaxes(outer, 1, 2))

    def fill(rows: slice) -> None:
        b = earlier.b[:, rows]
        product = b @ H
        d_s[:, rows], d_g[:, rows] = np.einsum("crm,crm->cr", product, b), np.einsum("crm,cm->cr", b, u)
        d_b[:, rows] = 2.0 * s[:, rows, None] * product + g[:, rows, None] * u[:, None]

    executor.each(fill, parts_of(s.shape[1]))
    return Conditional(d_b, *by_terms((s, g), d_s, d_g))


def by_terms(terms: Sites, d_s: np.ndarray, d_g: np.ndarray) -> Sites:
    """Gradients by variance and mean of what neighbours say from those by ``site_terms``; the sites are constants."""
    s, g = terms
    return -s * (s * d_s + g * d_g), -s * d_g


def by_neighbours(executor: Executor, index: np.ndarray, n: int, pulled: Pulled) -> tuple[ByRows, Sites]:
    """What the neighbours, of n rows, get of a gradient: as rows, and by their sites (C, n)."""
    r, k = index.shape
    ends, flat = np.arange(0, r * k + 1, k), index.ravel()
    d_a, diagonal = np.zeros((n, pulled["b"].shape[-1])), np.zeros(n)
    sites = np.empty((2, len(pulled["b"]), n))
    chis, gammas = (
        [csr_array((values.ravel(), flat, ends), shape=(r, n)).T for values in pulled[name]]
        for name in ("chi", "gamma")
    )

    def add(columns: slice) -> None:
        for by_chi, by_gamma, b, u in zip(chis, gammas, pulled["b"], pulled["u"], strict=True):
            d_a[:, columns] += by_gamma @ u[:, columns] - by_chi @ b[:, columns]

    # Columns are summed by themselves: bits do not depend on how they are divided.
    width = -(-d_a.shape[1] // executor.n_threads)
    executor.each(add, [slice(start, start + width) for start in range(0, d_a.shape[1], width)])
    for c, (gamma, chi) in enumerate(zip(pulled["gamma"], pulled["chi"], strict=True)):
        diagonal -= np.bincount(flat, (chi * gamma).ravel(), minlength=n)
        for by_site, name in zip(sites, ("d_precision", "d_linear"), strict=True):
            by_site[c] = np.bincount(flat, pulled[name][c].ravel(), minlength=n)
    return ByRows(d_a, diagonal), (sites[0], sites[1])


@dataclass(frozen=True)
class Whitened:
    """Whitened rows, and a gradient by them and by their k(x, x)."""

    prior: SparsePrior
    a: np.ndarray
    found: ByRows

    @property
    def cost(self) -> Cost:
        m, d = self.prior.core.n_inducing, self.prior.core.n_features
        return Cost(m * (2 * m + d), m * (m + d))


def through_whitening(block: Block, state: Whitened) -> tuple[KernelGradient, np.ndarray]:
    """Of a block: the gradient by k(x, Z) and k(x, x) as the kernel takes it, and dF/dA^T A."""
    core, d_a = state.prior.core, state.found.a[block.rows]
    work, gradient = workspace(len(block), core.n_inducing, core.n_features), KernelGradient.empty(core)
    G = d_a @ state.prior.Linv
    _local.kernel_gradient(core, block.X, G, state.found.diagonal[block.rows], work, gradient)
    return gradient, d_a.T @ state.a[block.rows]


def kernel_gradient(
    executor: Executor,
    prior: SparsePrior,
    parts: list[tuple[RowSource, LocalRows, ByRows]],
    pairs: list[np.ndarray],
) -> np.ndarray:
    """Gradient by the kernel's ``theta`` of what rows got, and of the pairs' sums of terms, shapes and scales.

    A = K_nm L^-T, K_mm = L L^T: dF/dK_nm = dF/dA L^-1, and dF/dK_mm = -L^-T S L^-1 / 2, S the lower triangle of
    dF/dA^T A made symmetric.
    """
    core, Linv = prior.core, prior.Linv
    m = core.n_inducing
    cross, gram = KernelGradient.empty(core), KernelGradient.empty(core)
    inner = np.zeros((m, m))
    for source, rows, found in parts:
        for of_block, product in executor.map(through_whitening, source, Whitened(prior, rows.a, found)):
            cross += of_block
            inner += product
    S = np.tril(inner) + np.tril(inner, -1).T
    G = -0.5 * Linv.T @ S @ Linv
    # K_mm has jitter in proportion to its mean diagonal.
    G += prior.jitter * np.trace(G) / m * np.eye(m)
    work = workspace(m, m, core.n_features)
    _local.kernel_gradient(core, prior.Z, np.ascontiguousarray(G), np.zeros(m), work, gram)
    # By log length scales, sum W_ij (x_i - x_j)^2 is all that pairs have. Of that sum for rows and inducing points
    # ``squares`` are the part with x^2, which the spec adds as it is: so theirs can be added there.
    terms, shapes, _, _, squares = cross.arrays
    for total, part in zip((terms, shapes, squares), pairs, strict=True):
        total += part
    return prior.spec.gradient(core, cross, gram)[0]
