"""Batches that come one after the other: sites of rows that are gone stay as they are, in q's natural parameters.

With whitened coefficients z = L^{-1} u, q_0 has natural parameters I + P and h, of which P and h are sums over the rows
that are gone. A forgetting factor multiplies these. More inducing points u' = (u, u_+) give L' = [[L, 0], [B, S]], so
that z is the beginning of z': sums in terms of z get zeros for the new coefficients, and q_0(f) is what it was.
"""

from __future__ import annotations

import numpy as np

from ..approximations.base import KernelPrior, Natural
from ..approximations.sparse import SparsePosterior


def restated_sums(sums: Natural, before: KernelPrior, prior: KernelPrior) -> Natural:
    """Sums P, h over rows that are gone, in the coefficients of ``prior``, whose points begin with those of ``before``.

    The lower triangles of P are read and made. O(C m^3).
    """
    if prior is before:
        return sums
    P, h = sums
    m, size = before.n_inducing, prior.n_inducing
    # z = T z', and T = I unless the jitter, relative to the mean variance at all points, became another.
    changes = [old.Linv @ new.L[:m, :m] for old, new in zip(before.groups, prior.groups, strict=True)]
    T = np.stack(changes).reshape(*before.Z.shape[:-2], m, m)
    transposed = np.swapaxes(T, -1, -2)
    wide_P, wide_h = np.zeros((*P.shape[:-2], size, size)), np.zeros((*h.shape[:-1], size))
    wide_P[..., :m, :m] = np.tril(transposed @ (np.tril(P) + np.swapaxes(np.tril(P, -1), -1, -2)) @ T)
    wide_h[..., :m] = (transposed @ h[..., None])[..., 0]
    return wide_P, wide_h


def posterior_before(q: SparsePosterior, prior: KernelPrior, forgetting_factor: float) -> SparsePosterior:
    """q_0 for the rows that come: q, in the coefficients of ``prior``, of sites with so much of their weight.

    Parameters
    ----------
    q : SparsePosterior, of all rows before
    prior : its prior, or one that has more inducing points after those of q
    forgetting_factor : float in [0, 1]
    """
    P, h = restated_sums((np.tril(q.P) - np.eye(q.P.shape[-1]), q.h), q.prior, prior)
    before = SparsePosterior.from_natural(prior, *prior.with_sites(forgetting_factor * P, forgetting_factor * h))
    if before is None:
        raise ValueError(
            "The precision of the posterior of the rows before is not positive definite any more: fit anew, with fewer "
            "inducing points or features that are scaled."
        )
    return before
