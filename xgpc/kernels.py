"""scikit-learn kernel objects as specification: values for the core, gradients back to ``theta``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel, Product, Sum, WhiteKernel

from ._kernels import FAMILIES, InducingKernel

SUPPORTED = (
    "ConstantKernel, RBF (isotropic or with one length scale per feature) and WhiteKernel, summed with +, "
    "each multiplied by any number of ConstantKernels"
)


@dataclass(frozen=True)
class Leaf:
    """One elementary kernel of the tree and where its free parameters stand in ``theta``."""

    kernel: Kernel
    theta: slice


@dataclass(frozen=True)
class Term:
    """A product of constants and at most one other kernel; ``base`` is None for constants alone."""

    constants: tuple[Leaf, ...]
    base: Leaf | None

    @property
    def scale(self) -> float:
        return float(np.prod([leaf.kernel.constant_value for leaf in self.constants]))


def _terms(kernel: Kernel, offset: int) -> tuple[list[Term], int]:
    """The kernel as a sum of products; ``offset`` counts the entries of ``theta`` read so far."""
    if isinstance(kernel, Sum | Product):
        left, offset = _terms(kernel.k1, offset)
        right, offset = _terms(kernel.k2, offset)
        if isinstance(kernel, Sum):
            return left + right, offset
        products = []
        for a in left:
            for b in right:
                if a.base is not None and b.base is not None:
                    raise ValueError(f"The product {kernel} is not supported. Supported: {SUPPORTED}.")
                products.append(Term(a.constants + b.constants, a.base or b.base))
        return products, offset
    if type(kernel) not in (ConstantKernel, RBF, WhiteKernel):
        raise ValueError(f"The kernel {kernel} ({type(kernel).__name__}) is not supported. Supported: {SUPPORTED}.")
    for parameter in kernel.hyperparameters:
        value = np.asarray(getattr(kernel, parameter.name), dtype=np.float64)
        if not np.all((value > 0.0) & np.isfinite(value)):
            raise ValueError(
                f"{type(kernel).__name__} must have {parameter.name} positive and finite; got {value.tolist()}."
            )
    leaf = Leaf(kernel, slice(offset, offset + kernel.n_dims))
    term = Term((leaf,), None) if isinstance(kernel, ConstantKernel) else Term((), leaf)
    return [term], leaf.theta.stop


@dataclass(frozen=True, eq=False)
class KernelGradient:
    """Contractions of a gradient dF/dk(X, Z) with every term, additive over blocks of rows.

    See ``gradient_block`` in ``src/xgpc/_kernels.pyx`` for the three arrays.
    """

    sums: np.ndarray
    products: np.ndarray
    squares: np.ndarray

    @classmethod
    def empty(cls, core: InducingKernel) -> KernelGradient:
        t, m, d = core.n_terms, core.n_inducing, core.n_features
        return cls(np.zeros((t, m)), np.zeros((t, m, d)), np.zeros((t, d)))

    def __iadd__(self, other: KernelGradient) -> KernelGradient:
        for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True):
            mine += theirs
        return self


class KernelSpec:
    """A scikit-learn kernel, compiled for d features.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
        Not modified; its hyperparameters, bounds and fixed parameters are the specification.
    n_features : int

    Raises
    ------
    ValueError
        If the kernel is not supported or its length scales do not fit ``n_features``.
    """

    def __init__(self, kernel: Kernel, n_features: int):
        if not isinstance(kernel, Kernel):
            raise ValueError(f"kernel must be a scikit-learn kernel object or None; got {kernel!r}.")
        self.kernel = kernel
        self.n_features = n_features
        terms, _ = _terms(kernel, 0)
        self.white = [term for term in terms if term.base is not None and isinstance(term.base.kernel, WhiteKernel)]
        self.terms = [term for term in terms if term not in self.white]
        if not self.terms:
            raise ValueError(f"The kernel {kernel} is white noise alone; add a covariance such as RBF().")
        for term in self.terms:
            size = 1 if term.base is None else np.size(term.base.kernel.length_scale)
            if size not in (1, n_features):
                raise ValueError(
                    f"The kernel {kernel} has {size} length scales but X has {n_features} features; "
                    "give one length scale, or one per feature."
                )

    def with_theta(self, theta: np.ndarray) -> KernelSpec:
        """The same kernel with other values of its free log-parameters."""
        return KernelSpec(self.kernel.clone_with_theta(theta), self.n_features)

    @property
    def white_variance(self) -> float:
        return float(sum(term.scale * term.base.kernel.noise_level for term in self.white if term.base))

    def at(self, inducing_points: np.ndarray) -> InducingKernel:
        """The compiled kernel between any rows and the inducing points (m, d)."""
        family = [FAMILIES["constant" if term.base is None else "rbf"] for term in self.terms]
        inverse = [
            np.ones(self.n_features)
            if term.base is None
            else np.broadcast_to(1.0 / np.asarray(term.base.kernel.length_scale, dtype=np.float64), self.n_features)
            for term in self.terms
        ]
        return InducingKernel(
            family, [t.scale for t in self.terms], np.array(inverse), self.white_variance, inducing_points
        )

    def gradient(
        self,
        core: InducingKernel,
        Z: np.ndarray,
        cross: KernelGradient,
        gram: KernelGradient,
        diagonal: float,
        jitter: float,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Gradient of F with respect to ``theta`` and to the inducing points.

        Parameters
        ----------
        core : the compiled kernel at ``Z`` (m, d)
        cross, gram : contractions of dF/dk(X, Z) and of dF/dk(Z, Z)
        diagonal : sum_i dF/dk_ii
        jitter : relative jitter times the trace of dF/dk(Z, Z)

        Returns
        -------
        (n_theta,) and (m, d) arrays
        """
        d_theta = np.zeros(self.kernel.n_dims)
        d_Z = np.zeros_like(Z)
        z = (Z - Z.mean(axis=0)) * core.inverse_length_scale[:, None, :]
        for t, term in enumerate(self.terms):
            d_log_variance = cross.sums[t].sum() + gram.sums[t].sum() + (diagonal + jitter) * core.variance[t]
            for leaf in term.constants:
                d_theta[leaf.theta] += d_log_variance
            if term.base is None:
                continue
            d_log_scale = np.zeros(self.n_features)
            for part, sides in ((cross, 1.0), (gram, 2.0)):
                toward = part.products[t] - part.sums[t][:, None] * z[t]
                d_log_scale += part.squares[t] - np.sum(z[t] * (part.products[t] + toward), axis=0)
                d_Z += sides * toward * core.inverse_length_scale[t]
            if term.base.kernel.n_dims:
                anisotropic = np.size(term.base.kernel.length_scale) > 1
                d_theta[term.base.theta] += d_log_scale if anisotropic else d_log_scale.sum()
        for term in self.white:
            assert term.base is not None
            share = diagonal * term.scale * term.base.kernel.noise_level
            for leaf in (*term.constants, term.base):
                d_theta[leaf.theta] += share
        return d_theta, d_Z
