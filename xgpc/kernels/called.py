"""Kernels that are not compiled: their own values, and differences of these."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from sklearn.gaussian_process.kernels import Kernel, WhiteKernel

from ..ranges import varies

# Steps of differences, in logarithms of parameters, and the weights of a rule with an error of the fourth order: errors
# of the step are as small as those of rounding, 1e-12.
STEP = 1e-4
# The same in standard deviations of the points' features. A kink that disturbs the rule makes a fourth difference of
# the seven values at 0 and three steps to both sides: at least a quarter of a step times its change of slope. A smooth
# kernel with a length scale of l deviations makes one of about 3 (step / l)^4, and rounding one of 16 eps. With this
# step, rounding is 4e-10 steps, and below the tolerance, in steps and relative to k(x, x), are kernels with l > .01.
ROW_STEP, KINK = 1e-5, 1e-6
STENCIL = ((-2, 1.0 / 12.0), (-1, -2.0 / 3.0), (1, 2.0 / 3.0), (2, -1.0 / 12.0))
# Variances may be below zero by this, relative to the largest one, as after rounding. The covariances of two rows in a
# given matrix, which may be float32, may differ by it, and its diagonal from 1.
ROUNDING = 1e-6


def _shaped(caller: str, covariances: str, values: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    """The values that a kernel returns, as an array; ValueError if they have another shape, or are complex."""
    array = np.asarray(values)
    if array.shape != shape or array.dtype.kind == "c":
        raise ValueError(
            f"{caller} must return the {covariances}, real numbers of shape {shape}; it returned an array of shape "
            f"{array.shape} and type {array.dtype}."
        )
    return array.astype(np.float64, copy=False)


def _known(kernel: Kernel, values: np.ndarray) -> np.ndarray:
    """The values of a kernel; ValueError if one is NaN."""
    if np.isnan(values).any():
        raise ValueError(f"The kernel {kernel} returned NaN; it must return the covariance of any two rows, a number.")
    return values


class CalledKernel:
    """The function behind a kernel of the core that is not compiled.

    The core has the exponentials of ``theta`` as variances, or a single 1 for a kernel without free parameters.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
    """

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.has_noise = any(isinstance(value, WhiteKernel) for value in (kernel, *kernel.get_params().values()))

    def _at(self, variance: np.ndarray, step: np.ndarray | float = 0.0) -> Kernel:
        n = len(self.kernel.theta)
        return self.kernel.clone_with_theta(np.log(variance[:n]) + step) if n else self.kernel

    def _values(self, kernel: Kernel, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        return _shaped(f"The kernel {kernel}", "covariances", kernel(X, Z), (len(X), len(Z)))

    def _variances(self, kernel: Kernel, X: np.ndarray) -> np.ndarray:
        return _shaped(f"The method diag of {kernel}", "variances", kernel.diag(X), (len(X),))

    def _latent_variances(self, kernel: Kernel, X: np.ndarray) -> np.ndarray:
        if not self.has_noise:
            return self._variances(kernel, X)
        # As everywhere in scikit-learn, k(X, Y) has no noise.
        return np.array([kernel(row, row)[0, 0] for row in X[:, None]])

    def values(self, variance: np.ndarray, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """k(X, Z) (n, m)."""
        kernel = self._at(variance)
        K = _known(kernel, self._values(kernel, X, Z))
        # In single precision, symmetric kernels may differ by this.
        if np.array_equal(X, Z) and not np.allclose(K, K.T, 1e-3, 1e-3 * np.max(np.abs(K), initial=0.0)):
            raise ValueError(f"The kernel {kernel} must be symmetric: k(x, z) = k(z, x) for all rows; it is not.")
        return K

    def variances(self, variance: np.ndarray, X: np.ndarray) -> np.ndarray:
        """k(x, x) (n,)."""
        kernel = self._at(variance)
        variances = _known(kernel, self._variances(kernel, X))
        if np.any(variances < -ROUNDING * np.max(variances, initial=0.0)):
            raise ValueError(f"The method diag of {kernel} returned {np.min(variances):.6g}; no variance is negative.")
        return np.maximum(variances, 0.0)

    def parts_of_variances(self, variance: np.ndarray, X: np.ndarray) -> np.ndarray:
        """k(x, x) without noise, and the variance of the noise: (2, n)."""
        kernel = self._at(variance)
        latent = _known(kernel, self._latent_variances(kernel, X))
        return np.array([latent, self.variances(variance, X) - latent])

    def _by_theta(self, variance: np.ndarray, function: Callable[[Kernel], np.ndarray]) -> np.ndarray:
        """Derivatives (n_theta,) by differences. Some of scikit-learn's own have errors of 1e-6, and all take the
        covariances of all rows with each other."""
        derivatives = np.zeros(len(self.kernel.theta))
        for i, unit in enumerate(np.eye(len(derivatives))):
            derivatives[i] = sum(w / STEP * function(self._at(variance, h * STEP * unit)) for h, w in STENCIL)
        return derivatives

    def gradient(self, variance: np.ndarray, X: np.ndarray, Z: np.ndarray, G: np.ndarray) -> np.ndarray:
        """Derivatives (n_theta,) of the sum of G k(X, Z), for G (n, m)."""
        return self._by_theta(variance, lambda kernel: np.sum(G * self._values(kernel, X, Z)))

    def variances_gradient(self, variance: np.ndarray, X: np.ndarray, g: np.ndarray, noise_alone: bool) -> np.ndarray:
        """Derivatives (n_theta,) of the sum of g k(x, x), or of its noise, for g (n,)."""

        def total(kernel: Kernel) -> np.ndarray:
            latent = self._latent_variances(kernel, X) if noise_alone else 0.0
            return g @ (self._variances(kernel, X) - latent)

        return self._by_theta(variance, total)

    def row_gradients(self, variance: np.ndarray, X: np.ndarray, Z: np.ndarray, G: np.ndarray) -> np.ndarray:
        """As ``InducingKernel.row_gradients``, (g, n, d) for G (g, m, n)."""
        by_cross, _ = self._by_rows(variance, X, Z)
        return np.einsum("gmn,nmd->gnd", G, by_cross)

    def quadratic_gradients(
        self, variance: np.ndarray, X: np.ndarray, Z: np.ndarray, alpha: np.ndarray, B: np.ndarray
    ) -> np.ndarray:
        """As ``InducingKernel.quadratic_gradients``, (2, c, n, d) for alpha (c, m) and B (c, m, m)."""
        by_cross, by_diagonal = self._by_rows(variance, X, Z)
        squares = np.einsum("cnm,nmd->cnd", self.values(variance, X, Z) @ B, by_cross) + by_diagonal
        return np.stack([np.einsum("cm,nmd->cnd", alpha, by_cross), squares])

    def diagonal_gradient(self, variance: np.ndarray, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """Gradients (n, d) of k(x, x) by the rows."""
        return self._by_rows(variance, X, Z)[1]

    def _by_rows(self, variance: np.ndarray, X: np.ndarray, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gradients (n, m, d) of k(X, Z) and (n, d) of k(x, x) by the rows, NaN where there may be a kink."""
        kernel, slopes = self._at(variance), np.empty((len(X), len(Z) + 1, X.shape[1]))
        spread = np.where(varies(np.min(Z, axis=0), np.max(Z, axis=0)), np.std(Z, axis=0), 1.0)
        for j, unit in enumerate(ROW_STEP * spread):
            rows = [X + step * unit * np.eye(1, X.shape[1], j) for step in range(-3, 4)]
            values = np.array([np.c_[self._values(kernel, x, Z), self._variances(kernel, x)] for x in rows])
            size = np.max(np.abs(values[3]), axis=1, initial=0.0, keepdims=True)
            is_smooth = np.max(np.abs(np.diff(values, 4, axis=0)), axis=0) <= KINK * ROW_STEP * size
            slopes[..., j] = np.where(is_smooth, sum(w * values[3 + step] for step, w in STENCIL) / unit, np.nan)
        return slopes[:, :-1], slopes[:, -1]
