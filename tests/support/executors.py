"""Executors beside the threads of the package."""

from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context

from .internals import Cache, Executor, single_threaded_blas

held = []


def hold_blas():
    """One thread of BLAS in a worker, as a fit has it."""
    held.append(single_threaded_blas())
    held[-1].__enter__()


class Processes(Executor):
    """A pool of processes: function, block and state go there as bytes, and the record comes back."""

    def __init__(self, n_processes):
        self._pool = ProcessPoolExecutor(n_processes, mp_context=get_context("spawn"), initializer=hold_blas)

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
