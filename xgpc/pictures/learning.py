"""What a fit did, and what it found: its history and the relevance of the features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from .base import COLOURS, Display, feature_names, last_step, new_axes, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class LearningDisplay(Display):
    """The bound over the time of a fit, in nats a row, stage by stage.

    Stages are fits to so many rows with so many inducing points; bounds of different rows do not compare, so that each
    stage is a line of its own. Lines begin when their stage does.

    Parameters
    ----------
    history : dict of arrays, ``history_`` of a fitted GPClassifier

    Attributes
    ----------
    ax_, figure_ : what was drawn on
    """

    def __init__(self, history: Mapping[str, np.ndarray]) -> None:
        missing = [name for name in ("seconds", "elbo", "n_rows", "n_inducing") if name not in history]
        if missing:
            raise ValueError(f"history lacks {missing}: give history_ of a fitted GPClassifier.")
        self.history = history

    @classmethod
    def from_estimator(cls, model: Any, *, ax: Axes | None = None) -> Self:
        """Draw the history of a fitted GPClassifier, or of one that is the last step of a pipeline."""
        return cls(getattr(last_step(model), "history_", {})).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None, line_kw: dict[str, Any] | None = None) -> Self:
        """Draw, on new axes if none are given; ``line_kw`` is for ``Axes.plot``."""
        ax = self._on(ax)
        table = self.history
        rows, m = table["n_rows"], table["n_inducing"]
        known = np.isfinite(table["elbo"]) & np.isfinite(rows) & np.isfinite(m)
        stages = list(dict.fromkeys(zip(rows[known].tolist(), m[known].tolist(), strict=True)))
        for k, (n, points) in enumerate(stages):
            here = known & (rows == n) & (m == points)
            value = np.maximum.accumulate(table["elbo"][here] / n)
            style = styled(line_kw, color=COLOURS[k % len(COLOURS)], marker="o", markersize=2.5, linewidth=1.2)
            label = f"{n:.0f} rows, {points:.0f} inducing points"
            ax.plot(table["seconds"][here], value, label=label, **style)
        ax.set(xlabel="Seconds", ylabel="Best bound so far, nats a row")
        ax.grid(alpha=0.3)
        ax.legend(loc="lower right")
        return self


class ImportanceDisplay(Display):
    """Bars of the features' relevance, ``feature_importances_``, the largest at the top.

    Parameters
    ----------
    importances : (d,) array
    names : d names

    Attributes
    ----------
    ax_, figure_ : what was drawn on
    """

    def __init__(self, importances: np.ndarray, names: list[str]) -> None:
        if len(importances) != len(names):
            raise ValueError(f"names must be as many as importances, {len(importances)}; got {len(names)}.")
        self.importances, self.names = np.asarray(importances, dtype=np.float64), names

    @classmethod
    def from_estimator(
        cls, model: Any, *, names: list[str] | None = None, n_features: int = 20, ax: Axes | None = None
    ) -> Self:
        """Draw those of a fitted classifier.

        Parameters
        ----------
        model : fitted GPClassifier, or another classifier with ``feature_importances_``
            Of a pipeline the last step's, for the features that the steps before it make.
        names : d names, default=None
            None: those of the data frame that it was fitted to, or that the steps before it give.
        n_features : int, default=20
            At most so many bars.
        ax : matplotlib.axes.Axes, default=None

        Raises
        ------
        ValueError
            For a model without ``feature_importances_``.
        """
        last = last_step(model)
        try:
            importances = last.feature_importances_
        except AttributeError as error:
            raise ValueError(f"{type(last).__name__} has no feature_importances_ to draw: {error}") from error
        if names is None and last is not model and hasattr(model[:-1], "get_feature_names_out"):
            names = model[:-1].get_feature_names_out()
        names = feature_names(last, None, len(importances)) if names is None else list(names)
        return cls(importances, names).plot(n_features=n_features, ax=ax)

    def plot(self, *, n_features: int = 20, ax: Axes | None = None, bar_kw: dict[str, Any] | None = None) -> Self:
        """Draw, on new axes if none are given; ``bar_kw`` is for ``Axes.barh``."""
        order = np.argsort(-self.importances, kind="stable")[:n_features][::-1]
        ax = self._on(new_axes(6.0, 1.2 + 0.26 * len(order)) if ax is None else ax)
        ax.barh([self.names[j] for j in order], self.importances[order], **styled(bar_kw, color=COLOURS[0]))
        ax.set(xlabel="Relevance: inverse length scale times spread")
        if len(order) < len(self.importances):
            ax.set_title(f"The {len(order)} most relevant of {len(self.importances)} features")
        ax.margins(y=0.01)
        ax.grid(axis="x", alpha=0.3)
        ax.set_axisbelow(True)
        return self
