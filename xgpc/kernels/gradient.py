"""Contractions of a gradient with respect to covariances, from which the gradient in ``theta`` follows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._kernels import InducingKernel


@dataclass(frozen=True, eq=False)
class KernelGradient:
    """Contractions of dF/dk(X, Z) with every term and factor of a kernel, additive over blocks of rows.

    ``gradient_block`` in ``src/xgpc/_kernels.pyx`` explains the arrays.
    """

    terms: np.ndarray
    shapes: np.ndarray
    sums: np.ndarray
    products: np.ndarray
    squares: np.ndarray

    @classmethod
    def empty(cls, core: InducingKernel) -> KernelGradient:
        t, f, m, d = core.n_terms, core.n_factors, core.n_inducing, core.n_features
        return cls(np.zeros(t), np.zeros(f), np.zeros((f, m)), np.zeros((f, m, d)), np.zeros((f, d)))

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.terms, self.shapes, self.sums, self.products, self.squares

    def __iadd__(self, other: KernelGradient) -> KernelGradient:
        for mine, theirs in zip(self.arrays, other.arrays, strict=True):
            mine += theirs
        return self
