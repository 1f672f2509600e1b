"""Stages of learning: growing subsets of the rows, growing numbers of inducing points, and restarts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .._sites import Site
from ..approximations.base import KernelPosterior, KernelPrior, Training
from ..inference.ascent import coordinate_ascent, tolerance_unit, update
from ..inference.history import History
from ..inference.mini_batch import learning_rate_schedule
from ..inference.prior_mean import OF_SITE, PriorMean
from ..inference.progress import BestSoFar, Progress, State
from ..inference.run import Run
from ..inference.starts import starting_posterior
from ..kernels.default import STARTS, other_start
from ..rows.deadline import OutOfTime, during
from ..rows.source import dense
from .inducing import MAX_INDUCING, with_more_points
from .profile import Options, Outcome
from .schemes import SCHEMES
from .start import Data, HyperparameterFit, InitialState

# Rows of the first subset, or rows for each inducing point. With 2000 rows and m = 100, ringnorm was overfitted and
# reached an optimum that all rows did not leave.
FIRST_ROWS = 4000
ROWS_PER_POINT = 40
# Each subset has this many times the rows of the one before; the last has all rows, or about LAST_ROWS.
GROWTH = 4
LAST_ROWS = 131_072
# Limits on a subset before the last: SUBSET_FACTOR times the last subset's iterations on the first subset, as many as
# take the same time on later ones, and SUBSET_ITERATIONS at most. SUBSET_LOOSENING multiplies the tolerance.
SUBSET_ITERATIONS = 50
SUBSET_FACTOR = 10
SUBSET_LOOSENING = 5.0

# With at most this many rows, learning starts from the best of several kernels, whose bounds are computed to within
# this many nats; each start takes a few passes, a tenth of the time of learning.
ROWS_OF_STARTS, NATS_OF_STARTS = 4000, 0.3

# Mini-batches start from the posterior of this many rows, weighted to stand for all: both starts of logistic-softmax
# take 113 passes, which was 1.6 s of a fit of 8.5 s with all 5000 rows.
ROWS_BEFORE_BATCHES = 1000

# n_inducing="auto" doubles the points while each added point raises the bound on a subset by this many nats before
# further learning (on magic, learning then gained four times as much).
MIN_GAIN = 0.05
# The posterior with more points is fitted to this share of the required gain.
TRIAL_SHARE = 0.1
# Iterations for a number of points on the way. Beyond MAX_MOVING points only kernel parameters are learned, with fewer
# iterations and fewer rows for each point, because few parameters need few rows.
GROWING_ITERATIONS = 30
MAX_MOVING = 256
ROWS_PER_FIXED_POINT = 10
MIN_ITERATIONS = 4

Scheme = Callable[..., Outcome]
Sizes = str | None | Sequence[int]


class Subsets:
    """Nested random subsets of the rows that keep the proportions of the classes y (n,)."""

    def __init__(self, y: np.ndarray, random_state: np.random.RandomState):
        place = np.empty(len(y))
        for label in np.unique(y):
            rows = np.flatnonzero(y == label)
            # Places of a class are spread evenly over [0, 1) in random order, so that each interval holds its share of
            # the class.
            place[rows] = (random_state.permutation(len(rows)) + random_state.uniform()) / len(rows)
        self._order = np.argsort(place, kind="stable")

    def rows(self, size: int) -> np.ndarray | None:
        """Indices of the first ``size`` rows, ascending; None if these are all rows."""
        return None if size >= len(self._order) else np.sort(self._order[:size])


def subset_sizes(n_rows: int, n_inducing: int, sizes: Sizes) -> list[int]:
    """Sizes of the successive subsets to learn from.

    Parameters
    ----------
    sizes : "auto", None for all rows at once, or an increasing sequence
    """
    if sizes is None:
        return [n_rows]
    if not isinstance(sizes, str):
        return sorted({min(int(size), n_rows) for size in sizes})
    schedule = []
    size = max(FIRST_ROWS, ROWS_PER_POINT * n_inducing)
    # A subset of half the rows or more is not worth a stage of its own.
    while 2 * size < min(n_rows, LAST_ROWS):
        schedule.append(size)
        size *= GROWTH
    return [*schedule, min(n_rows, LAST_ROWS)]


def growing_size(n_rows: int, n_inducing: int, sizes: Sizes) -> int:
    """Number of rows on which a number of inducing points is judged; arguments as for ``subset_sizes``."""
    if sizes is None or not isinstance(sizes, str):
        return subset_sizes(n_rows, n_inducing, sizes)[0]
    rows = max(FIRST_ROWS, ROWS_PER_POINT * min(n_inducing, MAX_MOVING), ROWS_PER_FIXED_POINT * n_inducing)
    return min(n_rows, LAST_ROWS, rows)


@dataclass
class Learner:
    """Learns hyperparameters, inducing points and their number on subsets of the rows.

    Attributes
    ----------
    training : Training
    site : Site to start with; ``learn`` returns the updated one
    scheme : Scheme, or None to keep kernel and inducing points and fit posteriors only
    options : Options of the last stage
    sizes : as for ``subset_sizes``
    random_state : RandomState
    n_iter : int, iterations of the scheme so far
    progress : Progress, which receives every improvement
    prior_mean : PriorMean, gives the sites' prior mean at the start of a stage
    start_rows : int, most rows for the first posterior of a stage; None: all
    """

    training: Training
    site: Site
    scheme: Scheme | None
    options: Options
    sizes: Sizes
    random_state: np.random.RandomState
    n_iter: int = 0
    progress: Progress = field(default_factory=Progress)
    prior_mean: PriorMean = OF_SITE
    start_rows: int | None = None
    state: State | None = None

    def __post_init__(self) -> None:
        self.subsets = Subsets(self.training.source.labels(), self.random_state)
        self.history = self.options.history
        # Options of the stages before the last.
        self.early = replace(
            self.options,
            tol=SUBSET_LOOSENING * self.options.tol,
            max_iter=min(SUBSET_ITERATIONS, SUBSET_FACTOR * self.options.max_iter),
        )

    def learn(self, prior: KernelPrior, previous: KernelPosterior | None, grow_to: int, done: int = 0) -> Outcome:
        """Learn in stages on growing subsets; each stage starts from the result of the one before.

        Parameters
        ----------
        prior : initial prior
        previous : a posterior whose sites to start from, or None
        grow_to : largest number of inducing points if points may be added while they pay, else 0
        done : size of the subset that a resumed fit had reached; smaller subsets are skipped

        Returns
        -------
        Outcome of the last stage
        """
        q, site = previous, self.site
        if grow_to:
            outcome, size = self._grow(prior, previous, grow_to)
            prior, q, site = outcome.q.prior, outcome.q, outcome.site
            sizes = self._sizes_after(size, prior)
        else:
            sizes = subset_sizes(len(self.training), prior.n_inducing, self.sizes)
            sizes = [size for size in sizes if size >= done] or sizes[-1:]
        for size in sizes:
            options = self.options if size == sizes[-1] else self._early_options(sizes[0], size)
            outcome = self._stage(size, prior, q, site, options)
            prior, q, site = outcome.q.prior, outcome.q, outcome.site
        return outcome

    def _early_options(self, first: int, size: int) -> Options:
        """Options for a subset of ``size`` rows before the last one; the first subset has ``first`` rows."""
        most = max(self.options.max_iter, SUBSET_FACTOR * self.options.max_iter * first // size)
        return replace(self.early, max_iter=min(self.early.max_iter, most))

    def best_start(self, prior: KernelPrior) -> Outcome:
        """Try the start kernel times each of ``STARTS``; return the posterior with the highest bound plus log prior."""
        size = min(subset_sizes(len(self.training), prior.n_inducing, self.sizes)[0], self.start_rows or LAST_ROWS)
        priors = [prior.rebuilt([other_start(group.spec, one) for group in prior.groups], prior.Z) for one in STARTS]
        found = [self._posterior(size, other, None, self.site, NATS_OF_STARTS) for other in priors]
        values = [outcome.point.elbo + self.options.log_prior(outcome.q.prior)[0] for outcome in found]
        best = int(np.argmax(values))
        if best:
            length_scale, variance = STARTS[best]
            told = (
                f"Learning starts with {length_scale:g} times the usual length scales and {variance:g} times the usual "
                f"variance: their bound is the highest of {len(STARTS)} starts."
            )
            self.history.tell(decision=told)
        return found[best]

    def comparable(self, outcome: Outcome) -> float:
        """The bound plus log prior on the last stage's rows, so that results from other rows can be compared."""
        prior = outcome.q.prior
        size = subset_sizes(len(self.training), prior.n_inducing, self.sizes)[-1]
        return self._posterior(size, prior, outcome.q, outcome.site).point.elbo + self.options.log_prior(prior)[0]

    def _begin(self, n_rows: int, n_inducing: int) -> None:
        """Tell the history that a stage with this many rows and points begins."""
        self.history.context.update(n_rows=n_rows, n_inducing=n_inducing)
        self.history.tell(stage="learning", **self.history.context)

    def _sizes_after(self, size: int, prior: KernelPrior) -> list[int]:
        """Subsets that remain after the number of points was chosen on ``size`` rows."""
        # Without a scheme nothing is learned; with many points the iterations that they can afford are used up.
        if self.scheme is None or prior.n_inducing > MAX_MOVING:
            return []
        return [larger for larger in subset_sizes(len(self.training), prior.n_inducing, self.sizes) if larger > size]

    def _stage(
        self,
        size: int,
        prior: KernelPrior,
        q: KernelPosterior | None,
        site: Site,
        options: Options,
        is_growing: bool = False,
    ) -> Outcome:
        """Run the scheme on a subset, starting from the sites under q."""

        def reached(q: KernelPosterior, site: Site, state: State | None = None) -> None:
            self.progress.update(BestSoFar(q, site, size, is_growing, state=state))

        with during(f"learning with {prior.n_inducing} inducing points on {size} rows"):
            if self.scheme is None:
                outcome = self._posterior(size, prior, q, site)
            else:
                part = self.training.part(self.subsets.rows(size))
                self._begin(len(part), prior.n_inducing)
                moves = options.learn_inducing and not _are_all_rows(prior, part)
                options = replace(options, reached=reached, learn_inducing=moves, state=self.state)
                self.state = None
                site = self.prior_mean.site(site, prior)
                few = part
                if q is None and self.start_rows is not None and self.start_rows < len(part):
                    few = self.training.part(self.subsets.rows(self.start_rows), len(part) / self.start_rows)
                outcome = self.scheme(part, starting_posterior(few, q, prior, site), site, options)
        reached(outcome.q, outcome.site, outcome.state)
        self.n_iter += outcome.n_iter
        return outcome

    def _posterior(
        self, size: int, prior: KernelPrior, q: KernelPosterior | None, site: Site, nats: float | None = None
    ) -> Outcome:
        """Fit only the posterior on a subset, to within ``nats`` of its bound."""
        part, site = self.training.part(self.subsets.rows(size)), self.prior_mean.site(site, prior)
        first = update(part, starting_posterior(part, q, prior, site), site)
        tol = self.options.tol if nats is None else nats / tolerance_unit(first.log_likelihood)
        history, most = History(), self.options.max_iter
        return Outcome(
            coordinate_ascent(part, first.q, site, tol=tol, max_iter=most, history=history, first=first).point, 0
        )

    def _grow(self, prior: KernelPrior, q: KernelPosterior | None, most: int) -> tuple[Outcome, int]:
        """Double the inducing points, up to ``most``, until the bound on a subset gains too little.

        Returns the outcome for the final number of points and the size of its subset.
        """
        site, began, fitted = self.site, self.history.seconds, None
        while True:
            m = prior.n_inducing
            size = growing_size(len(self.training), m, self.sizes)
            options = self._growing_options(prior, size)
            outcome = fitted or self._stage(size, prior, q, site, options, is_growing=True)
            took = self.history.seconds - began
            if m > MAX_MOVING:
                # This iteration limit is the library's, so the user is not warned of it.
                outcome = replace(outcome, problem=None)
            prior, q, site = outcome.q.prior, outcome.q, outcome.site
            self._begin(size, m)
            part = self.training.part(self.subsets.rows(size))
            candidates = part.source.sample(np.arange(len(part))).rows
            larger = with_more_points(prior, candidates, max(0, min(m, most - m)), self.random_state)
            more = larger.n_inducing - m
            if not more:
                reason = f"No more inducing points were tried: {m} are the most that these rows allow."
                self.history.add(elbo=outcome.point.elbo, decision=reason)
                return outcome, size
            expected = took * self._relative_cost(outcome, larger)
            told = (
                f"Learning with {m} inducing points took {took:.2g} s; with {m + more}, tried next, it may take "
                f"{expected:.2g} s."
            )
            self.history.tell(decision=told)
            nats = TRIAL_SHARE * MIN_GAIN * more * len(prior.groups)
            try:
                # Converge the posterior at these points first; otherwise the new points would be credited with its
                # remaining gain.
                before = outcome if self.scheme is None else self._posterior(size, prior, q, site, nats)
                started = self.history.seconds
                trial = self._posterior(size, larger, before.q, before.site, nats)
            except OutOfTime:
                # Fewer points may still leave time for the posterior of all rows.
                self.progress.skip(f"the trial of {larger.n_inducing} inducing points", self.history)
                return outcome, size
            gain = (trial.point.elbo - before.point.elbo) / (more * len(prior.groups))
            enough = gain >= MIN_GAIN
            whose = " and class" if len(prior.groups) > 1 else ""
            verdict = "taken" if enough else f"not taken, as at least {MIN_GAIN:g} is required"
            total = gain * more * len(prior.groups)
            reason = (
                f"Adding {more} inducing points to {m} changes the bound by {total:+.3g} nats, "
                f"{gain:+.3g} for each new point{whose}: {verdict}."
            )
            self.history.add(elbo=trial.point.elbo, gain_per_point=gain, decision=reason)
            if not enough:
                return outcome, size
            prior, q, site = trial.q.prior, trial.q, trial.site
            # Without a scheme the trial equals the next stage on the same rows, so it is reused (.72 s instead of .95 s
            # for 1000 points and rows of magic).
            is_next = self.scheme is None and growing_size(len(self.training), m + more, self.sizes) == size
            began, fitted = (started, trial) if is_next else (self.history.seconds, None)

    def _relative_cost(self, outcome: Outcome, larger: KernelPrior) -> float:
        """Estimated time of the next growing stage, relative to this one, for as many iterations or their limit.

        A pass takes two products with m x m matrices, one to sum them, and the kernel with d features.
        """

        def of_pass(prior: KernelPrior) -> float:
            m, d = prior.n_inducing, self.training.source.n_features
            return growing_size(len(self.training), m, self.sizes) * m * (3.0 * m + 2.0 * d)

        size = growing_size(len(self.training), larger.n_inducing, self.sizes)
        iterations = min(1.0, self._growing_options(larger, size).max_iter / max(1, outcome.n_iter))
        return iterations * of_pass(larger) / of_pass(outcome.q.prior)

    def _growing_options(self, prior: KernelPrior, size: int) -> Options:
        """Options for a subset of ``size`` rows while the number of points may still grow."""
        m = prior.n_inducing
        if m > MAX_MOVING:
            iterations = min(self.options.max_iter, max(MIN_ITERATIONS, GROWING_ITERATIONS * MAX_MOVING // m))
            return replace(self.early, learn_inducing=False, max_iter=iterations)
        if not self._sizes_after(size, prior):
            return self.options
        return replace(self.early, max_iter=min(GROWING_ITERATIONS, self.options.max_iter))


def _are_all_rows(prior: KernelPrior, training: Training) -> bool:
    """Whether every row is an inducing point of every kernel, so that moving points cannot raise the bound."""
    if len(training) > MAX_INDUCING:
        return False
    rows = dense(training.source.sample(np.arange(len(training))).X)
    return all(len(np.unique(np.vstack([group.Z, rows]), axis=0)) <= len(group.Z) for group in prior.groups)


def learn_in_stages(
    data: Data, run: Run, initial: InitialState, most_iterations: int | None = None
) -> HyperparameterFit:
    """Learn hyperparameters and inducing points from all starts, and return the best result.

    ``most_iterations`` limits each stage; it is the library's limit, so the user is not warned if it is reached.
    """
    if data.config.optimizer is None and not initial.grow_to:
        return HyperparameterFit(initial, initial.previous, initial.prior, initial.site)
    scheme, prior, random_state = None, initial.prior, run.random_state
    if data.config.optimizer is not None:
        schedule = learning_rate_schedule(data.config.learning_rate)
        scheme = SCHEMES[data.config.optimizer].bind(data.config.batch_size, schedule, random_state)
    full = prior.is_full
    max_iter = data.config.max_iter if most_iterations is None else min(most_iterations, data.config.max_iter)
    options = Options(
        data.config.learn_inducing and not full,
        data.config.tol,
        max_iter,
        run.history,
        length_scale_prior=initial.length_scale_prior,
    )
    # Mini-batches need no subsets, and a full Gaussian process always uses all rows.
    sizes = None if data.config.learns_in_batches or full else data.config.subset_sizes
    start_rows = ROWS_BEFORE_BATCHES if data.config.learns_in_batches else None
    whose: Any = {"progress": run.progress, "prior_mean": data.prior_mean, "start_rows": start_rows}
    learner = Learner(initial.training, initial.site, scheme, options, sizes, random_state, **whose)
    resumed = initial.resumed
    if resumed is None:
        first, previous = prior, initial.previous
        has_starts = data.config.kernel is None and previous is None and len(initial.training) <= ROWS_OF_STARTS
        if has_starts and scheme is not None:
            previous = learner.best_start(prior).q
            first = previous.prior
        outcome = learner.learn(first, previous, initial.grow_to)
    else:
        learner.site, learner.state = resumed.site, resumed.state
        grow_to = initial.grow_to if resumed.is_growing else 0
        outcome = learner.learn(resumed.q.prior, resumed.q, grow_to, resumed.n_rows)
    # Restarts report only the best result, after each of them.
    learner.site, learner.progress = initial.site, Progress()
    for number in range(1, data.config.n_restarts_optimizer + 1 if scheme is not None else 1):
        ranges = [group.spec.bounds for group in prior.groups]
        thetas = [np.asarray(random_state.uniform(low, high)) for low, high in (bounds.T for bounds in ranges)]
        if resumed is not None and number < resumed.n_starts:
            continue
        specs = [group.spec.with_theta(theta) for group, theta in zip(prior.groups, thetas, strict=True)]
        other = learner.learn(prior.rebuilt(specs, prior.Z), None, initial.grow_to)
        if learner.comparable(other) > learner.comparable(outcome):
            outcome = other
        n_rows = subset_sizes(len(initial.training), outcome.q.prior.n_inducing, sizes)[-1]
        is_growing = bool(initial.grow_to)
        run.progress.update(BestSoFar(outcome.q, outcome.site, n_rows, is_growing, number + 1))
    problems = (outcome.problem,) if outcome.problem and max_iter == data.config.max_iter else ()
    return HyperparameterFit(initial, outcome.q, outcome.q.prior, outcome.site, learner.n_iter, problems)
