"""What the classifiers share: a fit in five steps, and predictions from log probabilities."""

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
    """A classifier by a latent function, or by one for each class."""

    classes_: np.ndarray
    n_jobs: int | None
    # Of a data frame whose labels are not text, which scikit-learn does not compare.
    _column_labels: tuple[str, ...] | None = None

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, those of the kernel as ``kernel__...``, as scikit-learn does.

        Raises
        ------
        ValueError
            For a name that there is not, and for parameters of a kernel that is None.
        """
        nested = [name for name in params if name.startswith("kernel__")]
        if nested and params.get("kernel", getattr(self, "kernel", 0)) is None:
            raise ValueError(
                f"{nested[0]} cannot be set: kernel is None, which stands for a kernel that each fit makes of its "
                "data. Give one first, such as set_params(kernel=ConstantKernel() * RBF(np.ones(n_features))), or the "
                "kernel_ of a fit."
            )
        return super().set_params(**params)

    def _fitted(
        self,
        *given: Any,
        validate: Callable[..., Any] | None = None,
        threads: Callable[[int | None], Threads] = Threads,
        **named: Any,
    ) -> Self:
        """Fit in five steps to what was given; whichever fails, the estimator is what it was before.

        The first step is ``_validate``, or another function of the estimator to be fitted, its run, and what was given.
        ``threads`` makes who works on blocks of rows.
        """
        fitted = copy.copy(self)
        fitted._check_parameters()
        with single_threaded_blas():
            with fitted._begun() as run:
                run.history.tell(stage="checking")
                data = (validate or type(self)._validate)(fitted, run, *given, **named)
                with threads(self.n_jobs) as executor, fitted._interrupts(run):
                    initial = fitted._start(data, run, run.watching(executor))
                    learned = fitted._learn(data, run, initial)
                    inferred = fitted._infer(data, run, learned)
            fitted._publish(data, run, inferred)
        self.__dict__ = fitted.__dict__
        return self

    @abstractmethod
    def _check_parameters(self) -> None:
        """ValueError for a parameter that is not allowed."""

    def _begun(self) -> Run:
        """What goes with a fit that begins now; here nobody is told how it goes."""
        return Run()

    @abstractmethod
    def _validate(self, run: Run, X: Any, y: Any, sample_weight: Any, *args: Any, **kwargs: Any) -> Any:
        """Data, and what else ``fit`` was given, checked."""

    @abstractmethod
    def _start(self, data: Any, run: Run, executor: Executor) -> Any:
        """Where to begin."""

    def _learn(self, data: Any, run: Run, initial: Any) -> Any:
        """Hyperparameters."""
        return initial

    def _infer(self, data: Any, run: Run, learned: Any) -> Any:
        """The posterior at these."""
        return learned

    def _interrupts(self, run: Run) -> AbstractContextManager[None]:
        """What an interrupt does while the fit learns; here it ends the fit."""
        return nullcontext()

    @abstractmethod
    def _publish(self, data: Any, run: Run, inferred: Any) -> None:
        """Attributes of the fitted estimator, and warnings."""

    @abstractmethod
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Log probabilities (n, C) of the classes, in the order of ``classes_``."""

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Probabilities (n, C) of the classes, in the order of ``classes_``, for X (n, d)."""
        log_proba = self.predict_log_proba(X)
        return np.exp(log_proba, out=log_proba)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The more probable class of each row of X (n, d): (n,) array."""
        log_proba = self.predict_log_proba(X)
        return self.classes_[np.argmax(log_proba, axis=1)]

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """What ``predict`` decides by: log odds (n,) of ``classes_[1]``; log probabilities (n, C) of several classes.

        The log odds have the same order as the probability and are positive where that is the more probable class. The
        mean of the latent function, whose order differs where its variance does, is ``predict_latent(X)[0]``.
        """
        log_proba = self.predict_log_proba(X)
        return log_proba[:, 1] - log_proba[:, 0] if len(self.classes_) == 2 else log_proba
