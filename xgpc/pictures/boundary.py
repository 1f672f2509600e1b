"""Class probabilities over two features, with the data and the inducing points."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import cycle
from numbers import Integral
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_consistent_length

from ..names import MatrixLike
from ..ranges import as_csr
from .base import COLOURS, MARKERS, Display, class_codes, feature_names, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Probabilities are evaluated at this many points along each axis.
GRID = 120
# Lines in the picture of two classes; the middle one separates the predictions.
LINES = {0.1: ":", 0.5: "-", 0.9: ":"}
# Lighter blue and orange as a background; translucent colours would show seams between the bands.
SHADES = ("#7AB3D5", "white", "#E9A87A")
# Strength of a class's colour in the background where the class is certain.
STRENGTH = 0.55


def decision_contours(
    model: BaseEstimator, X: MatrixLike, y: ArrayLike, features: Sequence[int | str] = (0, 1), ax: Axes | None = None
) -> Axes:
    """The axes of ``DecisionBoundaryDisplay.from_estimator``, which explains the arguments."""
    return DecisionBoundaryDisplay.from_estimator(model, X, y, features=features, ax=ax).ax_


def _plane(model: BaseEstimator, features: Sequence[int | str], d: int) -> list[int]:
    """The positions of two features among d, which are given by position or name."""
    known = list(getattr(model, "feature_names_in_", []))
    plane = [known.index(one) if isinstance(one, str) and one in known else one for one in features]
    found = [int(one) for one in plane if isinstance(one, Integral) and 0 <= one < d]
    if len(plane) != 2 or len(set(found)) != 2:
        raise ValueError(
            f"features must be two different columns among 0 to {d - 1}, by position or name; got {features!r}."
        )
    return found


@dataclass(eq=False)
class DecisionBoundaryDisplay(Display):
    """Class probabilities over two features, with the data and the inducing points.

    For two classes, bands show the probability of the second class, with lines at .1, .5 and .9. For more classes, the
    colour is that of the most probable class, paler where the class is less probable, and lines separate the
    predictions.

    Parameters
    ----------
    x, y, probability : (r,), (s,) and (s, r, C) arrays
        Values of the two features, and the class probabilities there.
    classes, names : C labels, and the names of the two features
    points, codes : (n, 2) and (n,) arrays
        The two features of the rows, and the positions in ``classes`` of their labels.
    inducing_points : (m, 2) array or None

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from xgpc import GPClassifier
    >>> from xgpc.plotting import DecisionBoundaryDisplay
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> model = GPClassifier(random_state=0).fit(X, y)
    >>> display = DecisionBoundaryDisplay.from_estimator(model, X, y)
    """

    x: np.ndarray
    y: np.ndarray
    probability: np.ndarray
    _: KW_ONLY
    classes: Sequence[object] | np.ndarray
    names: tuple[str, str]
    points: np.ndarray
    codes: np.ndarray
    inducing_points: np.ndarray | None = None

    @classmethod
    def from_estimator(
        cls,
        model: BaseEstimator,
        X: MatrixLike,
        y: ArrayLike,
        *,
        features: Sequence[int | str] = (0, 1),
        ax: Axes | None = None,
    ) -> Self:
        """Evaluate and draw.

        Parameters
        ----------
        model : GPClassifier, or another fitted scikit-learn classifier with ``predict_proba``
            Inducing points are drawn if it has ``inducing_points_``.
        X : (n, d) array, data frame or sparse matrix
        y : (n,) array of labels
        features : pair of int or str, default=(0, 1)
            Columns of X along the horizontal and the vertical axis. Other features are held at their medians, and the
            data and inducing points are projected. Values beyond the limits in ``encoding_`` are replaced.
        ax : matplotlib.axes.Axes, default=None
            Axes to draw on; None makes a new figure.

        Raises
        ------
        ValueError
            If ``features`` are not two different columns of X, y has a label that the model does not know, or the model
            was fitted to a table with levels or missing numbers.
        """
        codes = class_codes(model, y)
        encoding = getattr(model, "encoding_", None)
        if encoding is not None and encoding.columns:
            raise ValueError(
                "The model was fitted to a table with levels or missing numbers, which has no plane to draw: fit a "
                "model to two columns of numbers, or draw importances."
            )
        rows = np.asarray(as_csr(X).toarray() if issparse(X) else X, dtype=np.float64)
        rows = rows if encoding is None else encoding.within_limits(rows)
        check_consistent_length(rows, codes)
        d = rows.shape[1]
        plane = _plane(model, features, d)
        # Without matplotlib this is an error before the probabilities are computed.
        ax = new_axes() if ax is None else ax
        points = rows[:, plane]
        low, high = np.min(points, axis=0), np.max(points, axis=0)
        margin = np.where(high > low, 0.04 * (high - low), 0.5)
        x_axis, y_axis = np.linspace(low - margin, high + margin, GRID, axis=1)
        grid = np.tile(np.median(rows, axis=0), (GRID * GRID, 1))
        grid[:, plane[0]], grid[:, plane[1]] = np.tile(x_axis, GRID), np.repeat(y_axis, GRID)
        with warnings.catch_warnings():
            # The grid has the columns of X without their names, on purpose.
            warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
            probability = model.predict_proba(grid).reshape(GRID, GRID, -1)
        names, inducing = feature_names(model, X, d), getattr(model, "inducing_points_", None)
        if inducing is not None:
            inducing = inducing.reshape(-1, d) if encoding is None else encoding.inverse(inducing.reshape(-1, d))
        display = cls(
            x_axis,
            y_axis,
            probability,
            classes=model.classes_,
            names=(names[plane[0]], names[plane[1]]),
            points=points,
            codes=codes,
            inducing_points=None if inducing is None else inducing[:, plane],
        )
        return display.plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw on the given axes, or on new ones."""
        ax = self._on(ax)
        if len(self.classes) == 2:
            self._draw_two(ax)
        else:
            self._draw_several(ax)
        for c, (label, colour, marker) in enumerate(zip(self.classes, cycle(COLOURS), cycle(MARKERS), strict=False)):
            x, y = self.points[self.codes == c].T
            ax.scatter(x, y, s=22, label=str(label), color=colour, marker=marker, edgecolor="white", linewidth=0.5)
        if self.inducing_points is not None:
            x, y = self.inducing_points.T
            ax.scatter(x, y, s=70, color="white", marker="x", linewidth=3.4)
            ax.scatter(x, y, s=52, color="black", marker="x", linewidth=1.6, label="Inducing points")
        ax.set(xlabel=self.names[0], ylabel=self.names[1])
        ax.set(xlim=(self.x[0], self.x[-1]), ylim=(self.y[0], self.y[-1]))
        ax.legend(loc="best")
        return self

    def _draw_two(self, ax: Axes) -> None:
        from matplotlib.colors import LinearSegmentedColormap

        second = self.probability[:, :, 1]
        colours = LinearSegmentedColormap.from_list("classes", SHADES)
        shades = ax.contourf(self.x, self.y, second, levels=np.linspace(0.0, 1.0, 21), cmap=colours)
        crossed = [level for level in LINES if np.min(second) < level < np.max(second)]
        if crossed:
            styles = [LINES[level] for level in crossed]
            lines = ax.contour(self.x, self.y, second, levels=crossed, colors="0.2", linestyles=styles, linewidths=1.0)
            ax.clabel(lines, fmt="%.1f", fontsize="small")
        label = f"Probability of {self.classes[1]!s}"
        ax.figure.colorbar(shades, ax=ax, label=label, ticks=np.linspace(0.0, 1.0, 6))

    def _draw_several(self, ax: Axes) -> None:
        from matplotlib.colors import to_rgba_array

        n_classes = self.probability.shape[2]
        colours = to_rgba_array(COLOURS)[np.arange(n_classes) % len(COLOURS), :3]
        best = np.argmax(self.probability, axis=2)
        # 0 where all classes are equally probable, 1 where one class is certain.
        sure = (np.max(self.probability, axis=2) * n_classes - 1.0) / (n_classes - 1.0)
        mix = STRENGTH * np.clip(sure, 0.0, 1.0)[:, :, None]
        # The grid's points are the centres of the pixels.
        half_x, half_y = (0.5 * (a[1] - a[0]) for a in (self.x, self.y))
        extent = self.x[0] - half_x, self.x[-1] + half_x, self.y[0] - half_y, self.y[-1] + half_y
        ax.imshow(1.0 - mix * (1.0 - colours[best]), extent=extent, origin="lower", aspect="auto", zorder=0)
        for c in range(n_classes):
            lead = self.probability[:, :, c] - np.max(np.delete(self.probability, c, axis=2), axis=2)
            if np.min(lead) < 0.0 < np.max(lead):
                ax.contour(self.x, self.y, lead, levels=[0.0], colors="0.2", linewidths=1.0)
