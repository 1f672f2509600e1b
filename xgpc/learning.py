"""What is learned from which rows: growing subsets, a growing number of inducing points, restarts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .hyperparameters import Options, Outcome
from .inducing import conditional_variance_sample
from .inference import CACHE_BYTES, History, Passes, coordinate_ascent
from .kernels import KernelSpec
from .posterior import Prior, SparsePosterior

# Rows of the first subset: this many, or so many for each inducing point. With fewer, kernel parameters and inducing
# points fit the sample: on ringnorm, 2000 rows at m = 100 lead to an optimum that all rows do not lead away from.
FIRST_ROWS = 4000
ROWS_PER_POINT = 40
# Each subset is so many times the one before; the last is all rows, or about so many.
GROWTH = 4
LAST_ROWS = 131_072
# Iterations on a subset that is not the last, and how much earlier than the last it may stop.
SUBSET_ITERATIONS = 50
SUBSET_LOOSENING = 5.0

# n_inducing="auto" doubles them while the bound gains this many nats for each added point, up to the cap.
MAX_INDUCING = 2048
MIN_GAIN = 0.2
# Iterations at a number of inducing points on the way, and the most points that move: beyond, kernel parameters alone
# are learned on the way, as evaluations cost their cube.
GROWING_ITERATIONS = 30
MAX_MOVING = 256

# A kernel parameter this near to the logarithm of a bound has run to it.
AT_BOUND = 1e-3

Scheme = Callable[[Passes, SparsePosterior, int, Options], Outcome]
Sizes = str | None | Sequence[int]


@dataclass(frozen=True)
class Data:
    """Training rows: X (n, d), y (n,) of -1 or +1, weight (n,) or None; and the threads to use."""

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None
    n_jobs: int | None

    def __len__(self) -> int:
        return len(self.y)

    def part(self, rows: np.ndarray | slice) -> Data:
        return Data(self.X[rows], self.y[rows], None if self.weight is None else self.weight[rows], self.n_jobs)

    def passes(self, n_inducing: int, cache_bytes: int = CACHE_BYTES) -> Passes:
        return Passes(self.X, self.y, self.weight, n_inducing, self.n_jobs, cache_bytes)


class Subsets:
    """Nested random subsets of the rows, each with the classes y (n,) in their proportions."""

    def __init__(self, y: np.ndarray, random_state: np.random.RandomState):
        place = np.empty(len(y))
        for label in np.unique(y):
            rows = np.flatnonzero(y == label)
            # Spread evenly over [0, 1) in random order: any stretch has its share of the class.
            place[rows] = (random_state.permutation(len(rows)) + random_state.uniform()) / len(rows)
        self._order = np.argsort(place, kind="stable")

    def rows(self, size: int) -> np.ndarray | slice:
        """Indices of the first ``size`` rows, ascending; a slice of all if there are no more."""
        return slice(None) if size >= len(self._order) else np.sort(self._order[:size])


def subset_sizes(n_rows: int, n_inducing: int, sizes: Sizes) -> list[int]:
    """Sizes of the subsets to learn from, one after the other.

    Parameters
    ----------
    sizes : "auto", None for all rows at once, or an increasing sequence
    """
    if sizes is None:
        return [n_rows]
    if not isinstance(sizes, str):
        return [min(int(size), n_rows) for size in sizes]
    schedule = []
    size = max(FIRST_ROWS, ROWS_PER_POINT * n_inducing)
    # Half the data or more is not worth a stage of its own.
    while 2 * size < min(n_rows, LAST_ROWS):
        schedule.append(size)
        size *= GROWTH
    return [*schedule, min(n_rows, LAST_ROWS)]


def parameters_at_bounds(spec: KernelSpec) -> list[str]:
    """What there is to say of each kernel parameter that has run to one of its bounds."""
    found = []
    for name, value, (low, high) in zip(spec.names, spec.theta, spec.bounds, strict=True):
        for side, bound in (("lower", low), ("upper", high)):
            if low < high and abs(value - bound) < AT_BOUND:
                found.append(f"{name} = {np.exp(value):.4g} is at its {side} bound")
    return found


@dataclass
class Learner:
    """Learns hyperparameters and inducing points, and how many of these, on subsets of the rows.

    Attributes
    ----------
    data : Data
    site : int
    scheme : Scheme, or None: kernel and inducing points stay, posteriors alone are fitted
    options : Options of the last stage
    sizes : as for ``subset_sizes``
    random_state : RandomState
    n_iter : int, iterations of the scheme so far
    """

    data: Data
    site: int
    scheme: Scheme | None
    options: Options
    sizes: Sizes
    random_state: np.random.RandomState
    n_iter: int = 0

    def __post_init__(self) -> None:
        self.subsets = Subsets(self.data.y, self.random_state)
        self.history = self.options.history
        # Stages that are not the last.
        self.early = replace(
            self.options,
            tol=SUBSET_LOOSENING * self.options.tol,
            max_iter=min(SUBSET_ITERATIONS, self.options.max_iter),
        )

    def learn(self, prior: Prior, previous: SparsePosterior | None, grow: bool) -> Outcome:
        """Stages on growing subsets, each from where the one before ended.

        Parameters
        ----------
        prior : where to start
        previous : a posterior whose sites to start from, or None
        grow : whether to add inducing points while they pay

        Returns
        -------
        Outcome of the last stage
        """
        outcome = Outcome(previous or SparsePosterior.at_prior(prior), -np.inf, 0)
        if grow:
            outcome, prior = self._grow(prior, previous)
        # The number of points was chosen on the first subset.
        for size in self._sizes(prior)[grow:]:
            options = self.options if size == self._sizes(prior)[-1] else self.early
            outcome = self._stage(size, prior, outcome.q, options)
            prior = outcome.q.prior
        return outcome

    def _sizes(self, prior: Prior) -> list[int]:
        return subset_sizes(len(self.data), len(prior.Z), self.sizes)

    def _stage(self, size: int, prior: Prior, q: SparsePosterior | None, options: Options) -> Outcome:
        """The scheme on a subset, from the sites that q makes there."""
        if self.scheme is None:
            return self._posterior(size, prior, q)
        data = self.data.part(self.subsets.rows(size))
        self.history.context.update(n_rows=len(data), n_inducing=len(prior.Z))
        with data.passes(len(prior.Z)) as passes:
            start = SparsePosterior.at_prior(prior) if q is None else passes.carry_over(q, prior, self.site)
            outcome = self.scheme(passes, start, self.site, options)
        self.n_iter += outcome.n_iter
        return outcome

    def _posterior(self, size: int, prior: Prior, q: SparsePosterior | None) -> Outcome:
        """The posterior alone on a subset."""
        data = self.data.part(self.subsets.rows(size))
        with data.passes(len(prior.Z)) as passes:
            start = SparsePosterior.at_prior(prior) if q is None else passes.carry_over(q, prior, self.site)
            q, elbo, *_ = coordinate_ascent(
                passes, start, self.site, tol=self.options.tol, max_iter=self.options.max_iter, history=History()
            )
        return Outcome(q, elbo, 0)

    def _grow(self, prior: Prior, q: SparsePosterior | None) -> tuple[Outcome, Prior]:
        """Double the inducing points until the bound, on the first subset for so many, gains too little by it."""
        while True:
            m, sizes = len(prior.Z), self._sizes(prior)
            size, options = sizes[0], self.options
            if len(sizes) > 1:
                options = replace(
                    self.early,
                    max_iter=min(GROWING_ITERATIONS, self.options.max_iter),
                    learn_inducing=self.options.learn_inducing and m <= MAX_MOVING,
                )
            outcome = self._stage(size, prior, q, options)
            prior, q = outcome.q.prior, outcome.q
            candidates = self.data.X[self.subsets.rows(size)]
            points = conditional_variance_sample(prior, candidates, min(m, MAX_INDUCING - m), self.random_state)
            if not len(points):
                reason = f"{m} inducing points are the most there can be"
                self.history.add(elbo=outcome.elbo, decision=reason)
                return outcome, prior
            larger = Prior.build(prior.spec, np.vstack([prior.Z, points]))
            trial = self._posterior(size, larger, q)
            # As many times as much as all rows are more than the subset.
            gain = (trial.elbo - outcome.elbo) / len(points) * max(1.0, len(self.data) / size)
            enough = gain >= MIN_GAIN
            reason = (
                f"{len(points)} more than {m} inducing points raise the bound by {gain:.3g} nats each, "
                f"{'more' if enough else 'less'} than {MIN_GAIN:g}: {'taken' if enough else 'left'}"
            )
            self.history.add(elbo=trial.elbo, gain_per_point=gain, decision=reason)
            if not enough:
                return outcome, prior
            prior, q = larger, trial.q
