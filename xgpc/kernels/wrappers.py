"""Kernels of some columns, of places on a sphere, of sets and counts, and a matrix of covariances."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from scipy.spatial.distance import cdist
from sklearn.gaussian_process.kernels import Hyperparameter, Kernel, NormalizedKernelMixin

from ..names import MatrixLike
from ..ranges import as_csr, small_is_zero
from .axis import Covariances
from .called import ROUNDING, ROW_STEP

# Averages, such as inducing points, exceed the range of the rows by rounding errors.
ROUNDING_OF_MEANS = 1e-9


class KernelOfRows(Kernel):
    """A kernel of what ``_rows`` makes of rows; it has the parameters of the inner one."""

    kernel: Kernel

    @abstractmethod
    def _rows(self, X: ArrayLike) -> np.ndarray:
        """The rows that the inner kernel has as arguments."""

    def get_params(self, deep: bool = True) -> dict[str, object]:
        params = super().get_params(deep=False)
        if deep:
            params |= {f"kernel__{name}": value for name, value in self.kernel.get_params().items()}
        return params

    @property
    def hyperparameters(self) -> list[Hyperparameter]:
        return [Hyperparameter(f"kernel__{name}", *others) for name, *others in self.kernel.hyperparameters]

    def is_stationary(self) -> bool:
        return self.kernel.is_stationary()

    @small_is_zero
    def __call__(self, X: ArrayLike, Y: ArrayLike | None = None, eval_gradient: bool = False) -> Covariances:
        """Covariances (n, m) of rows X (n, d) and Y (m, d), None for X; with ``eval_gradient`` also their gradient
        (n, n, n_theta) by ``theta``."""
        return self.kernel(self._rows(X), None if Y is None else self._rows(Y), eval_gradient=eval_gradient)

    def diag(self, X: ArrayLike) -> np.ndarray:
        """Variances (n,) of rows X (n, d)."""
        return self.kernel.diag(self._rows(X))


class WithoutParameters(NormalizedKernelMixin, Kernel):
    """A kernel without parameters, whose variance is 1."""

    def __init__(self) -> None:
        # scikit-learn reads the parameters from the signature.
        pass

    @abstractmethod
    def _values(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        """Covariances (n, m) of rows X (n, d) and Y (m, d)."""

    @small_is_zero
    def __call__(self, X: MatrixLike, Y: MatrixLike | None = None, eval_gradient: bool = False) -> Covariances:
        """Covariances (n, m) of rows X (n, d) and Y (m, d), None for X; with ``eval_gradient`` also the empty gradient
        (n, n, 0)."""
        first, second = (
            np.atleast_2d(np.asarray(as_csr(rows).toarray() if issparse(rows) else rows, dtype=np.float64))
            for rows in (X, X if Y is None else Y)
        )
        K = self._values(first, second)
        return (K, np.empty((*K.shape, 0))) if eval_gradient else K

    def is_stationary(self) -> bool:
        return False


class ActiveDims(KernelOfRows):
    """A kernel that sees some of the columns only.

    Sums of such kernels are sums of functions of groups of features, and products let the groups interact:
    ``ActiveDims(RBF(), [0, 1]) + ActiveDims(Matern(), [2])``.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
        The kernel of these columns: it has one length scale, or one for each of them in their order.
    columns : sequence of int or of str
        Different column numbers from 0, or names of a data frame's columns. Of a table with levels or missing values
        they are columns of the table: the kernel sees all that a column becomes. ``kernel_`` of a fitted
        ``GPClassifier`` has numbers. Within another ``ActiveDims``, the numbers count that one's columns.

    Raises
    ------
    ValueError
        When the kernel is used, for other columns, for numbers that X does not have, and for names without a fit to a
        data frame with them.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from xgpc.kernels import ActiveDims
    >>> X = np.random.default_rng(0).normal(size=(5, 3))
    >>> kernel = ActiveDims(RBF([1.0, 2.0]), [2, 0])
    >>> bool(np.all(kernel(X) == RBF([1.0, 2.0])(X[:, [2, 0]])))
    True
    """

    def __init__(self, kernel: Kernel, columns: Sequence[int] | Sequence[str]):
        self.kernel, self.columns = kernel, columns

    @property
    def has_names(self) -> bool:
        return np.ndim(self.columns) == 1 and any(isinstance(column, str) for column in self.columns)

    def numbers(self, n_columns: int) -> list[int]:
        """The column numbers; ValueError unless they are different ones of so many columns."""
        columns = np.asarray(self.columns)
        if self.has_names:
            raise ValueError(f"{self} names columns, which need a fit to a data frame with them; give column numbers.")
        is_valid = columns.dtype.kind in "iu" and columns.ndim == 1 and 0 < len(columns) == len(np.unique(columns))
        if not is_valid or np.min(columns) < 0 or np.max(columns) >= n_columns:
            raise ValueError(f"{self} must have different columns: numbers 0 to {n_columns - 1}, or a list of names.")
        return columns.tolist()

    def _rows(self, X: ArrayLike) -> np.ndarray:
        X = np.atleast_2d(X)
        return X[:, self.numbers(X.shape[1])]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.kernel}, columns={np.asarray(self.columns).tolist()})"


class Sphere(KernelOfRows):
    """A kernel of places on a sphere, by the chords between them.

    Rows are latitude and longitude in degrees. The kernel sees the three coordinates of the place on a sphere of radius
    1, so that distances are chords, 2 sin(angle / 2), and any kernel stays positive definite. Length scales count radii
    of the sphere: on the Earth, 0.1 is 637 km. ``ActiveDims`` takes the two columns out of more.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
        Such as ``RBF`` or ``Matern``, with one length scale: a kernel of the three coordinates.

    Raises
    ------
    ValueError
        When the kernel is used, for rows without two columns, and for latitudes beyond 90 degrees.

    References
    ----------
    Gneiting. Strictly and non-strictly positive definite functions on spheres. Bernoulli 19 (2013), section 1: kernels
    of chords are positive definite.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from xgpc.kernels import Sphere
    >>> round(float(Sphere(RBF())([[0.0, 179.0]], [[0.0, -179.0]])[0, 0]), 4)
    0.9994
    """

    def __init__(self, kernel: Kernel):
        self.kernel = kernel

    def _rows(self, X: ArrayLike) -> np.ndarray:
        X = np.atleast_2d(np.asarray(X, dtype=np.float64))
        # Three steps of a difference by the rows go beyond a pole to the other side.
        most = 90.0 * (1.0 + 3.0 * ROW_STEP)
        if X.shape[1] != 2 or not (np.all(np.abs(X[:, 0]) <= most) and np.all(np.isfinite(X))):
            raise ValueError(
                "Sphere needs two columns, latitude from -90 to 90 and finite longitude in degrees; got "
                f"{X.shape[1]} columns, the first up to {np.max(np.abs(X[:, 0]), initial=0.0):.6g}. For two columns of "
                "more, give ActiveDims(Sphere(...), columns)."
            )
        latitude, longitude = np.deg2rad(X).T
        radius = np.cos(latitude)
        return np.column_stack([radius * np.cos(longitude), radius * np.sin(longitude), np.sin(latitude)])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.kernel})"


class Tanimoto(WithoutParameters):
    """The Tanimoto (Jaccard, min-max) kernel of sets or counts, such as fingerprints of molecules.

    k(x, z) = sum_j min(x_j, z_j) / sum_j max(x_j, z_j) for numbers that are not negative; of sets as 0 and 1 it is the
    size of the intersection divided by that of the union. Two rows of zeros have the covariance 1. It has no
    parameters: ``ConstantKernel() * Tanimoto()`` learns its variance. Rows may be sparse.

    Raises
    ------
    ValueError
        When the kernel is used, for negative numbers.

    Notes
    -----
    n x m values take O(n m d) time for d features. Gradients by x are for numbers above 0 that an inducing point does
    not have, too: sets and counts are steps apart, and have none (NaN, or a ValueError at 0).

    References
    ----------
    Ralaivola, Swamidass, Saigo, Baldi. Graph kernels for chemical informatics. Neural Networks 18 (2005), section 5.

    Examples
    --------
    >>> from xgpc.kernels import Tanimoto
    >>> float(Tanimoto()([[1, 1, 0, 1]], [[1, 0, 0, 1]])[0, 0].round(4))
    0.6667
    """

    def _values(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        if not all(np.all(rows >= -ROUNDING_OF_MEANS) for rows in (X, Y)):
            raise ValueError(
                "Tanimoto needs numbers that are not negative, such as 0 and 1, or counts. Gradients by x also call "
                "the kernel slightly below each number, so they need numbers above 0: sets have none."
            )
        X, Z = np.maximum(X, 0.0), np.maximum(Y, 0.0)
        # min(x, z) = (x + z - |x - z|) / 2, and max with a plus.
        total, distance = np.sum(X, axis=1)[:, None] + np.sum(Z, axis=1), cdist(X, Z, "cityblock")
        return np.divide(total - distance, total + distance, out=np.ones_like(total), where=total > 0.0)


class Precomputed(WithoutParameters):
    """A kernel whose values you give: rows are rows of a matrix of covariances.

    Fit with the matrix K (n, n) of the training rows as X, and predict with the covariances (r, n) of the r new rows
    with these rows. K must have ones on its diagonal, because new rows come without their variances: divide its
    elements by sqrt(K_ii K_jj), and those of new rows alike. Joint covariances and exact draws
    (``predict_latent(X, return_cov=True)``, ``sample_latent``) need X (r, n + r), where the new rows' covariances with
    each other follow. ``kernel="precomputed"`` is this kernel with a variance that is learned,
    ``ConstantKernel() * Precomputed()``.

    Raises
    ------
    ValueError
        When a fit uses the kernel, for other matrices.

    Notes
    -----
    The column of an inducing point, which is a training row, is that of its largest value.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from xgpc.kernels import Precomputed
    >>> X = np.random.default_rng(0).normal(size=(5, 3))
    >>> K = RBF()(X)
    >>> bool(np.all(Precomputed()(K, K[1:3]) == K[:, 1:3]))
    True
    """

    def _values(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        largest = np.max(Y, axis=1, initial=-np.inf)
        if not np.all(np.abs(largest - 1.0) <= ROUNDING):
            raise ValueError(
                "A precomputed kernel needs a square matrix of covariances with ones on its diagonal, such as "
                "K / np.sqrt(np.outer(np.diag(K), np.diag(K))), and rows of it as inducing points; got a row whose "
                f"largest value is {largest[np.argmax(np.abs(largest - 1.0))]:.6g}. The joint covariance of r new rows "
                "needs r further columns: their covariances with each other."
            )
        columns = np.argmax(Y, axis=1)
        K, gram = X[:, columns], Y[:, columns]
        if np.max(np.abs(K), initial=0.0) > 1.0 + ROUNDING:
            raise ValueError(
                "Covariances of rows with ones on their diagonal are between -1 and 1; got one of size "
                f"{np.max(np.abs(K)):.6g}. Divide those of new rows by the roots of both rows' variances, too."
            )
        if not np.allclose(gram, gram.T, rtol=0.0, atol=ROUNDING):
            raise ValueError("A precomputed kernel needs a symmetric matrix; that of the inducing points is not.")
        return K


def is_precomputed(kernel: Kernel | None) -> bool:
    """Whether rows are covariances with the training rows, so that averages of rows are no rows."""
    return kernel is not None and any(isinstance(part, Precomputed) for part in (kernel, *kernel.get_params().values()))
