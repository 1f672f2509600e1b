"""Draw a sample of rows that are read once, with the classes in proportion."""

from __future__ import annotations

import numpy as np

from ..rows.batches import Rows, joined

# Rows of a class are kept while they can still be among those of least keys that the final sample has. Their number on
# the way is hypergeometric: less than one of 1e14 draws exceeds its mean by so many standard deviations and the
# constant, which is for means near 0.
MARGIN_ERRORS, MARGIN = 8.0, 32
# Rows that cannot be drawn any more are dropped each time that the rows in memory have grown by this factor.
ROOM = 1.5


def seed_of_keys(random_state: np.random.RandomState) -> np.ndarray:
    """Return the seed (4,) of the rows' keys; ``random_state`` does not change, and gives other numbers."""
    state = np.random.RandomState()
    state.set_state(random_state.get_state())
    return state.randint(2**32, size=4, dtype=np.uint64)


def keys_from(seed: np.ndarray, start: int) -> np.random.Generator:
    """Return a generator of the keys of the rows from row ``start`` on; a key takes one step of the generator."""
    return np.random.Generator(np.random.PCG64(seed).advance(start))


def numbers_drawn(counts: np.ndarray, size: int, is_final: bool = True) -> np.ndarray:
    """Return the numbers (C,) of rows of each class, of which there are ``counts``, in a sample of some size.

    Largest remainders are rounded up. While rows still come, bounds on the numbers that the final sample takes.
    """
    means = min(1.0, size / max(1, int(counts.sum()))) * counts
    if not is_final:
        return np.ceil(means + MARGIN_ERRORS * np.sqrt(means) + MARGIN).astype(int)
    numbers = np.floor(means).astype(int)
    missing = min(size, int(counts.sum())) - int(numbers.sum())
    numbers[np.argsort(numbers - means, kind="stable")[:missing]] += 1
    return numbers


def of_least_keys(
    keys: np.ndarray, rows: Rows, numbers: np.ndarray, limits: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows (r,) are the ``numbers`` (C,) of rows with the least keys in each class, and the next keys.

    ``limits`` (C,) are the next keys if a class has no further rows.
    """
    keep, limits = np.ones(len(keys), dtype=bool), limits.copy()
    for c, number in enumerate(numbers):
        (of_class,) = np.nonzero(rows.y == c)
        if len(of_class) > number:
            order = np.argsort(keys[of_class], kind="stable")
            limits[c] = keys[of_class[order[number]]]
            keep[of_class[order[number:]]] = False
    return keep, limits


def tally(codes: np.ndarray, weight: np.ndarray, n_labels: int = 0) -> np.ndarray:
    """Return (3, k) for k label numbers: the rows, the rows of positive weight, and the sums of weights."""
    return np.array([np.bincount(codes, one, n_labels) for one in (None, weight > 0.0, weight)], dtype=np.float64)


class Draw:
    """Draws ``size`` rows from rows that come one after the other: those of least keys of each class.

    Memory is for ``ROOM`` times the sample, or little more. The sample depends on the order of the rows and on their
    keys alone.
    """

    def __init__(self, size: int):
        self.size = size
        # Counts of all rows that have come, by the numbers of their labels, and keys below which rows may be drawn.
        self.tally, self._limits = np.zeros((3, 0)), np.zeros(0)
        self._parts: list[tuple[np.ndarray, Rows]] = []
        self._n_kept, self._most = 0, ROOM * size

    def add(self, rows: Rows, keys: np.ndarray) -> None:
        """Add rows with label numbers as y and a weight each; rows of weight 0 are counted, not drawn."""
        more = tally(rows.y, rows.weight, self.tally.shape[1])
        n_new = more.shape[1] - len(self._limits)
        self.tally = np.pad(self.tally, [(0, 0), (0, n_new)]) + more
        self._limits = np.append(self._limits, np.ones(n_new))
        keep = (rows.weight > 0.0) & (keys < self._limits[rows.y])
        self._parts.append((keys[keep], rows.part(keep)))
        self._n_kept += int(np.count_nonzero(keep))
        if self._n_kept > self._most:
            self.sample(is_final=False)
            self._most = ROOM * max(self.size, self._n_kept)

    def sample(self, is_final: bool = True) -> Rows:
        """Return the rows drawn so far, in order, all rows of positive weight if they fit; and drop all others."""
        keys, rows = np.concatenate([keys for keys, _ in self._parts]), joined([rows for _, rows in self._parts])
        numbers = numbers_drawn(self.tally[1], self.size, is_final)
        keep, self._limits = of_least_keys(keys, rows, numbers, self._limits)
        self._parts = [(keys[keep], rows.part(keep))]
        self._n_kept = int(np.count_nonzero(keep))
        return self._parts[0][1]
