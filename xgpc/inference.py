"""Inference at given hyperparameters: full-batch coordinate ascent and mini-batch natural gradients."""

from __future__ import annotations

import time
from collections.abc import Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import Any

import numpy as np

from . import _engine
from ._svi import SCHEDULES, NaturalGradient
from .blocks import BlockMap
from .kernels import KernelGradient
from .posterior import Prior, SparsePosterior

# The whitened rows A (n, m) are kept between passes at the same hyperparameters while they take less than this: they
# are 40 % of a pass. Beyond it memory stays O(n + m^2) and every pass projects again.
CACHE_BYTES = 2**29
# A fall of the bound below this share of it is round-off, not a step too long.
ROUND_OFF = 1e-11
# Halvings of a step before the natural gradient, an ascent direction, is taken to vanish to working precision.
MAX_HALVINGS = 12
# Failed steps after which one of another site is tried: Polya-Gamma's own bound cannot fall by its unit step.
FALLBACK_AFTER = 3
FALLBACK = {_engine.SITES["logit", "exact"]: _engine.SITES["logit", "polya-gamma"]}
# Mini-batches averaged into the start of the adaptive rate.
ADAPTIVE_START = 10
# Iterations of the sliding window over the relative change of the natural parameters (Wenzel et al. 2018, section 5.2).
WINDOW = 5
# Epochs before convergence is looked for: with fewer, a slow fixed point (Polya-Gamma on cod-rna, .7 % off) can pass.
MIN_EPOCHS = 2
# Multiply-adds of the mini-batches between two looks at signals: an interrupt is obeyed within a tenth of a second.
WORK_PER_CALL = 1e9


class Passes:
    """Passes over the training rows: each is a sum over blocks, added in the blocks' order.

    Parameters
    ----------
    X : (n, d) float32 or float64, any strides
    y : (n,) float64, -1 or +1
    weight : (n,) float64, positive, or None for ones
    n_inducing : int, m
    n_jobs : int or None
    cache_bytes : int, memory that the whitened rows may take

    Attributes
    ----------
    mean, variance, precision, linear : (n,) float64
        Marginals and sites of the latest pass.
    target : (P, h)
        Natural parameters that the sites of the latest pass make.
    """

    def __init__(
        self,
        X: np.ndarray,
        y: np.ndarray,
        weight: np.ndarray | None,
        n_inducing: int,
        n_jobs: int | None = None,
        cache_bytes: int = CACHE_BYTES,
    ):
        n, d = X.shape
        self.X, self.y, self.n_jobs = X, y, n_jobs
        self.weight = np.empty(0) if weight is None else weight
        self.mean, self.variance, self.precision, self.linear = np.zeros((4, n))
        self._blocks = BlockMap(n, n_inducing, d, n_jobs)
        self._cache = np.empty(n * n_inducing if 8 * n * n_inducing <= cache_bytes else 0)
        self._cached_prior: Prior | None = None
        self._free: SimpleQueue[tuple[np.ndarray, np.ndarray]] = SimpleQueue()
        for _ in range(self._blocks.n_alive):
            self._free.put((np.zeros((n_inducing, n_inducing)), np.zeros(n_inducing)))

    def __enter__(self) -> Passes:
        self._blocks.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._blocks.__exit__(kind, error, trace)

    def _is_cached(self, prior: Prior) -> bool:
        return prior is self._cached_prior

    def _remember(self, prior: Prior) -> None:
        self._cached_prior = prior if len(self._cache) else None

    def _sum(self, prior: Prior, block_statistics) -> tuple[float, np.ndarray, np.ndarray]:
        """Sum of the blocks' (ell, P, h), plus the prior's precision I."""
        m = len(prior.Z)
        total, P, h = 0.0, np.eye(m), np.zeros(m)

        def task(start, stop, work):
            buffers = self._free.get()
            return block_statistics(start, stop, work, *buffers), buffers

        for ell, buffers in self._blocks(task):
            total += ell
            P += buffers[0]
            h += buffers[1]
            self._free.put(buffers)
        self._remember(prior)
        self.target = P, h
        return total, P, h

    def update(self, q: SparsePosterior, site: int) -> tuple[float, np.ndarray, np.ndarray]:
        """Marginals and sites under q; returns sum of ell and the natural parameters (P, h) of the unit step.

        O(n (m^2 + m d)); P is a lower triangle.
        """
        prior, cached = q.prior, self._is_cached(q.prior)
        return self._sum(
            prior,
            lambda start, stop, work, P, h: _engine.update_block(
                prior.core, self.X, self._cache, cached, start, stop, prior.Linv, q.Rinv, q.w, site, self.y,
                self.weight, work, self.mean, self.variance, self.precision, self.linear, P, h,
            ),
        )  # fmt: skip

    def statistics(self, prior: Prior) -> tuple[np.ndarray, np.ndarray]:
        """Natural parameters (P, h) of the sites of the latest pass under a new prior."""
        cached = self._is_cached(prior)

        def block(start, stop, work, P, h):
            _engine.statistics_block(
                prior.core,
                self.X,
                self._cache,
                cached,
                start,
                stop,
                prior.Linv,
                self.precision,
                self.linear,
                work,
                P,
                h,
            )
            return 0.0

        return self._sum(prior, block)[1:]

    def carry_over(self, q: SparsePosterior, prior: Prior, site: int) -> SparsePosterior:
        """Where to start under ``prior`` from q, of whatever rows: the posterior that the sites under q make here.

        q itself if it has that prior, as the first update makes the same sites of it.
        """
        if q.prior is prior:
            return q
        self.mean[:], self.variance[:] = q.marginals(self.X, self.n_jobs)
        ell = np.empty(len(self.mean))
        _engine.sites(site, self.mean, self.variance, self.y, self.weight, ell, self.precision, self.linear)
        return SparsePosterior.from_natural(prior, *self.statistics(prior)) or SparsePosterior.at_prior(prior)

    def gradient(self, q: SparsePosterior, M: np.ndarray, alpha: np.ndarray) -> KernelGradient:
        """Contraction of dF/dK_nm and dF/dk_ii with the kernel's derivatives, under q and the latest sites."""
        prior, cached = q.prior, self._is_cached(q.prior)
        total = KernelGradient.empty(prior.core)

        def task(start, stop, work):
            part = KernelGradient.empty(prior.core)
            _engine.gradient_of_block(
                prior.core, self.X, self._cache, cached, start, stop, prior.Linv, M, alpha, q.w,
                self.precision, self.linear, work, *part.arrays,
            )  # fmt: skip
            return part

        for part in self._blocks(task):
            total += part
        self._remember(prior)
        return total


class History:
    """Rows of named values, collected during a fit and handed out as a dict of arrays.

    Attributes
    ----------
    context : dict
        Values that every row gets until they are changed.
    """

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._parts: list[dict[str, Any]] = []
        self.context: dict[str, Any] = {}

    def add(self, **columns: Any) -> None:
        """One row, or several at once: arrays with a row for each, other values repeated."""
        self._parts.append({"seconds": time.perf_counter() - self._start, **self.context, **columns})

    def arrays(self) -> dict[str, np.ndarray]:
        """One array a column, its first axis the rows; NaN, or an empty string, where a row lacks it."""
        example = {name: np.asarray(value) for part in self._parts for name, value in part.items()}
        lengths = [max(len(np.atleast_1d(value)) for value in part.values()) for part in self._parts]
        columns = {}
        for name, value in example.items():
            missing = np.full(value.shape[1:], "" if value.dtype.kind == "U" else np.nan)
            columns[name] = np.concatenate(
                [
                    np.broadcast_to(part.get(name, missing), (length, *missing.shape))
                    for part, length in zip(self._parts, lengths, strict=True)
                ]
            )
        return columns


def tolerance_unit(elbo: float) -> float:
    """What a tolerance of one means: a nat, or a thousandth of the bound if that is more."""
    return max(1.0, 1e-3 * abs(elbo))


def is_small(gain: float, elbo: float, tol: float) -> bool:
    """Whether a gain of the bound, in nats, counts as none."""
    return gain < tol * tolerance_unit(elbo)


def kl_divergence(q: SparsePosterior, p: SparsePosterior) -> float:
    """KL(q || p) of two posteriors under the same prior, in nats; O(m^3)."""
    log_det = 2.0 * np.sum(np.log(np.diag(p.R))) - 2.0 * np.sum(np.log(np.diag(q.R)))
    distance = p.R.T @ (p.w - q.w)
    return float(0.5 * (np.sum((q.Rinv @ p.R) ** 2) - len(q.w) + distance @ distance - log_det))


def objective(passes: Passes, q: SparsePosterior, site: int, log_likelihood: float) -> tuple[float, float]:
    """The bound, and what the updates of the site ascend, under q after a pass that summed ``log_likelihood``.

    Both are the same but for the Taylor expansion, which is no bound: its updates are Newton steps on the log joint
    density at the mean.
    """
    elbo = log_likelihood - q.kl
    if site != _engine.SITES["logit", "taylor"]:
        return elbo, elbo
    return elbo, log_likelihood + 0.5 * float(passes.precision @ passes.variance) - 0.5 * float(q.w @ q.w)


def natural_step(q: SparsePosterior, target: tuple[np.ndarray, np.ndarray], rate: float) -> SparsePosterior | None:
    """q with natural parameters (1 - rate) eta + rate target: an interpolation of the sites."""
    P, h = target
    if rate != 1.0:
        P, h = q.P + rate * (P - q.P), q.h + rate * (h - q.h)
    return SparsePosterior.from_natural(q.prior, P, h)


def coordinate_ascent(
    passes: Passes,
    q: SparsePosterior,
    site: int,
    *,
    tol: float,
    max_iter: int,
    history: History,
) -> tuple[SparsePosterior, float, int, bool]:
    """Full-batch natural-gradient ascent with unit steps, safeguarded.

    A step that lowers the bound is halved (the sites interpolated between old and new); after ``FALLBACK_AFTER``
    failures one Polya-Gamma step is tried in its place.

    Returns
    -------
    q, elbo, n_iter, converged
        ``passes`` holds the marginals and sites of the returned q.
    """
    elbo, value = objective(passes, q, site, passes.update(q, site)[0])
    target = passes.target
    history.add(iteration=0, elbo=elbo, learning_rate=np.nan)
    rate, failures = 1.0, 0
    for iteration in range(1, max_iter + 1):
        if failures == FALLBACK_AFTER and site in FALLBACK:
            passes.update(q, FALLBACK[site])
            trial = natural_step(q, passes.target, 1.0)
        else:
            trial = natural_step(q, target, rate)
        # What a conjugate bound would gain by the step; no pass over the data for less than the tolerance.
        if failures == 0 and trial is not None and is_small(kl_divergence(q, trial), elbo, tol):
            return q, elbo, iteration - 1, True
        gain = -np.inf
        if trial is not None:
            trial_elbo, trial_value = objective(passes, trial, site, passes.update(trial, site)[0])
            gain = trial_value - value
        if trial is None or not gain >= 0.0:
            if gain >= -ROUND_OFF * max(1.0, abs(value)) or failures == MAX_HALVINGS:
                passes.update(q, site)
                return q, elbo, iteration, True
            failures += 1
            rate *= 0.5
            continue
        q, elbo, value, target = trial, trial_elbo, trial_value, passes.target
        history.add(iteration=iteration, elbo=elbo, learning_rate=rate)
        if is_small(gain, elbo, tol) and failures == 0:
            return q, elbo, iteration, True
        rate, failures = 1.0, 0
    if failures:
        passes.update(q, site)
    return q, elbo, max_iter, False


def learning_rate_schedule(learning_rate: str | float | Sequence[float]) -> tuple[int, float, float]:
    """The compiled schedule of a ``learning_rate`` parameter.

    Raises
    ------
    ValueError
        If it is none of "adaptive", a number in (0, 1], or a pair (delay, forgetting).
    """
    if isinstance(learning_rate, str):
        values = np.empty(0)
        if learning_rate == "adaptive":
            return SCHEDULES["adaptive"], ADAPTIVE_START, 0.0
    else:
        try:
            values = np.asarray(learning_rate, dtype=np.float64)
        except (TypeError, ValueError):
            values = np.empty(0)
    if values.shape == () and 0.0 < values <= 1.0:
        return SCHEDULES["constant"], float(values), 0.0
    if values.shape == (2,) and 1.0 <= values[0] < np.inf and 0.5 < values[1] <= 1.0:
        return SCHEDULES["decay"], float(values[0]), float(values[1])
    raise ValueError(
        "learning_rate must be 'adaptive', a constant in (0, 1], or a pair (delay, forgetting) with delay >= 1 and "
        f"0.5 < forgetting <= 1 for the rate (t + delay)^-forgetting; got {learning_rate!r}."
    )


def stochastic(
    passes: Passes,
    q: SparsePosterior,
    site: int,
    *,
    batch_size: int,
    schedule: tuple[int, float, float],
    tol: float,
    max_iter: int,
    random_state: np.random.RandomState,
    history: History,
) -> tuple[SparsePosterior, float, int, bool]:
    """Mini-batch natural gradients: ``max_iter`` epochs at most, over freshly shuffled rows.

    The estimate is an average of the iterates' natural parameters, see ``src/xgpc/_svi.pyx``. Stops when its relative
    change, averaged over the last ``WINDOW`` iterations, is below
    ``tol`` (Wenzel et al. 2018, section 5.2).

    Returns
    -------
    q, elbo, n_epochs, converged
        The bound is that of all rows; ``passes`` holds their marginals and sites under q.
    """
    prior, X = q.prior, passes.X
    n, m = len(X), len(prior.Z)
    batch = min(batch_size, n)
    kind, a, b = schedule
    if kind == SCHEDULES["adaptive"]:
        a = min(a, n // batch)  # The first epoch takes a step, however few its batches.
    loop = NaturalGradient(m, np.concatenate([q.P.ravel(), q.h]), kind, a, b)
    work = _engine.Workspace(batch, m, X.shape[1])
    labels, weights = np.empty(batch), np.empty(batch)
    steps_per_call = max(1, int(WORK_PER_CALL / (m * (m**2 + 3 * batch * m + batch * X.shape[1]))))
    window: list[float] = []
    converged, epoch = False, 0
    while epoch < max_iter and not converged:
        order = random_state.permutation(n)[: n - n % batch].astype(np.intp, copy=False)
        epoch += 1
        for first in range(0, len(order) // batch, steps_per_call):
            steps = min(steps_per_call, len(order) // batch - first)
            rate, change, log_likelihood = np.empty((3, steps))
            info = loop.run(
                prior.core, X, order[first * batch : (first + steps) * batch], batch, prior.Linv, site, passes.y,
                passes.weight, float(n), work, labels, weights, rate, change, log_likelihood,
            )  # fmt: skip
            if info:
                raise ValueError(
                    f"The posterior precision lost definiteness in iteration {loop.iteration} (Cholesky, row {info}); "
                    "scale the features and the sample weights to moderate values."
                )
            history.add(epoch=epoch, learning_rate=rate, change=change, log_likelihood=log_likelihood)
            window = (window + [c for c, r in zip(change, rate, strict=True) if r > 0.0])[-WINDOW:]
            if epoch > MIN_EPOCHS and len(window) == WINDOW and np.mean(window) < tol:
                converged = True
                break
    final = SparsePosterior.from_natural(prior, loop.average[: m * m].reshape(m, m), loop.average[m * m :])
    if final is None:
        raise ValueError(
            "The posterior precision is not positive definite; scale the sample weights to moderate values."
        )
    elbo = passes.update(final, site)[0] - final.kl
    history.add(epoch=epoch, elbo=elbo)
    return final, elbo, epoch, converged
