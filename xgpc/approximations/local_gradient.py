"""The gradient of a function of local predictions by the kernel: what reaches rows goes on to the kernel's parameters.

Derivatives by whitened rows, residual variances and sites are collected at the training rows; q(z), the sites of one
sweep and the whitening are then differentiated as the sums over rows that they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from .. import _local
from ..kernels.spec import KernelGradient
from ..rows.executor import TILE_ROWS, workspace
from ..rows.source import RowSource
from .local import Coefficients, LocalRows, Pulled, Sites
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

    def spread(self, rows: np.ndarray, n: int) -> ByRows:
        """The same among n rows, of which these are ``rows`` (r,)."""
        spread = ByRows(np.zeros((n, self.a.shape[1])), np.zeros(n))
        spread.a[rows], spread.diagonal[rows] = self.a, self.diagonal
        return spread


def by_residual(rows: LocalRows, d_residual: np.ndarray) -> ByRows:
    """Of D(x, x) = k(x, x) - |a|^2."""
    return ByRows(-2.0 * d_residual[:, None] * rows.a, d_residual)


def by_neighbours(index: np.ndarray, n: int, pulled: Pulled) -> tuple[ByRows, Sites]:
    """What the neighbours, of n rows, get of predictions: as rows, and by their sites (C, n)."""
    r, k = index.shape
    ends, flat = np.arange(0, r * k + 1, k), index.ravel()
    d_a, diagonal = np.zeros((n, pulled["b"].shape[-1])), np.zeros(n)
    sites = np.empty((2, len(pulled["b"]), n))
    for c, (gamma, chi) in enumerate(zip(pulled["gamma"], pulled["chi"], strict=True)):
        d_a -= csr_array((chi.ravel(), flat, ends), shape=(r, n)).T @ pulled["b"][c]
        d_a += csr_array((gamma.ravel(), flat, ends), shape=(r, n)).T @ pulled["u"][c]
        diagonal -= np.bincount(flat, (chi * gamma).ravel(), minlength=n)
        for by_site, name in zip(sites, ("d_precision", "d_linear"), strict=True):
            by_site[c] = np.bincount(flat, pulled[name][c].ravel(), minlength=n)
    return ByRows(d_a, diagonal), (sites[0], sites[1])


def by_coefficients(
    pulled: Pulled, a: np.ndarray, d_mean: np.ndarray, d_variance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Gradients by the mean and covariance of q(z) of a function of the predictions of rows, their own terms taken out.

    Parameters
    ----------
    pulled : of these rows, as ``pulled_back`` has it
    a : (r, m), whitened rows
    d_mean, d_variance : (C, r), gradients by means and variances

    Returns
    -------
    d_w, d_V : (C, m) and symmetric (C, m, m)
    """
    d_w, d_V = [], []
    for b, own, g_mean, g_variance in zip(pulled["b"], pulled["own"], d_mean, d_variance, strict=True):
        d_w.append(g_mean @ b + own[:, 4] @ a)
        mixed = (own[:, 2, None] * b).T @ a
        d_V.append((g_variance[:, None] * b).T @ b + 0.5 * (mixed + mixed.T) + (own[:, 3, None] * a).T @ a)
    return np.stack(d_w), np.stack(d_V)


def by_own_terms(
    own: Sites, precision: np.ndarray, residual: np.ndarray, d_own: np.ndarray, d_own_linear: np.ndarray
) -> tuple[np.ndarray, Sites]:
    """Gradients by D_ii (n,) and the sites (C, n) of ``own``: lambda / (1 + lambda D_ii), r / (1 + lambda D_ii)."""
    own_precision, own_linear = own
    share = 1.0 / (1.0 + precision * residual)
    d_residual = -own_precision * (own_precision * d_own + own_linear * d_own_linear)
    d_precision = share * (share * d_own - own_linear * residual * d_own_linear)
    return np.sum(d_residual, axis=0), (d_precision, share * d_own_linear)


def through_coefficients(
    q: Coefficients, sites: Sites, rows: LocalRows, d_w: np.ndarray, d_V: np.ndarray
) -> tuple[ByRows, Sites]:
    """What rows and sites get of gradients by w and V: V = P^-1, w = V h, sums over all rows; O(C n m^2)."""
    d_a = np.zeros_like(rows.a)
    d_own, d_own_linear = np.empty_like(q.own_precision), np.empty_like(q.own_linear)
    for c, (w, V) in enumerate(zip(q.w, q.V, strict=True)):
        u = V @ d_w[c]
        H = -V @ d_V[c] @ V - 0.5 * (np.outer(u, w) + np.outer(w, u))
        product = rows.a @ H
        d_own[c] = np.einsum("ij,ij->i", product, rows.a)
        d_own_linear[c] = rows.a @ u
        product *= 2.0 * q.own_precision[c][:, None]
        d_a += product
        d_a += q.own_linear[c][:, None] * u
    own = q.own_precision, q.own_linear
    d_residual, d_sites = by_own_terms(own, sites[0], rows.residual, d_own, d_own_linear)
    total = by_residual(rows, d_residual)
    total += ByRows(d_a, np.zeros(len(d_a)))
    return total, d_sites


def kernel_gradient(
    prior: SparsePrior, parts: list[tuple[RowSource, LocalRows, ByRows]], pairs: list[np.ndarray]
) -> np.ndarray:
    """Gradient by the kernel's ``theta`` of what rows got, and of the pairs' sums of terms, shapes and scales.

    A = K_nm L^-T, K_mm = L L^T: dF/dK_nm = dF/dA L^-1, and dF/dK_mm = -L^-T S L^-1 / 2, S the lower triangle of
    dF/dA^T A made symmetric.
    """
    core, Linv = prior.core, prior.Linv
    m = core.n_inducing
    work = workspace(TILE_ROWS, m, core.n_features)
    cross, gram = KernelGradient.empty(core), KernelGradient.empty(core)
    inner = np.zeros((m, m))
    for source, rows, found in parts:
        inner += found.a.T @ rows.a
        G = np.ascontiguousarray(found.a @ Linv)
        for block in source.blocks():
            _local.kernel_gradient(core, block.X, G[block.rows], found.diagonal[block.rows], work, *cross.arrays)
    S = np.tril(inner) + np.tril(inner, -1).T
    G = -0.5 * Linv.T @ S @ Linv
    # K_mm has jitter in proportion to its mean diagonal.
    G += prior.jitter * np.trace(G) / m * np.eye(m)
    _local.kernel_gradient(core, prior.Z, np.ascontiguousarray(G), np.zeros(m), work, *gram.arrays)
    terms, shapes, scales = pairs
    np.add(cross.terms, terms, out=cross.terms)
    np.add(cross.shapes, shapes, out=cross.shapes)
    # By log length scales, sum W_ij (x_i - x_j)^2 is all that pairs have. Of that sum for rows and inducing points
    # ``squares`` are the part with x^2, which the spec adds as it is: so theirs can be added there.
    np.add(cross.squares, scales, out=cross.squares)
    return prior.spec.gradient(core, cross, gram)[0]
