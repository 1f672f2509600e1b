"""Passes over the training rows: marginals, sites and the statistics of the next posterior."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from queue import SimpleQueue
from types import TracebackType

import numpy as np

from . import _engine
from ._engine import Site
from .blocks import BlockMap
from .kernels import KernelGradient
from .posterior import AnyPosterior, AnyPrior, SparsePosterior, is_same_prior, times

# The whitened rows A (n, m) are kept between passes at the same hyperparameters while they take less than this: they
# are 40 % of a pass. Beyond it memory stays O(n + m^2) and every pass projects again.
CACHE_BYTES = 2**29
# Range of the learned delta of additive noise: below it rounding makes the logarithm, and at that share of what
# guessing would give no label tells anything any more, whatever the latent functions.
LEAST_DELTA, LARGEST_DELTA = 1e-7, 0.9
# Steps of several latent functions. Conjugate gradients for the mean of all classes: until the residual is this share
# of the first, or so many. (18 ascents, multinomial and softmax: as many passes at .1 as at .02 with half of the
# products, up to a fifth more at .3.)
CG_TOL, CG_MAX_ITER = 0.1, 30
# Where variances are coupled, by the classes or, with additive noise, through the means, the precision goes this share
# of the way: a full step of all at once can overshoot by as much as was missing. (Passes to within .01 nats of the
# optimum, landsat, m = 100, variance 30, full steps against rates of .5 to .7: exact softmax 27 against 25 to 28, GPCsm
# 75 against 38 to 60. Seven ascents for two classes with additive noise, tol = 1e-11: 765 passes against 441 at 2/3 and
# 446 at .8.)
PRECISION_RATE = 2.0 / 3.0
# Likelihoods of several classes that what adds to all latent functions alike leaves as it is.
COUPLED = ("softmax", "multinomial-logit", "multinomial-probit", "multinomial-step")
# Least probability of another class than one's own that a curvature is divided by.
LEAST_COMPLEMENT = 1e-3


class TrainingSites(ABC):
    """Training rows, and the marginals and sites of the latest pass over them; what inference and learning need.

    Parameters
    ----------
    X : (n, d) float32 or float64, any strides
    y : (n,) float64, -1 or +1; 0, ..., C - 1 for C latent functions
    weight : (n,) float64, positive, or None for ones
    n_jobs : int or None
    n_latents : int or None, number C of latent functions, each with a leading axis in the arrays; None: one, without

    Attributes
    ----------
    mean, variance, precision, linear : (n,) or (C, n) float64
        Marginals and sites of the latest pass.
    target : pair of arrays
        Natural parameters that the sites of the latest pass make.
    """

    target: tuple[np.ndarray, np.ndarray]

    def __init__(
        self, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None, n_jobs: int | None, n_latents: int | None
    ):
        self.X, self.y, self.n_jobs, self.n_latents = X, y, n_jobs, n_latents
        self.weight = np.empty(0) if weight is None else weight
        self.total_weight = float(len(y) if weight is None else np.sum(weight))
        self._shape = () if n_latents is None else (n_latents,)
        self.mean, self.variance, self.precision, self.linear = np.zeros((4, *self._shape, len(y)))

    @abstractmethod
    def at_prior(self, prior: AnyPrior) -> AnyPosterior:
        """q = p."""

    @abstractmethod
    def update(self, q: AnyPosterior, site: Site) -> tuple[float, np.ndarray, np.ndarray]:
        """Marginals and sites under q; returns sum of ell and ``target``, the natural parameters of the unit step.

        A parameter of the site that is learned becomes the best one for q.
        """

    @abstractmethod
    def coupled_target(self, q: AnyPosterior, site: Site) -> tuple[np.ndarray, np.ndarray]:
        """Natural parameters of the step from q after its pass, for several latent functions."""

    @abstractmethod
    def posterior(self, prior: AnyPrior) -> AnyPosterior | None:
        """What the sites of the latest pass make of a new prior; None if that is not proper."""

    @abstractmethod
    def sums(self, prior: AnyPrior) -> tuple[np.ndarray, np.ndarray]:
        """What ``precision`` and ``linear`` add to the natural parameters of a prior."""

    @abstractmethod
    def bound_gradient(self, q: AnyPosterior, target: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Gradients by kernel parameters and inducing points at q's optimum, after its pass."""

    def carry_over(self, q: AnyPosterior, prior: AnyPrior, site: Site) -> AnyPosterior:
        """Where to start under ``prior`` from q, of whatever rows: the posterior that the sites under q make here.

        q itself if it has that prior: the first update makes the same sites of it, and a step not looked at, as this
        is, can overshoot.
        """
        if is_same_prior(q.prior, prior):
            return q
        self.mean[:], self.variance[:] = q.marginals(self.X, self.n_jobs)
        self._evaluate(site)
        return self.proper_posterior(prior) or self.at_prior(prior)

    def proper_posterior(self, prior: AnyPrior) -> AnyPosterior | None:
        """What the sites of the latest pass make of a new prior; None only for what is not finite.

        Where it is not proper, negative precisions count as zero: the gradients by the means stay.
        """
        q = self.posterior(prior)
        if q is None:
            excess = np.minimum(self.precision, 0.0)
            self.linear -= excess * self.mean
            self.precision -= excess
            q = self.posterior(prior)
        return q

    def _evaluate(self, site: Site) -> float:
        """Sites from the marginals; returns the sum of ell."""
        ell = np.empty(len(self.y))
        _engine.sites(site, self.mean, self.variance, self.y, self.weight, ell, self.precision, self.linear)
        return float(np.sum(ell))

    def _refit(self, site: Site, total: float) -> tuple[float, float]:
        """Give the site its best parameter under q after a pass; precisions and linear terms are in proportion.

        Returns the sum of ell at it and the factor of the proportion.
        """
        total, factor = best_parameter(site, total, self.total_weight)
        self.precision *= factor
        self.linear *= factor
        return total, factor

    def _coupled_curvature(self, site: Site) -> tuple[np.ndarray, Callable[[np.ndarray, slice], np.ndarray]]:
        """Gradient (C, n) of ell by the means, and the product of its curvature, coupled across classes, with some.

        None of them has any along (1, ..., 1). Softmax's curvature of each point is diag(d) - d d^T / sum(d),
        d_c = lambda_c / (1 - p_c), which has the sites' diagonal. A multinomial likelihood compares the label y with
        every other class: sum over c of lambda_c (e_y - e_c) (e_y - e_c)^T, without negative precisions; what couples
        two other classes is left out. The product is with (C, r) values of a slice of the rows.
        """
        gradient = self.linear - self.precision * self.mean
        at_label = self.y.astype(np.intp), np.arange(len(self.y))
        if site.likelihood != "softmax":
            others = np.maximum(self.precision, 0.0)
            others[at_label] = 0.0

            def star(values: np.ndarray, rows: slice) -> np.ndarray:
                label = at_label[0][rows], np.arange(values.shape[1])
                product = others[:, rows] * (values - values[label])
                product[label] -= np.sum(product, axis=0)
                return product

            return gradient, star
        # Of the label the gradient is weight * (1 - p), of others -weight * p.
        weight = self.weight if len(self.weight) else 1.0
        right = 1.0 + gradient / weight
        right[at_label] -= 1.0
        d = np.maximum(self.precision, 0.0) / np.clip(right, LEAST_COMPLEMENT, 1.0)
        share = d / np.maximum(np.sum(d, axis=0), np.finfo(float).tiny)

        def curvature(values: np.ndarray, rows: slice) -> np.ndarray:
            return d[:, rows] * (values - np.sum(share[:, rows] * values, axis=0))

        return gradient, curvature


class Passes(TrainingSites):
    """Passes over the training rows: each is a sum over blocks, added in the blocks' order.

    Parameters
    ----------
    X, y, weight, n_jobs, n_latents : as for ``TrainingSites``
    n_inducing : int, m
    cache_bytes : int, memory that the whitened rows may take
    n_groups : int, kernels: 1, or one for each latent function

    Attributes
    ----------
    target : (P, h)
    """

    def __init__(
        self,
        X: np.ndarray,
        y: np.ndarray,
        weight: np.ndarray | None,
        n_inducing: int,
        n_jobs: int | None = None,
        cache_bytes: int = CACHE_BYTES,
        n_latents: int | None = None,
        n_groups: int = 1,
    ):
        super().__init__(X, y, weight, n_jobs, n_latents)
        n, d = X.shape
        self._latents = latents = n_latents or 1
        # The same, whatever the number of latent functions.
        self._rows = [a.reshape(latents, n) for a in (self.mean, self.variance, self.precision, self.linear)]
        self._blocks = BlockMap(n, n_inducing, d, n_jobs, latents)
        size = n * n_inducing
        self._cache = np.empty((n_groups, size if 8 * n_groups * size <= cache_bytes else 0))
        self._cached_prior: AnyPrior | None = None
        self._free: SimpleQueue[tuple[np.ndarray, np.ndarray]] = SimpleQueue()
        for _ in range(self._blocks.n_alive):
            self._free.put((np.zeros((latents, n_inducing, n_inducing)), np.zeros((latents, n_inducing))))

    def __enter__(self) -> Passes:
        self._blocks.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._blocks.__exit__(kind, error, trace)

    def at_prior(self, prior: AnyPrior) -> SparsePosterior:
        return SparsePosterior.at_prior(prior, self.n_latents)

    def _is_cached(self, prior: AnyPrior) -> bool:
        return prior is self._cached_prior

    def _remember(self, prior: AnyPrior) -> None:
        self._cached_prior = prior if self._cache.size else None

    def _sum(self, prior: AnyPrior, block_statistics) -> tuple[float, np.ndarray, np.ndarray]:
        """Sum of the blocks' (ell, P, h), plus the prior's precision I."""
        m = prior.n_inducing
        total = 0.0
        P = np.broadcast_to(np.eye(m), (*self._shape, m, m)).copy()
        h = np.zeros((*self._shape, m))

        def task(start, stop, work):
            buffers = self._free.get()
            return block_statistics(start, stop, work, *buffers), buffers

        for ell, buffers in self._blocks(task):
            total += ell
            P += buffers[0].reshape(P.shape)
            h += buffers[1].reshape(h.shape)
            self._free.put(buffers)
        self._remember(prior)
        self.target = P, h
        return total, P, h

    def update(self, q: SparsePosterior, site: Site) -> tuple[float, np.ndarray, np.ndarray]:
        """O(n (C m^2 + m d)) if the latent functions share a kernel, else O(n C (m^2 + m d)); P is a lower triangle."""
        cached = self._is_cached(q.prior)
        mean, variance, precision, linear = self._rows
        Rinv, w = q.stacked()
        parts = q.prior.parts

        def shared(start, stop, work, P, h):
            prior, _ = parts[0]
            return _engine.update_block(
                prior.core, self.X, self._cache[0], cached, start, stop, prior.Linv, Rinv, w, site, self.y,
                self.weight, work, mean, variance, precision, linear, P, h,
            )  # fmt: skip

        def separate(start, stop, work, P, h):
            for cache, (prior, c) in zip(self._cache, parts, strict=True):
                _engine.marginals_block(
                    prior.core, self.X, cache, cached, start, stop, prior.Linv, Rinv[c], w[c], work, mean[c],
                    variance[c],
                )  # fmt: skip
            total = _engine.sites_block(site, start, stop, mean, variance, self.y, self.weight, work, precision, linear)
            self._sites_statistics(q.prior, bool(len(self._cache[0])), start, stop, work, P, h)
            return total

        total, P, h = self._sum(q.prior, shared if len(parts) == 1 else separate)
        if site.learned:
            total, factor = self._refit(site, total)
            P *= factor
            diagonal = np.einsum("...ii->...i", P)
            diagonal += 1.0 - factor
            h *= factor
        return total, P, h

    def _sites_statistics(self, prior, cached, start, stop, work, P, h):
        _, _, precision, linear = self._rows
        for cache, (group, c) in zip(self._cache, prior.parts, strict=True):
            _engine.statistics_block(
                group.core, self.X, cache, cached, start, stop, group.Linv, precision[c], linear[c], work, P[c], h[c]
            )
        return 0.0

    def coupled_target(self, q: SparsePosterior, site: Site) -> tuple[np.ndarray, np.ndarray]:
        """Natural parameters of the step from q after its pass: the sites' precision, and a mean for all classes.

        Each class has a site of its own, but what the likelihood gains for one it takes from the others: unit steps go
        round in circles, and what adds to all latent functions alike hardly moves, as their likelihood has no curvature
        there. The mean is a Newton step with the coupled curvature of each point: conjugate gradients, preconditioned
        by the sites' precision. O(n C m) each. Augmented sites' steps are their own.
        """
        if site.likelihood not in COUPLED:
            return self.target
        P = np.tril(q.P + PRECISION_RATE * (self.target[0] - q.P))
        trial = SparsePosterior.from_natural(q.prior, P, self.target[1])
        if trial is None:
            return self.target
        gradient, curvature = self._coupled_curvature(site)

        def precondition(residual: np.ndarray) -> np.ndarray:
            return (np.swapaxes(trial.Rinv, 1, 2) @ (trial.Rinv @ residual[..., None]))[..., 0]

        # At q the residual needs no product: it is the gradient of the bound by the mean.
        w = q.w.copy()
        residual = self._sums(q.prior, lambda products, rows: gradient[:, rows], None) - w
        z = precondition(residual)
        direction, size = z, float(np.sum(residual * z))
        target = CG_TOL**2 * size
        for _ in range(CG_MAX_ITER):
            if not size > target:
                break
            product = direction + self._sums(q.prior, curvature, direction)
            curved = float(np.sum(direction * product))
            # Round-off, of huge variances, may leave no curvature.
            if not curved > 0.0:
                break
            rate = size / curved
            w += rate * direction
            residual -= rate * product
            z = precondition(residual)
            before, size = size, float(np.sum(residual * z))
            direction = z + (size / before) * direction
        return P, times(P, w)

    def _sums(self, prior: AnyPrior, function, w: np.ndarray | None) -> np.ndarray:
        """Sum over rows i of function(w A^T)_ci a_i, (C, m); the function is of a block's products and its rows."""
        cached = self._is_cached(prior)
        parts = [(group, cache, c) for cache, (group, c) in zip(self._cache, prior.parts, strict=True)]

        def task(start, stop, work):
            products = np.empty((self._latents, stop - start))
            if w is not None:
                for group, cache, c in parts:
                    _engine.products_block(
                        group.core, self.X, cache, cached, start, stop, group.Linv, w[c], work, products[c]
                    )
            values = function(products, slice(start, stop))
            sums = np.zeros((self._latents, prior.n_inducing))
            for group, cache, c in parts:
                _engine.sums_block(
                    group.core, self.X, cache, cached, start, stop, group.Linv, np.ascontiguousarray(values[c]), work,
                    sums[c],
                )  # fmt: skip
            return sums

        total = np.zeros((self._latents, prior.n_inducing))
        for sums in self._blocks(task):
            total += sums
        return total

    def statistics(self, prior: AnyPrior) -> tuple[np.ndarray, np.ndarray]:
        """Natural parameters (P, h) of the sites of the latest pass under a new prior."""
        cached = self._is_cached(prior)
        return self._sum(prior, lambda *block: self._sites_statistics(prior, cached, *block))[1:]

    def sums(self, prior: AnyPrior) -> tuple[np.ndarray, np.ndarray]:
        P, h = self.statistics(prior)
        return P - np.eye(prior.n_inducing), h

    def posterior(self, prior: AnyPrior) -> SparsePosterior | None:
        return SparsePosterior.from_natural(prior, *self.statistics(prior))

    def gradient(self, q: SparsePosterior, M: np.ndarray, alpha: np.ndarray) -> list[KernelGradient]:
        """Contraction of dF/dK_nm and dF/dk_ii with each kernel's derivatives, under q and the latest sites.

        M (C, m, m) and alpha (C, m) are those of ``matrix_gradients`` for each latent function.
        """
        cached = self._is_cached(q.prior)
        _, w = q.stacked()
        _, _, precision, linear = self._rows
        totals = []
        for cache, (prior, c) in zip(self._cache, q.prior.parts, strict=True):
            total = KernelGradient.empty(prior.core)

            def task(start, stop, work, prior=prior, cache=cache, c=c):
                part = KernelGradient.empty(prior.core)
                _engine.gradient_of_block(
                    prior.core, self.X, cache, cached, start, stop, prior.Linv, M[c], alpha[c], w[c],
                    precision[c], linear[c], work, *part.arrays,
                )  # fmt: skip
                return part

            for part in self._blocks(task):
                total += part
            totals.append(total)
        self._remember(q.prior)
        return totals

    def bound_gradient(
        self, q: SparsePosterior, target: tuple[np.ndarray, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Gradient of the bound at fixed q(u), which at q's optimum is that of the profiled bound.

        Parameters
        ----------
        q : whose sites the latest pass left
        target : natural parameters (P, h) of the unit step from q

        Returns
        -------
        Gradients by the kernel's ``theta``, (n_theta,), those of several kernels one after the other, and by the
        inducing points, (m, d) or (C, m, d).

        Notes
        -----
        dF/dK_nm = (r - lambda m) alpha^T + Lambda A (I - P^-1) L^-1; dF/dK_mm: see ``matrix_gradients`` in
        ``src/xgpc/_engine.pyx``, at the optimum the textbook form. O(C n m^2 + n m d + C m^3).
        """
        Rinv, w = q.stacked()
        P, h = target[0].reshape(Rinv.shape), target[1].reshape(w.shape)
        M, alpha = np.empty_like(Rinv), np.empty_like(w)
        grams = []
        for prior, part in q.prior.parts:
            G = np.zeros(Rinv.shape[1:])
            for c in range(len(w))[part]:
                G_c, M[c], alpha[c] = _engine.matrix_gradients(prior.Linv, Rinv[c], P[c], h[c], w[c], prior.jitter)
                G += G_c
            gram = KernelGradient.empty(prior.core)
            _engine.gradient_of_gram(prior.core, prior.Z, G, *gram.arrays)
            grams.append(gram)
        crosses = self.gradient(q, M, alpha)
        d_theta, d_Z = zip(
            *(
                prior.spec.gradient(prior.core, *sums)
                for prior, *sums in zip(q.prior.groups, crosses, grams, strict=True)
            ),
            strict=True,
        )
        return np.concatenate(d_theta), np.reshape(d_Z, q.prior.Z.shape)


def best_parameter(site: Site, total: float, total_weight: float) -> tuple[float, float]:
    """Set the parameter delta of an additive-noise site to its best, given sum_i w_i ell_i at the present one.

    ell_i = log(delta / (C - 1)) + g p_i with g = log((1 - delta) (C - 1) / delta) is linear in the probability p_i of
    the label, and the bound is highest where 1 - delta is the mean of p_i (Liu et al. 2019, equation (27)).

    Returns
    -------
    total, factor
        The sum at the new parameter, and by how much it multiplies precisions and linear terms.
    """
    n_wrong = max(1, site.n_latents - 1)

    def levels(delta: float) -> tuple[float, float]:
        wrong = math.log(delta / n_wrong)
        return wrong, math.log1p(-delta) - wrong

    wrong, slope = levels(site.parameter)
    probabilities = (total - total_weight * wrong) / slope
    chance = n_wrong / (n_wrong + 1.0)
    site.parameter = min(max(1.0 - probabilities / total_weight, LEAST_DELTA), LARGEST_DELTA * chance)
    new_wrong, new_slope = levels(site.parameter)
    return total_weight * new_wrong + new_slope * probabilities, new_slope / slope
