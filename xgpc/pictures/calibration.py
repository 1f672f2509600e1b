"""Whether probabilities are what they say: observed frequencies against them, and accuracy among the most certain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binomtest

from ..metrics import check_codes, check_outcomes
from .base import COLOURS, MARKERS, Display, class_codes, new_axes, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

N_BINS = 10
# Points of a coverage curve: shares of the rows.
SHARES = np.linspace(0.02, 1.0, 50)


class Bins(NamedTuple):
    """Of one model, for each bin: mean probability, observed frequency, its 95 % interval, and rows."""

    mean: np.ndarray
    frequency: np.ndarray
    low: np.ndarray
    high: np.ndarray
    rows: np.ndarray


def equal_mass_bins(y_true: ArrayLike, probability: ArrayLike, n_bins: int = N_BINS) -> Bins:
    """Rows in the order of their probability, in bins of as many rows each; those of equal probability stay together.

    Intervals are Wilson's (1927, JASA 22, 209).
    """
    outcome, p = check_outcomes(y_true, probability)
    if n_bins < 1:
        raise ValueError(f"n_bins must be a positive integer; got {n_bins!r}.")
    edges = np.unique(np.quantile(p, np.linspace(0.0, 1.0, n_bins + 1)[1:-1], method="inverted_cdf"))
    bins = np.searchsorted(edges, p, side="left")
    rows = np.bincount(bins)
    filled = np.flatnonzero(rows)
    positives, sums = np.bincount(bins, outcome)[filled].astype(int), np.bincount(bins, p)[filled]
    rows = rows[filled]
    trials = zip(positives.tolist(), rows.tolist(), strict=True)
    low, high = np.array([binomtest(k, n).proportion_ci(method="wilson") for k, n in trials]).T
    return Bins(sums / rows, positives / rows, low, high, rows)


class ReliabilityDisplay(Display):
    """Observed frequency of a class against its predicted probability, of one or several models.

    Rows are put into bins of as many rows each, in the order of the probability. Each point is a bin: mean probability,
    observed frequency and its 95 % interval (Wilson). A calibrated model's points are near the diagonal.

    Parameters
    ----------
    bins : dict of name to ``Bins``
    positive : str, what the probability is of, or None

    Attributes
    ----------
    ax_, figure_ : what was drawn on

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from xgpc import GPClassifier
    >>> from xgpc.plotting import ReliabilityDisplay
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = GPClassifier(n_inducing=20, random_state=0).fit(X[::2], y[::2])
    >>> display = ReliabilityDisplay.from_estimator(model, X[1::2], y[1::2])
    """

    def __init__(self, bins: Mapping[str, Bins], *, positive: str | None = None) -> None:
        self.bins, self.positive = dict(bins), positive

    @classmethod
    def from_estimator(
        cls, model: Any, X: Any, y: ArrayLike, *, label: Any = None, n_bins: int = N_BINS, ax: Axes | None = None
    ) -> Self:
        """Predict and draw.

        Parameters
        ----------
        model : a fitted classifier, or a dict of name to classifier
        X : (n, d) array or data frame, rows that the models were not fitted to
        y : (n,) array of labels
        label : one of the labels, default=None
            Whose probability is looked at; None: the last of ``classes_`` if there are two. Of more classes None is the
            predicted class of each row: its probability against how often it is right.
        n_bins : int, default=10
        ax : matplotlib.axes.Axes, default=None
            Where to draw; None makes a new figure.
        """
        models = model if isinstance(model, Mapping) else {type(model).__name__: model}
        predictions, positive = {}, None
        for name, one in models.items():
            codes, probability, classes = class_codes(one, y), one.predict_proba(X), list(one.classes_)
            if label is not None and label not in classes:
                raise ValueError(f"label must be one of {classes} or None; got {label!r}.")
            if label is None and len(classes) > 2:
                best = np.argmax(probability, axis=1)
                predictions[name] = codes == best, np.minimum(np.max(probability, axis=1), 1.0)
                positive = "the predicted class"
            else:
                c = len(classes) - 1 if label is None else classes.index(label)
                predictions[name], positive = (codes == c, probability[:, c]), str(classes[c])
        return cls._of(predictions, positive, n_bins, ax)

    @classmethod
    def from_predictions(
        cls, y_true: ArrayLike, probability: Any, *, n_bins: int = N_BINS, ax: Axes | None = None
    ) -> Self:
        """Draw predictions.

        Parameters
        ----------
        y_true : (n,) array of 0 and 1, or of booleans
        probability : (n,) array of the outcome 1, or a dict of name to such an array
        n_bins : int, default=10
        ax : matplotlib.axes.Axes, default=None
        """
        named = probability if isinstance(probability, Mapping) else {"": probability}
        return cls._of({name: (y_true, p) for name, p in named.items()}, None, n_bins, ax)

    @classmethod
    def _of(
        cls, predictions: Mapping[str, tuple[Any, Any]], positive: str | None, n_bins: int, ax: Axes | None
    ) -> Self:
        bins = {str(name): equal_mass_bins(y, p, n_bins) for name, (y, p) in predictions.items()}
        return cls(bins, positive=positive).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw, on new axes if none are given."""
        ax = self._on(ax)
        draw_diagonal(ax)
        for k, (name, bins) in enumerate(self.bins.items()):
            # The interval contains the frequency but for rounding.
            error = np.maximum([bins.frequency - bins.low, bins.high - bins.frequency], 0.0)
            colour = COLOURS[k % len(COLOURS)]
            style = dict[str, Any](color=colour, capsize=3.0, linewidth=1.0, markersize=5.0, elinewidth=1.0)
            ax.errorbar(
                bins.mean, bins.frequency, error, fmt=f"{MARKERS[k % len(MARKERS)]}-", label=name or None, **style
            )
        of = "" if self.positive is None else f" of {self.positive}"
        ax.set(xlabel=f"Predicted probability{of}", ylabel="Observed frequency, 95 % interval")
        ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        ax.set_aspect("equal")
        if any(self.bins):
            ax.legend(loc="upper left")
        return self


def draw_diagonal(ax: Axes) -> None:
    ax.plot([0.0, 1.0], [0.0, 1.0], color="0.35", linestyle="--", linewidth=1.0)
    place = dict[str, Any](ha="center", va="top", rotation_mode="anchor", transform_rotates_text=True)
    ax.text(0.7, 0.68, "perfectly calibrated", color="0.35", rotation=45.0, **place)


def reliability_diagram(y_true: ArrayLike, probability: ArrayLike, ax: Axes | None = None) -> Axes:
    """Observed frequency of a class against its predicted probability, in bins of equal width.

    Each point is one of ten bins of the probability: mean probability and observed frequency, with its 95 % interval
    (Clopper and Pearson). Bars at the top count the rows of the bins. ``ReliabilityDisplay`` has bins of as many rows
    each, and several models.

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
    ax = new_axes() if ax is None else ax
    bins = np.minimum((p * N_BINS).astype(int), N_BINS - 1)
    counts = np.bincount(bins, minlength=N_BINS)
    filled = np.flatnonzero(counts)
    positives = np.bincount(bins, outcome, minlength=N_BINS)[filled].astype(int)
    mean = np.bincount(bins, p, minlength=N_BINS)[filled] / counts[filled]
    frequency = positives / counts[filled]
    trials = zip(positives.tolist(), counts[filled].tolist(), strict=True)
    low, high = np.array([binomtest(k, n).proportion_ci() for k, n in trials]).T
    draw_diagonal(ax)
    # The interval contains the frequency but for rounding.
    error = np.maximum([frequency - low, high - frequency], 0.0)
    ax.errorbar(mean, frequency, error, fmt="o", color=COLOURS[0], ecolor="#7AB3D5", capsize=3.0, linewidth=1.4)
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


class Coverage(NamedTuple):
    """Of one model: error among the share of the rows that it is most certain of, and what it expects it to be."""

    error: np.ndarray
    expected: np.ndarray


class CoverageDisplay(Display):
    """Error against coverage: how often predictions are wrong if only the most certain ones are made.

    Rows are taken in the order of the predicted class's probability. The solid line is the error among the first of
    them, the dashed one what the probabilities say that it is: of a calibrated model they are alike.

    Parameters
    ----------
    share : (r,) array, shares of the rows
    coverage : dict of name to ``Coverage``, (r,) arrays each

    Attributes
    ----------
    ax_, figure_ : what was drawn on
    """

    def __init__(self, share: np.ndarray, coverage: Mapping[str, Coverage]) -> None:
        self.share, self.coverage = share, dict(coverage)

    @classmethod
    def from_estimator(cls, model: Any, X: Any, y: ArrayLike, *, ax: Axes | None = None) -> Self:
        """Predict and draw: of a fitted classifier, or a dict of name to classifier, and rows unknown to these."""
        models = model if isinstance(model, Mapping) else {type(model).__name__: model}
        return cls._of({name: (class_codes(one, y), one.predict_proba(X)) for name, one in models.items()}, ax)

    @classmethod
    def from_predictions(cls, y_true: ArrayLike, probability: Any, *, ax: Axes | None = None) -> Self:
        """Draw predictions.

        Parameters
        ----------
        y_true : (n,) array, positions of the classes, 0 to C - 1
        probability : (n, C) array, or a dict of name to such an array
        ax : matplotlib.axes.Axes, default=None
        """
        named = probability if isinstance(probability, Mapping) else {"": probability}
        return cls._of({name: (y_true, p) for name, p in named.items()}, ax)

    @classmethod
    def _of(cls, predictions: Mapping[str, tuple[Any, Any]], ax: Axes | None) -> Self:
        return cls(SHARES, {str(name): _coverage(y, p) for name, (y, p) in predictions.items()}).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None, line_kw: dict[str, Any] | None = None) -> Self:
        """Draw, on new axes if none are given; ``line_kw`` is for ``Axes.plot``."""
        ax = self._on(ax)
        for k, (name, one) in enumerate(self.coverage.items()):
            colour = COLOURS[k % len(COLOURS)]
            ax.plot(self.share, one.error, **styled(line_kw, color=colour, label=name or "error"))
            ax.plot(self.share, one.expected, **styled(line_kw, color=colour, linestyle="--", linewidth=1.0))
        ax.plot([], [], color="0.35", linestyle="--", linewidth=1.0, label="expected")
        ax.set(xlabel="Share of the rows predicted, the most certain first", ylabel="Error among them")
        ax.set(xlim=(0.0, 1.0))
        ax.set_ylim(bottom=0.0)
        ax.grid(alpha=0.3)
        ax.legend(loc="upper left")
        return self


def _coverage(y_true: Any, probability: Any) -> Coverage:
    code, p = check_codes(y_true, probability)
    confidence = np.max(p, axis=1)
    order = np.argsort(-confidence, kind="stable")
    counts = np.arange(1, len(p) + 1)
    wrong = np.cumsum((np.argmax(p, axis=1) != code)[order]) / counts
    expected = np.cumsum(1.0 - confidence[order]) / counts
    last = np.maximum(np.ceil(SHARES * len(p)).astype(int), 1) - 1
    return Coverage(wrong[last], expected[last])
