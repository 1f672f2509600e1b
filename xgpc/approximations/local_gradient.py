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
    found: Conditional, q: Coefficients, d_mean: np.ndarray, d_variance: np.ndarray
) -> tuple[np.ndarray, Coefficients]:
    """Gradients by b (C, r, m), and by w and V, of a function of b.w and b.V b, by which it has those given (C, r)."""
    b = found.b
    d_b = d_mean[..., None] * q.w[:, None] + 2.0 * d_variance[..., None] * (b @ q.V)
    d_V = np.stack([(part * by[:, None]).T @ part for part, by in zip(b, d_variance, strict=True)])
    return d_b, Coefficients(np.einsum("cr,crm->cm", d_mean, b), d_V)


def by_earlier(earlier: Conditional, sites: Sites, q: Coefficients, by_q: Coefficients) -> Conditional:
    """Gradient by what earlier neighbours say of one by w and V = P^-1, w = V h; the sites are constants.

    P = I + sum s b b^T and h = sum g b over the rows, with their ``site_terms`` s and g.
    """
    s, g = site_terms(earlier, sites)
    d_b, d_s, d_g = np.empty_like(earlier.b), np.empty_like(s), np.empty_like(g)
    for c, (w, V) in enumerate(zip(q.w, q.V, strict=True)):
        b, u = earlier.b[c], V @ by_q.w[c]
        H = -V @ by_q.V[c] @ V - 0.5 * (np.outer(u, w) + np.outer(w, u))
        product = b @ H
        d_s[c], d_g[c] = np.einsum("ij,ij->i", product, b), b @ u
        d_b[c] = 2.0 * s[c][:, None] * product + g[c][:, None] * u
    return Conditional(d_b, *by_terms((s, g), d_s, d_g))


def by_terms(terms: Sites, d_s: np.ndarray, d_g: np.ndarray) -> Sites:
    """Gradients by variance and mean of what neighbours say from those by ``site_terms``; the sites are constants."""
    s, g = terms
    return -s * (s * d_s + g * d_g), -s * d_g


def by_neighbours(index: np.ndarray, n: int, pulled: Pulled) -> tuple[ByRows, Sites]:
    """What the neighbours, of n rows, get of a gradient: as rows, and by their sites (C, n)."""
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
