"""The compiled sites of labels at given marginals, in new arrays."""

from __future__ import annotations

import numpy as np

from .. import _sites
from .._sites import Site

NO_WEIGHTS = np.empty(0)


def sites_at(
    site: Site, mean: np.ndarray, variance: np.ndarray, y: np.ndarray, weight: np.ndarray = NO_WEIGHTS
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Expected log likelihoods (n,), precisions and linear terms at means and variances, (n,) or (C, n) each."""
    mean, variance, y = (np.ascontiguousarray(each, dtype=np.float64) for each in (mean, variance, y))
    return _sites.sites(site, mean, variance, y, weight)[:3]
