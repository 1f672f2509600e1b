"""Relevance of features: how much the latent function changes along each of them under a kernel."""

from __future__ import annotations

import numpy as np

from .factors import FACTORS
from .spec import KernelSpec


def relevance(spec: KernelSpec) -> np.ndarray | str:
    """Root (d,) of the sum of variance / length_scale^2 over the factors of a kernel, or a reason why it is undefined.

    Under the prior of a term s prod_f k_f(|x - x'| / l_f), the slope along feature j has the variance s sum_f c_f /
    l_fj^2. The smoothness c_f is 1 for RBF and RationalQuadratic, and counts as 1 for all kernels, because the Matern
    kernel with nu = 1/2 has no slope.
    """
    factors = spec.factors
    if not all(FACTORS[type(leaf.kernel)].has_length_scale for _, leaf in factors):
        return "it has a factor without length scales"
    if spec.n_features > 1 and not any(np.size(leaf.kernel.length_scale) > 1 for _, leaf in factors):
        return "it has one length scale for all features"
    total = np.zeros(spec.n_features)
    for term in spec.without_noise().terms:
        # A constant term has no factors.
        for _, length_scale in spec.spectrum(term) or []:
            total += spec.variance(term) / length_scale**2
    return np.sqrt(total)
