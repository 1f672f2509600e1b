"""Problems of two classes whose bounds have smooth finite differences."""

import numpy as np
from sklearn.gaussian_process.kernels import RBF, DotProduct, Kernel, Matern, RationalQuadratic
from sklearn.gaussian_process.kernels import ConstantKernel as C
from sklearn.gaussian_process.kernels import WhiteKernel as White

from xgpc import _sites
from xgpc.likelihoods import record_of

from .internals import History, KernelSpec, SparsePosterior, SparsePrior, coordinate_ascent
from .training import training

# Each takes a length scale (d,), a variance and a white variance.
KERNELS = {
    "isotropic": lambda length, s, w: C(s) * RBF(length[0]),
    "ard": lambda length, s, w: C(s) * RBF(length),
    "ard alone": lambda length, s, w: RBF(length),
    "white": lambda length, s, w: C(s) * RBF(length) + White(w),
    "constant": lambda length, s, w: C(0.5) + C(s) * RBF(length),
    "sum": lambda length, s, w: C(0.5) + C(s) * RBF(length) + C(0.3) * RBF(1.7) + White(w),
    "distributed": lambda length, s, w: C(s) * (C(0.8) * RBF(length) + RBF(2.0) + White(w)),
    "scaled white": lambda length, s, w: RBF(length) + C(s) * White(w),
    "fixed variance": lambda length, s, w: C(s, "fixed") * RBF(length) + White(w),
    "fixed isotropic": lambda length, s, w: C(s) * RBF(length[0], "fixed") + White(w),
    "fixed white": lambda length, s, w: White(w, "fixed") + C(s) * RBF(length) + C(0.5, "fixed"),
    "fixed ard": lambda length, s, w: C(s) * RBF(length, "fixed") + C(0.3) * RBF(length),
    "nothing free": lambda length, s, w: C(s, "fixed") * RBF(length, "fixed"),
    "matern 1/2": lambda length, s, w: C(s) * Matern(length, nu=0.5) + White(w),
    "matern 1/2 isotropic": lambda length, s, w: Matern(length[0], nu=0.5),
    "matern 3/2": lambda length, s, w: C(s) * Matern(length, nu=1.5) + White(w),
    "matern 5/2": lambda length, s, w: C(s) * Matern(length, nu=2.5) + White(w),
    "matern infinity": lambda length, s, w: C(s) * Matern(length, nu=np.inf),
    "rational quadratic": lambda length, s, w: C(s) * RationalQuadratic(length[0], w + 0.2) + White(w),
    "rational quadratic, fixed alpha": lambda length, s, w: RationalQuadratic(length[0], s, alpha_bounds="fixed"),
    "rational quadratic, fixed length": lambda length, s, w: RationalQuadratic(
        length[0], s, length_scale_bounds="fixed"
    ),
    "dot product": lambda length, s, w: C(s) * DotProduct(length[0]) + Matern(length),
    "dot product, fixed": lambda length, s, w: C(s) * DotProduct(length[0], "fixed") + C(0.5) * RBF(length),
    "product": lambda length, s, w: C(s) * Matern(length, nu=0.5) * RationalQuadratic(1.3, w + 0.5) * DotProduct(s),
    "product of sums": lambda length, s, w: (Matern(length) + C(w)) * (RBF(length[0]) + C(s) * DotProduct(0.6)),
    "power": lambda length, s, w: C(s) ** -0.5 * Matern(length, nu=2.5) ** 3 + C(w) ** 2,
    "power of a sum": lambda length, s, w: (C(w) + DotProduct(s)) ** 2 + Matern(length, nu=0.5),
    "power with noise": lambda length, s, w: (C(s) + RBF(length) + White(w)) ** 2,
    "noise by dot product": lambda length, s, w: White(w) * DotProduct(s) ** 2 + Matern(length) + C(0.3) * White(w),
    "noise by everything": lambda length, s, w: (
        C(s) * Matern(length, nu=0.5) + White(w) * RationalQuadratic(1.3, s) * RBF(length) * DotProduct(0.7, "fixed")
    ),
}
SOME_KERNELS = ["isotropic", "ard", "sum", "distributed", "fixed white", "matern 1/2", "rational quadratic", "product"]
SOME_KERNELS += ["dot product", "power of a sum", "noise by dot product"]
STENCIL = [(-2, 1 / 12), (-1, -8 / 12), (1, 8 / 12), (2, -1 / 12)]


def points_apart(random, m, d):
    """Inducing points (m, d) at distances that no step of a finite difference comes near."""
    Z = random.uniform(-2.0, 2.0, size=(m, d))
    Z[:, 0] = np.linspace(-2.0, 2.0, m) + random.uniform(-0.1, 0.1, m)
    return Z


class Problem:
    """Overlapping classes, inducing points that are well apart from each other and, for Matern 1/2, from the rows.

    The kernel is one of ``KERNELS``, with moderate length scales, or an object.
    """

    def __init__(self, kernel, bound, seed=0, n=30, m=5, d=2, weighted=False, groups=None):
        self.random = random = np.random.default_rng(seed)
        self.Z = points_apart(random, m, d)
        rows = random.normal(size=(8 * n + 40, d))
        self.X = rows[np.min(np.linalg.norm(rows[:, None] - self.Z, axis=2), axis=1) > 0.1][:n]
        assert len(self.X) == n
        self.y = np.where(np.sin(2.0 * self.X[:, 0]) + 0.5 * random.normal(size=n) > 0.0, 1.0, -1.0)
        self.weight = random.uniform(0.2, 3.0, n) if weighted else None
        length, variance, white = random.uniform(0.5, 1.5, d), random.uniform(0.5, 4.0), random.uniform(0.05, 0.5)
        if not isinstance(kernel, Kernel):
            kernel = KERNELS[kernel](length, variance, white)
        self.spec = KernelSpec(kernel, d, groups)
        self.site = record_of("logit", bound).site()

    def training(self):
        return training(self.X, self.y, self.weight)

    def profiled_bound(self, theta, Z):
        """max_q F, and its gradient as the library forms it."""
        rows, start = self.training(), SparsePrior.build(self.spec.with_theta(theta), Z).at_prior(None)
        ascent = coordinate_ascent(rows, start, self.site, tol=1e-12, max_iter=500, history=History())
        assert ascent.converged
        point = ascent.point
        return point.elbo, point.q.gradient(rows, point.sites, point.target)

    def bound_at(self, theta, Z, mean, covariance, jitter):
        """F with q(u) = N(mean, covariance) fixed, from dense matrices and scikit-learn's kernel."""
        kernel = self.spec.kernel.clone_with_theta(theta)
        K_mm, K_nm = kernel(Z, Z), kernel(self.X, Z)
        K_mm += jitter * np.mean(np.diag(K_mm)) * np.eye(len(Z))
        kappa = np.linalg.solve(K_mm, K_nm.T).T
        m = kappa @ mean
        v = kernel.diag(self.X) - np.sum(kappa * K_nm, axis=1) + np.sum(kappa @ covariance * kappa, axis=1)
        ell, precision, linear = np.empty((3, len(m)))
        weight = np.empty(0) if self.weight is None else self.weight
        _sites.sites(self.site, m, v, self.y, weight, ell, precision, linear)
        kl = 0.5 * (
            np.trace(np.linalg.solve(K_mm, covariance))
            + mean @ np.linalg.solve(K_mm, mean)
            - len(mean)
            + np.linalg.slogdet(K_mm)[1]
            - np.linalg.slogdet(covariance)[1]
        )
        return np.sum(ell) - kl

    def arbitrary_posterior(self):
        """A q far from the optimum, of about the precision that the data would give."""
        m = len(self.Z)
        B = self.random.normal(size=(m, m))
        prior = SparsePrior.build(self.spec, self.Z)
        return SparsePosterior.from_natural(prior, np.eye(m) + B @ B.T, 3.0 * self.random.normal(size=m))


def derivative(function, h):
    """Five-point central difference of a function of the step at zero."""
    return sum(weight * function(k * h) for k, weight in STENCIL) / h
