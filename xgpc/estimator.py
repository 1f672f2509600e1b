"""The base class of the classifiers: predictions from log probabilities, and fits that succeed or change nothing."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from .approximations.local import Posterior
from .config import TRUTH
from .data.encoding import FLOATS, Encoding
from .data.table import Table
from .data.training import Columns, FitInput, TrainingData, checked_rows, training_data
from .likelihoods import LikelihoodBound
from .names import MatrixLike, Moments, TwoArrays
from .ranges import LARGEST_FEATURE, MOST_ROWS, check_latent, is_within, small_is_zero
from .rows.blas import single_threaded_blas
from .rows.block import dense
from .rows.executor import on_threads

Arguments = ParamSpec("Arguments")
Estimator = TypeVar("Estimator", bound="ColumnsOfFit")


def all_or_nothing(
    fit: Callable[Concatenate[Estimator, Arguments], None],
) -> Callable[Concatenate[Estimator, Arguments], Estimator]:
    """Decorate a method that sets fitted attributes: it returns the estimator, which stays as it was after an error."""

    # For help(), which shows what is returned.
    fit.__annotations__["return"] = "Self"

    @wraps(fit)
    def method(self: Estimator, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Estimator:
        fitted = copy.copy(self)
        fit(fitted, *args, **kwargs)
        self.__dict__ = fitted.__dict__
        return self

    return method


class ColumnsOfFit(BaseEstimator):
    """An estimator that keeps the columns of its fit, and checks later rows against them."""

    _columns: Columns

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        small_is_zero(cls)

    def __copy__(self) -> Self:
        other = type(self).__new__(type(self))
        other.__dict__ = dict(vars(self))
        return other

    # Clones share these parameters, which may hold objects that cannot be copied.
    _shared: tuple[str, ...] = ()

    def __sklearn_clone__(self) -> Self:
        bare = copy.copy(self).set_params(**dict.fromkeys(self._shared))
        other: Self = super(ColumnsOfFit, bare).__sklearn_clone__()
        return other.set_params(**{name: getattr(self, name) for name in self._shared})

    def set_params(self, **params: object) -> Self:
        """Set parameters by name, kernel parameters as ``kernel__...``, as scikit-learn does.

        Raises
        ------
        ValueError
            If there is no parameter of that name, or if a kernel parameter is set while kernel is None.
        """
        nested = [name for name in params if name.startswith("kernel__")]
        if nested and params.get("kernel", getattr(self, "kernel", 0)) is None:
            raise ValueError(
                f"{nested[0]} cannot be set: kernel is None, so each fit chooses its own kernel. Give one first, such "
                "as set_params(kernel=ConstantKernel() * RBF(np.ones(n_features)))."
            )
        return super().set_params(**params)

    @property
    def _encoding(self) -> Encoding:
        return self._columns.encoding

    def _set_columns(self, columns: Columns) -> None:
        """Keep columns, and their names, which scikit-learn's ``validate_data`` need not have seen."""
        self._columns, self.n_features_in_ = columns, columns.n_features
        if columns.names is not None:
            self.feature_names_in_ = np.array(columns.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _table(self, X: MatrixLike) -> Table:
        """Rows to predict, read once; NotFittedError before a fit."""
        # check_is_fitted takes as long as evaluating the kernel at one row.
        if not hasattr(self, "n_features_in_"):
            check_is_fitted(self)
        return Table.of(X, getattr(self, "feature_names_in_", ()))

    def _rows(self, X: MatrixLike) -> MatrixLike:
        """Check and encode rows to predict; NotFittedError before a fit."""
        is_plain = type(X) is np.ndarray and X.dtype in FLOATS and X.shape[1:] == (getattr(self, "n_features_in_", -1),)
        takes_plain = getattr(self, "encoding_", None) is None and not hasattr(self, "feature_names_in_")
        # scikit-learn's checks take longer than the rest of a prediction of one row.
        if is_plain and takes_plain and 0 < len(X) <= MOST_ROWS and is_within(X, LARGEST_FEATURE):
            return X
        rows = checked_rows(self, self._table(X), self._columns)
        return self._encoding.transform(rows)

    def _given_rows(self, X: MatrixLike) -> TwoArrays:
        """Checked rows in the units of X, and as the model takes them; ValueError if x is not a vector of numbers."""
        table = self._table(X)
        if self._encoding.columns:
            raise ValueError(
                "There is no gradient by x for a model of a table with levels or missing numbers, which cannot move a "
                "little. Fit to the columns of numbers alone, without missing ones; of levels, compare the predictions "
                "of rows that differ in them."
            )
        rows_as_given = dense(checked_rows(self, table, self._columns))
        return rows_as_given, self._encoding.transform(rows_as_given)


def check_results(return_cov: bool, return_grad: bool, corrected: bool = False) -> None:
    """Raise ValueError for results of ``predict_latent`` that there are not together."""
    for name, value in (("return_cov", return_cov), ("return_grad", return_grad), ("corrected", corrected)):
        TRUTH.check(name, value)
    if return_grad and (return_cov or corrected):
        other = "return_cov" if return_cov else "corrected"
        raise ValueError(f"return_grad is for means and variances: give it without {other}.")
    if corrected and return_cov:
        raise ValueError("There is no corrected joint covariance; give either return_cov or corrected.")


def latent_results(q: Posterior, rows: MatrixLike, n_jobs: int | None, return_cov: bool, return_grad: bool) -> Moments:
    """Mean and variance, or joint covariance, of the latent functions at checked rows, and gradients of the first two.

    ValueError if covariance and gradients are wanted.
    """
    check_results(return_cov, return_grad)
    mean, variance = q.marginals(rows, n_jobs)
    check_latent(mean, variance, rows)
    if return_cov:
        with single_threaded_blas():
            return mean, q.covariance(rows)
    return (mean, variance, *q.gradients(rows, n_jobs)) if return_grad else (mean, variance)


class LatentClassifier(ClassifierMixin, ColumnsOfFit, ABC):
    """A classifier with one latent function, or one for each class."""

    classes_: np.ndarray
    class_weight_: np.ndarray
    n_jobs: int | None
    _record: LikelihoodBound

    def _two_classes(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> TrainingData:
        """Check training rows of two classes, and keep their columns and classes."""
        data = training_data(self, FitInput(X, y, sample_weight))
        self._set_columns(data.columns)
        self.classes_ = data.classes
        if len(self.classes_) > 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass "
                f"({len(self.classes_)} classes); sklearn.multiclass.OneVsRestClassifier fits one classifier for each."
            )
        return data

    def _weighted(self, log_proba: np.ndarray) -> np.ndarray:
        """Log probabilities (n, C) with the least expected loss -log p(y) of labels that weigh ``class_weight_``."""
        weights_differ = len(set(self.class_weight_.tolist())) > 1
        return log_softmax(log_proba + np.log(self.class_weight_), axis=1) if weights_differ else log_proba

    def _weighted_with_gradient(self, mean: np.ndarray, variance: np.ndarray, *by_x: np.ndarray) -> TwoArrays:
        """Probabilities (n, C) with class weights, and their gradients, from latent moments and gradients of these."""
        each = on_threads(self.n_jobs)
        log_p = self._record.log_probabilities(mean, variance, each)
        weighted, gradient = self._weighted(log_p), self._record.probability_gradients(mean, variance, by_x, each)
        # Gradients of probabilities sum to zero over the classes. Without weights all bits stay.
        p, added = np.exp(weighted), np.expm1(weighted - log_p)[..., None] * gradient
        return p, gradient + added - p[..., None] * np.sum(added, axis=1, keepdims=True)

    @abstractmethod
    def predict_latent(self, X: MatrixLike) -> Moments:
        """Posterior mean and variance of the latent functions at the rows of X (n, d)."""

    def predict_log_proba(self, X: MatrixLike) -> np.ndarray:
        """Log probabilities (n, C) of the classes, which stay accurate where probabilities underflow."""
        mean, variance = self.predict_latent(X)
        return self._weighted(self._record.log_probabilities(mean, variance, on_threads(self.n_jobs)))

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Probabilities (n, C) of the classes, in the order of ``classes_``, for X (n, d)."""
        log_proba = self.predict_log_proba(X)
        return np.exp(log_proba, out=log_proba)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The most probable class of each row of X (n, d): (n,) array."""
        log_proba = self.predict_log_proba(X)
        return self.classes_[np.argmax(log_proba, axis=1)]

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Log odds (n,) of ``classes_[1]`` for two classes; log probabilities (n, C) for several classes.

        ``predict`` decides by these values: log odds are positive where ``classes_[1]`` is the more probable class. The
        mean of the latent function, ``predict_latent(X)[0]``, can have another order where the variance differs.
        """
        log_proba = self.predict_log_proba(X)
        return log_proba[:, 1] - log_proba[:, 0] if len(self.classes_) == 2 else log_proba
