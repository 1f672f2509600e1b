"""Calibration: observed frequencies against predicted probabilities, and errors among the most certain predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.calibration import CalibrationDisplay

from ..metrics import Bins, check_codes
from ..names import MatrixLike, shown
from .base import COLOURS, Display, class_codes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Probabilities of one model, or of several by name.
Probabilities = ArrayLike | Mapping[str, ArrayLike]
# Shares of the rows at which a coverage curve is drawn.
SHARES = np.linspace(0.02, 1.0, 50)


def _by_name(several: MatrixLike, name: str = "") -> dict[str, MatrixLike]:
    """Several models or their probabilities by name, or a single one with the given name."""
    named = several if isinstance(several, Mapping) else {name: several}
    if not named:
        raise ValueError("A picture needs one model or more, or their probabilities; got an empty dict.")
    return {str(key): value for key, value in named.items()}


@dataclass(eq=False)
class ReliabilityDisplay(Display):
    """Observed frequency of a class against its predicted probability, for one or several models.

    The rows are sorted by probability into bins with equal numbers of rows. Each point shows the mean probability of a
    bin, and the observed frequency with its 95 % interval (Wilson 1927, JASA 22, 209). The points of a calibrated model
    are near the diagonal. The lines are those of ``sklearn.calibration.CalibrationDisplay``, which has no intervals.

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
        n_bins: int = 10,
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
        for name, fitted in _by_name(model, type(model).__name__).items():
            codes, probability = class_codes(fitted, y), fitted.predict_proba(X)
            classes = np.asarray(fitted.classes_).tolist()
            if label is not None and label not in classes:
                raise ValueError(f"label must be one of {classes} or None; got {shown(label)}.")
            if label is None and len(classes) > 2:
                positive = "the predicted class"
                outcome, p = codes == np.argmax(probability, axis=1), np.minimum(np.max(probability, axis=1), 1.0)
            else:
                c = len(classes) - 1 if label is None else classes.index(label)
                outcome, p, positive = codes == c, probability[:, c], str(classes[c])
            bins[name] = Bins.of(outcome, p, n_bins)
        return cls(bins, positive).plot(ax=ax)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        probability: Probabilities,
        *,
        pos_label: object = None,
        n_bins: int = 10,
        ax: Axes | None = None,
    ) -> Self:
        """Draw probabilities, (n,) or a dict of name to (n,), of the outcome ``pos_label``.

        The outcomes y_true (n,) are two labels; with None 0 and 1, or booleans.
        """
        bins = {name: Bins.of(y_true, p, n_bins, pos_label) for name, p in _by_name(probability).items()}
        return cls(bins, None if pos_label is None else str(pos_label)).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw on the given axes, or on new ones."""
        ax = self._on(ax)
        for (name, bins), colour in zip(self.bins.items(), cycle(COLOURS), strict=False):
            line = CalibrationDisplay(bins.frequency, bins.mean, None, estimator_name=name, pos_label=self.positive)
            line.plot(ax=ax, color=colour, markersize=4.0)
            # Rounding may put the frequency outside its interval.
            error = np.maximum([bins.frequency - bins.low, bins.high - bins.frequency], 0.0)
            ax.errorbar(bins.mean, bins.frequency, error, fmt="none", ecolor=colour, elinewidth=1.0, capsize=3.0)
        return self


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
        curves = {name: Coverage.of(class_codes(fitted, y), fitted.predict_proba(X)) for name, fitted in models.items()}
        return cls(SHARES, curves).plot(ax=ax)

    @classmethod
    def from_predictions(
        cls, y_true: ArrayLike, probability: Probabilities, *, classes: ArrayLike | None = None, ax: Axes | None = None
    ) -> Self:
        """Draw probabilities (n, C), or a dict of name to (n, C), for y_true (n,).

        These are labels of ``classes``, which are ``model.classes_``; with None 0 to C - 1.
        """
        curves = {name: Coverage.of(y_true, p, classes) for name, p in _by_name(probability).items()}
        return cls(SHARES, curves).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None, line_kw: dict[str, Any] | None = None) -> Self:
        """Draw on the given axes, or on new ones; ``line_kw`` goes to ``Axes.plot``."""
        ax = self._on(ax)
        for (name, curve), colour in zip(self.coverage.items(), cycle(COLOURS), strict=False):
            ax.plot(self.share, curve.error, **{"color": colour, "label": name or "error", **(line_kw or {})})
            dashed = {"color": colour, "linestyle": "--", "linewidth": 1.0}
            ax.plot(self.share, curve.expected, **{**dashed, **(line_kw or {})})
        ax.plot([], [], color="0.35", linestyle="--", linewidth=1.0, label="expected")
        ax.set(xlabel="Share of the rows predicted, the most certain first", ylabel="Error among them")
        ax.set(xlim=(0.0, 1.0), ylim=(0.0, None))
        ax.grid(alpha=0.3)
        ax.legend(loc="upper left")
        return self
