"""A sample of rows that are read once, with the classes in their proportions."""

from __future__ import annotations

import numpy as np

from .batches import Rows, joined

# Rows of a class are kept while they can still be among those of least keys that it has in the end. Their number on the
# way is hypergeometric: so many standard deviations above its mean it is exceeded in less than one of 1e14 draws; the
# constant is for means near 0, where the distribution is Poisson's.
MARGIN_ERRORS, MARGIN = 8.0, 32
# Those that cannot be any more are dropped each time that the rows in memory have grown by this factor.
ROOM = 1.5


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
        self.size, self.n_rows = size, 0
        self._generator = generator
        self._counts = np.zeros(0, dtype=np.int64)
        self._limits = np.zeros(0)
        self._parts: list[tuple[np.ndarray, Rows]] = []
        self._n_kept, self._most = 0, ROOM * size

    def add(self, rows: Rows) -> None:
        """Further rows, whose y are class numbers, in any order, and whose weights are given; of weight 0, none."""
        keys = self._generator.random(len(rows.X))
        self.n_rows += len(rows.X)
        is_given = rows.weight > 0.0
        counts = np.bincount(rows.y, is_given, minlength=len(self._counts)).astype(np.int64)
        more = len(counts) - len(self._counts)
        self._counts = np.pad(self._counts, (0, more)) + counts
        self._limits = np.pad(self._limits, (0, more), constant_values=1.0)
        # All rows while they are no more than the sample: then it is no sample.
        keep = is_given & (keys < self._limits[rows.y]) if self.n_rows > self.size else np.ones(len(keys), dtype=bool)
        self._parts.append((keys[keep], Rows(*(array[keep] for array in rows))))
        self._n_kept += int(np.count_nonzero(keep))
        if self._n_kept > self._most:
            means = self._means()
            self._keep(np.ceil(means + MARGIN_ERRORS * np.sqrt(means) + MARGIN).astype(int))
            self._most = ROOM * max(self.size, self._n_kept)

    @property
    def is_all(self) -> bool:
        """Whether the sample is all rows."""
        return self.n_rows <= self.size

    def sample(self) -> Rows:
        """The rows drawn so far, in their order; all of them, those of weight 0 too, if they are no more than asked."""
        if not self.is_all:
            means = self._means()
            numbers = np.floor(means).astype(int)
            # Fractions of rows: to the classes that miss most.
            missing = min(self.size, int(self._counts.sum())) - int(numbers.sum())
            numbers[np.argsort(numbers - means, kind="stable")[:missing]] += 1
            self._keep(numbers)
        return self._joined()[1]

    def _means(self) -> np.ndarray:
        """Numbers of rows of each class in a sample of those so far, before they are whole numbers."""
        share = min(1.0, self.size / max(1, int(self._counts.sum())))
        return share * self._counts

    def _keep(self, numbers: np.ndarray) -> None:
        """So many rows of each class, those of least keys."""
        keys, rows = self._joined()
        keep = rows.weight > 0.0
        for c, number in enumerate(numbers):
            (of_class,) = np.nonzero(keep & (rows.y == c))
            if len(of_class) > number:
                order = np.argsort(keys[of_class], kind="stable")
                self._limits[c] = keys[of_class[order[number]]]
                keep[of_class[order[number:]]] = False
        self._parts = [(keys[keep], Rows(*(array[keep] for array in rows)))]
        self._n_kept = int(np.count_nonzero(keep))

    def _joined(self) -> tuple[np.ndarray, Rows]:
        if len(self._parts) > 1:
            keys, rows = zip(*self._parts, strict=True)
            self._parts = [(np.concatenate(keys), joined(rows))]
        return self._parts[0]
