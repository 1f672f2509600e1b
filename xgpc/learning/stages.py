"""Stages of learning: growing subsets of the rows, growing numbers of inducing points, and restarts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .._sites import Site
from ..approximations.base import KernelPosterior, KernelPrior, Training
from ..inference.ascent import coordinate_ascent, starting_posterior, tolerance_unit, update
from ..inference.run import BestSoFar, Run
from ..kernels.default import STARTS, other_start
from ..rows.deadline import OutOfTime, during
from ..rows.source import dense
from .candidates import MIN_GAIN, Bound, Candidate, accept
from .inducing import MAX_INDUCING, with_more_points
from .optimizer import Model, Options, Outcome
from .schemes import SCHEMES
from .start import Data, HyperparameterFit, InitialState

# Rows of the first subset, or rows for each inducing point. With 2000 rows and m = 100, ringnorm was overfitted and
# reached an optimum that all rows did not leave.
FIRST_ROWS, ROWS_PER_POINT = 4000, 40
# Each subset has this many times the rows of the one before; the last has all rows, or about LAST_ROWS.
GROWTH, LAST_ROWS = 4, 131_072
# Limits on a subset before the last: SUBSET_FACTOR times the last subset's iterations on the first subset, in the same
# time on later ones, and SUBSET_ITERATIONS at most. SUBSET_LOOSENING multiplies the tolerance.
SUBSET_ITERATIONS, SUBSET_FACTOR, SUBSET_LOOSENING = 50, 10, 5.0
# With at most this many rows, learning starts from the best of several kernels, whose bounds are computed to within
# this many nats; each start takes a few passes, a tenth of the time of learning.
ROWS_OF_STARTS, NATS_OF_STARTS = 4000, 0.3
# Mini-batches start from the posterior of this many rows, weighted to stand for all: with logistic-softmax that of all
# 5000 rows took 1.6 s of a fit of 8.5 s.
ROWS_BEFORE_BATCHES = 1000
# The posterior with more points is fitted to this share of the required gain.
TRIAL_SHARE = 0.1
# Iterations for a number of points on the way. Beyond MAX_MOVING points only kernel parameters are learned, with fewer
# iterations and fewer rows for each point, because few parameters need few rows.
GROWING_ITERATIONS, MAX_MOVING, ROWS_PER_FIXED_POINT, MIN_ITERATIONS = 30, 256, 10, 4

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


class Learner:
    """Learns hyperparameters, inducing points and their number on subsets of the rows.

    Attributes
    ----------
    optimizer : Optimizer, or None to keep kernel and inducing points and fit posteriors only
    options : Options of the last stage
    n_iter : int, iterations of the optimizer so far
    run : Run, which keeps every improvement
    is_restart : bool, whether the improvements are not kept
    """

    def __init__(self, data: Data, run: Run, initial: InitialState, max_iter: int):
        config, n_rows, is_full = data.config, len(initial.training), initial.model.prior.is_full
        self.training, self.history, self.random_state = initial.training, run.history, run.random_state
        self.run, self.is_restart, self.prior_mean, self.n_iter = run, False, data.prior_mean, 0
        self.optimizer = None if config.optimizer is None else SCHEMES[config.optimizer].of(config, run.random_state)
        learns_points, tol, log_prior = config.learn_inducing and not is_full, config.tol, initial.length_scale_prior
        self.options = Options(learns_points, tol, max_iter, run.history, length_scale_prior=log_prior)
        # Options of the stages before the last.
        most = min(SUBSET_ITERATIONS, SUBSET_FACTOR * max_iter)
        self.early = replace(self.options, tol=SUBSET_LOOSENING * tol, max_iter=most)
        # Mini-batches need no subsets, and a full Gaussian process always uses all rows.
        self._sizes: Sizes = None if config.learns_in_batches or is_full else config.subset_sizes
        self._start_rows = min(ROWS_BEFORE_BATCHES, n_rows) if config.learns_in_batches else n_rows
        self._subsets = Subsets(self.training.source.labels(), run.random_state)

    def sizes(self, prior: KernelPrior) -> list[int]:
        """Sizes of the successive subsets."""
        return subset_sizes(len(self.training), prior.n_inducing, self._sizes)

    def learn(self, model: Model, grow_to: int, done: int = 0) -> Outcome:
        """Learn in stages on growing subsets; each stage starts from the result of the one before.

        Parameters
        ----------
        grow_to : largest number of inducing points if points may be added while they pay, else 0
        done : size of the subset that a resumed fit had reached; smaller subsets are skipped

        Returns
        -------
        Outcome of the last stage
        """
        if grow_to:
            outcome, size = self._grow(model, grow_to)
            model = outcome.model
            sizes = self._sizes_after(size, model.prior)
        else:
            sizes = self.sizes(model.prior)
            sizes = [size for size in sizes if size >= done] or sizes[-1:]
        for size in sizes:
            options = self.options
            if size < sizes[-1]:
                most = max(options.max_iter, SUBSET_FACTOR * options.max_iter * sizes[0] // size)
                options = replace(self.early, max_iter=min(self.early.max_iter, most))
            outcome = self._stage(size, model, options)
            model = outcome.model
        return outcome

    def best_start(self, model: Model) -> Model:
        """The start kernel times each of ``STARTS``, with its posterior: that of the highest bound plus log prior."""
        prior = model.prior
        size = min(self.sizes(prior)[0], self._start_rows, LAST_ROWS)
        priors = [prior.rebuilt([other_start(group.spec, one) for group in prior.groups], prior.Z) for one in STARTS]
        found = [self._posterior(size, Model(other, None, model.site), NATS_OF_STARTS) for other in priors]
        best = int(np.argmax([self.options.value(outcome.point) for outcome in found]))
        if best:
            length_scale, variance = STARTS[best]
            told = (
                f"Learning starts with {length_scale:g} times the usual length scales and {variance:g} times the usual "
                f"variance: their bound is the highest of {len(STARTS)} starts."
            )
            self.history.tell(decision=told)
        return model._replace(prior=found[best].model.prior, q=found[best].model.q)

    def comparable(self, outcome: Outcome) -> float:
        """The bound plus log prior on the last stage's rows, so that results from other rows can be compared."""
        model = outcome.model
        return self.options.value(self._posterior(self.sizes(model.prior)[-1], model).point)

    def _part(self, size: int) -> Training:
        return self.training.part(self._subsets.rows(size))

    def _begin(self, n_rows: int, n_inducing: int) -> None:
        """Tell the history that a stage with this many rows and points begins."""
        self.history.context.update(n_rows=n_rows, n_inducing=n_inducing)
        self.history.tell(stage="learning", **self.history.context)

    def _sizes_after(self, size: int, prior: KernelPrior) -> list[int]:
        """Subsets that remain after the number of points was chosen on ``size`` rows."""
        # Without an optimizer nothing is learned; with many points the iterations that they can afford are used up.
        if self.optimizer is None or prior.n_inducing > MAX_MOVING:
            return []
        return [larger for larger in self.sizes(prior) if larger > size]

    def _stage(self, size: int, model: Model, options: Options, is_growing: bool = False) -> Outcome:
        """Run the optimizer on a subset, starting from the sites under the model's posterior."""
        prior, q, site = model

        def reached(q: KernelPosterior, site: Site) -> None:
            if not self.is_restart:
                state = None if self.optimizer is None else self.optimizer.state
                self.run.update(BestSoFar(q, site, size, is_growing, state=state))

        with during(f"learning with {prior.n_inducing} inducing points on {size} rows"):
            if self.optimizer is None:
                outcome = self._posterior(size, model)
            else:
                part = few = self._part(size)
                self._begin(len(part), prior.n_inducing)
                moves = options.learn_inducing and not _are_all_rows(prior, part)
                site = self.prior_mean.site(site, prior)
                if q is None and self._start_rows < len(part):
                    few = self.training.part(self._subsets.rows(self._start_rows), len(part) / self._start_rows)
                start = starting_posterior(few, q, prior, site)
                outcome = self.optimizer.run(part, start, site, replace(options, reached=reached, learn_inducing=moves))
        reached(outcome.point.q, outcome.point.site)
        if self.optimizer is not None:
            self.optimizer.state = None
        self.n_iter += outcome.n_iter
        return outcome

    def _posterior(self, size: int, model: Model, nats: float | None = None) -> Outcome:
        """Fit only the posterior on a subset, to within ``nats`` of its bound."""
        part, site = self._part(size), self.prior_mean.site(model.site, model.prior)
        first = update(part, starting_posterior(part, model.q, model.prior, site), site)
        tol, max_iter = self.options.tol, self.options.max_iter
        tol = tol if nats is None else nats / tolerance_unit(first.log_likelihood)
        ascent = coordinate_ascent(part, first.q, site, tol=tol, max_iter=max_iter, first=first)
        return Outcome(ascent.point, 0)

    def _grow(self, model: Model, most: int) -> tuple[Outcome, int]:
        """Double the inducing points, up to ``most``, until the bound on a subset gains too little.

        Returns the outcome for the final number of points and the size of its subset.
        """
        began, fitted = self.history.seconds, None
        while True:
            m = model.prior.n_inducing
            size = growing_size(len(self.training), m, self._sizes)
            options = self._growing_options(model.prior, size)
            outcome = fitted or self._stage(size, model, options, is_growing=True)
            took = self.history.seconds - began
            if m > MAX_MOVING:
                # This iteration limit is the library's, so the user is not warned of it.
                outcome = replace(outcome, problem=None)
            model = outcome.model
            self._begin(size, m)
            part = self._part(size)
            rows = part.source.sample(np.arange(len(part))).rows
            larger = with_more_points(model.prior, rows, max(0, min(m, most - m)), self.random_state)
            n_more = larger.n_inducing - m
            if not n_more:
                reason = f"No more inducing points were tried: {m} are the most that these rows allow."
                self.history.add(elbo=outcome.point.elbo, decision=reason)
                return outcome, size
            expected = took * self._relative_cost(outcome, larger)
            told = (
                f"Learning with {m} inducing points took {took:.2g} s; with {m + n_more}, tried next, it may take "
                f"{expected:.2g} s."
            )
            self.history.tell(decision=told)
            try:
                started, simpler, richer = self._propose(size, outcome, larger)
            except OutOfTime:
                # Fewer points may still leave time for the posterior of all rows.
                self.run.skip(f"the trial of {larger.n_inducing} inducing points")
                return outcome, size
            columns = {"elbo": richer.value.elbo, "gain_per_point": richer.value.gain_per_point(simpler.value)}
            if not accept(simpler, richer, f"Adding {n_more} inducing points to {m}", self.history, **columns):
                return outcome, size
            model = richer.model.model
            # Without an optimizer the trial equals the next stage on the same rows, so it is reused (.72 s instead of
            # .95 s for 1000 points and rows of magic).
            is_next = self.optimizer is None and growing_size(len(self.training), m + n_more, self._sizes) == size
            began, fitted = (started, richer.model) if is_next else (self.history.seconds, None)

    def _propose(
        self, size: int, outcome: Outcome, larger: KernelPrior
    ) -> tuple[float, Candidate[Outcome], Candidate[Outcome]]:
        """The posteriors with these points and with more, as candidates, and the time when the second began."""
        nats = TRIAL_SHARE * MIN_GAIN * (larger.n_inducing - outcome.model.prior.n_inducing) * len(larger.groups)
        # The posterior at these points converges first, or the new points would be credited with its remaining gain.
        before = outcome if self.optimizer is None else self._posterior(size, outcome.model, nats)
        started = self.history.seconds
        after = self._posterior(size, before.model._replace(prior=larger), nats)
        simpler, richer = (Candidate(one, Bound(one.point.elbo, one.model.prior)) for one in (before, after))
        return started, simpler, richer

    def _relative_cost(self, outcome: Outcome, larger: KernelPrior) -> float:
        """Estimated time of the next growing stage, relative to this one, for as many iterations or their limit.

        A pass takes two products with m x m matrices, one to sum them, and the kernel with d features.
        """

        def of_pass(prior: KernelPrior) -> float:
            m, d = prior.n_inducing, self.training.source.n_features
            return growing_size(len(self.training), m, self._sizes) * m * (3.0 * m + 2.0 * d)

        size = growing_size(len(self.training), larger.n_inducing, self._sizes)
        iterations = min(1.0, self._growing_options(larger, size).max_iter / max(1, outcome.n_iter))
        return iterations * of_pass(larger) / of_pass(outcome.model.prior)

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
    config, model, resumed = data.config, initial.model, initial.resumed
    if config.optimizer is None and not initial.grow_to:
        return HyperparameterFit(model)
    max_iter = config.max_iter if most_iterations is None else min(most_iterations, config.max_iter)
    learner = Learner(data, run, initial, max_iter)
    if resumed is None:
        has_starts = config.kernel is None and model.q is None and len(initial.training) <= ROWS_OF_STARTS
        first = learner.best_start(model) if has_starts and learner.optimizer is not None else model
        outcome = learner.learn(first, initial.grow_to)
    else:
        if learner.optimizer is not None:
            learner.optimizer.state = resumed.state
        grow_to = initial.grow_to if resumed.is_growing else 0
        outcome = learner.learn(Model(resumed.q.prior, resumed.q, resumed.site), grow_to, resumed.n_rows)
    # Restarts report only the best result, after each of them.
    learner.is_restart, prior = True, model.prior
    for number in range(1, config.n_restarts_optimizer + 1 if learner.optimizer is not None else 1):
        ranges = [group.spec.bounds for group in prior.groups]
        thetas = [np.asarray(run.random_state.uniform(low, high)) for low, high in (bounds.T for bounds in ranges)]
        if resumed is not None and number < resumed.n_starts:
            continue
        specs = [group.spec.with_theta(theta) for group, theta in zip(prior.groups, thetas, strict=True)]
        other = learner.learn(Model(prior.rebuilt(specs, prior.Z), None, model.site), initial.grow_to)
        if learner.comparable(other) > learner.comparable(outcome):
            outcome = other
        best, n_rows = outcome.point, learner.sizes(outcome.model.prior)[-1]
        run.update(BestSoFar(best.q, best.site, n_rows, bool(initial.grow_to), number + 1))
    problems = (outcome.problem,) if outcome.problem and max_iter == config.max_iter else ()
    return HyperparameterFit(outcome.model, learner.n_iter, problems)
