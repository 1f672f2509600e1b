"""Learning with neighbours: the kernel by the score of held-out rows, then the local posterior of all rows."""

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

# Default number of neighbours. On five data sets 16 lost up to .03 nats a row against 24, and 40 took twice the time
# for no gain.
DEFAULT_NEIGHBORS = 24
# Rounds of learning: number of rows, half of them held out, and L-BFGS iterations. Each round draws new rows against
# overfitting; with a quarter held out, or 8000 rows, the second round overfitted 28 length scales (higgs .546 and .553
# against .543).
ROUNDS = ((8000, 15), (16_000, 12))
# With more than FULL_CLASSES classes a round has fewer rows, but at least 1 / LEAST_ROUND of them: each row tells more
# and takes longer (half of the time for pendigits, ten classes).
FULL_CLASSES, LEAST_ROUND = 5, 4
# Most neighbours in a round: time grows with their cube, and 16 teach a kernel as well as 24 (held-out NLL on magic
# .294 and .299) in two thirds of the time.
ROUND_NEIGHBORS = 16
# With several classes, sweeps for scores stop at this change of expected probabilities: half as many sweeps, with
# errors of the probabilities of .0001 to .003 on average.
ROUND_TOLERANCE = 1e-2
# Least initial precision of predicted rows with several classes. Where a wrong class is nearly certain the precision
# almost vanishes and the site diverges: without this limit 18 of 188 fits did not converge.
LEAST_FIRST = 0.01
# L-BFGS ends a round when an iteration raises the score by less than this share.
STOP = {"ftol": 1e-5}
# Largest change of a log parameter in a round, because the sites are only one sweep from its start. Electricity needs a
# variance that rises from 4 to 2500 (NLL .085, against .099 if it may rise to 80).
MAX_STEP = 8.0
# Largest variance with several classes. Still larger variances with longer length scales give the same process but slow
# sweeps (letter: gain by neighbours .338 nats with 1e5, .435 with 1e4).
MOST_VARIANCE = 1e4
# Smoothness nu of the Matern kernels that are tried in place of the default RBF; rougher kernels suit quickly changing
# classes (electricity: NLL .110 with 1/2, .161 with 3/2, .190 with RBF).
ROUGHNESS = (0.5, 1.5)
# Fewer held-out rows would be overfitted by a kernel: fits of 15 rows then had NLL .72, and .63 with the kernel learned
# without neighbours; fits of 60 rows .48 and .50.
LEAST_QUERIES = 20
# A kernel has found structure if held-out rows beat the class frequencies by this many paired standard errors. A kernel
# fitted to noise reached 2.2, and a limit of 3 lost a good kernel on 60 rows of magic.
LEAST_ERRORS = 2.5
# If no kernel finds structure, length scales are shortened until half of the rows have a neighbour of this rank within
# one. On checkerboards of 8 by 8 fields ranks 2, 4 and 8 gave the same scores within .025 nats.
NEAREST = 1
# Time of the rounds, and of the sites of all rows for each support row, relative to the fastest of the first
# evaluations (measured on five data sets: 15 to 34 and 1.0 to 2.9).
LOOKS_OF_ROUNDS, LOOKS_OF_SITES = 25.0, 2.0
# Range of the log variance factor, and the standard deviation of its change when it is fitted again. A factor above 1
# would fit a shift between support and held-out rows: with splits by time one hard month gave 20 (NLL .53 against .48).
LOG_SCALE_BOUNDS = (-3.0, 0.0)
LOG_SCALE_CHANGE = 0.3


@dataclass(frozen=True)
class Task:
    """Rows to learn from with neighbours, and the settings.

    Attributes
    ----------
    source : rows, labels in the form that the link needs, weights
    link : Link of the latent values
    n_latents : int, number of latent functions; None: one
    n_neighbors : int
    hold_out : HoldOut
    deadline : Deadline, or None for unlimited time
    length_scale_prior : LengthScalePrior
    site : Site of the same likelihood, or None if the prior mean is zero under every prior
    prior_mean : PriorMean of the site
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
        """The link as a function of latent values minus the prior mean, which depends on prior and variance factor."""
        if self.site is None:
            return self.link
        mean = self.prior_mean.scaled(float(np.exp(log_scale))).site(self.site, prior).prior_mean
        # A shift of all classes changes no probability, and the coupled classes' sites leave it out.
        return Shifted(self.link, mean if self.link.curvature is None else centred(mean))


@dataclass(frozen=True)
class LocalFit:
    """A kernel, a variance factor, and sites of all rows as far as rounds have updated them.

    Attributes
    ----------
    log_scale : float, logarithm of the factor
    held_out : (q,), numbers of the last round's held-out rows
    scores, learned : their scores before and after the round's learning
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
        """Parameters of the score: ``theta`` and the logarithm of the factor."""
        return np.append(self.prior.spec.theta, self.log_scale)


def without_rounds(task: Task, prior: SparsePrior) -> LocalFit:
    """The state before the first round."""
    none = np.arange(0)
    nothing = Scores(np.empty(0), np.empty(0))
    return LocalFit(prior, start_sites(task.source, task.link_at(prior, 0.0)), 0.0, none, nothing, nothing, 0)


def candidates(kernel: Kernel, is_default: bool) -> list[Kernel]:
    """Kernels to try: the given kernel, or rougher ones in place of the default kernel."""
    is_plain = type(kernel) is Product and type(kernel.k1) is ConstantKernel and type(kernel.k2) is RBF
    if not (is_default and is_plain):
        return [kernel]
    smooth = kernel.k2
    return [kernel.k1 * Matern(smooth.length_scale, smooth.length_scale_bounds, nu=nu) for nu in ROUGHNESS]


def nearer(spec: KernelSpec, X: np.ndarray, k: int, n_threads: int) -> KernelSpec:
    """Shorten the length scales until half of the rows X have k neighbours within one length scale.

    If labels change many times across the data, they look like noise at longer length scales, and the score does not
    rise from there (four of six random states on a checkerboard of 8 by 8 fields, 2500 rows).
    """
    scaled = X * metric(spec.at(X[:1]))
    last = scaled[Neighbours(scaled).of_rows(k, n_threads)[:, -1]]
    distance = float(np.median(np.sqrt(np.sum((scaled - last) ** 2, axis=1))))
    is_length = np.array(["length_scale" in name for name in spec.names], dtype=bool)
    if not 0.0 < distance < 1.0:
        return spec
    return spec.with_theta(spec.theta + np.log(distance) * is_length).within_bounds()


def rows_of_round(number: int, n_latents: int | None) -> int:
    """Number of support and held-out rows of a round together; ``n_latents`` as in ``Task``."""
    size = ROUNDS[number][0]
    return max(size // LEAST_ROUND, min(size, FULL_CLASSES * size // (n_latents or 1)))


def first_round(task: Task, prior: SparsePrior, first: KernelSpec, is_default: bool, max_iter: int) -> list[LocalFit]:
    """Fit the candidate kernels in the first round; returns one result for each, rough kernels first.

    If held-out rows are too few to compare kernels, or no candidate predicts them better than the class frequencies,
    the only result is ``prior``'s kernel, not fitted to them.

    Parameters
    ----------
    prior : initial prior; its inducing points stay fixed
    first : another initial kernel, which learning without neighbours started from; it is tried as it is and with
        shorter length scales, because inducing points may have missed the structure and left a kernel without any
    is_default : whether the kernel is the library's choice, so that others may replace it
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
        # A kernel without structure may have scored best among the starts and stayed as it was; try short length
        # scales.
        nearest = tried(nearer(first, rows.X, min(NEAREST, k), n_threads) if k else first)
        found = nearest if any(beats_base_rate(task, one, fitted=len(one.parameters)) for one in nearest) else [before]
    return found


def _check_time(task: Task, look: float, n_support: int, max_iter: int) -> None:
    """Raise ``OutOfTime`` if the rounds and sites to come, which take a multiple of ``look`` seconds, exceed the time.

    Unfinished rounds are useless, so the time is better spent on learning without neighbours.
    """
    if task.deadline is None:
        return
    looks = (LOOKS_OF_ROUNDS if max_iter else 0.0) + LOOKS_OF_SITES * task.source.n_rows / n_support
    if task.deadline.left < looks * look:
        raise OutOfTime


def beats_base_rate(task: Task, local_fit: LocalFit, fitted: int = 0) -> bool:
    """Whether the held-out rows of the round are enough, and are predicted better than by the class frequencies.

    The total gain must also exceed ``fitted`` nats, one for each parameter fitted to these rows: the expected optimism
    of such a fit (Akaike 1974).
    """
    gains, weight = local_fit.learned.values - base_rate_log_scores(task, local_fit.held_out), local_fit.learned.weight
    least = LEAST_ERRORS * standard_error(gains, weight)
    # With a single held-out row the standard error is NaN.
    is_more = np.average(gains, weights=weight) > max(least, fitted / len(gains))
    return len(gains) >= LEAST_QUERIES and bool(is_more)


def base_rate_log_scores(task: Task, held_out: np.ndarray) -> np.ndarray:
    """log p(y) (q,) of the given rows under the class frequencies."""
    y, weight = labels_and_weights(task.source)
    _, codes = np.unique(y, return_inverse=True)
    shares = np.bincount(codes, weights=weight) / np.sum(weight)
    return np.log(shares[codes[held_out]])


def chosen(tried: list[LocalFit], errors: float, nats: float) -> LocalFit:
    """The last result whose mean score exceeds the earlier best by ``errors`` paired standard errors and ``nats``."""
    best = tried[0]
    for other in tried[1:]:
        gains, weight = other.learned.values - best.learned.values, best.learned.weight
        if np.average(gains, weights=weight) > max(nats, errors * standard_error(gains, weight)):
            best = other
    return best


def second_round(task: Task, local_fit: LocalFit, max_iter: int) -> LocalFit:
    """Learn the kernel of the first round further, on more rows that are drawn anew."""
    if not max_iter:
        return local_fit
    return _round(
        task, local_fit, *task.hold_out.draw(1, rows_of_round(1, task.n_latents)), min(max_iter, ROUNDS[1][1])
    )


def _round(task: Task, start: LocalFit, support: np.ndarray, held_out: np.ndarray, max_iter: int) -> LocalFit:
    """Maximise the score of held-out rows by L-BFGS."""
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
    whitened = local_rows(task.executor, prior, rows.X)
    local = Local(task.executor, rows, prior.core, whitened, index, n_earlier, link)
    sweeps = converged_sites(local, here, round_tolerance(link))
    at = rows, queries, index, n_earlier, query_index, sweeps.sites
    score = QueryScore(task.executor, prior, *at, link, task.length_scale_prior)
    parameters = start.parameters
    before = learned = score.at(parameters).scores
    n_iter = n_evaluations = 0
    # A single support row has no neighbours.
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
    """Tolerance of sweeps for scores; None: the default."""
    return None if link.curvature is None else ROUND_TOLERANCE


def limits(task: Task, start: LocalFit) -> np.ndarray:
    """Bounds (p, 2) of the score's parameters in a round."""
    parameters = start.parameters
    low, high = np.vstack([start.prior.spec.bounds, LOG_SCALE_BOUNDS]).T
    low, high = np.maximum(low, parameters - MAX_STEP), np.minimum(high, parameters + MAX_STEP)
    if task.n_latents is not None:
        is_variance = np.array([*("constant_value" in name for name in start.prior.spec.names), False])
        high = np.where(is_variance, np.minimum(high, np.maximum(parameters, np.log(MOST_VARIANCE))), high)
    return np.column_stack([low, high])


def fit_sites(task: Task, local_fit: LocalFit, is_last: bool = True) -> tuple[LocalPosterior, Sweeps]:
    """The local posterior of the task's distinct rows, and their sites.

    Unless ``is_last``, the sites are only as accurate as in rounds.
    """
    prior = local_fit.prior
    task.history.tell(stage="neighbours", n_rows=task.source.n_rows, n_inducing=prior.n_inducing)
    distinct = Distinct.of(task.source)
    source = distinct.source
    # A new row can have all training rows as neighbours, a training row only the others.
    k = min(task.n_neighbors, source.n_rows)
    near = Neighbours(source.X * metric(prior.core))
    rows = local_rows(task.executor, prior, source.X)
    index = near.of_rows(min(k, source.n_rows - 1), task.executor.n_threads)
    link = task.link_at(prior, local_fit.log_scale)
    local = Local(task.executor, source, prior.core, rows, *in_order(index), link)
    sites = distinct.sums(local_fit.sites)
    sweeps = converged_sites(local, sites, None if is_last else round_tolerance(link))
    task.history.add(
        n_rows=task.source.n_rows, n_inducing=prior.n_inducing, n_neighbors=k, sweeps=sweeps.n_sweeps, searches=1
    )
    # The model keeps its own read-only copy of the rows.
    X = np.array(source.X, order="C")
    scale = float(np.exp(local_fit.log_scale))
    posterior = LocalPosterior(prior, X, *sweeps.sites, sweeps.q.w, sweeps.q.V, k, task.n_latents, scale)
    posterior.keep(rows, near)
    return posterior, replace(sweeps, sites=distinct.parts(sweeps.sites))


@dataclass(frozen=True)
class HeldOutPredictions:
    """Predictions of a local posterior for held-out rows.

    Attributes
    ----------
    source : the rows
    mean, variance : (C, r), the variance multiplied by the factor
    scores : Scores
    """

    source: ArraySource
    mean: np.ndarray
    variance: np.ndarray
    scores: Scores

    def sites(self, link: Link) -> Sites:
        """Sites of these rows at their predictions, from which sweeps start."""
        y, weight = labels_and_weights(self.source)
        precision, linear = link.sites(self.mean, self.variance, y)
        if link.curvature is not None:
            precision = np.maximum(precision, LEAST_FIRST)
        return weight * precision, weight * linear

    def log_scale(self, link: Link, before: float) -> float:
        """Fit the logarithm of the variance factor to these rows, with a prior at its present value.

        A round uses few support rows, so its predictions are less certain than those from all rows.
        """
        y, weight = labels_and_weights(self.source)

        def minus_log_posterior(change: float) -> float:
            values, _ = link.scores(self.mean, np.exp(change) * self.variance, y)
            return float(0.5 * (change / LOG_SCALE_CHANGE) ** 2 - weight @ values)

        low, high = LOG_SCALE_BOUNDS
        found = minimize_scalar(minus_log_posterior, bounds=(low - before, high - before), method="bounded")
        return before + float(found.x)


def score_held_out(task: Task, local: LocalPosterior, source: ArraySource) -> HeldOutPredictions:
    """Predict held-out rows with a local posterior and score them."""
    y, weight = labels_and_weights(source)
    mean, variance = map(np.atleast_2d, local.marginals(source.X, task.executor.n_threads))
    link = task.link_at(local.prior, np.log(local.variance_scale))
    return HeldOutPredictions(source, mean, variance, Scores(link.scores(mean, variance, y)[0], weight))


def moved(local_fit: LocalFit, prior: SparsePrior) -> LocalFit:
    """The same kernel and factor with the inducing points of another prior."""
    return replace(local_fit, prior=prior.rebuilt([local_fit.prior.spec], prior.Z))
