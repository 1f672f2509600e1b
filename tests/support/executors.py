"""An executor of processes, one that forgets, and a source of rows in files."""

from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context

import numpy as np
from threadpoolctl import threadpool_limits

from .internals import ArraySource, Block, Cache, Executor, block_size


def _with_one_thread():
    """One thread of BLAS in a worker, as a fit has it; to find this function, the worker has loaded SciPy's."""
    threadpool_limits(1, "blas")


class Processes(Executor):
    """A pool of processes: function, block and state go there as bytes, and the record comes back."""

    def __init__(self, n_processes):
        super().__init__(1)
        self._pool = ProcessPoolExecutor(n_processes, mp_context=get_context("spawn"), initializer=_with_one_thread)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._pool.shutdown()

    def records(self, function, source, state):
        return self._pool.map(function, source.blocks(), repeat(state))


class Forgetful(Executor):
    """One thread, and blocks that keep nothing from earlier calls."""

    def records(self, function, source, state):
        for block in source.blocks():
            block.cache = Cache()
            yield function(block, state)


class FileSource:
    """Rows of ``X.npy`` and labels of ``y.npy``; a block is read when it is asked for, and forgotten."""

    def __init__(self, X_path, y_path):
        self.paths = X_path, y_path
        self.n_rows, self.n_features = np.load(X_path, mmap_mode="r").shape
        self.total_weight = float(self.n_rows)

    def _read(self, rows):
        X, y = (np.load(path, mmap_mode="r") for path in self.paths)
        return np.array(X[rows]), np.array(y[rows], dtype=float)

    def blocks(self):
        size = block_size(self.n_rows)
        for start in range(0, self.n_rows, size):
            X, y = self._read(slice(start, start + size))
            yield Block(start, X, y, np.ones(len(y)), 0)

    def sample(self, rows, scale=1.0):
        return ArraySource(*self._read(rows), np.full(len(rows), scale))
