"""What is learned from which rows: growing subsets, a growing number of inducing points, restarts."""

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

# Rows of the first subset: this many, or so many for each inducing point. With fewer, kernel parameters and inducing
# points fit the sample: on ringnorm, 2000 rows at m = 100 lead to an optimum that all rows do not lead away from.
FIRST_ROWS = 4000
ROWS_PER_POINT = 40
# Each subset is so many times the one before; the last is all rows, or about so many.
GROWTH = 4
LAST_ROWS = 131_072
# Iterations on a subset that is not the last: so many times those on the last, being cheaper, on the first, and on each
# as many as take no longer than these, but no more than SUBSET_ITERATIONS. And how much earlier it may stop.
SUBSET_ITERATIONS = 50
SUBSET_FACTOR = 10
SUBSET_LOOSENING = 5.0

# Of so many rows at most learning begins at the best of several start kernels, whose bounds are known to so many nats:
# each takes some passes, a tenth of what learning takes.
ROWS_OF_STARTS, NATS_OF_STARTS = 4000, 0.3

# Mini-batches begin at the posterior of so many rows, with the weight of all: the two starts of logistic-softmax take
# 113 passes (of 5000 rows of four classes, m = 100: 1.6 s of a fit's 8.5).
ROWS_BEFORE_BATCHES = 1000

# n_inducing="auto" doubles them while the bound on the subset for so many gains this many nats for each added point,
# before anything is learned with these (on magic, learning then gained four times as much).
MIN_GAIN = 0.05
# The posterior with more points is fitted to this share of the gain that is asked for.
TRIAL_SHARE = 0.1
# Iterations at a number of inducing points on the way. With more points than MAX_MOVING, kernel parameters alone are
# learned, in fewer iterations and on fewer rows for each point: a kernel has few parameters to fit to a sample.
GROWING_ITERATIONS = 30
MAX_MOVING = 256
ROWS_PER_FIXED_POINT = 10
MIN_ITERATIONS = 4

Scheme = Callable[..., Outcome]
Sizes = str | None | Sequence[int]


class Subsets:
    """Nested random subsets of the rows, each with the classes y (n,) in their proportions."""

    def __init__(self, y: np.ndarray, random_state: np.random.RandomState):
        place = np.empty(len(y))
        for label in np.unique(y):
            rows = np.flatnonzero(y == label)
            # Spread evenly over [0, 1) in random order: any stretch has its share of the class.
            place[rows] = (random_state.permutation(len(rows)) + random_state.uniform()) / len(rows)
        self._order = np.argsort(place, kind="stable")

    def rows(self, size: int) -> np.ndarray | None:
        """Indices of the first ``size`` rows, ascending; None for all if there are no more."""
        return None if size >= len(self._order) else np.sort(self._order[:size])


def subset_sizes(n_rows: int, n_inducing: int, sizes: Sizes) -> list[int]:
    """Sizes of the subsets to learn from, one after the other.

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
    # Half the data or more is not worth a stage of its own.
    while 2 * size < min(n_rows, LAST_ROWS):
        schedule.append(size)
        size *= GROWTH
    return [*schedule, min(n_rows, LAST_ROWS)]


def growing_size(n_rows: int, n_inducing: int, sizes: Sizes) -> int:
    """Rows to judge a number of inducing points on; arguments as for ``subset_sizes``."""
    if sizes is None or not isinstance(sizes, str):
        return subset_sizes(n_rows, n_inducing, sizes)[0]
    rows = max(FIRST_ROWS, ROWS_PER_POINT * min(n_inducing, MAX_MOVING), ROWS_PER_FIXED_POINT * n_inducing)
    return min(n_rows, LAST_ROWS, rows)


@dataclass
class Learner:
    """Learns hyperparameters and inducing points, and how many of these, on subsets of the rows.

    Attributes
    ----------
    training : Training
    site : Site, to start with; ``learn`` returns the one to go on with
    scheme : Scheme, or None: kernel and inducing points stay, posteriors alone are fitted
    options : Options of the last stage
    sizes : as for ``subset_sizes``
    random_state : RandomState
    n_iter : int, iterations of the scheme so far
    progress : Progress, which is told what is learned
    prior_mean : PriorMean, what sites have under the prior that a stage begins with
    start_rows : int, rows of a stage that its first posterior is of, at most; None: all
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
        # Stages that are not the last.
        self.early = replace(
            self.options,
            tol=SUBSET_LOOSENING * self.options.tol,
            max_iter=min(SUBSET_ITERATIONS, SUBSET_FACTOR * self.options.max_iter),
        )

    def learn(self, prior: KernelPrior, previous: KernelPosterior | None, grow_to: int, done: int = 0) -> Outcome:
        """Stages on growing subsets, each from where the one before ended.

        Parameters
        ----------
        prior : where to start
        previous : a posterior whose sites to start from, or None
        grow_to : the number of inducing points up to which more are added while they pay; 0: none are
        done : rows of the stage that an earlier fit had come to: smaller ones are over

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
        """Options for a subset of ``size`` rows that is not the last; ``first`` is the size of the first."""
        most = max(self.options.max_iter, SUBSET_FACTOR * self.options.max_iter * first // size)
        return replace(self.early, max_iter=min(self.early.max_iter, most))

    def best_start(self, prior: KernelPrior) -> Outcome:
        """The posterior of the highest bound with the log prior, of those for the start kernel times ``STARTS``."""
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
        """The bound, with the log prior, for what was learned on the rows of the last stage, whichever others were."""
        prior = outcome.q.prior
        size = subset_sizes(len(self.training), prior.n_inducing, self.sizes)[-1]
        return self._posterior(size, prior, outcome.q, outcome.site).point.elbo + self.options.log_prior(prior)[0]

    def _begin(self, n_rows: int, n_inducing: int) -> None:
        """What comes is of so many rows and points."""
        self.history.context.update(n_rows=n_rows, n_inducing=n_inducing)
        self.history.tell(stage="learning", **self.history.context)

    def _sizes_after(self, size: int, prior: KernelPrior) -> list[int]:
        """Subsets to go on with after the number of points was chosen on one of ``size`` rows."""
        # Without a scheme there is nothing to learn; many points have had what iterations they can afford.
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
        """The scheme on a subset, from the sites that q makes there."""

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
        """The posterior alone on a subset, to within so many nats."""
        part, site = self.training.part(self.subsets.rows(size)), self.prior_mean.site(site, prior)
        first = update(part, starting_posterior(part, q, prior, site), site)
        tol = self.options.tol if nats is None else nats / tolerance_unit(first.log_likelihood)
        history, most = History(), self.options.max_iter
        return Outcome(
            coordinate_ascent(part, first.q, site, tol=tol, max_iter=most, history=history, first=first).point, 0
        )

    def _grow(self, prior: KernelPrior, q: KernelPosterior | None, most: int) -> tuple[Outcome, int]:
        """Double the inducing points, to ``most`` of them, until the bound, on a subset for so many, gains too little.

        Returns the outcome for the last number of points and the size of its subset.
        """
        site, began, fitted = self.site, self.history.seconds, None
        while True:
            m = prior.n_inducing
            size = growing_size(len(self.training), m, self.sizes)
            options = self._growing_options(prior, size)
            outcome = fitted or self._stage(size, prior, q, site, options, is_growing=True)
            took = self.history.seconds - began
            if m > MAX_MOVING:
                # Its few iterations were no limit of the user's.
                outcome = replace(outcome, problem=None)
            prior, q, site = outcome.q.prior, outcome.q, outcome.site
            self._begin(size, m)
            part = self.training.part(self.subsets.rows(size))
            candidates = part.source.sample(np.arange(len(part))).rows
            larger = with_more_points(prior, candidates, max(0, min(m, most - m)), self.random_state)
            more = larger.n_inducing - m
            if not more:
                reason = f"No more inducing points were tried: {m} are the most that these rows can have."
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
                # What the scheme has left of the bound at these points is not for others to gain.
                before = outcome if self.scheme is None else self._posterior(size, prior, q, site, nats)
                started = self.history.seconds
                trial = self._posterior(size, larger, before.q, before.site, nats)
            except OutOfTime:
                # For the posterior of all rows with so many points: with fewer there may be.
                self.progress.skip(f"the trial of {larger.n_inducing} inducing points", self.history)
                return outcome, size
            gain = (trial.point.elbo - before.point.elbo) / (more * len(prior.groups))
            enough = gain >= MIN_GAIN
            whose = " and class" if len(prior.groups) > 1 else ""
            verdict = "taken" if enough else f"not taken, as {MIN_GAIN:g} is asked for"
            total = gain * more * len(prior.groups)
            reason = (
                f"Adding {more} inducing points to {m} changes the bound by {total:+.3g} nats, "
                f"{gain:+.3g} for each new point{whose}: {verdict}."
            )
            self.history.add(elbo=trial.point.elbo, gain_per_point=gain, decision=reason)
            if not enough:
                return outcome, size
            prior, q, site = trial.q.prior, trial.q, trial.site
            # Without a scheme the trial is what a stage on the same rows would come to. (A given kernel that takes 1000
            # points of 1000 rows of magic: .72 s of processor time, .95 s with stages.)
            is_next = self.scheme is None and growing_size(len(self.training), m + more, self.sizes) == size
            began, fitted = (started, trial) if is_next else (self.history.seconds, None)

    def _relative_cost(self, outcome: Outcome, larger: KernelPrior) -> float:
        """About how much longer a growing stage takes with more points than it took, by as many iterations or the most.

        Time is that of passes: two products with m x m matrices and one to add them up, and the kernel with d features.
        """

        def of_pass(prior: KernelPrior) -> float:
            m, d = prior.n_inducing, self.training.source.n_features
            return growing_size(len(self.training), m, self.sizes) * m * (3.0 * m + 2.0 * d)

        size = growing_size(len(self.training), larger.n_inducing, self.sizes)
        iterations = min(1.0, self._growing_options(larger, size).max_iter / max(1, outcome.n_iter))
        return iterations * of_pass(larger) / of_pass(outcome.q.prior)

    def _growing_options(self, prior: KernelPrior, size: int) -> Options:
        """Options for a subset of ``size`` rows while the number of points is not settled."""
        m = prior.n_inducing
        if m > MAX_MOVING:
            iterations = min(self.options.max_iter, max(MIN_ITERATIONS, GROWING_ITERATIONS * MAX_MOVING // m))
            return replace(self.early, learn_inducing=False, max_iter=iterations)
        if not self._sizes_after(size, prior):
            return self.options
        return replace(self.early, max_iter=min(GROWING_ITERATIONS, self.options.max_iter))


def _are_all_rows(prior: KernelPrior, training: Training) -> bool:
    """Whether every row is an inducing point of every kernel: no move of these can then raise the bound."""
    if len(training) > MAX_INDUCING:
        return False
    rows = dense(training.source.sample(np.arange(len(training))).X)
    return all(len(np.unique(np.vstack([group.Z, rows]), axis=0)) <= len(group.Z) for group in prior.groups)


def learn_in_stages(
    data: Data, run: Run, initial: InitialState, most_iterations: int | None = None
) -> HyperparameterFit:
    """Hyperparameters and inducing points, from all restarts.

    ``most_iterations`` of a stage are a limit of the library's, of which nobody is warned.
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
    # Adam's mini-batches need no subsets, and the rows of a full Gaussian process are all of them.
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
    # Of other starts the best is told, after each.
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
