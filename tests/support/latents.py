"""Problems of one or several latent functions, for every likelihood, and their dense formulas."""

import numpy as np
import pytest
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import ConstantKernel, Kernel, Matern, RationalQuadratic, WhiteKernel

from xgpc.likelihoods import LIKELIHOODS, MULTI_CLASS, record_of

from .dense import KERNELS, points_apart
from .internals import History, KernelSpec, SparsePrior, coordinate_ascent, grouped, starting_posterior
from .reference import DenseModel, divergence
from .sites import evaluate
from .training import rebuilt, training

RECORDS = [record for bounds in LIKELIHOODS.values() for record in bounds.values()]
REGISTERED = [(name, bound) for name, bounds in LIKELIHOODS.items() for bound in bounds]
SEVERAL = [site for site in REGISTERED if site[0] in MULTI_CLASS]
NOISY = [site for site in REGISTERED if record_of(*site).has_label_noise]
CASES = [(*site, share) for site in REGISTERED for share in (("kernel", "none") if site in SEVERAL else ("kernel",))]
NOISY_CASES = [case for case in CASES if case[:2] in NOISY]
seeds = st.integers(0, 2**20)


def every(records):
    return pytest.mark.parametrize("record", list(records), ids=lambda record: " ".join(record.key))


def cases(chosen):
    return pytest.mark.parametrize(("likelihood", "bound", "share"), list(chosen))


class Problem:
    """Overlapping classes with some labels wrong; kernels and inducing points shared or for each latent function.

    Inducing points are well apart from each other, and from the rows in each feature, for kernels that have kinks; or,
    if ``apart`` is False, anywhere on the square from -2 to 2.
    The kernel is one of ``KERNELS``, with moderate length scales, or an object.
    """

    def __init__(
        self, likelihood="logit", bound="exact", share="kernel", kernel="white", *,
        seed=0, n=60, m=7, d=2, n_classes=3, weighted=False, dtype=np.float64, groups=None, apart=True,
    ):  # fmt: skip
        self.random = random = np.random.default_rng(seed)
        self.key, self.n_classes = (likelihood, bound), n_classes
        n_points = 3 if share == "none" else 1
        if apart:
            Z = [points_apart(random, m, d) for _ in range(n_points)]
            rows = random.normal(size=(8 * n + 40, d))
            away = np.abs(rows[:, None] - np.vstack(Z))
            nearest = np.min(np.where(np.linalg.norm(away, axis=2) > 0.1, away.min(axis=2), 0.0), axis=1)
            self.X = rows[nearest > 2e-3][:n].astype(dtype)
        else:
            self.X = random.normal(size=(n, d)).astype(dtype)
        assert len(self.X) == n
        f = np.sin(2.0 * self.X[:, 0] + np.linspace(0.0, 6.0, n_classes + 1)[:n_classes, None])
        classes = np.argmax(f + 0.3 * random.normal(size=f.shape), axis=0)
        several = likelihood in MULTI_CLASS
        self.n_latents = n_classes if several else 1
        self.y = classes.astype(np.float64) if several else np.where(classes > 0, 1.0, -1.0)
        self.weight = random.uniform(0.2, 3.0, n) if weighted else None
        length, variance, white = random.uniform(0.7, 1.5, d), random.uniform(0.5, 4.0), random.uniform(0.05, 0.5)
        kernels = [kernel if isinstance(kernel, Kernel) else KERNELS[kernel](length, variance, white)]
        if share == "none":
            kernels += [ConstantKernel(1.5) * Matern(1.2, nu=2.5), RationalQuadratic(1.1, 2.0) + WhiteKernel(white)]
        specs = [KernelSpec(kernel, d, groups) for kernel in kernels]
        if not apart:
            Z = [random.uniform(-2.0, 2.0, (m, d)) for _ in range(n_points)]
        self.prior = grouped([SparsePrior.build(*both) for both in zip(specs, Z, strict=True)])

    def site(self, label_noise=0.02):
        return record_of(*self.key).at(label_noise).site(self.n_classes)

    def training(self, **options):
        return training(self.X, self.y, self.weight, self.n_latents, **options)

    def profiled_bound(self, theta, Z):
        """max_q F of other parameters and inducing points, and its gradient as the library forms it."""
        rows, q = self.training(), rebuilt(self.prior, theta, Z).at_prior(self.n_latents)
        ascent = self.ascend(rows, q)
        assert ascent.converged
        return ascent.point.elbo, ascent.point.q.gradient(rows, ascent.point.sites, ascent.point.target)

    def bound_at(self, site, theta, Z, models):
        """F of other parameters and inducing points with q(u) of the models as it is, from dense matrices."""
        others = self.dense(rebuilt(self.prior, theta, Z).at_prior(self.n_latents))
        for other, model in zip(others, models, strict=True):
            other.eta_1, other.eta_2 = model.eta_1, model.eta_2
        return self.dense_bound(site, others)

    def latents(self, prior=None):
        groups = (prior or self.prior).groups
        return groups if len(groups) > 1 else groups * self.n_latents

    def dense(self, q):
        parameters = zip(self.latents(q.prior), *q.eta, strict=True)
        return [DenseLatent(prior, self.X.astype(np.float64), self.y, P, h) for prior, P, h in parameters]

    def dense_bound(self, site, models):
        return self.evaluate(site, *marginals(models))[0] - sum(model.kl() for model in models)

    def arbitrary_posterior(self):
        """Far from the optimum, of about the precision that the data would give."""
        m, C = self.prior.n_inducing, self.n_latents
        B = self.random.normal(size=(C, m, m))
        P = np.tril(np.eye(m) + B @ np.swapaxes(B, -1, -2))
        return self.prior.posterior((P, 5.0 * self.random.normal(size=(C, m))))

    def whitened_rows(self):
        """A (C, n, m), by dense solves."""
        return np.array([np.linalg.solve(p.L, p.spec.kernel(self.X, p.Z).T).T for p in self.latents()])

    def evaluate(self, site, mean, variance, rows=slice(None)):
        """Sum of ell, precisions and linear terms of marginals (C, n)."""
        weight = () if self.weight is None else self.weight[rows]
        ell, *terms = evaluate(site, *map(np.atleast_2d, (mean, variance)), self.y[rows], weight)
        return np.sum(ell), *terms

    def ascend(self, rows, q=None, label_noise=0.02, tol=1e-12, history=None):
        """coordinate_ascent from q or from where a fit starts."""
        site = self.site(label_noise)
        q = starting_posterior(rows, None, self.prior, site) if q is None else q
        return coordinate_ascent(rows, q, site, tol=tol, max_iter=3000, history=history or History())


class DenseLatent(DenseModel):
    """One latent function in unwhitened natural parameters, whose sites come from elsewhere."""

    def __init__(self, prior, X, y, P, h):
        kernel = prior.spec.kernel
        super().__init__(kernel, kernel.diag, prior.jitter, X, prior.Z, y)
        self.unwhiten(symmetric(P), h)

    def kl(self):
        return divergence(*self.moments, 0.0, self.K_mm)


def marginals(models):
    """Means and variances (C, n)."""
    return np.stack([model.marginals() for model in models], axis=1)


def symmetric(P):
    """The whole of a lower triangle (..., m, m)."""
    return np.tril(P) + np.swapaxes(np.tril(P, -1), -1, -2)
