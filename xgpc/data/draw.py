"""Draw a sample of rows that are read once, with the classes in proportion."""

from __future__ import annotations

import numpy as np

from ..rows.batches import Rows, joined
from .summary import tally, widened

# Rows of a class are kept while they can still be among those of least keys that it has in the end. Their number on the
# way is hypergeometric: so many standard deviations above its mean it is exceeded in less than one of 1e14 draws; the
# constant is for means near 0, where the distribution is Poisson's.
MARGIN_ERRORS, MARGIN = 8.0, 32
# Those that cannot be any more are dropped each time that the rows in memory have grown by this factor.
ROOM = 1.5


def seed_of_keys(random_state: np.random.RandomState) -> np.ndarray:
    """Return the seed (4,) of the rows' keys; ``random_state`` does not change, and gives other numbers."""
    state = np.random.RandomState()
    state.set_state(random_state.get_state())
    return state.randint(2**32, size=4, dtype=np.uint64)


def keys_from(seed: np.ndarray, start: int) -> np.random.Generator:
    """Return a generator of the keys of the rows from row ``start`` on."""
    # A key takes one step of the generator.
    return np.random.Generator(np.random.PCG64(seed).advance(start))


def mean_numbers(counts: np.ndarray, size: int) -> np.ndarray:
    """Return the mean numbers (C,) of rows of each class in a sample of ``size`` rows.

    Parameters
    ----------
    counts : (C,) rows of positive weight of each class
    """
    share = min(1.0, size / max(1, int(counts.sum())))
    return share * counts


def most_numbers(means: np.ndarray) -> np.ndarray:
    """Return bounds (C,) on the numbers of rows of each class that the final sample takes from the rows so far."""
    return np.ceil(means + MARGIN_ERRORS * np.sqrt(means) + MARGIN).astype(int)


def whole_numbers(counts: np.ndarray, size: int) -> np.ndarray:
    """Return the numbers (C,) of rows of each class in a sample of ``size`` rows, rounded by largest remainders.

    Of classes that miss as much, to the first ones: their order is that of their first rows.
    """
    means = mean_numbers(counts, size)
    numbers = np.floor(means).astype(int)
    missing = min(size, int(counts.sum())) - int(numbers.sum())
    numbers[np.argsort(numbers - means, kind="stable")[:missing]] += 1
    return numbers


def of_least_keys(keys: np.ndarray, rows: Rows, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Select the ``numbers`` (C,) of rows with the least keys in each class: a mask (r,), and the next keys (C,).

    The next key is 1 if a class has no further rows.
    """
    keep, limits = np.ones(len(keys), dtype=bool), np.ones(len(numbers))
    for c, number in enumerate(numbers):
        (of_class,) = np.nonzero(rows.y == c)
        if len(of_class) > number:
            order = np.argsort(keys[of_class], kind="stable")
            limits[c] = keys[of_class[order[number]]]
            keep[of_class[order[number:]]] = False
    return keep, limits


class Draw:
    """Draws ``size`` rows from blocks of rows that come one after the other.

    Each row has a random key, and the sample is the rows of least keys of each class. Memory is for ``ROOM`` times the
    sample, or little more; the sample depends on the order of the rows and on the generator alone, as long as the
    blocks are cut at the same rows.

    Parameters
    ----------
    size : int
    generator : numpy.random.Generator
    """

    def __init__(self, size: int, generator: np.random.Generator):
        self.size = size
        self._generator = generator
        # Of all rows that have come, by the numbers of their labels.
        self.tally, self._limits = np.zeros((3, 0)), np.zeros(0)
        self._parts: list[tuple[np.ndarray, Rows]] = []
        self._n_kept, self._most = 0, ROOM * size

    @property
    def n_rows(self) -> int:
        return int(self.tally[0].sum())

    def add(self, rows: Rows) -> None:
        """Add rows with label numbers as y and a weight each; rows of weight 0 are counted, not drawn."""
        keys = self._generator.random(len(rows.X))
        more = tally(rows.y, rows.weight, self.tally.shape[1])
        self.tally = widened(self.tally, more.shape[1]) + more
        self._limits = np.append(self._limits, np.ones(more.shape[1] - len(self._limits)))
        keep = (rows.weight > 0.0) & (keys < self._limits[rows.y])
        self._parts.append((keys[keep], Rows(*(array[keep] for array in rows))))
        self._n_kept += int(np.count_nonzero(keep))
        if self._n_kept > self._most:
            self._keep(most_numbers(mean_numbers(self.tally[1], self.size)))
            self._most = ROOM * max(self.size, self._n_kept)

    @property
    def is_all(self) -> bool:
        """Whether all rows fit into the sample."""
        return self.n_rows <= self.size

    def sample(self) -> Rows:
        """Return the rows drawn so far, in order; all rows of positive weight if they fit."""
        self._keep(whole_numbers(self.tally[1], self.size))
        return self._parts[0][1]

    def _keep(self, numbers: np.ndarray) -> None:
        """Keep these numbers (C,) of rows of each class: the rows of least keys."""
        keys, rows = np.concatenate([keys for keys, _ in self._parts]), joined([rows for _, rows in self._parts])
        keep, limits = of_least_keys(keys, rows, numbers)
        self._limits = np.minimum(self._limits, limits)
        self._parts = [(keys[keep], Rows(*(array[keep] for array in rows)))]
        self._n_kept = int(np.count_nonzero(keep))
