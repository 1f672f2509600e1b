"""Axes, colours, names and checks that all displays use."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from ..metrics import check_classifier, class_positions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

# The colours of Okabe and Ito are distinct for any colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F6A00", "#4D4D4D")


class Display:
    """A picture that can be drawn; once drawn, it has the axes ``ax_`` and the figure ``figure_``."""

    ax_: Axes
    figure_: Figure | SubFigure

    def _on(self, ax: Axes | None, height: float = 5.0) -> Axes:
        """The given axes, or those of a new figure of so many inches, which become ``ax_``."""
        if not (ax is None or hasattr(ax, "figure")):
            raise ValueError(f"ax must be None, or one matplotlib.axes.Axes; got a {type(ax).__name__}.")
        if ax is None:
            try:
                from matplotlib.figure import Figure
            except ImportError:
                raise ImportError("Plotting needs matplotlib: pip install 'xgpc[plot]'") from None
            ax = Figure(figsize=(6.0, height), layout="constrained").subplots()
        self.ax_, self.figure_ = ax, ax.figure
        return ax

    def _on_rows(self, ax: Axes | None, labels: Sequence[str], xlabel: str, title: str) -> Axes:
        """As ``_on``, for a row of bars or points beside each label, from below, long labels in several lines."""
        # Lines of this length leave half of the width to the axes.
        labels = [fill(label, 30) for label in labels]
        n_lines = 1 + max((label.count("\n") for label in labels), default=0)
        # In inches: title and label of the axes, a row of bars or points, and a line of the names.
        ax = self._on(ax, height=1.3 + (0.1 + 0.2 * n_lines) * len(labels))
        ax.set_yticks(range(len(labels)), labels)
        # In the middle of narrow axes they might not fit.
        ax.set_xlabel(xlabel, loc="right")
        ax.set_title(title, loc="right")
        ax.grid(axis="x", alpha=0.3)
        ax.set_axisbelow(True)
        return ax

    def _repr_png_(self) -> bytes | None:
        """The picture for notebooks, once it is drawn."""
        if not hasattr(self, "figure_"):
            return None
        file = BytesIO()
        self.figure_.figure.savefig(file, format="png")
        return file.getvalue()


def class_codes(model: BaseEstimator, y: ArrayLike) -> np.ndarray:
    """Positions (n,) of labels in ``classes_``; ValueError for unknown labels, or a model without probabilities."""
    check_classifier(model)
    return class_positions(y, model.classes_)
