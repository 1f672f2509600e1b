"""A kernel that is a product over the features."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.gaussian_process.kernels import RBF, Kernel, NormalizedKernelMixin, StationaryKernelMixin

from ..ranges import small_is_zero

# Covariances of rows, and with ``eval_gradient`` also their gradient
Covariances = np.ndarray | tuple[np.ndarray, np.ndarray]


def ratio_of_distances(n_features: int) -> float:
    """About how many times as long sums of absolute differences are as Euclidean distances, for normal differences.

    It is 1 for one feature.
    """
    return float(np.sqrt(max(1.0, 2.0 * n_features / np.pi)))


class AxisMatern(StationaryKernelMixin, NormalizedKernelMixin, Kernel):
    """Product over the features of one-dimensional Matern kernels.

    The covariance is the product over j of ``kappa(|x_j - z_j| / l_j)``, with ``kappa(t) = exp(-t)`` for ``nu=0.5``,
    which is the Laplace kernel of the sum of absolute differences, and ``kappa(t) = (1 + sqrt(3) t) exp(-sqrt(3) t)``
    for ``nu=1.5``. Its functions may change at thresholds of single features, as decision trees do; those of
    scikit-learn's ``Matern`` are alike in all directions. With one feature both are the same.

    Parameters
    ----------
    length_scale : float or array-like of shape (n_features,), default=1.0
        Length scales l_j, positive: one for all features, or one for each.
    length_scale_bounds : pair of floats >= 0, array-like of shape (n_features, 2) or "fixed", default=(1e-5, 1e5)
        Limits between which the length scales are learned; "fixed" keeps them.
    nu : {0.5, 1.5}, default=0.5
        Smoothness along each feature: 0.5 for functions with jumps and kinks, 1.5 for functions with a slope. Not
        learned. With 0.5, fits of ``GPClassifier`` keep the inducing points where they are.

    Raises
    ------
    ValueError
        When the kernel is evaluated, for another ``nu``, or if the number of length scales is neither 1 nor that of the
        features.

    Notes
    -----
    n x m values take O(n m d) time for d features, and O(n m) memory; their gradient has O(n m) numbers for each length
    scale.

    References
    ----------
    Rasmussen, Williams. Gaussian processes for machine learning. MIT Press 2006, equation (4.17); products of kernels,
    section 4.2.4.

    Examples
    --------
    >>> import numpy as np
    >>> from xgpc import GPClassifier
    >>> from xgpc.kernels import AxisMatern
    >>> X = np.random.default_rng(0).uniform(size=(400, 3))
    >>> y = (X[:, 0] > 0.3) & (X[:, 1] < 0.7)
    >>> model = GPClassifier(4.0 * AxisMatern(np.ones(3)), n_inducing=50, random_state=0).fit(X, y)
    >>> float(model.score(X, y)) > 0.95
    True
    """

    def __init__(
        self,
        length_scale: float | ArrayLike = 1.0,
        length_scale_bounds: tuple[float, float] | ArrayLike | str = (1e-5, 1e5),
        nu: float = 0.5,
    ):
        self.length_scale, self.length_scale_bounds, self.nu = length_scale, length_scale_bounds, nu

    # Properties of the length scales alone.
    anisotropic, hyperparameter_length_scale = RBF.anisotropic, RBF.hyperparameter_length_scale

    @small_is_zero
    def __call__(self, X: ArrayLike, Y: ArrayLike | None = None, eval_gradient: bool = False) -> Covariances:
        """Covariances of rows, and their gradient.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
        Y : array-like of shape (m, n_features), default=None
            None: X itself.
        eval_gradient : bool, default=False
            Whether the gradient by the logarithms of the length scales is returned, too; only without Y.

        Returns
        -------
        K : ndarray of shape (n, m)
        K_gradient : ndarray of shape (n, n, n_length_scales)
            Only with ``eval_gradient``; without a last element if the length scales are fixed.
        """
        X = np.atleast_2d(np.asarray(X, dtype=np.float64))
        Z = X if Y is None else np.atleast_2d(np.asarray(Y, dtype=np.float64))
        if eval_gradient and Y is not None:
            raise ValueError("The gradient is evaluated for Y=None alone; leave out Y, or eval_gradient.")
        if X.shape[1] != Z.shape[1]:
            raise ValueError(f"X and Y must have the same features; got {X.shape[1]} and {Z.shape[1]}.")
        if self.nu not in (0.5, 1.5):
            raise ValueError(f"nu must be 0.5 or 1.5; got {self.nu!r}.")
        scale = np.atleast_1d(np.asarray(self.length_scale, dtype=np.float64))
        if scale.ndim > 1 or len(scale) not in (1, X.shape[1]) or not np.all((scale > 0.0) & np.isfinite(scale)):
            raise ValueError(
                f"length_scale must be positive and finite: a number, or one for each of the {X.shape[1]} features; "
                f"got {self.length_scale!r}."
            )
        logarithm, slopes = np.zeros((len(X), len(Z))), []
        for x, z in zip((X / scale).T, (Z / scale).T, strict=True):
            t = np.abs(x[:, None] - z)
            # The logarithm of kappa, and its derivative by that of the length scale.
            if self.nu == 1.5:
                t *= np.sqrt(3.0)
                logarithm += np.log1p(t)
            logarithm -= t
            if eval_gradient:
                slopes.append(t if self.nu == 0.5 else t**2 / (1.0 + t))
        K = np.exp(logarithm)
        if not eval_gradient:
            return K
        if self.hyperparameter_length_scale.fixed:
            return K, np.empty((*K.shape, 0))
        if not self.anisotropic:
            return K, (K * sum(slopes))[..., None]
        return K, K[..., None] * np.stack(slopes, axis=-1)

    def __repr__(self) -> str:
        # Parameters are checked where the kernel is used.
        scale = np.asarray(self.length_scale)
        shown = "{:.3g}" if scale.dtype.kind in "iuf" else "{!r}"
        listed = ", ".join(shown.format(value) for value in scale.ravel().tolist())
        return f"AxisMatern(length_scale={f'[{listed}]' if scale.ndim else listed}, nu={self.nu!r})"
