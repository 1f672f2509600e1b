"""Learning with neighbours: the kernel by the score of held-out rows, in rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter

import numpy as np
from sklearn.gaussian_process.kernels import Matern

from .._sites import Site
from ..approximations.base import KernelPrior
from ..approximations.local_rows import in_order, metric
from ..approximations.sparse import SparsePrior
from ..inference.local_sites import Local
from ..inference.sweeps import converged_sites, start_sites
from ..kernels.axis import AxisMatern
from ..kernels.default import is_axis_aligned, is_of_default_kind
from ..kernels.spec import KernelSpec
from ..likelihoods.cavity import centred
from ..rows.coinciding import Distinct, Sites
from ..rows.neighbours import Neighbours
from ..rows.source import ArraySource
from .fit import Candidate, Fit
from .held_out_score import LOG_SCALE_SPREAD, HeldOutScore, maximised
from .hold_out import FEW_ROWS, Split
from .left_out import NATS_OF_ROW, posterior_of, scores_of_splits
from .scores import LEAST_GAIN, Gain, Scores

# For each round of learning, the number of rows, half of them held out, and of L-BFGS iterations. Each round draws new
# rows. In the second, more rows help more than more iterations: NLL on electricity and covtype was .087 and .105 with
# 16 000 rows and twenty iterations, .078 and .103 with 32 000 rows and six. (With four, ten fits to six sets take .9 of
# the time, and NLL is the same to .0003.) With several classes it is the reverse: NLL on letter was .066 with twenty
# iterations, and .070 with more rows and six.
ROUNDS, CLASSES_ROUNDS = ((8000, 15), (32_000, 4)), ((8000, 15), (16_000, 20))
# The candidate kernels take turns in the first round. Each begins with the parameters of the one before, because all
# fit about the same length scales and variance. The first one gets only so many iterations, and a full turn at the end.
# A variance that has to rise takes more than fifteen iterations, so kernels that each began anew were compared too
# early (NLL on cod-rna .074, with turns .054).
FIRST_TURN = 5
# With more than FULL_CLASSES classes a round has fewer rows, because each row takes longer, but at least 1 /
# LEAST_ROUND as many. If 1 / LEAST_ROUND of a round's rows are at least FEW_ROWS, a trial with these shows whether the
# round pays.
FULL_CLASSES, LEAST_ROUND = 5, 4
# Most neighbours in a round: with 16 the learned kernel is as good as with 24 (NLL on magic .294 and .299), in two
# thirds of the time.
ROUND_NEIGHBORS = 16
# Sweeps for scores end when log probabilities change by less than ``LEAST_GAIN``, about the least that decides; with
# several classes, when expected probabilities change by less than this number. With two classes this saves a few of ten
# sweeps; with several it halves their number, and log probabilities have errors of at most .003 nats.
CLASSES_ROUND_TOLERANCE = 1e-2
# Largest change of a log parameter in a round or turn, as the score updates the sites by one sweep only. Smaller limits
# lose: on electricity the variance rises from 4 to 2500 or more (NLL .085, against .099 if it may rise to 80).
MAX_STEP = 8.0
# Largest variance with several classes; larger ones with longer length scales give nearly the same process, but slower
# fits.
MOST_VARIANCE = 1e4
# Largest log variance factor for random held-out rows (on two splits NLL of wine falls by .006 and .008, of electricity
# by .002 and .0004, as it may be above 0; on eleven of twelve other sets it changes by .0007 or less). For other
# held-out rows it is 0: a factor above 1 would fit a shift between support and held-out rows, and in splits by time one
# hard month gave 20 (NLL .53 against .48). The least is ten standard deviations of its prior below 0.
MOST_LOG_SCALE = 1.5
# This many standard errors decide three times. If no rows are held out for a decision, neighbours must win the first
# round by so many. A round ends early, after its first turn or its trial on fewer rows, if neighbours lose by so many.
# (In the trial a9a and adult lose by 2.6 to 15; electricity, covtype, cod-rna and bank-marketing, which gain with all
# rows, by at most 1.7.) A kernel that loses the trial by so many to another does not learn from all rows of the round.
# If rows are held out, neighbours may lose the round by one error, because they gain more from the rows that it leaves
# out; its score then decides together with that of the held-out rows.
ERRORS_OF_FEW = 2.0


@dataclass(frozen=True)
class Task:
    """Learning with neighbours from the rows ``part`` of ``fit``; others, if any, help to decide about neighbours."""

    fit: Fit
    part: Fit
    first: Candidate  # where learning without neighbours starts
    n_neighbors: int
    split: Split  # numbers of the rows of ``part``, and of those that are held out for the decision

    def site(self, prior: KernelPrior, log_scale: float) -> Site:
        """The site function, whose prior mean depends on prior and variance factor."""
        site = self.fit.prior_mean.site(self.first.site, prior, float(np.exp(log_scale)))
        # A common shift of all classes changes no probability, and the sites of coupled classes have none.
        return site if site.record.curvature is None else site.with_prior_mean(centred(site.prior_mean))

    def scores_without(self, without: Candidate, splits: list[Split]) -> Scores:
        """Scores of the held-out rows of some splits, predicted without neighbours from the support rows.

        If the user gave the number of neighbours, nothing is compared.
        """
        if not self.fit.config.has_auto_neighbors:
            return NO_SCORES
        cold, nats = replace(without, q=None), NATS_OF_ROW * len(splits[0][0])
        return scores_of_splits(self.part, splits, partial(posterior_of, candidate=cold, nats=nats))


class Placed:
    """Training rows, equal ones once, in an order by place, so that neighbours lie close together in memory.

    A sweep over a million rows with 10 features takes 1.4 s, and 2.5 s in random order. Each row has k neighbours, the
    nearest under a prior's kernel. ``rank`` has the place of each distinct row in this order.
    """

    def __init__(self, task: Task, source: ArraySource, prior: SparsePrior, log_scale: float, k: int):
        executor, distinct = task.fit.run.executor, Distinct.of(source)
        self.task, self.weight, self.log_scale, self.distinct = task, source.weight, log_scale, distinct
        self.neighbours = Neighbours(distinct.source.X, metric(prior.core))
        others = self.neighbours.by_place(min(k, distinct.source.n_rows - 1), executor.each)
        order = self.neighbours.order
        self.rank = np.argsort(order).astype(np.int32)
        rows, ordered_index = distinct.source.sample(order), in_order(self.rank[others], order)
        self.local = Local.of(executor, rows, prior, ordered_index, task.site(prior, log_scale))

    def by_place(self, sites: Sites) -> Sites:
        """Sites of the distinct rows in the order by place, given those (2, C, n) of all rows."""
        return np.take(self.distinct.sums(sites), self.neighbours.order, axis=2)

    def as_given(self, values: np.ndarray) -> np.ndarray:
        """Values (2, C, r) of the distinct rows in the order of the given rows, from those in the order by place."""
        return np.take(values, self.rank, axis=2)


NO_SCORES = Scores(np.empty(0), np.empty(0))


@dataclass(frozen=True)
class LocalFit:
    """A kernel, a variance factor, and sites of all rows as far as rounds have updated them.

    Attributes
    ----------
    log_scale : float, logarithm of the factor
    scale : (p,), as in ``Maximum``; learning divides the parameters by it
    learned : scores of the last round's held-out rows after its learning
    n_learned : effective number of parameters that rounds have fitted to held-out rows
    """

    prior: SparsePrior
    sites: Sites
    scale: np.ndarray
    log_scale: float = 0.0
    learned: Scores = NO_SCORES
    n_learned: float = 0.0
    n_iter: int = 0

    @property
    def corrected(self) -> Scores:
        """The scores less what the parameters fitted to these rows seem to gain."""
        return replace(self.learned, values=self.learned.values - self.learned.optimism(self.n_learned))

    def loses_to(self, scores: Scores) -> bool:
        """Whether this fit's scores are lower by so many standard errors that it need not learn from more rows."""
        gains = self.corrected - scores
        return gains.mean < -ERRORS_OF_FEW * gains.error

    @property
    def parameters(self) -> np.ndarray:
        """Parameters of the score: ``theta`` and the logarithm of the factor."""
        return np.append(self.prior.spec.theta, self.log_scale)


# Fits are compared by the mean score of held-out rows, corrected for the parameters that were fitted to them.
score: Callable[[LocalFit], float] = attrgetter("corrected.mean")


def nearer(spec: KernelSpec, X: np.ndarray, k: int, n_threads: int) -> KernelSpec:
    """Shorten the length scales until half of the rows X have k neighbours within one length scale.

    If labels change many times across the data, they look like noise at longer length scales, and the score does not
    rise from there (four of six random states on a checkerboard of 8 by 8 fields, 2500 rows).
    """
    neighbours = Neighbours(X, metric(spec.at(X[:1])))
    distance = float(np.median(neighbours.metric.distances(X, X[neighbours.of_rows(k, n_threads)[:, -1]])))
    return _longer(spec, np.log(distance), spec) if 0.0 < distance < 1.0 else spec


def _longer(spec: KernelSpec, change: float, kind: KernelSpec) -> KernelSpec:
    """The kernel ``kind`` with the parameters of ``spec``, and ``change`` added to its logarithmic length scales."""
    is_length = np.array(["length_scale" in name for name in spec.names], dtype=bool)
    return kind.with_theta(spec.theta + change * is_length).within_bounds()


def at_parameters_of(fitted: KernelSpec, other: KernelSpec, X: np.ndarray, k: int, n_threads: int) -> KernelSpec:
    """Give another candidate the parameters of a fitted one.

    If the candidates measure distances differently, all length scales are multiplied by one factor, so that the median
    distance of the rows X (n, d) to their k-th neighbours stays the same.
    """
    metrics = metric(fitted.at(X[:1])), metric(other.at(X[:1]))
    change = 0.0
    if metrics[0].power != metrics[1].power:
        nearest = X[Neighbours(X, metrics[0]).of_rows(k, n_threads)[:, -1]]
        distances, other_distances = (metrics[0]._replace(power=each.power).distances(X, nearest) for each in metrics)
        # Squares of tiny differences underflow where the differences themselves do not.
        is_apart = (distances > 0.0) & (other_distances > 0.0)
        change = np.log(np.median(other_distances[is_apart] / distances[is_apart])) if np.any(is_apart) else 0.0
    return _longer(fitted, change, other)


def size_of_round(number: int, n_latents: int) -> tuple[int, int]:
    """Number of rows of a round, support and held-out together, and its limit on iterations, for ``n_latents``."""
    if n_latents == 1:
        return ROUNDS[number]
    size, iterations = CLASSES_ROUNDS[number]
    return max(size // LEAST_ROUND, min(size, FULL_CLASSES * size // n_latents)), iterations


def first_round(
    task: Task, prior: SparsePrior, first: KernelSpec, without: Candidate, splits: list[Split], max_iter: int
) -> tuple[list[LocalFit], list[Split], Scores]:
    """Score ``prior``'s kernel as it is, and fit the candidate kernels to the held-out rows of some splits.

    In a large round the candidates learn from a part of the rows first. Those that are not beaten there learn from all
    rows, if the best is not hopeless: with "auto" it must not lose clearly against ``without``, which has no
    neighbours. Returns the results, the splits with the rows that were scored, and the scores of ``without``.

    Parameters
    ----------
    prior : initial prior; its inducing points stay fixed
    first : another initial kernel, which learning without neighbours started from; it is tried with shorter length
        scales, because inducing points may have missed the structure
    max_iter : most iterations of a round; 0 learns nothing
    """
    n_rows = sum(len(rows) for split in splits for rows in split)
    step = LEAST_ROUND if n_rows >= LEAST_ROUND * FEW_ROWS else 1
    trial = [(support[::step], held_out[::step]) for support, held_out in splits]

    def start(spec: KernelSpec, splits: list[Split]) -> LocalFit:
        initial = prior.rebuilt([spec], prior.Z)
        sites, scale = start_sites(task.part.source, task.site(initial, 0.0)), np.ones(len(spec.theta) + 1)
        return fit_round(task, LocalFit(initial, sites, scale), splits, 0)

    X, n_threads = Distinct.of(task.part.source.sample(splits[-1][0])).source.X, task.fit.run.executor.n_threads
    k, n_iter = min(task.n_neighbors, len(X) - 1), min(max_iter, size_of_round(0, task.fit.n_latents)[1])
    if not k or not max_iter:
        return [start(prior.spec, splits)], splits, task.scores_without(without, splits)
    simpler = task.scores_without(without, trial)

    def is_hopeless(local_fit: LocalFit) -> bool:
        return simpler is not NO_SCORES and local_fit.loses_to(simpler)

    def in_turns(fit: LocalFit, splits: list[Split], specs: list[KernelSpec]) -> list[LocalFit]:
        """Fit some kernels, each turn from the parameters of the one before; returns the best result of each."""
        best, others = dict[KernelSpec, LocalFit](), specs[1:]
        turns = [(spec, n_iter) for spec in (*others, specs[0])]
        for spec, most in [(specs[0], min(n_iter, FIRST_TURN)), *turns] if others else turns:
            moved = prior.rebuilt([at_parameters_of(fit.prior.spec, spec, X, k, n_threads)], prior.Z)
            fit = fit_round(task, replace(fit, prior=moved), splits, most)
            best[spec] = max(fit, best.get(spec, fit), key=score)
            if len(best) == 1 and n_rows < FEW_ROWS and is_hopeless(fit):
                break
        return list(best.values())

    unchanged, specs = start(prior.spec, trial), _candidates(task, prior.spec)
    if gain_of(task, unchanged.corrected, task.part, np.concatenate([rows for _, rows in trial])).is_shown:
        begin = max(unchanged, start(nearer(first, X, k, n_threads), trial), key=score)
    else:
        # Inducing points may have missed all structure: in this kernel half of the rows have their nearest row within
        # one length scale. (With the eighth nearest row, scores on checkerboards were the same.)
        begin = start(nearer(first, X, 1, n_threads), trial)
    local_fits = in_turns(begin, trial, specs)
    best = max(local_fits, key=score)
    if step == 1 or is_hopeless(best):
        return [unchanged, *local_fits], trial, simpler
    rivals = [spec for spec, local_fit in zip(specs, local_fits, strict=True) if not local_fit.loses_to(best.corrected)]
    return [start(prior.spec, splits), *in_turns(best, splits, rivals)], splits, task.scores_without(without, splits)


def gain_of(task: Task, scores: Scores, fit: Fit, held_out: np.ndarray) -> Gain:
    """The gain of the scores of ``fit``'s rows ``held_out`` (r,) over the class frequencies."""
    beginning = f"With {task.n_neighbors} neighbours {len(held_out)} held-out rows have"
    return Gain.of(scores, fit.hold_out.labels[held_out], fit.class_totals, beginning)


def _candidates(task: Task, spec: KernelSpec) -> list[KernelSpec]:
    """Return the kernels that the first round fits.

    If the user has given no kernel, there are three: a rough one, a smoother one, and a rough axis-aligned one for
    classes that are rules on single features. The smoother one is axis-aligned if ``spec`` is.
    """
    kernel, is_axis = spec.kernel, is_axis_aligned(spec)
    if task.fit.config.kernel is not None or not (is_axis or is_of_default_kind(spec)):
        return [spec]
    smooth, bounds, smoother = kernel.k2.length_scale, kernel.k2.length_scale_bounds, AxisMatern if is_axis else Matern
    kernels = Matern(smooth, bounds, nu=0.5), smoother(smooth, bounds, nu=1.5), AxisMatern(smooth, bounds, nu=0.5)
    return [spec.compiled(kernel.k1 * factor) for factor in kernels]


def round_tolerance(site: Site) -> float:
    return LEAST_GAIN if site.record.curvature is None else CLASSES_ROUND_TOLERANCE


def fit_round(task: Task, start: LocalFit, splits: Sequence[Split], max_iter: int) -> LocalFit:
    """Find the sites of the support rows by sweeps, then maximise the score of the held-out rows by L-BFGS.

    The score is that of all splits together; with ``max_iter=0`` it is only computed.
    """
    prior, history, n_threads = start.prior, task.fit.run.history, task.fit.run.executor.n_threads
    size = {"n_rows": sum(len(rows) for split in splits for rows in split), "n_inducing": prior.n_inducing}
    history.tell(stage="neighbours", **size)
    log_priors = task.first.length_scale_prior, 1.0 / len(splits)
    sites, n_sweeps, scores = start.sites.copy(), 0, list[HeldOutScore]()
    for support, held_out in splits:
        source, predicted = task.part.source.sample(support), task.part.source.sample(held_out)
        placed = Placed(task, source, prior, start.log_scale, min(task.n_neighbors, ROUND_NEIGHBORS))
        local, distinct, search = placed.local, placed.distinct, placed.neighbours
        sweeps = converged_sites(local, placed.by_place(sites[:, :, support]), round_tolerance(local.site))
        n_sweeps += sweeps.n_sweeps
        sites[:, :, support] = distinct.parts(placed.as_given(sweeps.sites))
        k = min(task.n_neighbors, ROUND_NEIGHBORS, distinct.source.n_rows)
        index = placed.rank[search.of(predicted.X, k, n_threads)]
        # Other kernels have other covariances.
        local, rows = replace(local, blocks=None), distinct.source.sample(search.order)
        scores.append(HeldOutScore(local, rows, predicted, index, sweeps.sites, *log_priors))
    # A single support row has no neighbours, so there is nothing to learn.
    most = max_iter if all(score.local.index.shape[1] for score in scores) else 0
    best = maximised(scores, start.parameters, start.scale, _limits(task, start), most, history)
    means = {"held_out_score": best.start_scores.mean, "learned_score": best.scores.mean}
    history.add(**size, n_neighbors=k, sweeps=n_sweeps, evaluations=best.n_evaluations, **means)
    prior, log_scale = prior.rebuilt([prior.spec.with_theta(best.parameters[:-1])], prior.Z), float(best.parameters[-1])
    # The variance factor is one parameter more.
    n_learned = task.first.length_scale_prior.n_effective(prior.spec) + 1.0 if most else start.n_learned
    groups = task.part.hold_out.groups_of(np.concatenate([rows for _, rows in splits]))
    learned = replace(best.scores, groups=groups)
    return LocalFit(prior, sites, best.scale, log_scale, learned, n_learned, start.n_iter + best.n_iter)


def log_scale_bounds(task: Task) -> tuple[float, float]:
    """Bounds of the logarithm of the variance factor."""
    return -10.0 * LOG_SCALE_SPREAD, MOST_LOG_SCALE if task.fit.hold_out.is_random else 0.0


def _limits(task: Task, start: LocalFit) -> np.ndarray:
    """Bounds (p, 2) of the score's parameters in a round."""
    parameters = start.parameters
    low, high = np.vstack([start.prior.spec.bounds, log_scale_bounds(task)]).T
    low, high = np.maximum(low, parameters - MAX_STEP), np.minimum(high, parameters + MAX_STEP)
    if task.fit.n_latents > 1:
        is_variance = np.array([*("constant_value" in name for name in start.prior.spec.names), False])
        high = np.where(is_variance, np.minimum(high, np.maximum(parameters, np.log(MOST_VARIANCE))), high)
    return np.column_stack([low, high])
