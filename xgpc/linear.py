"""Bayesian linear classification: the engine of ``GPClassifier`` on the features themselves."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ._svi import AVERAGE_POWER, RATE_FLOOR, SCHEDULES
from .blocks import BLOCK_ROWS, BlockMap, single_threaded_blas
from .inference import FALLBACK_AFTER, MAX_HALVINGS, ROUND_OFF, History, coordinate_ascent, is_small
from .likelihoods import LIKELIHOODS
from .linear_passes import LinearPasses, LinearPrior, marginals, whitened
from .posterior import SparsePosterior
from .ranges import check_latent, largest_size
from .row_span import RowSpan
from .stochastic import MIN_EPOCHS, WINDOW, learning_rate_schedule
from .validation import check_allowed, checked_rows, is_name, is_number, training_data

# Those whose sites have no negative precision, and nothing to learn.
BOUNDS = {
    name: bounds
    for name, likelihood in LIKELIHOODS.items()
    if (bounds := [bound for bound, record in likelihood.bounds.items() if record.is_linear])
}
# Ten units of the latent function take a base rate to 5e-5: the scale that Gelman, Jakulin, Pittau & Su (2008) give
# the constant term.
INTERCEPT_VARIANCE = 100.0
# Prior variance of the latent function without its intercept, averaged over the rows: where the search starts
# (probabilities of .06 to .94 within two standard deviations), and its range. At the least every probability is the
# base rate within a per cent, at the largest nearly all are 0 or 1. This near to an end, in the logarithm, is at it.
START_VARIANCE, LATENT_VARIANCE_BOUNDS, AT_BOUND = 2.0, (1e-4, 1e5), 1e-3
# The reciprocal of the largest feature's square is within the range of a double.
LEAST_FEATURE = 1e-140
# Prior variances that may be given.
VARIANCE_RANGE = (1e-100, 1e100)
# Steps of q between two of the prior variance: enough for coordinate ascent to fall back on one that cannot fail.
STEPS_PER_VARIANCE = FALLBACK_AFTER + 1
# Steps of an epoch below which mini-batches give way to all rows: gradients that hardly differ make rates near one, and
# nothing halves a step too long.
LEAST_STEPS = 10


def ascend(
    passes: Any, prior: LinearPrior, site: Any, *, monotone: bool, tol: float, max_iter: int, history: History
) -> tuple[SparsePosterior, float, int, bool]:
    """Full-batch steps of q and moves of s^2 in turn; a move that lowers the bound is halved, if ``monotone``.

    Returns q, the bound, the number of steps, and whether both q and s^2 rest within ``tol``.
    """
    identity, few = np.eye(len(prior.scale)), STEPS_PER_VARIANCE if prior.low < prior.high else max_iter
    start: Any = prior.posterior(0.0 * identity, np.zeros(len(identity)))
    q: Any = start
    elbo, n_iter, limit, fraction = -np.inf, 0, few, 1.0
    while True:
        history.context["prior_variance"] = start.prior.variance
        trial, trial_elbo, steps, rests = coordinate_ascent(
            passes, start, site, tol=tol, max_iter=min(limit, max_iter - n_iter), history=history
        )
        n_iter += max(steps, 1)
        if not monotone or trial_elbo >= elbo - ROUND_OFF * abs(elbo) or not np.isfinite(elbo):
            q, elbo, fraction = trial, trial_elbo, 1.0
            S, h = q.P - identity, q.h
            log_t, gain = q.prior.best_move(S, h)
            settled = is_small(gain, elbo, tol)
        else:
            fraction *= 0.5
            settled, rests = fraction < 0.5**MAX_HALVINGS, False
        if (rests and settled) or n_iter >= max_iter or not np.isfinite(elbo):
            return q, elbo, n_iter, rests and settled
        start, limit = q, max_iter
        if not settled:
            moved, factors = q.prior.moved(fraction * log_t)
            start, limit = moved.posterior(factors[:-1] * S, factors[-1] * h), few


class Rate:
    """Learning rates of mini-batch steps, one after the other, as in ``src/xgpc/_svi.pyx``."""

    def __init__(self, kind: int, a: float, b: float):
        self.kind, self.a, self.b = kind, a, b
        self.iteration = self.steps = 0
        self.squared_norm = self.memory = 0.0
        self.mean: Any = 0.0

    def next(self, gradient: np.ndarray) -> tuple[float, np.ndarray]:
        """Rate and direction: the gradient, or its mean in the first step of the adaptive rate."""
        t, self.iteration = self.iteration, self.iteration + 1
        if self.kind != SCHEDULES["adaptive"]:
            return self.a if self.kind == SCHEDULES["constant"] else (t + self.a) ** -self.b, gradient
        weight = 1.0 / (t + 1) if t < self.a else 1.0 / self.memory
        self.mean = self.mean + weight * (gradient - self.mean)
        self.squared_norm += weight * (float(np.sum(gradient**2)) - self.squared_norm)
        if t + 1 < self.a:
            return 0.0, gradient
        if t < self.a:
            gradient, self.memory = self.mean, self.a
        rate = float(np.sum(self.mean**2)) / self.squared_norm if self.squared_norm > 0.0 else 1.0
        rate = min(1.0, max(rate, (self.steps + 2.0) ** -RATE_FLOOR))
        self.memory, self.steps = self.memory * (1.0 - rate) + 1.0, self.steps + 1
        return rate, gradient


def stochastic_ascent(
    passes: LinearPasses, prior: LinearPrior, site: Any, batch_size: int, schedule: tuple[int, float, float],
    random_state: np.random.RandomState, *, tol: float, max_iter: int, history: History,
) -> tuple[SparsePosterior, float, int, bool]:  # fmt: skip
    """Mini-batch steps as in ``src/xgpc/_svi.pyx``, and a move of s^2 after every epoch; returns as ``ascend``."""
    n, D = len(passes.y), len(prior.scale)
    batch = batch_size
    kind, a, b = schedule
    rates = Rate(kind, min(a, n // batch) if kind == SCHEDULES["adaptive"] else a, b)
    eta, average = np.zeros((2, D + 1, D))  # Rows (S, h), S as its lower triangle.
    q = prior.posterior(eta[:-1], eta[-1])
    steps, window, converged = 0, np.full(WINDOW, np.inf), False
    for epoch in range(1, max_iter + 1):
        history.context.update(epoch=epoch, prior_variance=prior.variance)
        for rows in random_state.permutation(n)[: n - n % batch].reshape(-1, batch):
            ell, S, h = passes.statistics(rows, q, site)
            rate, direction = rates.next(n / batch * np.vstack([np.tril(S), h]) - eta)
            if rate > 0.0:
                eta += rate * direction
                q = prior.posterior(eta[:-1], eta[-1])
                weight = (1.0 + AVERAGE_POWER) / (steps + 1.0 + AVERAGE_POWER)
                steps += 1
                distance = np.linalg.norm(eta - average)
                average += weight * (eta - average)
                window[steps % WINDOW] = weight * distance / max(float(np.linalg.norm(average)), 1e-300)
            change = window[steps % WINDOW] if rate > 0.0 else 0.0
            history.add(learning_rate=rate, change=change, log_likelihood=n / batch * ell)
            if rests := epoch > MIN_EPOCHS and np.mean(window) < tol:
                break
        log_t, gain = prior.best_move(average[:-1], average[-1])
        converged = bool(rests) and is_small(gain, n / batch * ell, tol)
        if converged:
            break
        if gain > 0.0:
            prior, factors = prior.moved(log_t)
            eta, average, rates.mean = eta * factors, average * factors, rates.mean * factors
            q = prior.posterior(eta[:-1], eta[-1])
    q = prior.posterior(average[:-1], average[-1])
    elbo = passes.update(q, site)[0] - q.kl
    history.context["prior_variance"] = prior.variance
    history.add(elbo=elbo)
    return q, elbo, epoch, converged


class BayesianLinearClassifier(ClassifierMixin, BaseEstimator):
    """Bayesian linear classification of two classes: logistic, probit, or the support vector machine.

    The latent function is f(x) = coef . x + intercept with normal priors; the posterior is approximated by a normal
    density of full covariance and fitted as in ``GPClassifier``, without inducing points: linear in the number of rows.

    Parameters
    ----------
    likelihood : {"logit", "probit", "svm"}, default="logit"
        "svm": the pseudo-likelihood exp(-2 max(1 - y f, 0)) of [1]_, with class probabilities by the probit link.
    bound : str, default="auto"
        As in ``GPClassifier``, without "additive-noise"; "auto" is "exact". "augmented", for "svm", is linear-BSVM of
        [2]_, section 4.5.
    prior_variance : "auto" or float, default="auto"
        Variance s^2 of each coefficient under the prior; "auto" maximises the bound over it. Features are not scaled:
        one variance for all expects features of like scale, such as ``StandardScaler`` makes.
    fit_intercept : bool, default=True
        Whether there is an intercept. Its prior, N(0, 100), is broad and its own: the classes' base rate says nothing
        of the size of the coefficients. Centre features that are far from zero.
    batch_size, learning_rate, class_weight, n_jobs, random_state, verbose
        As in ``GPClassifier``; batches of more than a tenth of the rows are all rows.
    max_iter, tol : int, default=200, and float, default=1e-4
        As in ``GPClassifier`` for the posterior; what a step of the prior variance would gain must be as small.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_, elbo_, history_, n_iter_, converged_ : as in ``GPClassifier``
    coef_, intercept_ : (1, d) and (1,) arrays, posterior means; the intercept is zero without ``fit_intercept``
    coef_covariance_ : (D, D) array
        Posterior covariance of the coefficients and, last, of an intercept. It is made when asked for, 8 D^2 bytes.
    prior_variance_ : float
    posterior_ : SparsePosterior of z, where the coefficients are ``posterior_.prior.scale * z``; with fewer rows than
        features, those of the rows' coordinates in an orthonormal basis of their span

    Notes
    -----
    A pass takes O(n r^2 + r^3) time, a step with s rows O(s r^2 + r^3), where r is d or, with fewer rows than features,
    the rank of X: the span of the rows is all that the labels tell of, which is exact, as all coefficients have one
    prior variance. It takes O(n^2 d) time before. Memory is O(n + d^2) beyond X and a dense block of 1152 rows for each
    thread, or O(n d) with fewer rows. X may be sparse: CSR is taken as it is, other formats are converted; with fewer
    rows than features it is made dense.

    References
    ----------
    .. [1] Polson, Scott. Data augmentation for support vector machines. Bayesian Analysis 2011.
    .. [2] Wenzel, Galy-Fajou, Deutsch, Kloft. Bayesian nonlinear support vector machines for big data. ECML PKDD 2017.
       Equation (14), and the class probability with the square root that is missing there.
    """

    def __init__(
        self, likelihood="logit", *, bound="auto", prior_variance="auto", fit_intercept=True, batch_size=None,
        learning_rate="adaptive", max_iter=200, tol=1e-4, class_weight=None, n_jobs=None, random_state=None, verbose=0,
    ):  # fmt: skip
        self.likelihood, self.bound, self.prior_variance = likelihood, bound, prior_variance
        self.fit_intercept, self.batch_size, self.learning_rate = fit_intercept, batch_size, learning_rate
        self.max_iter, self.tol, self.class_weight = max_iter, tol, class_weight
        self.n_jobs, self.random_state, self.verbose = n_jobs, random_state, verbose

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> BayesianLinearClassifier:
        """Fit to X (n, d), dense or sparse, labels y (n,) of two classes, and weights (n,) that are not negative.

        ValueError for bad data or parameters: the estimator is then what it was. ConvergenceWarning if ``max_iter``
        was reached or the prior variance has run to the end of its range.
        """
        fitted = copy.copy(self)
        with single_threaded_blas():
            fitted._fit(X, y, sample_weight)
        self.__dict__ = fitted.__dict__
        return self

    def _fit(self, X, y, sample_weight) -> None:
        site, bound = self._check_parameters()
        X, signs, weight = self._check_training_data(X, y, sample_weight)
        history, random_state = History(), check_random_state(self.random_state)
        prior = self._start(X, weight)
        span, rows = RowSpan.of(X)
        prior = prior.of_dimension(rows.shape[1])
        passes = LinearPasses(rows, signs, weight, self.n_jobs)
        q: Any
        options = {"tol": self.tol, "max_iter": self.max_iter, "history": history}
        if self.batch_size is None or LEAST_STEPS * self.batch_size > len(signs):
            q, elbo, n_iter, converged = ascend(passes, prior, site, monotone=site.record.is_bound, **options)
        else:
            schedule = learning_rate_schedule(self.learning_rate)
            q, elbo, n_iter, converged = stochastic_ascent(
                passes, prior, site, int(self.batch_size), schedule, random_state, **options
            )
        if not np.isfinite(elbo):
            raise ValueError(f"The bound is {elbo}: give moderate sample weights and prior_variance.")
        messages, log_s2 = [], np.log(q.prior.variance)
        if not converged:
            messages.append(f"max_iter={self.max_iter} was reached before tol={self.tol:g}; raise max_iter, or tol.")
        if prior.low < prior.high and min(log_s2 - prior.low, prior.high - log_s2) < AT_BOUND:
            messages.append(
                f"The prior variance has run to {np.exp(log_s2):.4g}, where its range ends: the features tell nothing "
                "of the classes (least), or separate them (largest). Give a prior_variance if that is not meant."
            )
        if messages:
            warnings.warn("\n".join(messages), ConvergenceWarning, stacklevel=3)
        if self.verbose:
            print(f"xgpc: bound {elbo:.2f} after {n_iter} iterations, prior variance {np.exp(log_s2):.4g}", flush=True)
        b = q.prior.scale * q.w
        self.posterior_, self.elbo_, self.n_iter_, self.converged_ = q, elbo, n_iter, converged
        self.coef_ = span.coefficients(b[: prior.d])[None]
        self.intercept_ = b[prior.d :] if self.fit_intercept else np.zeros(1)
        self.prior_variance_, self._span = q.prior.variance, span
        self.history_ = history.arrays()
        self._resolved = self.likelihood, bound

    def _check_parameters(self) -> tuple[Any, str]:
        """The site and its bound's name; ValueError for a parameter that is not allowed."""
        known = is_name(self.likelihood, BOUNDS)
        bounds = BOUNDS[self.likelihood] if known else []
        low, high = VARIANCE_RANGE
        check_allowed(
            self,
            {
                "likelihood": (lambda value: known, f"one of {list(BOUNDS)}"),
                "bound": (lambda value: is_name(value, ["auto", *bounds]), f"'auto' or one of {bounds}"),
                "prior_variance": (
                    lambda value: is_name(value, ["auto"]) or (is_number(value) and low <= float(value) <= high),
                    f"'auto' or a number between {low:g} and {high:g}",
                ),
            },
        )
        bound = bounds[0] if self.bound == "auto" else self.bound
        return LIKELIHOODS[self.likelihood].site(bound), bound

    def _check_training_data(self, X, y, sample_weight) -> tuple[Any, np.ndarray, np.ndarray | None]:
        """Rows of positive weight, their labels as -1 or +1, and their weights, None for all ones."""
        if y is None:
            raise ValueError(
                "This BayesianLinearClassifier estimator requires y to be passed, but the target y is None."
            )
        X = checked_rows(self, X, reset=True, accept_sparse="csr")
        # The checks of labels and weights, with the rows' numbers for X, which may be sparse.
        numbers_of_rows = np.arange(float(X.shape[0]))[:, None]
        rows, codes, self.classes_, weight = training_data(clone(self), numbers_of_rows, y, sample_weight)
        if len(self.classes_) > 2:
            raise ValueError(
                f"Only binary classification is supported. The type of the target is multiclass ({len(self.classes_)} "
                "classes); sklearn.multiclass.OneVsRestClassifier fits one classifier for each."
            )
        X = X if len(rows) == X.shape[0] else X[rows[:, 0].astype(np.intp)]
        return X, np.where(codes == 1, 1.0, -1.0), weight

    def _start(self, X, weight) -> LinearPrior:
        """The given prior variance, or where to start and the range, by the mean square of the rows."""
        largest = largest_size(X)
        if 0.0 < largest < LEAST_FEATURE:
            raise ValueError(f"The largest feature has size {largest:.3g}; scale them to at least {LEAST_FEATURE:g}.")
        learned = isinstance(self.prior_variance, str) and largest > 0.0
        if learned:
            unit_prior = LinearPrior(np.full(X.shape[1], 1.0 / largest), X.shape[1], 0.0, 0.0)
            blocks = (whitened(X[i : i + BLOCK_ROWS], unit_prior) for i in range(0, X.shape[0], BLOCK_ROWS))
            squares = np.concatenate([np.asarray((a * a).sum(axis=1)).ravel() for a in blocks])
            unit = np.average(squares, weights=weight) * largest**2
        s2 = START_VARIANCE / unit if learned else 1.0 if isinstance(self.prior_variance, str) else self.prior_variance
        bounds = np.log(LATENT_VARIANCE_BOUNDS) - np.log(unit) if learned else np.zeros(2)
        scale = np.sqrt([float(s2)] * X.shape[1] + [INTERCEPT_VARIANCE] * bool(self.fit_intercept))
        return LinearPrior(scale, X.shape[1], *bounds)

    @property
    def coef_covariance_(self) -> np.ndarray:
        """Posterior covariance (D, D), made anew each time in O(D^2 r) time and 8 D^2 bytes; see the notes for r."""
        check_is_fitted(self)
        q: Any = self.posterior_
        with single_threaded_blas():
            root = q.Rinv * q.prior.scale
            return self._span.covariance(root.T @ root, q.prior.variance)

    def predict_latent(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and variance (n,) of the latent function at X (n, d), dense or sparse."""
        check_is_fitted(self)
        X = checked_rows(self, X, reset=False, accept_sparse="csr")
        mean, variance = np.empty((2, X.shape[0]))
        q: Any = self.posterior_

        def task(start, stop, work):
            # What overflows is refused below.
            with np.errstate(over="ignore", invalid="ignore"):
                rows, outside = self._span.coordinates(X[start:stop])
                mean[start:stop], variance[start:stop] = marginals(whitened(rows, q.prior), q)
                variance[start:stop] += q.prior.variance * outside

        with BlockMap(len(mean), len(q.w), len(q.w), self.n_jobs) as blocks:
            for _ in blocks(task):
                pass
        check_latent(mean, variance, X)
        return mean, variance

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Log probabilities (n, 2) of the classes; finite and accurate where the probabilities underflow."""
        mean, variance = self.predict_latent(X)
        name, bound = self._resolved
        log_proba = np.empty((len(mean), 2))
        for start in range(0, len(mean), BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            log_proba[rows] = LIKELIHOODS[name].log_probabilities(bound, mean[rows], variance[rows], None)
        return log_proba

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (n, 2) of the classes, in the order of ``classes_``."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """The more probable class (n,) of each row."""
        log_proba = self.predict_log_proba(X)
        return self.classes_[np.argmax(log_proba, axis=1)]

    def decision_function(self, X: Any) -> np.ndarray:
        """Log odds (n,) of ``classes_[1]``; the mean of the latent function is ``predict_latent(X)[0]``."""
        return np.diff(self.predict_log_proba(X), axis=1)[:, 0]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags
