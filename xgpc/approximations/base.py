"""What every approximation has: training rows, priors and posteriors of latent functions, and their marginals.

Arrays of C latent functions have them as their leading axis, also if C is 1. What a posterior gives to users,
``marginals``, ``gradients`` and ``covariance``, has no such axis if C is 1.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from secrets import token_hex
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from .._kernels import InducingKernel
from .._sites import Site
from ..kernels.spec import KernelSpec
from ..ranges import small_is_zero
from ..rows.blas import single_threaded_blas
from ..rows.block import BLOCK_ROWS, Block
from ..rows.executor import Executor, Function, Result, State, is_small, joined, on_threads, parts_of
from ..rows.source import NONE, RowSource
from ..statistics import AnySites, Update, evaluated

# Precision and linear term: (P, h) of coefficients, or of sites at training rows.
Natural = tuple[np.ndarray, np.ndarray]
# Every step of an ascent adds the identity, of one size in a fit; nothing writes to it.
identity = lru_cache(2)(np.eye)
# Makes a key that no other value has in any process or thread; copies and pickles keep it.
new_key = token_hex
# An ascent that the core makes: last posterior, sum of ell, sites at it, bound, iterations, and whether it converged.
CompiledAscent = tuple[Any, float, Natural, float, int, bool]
# The number of a row -> its covariances (C, n) with n rows, without the white noise that is the row's own.
ColumnOf = Callable[[int], np.ndarray]


def read_only(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array


class Value:
    """A record whose arrays are read-only, also in copies and pickles; pickles leave cached properties out."""

    not_in_passes: ClassVar[tuple[str, ...]] = ()  # fields that no statistic of a block reads

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    def __getstate__(self) -> dict[str, object]:
        return {n: v for n, v in vars(self).items() if not isinstance(getattr(type(self), n, None), cached_property)}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        Value.__post_init__(self)

    @cached_property
    def for_passes(self) -> Self:
        """A copy to send to other processes: what no statistic of a block reads is None."""
        parts = {name: value.for_passes for name, value in vars(self).items() if isinstance(value, Value)}
        copied = copy.copy(self)
        vars(copied).update(parts | dict.fromkeys(self.not_in_passes))
        return copied


@dataclass(frozen=True)
class Training:
    """Rows to learn from, and the executor of passes over them."""

    source: RowSource
    executor: Executor
    n_latents: int = 1  # C
    # Some of the rows in memory, with the weight of all: they determine steps where a pass over all rows is expensive.
    subsample: Training | None = None

    def reduce(self, function: Function[Result], state: State) -> Result:
        return self.executor.reduce(function, self.source, state)


class PriorOperations(Protocol):
    """What each kind of prior computes; mypy reports a class that lacks one of these methods."""

    def work(self, n_latents: int) -> float:
        """Multiply-adds of a pass for each row, for so many latent functions."""

    def moments(self, block: Block, precision: np.ndarray, linear: np.ndarray) -> Natural:
        """What sites (C, rows) add to the natural parameters P (C, m, m), lower triangles, and h (C, m).

        P is (C, m) in a full process.
        """

    def products(self, block: Block, w: np.ndarray) -> np.ndarray:
        """Values (C, rows) of the linear functions with coefficients w (C, m)."""

    def sums(self, block: Block, values: np.ndarray) -> np.ndarray:
        """Gradient (C, m) of the sum of values (C, rows) times ``products``, by w."""

    def posterior(self, natural: Natural) -> Any:
        """q with these natural parameters; None if they belong to no distribution."""


class KernelPrior(Value, PriorOperations):
    """Distribution p of latent functions, which are linear in coefficients, and share a kernel or have one each.

    ``groups`` are the priors of the kernels, all of one type. A prior with one kernel is its own only group.
    """

    # The first five are those of kernels: the prior of a linear model lacks them.
    Z: Any  # inducing points (m, d), or (C, m, d)
    jitter: Any  # float
    spec: KernelSpec  # of a prior with one kernel; ``core`` is its compiled form at Z
    core: InducingKernel
    # p with other kernels, one for each group, and other inducing points, without earlier rows
    rebuilt: Callable[[Sequence[KernelSpec], np.ndarray], KernelPrior]
    is_full = False  # whether all rows are the points: then none moves, and none is added
    earlier_q: KernelPosterior | None = None  # posterior of earlier rows that is the prior of new ones
    separate: ClassVar[type[SeparatePriors]]  # the type that joins such priors, one for each latent function

    @property
    def groups(self) -> tuple[Any, ...]:
        return (self,)

    @property
    def n_inducing(self) -> int:
        """Number m of coefficients of each latent function."""
        return self.Z.shape[-2]

    def proper_posterior(self, natural: Natural) -> Any:
        """As ``posterior``; ValueError if the natural parameters belong to no distribution."""
        q = self.posterior(natural)
        if q is None:
            raise ValueError(
                "The posterior precision is not positive definite: bound the kernel's variance, scale the features, "
                "and give moderate sample weights, if you give any."
            )
        return q

    def with_sites(self, P: np.ndarray, h: np.ndarray) -> Natural:
        """Natural parameters of the prior times sites with these ``moments``; of a full process, the sites alone."""
        if self.earlier_q is not None:
            earlier_P, earlier_h = self.earlier_q.eta
            return earlier_P + P, earlier_h + h
        return (P, h) if self.is_full else (P + identity(P.shape[-1]), h)

    def at_prior(self, n_latents: int = 1) -> Any:
        """q = p."""
        shape = n_latents, self.n_inducing
        return self.posterior(self.with_sites(np.zeros(shape if self.is_full else (*shape, shape[1])), np.zeros(shape)))

    def given(self, earlier_q: KernelPosterior) -> Self:
        """The prior of further rows: the posterior of earlier rows under this prior, in the same coefficients.

        Sites of further rows add to its natural parameters. Their bound is sum E_q[log p(y | f)] - KL(q || earlier_q)
        (Broderick, Boyd, Wibisono, Wilson, Jordan, NIPS 2013, equation (4); Bui, Nguyen, Turner, NIPS 2017, section 3).
        """
        conditioned = copy.copy(self)
        vars(conditioned)["earlier_q"] = earlier_q
        return conditioned


@dataclass(frozen=True, eq=False)
class SeparatePriors(KernelPrior):
    """A kernel and equally many inducing points for each latent function: ``members`` are C priors."""

    members: tuple[KernelPrior, ...]
    key: str = field(default_factory=new_key, init=False, repr=False)

    @property
    def groups(self) -> tuple[KernelPrior, ...]:
        return self.members

    @cached_property
    def Z(self) -> np.ndarray:
        return read_only(np.stack([prior.Z for prior in self.members]))

    @cached_property
    def jitter(self) -> float:
        return max(prior.jitter for prior in self.members)

    def rebuilt(self, specs: Sequence[KernelSpec], Z: np.ndarray) -> KernelPrior:
        parts = zip(self.members, specs, Z, strict=True)
        return grouped([prior.rebuilt([spec], points) for prior, spec, points in parts])


def grouped(priors: Sequence[KernelPrior]) -> Any:
    """One prior for all latent functions, or one for each."""
    return priors[0] if len(priors) == 1 else priors[0].separate(tuple(priors))


def groups_of_latents(prior: KernelPrior, n_latents: int) -> tuple[Any, ...]:
    """The group of ``prior`` that each latent function belongs to."""
    groups = prior.groups
    return groups * n_latents if len(groups) == 1 else groups


def is_same_prior(first: KernelPrior, second: KernelPrior) -> bool:
    """Whether two priors have the same kernels at the same points."""
    return len(first.groups) == len(second.groups) and all(
        a is b or (type(a) is type(b) and a.spec.has_kernel_of(b.spec) and np.array_equal(a.Z, b.Z))
        for a, b in zip(first.groups, second.groups, strict=True)
    )


class CovarianceForm(NamedTuple):
    """Marginals of a latent function by its prior covariances k = k(Z, x) with points Z: mean ``weights . k``, variance
    ``max(k(x, x) - |explained k|^2, 0) + |added k|^2``, noise included in k(x, x)."""

    core: InducingKernel  # compiled kernel at Z (m, d)
    weights: np.ndarray  # (m,)
    explained: np.ndarray  # (r, m)
    added: np.ndarray  # (s, m)


class PosteriorOperations(Protocol):
    """What each kind of posterior computes, as ``PriorOperations``."""

    @property
    def eta(self) -> Natural:
        """Natural parameters: P and h of the coefficients, or the sites at the rows of a full process."""

    def block_marginals(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances (C, rows), with noise, of training rows."""

    def unexplained(self, block: Block) -> np.ndarray:
        """Conditional variances (C, rows) given the values at all inducing points."""

    def kl_to(self, other: Self, enough: float = np.inf) -> float:
        """KL(q || other) of two posteriors under the same prior, in nats. If it is at least ``enough``, the result
        may be a lower bound that is at least ``enough``, too."""

    def times_mean(self, precision: np.ndarray) -> np.ndarray:
        """The linear term that a precision, as in ``eta``, has at the mean."""

    def solve(self, residual: np.ndarray) -> Natural:
        """q's covariance times ``residual``, and the prior's precision times that: a pair as ``mean_pair``."""

    def at_mean(self, mean: Natural) -> Self:
        """The posterior with q's precision and the mean of a pair as ``mean_pair``, up to rounding."""

    def first_order_gain(self, target: Natural, other: Self) -> float:
        """First-order gain of the bound, in nats, on the line of means and covariances to a posterior under the same
        prior: g (mean_other - mean) - tr (P' - P) (covariance_other - covariance) / 2, where the sites make the natural
        parameters (P', h') and g = h' - h - (P' - P) mean is the gradient by the mean."""

    def gradient(self, training: Training, sites: AnySites, natural: Natural) -> tuple[np.ndarray, np.ndarray]:
        """Gradients of the bound at fixed sites, which make ``natural``: by the ``theta`` of the kernels, one after the
        other, and by the inducing points. At q's optimum they are those of the bound maximised over q."""

    def covariance_forms(self) -> list[CovarianceForm]:
        """The marginals of each latent function in its covariances; arrays that several share are the same object."""

    def path_deviations(self) -> np.ndarray:
        """Standard deviations (C, m) of independent noise e at the points: with ``explained`` E of the form above and a
        draw f of the prior, E (f(Z) + e) has the identity as covariance."""

    def covariance_sums(self, X: np.ndarray, P: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums (r,) over training rows i of C_i t_i and C_i^2 s_i, from the ``moments`` of s and t; C_i are covariances
        of one latent function between the rows of X and row i."""


class KernelPosterior(Value, PosteriorOperations):
    """q of C independent latent functions, as inference sees it."""

    prior: Any  # KernelPrior
    # The mean, and the prior's precision times its distance from the prior's mean: conjugate gradients that keep such
    # pairs need no inverse of K. (mean, K^{-1} mean) of a full process; (w, w) of whitened coefficients.
    mean_pair: Any
    kl: Any  # float, KL(q || p) in nats
    squared_norm: Any  # float, squared norm of the mean function's distance from the prior's
    n_neighbors = 0
    kept_rows: Any = None  # LocalPosterior with its training rows and their sites, for a posterior with neighbours
    variance_scale = 1.0

    def without_neighbors(self) -> KernelPosterior:
        return self

    def ascent(
        self, training: Training, site: Site, safe_site: Callable[[], Site] | None, tol: float, max_iter: int
    ) -> CompiledAscent | None:
        """``coordinate_ascent`` from this posterior in the core; None if these rows or sites have none there.

        ``safe_site`` makes the site of a bound that unit steps cannot lower; None if there is no such bound.
        """
        return None

    def in_precision(self, dtype: type) -> KernelPosterior:
        """The same distribution; whitened rows, if there are any, have this type."""
        return self

    @property
    def work(self) -> float:
        return self.prior.work(self.n_latents)

    @property
    def anywhere(self) -> Any:
        """A predictor with ``block_marginals`` of any rows, ``work`` and ``n_latents``."""
        return self

    def update(self, block: Block, site: Site) -> Update:
        sites = evaluated(block, site, *self.block_marginals(block))
        curved = float(np.vdot(sites.precision, sites.variance))
        return sites, curved, *self.prior.moments(block, sites.precision, sites.linear)

    @cached_property
    def n_latents(self) -> int:
        return len(self.eta[1])

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return () if self.n_latents == 1 else (self.n_latents,)

    @property
    def groups(self) -> tuple[Any, ...]:
        """The prior of each latent function."""
        return groups_of_latents(self.prior, self.n_latents)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Arrays by name that, with the kernels, make the posterior again."""
        return {"eta": self.eta[0], "h": self.eta[1]}

    @small_is_zero
    def marginals(self, X: np.ndarray, n_jobs: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance (r,) or (C, r) of the latent functions, with noise, at the rows of X (r, d)."""
        predictor, shape, n = self.anywhere, self.shape, X.shape[0]
        starts = range(0, n, BLOCK_ROWS)
        blocks = [Block(start, X[start : start + BLOCK_ROWS], NONE, NONE, cache_bytes=0) for start in starts]
        if not blocks:
            return np.empty((*shape, 0)), np.empty((*shape, 0))
        # Threads take as long to start and end as the prediction of some hundred rows.
        each = map if len(blocks) == 1 or is_small(n, predictor) else on_threads(n_jobs)
        with single_threaded_blas():
            moments = np.concatenate(list(each(predictor.block_marginals, blocks)), axis=2)
        mean, variance = moments.reshape(2, *shape, n)
        return mean, variance

    @property
    def forms_by_group(self) -> list[tuple[KernelPrior, list[CovarianceForm]]]:
        """The prior of each kernel, and the covariance forms of its latent functions."""
        forms, groups = self.covariance_forms(), self.prior.groups
        size = len(forms) // len(groups)
        return [(group, forms[g * size : (g + 1) * size]) for g, group in enumerate(groups)]

    @cached_property
    def quadratics(self) -> list[tuple[InducingKernel, np.ndarray, np.ndarray]]:
        """For each kernel its compiled form, and of its latent functions alpha (c, m) and B (c, m, m): the gradients of
        mean and variance by the covariances k = k(Z, x) are alpha and B k. O(C m^3)."""
        quadratics = []
        for group, forms in self.forms_by_group:
            B = [2.0 * (form.added.T @ form.added - form.explained.T @ form.explained) for form in forms]
            quadratics.append((group.core, np.stack([form.weights for form in forms]), np.stack(B)))
        return quadratics

    def gradients(self, X: np.ndarray, n_jobs: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Gradients (r, d) or (C, r, d) of means and variances by the rows: dk/dx contracted with alpha and B k.

        O(C r m (m + d)) after the first call, which makes ``quadratics``.
        """
        X = np.ascontiguousarray(X, dtype=np.float64)

        def part(rows: slice) -> np.ndarray:
            return np.concatenate([core.quadratic_gradients(X[rows], *each) for core, *each in self.quadratics], axis=1)

        by_mean, by_variance = joined(part, parts_of(len(X)), n_jobs, axis=2).reshape(2, *self.shape, *X.shape)
        return by_mean, by_variance

    @small_is_zero
    def covariance(self, X: np.ndarray) -> np.ndarray:
        """Joint covariance (r, r) or (C, r, r) at the rows of X (r, d), each with noise of its own. O(C r m (r + m)).

        A variance is at least the part that the covariance form adds. Rows of a precomputed matrix have r further
        columns, their covariances with each other.
        """
        X = np.asarray(X, dtype=np.float64)
        rows = X[:, : self.prior.Z.shape[-1]]
        covariance = np.empty((self.n_latents, len(X), len(X)))
        totals = iter(covariance)
        for group, forms in self.forms_by_group:
            k, prior = group.core.cross(rows), group.spec.at(X).cross(X)
            np.fill_diagonal(prior, group.core.diagonals(rows))
            for form in forms:
                total = next(totals)
                explained, added = k @ form.explained.T, k @ form.added.T
                joint = prior - explained @ explained.T + added @ added.T
                total[:] = 0.5 * (joint + joint.T)
                np.fill_diagonal(total, np.maximum(np.diag(joint), np.sum(added**2, axis=1)))
        return covariance.reshape(*self.shape, len(X), len(X))

    def covariance_columns(self, X: np.ndarray, n_jobs: int | None) -> ColumnOf:
        """Columns of ``covariance(X)``, each computed on request in time and memory linear in the rows of X.

        k(x, x_i) less what the covariance form explains, and with what it adds: one sum over the points and x_i.
        """
        forms_by_group, X = self.forms_by_group, np.ascontiguousarray(X, dtype=np.float64)

        def column(i: int) -> np.ndarray:
            row, columns = X[i : i + 1], []
            for group, forms in forms_by_group:
                k = group.core.cross(row)[0]
                changes = [form.added.T @ (form.added @ k) - form.explained.T @ (form.explained @ k) for form in forms]
                weights = np.stack([np.append(change, 1.0) for change in changes])
                columns.append(kernel_sums(group.spec, np.concatenate([group.Z, row]), weights, X, n_jobs))
            return np.concatenate(columns)

        return column


def kernel_sums(spec: KernelSpec, Z: np.ndarray, weights: np.ndarray, X: np.ndarray, n_jobs: int | None) -> np.ndarray:
    """Sums over points Z (p, d) of weights (C, p) times their covariances with the rows of X (n, d): (C, n)."""
    core = spec.at(Z)
    return joined(lambda rows: weights @ core.cross(X[rows]).T, parts_of(len(X)), n_jobs, axis=1)
