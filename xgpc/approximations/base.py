"""What every approximation has: training rows, priors and posteriors of latent functions, and their marginals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol
from uuid import uuid4

import numpy as np
from scipy.linalg import lapack

from .._kernels import InducingKernel
from ..kernels.spec import KernelSpec
from ..rows.blas import single_threaded_blas
from ..rows.block import Block
from ..rows.executor import Executor, State, Threads, is_small
from ..rows.source import ArraySource, RowSource, SparseSource
from ..statistics import Basis, Marginalizer, GivenSites, Predictor, StatedSites, marginals

# Precision and linear term: (P, h) of coefficients, or of sites at training rows.
Natural = tuple[np.ndarray, np.ndarray]


def new_key() -> str:
    """A key that no other value has, in no process or thread: ``dataclasses.replace`` makes another, copies keep
    theirs."""
    return uuid4().hex


class Value:
    """A record that does not change: its arrays are read-only, in copies and from pickles, too.

    Cached properties are not part of a pickle.
    """

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    def __getstate__(self) -> dict[str, Any]:
        return {n: v for n, v in vars(self).items() if not isinstance(getattr(type(self), n, None), cached_property)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        Value.__post_init__(self)


@dataclass(frozen=True)
class Training:
    """Rows to learn from, and who works on them.

    Attributes
    ----------
    n_latents : int or None, number C of latent functions, each with a leading axis in the arrays; None: one, without
    subsample : some of the rows in memory, with the weight of all, where a pass over all rows is dear; or None
        Enough to choose the next step by; a posterior needs all rows.
    """

    source: RowSource
    executor: Executor
    n_latents: int | None = None
    subsample: Training | None = None

    def __len__(self) -> int:
        return self.source.n_rows

    @property
    def total_weight(self) -> float:
        return self.source.total_weight

    def reduce(self, function: Callable[[Block, Any], Any], state: State) -> Any:
        return self.executor.reduce(function, self.source, state)

    def map(self, function: Callable[[Block, Any], Any], state: State) -> list[Any]:
        """Results of all blocks, in order."""
        return list(self.executor.map(function, self.source, state))

    def part(self, rows: np.ndarray | None, scale: float = 1.0) -> Training:
        """Some of the rows in memory, by their numbers, their weights times ``scale``; all of them for None."""
        return self if rows is None else replace(self, source=self.source.sample(rows, scale), subsample=None)

    def uncached(self) -> Training:
        """The same rows, of which no pass keeps whitened ones."""
        source = self.source
        return replace(self, source=source.uncached()) if isinstance(source, ArraySource | SparseSource) else self


class Prior(Protocol):
    """p of all latent functions: an immutable value."""

    def basis(self, n_latents: int | None) -> Basis:
        """The basis in which ``n_latents`` latent functions (None: one) are linear."""

    def with_sites(self, P: np.ndarray, h: np.ndarray) -> Natural:
        """Natural parameters of the prior times sites with the statistics P and h of ``Moments``."""

    def posterior(self, natural: Natural) -> Posterior | None:
        """q from its natural parameters, or None if they make none."""


class KernelPrior(Prior, Protocol):
    """The prior of latent functions that share a kernel, or have one each."""

    @property
    def groups(self) -> Sequence[Any]:
        """The priors of the latent functions, of one kind: one for all, or one for each."""

    @property
    def Z(self) -> np.ndarray:
        """Inducing points (m, d), or (C, m, d)."""

    @property
    def n_inducing(self) -> int: ...

    @property
    def jitter(self) -> float: ...

    @property
    def is_full(self) -> bool:
        """Whether the points are all rows, which neither move nor become more."""

    def rebuilt(self, specs: Sequence[KernelSpec], Z: np.ndarray) -> KernelPrior:
        """The same with other kernels, one for each group, and other inducing points."""

    def posterior(self, natural: Natural) -> KernelPosterior | None: ...

    def at_prior(self, n_latents: int | None) -> KernelPosterior:
        """q = p."""


class Grouped(Value):
    """A prior of groups of one kind, each a prior that is alone or one of several: the kind makes what all share.

    A group's class has, for ``prior``, which is the group itself or the ``SeparatePriors`` that it is one of:

    * ``basis_of(prior, n_latents)``: the basis with the kernels and points of all groups of ``prior``
    * ``posterior_of(prior, natural)``: the posterior with that prior and these natural parameters, or None
    * ``no_sites(shape)``: P and h of sites of precision and linear term 0, as ``with_sites`` takes them, zeros of the
      leading axes ``shape``
    """

    @property
    def groups(self) -> tuple[Any, ...]:
        """The priors of the latent functions: one for all, itself, or one for each."""
        return (self,)

    @property
    def n_inducing(self) -> int:
        return len(self.groups[0].Z)

    def basis(self, n_latents: int | None) -> Basis:
        return self.groups[0].basis_of(self, n_latents)

    def posterior(self, natural: Natural) -> Any:
        """q from its natural parameters, or None if they make none."""
        return self.groups[0].posterior_of(self, natural)

    def at_prior(self, n_latents: int | None) -> Any:
        """q = p."""
        shape = () if n_latents is None else (n_latents,)
        return self.posterior(self.groups[0].with_sites(*self.groups[0].no_sites(shape)))


def grouped(priors: Sequence[Any]) -> KernelPrior:
    """One prior for all latent functions, or one for each."""
    return priors[0] if len(priors) == 1 else SeparatePriors(tuple(priors))


@dataclass(frozen=True, eq=False)
class SeparatePriors(Grouped):
    """A kernel and inducing points, as many, for each latent function.

    Attributes
    ----------
    members : tuple of C priors
    """

    members: tuple[Any, ...]
    key: str = field(default_factory=new_key, init=False, repr=False)

    @property
    def groups(self) -> tuple[Any, ...]:
        return self.members

    @property
    def Z(self) -> np.ndarray:
        """Inducing points (C, m, d)."""
        return np.stack([prior.Z for prior in self.groups])

    @property
    def jitter(self) -> float:
        """The largest of any."""
        return max(prior.jitter for prior in self.groups)

    @property
    def is_full(self) -> bool:
        return self.groups[0].is_full

    def rebuilt(self, specs: Sequence[KernelSpec], Z: np.ndarray) -> SeparatePriors:
        """The same with other kernels and inducing points, one for each group."""
        return SeparatePriors(
            tuple(group.rebuilt([spec], points) for group, spec, points in zip(self.groups, specs, Z, strict=True))
        )

    def with_sites(self, P: np.ndarray, h: np.ndarray) -> Natural:
        return self.groups[0].with_sites(P, h)


class Posterior(Protocol):
    """q of all latent functions: an immutable value."""

    @property
    def prior(self) -> Prior: ...

    @property
    def natural(self) -> Natural: ...

    @property
    def marginalizer(self) -> Marginalizer: ...

    @property
    def kl(self) -> float:
        """KL(q || p) in nats."""

    @property
    def squared_norm(self) -> float:
        """Squared norm of the mean function's distance from the prior's."""

    def kl_to(self, other: Any) -> float:
        """KL(q || other) of two posteriors under the same prior, in nats."""

    def times_mean(self, precision: np.ndarray) -> np.ndarray:
        """The linear term that a precision, as in ``natural``, has at the mean."""


@dataclass(frozen=True, eq=False)
class CovarianceForm:
    """Marginals of a latent function as forms of its prior covariances k = k(Z, x) with points Z.

    Mean ``weights . k``, variance ``max(k(x, x) - |explained k|^2, 0) + |added k|^2``, noise included in k(x, x).

    Attributes
    ----------
    core : compiled kernel at Z (m, d)
    weights : (m,)
    explained, added : (r, m) and (s, m)
    """

    core: InducingKernel
    weights: np.ndarray
    explained: np.ndarray
    added: np.ndarray


class KernelPosterior(Posterior, Protocol):
    """q under a ``KernelPrior``."""

    @property
    def prior(self) -> KernelPrior: ...

    @property
    def n_latents(self) -> int | None: ...

    @property
    def marginalizer_anywhere(self) -> Marginalizer:
        """The marginalizer for other rows than the posterior was made from."""

    @property
    def mean_pair(self) -> Natural:
        """The mean, and the prior's precision times its distance from the prior's mean, shaped as h of ``natural``.

        (mean, K^{-1} mean) of the latent values of a full process; (w, w) where coefficients are whitened, as their
        prior's precision is I. Conjugate gradients that keep such pairs need no K^{-1}.
        """

    def solve(self, residual: np.ndarray) -> Natural:
        """q's covariance times ``residual``, and the prior's precision times that: a pair as ``mean_pair``."""

    def at_mean(self, mean: Natural) -> KernelPosterior:
        """The posterior with q's precision and the mean of a pair as ``mean_pair``."""

    def first_order_gain(self, target: Natural, other: Any) -> float:
        """First-order gain of the bound, in nats, along the line of means and covariances to a posterior under the same
        prior.

        g (mean_other - mean) - tr (P' - P) (covariance_other - covariance) / 2, with the natural parameters ``target``,
        (P', h'), that the sites make: the gradients by mean and covariance are g = h' - h - (P' - P) mean and
        -(P' - P) / 2. It is not negative where the mean goes uphill and the precision towards P'.
        """

    def gradient(
        self, training: Training, sites: StatedSites | GivenSites, natural: Natural
    ) -> tuple[np.ndarray, np.ndarray]:
        """Gradients of the bound at fixed sites, by the kernels' ``theta`` and the inducing points.

        ``natural`` are those that the sites make.
        """

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Points "Z", and natural parameters "eta" and "h": with the kernels, they make the posterior again."""

    def covariance_forms(self) -> list[CovarianceForm]:
        """The marginals of each latent function in its covariances; what several share is the same object."""

    def marginals(self, X: np.ndarray, n_jobs: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance (r,) or (C, r) at the rows of X (r, d)."""

    def covariance(self, X: np.ndarray) -> np.ndarray:
        """Joint covariance (r, r) or (C, r, r) at the rows of X (r, d)."""

    def covariance_bytes(self, n_rows: int) -> float:
        """Memory that ``covariance`` takes of so many rows, beside its argument."""

    def covariance_sums(self, X: np.ndarray, P: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums (r,) over training rows i of C_i t_i and C_i^2 s_i, with the covariances C at the rows of X and at them,
        from what s and t make as precisions and linear terms."""


def cholesky_and_inverse(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Lower Cholesky factor and its inverse, C-contiguous, or None if ``matrix`` is not positive definite.

    Only the lower triangle is read. A row-major lower triangle is a column-major upper one.
    """
    upper, info = lapack.dpotrf(matrix.T, lower=0, clean=1)
    if info or not np.all(np.isfinite(upper)):
        return None
    inverse, info = lapack.dtrtri(upper, lower=0)
    if info:
        return None
    return upper.T, inverse.T


def is_same_prior(one: KernelPrior, other: KernelPrior) -> bool:
    """Whether two priors, built one by one perhaps, have the same kernels at the same points."""
    return len(one.groups) == len(other.groups) and all(
        a is b or (type(a) is type(b) and a.spec.kernel == b.spec.kernel and np.array_equal(a.Z, b.Z))
        for a, b in zip(one.groups, other.groups, strict=True)
    )


def joint_marginals(
    marginalizer: Predictor, X: Any, n_jobs: int | None, shape: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (r,) or, for the shape of C latent functions, (C, r) at the rows of X (r, d)."""
    source = ArraySource(X, cache_bytes=0)
    blocks = source.blocks()
    if len(blocks) == 1:
        with single_threaded_blas():
            mean, variance = marginalizer.marginals(blocks[0])
        return mean.reshape(*shape, -1), variance.reshape(*shape, -1)
    mean, variance = np.empty((2, math.prod(shape), source.n_rows))
    # An executor takes as long to open and close as the prediction of some hundred rows.
    executor = None if is_small(source, marginalizer) else Threads(n_jobs)
    with executor or single_threaded_blas():
        found = executor.map(marginals, source, marginalizer) if executor else map(marginalizer.marginals, blocks)
        for block, (block_mean, block_variance) in zip(blocks, found, strict=True):
            mean[:, block.rows], variance[:, block.rows] = block_mean, block_variance
    return mean.reshape(*shape, -1), variance.reshape(*shape, -1)


def prior_covariance(group: Any, X: np.ndarray) -> np.ndarray:
    """k(X, X) (r, r) of a latent function with the prior ``group`` at rows X (r, d), with noise on the diagonal."""
    covariance = group.spec.at(np.asarray(X, dtype=np.float64)).cross(X)
    np.fill_diagonal(covariance, group.core.diagonals(X))
    return covariance


def joint_covariance(prior: np.ndarray, explained: np.ndarray, added: np.ndarray) -> np.ndarray:
    """K - E E^T + A A^T (r, r), for the covariance K under the prior, E (r, .) and A (r, .).

    The diagonal is kept at least as large as that of A A^T.
    """
    joint = prior - explained @ explained.T + added @ added.T
    joint = 0.5 * (joint + joint.T)
    np.fill_diagonal(joint, np.maximum(np.diag(joint), np.sum(added**2, axis=1)))
    return joint


def groups_of_latents(prior: Any, n_latents: int) -> tuple[Any, ...]:
    """The group of ``prior`` that each latent function belongs to."""
    return prior.groups * n_latents if len(prior.groups) == 1 else prior.groups


class LatentPosterior(Value):
    """A posterior of one latent function, or of C independent ones with a leading axis in the arrays."""

    prior: Any
    natural: Any
    marginalizer_anywhere: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """() for one latent function, else (C,)."""
        return self.natural[1].shape[:-1]

    @property
    def n_latents(self) -> int | None:
        return self.shape[0] if self.shape else None

    @property
    def groups(self) -> tuple[Any, ...]:
        """The prior of each latent function."""
        return groups_of_latents(self.prior, math.prod(self.shape))

    def marginals(self, X: np.ndarray, n_jobs: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance (r,) or (C, r) of the latent functions, with noise, at the rows of X (r, d)."""
        return joint_marginals(self.marginalizer_anywhere, X, n_jobs, self.shape)
