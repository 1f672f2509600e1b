"""Calibration: observed frequencies against predicted probabilities, and errors among the most certain predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binomtest
from sklearn.base import BaseEstimator

from ..metrics import check_codes, check_outcomes
from ..names import MatrixLike
from .base import COLOURS, MARKERS, Display, class_codes, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

N_BINS = 10
# Shares of the rows at which a coverage curve is drawn.
SHARES = np.linspace(0.02, 1.0, 50)


class Bins(NamedTuple):
    """Mean probability, observed frequency, 95 % interval and number of rows of each bin."""

    mean: np.ndarray
    frequency: np.ndarray
    low: np.ndarray
    high: np.ndarray
    rows: np.ndarray

    @classmethod
    def of(cls, numbers: np.ndarray, outcome: np.ndarray, p: np.ndarray, method: str) -> Self:
        """Bins that have rows, for the bin numbers, outcomes and probabilities (n,) of the rows."""
        counts = np.bincount(numbers)
        filled = np.flatnonzero(counts)
        positives, rows = np.bincount(numbers, outcome)[filled].astype(int), counts[filled]
        trials = zip(positives.tolist(), rows.tolist(), strict=True)
        low, high = np.array([binomtest(k, n).proportion_ci(method=method) for k, n in trials]).T
        return cls(np.bincount(numbers, p)[filled] / rows, positives / rows, low, high, rows)

    def draw(self, ax: Axes, **style: Any) -> None:
        """Draw the frequencies and their intervals."""
        # Rounding may put the frequency outside its interval.
        error = np.maximum([self.frequency - self.low, self.high - self.frequency], 0.0)
        ax.errorbar(self.mean, self.frequency, error, capsize=3.0, **style)


def _draw_diagonal(ax: Axes, positive: str | None = None) -> None:
    """Draw the line of perfect calibration, and label the axes."""
    ax.plot([0.0, 1.0], [0.0, 1.0], color="0.35", linestyle="--", linewidth=1.0)
    turned = ax.text(0.7, 0.68, "perfectly calibrated", color="0.35", rotation=45.0, rotation_mode="anchor")
    turned.set(ha="center", va="top", transform_rotates_text=True)
    of = "" if positive is None else f" of {positive}"
    ax.set(xlabel=f"Predicted probability{of}", ylabel="Observed frequency, 95 % interval", xlim=(-0.02, 1.02))


def _by_name(given: Any, name: str = "") -> dict[str, Any]:
    """Several models or their probabilities by name, or a single one with the given name."""
    return {str(key): one for key, one in given.items()} if isinstance(given, Mapping) else {name: given}


@dataclass(eq=False)
class ReliabilityDisplay(Display):
    """Observed frequency of a class against its predicted probability, for one or several models.

    The rows are sorted by probability into bins with equal numbers of rows. Each point shows the mean probability of a
    bin, and the observed frequency with its 95 % interval (Wilson 1927, JASA 22, 209). The points of a calibrated model
    are near the diagonal.

    Parameters
    ----------
    bins : dict of name to ``Bins``
    positive : str or None
        Name of the class for the axis label.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from xgpc import GPClassifier
    >>> from xgpc.plotting import ReliabilityDisplay
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = GPClassifier(n_inducing=20, random_state=0).fit(X[::2], y[::2])
    >>> display = ReliabilityDisplay.from_estimator(model, X[1::2], y[1::2])
    """

    bins: dict[str, Bins]
    positive: str | None = None

    @classmethod
    def from_estimator(
        cls,
        model: BaseEstimator,
        X: MatrixLike,
        y: ArrayLike,
        *,
        label: object = None,
        n_bins: int = N_BINS,
        ax: Axes | None = None,
    ) -> Self:
        """Predict and draw.

        Parameters
        ----------
        model : fitted classifier, or dict of name to fitted classifier
        X : (n, d) array or data frame
            Rows that the models were not fitted to.
        y : (n,) array of labels
        label : one of the labels, default=None
            The class whose probability is shown. None means the last of two classes. With more classes, None means the
            predicted class of each row: its probability against the share of correct predictions.
        n_bins : int, default=10
        ax : matplotlib.axes.Axes, default=None
            Axes to draw on; None makes a new figure.
        """
        bins, positive = {}, None
        for name, one in _by_name(model, type(model).__name__).items():
            codes, probability, classes = class_codes(one, y), one.predict_proba(X), list(one.classes_)
            if label is not None and label not in classes:
                raise ValueError(f"label must be one of {classes} or None; got {label!r}.")
            if label is None and len(classes) > 2:
                positive = "the predicted class"
                outcome, p = codes == np.argmax(probability, axis=1), np.minimum(np.max(probability, axis=1), 1.0)
            else:
                c = len(classes) - 1 if label is None else classes.index(label)
                outcome, p, positive = codes == c, probability[:, c], str(classes[c])
            bins[name] = _equal_mass_bins(outcome, p, n_bins)
        return cls(bins, positive).plot(ax=ax)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        probability: ArrayLike | Mapping[str, ArrayLike],
        *,
        pos_label: object = None,
        n_bins: int = N_BINS,
        ax: Axes | None = None,
    ) -> Self:
        """Draw probabilities, (n,) or a dict of name to (n,), of the outcome ``pos_label``.

        The outcomes y_true (n,) are two labels; with None 0 and 1, or booleans.
        """
        each = _by_name(probability).items()
        bins = {name: _equal_mass_bins(y_true, p, n_bins, pos_label) for name, p in each}
        return cls(bins, None if pos_label is None else str(pos_label)).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw on the given axes, or on new ones."""
        ax = self._on(ax)
        _draw_diagonal(ax, self.positive)
        for (name, one), colour, marker in zip(self.bins.items(), cycle(COLOURS), cycle(MARKERS), strict=False):
            style = {"linewidth": 1.0, "markersize": 5.0, "elinewidth": 1.0}
            one.draw(ax, fmt=f"{marker}-", color=colour, label=name or None, **style)
        ax.set(ylim=(-0.02, 1.02), aspect="equal")
        if any(self.bins):
            ax.legend(loc="upper left")
        return self


def _equal_mass_bins(y_true: ArrayLike, probability: ArrayLike, n_bins: int, pos_label: object = None) -> Bins:
    """Bins with equal numbers of rows, in the order of the probability; rows of equal probability share a bin."""
    outcome, p = check_outcomes(y_true, probability, pos_label)
    if n_bins < 1:
        raise ValueError(f"n_bins must be a positive integer; got {n_bins!r}.")
    edges = np.unique(np.quantile(p, np.linspace(0.0, 1.0, n_bins + 1)[1:-1], method="inverted_cdf"))
    return Bins.of(np.searchsorted(edges, p, side="left"), outcome, p, "wilson")


def reliability_diagram(
    y_true: ArrayLike, probability: ArrayLike, ax: Axes | None = None, pos_label: object = None
) -> Axes:
    """Observed frequency of a class against its predicted probability, in ten bins of equal width.

    Each point shows the mean probability of a bin, and the observed frequency with its 95 % interval (Clopper and
    Pearson). Bars at the top count the rows of the bins. ``ReliabilityDisplay`` has bins with equal numbers of rows,
    and compares several models.

    Parameters
    ----------
    y_true, probability : (n,) arrays
        Outcomes, 0 and 1 or booleans or two labels, and probabilities of the outcome 1 or ``pos_label``; ValueError for
        others.
    ax : matplotlib.axes.Axes, default=None
        Axes to draw on; None makes a new figure, ``ax.figure``.
    pos_label : label, default=None
        The label with these probabilities, such as ``model.classes_[1]``; None is 1.
    """
    outcome, p = check_outcomes(y_true, probability, pos_label)
    ax = new_axes() if ax is None else ax
    numbers = np.minimum((p * N_BINS).astype(int), N_BINS - 1)
    _draw_diagonal(ax)
    Bins.of(numbers, outcome, p, "exact").draw(ax, fmt="o", color=COLOURS[0], ecolor="#7AB3D5", linewidth=1.4)
    ticks = np.linspace(0.0, 1.0, 6)
    ax.set(ylim=(-0.03, 1.25), xticks=ticks, yticks=ticks)
    counts = np.bincount(numbers, minlength=N_BINS)
    top = ax.inset_axes((0.0, 0.85, 1.0, 0.15), sharex=ax)
    left = np.arange(N_BINS) / N_BINS
    bars = top.bar(left, counts, width=1.0 / N_BINS, align="edge", color="0.75", edgecolor="white")
    top.bar_label(bars, [str(n) if n else "" for n in counts], color="0.25", fontsize="small", padding=1)
    top.set(ylabel="Rows", ylim=(0.0, 1.4 * np.max(counts)), yticks=[])
    top.tick_params(labelbottom=False, bottom=False)
    top.patch.set_visible(False)
    return ax


class Coverage(NamedTuple):
    """Observed and expected error (r,) among the most certain rows, for each share of the rows."""

    error: np.ndarray
    expected: np.ndarray

    @classmethod
    def of(cls, y_true: ArrayLike, probability: ArrayLike, classes: ArrayLike | None = None) -> Self:
        code, p = check_codes(y_true, probability, classes)
        confidence = np.max(p, axis=1)
        order = np.argsort(-confidence, kind="stable")
        counts = np.arange(1, len(p) + 1)
        wrong = np.cumsum((np.argmax(p, axis=1) != code)[order]) / counts
        expected = np.cumsum(1.0 - confidence[order]) / counts
        last = np.maximum(np.ceil(SHARES * len(p)).astype(int), 1) - 1
        return cls(wrong[last], expected[last])


@dataclass(eq=False)
class CoverageDisplay(Display):
    """Error against coverage: how often predictions are wrong if a model predicts its most certain rows only.

    The rows are sorted by the probability of the predicted class. The solid line is the error among the first rows, and
    the dashed line the error that the probabilities predict. The lines of a calibrated model are close.

    Parameters
    ----------
    share : (r,) array
        Shares of the rows.
    coverage : dict of name to ``Coverage``
    """

    share: np.ndarray
    coverage: dict[str, Coverage]

    @classmethod
    def from_estimator(cls, model: BaseEstimator, X: MatrixLike, y: ArrayLike, *, ax: Axes | None = None) -> Self:
        """Predict and draw; the arguments are those of ``ReliabilityDisplay.from_estimator``."""
        models = _by_name(model, type(model).__name__)
        found = {name: Coverage.of(class_codes(one, y), one.predict_proba(X)) for name, one in models.items()}
        return cls(SHARES, found).plot(ax=ax)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        probability: ArrayLike | Mapping[str, ArrayLike],
        *,
        classes: ArrayLike | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw probabilities (n, C), or a dict of name to (n, C), for y_true (n,).

        These are labels of ``classes``, which are ``model.classes_``; with None 0 to C - 1.
        """
        found = {name: Coverage.of(y_true, p, classes) for name, p in _by_name(probability).items()}
        return cls(SHARES, found).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None, line_kw: dict[str, Any] | None = None) -> Self:
        """Draw on the given axes, or on new ones; ``line_kw`` goes to ``Axes.plot``."""
        ax = self._on(ax)
        for (name, one), colour in zip(self.coverage.items(), cycle(COLOURS), strict=False):
            ax.plot(self.share, one.error, **{"color": colour, "label": name or "error", **(line_kw or {})})
            dashed = {"color": colour, "linestyle": "--", "linewidth": 1.0}
            ax.plot(self.share, one.expected, **{**dashed, **(line_kw or {})})
        ax.plot([], [], color="0.35", linestyle="--", linewidth=1.0, label="expected")
        ax.set(xlabel="Share of the rows predicted, the most certain first", ylabel="Error among them")
        ax.set(xlim=(0.0, 1.0))
        ax.set_ylim(bottom=0.0)
        ax.grid(alpha=0.3)
        ax.legend(loc="upper left")
        return self
