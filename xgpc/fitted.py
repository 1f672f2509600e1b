"""What a fitted ``GPClassifier`` is, predicts and is saved as."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from . import io
from ._sites import Site
from .approximations.base import KernelPosterior, Training
from .approximations.columns import ColumnOf, covariance_columns
from .approximations.draws import exact_draws, pathwise_draws, pathwise_obstacle
from .approximations.local import LocalPosterior
from .config import is_integer, is_name
from .data.batches import Columns, fills_memory_again, names_of_source, numbered, reading, rows_to_predict
from .data.checks import class_numbers, site_labels
from .data.encoding import Encoding, of_table
from .data.training import checked_labels_of, checked_rows
from .estimator import LatentClassifier
from .inference.ascent import Point, coordinate_ascent
from .inference.correction import corrected_marginals, correction_and_gap
from .inference.fitting import Evidence
from .inference.history import History
from .inference.starts import starting_posterior
from .kernels.relevance import relevance
from .likelihoods import LIKELIHOODS, expected_log_likelihood, has_label_noise
from .ranges import check_latent
from .rows.batches import read_ahead
from .rows.blas import single_threaded_blas
from .rows.executor import Threads, on_threads
from .rows.source import ArraySource, dense, in_dense_parts
from .summary import summary

# Bytes that a joint covariance may take while it is made: what a machine of 4 GB has.
MOST_COVARIANCE_BYTES = 3e9
# Rows up to which draws are exact by default: a covariance of 3000 rows and its factor took 1 s, 20 pathwise draws .8 s
# (one core, m = 20); the one grows with the square to the cube of the rows, the other with their number.
EXACT_ROWS = 3000
METHODS = ("auto", "exact", "pathwise")


def _joined(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances (r,) or (C, r) of all rows, from those of parts of them in order."""
    if len(parts) == 1:
        return parts[0]
    means, variances = zip(*parts, strict=True)
    return np.concatenate(means, axis=-1), np.concatenate(variances, axis=-1)


class PosteriorClassifier(LatentClassifier):
    """A classifier by a normal posterior of its latent functions: what needs a fit, and not how it came about."""

    posterior_: KernelPosterior | LocalPosterior
    class_count_: np.ndarray
    n_samples_seen_: int
    warnings_: list[str]
    history_: dict[str, np.ndarray]
    feature_mean_: np.ndarray
    feature_spread_: np.ndarray
    label_noise_: float
    mean_: float | np.ndarray
    encoding_: Encoding | None = None
    _resolved: tuple[str, str]
    # Of the posterior without neighbours, which with these is found when it is asked for, as far as that has been done;
    # and labels and weights of the rows of ``posterior_``, which files of models do not hold.
    _evidence: Evidence | None
    _sparse: KernelPosterior | None = None
    _distinct_labels: tuple[np.ndarray, np.ndarray] | None = None

    def _set_fit(
        self,
        q: KernelPosterior | LocalPosterior,
        likelihood: str,
        bound: str,
        label_noise: float,
        mean: np.ndarray,
        evidence: Evidence | None,
    ) -> None:
        """Attributes that follow from the posterior."""
        kernels = [prior.spec.kernel for prior in q.prior.groups]
        self.posterior_, self._sparse, self._evidence = q, None, evidence
        self.n_neighbors_ = q.n_neighbors if isinstance(q, LocalPosterior) else 0
        self.share_ = "none" if q.prior.Z.ndim == 3 else "kernel"
        self.kernel_ = kernels if self.share_ == "none" else kernels[0]
        self.inducing_points_ = np.array(q.prior.Z)
        self.jitter_ = q.prior.jitter
        self._resolved = (likelihood, bound)
        self.mean_ = float(mean[0]) if q.n_latents is None else mean
        if has_label_noise(likelihood, bound):
            self.label_noise_ = label_noise
        elif hasattr(self, "label_noise_"):
            del self.label_noise_

    @property
    def decisions_(self) -> list[str]:
        """What the fit decided and why, a sentence each, in order: those of ``history_["decision"]``."""
        check_is_fitted(self)
        return [str(text) for text in self.history_.get("decision", ()) if text]

    def summary(self) -> str:
        """Lines of text on what was learned: rows, kernel with named length scales, bound, warnings and decisions.

        Length scales are in standard deviations of their features, ``feature_spread_``. Next to the bound is the mean
        log probability of the rows' labels by the frequencies of the classes alone, which a model should exceed. Rows
        and classes are those of all calls of ``partial_fit``; the bound, warnings and decisions are the last call's.
        """
        check_is_fitted(self)
        return summary(self)

    def _latent(self, X: Any, corrected: bool = False) -> tuple[np.ndarray, np.ndarray]:
        # Looked at first, as check_is_fitted takes as long as the kernel of a row.
        if not hasattr(self, "posterior_"):
            check_is_fitted(self)
        if not isinstance(corrected, bool | np.bool_):
            raise ValueError(f"corrected must be True or False; got {corrected!r}.")
        X = checked_rows(self, X, reset=False)
        if not corrected:
            return self._latent_at(X)
        correction = None if self._evidence is None else self._evidence.correction
        if correction is None:
            likelihood, bound = self._resolved
            raise ValueError(
                f"corrected=True is for likelihood='logit' with bound='polya-gamma'; this fit has {likelihood!r} with "
                f"{bound!r}."
            )
        parts = []
        for rows in in_dense_parts(X):
            parts.append(corrected_marginals(self._without_neighbors(), correction, rows, self.n_jobs))
        return self._with_mean(*_joined(parts))

    def _latent_at(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """At checked rows."""
        return self._with_mean(*self._marginals(self.posterior_, X))

    def _with_mean(self, distance: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of latent values, from means (r,) or (C, r) of their distances from the prior's mean."""
        return distance + np.reshape(self.mean_, (-1, 1)[: distance.ndim]), variance

    def _marginals(self, q: KernelPosterior | LocalPosterior, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Of the latent values' distances from the prior's mean."""
        mean, variance = _joined([q.marginals(rows, self.n_jobs) for rows in in_dense_parts(X)])
        check_latent(mean, variance, X)
        return mean, variance

    def predict_proba(self, X: ArrayLike, corrected: bool = False) -> np.ndarray:
        """Probabilities (n, C) of the classes, in the order of ``classes_``, for X (n, d).

        The latent functions are integrated out, without random numbers; see ``xgpc.likelihoods`` for the errors. With
        ``corrected`` as for ``predict_latent``.
        """
        log_proba = self.predict_log_proba(X, corrected)
        return np.exp(log_proba, out=log_proba)

    def predict_log_proba(self, X: ArrayLike, corrected: bool = False) -> np.ndarray:
        """Log probabilities (n, C); finite and accurate where the probabilities underflow."""
        return self._log_probabilities(*self._latent(X, corrected))

    def predict_proba_batches(self, source: Any) -> Iterator[np.ndarray]:
        """Probabilities of rows that need not fit into memory: an array (r, C) for each batch, in order.

        Parameters
        ----------
        source : function, iterable, iterator or sequence
            As for ``fit_batches``, or an iterator, as it is read once. Batches are arrays X (r, d), sparse perhaps, or
            tuples that begin with one. Of ``from_parquet`` and ``from_arrow`` the columns that the model was fitted to
            are taken by their names, if it has them; other columns do not matter.

        Returns
        -------
        Iterator of arrays. A thread reads the next batch while one is predicted, until the iterator ends or is closed.

        Raises
        ------
        ValueError
            For what is no source, or lacks columns; from the iterator for a bad batch, which notes of the error name.
        """
        check_is_fitted(self)
        names = Columns.fitted(self).names
        if names is not None and hasattr(source, "with_features"):
            source = source.with_features(names)
        return self._proba_batches(source, reading(source, again=False))

    def _proba_batches(self, source: Any, read: Callable[[], Iterator[Any]]) -> Iterator[np.ndarray]:
        fitted, table = Columns.fitted(self), of_table(self.encoding_)
        names, copy = names_of_source(source), fills_memory_again(source)

        def rows_of(given: Any) -> np.ndarray:
            if table is None:
                rows = rows_to_predict(given, names, fitted, copy)
                return rows if self.encoding_ is None else self.encoding_.within_limits(rows)
            return checked_rows(self, given[0] if isinstance(given, tuple) and given else given, reset=False)

        with closing(read_ahead(lambda: numbered(read(), rows_of))) as batches:
            for rows in batches:
                log_proba = self._log_probabilities(*self._latent_at(rows))
                yield np.exp(log_proba, out=log_proba)

    def _log_probabilities(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        likelihood, bound = self._resolved
        delta = getattr(self, "label_noise_", None)
        return LIKELIHOODS[likelihood].log_probabilities(bound, mean.T, variance.T, delta, on_threads(self.n_jobs))

    def predict_latent(
        self, X: ArrayLike, return_cov: bool = False, corrected: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean (n,) and variance (n,), or joint covariance (n, n), of the latent function.

        (n, C) and (n, n, C) of the latent functions of C classes, which are independent. A white kernel's variance is
        part of both. With ``corrected``, of the Polya-Gamma bound for "logit": mean and variance to second order in
        what the approximation leaves out ([1]_, appendix A.6, corrected), with a warning of variances that it makes
        negative, which become 0; there is no corrected covariance. A joint covariance that would take more than 3 GB is
        a ValueError: of two classes that of 8600 rows.
        """
        if corrected and return_cov:
            raise ValueError("There is no corrected joint covariance; give one of return_cov and corrected.")
        mean, variance = self._latent(X, corrected)
        if not return_cov:
            return mean.T, variance.T
        covariance = self._covariance(dense(checked_rows(self, X, reset=False)))
        return mean.T, covariance if mean.ndim == 1 else np.moveaxis(covariance, 0, -1)

    def _covariance(self, rows: np.ndarray) -> np.ndarray:
        """(n, n) or (C, n, n) at checked rows."""
        q: Any = self.posterior_
        if not len(rows):
            return np.empty((*q.shape, 0, 0))
        needed = q.covariance_bytes(len(rows))
        if needed > MOST_COVARIANCE_BYTES:
            raise ValueError(
                f"The joint covariance of {len(rows)} rows would take {1e-9 * needed:.3g} GB while it is made; at most "
                f"{1e-9 * MOST_COVARIANCE_BYTES:g} GB are allowed. Take fewer rows, variances alone "
                "(predict_latent(X)), or sample_latent(X, n_samples, method='pathwise'), which needs none. "
                "posterior_.covariance(X) has no limit."
            )
        with single_threaded_blas():
            return q.covariance(rows)

    def _covariance_columns(self, X: Any) -> ColumnOf:
        """Of ``predict_latent(X, return_cov=True)``, each (C, n) made when it is asked for."""
        rows = dense(checked_rows(self, X, reset=False))
        return covariance_columns(self.posterior_, rows, self.n_jobs)

    def latent_mean_and_variance(self, X: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """``predict_latent(X)`` by the name that scikit-learn's GaussianProcessClassifier has for it."""
        return self.predict_latent(X)

    def sample_latent(
        self, X: ArrayLike, n_samples: int = 1, random_state: Any = None, method: str = "auto"
    ) -> np.ndarray:
        """Draws from the posterior of the latent function, jointly at all rows of X.

        Parameters
        ----------
        X : (n, d) array
        n_samples : int, default=1
        random_state : int, RandomState or None, default=None
        method : {"auto", "exact", "pathwise"}, default="auto"
            "exact": by a factor of the joint covariance, that of ``predict_latent(X, return_cov=True)``. "pathwise":
            draws of the prior by random cosines, corrected at the inducing points (Wilson et al., ICML 2020, equations
            (12) and (13)): mean and covariance are the exact ones, and so is the distribution at a row;
            that at several rows is nearly normal. It is for inducing points and kernels of RBF, Matern and
            RationalQuadratic, their sums, products and constants, with or without white noise. "auto": pathwise for
            more than 3000 rows where it can be, else exact. With neighbours draws are exact: from the joint
            distribution of the rows, each predicted from its own neighbours.

        Returns
        -------
        (n, n_samples) array; (n, C, n_samples) of the latent functions of C classes, which are independent. As
        ``sample_y`` of scikit-learn's GaussianProcessRegressor.

        Raises
        ------
        ValueError
            For a bad parameter, "pathwise" where there is none, and exact draws of so many rows that their covariance
            would take more than 3 GB.

        Notes
        -----
        Exact: O(C n^2 (n + m + d + n_samples)). Pathwise: O(C n n_samples (F d + m)), with F = 512 cosines for each
        term of the kernel. The same bits for any ``n_jobs``. A white kernel's noise is part of both.
        """
        check_is_fitted(self)
        if not (is_integer(n_samples) and n_samples >= 1):
            raise ValueError(f"n_samples must be a positive integer; got {n_samples!r}.")
        if not is_name(method, METHODS):
            raise ValueError(f"method must be one of {list(METHODS)}; got {method!r}.")
        random, rows = check_random_state(random_state), dense(checked_rows(self, X, reset=False))
        q: Any = self.posterior_
        obstacle = pathwise_obstacle(q)
        if method == "pathwise" and obstacle:
            raise ValueError(f"method='pathwise' {obstacle}. Take method='exact'.")
        mean, _ = self._latent_at(rows)
        if method == "pathwise" or (method == "auto" and len(rows) > EXACT_ROWS and not obstacle):
            draws = pathwise_draws(q, rows, n_samples, random, self.n_jobs)
            draws += np.reshape(self.mean_, (-1, 1, 1)[: draws.ndim])
        else:
            covariance = self._covariance(rows)
            with single_threaded_blas():
                draws = exact_draws(mean, covariance, n_samples, random)
        return draws if mean.ndim == 1 else np.moveaxis(draws, 0, 1)

    @property
    def log_marginal_likelihood_value_(self) -> float:
        """``elbo_``, a lower bound of the log marginal likelihood, by the name of scikit-learn's classifier for that.

        With ``bound="taylor"`` it is an approximation and no bound.
        """
        return self.elbo_

    @property
    def feature_importances_(self) -> np.ndarray:
        """Relevance (d,) of the features, of sum 1: their inverse length scales times their spread.

        The spread is ``feature_spread_``, the standard deviation of the training rows. Of a sum or product of kernels
        the inverse length scale is the root of the sum of variance / length_scale^2 over its factors: up to their
        smoothness the prior's mean squared slope. Of kernels for each class it is the average of the classes'. What a
        column of a table is made into, such as a column for each level, counts as the root of the sum of squares.

        The latent function may change along a relevant feature; whether it does for the better, permutation importance
        on other rows tells (``sklearn.inspection.permutation_importance``).

        Raises
        ------
        AttributeError
            If the kernel has no length scale for each feature, or a DotProduct, whose relevance is not that of a scale.
        """
        check_is_fitted(self)
        total = np.zeros(self.n_features_in_)
        for group in self.posterior_.prior.groups:
            found = relevance(group.spec)
            if isinstance(found, str):
                raise AttributeError(
                    f"There are no feature_importances_ of the kernel {group.spec.kernel}: {found}. Give a kernel such "
                    "as ConstantKernel() * RBF(np.ones(n_features)), or leave kernel=None."
                )
            found = found * self.feature_spread_
            table = of_table(self.encoding_)
            if table is not None:
                found = np.sqrt(np.bincount(table.column_of_matrix, found**2))
            total += found / np.sum(found) if np.any(found) else 0.0
        return total / np.sum(total) if np.any(total) else total

    def elbo(self, X: ArrayLike, y: ArrayLike) -> float:
        """The bound on the log evidence of (X, y), in nats, with the fitted posterior.

        Every row counts once: it is ``elbo_`` on the training data of a fit without weights.
        """
        check_is_fitted(self)
        rows = checked_rows(self, X, reset=False)
        y = checked_labels_of(self, y, rows.shape[0])
        q = self._without_neighbors()
        labels = site_labels(class_numbers(y, self.classes_), q.n_latents)
        mean, variance = self._marginals(q, rows)
        return expected_log_likelihood(self._site(), mean, variance, labels) - q.kl

    @property
    def elbo_(self) -> float:
        """Lower bound of the log evidence of the training data, in nats; see the class's attributes."""
        check_is_fitted(self)
        if self._evidence is None:
            self._without_neighbors()
        assert self._evidence is not None
        return self._evidence.elbo

    def _site(self) -> Site:
        likelihood, bound = self._resolved
        site = LIKELIHOODS[likelihood].site(bound, len(self.classes_), getattr(self, "label_noise_", None))
        return site.with_prior_mean(np.atleast_1d(self.mean_))

    def _without_neighbors(self) -> KernelPosterior:
        """The posterior whose bound ``elbo_`` is: with neighbours one that is fitted when it is first asked for."""
        q = self.posterior_
        if not isinstance(q, LocalPosterior):
            return q
        if self._sparse is None:
            if self._distinct_labels is None:
                raise AttributeError(
                    "The bound of a model with neighbours is found when it is first asked for, from the labels of the "
                    "training rows, which files of models do not hold: ask for elbo_ before save(), or fit again."
                )
            y, weight = self._distinct_labels
            with single_threaded_blas(), Threads(self.n_jobs) as executor:
                training, site = Training(ArraySource(q.X, y, weight), executor, q.n_latents), self._site()
                start = starting_posterior(training, None, q.prior, site)
                tol, most = float(self.tol), int(self.max_iter)
                ascent = coordinate_ascent(training, start, site, tol=tol, max_iter=most, history=History())
                point: Point[KernelPosterior] = ascent.point
                self._sparse, self._evidence = point.q, Evidence(point.elbo, *correction_and_gap(training, point))
        return self._sparse

    def bound_gap(self) -> float:
        """Nats by which the exact bound exceeds the augmented one on the training data, at the same posterior.

        The expected divergence of the augmenting variables from their conditional posterior ([1]_, section 4.2) under
        the bounds "polya-gamma" of "logit" and "augmented" of "svm"; 0 under "exact".
        """
        check_is_fitted(self)
        self._without_neighbors()
        assert self._evidence is not None
        if self._evidence.gap is None:
            likelihood, bound = self._resolved
            raise ValueError(
                f"bound_gap() is for bounds 'polya-gamma' of 'logit', 'augmented' of 'svm', and 'exact'; this fit has "
                f"{bound!r} of {likelihood!r}."
            )
        return self._evidence.gap

    def save(self, path: str | os.PathLike[str], rows_dtype: Any = None) -> None:
        """Write the fitted model to one ``.npz`` file without pickled objects.

        With neighbours (``n_neighbors_`` above 0) the file holds all training rows with their sites, 8 d + 16 C bytes
        each for C latent functions (1 of two classes): no more than whoever has it may know; ``n_neighbors=0`` keeps
        none. ``rows_dtype`` is "float32" (4 d + 16 C bytes, and rows that were float64 are rounded), "float64" or None.

        All parameters are kept but ``query_split``, ``checkpoint``, ``callback`` and a ``random_state`` that is not an
        integer: the loaded model then has None. A file of that name is replaced once the new one is whole and on the
        disk: an OSError or an interrupt leaves it as it was, and whoever reads it meanwhile finds the old model or the
        new one.
        """
        check_is_fitted(self)
        io.save(self, path, rows_dtype)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model that ``save`` wrote; it predicts the same bits on the same machine, but for rounded rows.

        Nothing in the file is executed, and everything is checked before it is used. The arrays of a file that is
        refused are not read unless they fit its header.

        Raises
        ------
        ValueError
            If the file is not such a model.
        """
        return io.load(cls, path)
