"""Mini-batch natural gradients at given hyperparameters."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from .._natural_gradient import SCHEDULES, BatchPart, MovingPrior, NaturalGradient
from .._sites import Site
from ..approximations.base import KernelPosterior, KernelPrior, Training
from ..likelihoods import other_site
from ..rows.executor import Executor, parts_of
from ..rows.source import ArraySource, RowSource
from .ascent import Ascent, at_best_parameter, update
from .options import Options

# Mini-batches averaged into the start of the adaptive rate, whose first averages would else be those of noise.
ADAPTIVE_START = 10
# Iterations of the sliding window over the relative change of the natural parameters (Wenzel et al. 2018, section 5.2).
WINDOW = 5
# Epochs before convergence is tested: with fewer, slow progress (Polya-Gamma on cod-rna, .7 % off) can pass for an end.
MIN_EPOCHS = 2
# Rows of a step in one tile: their whitened rows and scratch stay in the processor's cache.
TILE_ROWS = 512
# A mini-batch of at least twice this many rows is divided into parts of so many rows for threads; a part takes
# milliseconds. Giving parts of fewer rows to threads took longer than it saved.
PART_ROWS = 2048
# Feature values that are copied at a time: a fit to rows in a file never has all of them in memory.
COPIED_VALUES = 2**17
# Multiply-adds of a call of the compiled loop, after which Python handles signals: a tenth of a second.
WORK_PER_CALL = 1e9
# A kind of ``SCHEDULES`` and its two numbers.
Schedule = tuple[int, float, float]


def learning_rate_schedule(learning_rate: str | float | Sequence[float]) -> Schedule:
    """The compiled schedule of a ``learning_rate`` parameter."""
    if isinstance(learning_rate, str):
        return SCHEDULES["adaptive"], ADAPTIVE_START, 0.0
    values = np.ravel(learning_rate)
    if len(values) == 1:
        return SCHEDULES["constant"], float(values[0]), 0.0
    return SCHEDULES["decay"], float(values[0]), float(values[1])


class MiniBatches:
    """The compiled mini-batch loop with its scratch, started at q.

    Parameters
    ----------
    q : KernelPosterior of whitened coefficients
    batch : int, rows of each step
    source : rows that the batches stand for
    schedule : as from ``learning_rate_schedule``
    moving : for each kernel a prior that moves between the steps; empty if q's prior stays

    Attributes
    ----------
    latents : int
    eta, average : natural parameters of the latest iterate, and averaged over iterates
    changes : latest relative changes of the average, at most ``WINDOW``
    """

    def __init__(
        self, q: KernelPosterior, batch: int, source: RowSource, schedule: Schedule, moving: Sequence[MovingPrior] = ()
    ):
        (P, h), tile = q.eta, min(batch, TILE_ROWS)
        m = h.shape[1]
        self.batch, self.latents, self._moving, self._n_features = batch, q.n_latents, list(moving), source.n_features
        kind, a, b = schedule
        if kind == SCHEDULES["adaptive"]:
            a = min(a, source.n_rows // batch)  # The first epoch takes a step, however few its batches.
        self.eta = np.hstack([np.tril(P).reshape(-1, m * m), h]).ravel()  # updated in place
        self._loop = NaturalGradient(m, self.latents, self.eta, (kind, a, b), source.n_rows / batch, self._moving)
        self.average: np.ndarray = self._loop.average
        self.changes: deque[float] = deque(maxlen=WINDOW)
        self._part_rows = parts_of(batch, batch if batch < 2 * PART_ROWS else PART_ROWS)
        shape = m, self.latents, tile, self._n_features, self._moving, len(q.prior.groups)
        self._parts = [BatchPart(*shape) for _ in self._part_rows]

    def run(self, q: KernelPosterior, rows: ArraySource, site: Site, executor: Executor) -> np.ndarray:
        """Take a step for each ``batch`` consecutive rows, under q's prior or the moving priors.

        Returns an array (3, steps): rate, relative change of the average, and estimate of the log-likelihood of all
        rows. The executor works on the parts of a large mini-batch, whose sums are added in their order.
        """
        batches, order = q.prior.mini_batches(rows), np.arange(rows.n_rows)
        records = np.empty((3, len(order) // self.batch))

        def collect(part: tuple[BatchPart, np.ndarray]) -> None:
            self._loop.collect(batches, part[1], site, part[0])

        for step, batch in enumerate(order.reshape(-1, self.batch)):
            info = self._loop.begin_step()
            if info:
                raise ValueError(
                    f"The posterior precision lost definiteness in iteration {self._loop.iteration} (Cholesky, row "
                    f"{info}); scale the features and the sample weights to moderate values."
                )
            parts = list(zip(self._parts, (batch[rows] for rows in self._part_rows), strict=True))
            if len(parts) > 1:
                executor.each(collect, parts)
            else:
                collect(parts[0])
            self._loop.end_step(self._parts, records, step)
        return records

    @property
    def steps_per_call(self) -> int:
        """Steps of a call of ``run``; with moving priors a step takes up to five times the multiply-adds."""
        m, batch = self._loop.n_inducing, self.batch
        work = m * self.latents * (m**2 + 3 * batch * m + batch * self._n_features)
        return max(1, int(WORK_PER_CALL / (5 * work if self._moving else work)))

    def rests(self, changes: np.ndarray, tol: float) -> bool:
        """Add further changes; whether the mean of the latest ones is below ``tol``."""
        self.changes.extend(changes)
        return len(self.changes) == WINDOW and float(np.mean(self.changes)) < tol

    def epoch(
        self, training: Training, q: KernelPosterior, site: Site, options: Options, number: int
    ) -> tuple[float, bool]:
        """Take steps over all rows, freshly shuffled, under q's prior, until the steps are at rest.

        Returns the mean estimate of the log-likelihood, and whether the steps are at rest.
        """
        n, batch, log_likelihoods, rests = training.source.n_rows, self.batch, list[np.ndarray](), False
        rows_per_call = batch * self.steps_per_call
        order = options.random_state.permutation(n)[: n - n % batch].astype(np.intp, copy=False)
        copied = batch * max(1, COPIED_VALUES // (batch * self._n_features))
        for start in range(0, len(order), rows_per_call):
            numbers = order[start : start + rows_per_call]
            parts = (training.source.sample(numbers[i : i + copied]) for i in range(0, len(numbers), copied))
            rate, change, log_likelihood = np.hstack([self.run(q, rows, site, training.executor) for rows in parts])
            options.history.add(epoch=number, learning_rate=rate, change=change, log_likelihood=log_likelihood)
            log_likelihoods.append(log_likelihood)
            rests = self.rests(change[rate > 0.0], options.tol) and number > MIN_EPOCHS
            if rests:
                break
        return float(np.mean(np.concatenate(log_likelihoods))), rests

    def rescale(self, factors: np.ndarray) -> None:
        """Continue with every whitened row of one latent function multiplied by factors (m,)."""
        products = np.append(np.outer(factors, factors).ravel(), factors)
        identity = np.append(np.eye(len(factors)).ravel(), np.zeros(len(factors)))
        for eta in (self.eta, self.average):
            eta[:] = identity + products * (eta - identity)
        self._loop.mean_direction[:] *= products

    def posterior(self, prior: KernelPrior, eta: np.ndarray) -> KernelPosterior:
        """q from natural parameters in the layout of ``eta``."""
        m = self._loop.n_inducing
        parts = eta.reshape(self.latents, m * m + m)
        P, h = parts[:, : m * m].reshape(-1, m, m).copy(), parts[:, m * m :].copy()
        return prior.proper_posterior((P, h))


def batch_rows(batch_size: int | None, n_rows: int) -> int | None:
    """Rows of a mini-batch, or None if every step takes all rows.

    An epoch has two steps or more, because rates are estimated from how gradients differ.
    """
    return None if batch_size is None or batch_size >= n_rows else max(1, min(int(batch_size), n_rows // 2))


# (loop, a posterior with the prior of its steps, the log-likelihood of an epoch, whether the steps are at rest) -> a
# posterior with the prior of the next epoch, and whether the prior is at rest, too
Move = Callable[[MiniBatches, KernelPosterior, float, bool], tuple[KernelPosterior, bool]]


def mini_batch_ascent(
    training: Training, q: KernelPosterior, site: Site, options: Options, move: Move | None = None
) -> Ascent[KernelPosterior]:
    """Mini-batch natural gradients: ``max_iter`` epochs at most, over freshly shuffled rows.

    The estimate is an average of the iterates' natural parameters, see ``_natural_gradient.pyx``. Stops when its
    relative change, averaged over the last ``WINDOW`` iterations, is below ``tol`` (Wenzel et al. 2018, section 5.2),
    or when time is over. After every epoch ``move`` may change the prior.
    """
    n, clock = training.source.n_rows, training.executor.clock
    schedule = learning_rate_schedule(options.learning_rate)
    loop = MiniBatches(q, min(options.batch_size or n, n), training.source, schedule)
    # At the prior, the first epoch uses the bound that gives additive noise its start.
    start = site.record.start
    first_site = site if start is None or np.any(q.eta[1]) else other_site(start, site)
    converged, epoch = False, 0
    while epoch < options.max_iter and not converged and not (epoch and clock.has_passed()):
        epoch += 1
        current = first_site if epoch == 1 else site
        estimate, converged = loop.epoch(training, q, current, options, epoch)
        if move is not None:
            q, converged = move(loop, q, estimate, converged)
        if site.learned and current is site and not converged:
            site, _ = at_best_parameter(site, estimate, training.source.total_weight)
    point = update(training, loop.posterior(q.prior, loop.average), site)
    options.history.add(epoch=epoch, elbo=point.elbo)
    return Ascent(point, epoch, converged)
