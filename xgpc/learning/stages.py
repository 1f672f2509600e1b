"""Stages of learning: growing subsets of the rows, growing numbers of inducing points, and restarts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from .._sites import Site
from ..approximations.base import KernelPosterior, KernelPrior, Training, grouped
from ..approximations.full import FullPrior, first_among
from ..inference.ascent import Point, starting_posterior
from ..inference.history import History
from ..inference.options import Options
from ..kernels.default import STARTS, axis_aligned, other_start
from ..likelihoods import LikelihoodBound
from ..rows.block import dense
from ..rows.clock import during
from ..rows.source import ArraySource
from .adam import adam, stochastic
from .fit import Candidate, Fit
from .hold_out import Split, Subsets
from .inducing import MAX_INDUCING, MOST_ALL_ROWS, with_more_points
from .izmailov_kropotov import alternate, hybrid, joint
from .left_out import left_out_scores, posterior_of, scores_of_splits
from .optimizer import Outcome, of_frequencies, profile
from .relevance import MANY_FEATURES, relevant_prior
from .scores import MIN_GAIN, Scores, accept, gain_per_point, rise_by_points

# The first subset has the largest of three numbers of rows: FIRST_ROWS; 1 / FIRST_SHARE of all rows, but at most 1 /
# GROWTH of the last subset; and ROWS_PER_POINT for each inducing point. Fewer rows lead to a poor optimum, which later
# subsets keep. (Of 11 million rows with waves in three of 28 features, 4000 and 16 000 show nothing and 32 000 do: NLL
# is .587 and .444.)
FIRST_ROWS, FIRST_SHARE, ROWS_PER_POINT = 4000, 32, 40
# Each subset has GROWTH times as many rows as the one before, so that the last one takes the most time. It has all
# rows, but at most LAST_ROWS.
GROWTH, LAST_ROWS = 4, 131_072
# SUBSET_LOOSENING multiplies the tolerance of stages before the last one, whose optimum is only a start.
SUBSET_LOOSENING = 5.0
# With at most FIRST_ROWS rows, learning starts from the best of several kernels, by their bounds. Each bound is
# computed to within this many nats, which takes a few passes over the rows.
NATS_OF_STARTS = 0.3
# Kinds of kernels and numbers of points learn for this many iterations before they are compared. (With 15, NLL of
# 38 sets of 40, 100 and 300 rows is the same to .001, and fits take a tenth of the time more.)
ITERATIONS_OF_CANDIDATES = 8
# With at least so many rows, each kind of kernel learns with more points, too: under a kernel that was learned with too
# few, further points often raise the bound by next to nothing. (With fewer rows the start has 64 points.)
ROWS_OF_MORE = 1000
# Learning on a later subset may take this many times as many multiplications as all stages before. (With 2 and 4, the
# fit of a9a takes 6.1 and 8.1 s, and its NLL is .3164 and .3158; that of adult is .3105 and .3103. Without a limit,
# fits of tables like these took 90 times as long as LightGBM's.)
MOST_WORK = 3.0
# To save time, mini-batches start from the posterior of this many rows, whose weights are raised to stand for all rows.
ROWS_BEFORE_BATCHES = 1000
# If the divergence of the posterior from the prior is at most this many nats, learning with few points has found next
# to nothing. It is 1 to 3 nats for random labels, and for functions that 32 points cannot represent. For diabetes-pima
# and german-numer, whose signals are weak, it is 25 and 45 nats. With fewer than ROWS_OF_MORE rows the divergence of
# simple functions is small, too, so the bound must also be at most this many nats above the log likelihood of the
# class frequencies. (With more rows a bound far above it may be that of a trend alone, which hides a finer pattern.)
NOTHING_LEARNED = 10.0
# In a trial of more points, posteriors are fitted to within this share of the gain that the trial requires, so that
# the rest changes few decisions.
TRIAL_SHARE = 0.1
# A stage before the last one has at most GROWING_ITERATIONS iterations, as the next goes on from there, and at most
# GROWTH times as many as the last, which then take no longer. A stage whose work is limited has at least
# MIN_ITERATIONS, as fewer would save little beside its first posterior.
GROWING_ITERATIONS, MIN_ITERATIONS = 30, 4


# The optimizers by their names, the values of the parameter ``optimizer``.
Scheme = Callable[[Training, KernelPosterior, Site, Options], Outcome]
SCHEMES: dict[str, Scheme] = {s.__name__: s for s in (profile, alternate, joint, hybrid, adam, stochastic)}


def check_optimizer(optimizer: str | None, record: LikelihoodBound) -> None:
    """Raise ValueError for an optimizer that does not support a likelihood's bound."""
    is_jj = record.is_jaakkola_jordan
    supports = {"alternate": record.has_quadratics, "joint": is_jj, "hybrid": is_jj}
    # Only "profile" moves cut points.
    allowed = ["profile"] if record.is_ordinal else [name for name in SCHEMES if supports.get(name, record.is_bound)]
    if optimizer is not None and optimizer not in allowed:
        raise ValueError(
            f"optimizer={optimizer!r} is not for the bound {record.bound!r} of likelihood {record.likelihood!r}; "
            f"choose one of {allowed}, or another bound."
        )


def first_rows(fit: Fit, n_inducing: int = 0) -> int:
    """Number of rows of the first subset, if there are so many, for a number of inducing points."""
    return max(FIRST_ROWS, min(fit.n_rows // FIRST_SHARE, LAST_ROWS // GROWTH), ROWS_PER_POINT * n_inducing)


class Learner:
    """Learns hyperparameters, inducing points and their number on subsets of the rows."""

    def __init__(self, fit: Fit, start: Candidate):
        config, n_rows = fit.config, fit.source.n_rows
        self.fit, self.history, self.random_state = fit, fit.run.history, fit.run.random_state
        # Iterations of all stages, and their multiplications since a start.
        self.n_iter, self.work = 0, 0.0
        # Without an optimizer kernel and inducing points stay, and only posteriors are fitted.
        self.optimize = None if config.optimizer is None else SCHEMES[config.optimizer]
        # Options of the last stage, and of those before.
        self.options, most = fit.options(start.length_scale_prior), min(GROWING_ITERATIONS, GROWTH * config.max_iter)
        self.early = replace(self.options, tol=SUBSET_LOOSENING * config.tol, max_iter=most)
        # The run keeps each better posterior of a stage.
        self.reached: Callable[[KernelPosterior, Site], None] = fit.run.update
        # Mini-batches need no subsets, and a full Gaussian process always uses all rows.
        takes_all = config.learns_in_batches or config.is_full
        self._sizes: str | Sequence[int] | None = None if takes_all else config.subset_sizes
        self._start_rows = min(ROWS_BEFORE_BATCHES, n_rows) if config.learns_in_batches else n_rows
        self._subsets = Subsets(fit.source.y, self.random_state)

    def sizes(self, prior: KernelPrior) -> list[int]:
        """Sizes of the successive subsets: growing from ``first_rows`` for "auto", all rows for None, or as given."""
        n_rows = self.fit.source.n_rows
        if self._sizes is None:
            return [n_rows]
        if not isinstance(self._sizes, str):
            return sorted({min(int(size), n_rows) for size in self._sizes})
        schedule, size, largest = list[int](), first_rows(self.fit, prior.n_inducing), min(n_rows, LAST_ROWS)
        # A subset of half the rows or more is not worth a stage of its own.
        while 2 * size < largest:
            schedule.append(size)
            size *= GROWTH
        return [*schedule, largest]

    def learn(self, start: Candidate) -> Outcome:
        """Learn in stages, each from the result of the one before; returns the outcome of the last.

        First inducing points are added while this pays; then the subsets grow.
        """
        candidate, size, self.work = start, 0, 0.0
        richer = start if start.grow_to else None
        while richer is not None:
            size, options = self._growing(richer.prior)
            outcome = self._stage(size, richer, options)
            candidate = richer.at(outcome.point.q, outcome.point.site)
            richer = self._more_points(outcome, candidate, size) or self._started_again(start, outcome, size)
        for further_size, options in self._plan(candidate.prior, size):
            outcome = self._stage(further_size, candidate, options, MOST_WORK * self.work)
            candidate = candidate.at(outcome.point.q, outcome.point.site)
        return outcome

    def _stage(self, size: int, candidate: Candidate, options: Options, most_work: float = 0.0) -> Outcome:
        """Learn on a subset of the rows, by at most so many multiplications; 0 for no limit."""
        m, d = candidate.prior.n_inducing, self.fit.source.n_features
        # Multiplications of a pass: for each row m kernel values of d features, and three products with m x m.
        work = size * m * (3.0 * m + 2.0 * d) * self.fit.n_latents
        self.history.begin("learning", n_rows=size, n_inducing=m)
        most = max(MIN_ITERATIONS, int(most_work / work))
        if most_work > 0.0 and most < options.max_iter:
            limit = f"at most {most} iterations, which take {MOST_WORK:g} times as long as the stages before"
            self.history.add(decision=f"Learning on {size} rows with {m} inducing points has {limit}.")
            options = replace(options, max_iter=most)
        with during(f"learning with {m} inducing points on {size} rows"):
            outcome = self.optimized(self.part(size), candidate, replace(options, reached=self.reached))
        self.work += outcome.n_iter * work
        if options.max_iter < self.options.max_iter:
            # This limit is the library's, so the user is not warned of it.
            outcome = replace(outcome, problem=None)
        self.reached(outcome.point.q, outcome.point.site)
        self.n_iter += outcome.n_iter
        return outcome

    def best_start(self, start: Candidate) -> Candidate:
        """The start with the best kernel, by the bound plus the log prior: of those that ``STARTS`` gives, and of many
        features also of those that it gives for the features that matter to trees."""
        prior = start.prior
        part = self.part(min(self.sizes(prior)[0], self._start_rows))
        priors = [prior.rebuilt([other_start(group.spec, pair) for group in prior.groups], prior.Z) for pair in STARTS]
        if part.source.n_features >= MANY_FEATURES and part.groups is None and len(prior.groups) == 1:
            relevant = relevant_prior(part, prior, self.random_state)
            priors += [relevant.rebuilt([other_start(relevant.spec, pair)], relevant.Z) for pair in STARTS]
        points = [posterior_of(part, start.under(other), NATS_OF_STARTS) for other in priors]
        best = max(range(len(points)), key=lambda i: self.options.value(points[i]))
        if best >= len(STARTS):
            self.history.add(decision="Learning starts from short length scales of the features that trees split by.")
        return start.at(points[best].q, start.site)

    def best_candidate(self, start: Candidate) -> Candidate:
        """The best candidate after some learning, by the score of rows: the default kernel or an axis-aligned one, with
        the inducing points of the start or more."""
        prior, m = start.prior, start.prior.n_inducing
        part = self.part(min(self.sizes(prior)[0], first_rows(self.fit)))
        # The splits are drawn first, so that a splitter that cannot divide the rows raises its error before learning
        # begins.
        splits = self.fit.hold_out.folds(self._subsets.rows(part.source.n_rows))
        priors = [prior]
        # With splits each candidate learns several times.
        if (number := more_points(start, part)) and not splits:
            priors.append(with_more_points(prior, part.source.rows, number - m, self.random_state))
        kinds = prior.groups[0].spec, axis_aligned(prior.groups[0].spec)
        first, *others = [replace(start, prior=each.rebuilt([spec], each.Z)) for each in priors for spec in kinds]
        best, scores = self._scored(part, splits, first)
        self.reached(best.q, best.site)
        with during("the choice of a kernel"):
            for candidate in others:
                other, other_scores = self._scored(part, splits, candidate)
                rise = other_scores.above(scores, is_costlier=other.q.prior.n_inducing > best.q.prior.n_inducing)
                if accept(rise, _difference(other.q.prior, best.q.prior), self.history):
                    best, scores = other, other_scores
                    self.reached(best.q, best.site)
        return start.at(best.q, best.site)

    def _scored(self, part: Fit, splits: list[Split], start: Candidate) -> tuple[Point[KernelPosterior], Scores]:
        """The result of ITERATIONS_OF_CANDIDATES iterations, and its scores of rows that it has not seen."""
        options = replace(self.early, max_iter=ITERATIONS_OF_CANDIDATES)
        self.history.begin("learning", n_rows=part.source.n_rows, n_inducing=start.prior.n_inducing)
        outcome = self.optimized(part, start, options)
        self.n_iter += outcome.n_iter
        if not splits:
            return outcome.point, left_out_scores(part, outcome.point)
        # Rows that are left out one at a time would ignore groups and a splitter.
        unfitted, silent = replace(start, q=None), replace(options, history=History())
        return outcome.point, scores_of_splits(part, splits, lambda rows: self.optimized(rows, unfitted, silent).point)

    def comparable(self, outcome: Outcome) -> float:
        """The bound plus log prior on the last stage's rows, so that results from other rows can be compared."""
        point = outcome.point
        candidate = Candidate(point.q.prior, point.q, point.site)
        return self.options.value(posterior_of(self.part(self.sizes(candidate.prior)[-1]), candidate))

    def part(self, size: int) -> Fit:
        """The fit to a subset of so many rows."""
        return self.fit.part(self._subsets.rows(size))

    def _plan(self, prior: KernelPrior, rows_done: int) -> list[tuple[int, Options]]:
        """Sizes above ``rows_done`` with their stages' options; without an optimizer, none after a first stage."""
        sizes = [size for size in self.sizes(prior) if size > rows_done]
        if rows_done and self.optimize is None:
            return []
        return [(size, self.early) for size in sizes[:-1]] + [(size, self.options) for size in sizes[-1:]]

    def _growing(self, prior: KernelPrior) -> tuple[int, Options]:
        """Number of rows and options of a stage while the number of points may still grow."""
        size = self.sizes(prior)[0]
        if isinstance(self._sizes, str):
            size = min(self.fit.source.n_rows, LAST_ROWS, first_rows(self.fit, prior.n_inducing))
        if not self._plan(prior, size):
            return size, self.options
        return size, replace(self.early, max_iter=min(GROWING_ITERATIONS, self.options.max_iter))

    def optimized(self, part: Fit, candidate: Candidate, options: Options) -> Outcome:
        """Run the optimizer, if there is one, on some rows, starting from the candidate's posterior."""
        if self.optimize is None:
            return Outcome(posterior_of(part, candidate), 0)
        training, prior, q = part.training, candidate.prior, candidate.q
        start_training, site = training, self.fit.prior_mean.site(candidate.site, prior)
        if q is None and (rows := self._subsets.rows(self._start_rows)) is not None:
            start_training = replace(training, source=self.fit.source.sample(rows, part.source.n_rows / len(rows)))
        moves = options.learn_inducing and not _are_all_rows(prior, part.source)
        start = starting_posterior(start_training, q, prior, site)
        return self.optimize(training, start, site, replace(options, learn_inducing=moves))

    def _more_points(self, outcome: Outcome, candidate: Candidate, size: int) -> Candidate | None:
        """The candidate with more inducing points; None if its bound gains too little."""
        m, most, part = candidate.prior.n_inducing, candidate.grow_to, self.part(size)
        # Each trial doubles the number of inducing points. While that gives fewer than MOST_ALL_ROWS points,
        # MOST_ALL_ROWS are tried first: they lead to a better optimum than 64 points on the way do (NLL of two splits
        # of waveform is lower by .002, of two splits of thyroid by .0001 and .0006).
        trials = {min(to, most) for to in (2 * m, max(2 * m, MOST_ALL_ROWS))}
        numbers = sorted((to for to in trials if to > m), reverse=True)
        point = None
        for to in numbers:
            larger = with_more_points(candidate.prior, part.source.rows, to - m, self.random_state)
            if larger.n_inducing == m:
                break
            nats = TRIAL_SHARE * MIN_GAIN * (numbers[-1] - m) * self.fit.n_latents
            with during(f"the trial of {larger.n_inducing} inducing points"):
                # The posterior at these points converges first, or the new points would be credited with its remaining
                # gain.
                if point is None:
                    point = outcome.point if self.optimize is None else posterior_of(part, candidate, nats)
                richer = posterior_of(part, Candidate(larger, point.q, point.site), nats)
            columns = {"elbo": richer.elbo, "gain_per_point": gain_per_point(point, richer)}
            option = f"{larger.n_inducing} inducing points in place of {m}"
            if accept(rise_by_points(point, richer), option, self.history, **columns):
                return candidate.at(richer.q, richer.site)
        if point is None:
            explained = f"under the present kernel, {m} explain all rows"
            reason = f"{m} are the most that these rows allow" if most <= m else explained
            self.history.add(elbo=outcome.point.elbo, decision=f"No more inducing points were tried: {reason}.")
        return None

    def _started_again(self, start: Candidate, outcome: Outcome, size: int) -> Candidate | None:
        """Learn from the start kernel with more points; None unless these find what few points cannot represent.

        If a function changes over distances too short for few points, learning with these lets the variance fall to
        nothing, and under that kernel no further points would raise the bound.
        """
        point, part, n_few = outcome.point, self.part(size), outcome.point.q.prior.n_inducing
        is_shown = size < ROWS_OF_MORE and point.elbo > of_frequencies(part.training) + NOTHING_LEARNED
        if self.optimize is None or point.q.kl > NOTHING_LEARNED or is_shown:
            return None
        n_more = min(start.grow_to, max(2 * n_few, MOST_ALL_ROWS)) - start.prior.n_inducing
        larger = with_more_points(start.prior, part.source.rows, n_more, self.random_state)
        if larger.n_inducing <= n_few:
            return None
        # Its posteriors are not reported before it is accepted.
        with during(f"learning again with {larger.n_inducing} inducing points"):
            options = replace(self.early, max_iter=ITERATIONS_OF_CANDIDATES)
            restarted = self.optimized(part, start.under(larger), options)
        self.n_iter += restarted.n_iter
        option = f"learning again from the first kernel with {larger.n_inducing} inducing points"
        if not accept(rise_by_points(point, restarted.point), option, self.history):
            return None
        self.reached(restarted.point.q, restarted.point.site)
        return start.at(restarted.point.q, restarted.point.site)


def more_points(candidate: Candidate, fit: Fit) -> int:
    """A larger number of inducing points to try beside a first candidate's; 0 if none is to be tried."""
    m = candidate.prior.n_inducing
    more = MOST_ALL_ROWS if fit.n_latents == 1 else 2 * m
    return more if m < more <= candidate.grow_to and fit.source.n_rows >= ROWS_OF_MORE else 0


def _difference(prior: KernelPrior, other: KernelPrior) -> str:
    """What two priors with default kernels differ in, in words: kind of kernel, number of inducing points, or both."""
    kinds = [type(each.groups[0].spec.kernel.k2).__name__ for each in (prior, other)]
    numbers = [f"{each.n_inducing} inducing points" for each in (prior, other)]
    changes = [pair for pair in (kinds, numbers) if pair[0] != pair[1]]
    return " in place of ".join(" and ".join(words) for words in zip(*changes, strict=True))


def _are_all_rows(prior: KernelPrior, source: ArraySource) -> bool:
    """Whether every row is an inducing point of every kernel, so that moving points cannot raise the bound."""
    if prior.is_full or source.n_rows > MAX_INDUCING:
        return prior.is_full
    rows = dense(source.rows)
    return all(np.all(first_among(group.Z, rows) < len(group.Z)) for group in prior.groups)


def _is_full_process(fit: Fit, prior: KernelPrior) -> bool:
    """Whether learning is that of a full process: all rows are inducing points.

    No, if labels may be wrong, because negative precisions take longer, or if the kernel is called, because its noise
    is not known.
    """
    may_be_full = not fit.record.has_wrong_labels and not any(group.spec.not_compiled for group in prior.groups)
    return may_be_full and _are_all_rows(prior, fit.source)


def learn_in_stages(fit: Fit, start: Candidate, most_iterations: int | None = None) -> Candidate:
    """Learn hyperparameters and inducing points from all starts, and return the best candidate.

    Points are added up to the candidate's ``grow_to``, unless ``most_iterations`` limits each stage; that is the
    library's limit, so the user is not warned if it is reached.
    """
    config, run, begin = fit.config, fit.run, start
    if not fit.learns and not start.grow_to:
        return replace(start, problems=())
    if not start.prior.is_full and config.optimizer == "profile" and _is_full_process(fit, start.prior):
        # No point can move: the full process of these rows needs fewer operations, and no jitter.
        full = [FullPrior.build(group.spec, start.prior.groups[0].Z) for group in start.prior.groups]
        start = replace(start, grow_to=0)
        begin = replace(start, prior=grouped(full))
    prior, groups = begin.prior, begin.prior.groups
    max_iter = config.max_iter if most_iterations is None else min(most_iterations, config.max_iter)
    learner = Learner(replace(fit, config=replace(config, max_iter=max_iter)), begin)
    if fit.learns and config.kernel is None and start.q is None and len(groups[0].spec.theta) > 1:
        if fit.source.n_rows <= FIRST_ROWS:
            begin = learner.best_start(begin)
        # inducing_points="all", with up to 20 000 rows, or a kernel for each class would take too long to learn twice.
        is_quick = not config.is_full and len(groups) == 1 and config.optimizer == "profile"
        if is_quick and max_iter >= ITERATIONS_OF_CANDIDATES:
            begin = learner.best_candidate(begin)
    grow_to = start.grow_to if most_iterations is None else 0
    outcome = learner.learn(replace(begin, grow_to=grow_to))
    groups = outcome.point.q.prior.groups
    # What restarts reach on the way may be worse: the run gets the best result after each of them.
    learner.reached = Options.reached
    for _ in range(config.n_restarts_optimizer if fit.learns else 0):
        specs = [group.spec.with_theta(np.asarray(run.random_state.uniform(*group.spec.bounds.T))) for group in groups]
        other = learner.learn(replace(start.under(prior.rebuilt(specs, prior.Z)), grow_to=grow_to))
        outcome = max(outcome, other, key=learner.comparable)
        run.update(outcome.point.q, outcome.point.site)
    problems = (outcome.problem,) if outcome.problem and max_iter == config.max_iter else ()
    best, n_iter = outcome.point, start.n_iter + learner.n_iter
    return replace(start.at(best.q, best.site), n_iter=n_iter, problems=problems)
