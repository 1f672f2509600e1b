"""What a fitted ``GPClassifier`` is, predicts and is saved as."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from . import io
from .approximations.base import KernelPosterior, Natural
from .approximations.local import LocalPosterior
from .estimator import LatentClassifier
from .inference.correction import corrected_marginals
from .likelihoods import LIKELIHOODS, expected_log_likelihood, has_label_noise
from .ranges import check_latent
from .reading import Columns, columns_names, names_of_source, numbered, rows_to_predict
from .rows.batches import read_ahead, reading
from .rows.blas import single_threaded_blas
from .validation import checked_rows, class_numbers, site_labels


class PosteriorClassifier(LatentClassifier):
    """A classifier by a normal posterior of its latent functions: what needs a fit, and not how it came about."""

    posterior_: KernelPosterior
    local_posterior_: LocalPosterior | None
    label_noise_: float
    _resolved: tuple[str, str]
    _correction: Natural | None
    _bound_gap: float | None

    def _set_fit(
        self,
        q: KernelPosterior,
        likelihood: str,
        bound: str,
        label_noise: float,
        correction: Natural | None,
        gap: float | None,
        local: LocalPosterior | None,
    ) -> None:
        """Attributes that follow from the posterior."""
        kernels = [prior.spec.kernel for prior in q.prior.groups]
        self.posterior_, self.local_posterior_ = q, local
        self.n_neighbors_ = 0 if local is None else local.n_neighbors
        self.share_ = "none" if q.prior.Z.ndim == 3 else "kernel"
        self.kernel_ = kernels if self.share_ == "none" else kernels[0]
        self.inducing_points_ = np.array(q.prior.Z)
        self.jitter_ = q.prior.jitter
        self._resolved, self._correction, self._bound_gap = (likelihood, bound), correction, gap
        if has_label_noise(likelihood, bound):
            self.label_noise_ = label_noise
        elif hasattr(self, "label_noise_"):
            del self.label_noise_

    def _latent(self, X: Any, corrected: bool = False) -> tuple[np.ndarray, np.ndarray]:
        check_is_fitted(self)
        if not isinstance(corrected, bool | np.bool_):
            raise ValueError(f"corrected must be True or False; got {corrected!r}.")
        X = checked_rows(self, X, reset=False)
        if not corrected:
            return self._latent_at(X)
        if self._correction is None:
            likelihood, bound = self._resolved
            raise ValueError(
                f"corrected=True is for likelihood='logit' with bound='polya-gamma'; this fit has {likelihood!r} with "
                f"{bound!r}."
            )
        return corrected_marginals(self.posterior_, self._correction, X, self.n_jobs)

    def _latent_at(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """At checked rows."""
        mean, variance = (self.local_posterior_ or self.posterior_).marginals(X, self.n_jobs)
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
            As for ``fit_batches``, or an iterator, as it is read once. Batches are arrays X (r, d), or tuples that
            begin with one. Of ``from_parquet`` and ``from_arrow`` the columns that the model was fitted to are taken by
            their names, if it has them; other columns do not matter.

        Returns
        -------
        Iterator of arrays. A thread reads the next batch while one is predicted, until the iterator ends or is closed.

        Raises
        ------
        ValueError
            For what is no source, or lacks columns; from the iterator for a bad batch, which notes of the error name.
        """
        check_is_fitted(self)
        names = columns_names(self)
        if names is not None and hasattr(source, "with_features"):
            source = source.with_features(names)
        return self._proba_batches(reading(source, again=False), names_of_source(source))

    def _proba_batches(self, read: Callable[[], Iterator[Any]], names: tuple[str, ...] | None) -> Iterator[np.ndarray]:
        fitted = Columns(self.n_features_in_, columns_names(self))

        def rows_of(given: Any) -> np.ndarray:
            return rows_to_predict(given, names, fitted)

        with closing(read_ahead(lambda: numbered(read(), rows_of))) as batches:
            for rows in batches:
                if len(rows):
                    log_proba = self._log_probabilities(*self._latent_at(rows))
                    yield np.exp(log_proba, out=log_proba)
                else:
                    yield np.empty((0, len(self.classes_)))

    def _log_probabilities(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        likelihood, bound = self._resolved
        delta = getattr(self, "label_noise_", None)
        return LIKELIHOODS[likelihood].log_probabilities(bound, mean.T, variance.T, delta)

    def predict_latent(
        self, X: ArrayLike, return_cov: bool = False, corrected: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean (n,) and variance (n,), or joint covariance (n, n), of the latent function.

        (n, C) and (n, n, C) of the latent functions of C classes, which are independent. A white kernel's variance is
        part of both. With ``corrected``, of the Polya-Gamma bound for "logit": mean and variance to second order in
        what the approximation leaves out ([1]_, appendix A.6, corrected), with a warning of variances that it makes
        negative, which become 0; there is no corrected covariance.
        """
        if corrected and return_cov:
            raise ValueError("There is no corrected joint covariance; give one of return_cov and corrected.")
        mean, variance = self._latent(X, corrected)
        if not return_cov:
            return mean.T, variance.T
        rows = checked_rows(self, X, reset=False)
        with single_threaded_blas():
            covariance = (self.local_posterior_ or self.posterior_).covariance(rows)
        return mean.T, covariance if mean.ndim == 1 else np.moveaxis(covariance, 0, -1)

    def elbo(self, X: ArrayLike, y: ArrayLike) -> float:
        """The bound on the log evidence of (X, y), in nats, with the fitted posterior.

        Every row counts once: it is ``elbo_`` on the training data of a fit without weights.
        """
        check_is_fitted(self)
        rows, y = checked_rows(self, X, y, reset=False)
        likelihood, bound = self._resolved
        q = self.posterior_
        site = LIKELIHOODS[likelihood].site(bound, len(self.classes_), getattr(self, "label_noise_", None))
        labels = site_labels(class_numbers(y, self.classes_), q.n_latents)
        mean, variance = q.marginals(rows, self.n_jobs)
        check_latent(mean, variance, rows)
        return expected_log_likelihood(site, mean, variance, labels) - q.kl

    def bound_gap(self) -> float:
        """Nats by which the exact bound exceeds the augmented one on the training data, at the same posterior.

        The expected divergence of the augmenting variables from their conditional posterior ([1]_, section 4.2) under
        the bounds "polya-gamma" of "logit" and "augmented" of "svm"; 0 under "exact".
        """
        check_is_fitted(self)
        if self._bound_gap is None:
            likelihood, bound = self._resolved
            raise ValueError(
                f"bound_gap() is for bounds 'polya-gamma' of 'logit', 'augmented' of 'svm', and 'exact'; this fit has "
                f"{bound!r} of {likelihood!r}."
            )
        return self._bound_gap

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
