"""A fitted ``GPClassifier``: its attributes, its predictions, and saving it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils.validation import check_is_fitted

from . import io
from .approximations.base import KernelPosterior
from .approximations.draws import exact_draws, pathwise_draws, pathwise_obstacle
from .approximations.local import Posterior, covariance_bytes
from .config import TRUTH, integer, one_of
from .data.checks import checked_labels, class_numbers, random_state_of
from .data.encoding import PLAIN, Encoding
from .data.survey import reading
from .data.training import Columns
from .described import Described
from .drawn import LatentDraws
from .estimator import check_results
from .inference.correction import corrected_marginals, fit_without_neighbors
from .inference.fitting import Evidence
from .kernels.wrappers import is_precomputed
from .likelihoods import PARAMETER_NAMES, LikelihoodBound, expected_log_likelihood
from .names import MatrixLike, Moments, RandomSeed, TwoArrays
from .ranges import check_latent, small_is_zero
from .rows.batches import Rows, read_ahead
from .rows.blas import single_threaded_blas
from .rows.block import dense
from .rows.executor import on_threads
from .rows.source import in_dense_parts

# Most bytes that a joint covariance may take while it is computed; a machine with 4 GB can hold this.
MOST_COVARIANCE_BYTES = 3e9
# Most rows for which draws are exact by default: both methods take about 1 s for 20 draws at 3000 rows.
EXACT_ROWS = 3000
# Rows (r, d) and a number of threads -> means and variances, (r,) or (C, r).
Marginals = Callable[[np.ndarray, int | None], TwoArrays]


class PosteriorClassifier(Described):
    """A classifier with a normal posterior of its latent functions: everything that needs only the result of a fit."""

    n_samples_seen_: int
    held_out_score_: tuple[float, float] | None
    label_agreement_: float
    _agreement_log: np.ndarray  # log likelihood of ``Agreement``
    n_iter_: int
    converged_: bool
    encoding_: Encoding | None = None
    max_iter: int
    tol: float
    _is_ordered = False  # whether the order of the classes counts
    # The evidence is that of the posterior without neighbours; a model with neighbours computes both on first use.
    _evidence: Evidence | None
    _sparse: KernelPosterior | None = None
    # Rows of a stream that a posterior without neighbours does not hold, to learn from them anew.
    _stream_rows: Rows | None = None

    def _set_columns(self, columns: Columns) -> None:
        super()._set_columns(columns)
        d, names, labels, encoding, *_ = columns
        self.encoding_ = None if encoding == PLAIN else replace(encoding, n_features=d, names=names, labels=labels)
        self.feature_mean_, self.feature_spread_ = columns.mean, columns.spread

    def _set_fit(self, q: Posterior, record: LikelihoodBound, mean: np.ndarray, evidence: Evidence | None) -> None:
        """Set the attributes that follow from the posterior."""
        self.posterior_, self._sparse, self._evidence = q, None, evidence
        self.n_neighbors_, self.inducing_points_, self.jitter_ = q.n_neighbors, np.array(q.prior.Z), q.prior.jitter
        self.share_ = "none" if q.prior.Z.ndim == 3 else "kernel"
        self._record = record
        self.mean_ = float(mean[0]) if q.n_latents == 1 else mean
        for name in PARAMETER_NAMES:
            self.__dict__.pop(f"{name}_", None)
        for name, value in record.named().items():
            setattr(self, f"{name}_", value)

    @property
    def kernel_(self) -> Kernel | list[Kernel]:
        """The learned kernel; a list of C kernels where ``share_`` is "none"."""
        check_is_fitted(self)
        # A property, because copies of kernels would take a tenth of the time of an update by one row.
        kernels = [prior.spec.kernel for prior in self.posterior_.prior.groups]
        return kernels if self.share_ == "none" else kernels[0]

    def _latent(self, X: MatrixLike, corrected: bool = False) -> TwoArrays:
        """Mean and variance (n,) or (C, n) of the latent functions at checked rows."""
        # The default needs no check, which every prediction of a row would make.
        if corrected is not False:
            TRUTH.check("corrected", corrected)
        if not corrected:
            return self._latent_at(X)
        correction = None if self._evidence is None else self._evidence.correction
        if correction is None:
            raise ValueError(
                "corrected=True is for likelihood='logit' with bound='polya-gamma'; this fit has "
                f"{self._record.likelihood!r} with {self._record.bound!r}."
            )
        return self._latent_at(X, partial(corrected_marginals, self._without_neighbors(), correction))

    def _latent_at(self, X: MatrixLike, marginals: Marginals | None = None) -> TwoArrays:
        """Mean and variance of the latent functions at checked rows; of a sparse matrix part by part."""
        marginals = marginals or self.posterior_.marginals
        if isinstance(X, np.ndarray):
            mean, variance = marginals(X, self.n_jobs)
        else:
            parts = zip(*(marginals(rows, self.n_jobs) for rows in in_dense_parts(X)), strict=True)
            mean, variance = (np.concatenate(moments, axis=-1) for moments in parts)
        check_latent(mean, variance, X)
        return mean + (self.mean_ if isinstance(self.mean_, float) else self.mean_[:, None]), variance

    @overload
    def predict_proba(
        self, X: ArrayLike, corrected: bool = False, return_grad: Literal[False] = False
    ) -> np.ndarray: ...
    @overload
    def predict_proba(self, X: ArrayLike, corrected: bool = False, *, return_grad: Literal[True]) -> TwoArrays: ...
    def predict_proba(self, X: ArrayLike, corrected: bool = False, return_grad: bool = False) -> np.ndarray | TwoArrays:
        """Probabilities (n, C) of the classes, in the order of ``classes_``, for X (n, d).

        The latent functions are integrated out without random numbers; ``xgpc.likelihoods`` states the errors.
        ``corrected`` is explained at ``predict_latent``. With ``return_grad`` the second result is the gradient
        (n, C, d) of the probabilities by X, as for ``predict_latent``; "logistic-softmax" has none, and raises a
        ValueError. For a row that equals a training row, ``label_agreement_`` counts, but not with ``return_grad``.
        """
        if return_grad:
            return self._weighted_with_gradient(*self.predict_latent(X, corrected=corrected, return_grad=True))
        return self._proba(self._rows(X), corrected)

    def predict_log_proba(self, X: ArrayLike, corrected: bool = False) -> np.ndarray:
        """Log probabilities (n, C), finite and accurate even where the probabilities underflow."""
        return self._log_proba(self._rows(X), corrected)

    def predict_proba_batches(self, source: object) -> Iterator[np.ndarray]:
        """Predict rows that may not fit into memory: an array (r, C) of probabilities for each batch, in order.

        Parameters
        ----------
        source : function, iterable, iterator or sequence
            As for ``fit_batches``, or an iterator. A batch is an array X (r, d), which may be sparse, or a tuple that
            starts with one. If the model has column names, it takes its columns from ``from_parquet`` and
            ``from_arrow`` by name, and ignores all others.

        Returns
        -------
        Iterator of arrays. A thread reads the next batch while one is predicted, until the iterator ends or is closed.

        Raises
        ------
        ValueError
            If ``source`` is not a source or lacks columns. The iterator raises it for a bad batch and notes which one.
        """
        check_is_fitted(self)
        names = self._columns.names
        if names is not None and hasattr(source, "with_features"):
            source = source.with_features(names)

        def rows_of(batch: object) -> MatrixLike:
            return self._rows(batch[0] if isinstance(batch, tuple) and batch else batch)

        read = reading(source, rows_of, many_times=False)

        def probabilities() -> Iterator[np.ndarray]:
            with closing(read_ahead(read)) as batches:
                yield from map(small_is_zero(self._proba), batches)

        return probabilities()

    def _log_probabilities(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Log probabilities (n, C) of the labels, which class weights do not change."""
        return self._record.log_probabilities(mean.T, variance.T, on_threads(self.n_jobs))

    def _log_proba(self, rows: MatrixLike, corrected: bool = False) -> np.ndarray:
        """Log probabilities (n, C) at checked rows; where these equal a training row, its label counts."""
        log_proba = self._log_probabilities(*self._latent(rows, corrected))
        if self.label_agreement_:
            log_proba = self.posterior_.kept_rows.places.recall(dense(rows), log_proba, self.label_agreement_)
        return self._weighted(log_proba)

    def _proba(self, rows: MatrixLike, corrected: bool = False) -> np.ndarray:
        """Probabilities (n, C) at checked rows."""
        log_proba = self._log_proba(rows, corrected)
        return np.exp(log_proba, out=log_proba)

    def predict_latent(
        self, X: ArrayLike, return_cov: bool = False, corrected: bool = False, return_grad: bool = False
    ) -> Moments:
        """Posterior mean (n,) and variance (n,), or joint covariance (n, n), of the latent function.

        With C latent functions, which are independent, the shapes are (n, C) and (n, n, C). Variances include the
        variance of a white kernel. ``corrected=True`` is for the Polya-Gamma bound of "logit": it applies the
        second-order correction of Wenzel et al. (2019), appendix A.6, with a misprint mended. Variances that the
        correction makes negative become 0, with a warning. A joint covariance has no correction, and raises a
        ValueError if it would take more than 3 GB (8600 rows of two classes).

        With ``return_grad=True`` there are four results: mean, variance, and their gradients by X, (n, d) or (n, C, d).
        The gradients are by the features as given, before warps. With neighbours, each row's neighbours stay the same;
        the functions jump a little where these change. Where a derivative does not exist it is NaN: with
        ``nu=0.5``, in all features at an inducing point or neighbour, or with ``AxisMatern`` in each feature in which
        the row agrees with one; with a kernel that is not compiled, wherever differences of its values show a kink. The
        first call makes and keeps an (m, m) matrix for each latent function, (n, n) with ``inducing_points="all"``.
        ValueError for tables with levels or missing numbers, and with ``return_cov`` or ``corrected``.
        """
        check_results(return_cov, return_grad, corrected)
        if return_grad:
            as_given, rows = self._given_rows(X)
            mean, variance = self._latent_at(rows)
            by_x = (self._encoding.transform_vjp(as_given, by) for by in self.posterior_.gradients(rows, self.n_jobs))
            return mean.T, variance.T, *(by if by.ndim == 2 else np.swapaxes(by, 0, 1) for by in by_x)
        if not return_cov:
            mean, variance = self._latent(self._rows(X), corrected)
            return mean.T, variance.T
        rows, mean = self._joint_rows(X)
        covariance = self._covariance(rows)
        return mean.T, covariance if mean.ndim == 1 else np.moveaxis(covariance, 0, -1)

    def _joint_rows(self, X: MatrixLike) -> TwoArrays:
        """Checked dense rows, as ``_covariance`` takes them, and their latent means.

        New rows of a precomputed matrix may have further columns, which no other prediction needs: their covariances
        with each other.
        """
        check_is_fitted(self)
        n, among = self.n_features_in_, None
        if is_precomputed(self.posterior_.prior.groups[0].spec.kernel):
            X = np.atleast_2d(np.asarray(X, dtype=np.float64))
            if X.shape[1] == n + len(X):
                X, among = X[:, :n], X[:, n:]
        rows = dense(self._rows(X))
        return rows if among is None else np.hstack([rows, among]), self._latent_at(rows)[0]

    def _covariance(self, rows: np.ndarray) -> np.ndarray:
        """Joint covariance (n, n) or (C, n, n) at checked rows."""
        if not len(rows):
            return np.empty((*np.shape(self.mean_), 0, 0))
        needed = covariance_bytes(self.posterior_, len(rows))
        if needed > MOST_COVARIANCE_BYTES:
            raise ValueError(
                f"The joint covariance of {len(rows)} rows would need {1e-9 * needed:.3g} GB; at most "
                f"{1e-9 * MOST_COVARIANCE_BYTES:g} GB are allowed. Give fewer rows, or use predict_latent(X) for "
                "variances alone, or sample_latent(X, n_samples, method='pathwise'), which needs no covariance. "
                "posterior_.covariance(X) has no limit."
            )
        with single_threaded_blas():
            return self.posterior_.covariance(rows)

    def latent_mean_and_variance(self, X: ArrayLike) -> Moments:
        """``predict_latent(X)`` under the name that scikit-learn's GaussianProcessClassifier uses."""
        return self.predict_latent(X)

    def sample_latent(
        self, X: ArrayLike, n_samples: int = 1, random_state: RandomSeed = None, method: str = "auto"
    ) -> np.ndarray:
        """Draw from the joint posterior of the latent function at all rows of X.

        Parameters
        ----------
        X : (n, d) array
        n_samples : int, default=1
        random_state : int, Generator, RandomState or None, default=None
        method : {"auto", "exact", "pathwise"}, default="auto"
            "exact" factorises the joint covariance, that of ``predict_latent(X, return_cov=True)``. "pathwise" draws
            from the prior by random cosines and corrects the draws at the inducing points, or all rows (Wilson et al.,
            ICML 2020, equations (12) and (13)): mean and covariance are exact, the joint distribution of several rows
            is nearly normal, and that of a single row is normal, or nearly so if the kernel has a DotProduct in a
            product. It needs a compiled kernel, and no neighbours. "auto" takes "pathwise" for more than 3000 rows
            where it is possible, else "exact".

        Returns
        -------
        (n, n_samples) array, or (n, C, n_samples) for C independent latent functions, as ``sample_y`` of scikit-learn's
        GaussianProcessRegressor. Draws include the noise of a white kernel, and do not depend on ``n_jobs``.

        Raises
        ------
        ValueError
            If a parameter is not allowed, if "pathwise" is not possible, or if the covariance that exact draws need
            would take more than 3 GB.

        Notes
        -----
        Exact: O(C n^2 (n + m + d + n_samples)). Pathwise: O(C n n_samples (F d + m)), with F = 512 cosines for each
        term of the kernel.
        """
        check_is_fitted(self)
        integer(1).check("n_samples", n_samples)
        one_of("auto", "exact", "pathwise").check("method", method)
        random, q = random_state_of(random_state), self.posterior_
        obstacle = pathwise_obstacle(q)
        if method == "pathwise" and obstacle:
            raise ValueError(f"method='pathwise' {obstacle}. Take method='exact'.")
        rows, mean = self._joint_rows(X)
        if method == "pathwise" or (method == "auto" and len(rows) > EXACT_ROWS and not obstacle):
            draws = pathwise_draws(q.without_neighbors(), rows, n_samples, random, self.n_jobs)
            draws += np.reshape(self.mean_, (-1, 1, 1)[: draws.ndim])
        else:
            covariance = self._covariance(rows)
            with single_threaded_blas():
                draws = exact_draws(mean, covariance, n_samples, random)
        return draws if mean.ndim == 1 else np.moveaxis(draws, 0, 1)

    def draw_functions(self, n_draws: int = 1, random_state: RandomSeed = None) -> LatentDraws:
        """Draw latent functions from the posterior, as functions of x that have gradients.

        They are the draws of ``sample_latent(method="pathwise")`` without the noise of a white kernel: each is one
        function, the same in all calls, so that it can be optimised (Thompson sampling).

        Parameters
        ----------
        n_draws : int, default=1
        random_state : int, Generator, RandomState or None, default=None

        Returns
        -------
        ``draws(X)`` has the values (n, n_draws), or (n, C, n_draws) for C latent functions, and ``draws.gradient(X)``
        their gradients by X (n, n_draws, d), or (n, C, n_draws, d).

        Raises
        ------
        ValueError
            If a parameter is not allowed, or for a model without pathwise draws, see ``sample_latent``.

        Notes
        -----
        O(C n n_draws (F + m) d) time a call with F = 512 cosines for each term of the kernel, whose frequencies take
        8 C n_draws F d bytes.
        """
        check_is_fitted(self)
        return LatentDraws(self, self.posterior_, self.mean_, n_draws, random_state)

    @property
    def log_marginal_likelihood_value_(self) -> float:
        """``elbo_``, a lower bound of the log marginal likelihood, under the name that scikit-learn's classifier uses.

        With ``bound="taylor"`` the value is an approximation, not a bound.
        """
        return self.elbo_

    @property
    def feature_importances_(self) -> np.ndarray:
        """Relevance (d,) of the features, with sum 1: inverse length scale times the spread of the feature.

        The spread is ``feature_spread_``, the standard deviation over the training rows. If a kernel has several
        factors, the root of the sum of variance / length_scale^2 takes the place of the inverse length scale. Kernels
        of several classes are averaged. If a table's column became several features, such as one for each level, its
        value is the root of the sum of their squares.

        It says how quickly the latent function may bend along a feature: a straight effect, however large, has a small
        one. The guide's page "Is my model any good?" compares it with what ``summary()`` and ``report()`` say.

        Raises
        ------
        AttributeError
            If the kernel lacks a length scale for each feature, or contains a DotProduct, which has no length scale.
        """
        check_is_fitted(self)
        total = np.zeros(self.n_features_in_)
        for group in self.posterior_.prior.groups:
            relevance = group.spec.relevance(self.feature_spread_)
            if isinstance(relevance, str):
                raise AttributeError(
                    f"The kernel {group.spec.kernel} has no feature_importances_: {relevance}. Give a kernel such as "
                    "ConstantKernel() * RBF(np.ones(n_features)), or leave kernel=None."
                )
            if self._encoding.columns:
                relevance = np.sqrt(np.bincount(self._encoding.features_of(len(relevance)), relevance**2))
            total += relevance / np.sum(relevance) if np.any(relevance) else 0.0
        return total / np.sum(total) if np.any(total) else total

    def elbo(self, X: ArrayLike, y: ArrayLike) -> float:
        """The bound on the log evidence of (X, y), in nats, with the fitted posterior.

        Every row counts once. On the training data of a fit without weights the value is ``elbo_``.
        """
        rows = self._rows(X)
        codes = class_numbers(checked_labels(y, rows.shape[0]), self.classes_)
        q = self._without_neighbors()
        mean, variance = self._latent_at(rows, q.marginals)
        site = self._record.site(len(self.classes_))
        return expected_log_likelihood(site, mean, variance, self._record.site_labels(codes)) - q.kl

    @property
    def elbo_(self) -> float:
        """Lower bound of the log evidence of the training data, in nats; the class docstring says more."""
        check_is_fitted(self)
        return self._bound().elbo

    def _without_neighbors(self) -> KernelPosterior:
        """The sparse posterior, whose bound is ``elbo_``; a model with neighbours fits it on first use."""
        kept = self.posterior_.kept_rows
        if kept is None:
            return self.posterior_.without_neighbors()
        if self._sparse is None:
            site = self._record.site(len(self.classes_)).with_prior_mean(np.atleast_1d(self.mean_))
            options = float(self.tol), int(self.max_iter), self.n_jobs
            self._sparse, self._evidence = fit_without_neighbors(kept, site, *options)
        return self._sparse

    def _bound(self) -> Evidence:
        """The evidence of ``_without_neighbors``."""
        if self._evidence is None:
            self._without_neighbors()
        assert self._evidence is not None
        return self._evidence

    def bound_gap(self) -> float:
        """Nats by which the exact bound exceeds the augmented one on the training data, at the same posterior.

        The gap is the expected Kullback-Leibler divergence between the fitted distribution of the auxiliary variables
        and their exact conditional distribution ([1]_, section 4.2); for "exact" it is 0.
        """
        check_is_fitted(self)
        gap = self._bound().gap
        if gap is None:
            raise ValueError(
                "bound_gap() is for bounds 'polya-gamma' of 'logit', 'augmented' of 'svm', and 'exact'; this fit has "
                f"{self._record.bound!r} of {self._record.likelihood!r}."
            )
        return gap

    def save(self, path: str | os.PathLike[str], rows_dtype: str | None = None) -> None:
        """Write the fitted model to one ``.npz`` file without pickled objects.

        With neighbours (``n_neighbors_`` above 0) the file holds the rows that the model keeps, their labels, weights
        and sites, 8 d + 16 (C + 1) bytes for each row with C latent functions (1 for two classes); after
        ``partial_fit`` it may hold rows, too. Whoever has the file can read these. ``rows_dtype`` is "float32" (4 d
        bytes in place of 8 d; float64 rows are rounded), "float64" or None.

        The file keeps all parameters except ``held_out_split``, ``callback`` and a ``random_state`` that is not an
        integer; the loaded model has None for these. An existing file is replaced only when the new one is complete
        and on the disk: after an OSError or an interrupt the old file is as it was.
        """
        check_is_fitted(self)
        io.save(self, path, rows_dtype)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model that ``save`` wrote; on the same machine it predicts the same bits unless rows were rounded.

        Nothing in the file is executed, and everything is checked before it is used. ValueError if the file is not
        such a model.
        """
        return io.load(cls, path)
