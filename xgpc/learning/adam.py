"""Adam on kernel parameters and inducing points, beside natural gradients of the posterior: X-GPC's way to learn
(Wenzel et al. 2018), with an end that is tested."""

from __future__ import annotations

from collections import deque

import numpy as np

from .._sites import Site
from ..approximations.base import KernelPosterior, Training
from ..approximations.sparse import SparsePosterior
from ..inference.ascent import update
from ..inference.mini_batch import MiniBatches, batch_rows
from .profile import PATIENCE, Coordinates, Options, Outcome, ProfiledBound, lbfgs, least_bound

# Kingma & Ba 2015, with their constants but the rate. Full batches on pima, german, heart, banana and svmguide1, three
# bounds each, m = 100, rates .03, .05 and .1: .05 ended within half a nat of the best one on 14 of 15, in fewer steps
# than .03; .1 was up to 4.4 nats short.
RATE, BETA_1, BETA_2, EPSILON = 0.05, 0.9, 0.999, 1e-8
# Natural-gradient steps on mini-batches between two steps of Adam, whose gradient is that of all their rows: with the
# latest batch alone, bounds after 50 iterations were .6 to 35 nats lower on german and svmguide1.
NATURAL_STEPS = 10
# Steps of Adam that an iteration has at least: small data have short epochs.
MINI_BATCH_STEPS, FULL_BATCH_STEPS = 10, 20
# Mini-batches end when the mean of the latest estimates of the bound is not above that of the ones before by so many
# standard errors: a rise of twice as many is missed once in twenty times. Full batches then go on.
RISE = 1.645
# Full batches: the rate is halved when an iteration gains too little, so often.
HALVINGS = 3


class Adam:
    """Ascent within limits; ``step`` returns the vector after a step along a gradient."""

    def __init__(self, limits: list[tuple[float | None, float | None]], rate: float):
        self.mean, self.square, self.steps = np.zeros(len(limits)), np.zeros(len(limits)), 0
        self.low = np.array([-np.inf if low is None else low for low, _ in limits])
        self.high = np.array([np.inf if high is None else high for _, high in limits])
        self.rate = rate

    def step(self, vector: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        self.steps += 1
        self.mean += (1.0 - BETA_1) * (gradient - self.mean)
        self.square += (1.0 - BETA_2) * (gradient**2 - self.square)
        mean = self.mean / (1.0 - BETA_1**self.steps)
        square = self.square / (1.0 - BETA_2**self.steps)
        return np.clip(vector + self.rate * mean / (np.sqrt(square) + EPSILON), self.low, self.high)


def adam(
    training: Training,
    start: KernelPosterior,
    site: Site,
    options: Options,
    batch_size: int | None,
    schedule: tuple[int, float, float],
    random_state: np.random.RandomState,
) -> Outcome:
    """Steps of Adam on mini-batches, if there are any, then on all rows until nothing is gained.

    ``max_iter`` counts iterations of both: an epoch, but ``MINI_BATCH_STEPS`` steps of Adam at least; and
    ``FULL_BATCH_STEPS`` steps on all rows. Converged means that neither Adam at reduced rates nor, as a test, five
    iterations of L-BFGS gain more than "profile" asks for.
    """
    n, n_iter = len(training), 0
    learns = bool(Coordinates(start.prior, options.learn_inducing).limits)
    if learns and batch_size is not None and batch_size < n:
        batch = batch_rows(batch_size, n)
        start, site, n_iter = _mini_batches(training, start, site, options, batch, schedule, random_state)  # type: ignore[arg-type]
    function = ProfiledBound(training, site, start, options)
    if not learns:
        return Outcome(function.point, 0)
    n_iter, problem = _full_batches(function, options, n_iter)
    return Outcome(function.point, n_iter, problem)


def _full_batches(function: ProfiledBound, options: Options, n_iter: int) -> tuple[int, str | None]:
    """Steps on the profiled bound at falling rates, each from the best point so far.

    Returns the iterations so far and what they lack, if anything.
    """
    limits, least = function.coordinates.limits, least_bound(function.training)

    def least_gain() -> float:
        return options.tol * max(least, abs(function.value))

    for halvings in range(HALVINGS + 1):
        # Squared gradients are forgotten, too: large ones of the beginning would hold back for a thousand steps.
        optimiser, vector, before = Adam(limits, RATE * 0.5**halvings), function.vector, -np.inf
        while function.value - before > least_gain():
            if n_iter == options.max_iter:
                return n_iter, f"max_iter={n_iter} was reached before tol={options.tol:g} by the optimizer"
            before = function.value
            for _ in range(FULL_BATCH_STEPS):
                vector = optimiser.step(vector, -function(vector)[1])
            n_iter += 1
    before = function.value
    lbfgs(function, function.vector, limits, tol=0.0, max_iter=PATIENCE, max_evaluations=2 * PATIENCE, least=least)
    gain = function.value - before
    if gain > PATIENCE * least_gain():
        return n_iter, f"Adam came to a stop {gain:.2g} nats or more below the optimum"
    return n_iter, None


def _mini_batches(
    training: Training,
    q: SparsePosterior,
    site: Site,
    options: Options,
    batch: int,
    schedule: tuple[int, float, float],
    random_state: np.random.RandomState,
) -> tuple[SparsePosterior, Site, int]:
    """Iterations until the estimates of the bound no longer rise: q at the average of the latest coordinates.

    The whitened posterior is kept when kernel and inducing points move.
    """
    coordinates, n = Coordinates(q.prior, options.learn_inducing), len(training)
    optimiser, vector = Adam(coordinates.limits, RATE), coordinates.pack(q.prior)
    loop = MiniBatches(q, batch, n, training.source.n_features, schedule)
    steps = NATURAL_STEPS * max(MINI_BATCH_STEPS, -(-n // (batch * NATURAL_STEPS)))
    recent: deque[tuple[float, float, np.ndarray]] = deque(maxlen=2 * PATIENCE)
    n_iter = 0

    def average() -> SparsePosterior:
        return _moved(coordinates, np.mean([mean for *_, mean in recent][-PATIENCE:], axis=0), q)

    while n_iter < options.max_iter:
        n_iter += 1
        estimates, log_priors, vectors = [], [], []
        for rows in _shuffled(n, batch * steps, random_state).reshape(-1, NATURAL_STEPS * batch):
            _, _, log_likelihood = loop.run(q, training.source.pick(rows), site)
            q = loop.posterior(q.prior, loop.eta)
            log_prior, by_theta = options.log_prior(q.prior)
            estimates.append(log_likelihood - q.kl)
            log_priors.append(log_prior)
            (d_theta, d_Z), site = _gradient(training, np.sort(rows), q, site)
            vector = optimiser.step(vector, coordinates.pack_gradient(d_theta + by_theta, d_Z))
            q = _moved(coordinates, vector, q)
            vectors.append(coordinates.pack(q.prior))
        variance = float(np.var(estimates)) / np.size(estimates)
        elbo = float(np.mean(estimates))
        recent.append((elbo + float(np.mean(log_priors)), variance, np.mean(vectors, axis=0)))
        options.record(elbo, q.prior, options.log_prior(q.prior)[0], evaluation=n_iter)
        options.reached(average(), site)
        if len(recent) == recent.maxlen and not _rises(recent):
            break
    return average(), site, n_iter


def _rises(recent: deque[tuple[float, float, np.ndarray]]) -> bool:
    """Whether the later half of the estimates is above the earlier one by more than their noise."""
    means, variances = np.array([entry[:2] for entry in recent]).T
    earlier, later = means.reshape(2, -1).mean(axis=1)
    return bool(later - earlier > RISE * np.sqrt(np.sum(variances)) / PATIENCE)


def _shuffled(n: int, size: int, random_state: np.random.RandomState) -> np.ndarray:
    """So many row numbers, permutation after permutation."""
    whole = [random_state.permutation(n) for _ in range(-(-size // n))]
    return np.concatenate(whole)[:size].astype(np.intp, copy=False)


def _gradient(
    training: Training, rows: np.ndarray, q: SparsePosterior, site: Site
) -> tuple[tuple[np.ndarray, np.ndarray], Site]:
    """Estimate of the bound's gradient by kernel parameters and inducing points, at q, from some rows.

    And the site with the best parameter for q and these rows, if that is learned.
    """
    part = training.part(rows, len(training) / len(rows))
    point = update(part, q, site)
    return q.gradient(part, point.sites, point.target), point.site


def _moved(coordinates: Coordinates, vector: np.ndarray, q: SparsePosterior) -> SparsePosterior:
    """q with the prior at a vector; q itself where that prior's covariance matrix cannot be factorised."""
    try:
        prior = coordinates.prior(vector)
    except ValueError:
        return q
    return SparsePosterior.from_natural(prior, q.P, q.h) or q
