"""Parameters of likelihoods as free coordinates, in which an optimizer learns them together with the kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .ordinal import LEAST_GAP, apart

Limits = list[tuple[float | None, float | None]]

# Ranges of the logarithms of the distance of two cut points, and of a rate over the share of labels that is neither
# guess nor lapse; both ends are far from what data can tell.
LOG_GAPS = (float(np.log(LEAST_GAP)), 10.0)
LOG_RATES = (float(np.log(1e-4)), float(np.log(1e2)))


@dataclass(frozen=True)
class CutPoints:
    """The mean of ``count`` cut points, and the logarithms of their distances.

    With the classes in reverse order the same steps lead to the same fit.
    """

    count: int

    @property
    def limits(self) -> Limits:
        return [(None, None)] + [LOG_GAPS] * (self.count - 1)

    def pack(self, cuts: np.ndarray) -> np.ndarray:
        return np.append(np.mean(cuts), np.log(np.diff(cuts)))

    def unpack(self, vector: np.ndarray, cuts: np.ndarray) -> np.ndarray:
        """Cut points with these coordinates."""
        from_first = apart(0.0, np.exp(vector[1:]))
        return from_first + (vector[0] - np.mean(from_first))

    def gradient(self, cuts: np.ndarray, by_cuts: np.ndarray) -> np.ndarray:
        """The gradient from that by the cut points: those below a gap move down, and those above it move up."""
        below, n_below = np.cumsum(by_cuts), np.arange(1, self.count)
        return np.append(below[-1], np.diff(cuts) * (n_below / self.count * below[-1] - below[:-1]))


@dataclass(frozen=True)
class Rates:
    """log(rate / (1 - guess - lapse)) of the learned ones of guess and lapse rate; ``is_learned`` (2,) bool."""

    is_learned: np.ndarray

    @property
    def limits(self) -> Limits:
        return [LOG_RATES] * int(np.sum(self.is_learned))

    def pack(self, rates: np.ndarray) -> np.ndarray:
        return np.asarray(np.log(rates[self.is_learned] / (1.0 - np.sum(rates))))

    def unpack(self, vector: np.ndarray, rates: np.ndarray) -> np.ndarray:
        """Rates with these coordinates; those that are not learned are as in ``rates``."""
        odds, value = np.exp(vector), rates.copy()
        value[self.is_learned] = self._free(rates) * odds / (1.0 + np.sum(odds))
        return value

    def gradient(self, rates: np.ndarray, by_rates: np.ndarray) -> np.ndarray:
        """The gradient from that by the rates."""
        learned, slopes = rates[self.is_learned], by_rates[self.is_learned]
        return learned * (slopes - learned @ slopes / self._free(rates))

    def _free(self, rates: np.ndarray) -> float:
        return 1.0 - float(np.sum(rates[~self.is_learned]))
