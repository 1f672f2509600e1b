"""A source of rows in a file of NumPy's, read block by block."""

import numpy as np

from .internals import BLOCK_ROWS, ArraySource, Block, Picked

NONE = np.empty(0)


class FileSource:
    """Rows of ``X.npy`` and labels of ``y.npy``; a block is read when it is asked for, and forgotten."""

    def __init__(self, X_path, y_path):
        self.paths = X_path, y_path
        self.n_rows, self.n_features = np.load(X_path, mmap_mode="r").shape
        self.total_weight = float(self.n_rows)

    def _read(self, rows):
        X, y = (np.load(path, mmap_mode="r") for path in self.paths)
        return np.array(X[rows]), np.array(y[rows], dtype=float)

    def _block(self, start):
        return Block(start, *self._read(slice(start, start + BLOCK_ROWS)), NONE, 0)

    def blocks(self):
        return Blocks(self)

    def labels(self):
        return self._read(slice(None))[1]

    def sample(self, rows, scale=1.0):
        return ArraySource(*self._read(rows), np.full(len(rows) if scale != 1.0 else 0, scale))

    def pick(self, rows):
        return Picked(*self._read(rows), NONE, np.arange(len(rows)))


class Blocks:
    """The blocks as a sequence."""

    def __init__(self, source):
        self.source = source

    def __len__(self):
        return -(-self.source.n_rows // BLOCK_ROWS)

    def __getitem__(self, i):
        if not 0 <= i < len(self):
            raise IndexError(i)
        return self.source._block(i * BLOCK_ROWS)
