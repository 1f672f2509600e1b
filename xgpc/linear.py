"""Bayesian linear classification: the inference of ``GPClassifier`` for a linear latent function."""

from __future__ import annotations

from typing import Literal, overload

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from .approximations.base import Training
from .approximations.linear import LinearPrior, RowSpan
from .config import TRUTH, check_allowed, number, one_of
from .data.checks import weights_of_classes
from .estimator import LatentClassifier, all_or_nothing, latent_results
from .inference.options import Options
from .inference.run import Run
from .kernels.default import START_VARIANCE
from .learning.pipeline import AT_BOUND
from .learning.prior_variance import ascend, stochastic_ascent
from .likelihoods import LIKELIHOODS, record_of
from .names import (
    ClassWeight,
    LearningRate,
    LinearBoundName,
    LinearLikelihoodName,
    MatrixLike,
    Moments,
    RandomSeed,
    TwoArrays,
)
from .ranges import LARGEST_FEATURE, LEAST_VARIATION, largest_size
from .rows.blas import single_threaded_blas
from .rows.block import BLOCK_ROWS
from .rows.executor import Executor
from .rows.source import ArraySource
from .status import Status, warn_user

# Bounds whose sites have positive precisions and no parameter to learn.
BOUNDS = {
    name: bounds
    for name, records in LIKELIHOODS.items()
    if (bounds := [bound for bound, record in records.items() if record.has_quadratics])
}
# A standard deviation of ten, as for the constant term in Gelman, Jakulin, Pittau & Su (2008), allows base rates
# down to 5e-5.
INTERCEPT_VARIANCE = 100.0
# Range of the prior variance of the latent function without its intercept, averaged over the rows, which starts at that
# of the default kernel: at the ends every probability is the base rate within a per cent, or nearly all are 0 or 1.
LATENT_VARIANCE_BOUNDS = 1e-4, 1e5
# The sum of the features' mean squares, over what it would be if all were the median, from which on there is a further
# start (and so for the median over the lowest decile): START_VARIANCE would then give the smaller features less than .2
# of latent variance.
LARGE_FEATURES = 10.0
OWN = {
    "likelihood": one_of(*BOUNDS),
    "prior_variance": one_of("auto", number(lambda value: 1e-100 <= value <= 1e100, "a number from 1e-100 to 1e100")),
    "fit_intercept": TRUTH,
}
# With fewer steps per epoch, all rows make one batch: gradients that hardly differ give learning rates near one, and
# nothing shortens a step that is too long.
LEAST_STEPS = 10


class BayesianLinearClassifier(LatentClassifier):
    """Bayesian linear classification of two classes: logistic, probit, or the support vector machine.

    The latent function is f(x) = coef . x + intercept with normal priors. As in ``GPClassifier``, a normal density of
    full covariance approximates the posterior. There are no inducing points, and time is linear in the number of rows.
    There is no ``save``, ``summary``, ``report``, ``decisions_``, ``fit_batches`` or ``partial_fit``: pickle saves the
    classifier, and ``GPClassifier.report`` compares it as one of ``others``.

    Parameters
    ----------
    likelihood : {"logit", "probit", "svm"}, default="logit"
        "svm" is the pseudo-likelihood exp(-2 max(1 - y f, 0)) of [1]_, with class probabilities by the probit link.
    bound : str, default="auto"
        As in ``GPClassifier``, without "additive-noise"; "auto" is "exact". For "svm", "augmented" is linear-BSVM of
        [2]_, section 4.5.
    prior_variance : "auto" or float, default="auto"
        Prior variance s^2 of each coefficient; "auto" maximises the bound over it. All coefficients have the same
        variance, so that features should have similar scales, as ``StandardScaler`` makes them. Where some are much
        larger than the others, "auto" learns from two or three starts.
    fit_intercept : bool, default=True
        Whether there is an intercept. The prior of the intercept, N(0, 100), does not depend on ``prior_variance``.
        Centre features that are far from zero.
    batch_size, learning_rate, class_weight, n_jobs, random_state, verbose
        As in ``GPClassifier``. If a batch has more than a tenth of the rows, the fit uses all rows at once.
    max_iter, tol : int, default=200, and float, default=1e-4
        As in ``GPClassifier``. A fit that learns the prior variance also continues until a step of the prior variance
        raises the bound by less than ``tol``.

    Attributes
    ----------
    classes_, class_weight_, n_features_in_, feature_names_in_, elbo_, history_, n_iter_, converged_ :
        As in ``GPClassifier``.
    coef_, intercept_ : (1, d) and (1,) arrays
        Posterior means; the intercept is zero without ``fit_intercept``.
    coef_covariance_ : (D, D) array, D = d + 1 with an intercept, else d
        Posterior covariance of the coefficients and, last, the intercept. Each access computes it anew.
    prior_variance_ : float
    posterior_ : SparsePosterior
        Posterior of z, where ``posterior_.prior.scale * z`` are the coefficients. With fewer rows than features, they
        are the coefficients in an orthonormal basis of the span of the rows.

    Notes
    -----
    A pass takes O(n r^2 + r^3) time, and a step with s rows O(s r^2 + r^3). Here r = d or, with fewer rows than
    features, the rank of X: only the coefficients within the span of the rows depend on the labels. A basis of this
    span takes O(n^2 d) time. Memory beyond X is O(n + d^2) and a dense block of 1152 rows per thread; with fewer rows
    than features it is O(n d). X may be sparse, best in CSR format; with fewer rows than features it is made dense.

    References
    ----------
    .. [1] Polson, Scott. Data augmentation for support vector machines. Bayesian Analysis 2011.
    .. [2] Wenzel, Galy-Fajou, Deutsch, Kloft. Bayesian nonlinear support vector machines for big data. ECML PKDD 2017.
       Equation (14); a square root is missing in its class probability.
    """

    def __init__(
        self,
        likelihood: LinearLikelihoodName = "logit",
        *,
        bound: LinearBoundName = "auto",
        prior_variance: Literal["auto"] | float = "auto",
        fit_intercept: bool = True,
        batch_size: int | None = None,
        learning_rate: LearningRate = "adaptive",
        max_iter: int = 200,
        tol: float = 1e-4,
        class_weight: ClassWeight | None = None,
        n_jobs: int | None = None,
        random_state: RandomSeed = None,
        verbose: int = 0,
    ) -> None:
        self.likelihood, self.bound, self.prior_variance = likelihood, bound, prior_variance
        self.fit_intercept, self.batch_size, self.learning_rate = fit_intercept, batch_size, learning_rate
        self.max_iter, self.tol, self.class_weight = max_iter, tol, class_weight
        self.n_jobs, self.random_state, self.verbose = n_jobs, random_state, verbose

    @all_or_nothing
    def fit(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> None:
        """Fit to rows X (n, d), dense or sparse, labels y (n,) of two classes, and non-negative weights (n,).

        Raises
        ------
        ValueError
            For bad data or parameters; the estimator does not change.

        Warns
        -----
        ConvergenceWarning
            If ``max_iter`` is reached, or the prior variance reaches the end of its range.
        """
        check_allowed(self, OWN)
        one_of("auto", *BOUNDS[self.likelihood]).check("bound", self.bound)
        with (
            single_threaded_blas(),
            Executor(self.n_jobs) as executor,
            Run(executor, Status() if self.verbose else None, random_state=self.random_state) as run,
        ):
            history = run.history
            history.tell(stage="checking")
            data, _, n_each, *_ = self._two_classes(X, y, sample_weight)
            self.class_weight_ = weights_of_classes(self.class_weight, self.classes_, n_each)
            span, rows = RowSpan.of(data.X)
            priors = [prior.within(span, rows.shape[1]) for prior in self._first_priors(data.X, data.weight)]
            # There is no cache, because whitened rows would take as much memory as the rows.
            source = ArraySource(rows, np.where(data.y == 1, 1.0, -1.0), data.weight, cache_bytes=0)
            bound = BOUNDS[self.likelihood][0] if self.bound == "auto" else self.bound
            self._record = record_of(self.likelihood, bound)
            site, tol, max_iter = self._record.site(), self.tol, self.max_iter
            history.tell(stage="learning", n_rows=source.n_rows)
            takes_all = self.batch_size is None or LEAST_STEPS * self.batch_size > source.n_rows
            search = ascend if takes_all else stochastic_ascent
            options = Options(tol, max_iter, history, run.random_state, self.batch_size, self.learning_rate)
            ascents = [search(Training(source, executor), prior, site, options) for prior in priors]
            point, self.n_iter_, self.converged_, _ = max(ascents, key=lambda ascent: ascent.point.elbo)
            q, prior, self.elbo_ = point.q, point.q.prior, point.elbo
            at = f"after {self.n_iter_} iterations, at a prior variance of {prior.variance:.4g}"
            history.tell(decision=f"The bound is {self.elbo_:.2f} nats {at}.")
        if not np.isfinite(self.elbo_):
            raise ValueError(f"The bound is {self.elbo_}: give moderate sample weights and prior_variance.")
        self.posterior_, self.prior_variance_, self.history_ = q, prior.variance, history.arrays()
        b = prior.scale * q.w[0]
        self.coef_ = prior.span.coefficients(b[: prior.d])[None]
        self.intercept_ = b[prior.d :] if self.fit_intercept else np.zeros(1)
        doubts, log_s2 = [], np.log(prior.variance)
        if not self.converged_:
            doubts.append(f"max_iter={self.max_iter} was reached before tol={self.tol:g}; raise max_iter, or tol.")
        if prior.low < prior.high and min(log_s2 - prior.low, prior.high - log_s2) < AT_BOUND:
            doubts.append(
                f"The prior variance is {prior.variance:.4g}, where its range ends: the features say nothing about the "
                "classes (lower end), or separate them (upper end). Give a prior_variance if that is not intended."
            )
        if doubts:
            warn_user("\n".join(doubts), ConvergenceWarning)

    def _first_priors(self, X: MatrixLike, weight: np.ndarray) -> list[LinearPrior]:
        """The prior with the given variance; for "auto", one to three priors to start from, each with its range.

        The first start makes the latent variance of an average row ``START_VARIANCE``. If some features are much larger
        than the others, the bound can have further maxima, at which smaller features count, too. The other starts would
        have that latent variance if all features had the median mean square, or the lowest decile of the mean squares.

        Parameters
        ----------
        X : (n, d), dense or sparse
        weight : (n,)

        Raises
        ------
        ValueError
            If the largest feature is below 1e-140.
        """
        # The reciprocal of the square of the largest feature must not overflow.
        largest, d, least = largest_size(X), X.shape[1], 1.0 / LARGEST_FEATURE
        if 0.0 < largest < least:
            raise ValueError(f"The largest feature is {largest:.3g}; scale the features to at least {least:g}.")

        def prior(s2: float, low: float, high: float) -> LinearPrior:
            return LinearPrior(np.sqrt([s2] * d + [INTERCEPT_VARIANCE] * bool(self.fit_intercept)), d, low, high)

        if not isinstance(self.prior_variance, str):
            return [prior(float(self.prior_variance), 0.0, 0.0)]
        if not largest:
            return [prior(1.0, 0.0, 0.0)]
        squares, shares = np.zeros(d), weight / np.sum(weight)
        for i in range(0, X.shape[0], BLOCK_ROWS):
            a = X[i : i + BLOCK_ROWS].astype(np.float64) / largest
            squares += shares[i : i + BLOCK_ROWS] @ (a.power(2) if issparse(a) else a**2)
        # Features that are smaller than the largest one by more than this factor are lost in rounding.
        counted = squares[squares >= LEAST_VARIATION**2 * np.max(squares)]
        usual = d * np.quantile(counted, (0.5, 0.1), method="lower")
        sums, log_range = [np.sum(squares), *usual], np.log(LATENT_VARIANCE_BOUNDS)
        pairs = zip(sums, (np.inf, *sums), strict=False)
        units = [float(each) * largest**2 for each, larger in pairs if LARGE_FEATURES * each < larger]
        return [prior(START_VARIANCE / unit, *(log_range - np.log(unit))) for unit in units]

    @property
    def coef_covariance_(self) -> np.ndarray:
        """Posterior covariance (D, D); each access takes O(D^2 r) time, with r as in the notes, and 8 D^2 bytes."""
        check_is_fitted(self)
        q = self.posterior_
        with single_threaded_blas():
            root = q.Rinv[0] * q.prior.scale
            return q.prior.span.covariance(root.T @ root, q.prior.variance)

    def predict_latent(self, X: MatrixLike, return_grad: bool = False, *, return_cov: bool = False) -> Moments:
        """Posterior mean (n,) and variance (n,), or joint covariance (n, n), of the latent function.

        The rows of X (n, d) are dense or sparse. With ``return_grad`` the gradients of mean and variance by X follow,
        (n, d) each and dense; ValueError with ``return_cov``.
        """
        rows = self._rows(X)
        return latent_results(self.posterior_, rows, self.n_jobs, return_cov, return_grad)

    @overload
    def predict_proba(self, X: MatrixLike, return_grad: Literal[False] = False) -> np.ndarray: ...
    @overload
    def predict_proba(self, X: MatrixLike, return_grad: Literal[True]) -> TwoArrays: ...
    def predict_proba(self, X: MatrixLike, return_grad: bool = False) -> np.ndarray | TwoArrays:
        """Probabilities (n, 2) of the classes, and with ``return_grad`` their gradient (n, 2, d) by X."""
        if not return_grad:
            return super().predict_proba(X)
        return self._weighted_with_gradient(*self.predict_latent(X, return_grad=True))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags
