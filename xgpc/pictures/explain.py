"""Pictures of Shapley values: one row with intervals, or many rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata
from sklearn.base import BaseEstimator

from ..config import integer
from ..data.table import Column, Table
from ..explain import shapley_values
from ..names import MatrixLike, shown
from ..summary import feature_names
from .base import COLOURS, Display

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(eq=False)
class ShapleyDisplay(Display):
    """Shapley values of the latent mean: bars with 95 % intervals for one row, a point for each of several rows.

    Features with the largest mean absolute value are at the top. The colour of a point is the place of the feature's
    value among those of the other rows; levels are grey.

    Parameters
    ----------
    values, std : (n, p) arrays
        Shapley values and their posterior standard deviations.
    names : p names
    columns : p ``xgpc.data.table.Column``
        Values of the features.
    label : str
        The class for which positive values speak.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from xgpc import GPClassifier
    >>> from xgpc.plotting import ShapleyDisplay
    >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    >>> model = GPClassifier(n_inducing=32, random_state=0).fit(X, y)
    >>> display = ShapleyDisplay.from_estimator(model, X[:1])
    """

    values: np.ndarray
    std: np.ndarray
    _: KW_ONLY
    names: Sequence[str]
    columns: Sequence[Column]
    label: str

    @classmethod
    def from_estimator(
        cls,
        model: BaseEstimator,
        X: MatrixLike,
        *,
        baseline: MatrixLike | ArrayLike | None = None,
        label: object = None,
        n_features: int = 10,
        ax: Axes | None = None,
    ) -> Self:
        """Explain and draw.

        Parameters
        ----------
        model, X, baseline : as for ``xgpc.explain.shapley_values``
        label : one of ``classes_``, default=None
            The class for which positive values speak; None is the second of two classes, the highest of ordered ones,
            and otherwise the most probable class of a single row. ValueError if several rows and several latent
            functions leave it open, and for a class between others in an order, which lies in no direction.
        n_features : int, default=10
            Largest number of features.
        ax : matplotlib.axes.Axes, default=None
            Axes to draw on; None makes a new figure.
        """
        shapley = shapley_values(model, X, baseline)
        if not len(shapley.values):
            raise ValueError("X has no rows to explain: give one or more.")
        values, std, has_one_function = shapley.values, shapley.std, shapley.values.ndim == 2
        classes = getattr(model, "ordered_classes_", model.classes_).tolist()
        # A single latent function leads from the first class to the last.
        allowed = [classes[0], classes[-1]] if has_one_function else classes
        if label is None:
            if not has_one_function and len(values) > 1:
                raise ValueError(f"Several rows have values for each class: give label, one of {classes}.")
            label = classes[-1] if has_one_function else model.predict(X)[0]
        if label not in allowed:
            raise ValueError(f"label must be one of {allowed} or None; got {shown(label)}.")
        if not has_one_function:
            values, std = (part[:, :, classes.index(label)] for part in (values, std))
        elif label == classes[0]:
            values = -values
        display = cls(values, std, names=feature_names(model, X), columns=Table.of(X).columns(), label=str(label))
        return display.plot(n_features=n_features, ax=ax)

    def plot(self, *, n_features: int = 10, ax: Axes | None = None) -> Self:
        """Draw on the given axes, or on new ones."""
        integer(1).check("n_features", n_features)
        order = np.argsort(-np.mean(np.abs(self.values), axis=0), kind="stable")[:n_features][::-1]
        is_part, is_single = len(order) < len(self.names), len(self.values) == 1
        labels = [f"{self.names[j]} = {_shown(self.columns[j])}" if is_single else self.names[j] for j in order]
        title = f"The {len(order)} features of {len(self.names)} with the largest Shapley values" if is_part else ""
        ax = self._on_rows(ax, labels, f"Change of the latent mean towards {self.label}", title)
        if is_single:
            values, half = self.values[0, order], 1.96 * self.std[0, order]
            colours = [COLOURS[1] if value > 0.0 else COLOURS[0] for value in values]
            ax.barh(range(len(order)), values, xerr=half, color=colours, alpha=0.75, capsize=3.0, ecolor="0.25")
        else:
            self._draw_rows(ax, order)
        ax.axvline(0.0, color="0.35", linewidth=1.0)
        return self

    def _draw_rows(self, ax: Axes, order: np.ndarray) -> None:
        # Points at random heights within the feature's row hide each other less.
        heights, points = np.random.default_rng(0).uniform(-0.35, 0.35, len(self.values)), None
        for place, j in enumerate(order):
            value, y, column = self.values[:, j], place + heights, self.columns[j]
            if column.levels is not None:
                ax.scatter(value, y, s=10.0, color="0.5", linewidths=0.0)
                continue
            # Missing numbers have the colour for bad values.
            ranks = rankdata(column.values, nan_policy="omit") / len(value)
            points = ax.scatter(value, y, 10.0, ranks, vmin=0.0, vmax=1.0, linewidths=0.0, plotnonfinite=True)
        if points is not None:
            bar = ax.figure.colorbar(points, ax=ax, label="Value of the feature", ticks=[0.0, 1.0])
            bar.set_ticklabels(["low", "high"])


def _shown(column: Column) -> str:
    """The only value of a column as text."""
    value = column.values[0]
    if column.levels is not None:
        return str(column.levels[value]) if value >= 0 else "missing"
    return "missing" if np.isnan(value) else f"{value:.4g}"
