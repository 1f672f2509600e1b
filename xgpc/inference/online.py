"""Batches that follow one another: sites of earlier rows, which are not kept, stay fixed in q's natural parameters.

With whitened coefficients z = L^{-1} u, q_0 has natural parameters I + P and h, where P and h are sums over the earlier
rows, multiplied by a forgetting factor. More inducing points u' = (u, u_+) give L' = [[L, 0], [B, S]], so that z is the
first part of z': the sums get zeros for the new coefficients, and q_0(f) does not change.
"""

from __future__ import annotations

import numpy as np

from ..approximations.base import KernelPrior, Natural
from ..approximations.sparse import SparsePosterior


def projected_sums(sums: Natural, before: KernelPrior, prior: KernelPrior) -> Natural:
    """Sums P, h over earlier rows in the coefficients of ``prior``, whose points begin with those of ``before``.

    Only the lower triangles of P are read and written. O(C m^3).
    """
    if prior is before:
        return sums
    P, h = sums
    m, size = before.n_inducing, prior.n_inducing
    # z = T z', with T = I unless the jitter, relative to the mean variance at all points, has changed.
    changes = [old.Linv @ new.L[:m, :m] for old, new in zip(before.groups, prior.groups, strict=True)]
    T = np.stack(changes).reshape(*before.Z.shape[:-2], m, m)
    transposed = np.swapaxes(T, -1, -2)
    wide_P, wide_h = np.zeros((*P.shape[:-2], size, size)), np.zeros((*h.shape[:-1], size))
    wide_P[..., :m, :m] = np.tril(transposed @ (np.tril(P) + np.swapaxes(np.tril(P, -1), -1, -2)) @ T)
    wide_h[..., :m] = (transposed @ h[..., None])[..., 0]
    return wide_P, wide_h


def posterior_before(q: SparsePosterior, prior: KernelPrior, forgetting_factor: float) -> SparsePosterior:
    """q_0 for the next rows: q in the coefficients of ``prior``, with its sites multiplied by the forgetting factor.

    Parameters
    ----------
    q : SparsePosterior of all earlier rows
    prior : the prior of q, or one with more inducing points after those of q
    forgetting_factor : float in [0, 1]
    """
    P, h = projected_sums((np.tril(q.P) - np.eye(q.P.shape[-1]), q.h), q.prior, prior)
    before = SparsePosterior.from_natural(prior, *prior.with_sites(forgetting_factor * P, forgetting_factor * h))
    if before is None:
        raise ValueError(
            "The precision of the posterior of the earlier rows is no longer positive definite: fit again with fewer "
            "inducing points, or scale the features."
        )
    return before
