"""Mini-batch natural gradients at given hyperparameters."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from . import _engine
from ._engine import Site
from ._svi import SCHEDULES, NaturalGradient
from .inference import History, start_site
from .passes import Passes, best_parameter
from .posterior import AnyPrior, SparsePosterior

# Mini-batches averaged into the start of the adaptive rate.
ADAPTIVE_START = 10
# Iterations of the sliding window over the relative change of the natural parameters (Wenzel et al. 2018, section 5.2).
WINDOW = 5
# Epochs before convergence is looked for: with fewer, a slow fixed point (Polya-Gamma on cod-rna, .7 % off) can pass.
MIN_EPOCHS = 2
# Multiply-adds of the mini-batches between two looks at signals: an interrupt is obeyed within a tenth of a second.
WORK_PER_CALL = 1e9


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
    if values.shape == () and 0.0 < values <= 1.0 and not isinstance(learning_rate, bool | np.bool_):
        return SCHEDULES["constant"], float(values), 0.0
    if values.shape == (2,) and 1.0 <= values[0] < np.inf and 0.5 < values[1] <= 1.0:
        return SCHEDULES["decay"], float(values[0]), float(values[1])
    raise ValueError(
        "learning_rate must be 'adaptive', a constant in (0, 1], or a pair (delay, forgetting) with delay >= 1 and "
        f"0.5 < forgetting <= 1 for the rate (t + delay)^-forgetting; got {learning_rate!r}."
    )


class MiniBatches:
    """The compiled mini-batch loop with its scratch, started at q.

    Attributes
    ----------
    latents : int
    eta, average : natural parameters of the latest iterate, and averaged over iterates
    """

    def __init__(self, passes: Passes, q: SparsePosterior, batch: int, kind: int, a: float, b: float):
        m, d = q.prior.n_inducing, passes.X.shape[1]
        self.passes, self.batch, self.shape = passes, batch, q.shape
        self.latents = math.prod(self.shape)
        parts = [np.tril(q.P).reshape(self.latents, m * m), q.h.reshape(self.latents, m)]
        self.eta = np.concatenate(parts, axis=1).ravel()  # updated in place
        self._loop = NaturalGradient(m, self.latents, self.eta, kind, a, b)
        self._work = _engine.Workspace(batch, m, d, self.latents, len(q.prior.groups))
        self._labels, self._weights = np.empty((2, batch))

    @property
    def average(self) -> np.ndarray:
        return self._loop.average

    def run(self, prior: AnyPrior, rows: np.ndarray, site: Site, *records: np.ndarray) -> None:
        """One step for each batch of ``rows``; ``records`` receive rate, change and log-likelihood of each."""
        passes = self.passes
        info = self._loop.run(
            [group.core for group in prior.groups], passes.X, rows, self.batch,
            np.stack([group.Linv for group in prior.groups]), site, passes.y, passes.weight, float(len(passes.y)),
            self._work, self._labels, self._weights, *records,
        )  # fmt: skip
        if info:
            raise ValueError(
                f"The posterior precision lost definiteness in iteration {self._loop.iteration} (Cholesky, row "
                f"{info}); scale the features and the sample weights to moderate values."
            )

    def posterior(self, prior: AnyPrior, eta: np.ndarray) -> SparsePosterior:
        """q from natural parameters as the loop has them."""
        m = prior.n_inducing
        parts = eta.reshape(self.latents, m * m + m)
        P, h = parts[:, : m * m].reshape(*self.shape, m, m).copy(), parts[:, m * m :].reshape(*self.shape, m).copy()
        q = SparsePosterior.from_natural(prior, P, h)
        if q is None:
            raise ValueError(
                "The posterior precision is not positive definite; scale the sample weights to moderate values."
            )
        return q


def batch_rows(batch_size: int, n_rows: int) -> int:
    """Rows of a mini-batch: two steps an epoch or more, as rates are estimated from how gradients differ."""
    return max(1, min(batch_size, n_rows // 2))


def stochastic(
    passes: Passes,
    q: SparsePosterior,
    site: Site,
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
    n, m = len(X), prior.n_inducing
    batch = min(batch_size, n)
    kind, a, b = schedule
    if kind == SCHEDULES["adaptive"]:
        a = min(a, n // batch)  # The first epoch takes a step, however few its batches.
    loop = MiniBatches(passes, q, batch, kind, a, b)
    steps_per_call = max(1, int(WORK_PER_CALL / (m * loop.latents * (m**2 + 3 * batch * m + batch * X.shape[1]))))
    # From the prior, the first epoch prepares what additive noise starts from.
    first_site = site if np.any(q.h) else start_site(site) or site
    window: list[float] = []
    converged, epoch = False, 0
    while epoch < max_iter and not converged:
        order = random_state.permutation(n)[: n - n % batch].astype(np.intp, copy=False)
        epoch += 1
        current = first_site if epoch == 1 else site
        log_likelihoods: list[np.ndarray] = []
        for first in range(0, len(order) // batch, steps_per_call):
            steps = min(steps_per_call, len(order) // batch - first)
            rate, change, log_likelihood = np.empty((3, steps))
            loop.run(prior, order[first * batch : (first + steps) * batch], current, rate, change, log_likelihood)
            history.add(epoch=epoch, learning_rate=rate, change=change, log_likelihood=log_likelihood)
            window = (window + [c for c, r in zip(change, rate, strict=True) if r > 0.0])[-WINDOW:]
            log_likelihoods.append(log_likelihood)
            if epoch > MIN_EPOCHS and len(window) == WINDOW and np.mean(window) < tol:
                converged = True
                break
        if site.learned and current is site and not converged:
            best_parameter(site, float(np.mean(np.concatenate(log_likelihoods))), passes.total_weight)
    final = loop.posterior(prior, loop.average)
    elbo = passes.update(final, site)[0] - final.kl
    history.add(epoch=epoch, elbo=elbo)
    return final, elbo, epoch, converged
