"""Pictures of a fit: the bound over time, and the relevance of the features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from ..config import integer
from ..summary import feature_names
from .base import COLOURS, Display

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def _last_step(model: BaseEstimator) -> BaseEstimator:
    """The last step of a fitted pipeline, or the fitted model itself."""
    check_is_fitted(model)
    return model[-1] if isinstance(model, Pipeline) else model


@dataclass(eq=False)
class LearningDisplay(Display):
    """The bound during a fit, in nats per row, with one line for each stage.

    A stage is a part of the fit with a fixed number of rows and inducing points. Bounds of different rows cannot be
    compared, so that each stage has a line of its own.

    Parameters
    ----------
    history : dict of arrays
        ``history_`` of a fitted GPClassifier.
    """

    history: Mapping[str, np.ndarray]

    def __post_init__(self) -> None:
        if missing := [name for name in ("seconds", "elbo", "n_rows", "n_inducing") if name not in self.history]:
            raise ValueError(f"history lacks {missing}: give history_ of a fitted GPClassifier.")

    @classmethod
    def from_estimator(cls, model: BaseEstimator, *, ax: Axes | None = None) -> Self:
        """Draw the history of a fitted GPClassifier, or of a pipeline whose last step is one."""
        return cls(getattr(_last_step(model), "history_", {})).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None, line_kw: dict[str, Any] | None = None) -> Self:
        """Draw on the given axes, or on new ones; ``line_kw`` goes to ``Axes.plot``."""
        ax = self._on(ax)
        table = self.history
        stage = np.column_stack([table["n_rows"], table["n_inducing"]])
        is_finite = np.isfinite(table["elbo"]) & np.all(np.isfinite(stage), axis=1)
        for (n, m), colour in zip(dict.fromkeys(map(tuple, stage[is_finite].tolist())), cycle(COLOURS), strict=False):
            in_stage = is_finite & np.all(stage == (n, m), axis=1)
            value = np.maximum.accumulate(table["elbo"][in_stage] / n)
            style = {"color": colour, "marker": "o", "markersize": 2.5, "linewidth": 1.2, **(line_kw or {})}
            ax.plot(table["seconds"][in_stage], value, label=f"{n:.0f} rows, {m:.0f} inducing points", **style)
        ax.set(xlabel="Seconds", ylabel="Best bound so far, nats a row")
        ax.grid(alpha=0.3)
        ax.legend(loc="lower right")
        return self


@dataclass(eq=False)
class ImportanceDisplay(Display):
    """Bars of the relevance of the features, with the largest at the top.

    Parameters
    ----------
    importances : (d,) array
        ``feature_importances_`` of a fitted classifier.
    names : d names
    """

    importances: np.ndarray
    names: list[str]

    def __post_init__(self) -> None:
        if len(self.importances) != len(self.names):
            raise ValueError(f"names must be as many as importances, {len(self.importances)}; got {len(self.names)}.")

    @classmethod
    def from_estimator(
        cls, model: BaseEstimator, *, names: list[str] | None = None, n_features: int = 20, ax: Axes | None = None
    ) -> Self:
        """Draw the feature importances of a fitted classifier.

        Parameters
        ----------
        model : fitted classifier with ``feature_importances_``, or pipeline whose last step is one
            The features of a pipeline are the output of the other steps. ValueError for other models.
        names : d names, default=None
            None takes the names from the training data frame, or from the other steps of a pipeline.
        n_features : int, default=20
            Largest number of bars.
        ax : matplotlib.axes.Axes, default=None
            Axes to draw on; None makes a new figure.
        """
        last = _last_step(model)
        try:
            importances = last.feature_importances_
        except AttributeError as error:
            raise ValueError(f"{type(last).__name__} has no feature_importances_ to draw: {error}") from error
        if names is None and last is not model and hasattr(model[:-1], "get_feature_names_out"):
            names = model[:-1].get_feature_names_out()
        names = feature_names(last) if names is None else list(names)
        return cls(importances, names).plot(n_features=n_features, ax=ax)

    def plot(self, *, n_features: int = 20, ax: Axes | None = None, bar_kw: dict[str, Any] | None = None) -> Self:
        """Draw on the given axes, or on new ones; ``bar_kw`` goes to ``Axes.barh``."""
        integer(1).check("n_features", n_features)
        order = np.argsort(-self.importances, kind="stable")[:n_features][::-1]
        is_part = len(order) < len(self.importances)
        title = f"The {len(order)} most relevant of {len(self.importances)} features" if is_part else ""
        xlabel = "Relevance: inverse length scale times spread"
        ax = self._on_rows(ax, [self.names[j] for j in order], xlabel, title)
        ax.barh(range(len(order)), self.importances[order], **{"color": COLOURS[0], **(bar_kw or {})})
        ax.margins(y=0.01)
        return self
