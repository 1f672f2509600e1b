"""The base class of the classifiers: a fit in five steps, and predictions from log probabilities."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin

from .inference.run import Run
from .rows.blas import single_threaded_blas
from .rows.executor import Executor, Threads


class LatentClassifier(ClassifierMixin, BaseEstimator, ABC):
    """A classifier with one latent function, or one for each class."""

    classes_: np.ndarray
    n_jobs: int | None
    # Column labels of a data frame if they are not text; scikit-learn does not compare such labels.
    _column_labels: tuple[str, ...] | None = None

    def set_params(self, **params: Any) -> Self:
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
                "as set_params(kernel=ConstantKernel() * RBF(np.ones(n_features))), or the kernel_ of a fitted model."
            )
        return super().set_params(**params)

    def _fitted(
        self,
        *given: Any,
        validate: Callable[..., Any] | None = None,
        threads: Callable[[int | None, Run], Threads] = Threads,
        **named: Any,
    ) -> Self:
        """Fit in five steps; if one fails, the estimator stays as it was before.

        The first step is ``_validate`` or a given function of the estimator, the run and the arguments. ``threads``
        creates the executor that works on blocks of rows.
        """
        fitted = copy.copy(self)
        fitted._check_parameters()
        with single_threaded_blas():
            with fitted._begun() as run:
                run.history.tell(stage="checking")
                data = (validate or type(self)._validate)(fitted, run, *given, **named)
                with threads(self.n_jobs, run) as executor, fitted._interrupts(run):
                    initial = fitted._start(data, run, executor)
                    learned = fitted._learn(data, run, initial)
                    inferred = fitted._infer(data, run, learned)
            fitted._publish(data, run, inferred)
        self.__dict__ = fitted.__dict__
        return self

    @abstractmethod
    def _check_parameters(self) -> None:
        """Raise ValueError for a parameter that is not allowed."""

    def _begun(self) -> Run:
        """Create the run of a fit that starts now; this one reports to nobody."""
        return Run()

    @abstractmethod
    def _validate(self, run: Run, X: Any, y: Any, sample_weight: Any, *args: Any, **kwargs: Any) -> Any:
        """Check the rows and the other arguments of ``fit``."""

    @abstractmethod
    def _start(self, data: Any, run: Run, executor: Executor) -> Any:
        """Choose the initial state."""

    def _learn(self, data: Any, run: Run, initial: Any) -> Any:
        """Learn the hyperparameters."""
        return initial

    def _infer(self, data: Any, run: Run, learned: Any) -> Any:
        """Infer the posterior at the learned hyperparameters."""
        return learned

    def _interrupts(self, run: Run) -> AbstractContextManager[None]:
        """How to handle an interrupt during the fit; by default it aborts the fit."""
        return nullcontext()

    @abstractmethod
    def _publish(self, data: Any, run: Run, inferred: Any) -> None:
        """Set the attributes of the fitted estimator and issue warnings."""

    @abstractmethod
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Log probabilities (n, C) of the classes, in the order of ``classes_``."""

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
