"""Preferences between the rows of pairs."""

from __future__ import annotations

import os
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils.validation import check_is_fitted

from . import names
from .approximations.base import Training
from .approximations.pairs import PairPosterior, PairPrior
from .config import check_allowed, integer, one_of
from .data.checks import checked_weights, random_state_of
from .data.moments import Sample
from .data.table import Table
from .data.training import Columns, checked_rows
from .drawn import LatentDraws
from .estimator import ColumnsOfFit, all_or_nothing, latent_results
from .files import Arrays, Header, reading, write
from .inference.ascent import coordinate_ascent
from .inference.history import History
from .inference.options import Options
from .io import (
    check_arrays,
    check_complete,
    column_names,
    columns_from,
    kernel_from_data,
    parameters_to_data,
    posterior_contents,
    posterior_from,
)
from .kernels.default import default_kernel
from .kernels.prior import DEFAULT_LEVEL, DEFAULT_SPREAD, NO_PRIOR, LengthScalePrior
from .kernels.spec import KernelSpec, with_numbers
from .learning.inducing import inducing_points
from .learning.optimizer import profile
from .likelihoods import LikelihoodBound, record_of
from .rows.blas import single_threaded_blas
from .rows.executor import Executor
from .rows.source import ArraySource
from .status import noted, warn_user

OWN = {"likelihood": one_of("logit", "probit"), "optimizer": one_of("profile", None), "n_inducing": integer(1)}


class GPPreference(ColumnsOfFit):
    """Gaussian process of a value that decides which of two rows is preferred.

    A latent function f has a Gaussian process prior, and x is preferred to x' with probability F(f(x) - f(x')) [1]_.
    The posterior is fitted as that of ``GPClassifier``, with inducing points that do not move.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel, default=None
        Covariance of the latent function, as for ``GPClassifier``. None: a constant times RBF with one length scale for
        each feature.
    likelihood : {"logit", "probit"}, default="logit"
        F is the logistic or the normal distribution function.
    n_inducing : int, default=500
        Largest number of inducing points: all distinct rows if they are not more, otherwise cluster centres.
    optimizer : "profile" or None, default="profile"
        "profile" learns the kernel's parameters by L-BFGS on the bound. None: they stay.
    max_iter : int, default=200
        Largest number of iterations of the optimizer, and of the last ascent of the posterior.
    tol : float, default=1e-4
        Both stop once the bound rises by less than about ``tol``, relative to its size.
    n_jobs : int or None, default=None
        Number of threads.
    random_state : int, Generator, RandomState or None, default=None
        Seed of the cluster centres.

    Attributes
    ----------
    kernel_ : Kernel
        Kernel with the learned parameters.
    inducing_points_ : (m, d) array
    elbo_ : float
        Lower bound of the log evidence of the preferences, in nats.
    n_features_in_, n_iter_ : int

    Notes
    -----
    O(n (m^2 + m d) + m^3) time for each pass over n pairs, and 8 n m bytes.

    References
    ----------
    .. [1] Chu, Ghahramani. Preference learning with Gaussian processes. ICML 2005.

    Examples
    --------
    >>> import numpy as np
    >>> from xgpc import GPPreference
    >>> X = np.random.default_rng(0).uniform(size=(100, 2, 1))
    >>> better = np.max(X, axis=1), np.min(X, axis=1)
    >>> model = GPPreference().fit(*better)
    >>> bool(model.predict_proba([[0.9]], [[0.1]])[0] > 0.9)
    True
    """

    posterior_: PairPosterior
    elbo_: float
    n_iter_: int
    _record: LikelihoodBound

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        likelihood: Literal["logit", "probit"] = "logit",
        n_inducing: int = 500,
        optimizer: Literal["profile"] | None = "profile",
        max_iter: int = 200,
        tol: float = 1e-4,
        n_jobs: int | None = None,
        random_state: names.RandomSeed = None,
    ) -> None:
        self.kernel, self.likelihood, self.n_inducing, self.optimizer = kernel, likelihood, n_inducing, optimizer
        self.max_iter, self.tol, self.n_jobs, self.random_state = max_iter, tol, n_jobs, random_state

    @all_or_nothing
    def fit(self, X_preferred: ArrayLike, X_other: ArrayLike, sample_weight: ArrayLike | None = None) -> None:
        """Fit to n pairs: row i of ``X_preferred`` (n, d) was preferred to row i of ``X_other`` (n, d).

        ``sample_weight`` (n,) are weights, not negative: a pair of weight w counts as w equal pairs. The method returns
        self, and warns (ConvergenceWarning) if ``max_iter`` ended it. ValueError for data or parameters that are not
        valid.
        """
        check_allowed(self, OWN)
        preferred = Table.of(X_preferred)
        self._set_columns(Columns(checked_rows(self, preferred, None).shape[1], preferred.names, preferred.labels))
        pairs = self._pairs(X_preferred=X_preferred, X_other=X_other)
        weight = checked_weights(sample_weight, len(pairs))
        pairs, weight = pairs[weight > 0.0], weight[weight > 0.0]
        if not len(pairs):
            raise ValueError("There is no pair of positive weight: give a pair or more.")
        items, random_state = np.unique(np.vstack(np.hsplit(pairs, 2)), axis=0), random_state_of(self.random_state)
        record, history = record_of(self.likelihood, "exact"), History()
        sample = Sample(ArraySource(items, np.ones(len(items))), len(items), random_state)
        is_default = self.kernel is None
        kernel = default_kernel(sample.scale) if is_default else with_numbers(self.kernel, self._columns.names)
        spec = KernelSpec(kernel, items.shape[1])
        Z = inducing_points(sample, "kmeans", self.n_inducing, random_state, spec)
        scales = LengthScalePrior(DEFAULT_SPREAD, sample.scale, DEFAULT_LEVEL) if is_default else NO_PRIOR
        with single_threaded_blas(), Executor(self.n_jobs) as executor:
            training = Training(ArraySource(pairs, np.ones(len(pairs)), weight), executor)
            options = Options(float(self.tol), int(self.max_iter), history, random_state, length_scale_prior=scales)
            q, site, self.n_iter_, problem = PairPrior.build(spec, Z).at_prior(), record.site(), 1, None
            if self.optimizer is not None:
                outcome = profile(training, q, site, options)
                q, self.n_iter_, problem = outcome.point.q, max(1, outcome.n_iter), outcome.problem
            ascent = coordinate_ascent(training, q, site, tol=options.tol, max_iter=options.max_iter)
        if not np.isfinite(ascent.point.elbo):
            raise ValueError(f"The bound is {ascent.point.elbo}: scale the features and weights to moderate values.")
        if problem or not ascent.converged:
            reason = problem or options.too_few("the posterior")
            warn_user(f"The fit ended early: {reason}. Raise max_iter, or tol.", ConvergenceWarning)
        self._set_fit(ascent.point.q, ascent.point.elbo, record)

    def _set_fit(self, q: PairPosterior, elbo: float, record: LikelihoodBound) -> None:
        self.posterior_, self.elbo_, self._record = q, elbo, record
        self.kernel_, self.inducing_points_ = q.prior.spec.kernel, np.array(q.prior.Z)

    def _pairs(self, **rows_by_name: ArrayLike) -> np.ndarray:
        """Checked pairs (n, 2 d) of two arrays; the notes of errors name the array."""
        sides = []
        for name, X in rows_by_name.items():
            with noted(f"X is {name} here."):
                sides.append(np.asarray(self._rows(X), dtype=np.float64))
        if len(sides[0]) != len(sides[1]):
            counts = " and ".join(f"{len(rows)} rows of {name}" for name, rows in zip(rows_by_name, sides, strict=True))
            raise ValueError(f"Give a row of each for every pair; got {counts}.")
        return np.hstack(sides)

    def predict_latent(self, X: ArrayLike, return_cov: bool = False, return_grad: bool = False) -> names.Moments:
        """Mean (n,) and variance (n,), or joint covariance (n, n), of the latent function at the rows of X (n, d).

        Only differences matter: the mean is zero far from all rows. With ``return_grad`` the gradients of mean and
        variance by X follow, (n, d) each; ValueError with ``return_cov``.
        """
        rows = self._given_rows(X)[1]
        return latent_results(self.posterior_.of_rows, rows, self.n_jobs, return_cov, return_grad)

    def predict_difference(self, A: ArrayLike, B: ArrayLike, return_grad: bool = False) -> names.Moments:
        """Mean and variance (n,) of the latent function at row i of A (n, d) minus that at row i of B (n, d).

        With ``return_grad`` their gradients follow, (n, 2, d) each: by the rows of A, and by those of B.
        """
        check_is_fitted(self)
        pairs, q = self._pairs(A=A, B=B), self.posterior_
        moments = q.marginals(pairs, self.n_jobs)
        return (*moments, *q.gradients(pairs)) if return_grad else moments

    def predict_proba(self, A: ArrayLike, B: ArrayLike, return_grad: bool = False) -> Any:
        """Probability (n,) that row i of A (n, d) is preferred to row i of B (n, d), by their joint posterior.

        With ``return_grad`` its gradient (n, 2, d) follows, as for ``predict_difference``.
        """
        mean, variance, *by_x = self.predict_difference(A, B, return_grad)
        probability = np.exp(self._record.log_probabilities(mean, variance)[:, 1])
        if not return_grad:
            return probability
        slopes = (slope[:, 1:] for slope in self._record.probability_slopes(mean, variance))
        return probability, sum(slope * gradient for slope, gradient in zip(slopes, by_x, strict=True))

    def draw_functions(self, n_draws: int = 1, random_state: names.RandomSeed = None) -> LatentDraws:
        """Draw latent functions from the posterior, as ``GPClassifier.draw_functions`` does."""
        check_is_fitted(self)
        return LatentDraws(self, self.posterior_.of_rows, 0.0, n_draws, random_state)

    def _contents(self) -> tuple[Header, Arrays]:
        """What files hold of a fitted model."""
        header, arrays = posterior_contents(self.posterior_)
        header |= {"parameters": parameters_to_data(self), "fitted_likelihood": self._record.likelihood}
        header["n_iter_"] = self.n_iter_
        return header, arrays | {"elbo": np.array(self.elbo_)} | column_names(self._columns)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one ``.npz`` file without pickled objects, as ``GPClassifier.save`` does."""
        check_is_fitted(self)
        check_allowed(self, OWN)
        write(path, "preference", *self._contents())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model that ``save`` wrote; ValueError if the file is no such model. Nothing in it is executed."""
        with reading(path, "preference", cls.__name__) as (header, arrays):
            parameters, d = header["parameters"], arrays["Z"].shape[-1]
            check_arrays(arrays, 1, False, n_columns=d)
            model = cls(**parameters | {"kernel": kernel_from_data(parameters["kernel"])})
            check_allowed(model, OWN)
            OWN["likelihood"].check("fitted_likelihood", header["fitted_likelihood"])
            if header["full"] or header["neighbors"]:
                raise ValueError("its posterior is not one of pairs")
            with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
                q: Any = posterior_from(header, arrays, 1, prior_class=PairPrior)
            model._set_fit(q, float(arrays["elbo"]), record_of(header["fitted_likelihood"], "exact"))
            model.n_iter_ = int(header["n_iter_"])
            model._set_columns(columns_from(arrays, d))
            check_complete(header, arrays, *model._contents())
            return model
