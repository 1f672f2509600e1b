"""Pictures of fitted classifiers. Needs matplotlib, imported when a function is called; pyplot is not touched."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binomtest

from .metrics import check_outcomes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Blue and orange of Okabe and Ito: told apart with any colour vision, and by their lightness in print.
COLOURS = ("#0072B2", "#D55E00")
# The same, lighter, behind the points; translucent colours would show seams between the bands.
SHADES = ("#7AB3D5", "white", "#E9A87A")
MARKERS = ("o", "^")
N_BINS = 10
# Points along each axis of the picture at which probabilities are evaluated.
GRID = 120
# Contours that are drawn as lines; the middle one separates the predictions.
LINES = {0.1: ":", 0.5: "-", 0.9: ":"}


def _new_axes() -> Axes:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("Plotting needs matplotlib: pip install 'xgpc[plot]'") from None
    return Figure(figsize=(6.0, 5.0), layout="constrained").subplots()


def reliability_diagram(y_true: ArrayLike, probability: ArrayLike, ax: Axes | None = None) -> Axes:
    """Observed frequency of a class against its predicted probability.

    Rows are put into ten bins of equal width of the probability. Each point is a bin: mean probability and observed
    frequency, with its 95 % interval (Clopper and Pearson). A calibrated classifier's points are near the diagonal.
    Bars at the top count the rows of the bins.

    Parameters
    ----------
    y_true : (n,) array of 0 and 1, or of booleans
    probability : (n,) array
        Probability of the outcome 1.
    ax : matplotlib.axes.Axes, default=None
        Where to draw; None makes a new figure, which is then ``ax.figure``.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ImportError
        Without matplotlib.
    ValueError
        For other outcomes or probabilities, or arrays that do not match.
    """
    outcome, p = check_outcomes(y_true, probability)
    ax = _new_axes() if ax is None else ax
    bins = np.minimum((p * N_BINS).astype(int), N_BINS - 1)
    counts = np.bincount(bins, minlength=N_BINS)
    filled = np.flatnonzero(counts)
    positives = np.bincount(bins, outcome, minlength=N_BINS)[filled].astype(int)
    mean = np.bincount(bins, p, minlength=N_BINS)[filled] / counts[filled]
    frequency = positives / counts[filled]
    trials = zip(positives.tolist(), counts[filled].tolist(), strict=True)
    low, high = np.array([binomtest(k, n).proportion_ci() for k, n in trials]).T

    ax.plot([0.0, 1.0], [0.0, 1.0], color="0.35", linestyle="--", linewidth=1.0)
    place = dict[str, Any](ha="center", va="bottom", rotation_mode="anchor", transform_rotates_text=True)
    ax.text(0.5, 0.51, "perfectly calibrated", color="0.35", rotation=45.0, **place)
    # The interval contains the frequency but for rounding.
    error = np.maximum([frequency - low, high - frequency], 0.0)
    ax.errorbar(mean, frequency, error, fmt="o", color=COLOURS[0], ecolor=SHADES[0], capsize=3.0, linewidth=1.4)
    ticks = np.linspace(0.0, 1.0, 6)
    ax.set(xlabel="Predicted probability", ylabel="Observed frequency, 95 % interval")
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.03, 1.25), xticks=ticks, yticks=ticks)
    _count_rows(ax.inset_axes((0.0, 0.85, 1.0, 0.15), sharex=ax), counts)
    return ax


def _count_rows(ax: Axes, counts: np.ndarray) -> None:
    """Bars of the numbers of rows in each bin."""
    edges = np.linspace(0.0, 1.0, N_BINS + 1)
    bars = ax.bar(edges[:-1], counts, width=1.0 / N_BINS, align="edge", color="0.75", edgecolor="white")
    ax.bar_label(bars, [str(n) if n else "" for n in counts], color="0.25", fontsize="small", padding=1)
    ax.set(ylabel="Rows", ylim=(0.0, 1.4 * np.max(counts)), yticks=[])
    ax.tick_params(labelbottom=False, bottom=False)
    ax.patch.set_visible(False)


def decision_contours(
    model: Any, X: Any, y: ArrayLike, features: tuple[int, int] = (0, 1), ax: Axes | None = None
) -> Axes:
    """Probability of the second class over two features, with the data and the inducing points.

    Parameters
    ----------
    model : GPClassifier, or another fitted scikit-learn classifier of two classes
        Inducing points are drawn if it has ``inducing_points_``.
    X : (n, d) array or data frame
    y : (n,) array of labels
    features : pair of int, default=(0, 1)
        Columns of X along the horizontal and the vertical axis. The others, if any, are held at their medians; data and
        inducing points are then projections.
    ax : matplotlib.axes.Axes, default=None
        Where to draw; None makes a new figure, which is then ``ax.figure``.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ImportError
        Without matplotlib.
    ValueError
        If the model has more than two classes, or ``features`` are not two different columns of X.
    """
    names = getattr(X, "columns", None)
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y)
    i, j = features
    if i == j or not (0 <= i < X.shape[1] and 0 <= j < X.shape[1]):
        raise ValueError(f"features must be two different columns among 0 to {X.shape[1] - 1}; got {features!r}.")
    classes = model.classes_
    if len(classes) != 2:
        raise ValueError(f"decision_contours draws two classes; the model has {len(classes)}.")
    ax = _new_axes() if ax is None else ax
    from matplotlib.colors import LinearSegmentedColormap

    if names is None:
        names = getattr(model, "feature_names_in_", None)
    x_axis, y_axis, probability = _probability_grid(model, X, i, j)
    colours = LinearSegmentedColormap.from_list("classes", SHADES)
    shades = ax.contourf(x_axis, y_axis, probability, levels=np.linspace(0.0, 1.0, 21), cmap=colours)
    crossed = [level for level in LINES if np.min(probability) < level < np.max(probability)]
    if crossed:
        styles = [LINES[level] for level in crossed]
        lines = ax.contour(x_axis, y_axis, probability, levels=crossed, colors="0.2", linestyles=styles, linewidths=1.0)
        ax.clabel(lines, fmt="%.1f", fontsize="small")
    _draw_points(ax, model, X, y, (i, j))
    ax.figure.colorbar(shades, ax=ax, label=f"Probability of {classes[1]!s}", ticks=np.linspace(0.0, 1.0, 6))
    x_name, y_name = (f"Feature {k}" if names is None else str(names[k]) for k in (i, j))
    ax.set(xlabel=x_name, ylabel=y_name, xlim=(x_axis[0], x_axis[-1]), ylim=(y_axis[0], y_axis[-1]))
    ax.legend(loc="best")
    return ax


def _probability_grid(model: Any, X: np.ndarray, i: int, j: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Axes of features i and j, and the probability of the second class over them."""
    low, high = np.min(X, axis=0), np.max(X, axis=0)
    margin = np.where(high > low, 0.04 * (high - low), 0.5)
    x_axis, y_axis = (np.linspace(low[k] - margin[k], high[k] + margin[k], GRID) for k in (i, j))
    points = np.tile(np.median(X, axis=0), (GRID * GRID, 1))
    points[:, i], points[:, j] = np.tile(x_axis, GRID), np.repeat(y_axis, GRID)
    with warnings.catch_warnings():
        # The columns of the grid are those of X, in their order; that they have no names is no mistake.
        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
        return x_axis, y_axis, model.predict_proba(points)[:, 1].reshape(GRID, GRID)


def _draw_points(ax: Axes, model: Any, X: np.ndarray, y: np.ndarray, features: tuple[int, int]) -> None:
    """The rows, by their classes, and the inducing points, if the model has them."""
    i, j = features
    for label, colour, marker in zip(model.classes_, COLOURS, MARKERS, strict=True):
        rows, edge = X[y == label], dict[str, Any](edgecolor="white", linewidth=0.5)
        ax.scatter(rows[:, i], rows[:, j], s=22, color=colour, marker=marker, label=str(label), **edge)
    inducing = getattr(model, "inducing_points_", None)
    if inducing is not None:
        x, y = inducing[:, i], inducing[:, j]
        ax.scatter(x, y, s=70, color="white", marker="x", linewidth=3.4)
        ax.scatter(x, y, s=52, color="black", marker="x", linewidth=1.6, label="Inducing points")
