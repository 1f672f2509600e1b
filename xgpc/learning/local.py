"""Learning with neighbours: a kernel by the score of query rows, and the local posterior of all rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel, Matern, Product

from .._sites import Site
from ..approximations.base import KernelPrior
from ..approximations.local import LocalPosterior
from ..approximations.local_rows import Sites, in_order, local_rows, metric
from ..approximations.sparse import SparsePrior
from ..inference.history import History
from ..inference.links import Link, Shifted, centred
from ..inference.local_sites import Local, Sweeps, converged_sites, start_sites
from ..inference.prior_mean import OF_SITE, PriorMean
from ..kernels.prior import NO_PRIOR, LengthScalePrior
from ..kernels.spec import KernelSpec
from ..rows.coinciding import Distinct
from ..rows.deadline import Deadline, OutOfTime
from ..rows.executor import Executor
from ..rows.neighbours import Neighbours
from ..rows.source import ArraySource, labels_and_weights
from .hold_out import HoldOut
from .query_score import QueryScore, Scores, standard_error

# Neighbours by default. On electricity, covtype, higgs, magic and cod-rna 16 lose up to .03 nats a row against 24, and
# 40 gain no more than they lose, in twice the time.
DEFAULT_NEIGHBORS = 24
# Rounds of learning: rows, half of them queries, and iterations of L-BFGS. Each draws other rows, so that no row is
# fitted; the first tells which kernel to go on with. The second needs its queries: with a quarter of them, or 8000 rows
# in all, 28 length scales were fitted to the queries themselves (higgs .546 and .553 against .543).
ROUNDS = ((8000, 15), (16_000, 12))
# A row of several classes tells more, and takes longer: of more than FULL_CLASSES rows times classes are no more than
# of these, but rows a quarter at least. (Half of the processor time of fits to pendigits, ten classes.)
FULL_CLASSES, LEAST_ROUND = 5, 4
# Neighbours that are looked at in rounds at most: time grows with their cube, and fewer teach a kernel as well. (NLL of
# rows kept apart, with 24 and 16: wine .848 and .848, landsat .213 and .209, magic .299 and .294, ringnorm .038 and
# .034, in two thirds of the time.)
ROUND_NEIGHBORS = 16
# With several classes, change of the expected probabilities below which sweeps end where scores are compared: errors of
# other rows' probabilities are then .0001 to .003 on average, and sweeps half as many (the cases of
# ``CLASSES_TOLERANCE``).
ROUND_TOLERANCE = 1e-2
# Least precision, with several classes, that sweeps of rows begin with that were predicted. Where a wrong class was
# nearly sure there is next to none, and the linear term stands for a value of millions (188 fits with given kernels,
# variances of 100 to 1e5: 18 did not converge without this; of ten of these all do, in 7 to 10 sweeps).
LEAST_FIRST = 0.01
# L-BFGS ends a round where an iteration raises the score by less than this share of it.
STOP = {"ftol": 1e-5}
# Most that the logarithm of a parameter changes in a round: the sites are those of one sweep from its start. A variance
# may rise from 4 to 2500 in the first (electricity .085; .099 where it may rise to 80).
MAX_STEP = 8.0
# With several classes it rises so far at most, or stays where it is. Larger ones and longer length scales come to the
# same rough process, whose sites plain sweeps hardly moved (letter, gain of rows kept apart by neighbours: .338 nats
# with variances up to 1e5, which was the end, .435 with 1e4, .422 with 1e3).
MOST_VARIANCE = 1e4
# Smoothness of the kernels that are tried in place of the default one. Where classes change quickly they are rough:
# electricity ends at .110 with 1/2, .161 with 3/2 and .190 with RBF, covtype at .167, .153 and .157. More rows help the
# rougher one more (cod-rna: .085 against .084 with 8000 of 294 000 rows, .067 against .092 with all).
ROUGHNESS = (0.5, 1.5)
# Query rows that a kernel is learned from at least. With fewer it is fitted to them: NLL with a kernel learned from
# queries, and with that learned without neighbours, 7 problems, synthetic and real, six random states each: .72 and .63
# of 15 rows, .60 and .55 of 30, .48 and .50 of 60.
LEAST_QUERIES = 20
# A kernel tells something if its queries are more likely than by the frequencies of the classes, by so many paired
# standard errors: fitted to the same rows it gains one of noise alone, and 2.2 were seen (a board of 8 by 8 fields, 500
# rows). With 3 a good kernel was lost of 60 rows of magic (.48 and .61).
LEAST_ERRORS = 2.5
# Where no kernel tells anything: half of the rows have this neighbour within a length scale. From the 2nd, 4th and 8th,
# and variances of 1, 10 and 100, the scores of boards of 8 by 8 fields came within .025 nats of those from it.
NEAREST = 1
# What the rounds take after the first looks at neighbours, and the sites of all rows for each row of its support, in
# times of the fastest look, as the first one waits for memory and threads (electricity, 40 781 rows: 21 and 1.0;
# pendigits, 9893: 34 and 1.7; landsat, 5792: 28 and 1.8; covtype, 83 666: 20 and 2.9; cod-rna, 298 037: 15 and 1.9).
LOOKS_OF_ROUNDS, LOOKS_OF_SITES = 25.0, 2.0
# Range of the logarithm of the factor of the variances, and the standard deviation of its change where it is fitted
# again. Above 1 it would make up for labels of another time than those that the kernel is learned from: with queries in
# order of time one hard month gave 20, and the NLL of the next .53 (.48 with 1).
LOG_SCALE_BOUNDS = (-3.0, 0.0)
LOG_SCALE_CHANGE = 0.3


@dataclass(frozen=True)
class Task:
    """Rows to learn from with their neighbours.

    Attributes
    ----------
    source : labels as the link takes them, weights
    link : Link, of latent values
    n_latents : int or None, number of latent functions; None: one
    n_neighbors : int
    queries : Queries
    deadline : Deadline, or None: there is as much time as it takes
    length_scale_prior : LengthScalePrior
    site : Site of the same likelihood, or None: the latent values have mean zero under every prior
    prior_mean : PriorMean, of the site
    """

    executor: Executor
    source: ArraySource
    link: Link
    n_latents: int | None
    n_neighbors: int
    hold_out: HoldOut
    history: History
    deadline: Deadline | None = None
    length_scale_prior: LengthScalePrior = NO_PRIOR
    site: Site | None = None
    prior_mean: PriorMean = OF_SITE

    def link_at(self, prior: KernelPrior, log_scale: float) -> Link:
        """The link of what posteriors are of, distances from the mean that a prior and a factor of variances have."""
        if self.site is None:
            return self.link
        mean = self.prior_mean.scaled(float(np.exp(log_scale))).site(self.site, prior).prior_mean
        # What adds to all classes alike changes no probability, and the sites of coupled classes leave it out.
        return Shifted(self.link, mean if self.link.curvature is None else centred(mean))


@dataclass(frozen=True)
class LocalFit:
    """A kernel, a factor of the variances, and sites of all rows as far as they have been looked at.

    Attributes
    ----------
    log_scale : float, logarithm of the factor
    asked : (q,), the last round's query rows
    scores, learned : of these, before and after the kernel was fitted to them
    """

    prior: SparsePrior
    sites: Sites
    log_scale: float
    held_out: np.ndarray
    scores: Scores
    learned: Scores
    n_iter: int

    @property
    def parameters(self) -> np.ndarray:
        """Of the score: ``theta`` and the factor's logarithm."""
        return np.append(self.prior.spec.theta, self.log_scale)


def without_rounds(task: Task, prior: SparsePrior) -> LocalFit:
    """What there is before the first round."""
    none = np.arange(0)
    nothing = Scores(np.empty(0), np.empty(0))
    return LocalFit(prior, start_sites(task.source, task.link_at(prior, 0.0)), 0.0, none, nothing, nothing, 0)


def candidates(kernel: Kernel, is_default: bool) -> list[Kernel]:
    """Kernels to begin with: the given one, or rougher ones in place of the default one."""
    is_plain = type(kernel) is Product and type(kernel.k1) is ConstantKernel and type(kernel.k2) is RBF
    if not (is_default and is_plain):
        return [kernel]
    smooth = kernel.k2
    return [kernel.k1 * Matern(smooth.length_scale, smooth.length_scale_bounds, nu=nu) for nu in ROUGHNESS]


def nearer(spec: KernelSpec, X: np.ndarray, k: int, n_threads: int) -> KernelSpec:
    """The kernel with its length scales so short that half of the rows X have k neighbours within one of them.

    Labels that change many times across the data are noise to length scales as long as these are wide, and the score
    does not rise from there (a board of 8 by 8 fields, 2500 rows: at log 2 for four of six random states).
    """
    scaled = X * metric(spec.at(X[:1]))
    last = scaled[Neighbours(scaled).of_rows(k, n_threads)[:, -1]]
    distance = float(np.median(np.sqrt(np.sum((scaled - last) ** 2, axis=1))))
    is_length = np.array(["length_scale" in name for name in spec.names], dtype=bool)
    if not 0.0 < distance < 1.0:
        return spec
    return spec.with_theta(spec.theta + np.log(distance) * is_length).within_bounds()


def rows_of_round(number: int, n_latents: int | None) -> int:
    """Support rows and query rows of a round in all; ``n_latents`` as in ``Task``."""
    size = ROUNDS[number][0]
    return max(size // LEAST_ROUND, min(size, FULL_CLASSES * size // (n_latents or 1)))


def first_round(task: Task, prior: SparsePrior, first: KernelSpec, is_default: bool, max_iter: int) -> list[LocalFit]:
    """What the kernels that are tried come to in the first round, rough ones first.

    A single one, to which nothing was fitted, where the queries are too few to tell kernels apart, or where they are no
    better known than by the frequencies of the classes: ``prior``'s.

    Parameters
    ----------
    prior : where to begin; its inducing points stay
    first : where else, as it is and nearer: what learning without neighbours began with. Where inducing points see no
        structure, it ended with a kernel that has none, from which the score does not rise
    is_default : whether its kernel is of our choosing, and another may take its place
    max_iter : most iterations of a round; 0 learns nothing
    """
    support, held_out = task.hold_out.draw(0, rows_of_round(0, task.n_latents))

    def begin(spec: KernelSpec, n_iter: int) -> LocalFit:
        return _round(task, without_rounds(task, prior.rebuilt([spec], prior.Z)), support, held_out, n_iter)

    def tried(spec: KernelSpec) -> list[LocalFit]:
        specs = [spec.compiled(kernel) for kernel in candidates(spec.kernel, is_default)]
        return [begin(one, min(max_iter, ROUNDS[0][1])) for one in specs]

    looks: list[float] = []

    def look(spec: KernelSpec) -> LocalFit:
        began = 0.0 if task.deadline is None else task.deadline.now()
        found = begin(spec, 0)
        looks.append(0.0 if task.deadline is None else task.deadline.now() - began)
        return found

    before = look(prior.spec)
    if not max_iter or len(held_out) < LEAST_QUERIES:
        _check_time(task, min(looks), len(support), max_iter)
        return [before]
    rows = Distinct.of(task.source.sample(support)).source
    k = min(task.n_neighbors, rows.n_rows - 1)
    n_threads = task.executor.n_threads
    near = nearer(first, rows.X, k, n_threads) if k else first
    starts = [before, look(first), look(near)]
    _check_time(task, min(looks), len(support), max_iter)
    found = tried(max(starts, key=lambda start: start.learned.mean).prior.spec)
    if not any(beats_base_rate(task, one) for one in found):
        # A kernel without structure can have the best score of those to begin with, and keep it.
        nearest = tried(nearer(first, rows.X, min(NEAREST, k), n_threads) if k else first)
        found = nearest if any(beats_base_rate(task, one, fitted=len(one.parameters)) for one in nearest) else [before]
    return found


def _check_time(task: Task, look: float, n_support: int, max_iter: int) -> None:
    """Raise ``OutOfTime`` if what is to come after looks, each of so many seconds, cannot end in time.

    Rounds that are not finished are for nothing: the time is better spent on learning without neighbours.
    """
    if task.deadline is None:
        return
    looks = (LOOKS_OF_ROUNDS if max_iter else 0.0) + LOOKS_OF_SITES * task.source.n_rows / n_support
    if task.deadline.left < looks * look:
        raise OutOfTime


def beats_base_rate(task: Task, local_fit: LocalFit, fitted: int = 0) -> bool:
    """Whether the queries of the round, which are enough, are better known than by the frequencies of the classes.

    ``fitted``: by this many nats in all besides, one for each parameter that was fitted to them. On average these make
    so much more of the queries than of other rows (Akaike 1974).
    """
    gains, weight = local_fit.learned.values - base_rate_log_scores(task, local_fit.held_out), local_fit.learned.weight
    least = LEAST_ERRORS * standard_error(gains, weight)
    # Of a single query the error is NaN.
    is_more = np.average(gains, weights=weight) > max(least, fitted / len(gains))
    return len(gains) >= LEAST_QUERIES and bool(is_more)


def base_rate_log_scores(task: Task, held_out: np.ndarray) -> np.ndarray:
    """log p(y) (q,) of some rows by the frequencies of the classes."""
    y, weight = labels_and_weights(task.source)
    _, codes = np.unique(y, return_inverse=True)
    shares = np.bincount(codes, weights=weight) / np.sum(weight)
    return np.log(shares[codes[held_out]])


def chosen(tried: list[LocalFit], errors: float, nats: float) -> LocalFit:
    """The last whose mean score is better than those before it by so many paired standard errors, and so many nats."""
    best = tried[0]
    for other in tried[1:]:
        gains, weight = other.learned.values - best.learned.values, best.learned.weight
        if np.average(gains, weights=weight) > max(nats, errors * standard_error(gains, weight)):
            best = other
    return best


def second_round(task: Task, local_fit: LocalFit, max_iter: int) -> LocalFit:
    """The kernel that more rows of their own make of that of the first round."""
    if not max_iter:
        return local_fit
    return _round(
        task, local_fit, *task.hold_out.draw(1, rows_of_round(1, task.n_latents)), min(max_iter, ROUNDS[1][1])
    )


def _round(task: Task, start: LocalFit, support: np.ndarray, held_out: np.ndarray, max_iter: int) -> LocalFit:
    """L-BFGS on the score of some query rows."""
    prior = start.prior
    task.history.tell(stage="neighbours", n_rows=len(support) + len(held_out), n_inducing=prior.n_inducing)
    distinct, queries = Distinct.of(task.source.sample(support)), task.source.sample(held_out)
    rows = distinct.source
    k = min(task.n_neighbors, ROUND_NEIGHBORS, rows.n_rows)
    scale = metric(prior.core)
    near = Neighbours(rows.X * scale)
    n_threads = task.executor.n_threads
    among = min(k, rows.n_rows - 1)
    index, n_earlier = in_order(near.of_rows(among, n_threads))
    query_index = near.of(queries.X * scale, k, n_threads)
    here = distinct.sums((start.sites[0][:, support], start.sites[1][:, support]))
    link = task.link_at(prior, start.log_scale)
    local = Local(rows, prior.core, local_rows(task.executor, prior, rows), index, n_earlier, link)
    sweeps = converged_sites(task.executor, local, here, round_tolerance(link))
    at = rows, queries, index, n_earlier, query_index, sweeps.sites
    score = QueryScore(task.executor, prior, *at, link, task.length_scale_prior)
    parameters = start.parameters
    before = learned = score.at(parameters).scores
    n_iter = n_evaluations = 0
    # Of a single row there are no neighbours to learn from.
    if max_iter and among:
        bounds, options = limits(task, start), {"maxiter": max_iter, **STOP}

        def objective(parameters: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = score.objective(parameters)
            task.history.tell(query_score=-value)
            return value, gradient

        found = minimize(objective, parameters, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        parameters = found.x
        prior = prior.rebuilt([prior.spec.with_theta(parameters[:-1])], prior.Z)
        learned, n_iter, n_evaluations = score.at(parameters).scores, found.nit, found.nfev
    task.history.add(
        n_rows=len(support) + len(held_out),
        n_inducing=prior.n_inducing,
        n_neighbors=k,
        sweeps=sweeps.n_sweeps,
        searches=1,
        evaluations=n_evaluations,
        query_score=before.mean,
        learned_score=learned.mean,
    )
    sites = start.sites[0].copy(), start.sites[1].copy()
    for all_rows, part in zip(sites, distinct.parts(sweeps.sites), strict=True):
        all_rows[:, support] = part
    return LocalFit(prior, sites, float(parameters[-1]), held_out, before, learned, start.n_iter + n_iter)


def round_tolerance(link: Link) -> float | None:
    """Of sweeps where scores are compared; None: the usual one."""
    return None if link.curvature is None else ROUND_TOLERANCE


def limits(task: Task, start: LocalFit) -> np.ndarray:
    """Range (p, 2) of the score's parameters in a round."""
    parameters = start.parameters
    low, high = np.vstack([start.prior.spec.bounds, LOG_SCALE_BOUNDS]).T
    low, high = np.maximum(low, parameters - MAX_STEP), np.minimum(high, parameters + MAX_STEP)
    if task.n_latents is not None:
        is_variance = np.array([*("constant_value" in name for name in start.prior.spec.names), False])
        high = np.where(is_variance, np.minimum(high, np.maximum(parameters, np.log(MOST_VARIANCE))), high)
    return np.column_stack([low, high])


def fit_sites(task: Task, local_fit: LocalFit, is_last: bool = True) -> tuple[LocalPosterior, Sweeps]:
    """The local posterior of the task's distinct rows, and the sites of all of them.

    If it is not the last, as accurate as those of rounds.
    """
    prior = local_fit.prior
    task.history.tell(stage="neighbours", n_rows=task.source.n_rows, n_inducing=prior.n_inducing)
    distinct = Distinct.of(task.source)
    source = distinct.source
    # A new row may have all training rows for neighbours, one of these all others.
    k = min(task.n_neighbors, source.n_rows)
    near = Neighbours(source.X * metric(prior.core))
    rows = local_rows(task.executor, prior, source)
    index = near.of_rows(min(k, source.n_rows - 1), task.executor.n_threads)
    link = task.link_at(prior, local_fit.log_scale)
    local = Local(source, prior.core, rows, *in_order(index), link)
    sites = distinct.sums(local_fit.sites)
    sweeps = converged_sites(task.executor, local, sites, None if is_last else round_tolerance(link))
    task.history.add(
        n_rows=task.source.n_rows, n_inducing=prior.n_inducing, n_neighbors=k, sweeps=sweeps.n_sweeps, searches=1
    )
    # A copy: it keeps its rows, read-only, whatever their owner does with the given ones.
    X = np.array(source.X, order="C")
    scale = float(np.exp(local_fit.log_scale))
    posterior = LocalPosterior.from_fit(prior, X, sweeps.sites, sweeps.q, k, task.n_latents, scale, rows, near)
    return posterior, replace(sweeps, sites=distinct.parts(sweeps.sites))


@dataclass(frozen=True)
class HeldOutPredictions:
    """What a local posterior says of rows that it has not seen.

    Attributes
    ----------
    source : the rows
    mean, variance : (C, r), the latter with the factor
    scores : Scores
    """

    source: ArraySource
    mean: np.ndarray
    variance: np.ndarray
    scores: Scores

    def sites(self, link: Link) -> Sites:
        """Of the rows, from what they are predicted to be: where sweeps begin."""
        y, weight = labels_and_weights(self.source)
        precision, linear = link.sites(self.mean, self.variance, y)
        if link.curvature is not None:
            precision = np.maximum(precision, LEAST_FIRST)
        return weight * precision, weight * linear

    def log_scale(self, link: Link, before: float) -> float:
        """Logarithm of the factor of the variances by these rows, from the one that they have.

        Query rows of a round see few of the rows, and are less certain than what all rows say.
        """
        y, weight = labels_and_weights(self.source)

        def minus_log_posterior(change: float) -> float:
            values, _ = link.scores(self.mean, np.exp(change) * self.variance, y)
            return float(0.5 * (change / LOG_SCALE_CHANGE) ** 2 - weight @ values)

        low, high = LOG_SCALE_BOUNDS
        found = minimize_scalar(minus_log_posterior, bounds=(low - before, high - before), method="bounded")
        return before + float(found.x)


def score_held_out(task: Task, local: LocalPosterior, source: ArraySource) -> HeldOutPredictions:
    """Predictions of rows that the local posterior has not seen."""
    y, weight = labels_and_weights(source)
    mean, variance = map(np.atleast_2d, local.marginals(source.X, task.executor.n_threads))
    link = task.link_at(local.prior, np.log(local.variance_scale))
    return HeldOutPredictions(source, mean, variance, Scores(link.scores(mean, variance, y)[0], weight))


def moved(local_fit: LocalFit, prior: SparsePrior) -> LocalFit:
    """The same with the inducing points of another prior."""
    return replace(local_fit, prior=prior.rebuilt([local_fit.prior.spec], prior.Z))
