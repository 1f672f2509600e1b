"""Blocks of rows, and threads over them.

A result that is a sum over points is formed block by block and added in the order of the blocks, whatever thread
computed which block: the same bits for any number of threads.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from threading import RLock, get_ident
from typing import TypeVar

from joblib import effective_n_jobs
from threadpoolctl import LibController, ThreadpoolController

from ._blas import Held
from ._engine import Workspace

# Rows of a block: a unit of scheduling. Large against the m x m addition that ends it, small enough that twenty
# thousand rows still balance over many threads.
BLOCK_ROWS = 1152
# Rows of a tile: what a thread works on at a time. (tile, 100) scratch stays in a second-level cache of 1 MB; a
# multiple of 8, 16 and 24, the rows that BLAS kernels take at once.
TILE_ROWS = 384
# Blocks that the calling thread takes up at a time: waking for each costs the workers some percent. Fewer if their
# results, (C, m, m) each, would take more memory than this.
GROUP = 8
GROUP_BYTES = 2**23
# Below this many multiply-adds, half a millisecond, a pass stays on the calling thread: starting others costs as much.
# Measured, two threads once running: 1.2 x one at 1.4e6, 1.5 to 1.7 x at 1e7.
MIN_PARALLEL_WORK = 5e6

Result = TypeVar("Result")


class _BlasLimit:
    """Limit of the process's BLAS libraries to one thread, while there is a holder of it.

    The libraries' numbers of threads are ones of the whole process, and may be set by others, too: who finds another
    number than one sets one and remembers what was found, and the last holder to go sets that again, unless someone
    else has changed it meanwhile. Every step may be interrupted, and be repeated.
    """

    def __init__(self) -> None:
        self._libraries = ThreadpoolController().select(user_api="blas").lib_controllers
        # A signal's handler runs in between, and may hold the limit itself.
        self._lock = RLock()
        # Holders, by their id, and their threads.
        self._holders: dict[int, int] = {}
        self._found: dict[int, int] = {}
        if hasattr(os, "register_at_fork"):
            # Nobody forks while another thread changes the numbers.
            os.register_at_fork(
                before=self._lock.acquire, after_in_parent=self._lock.release, after_in_child=self._after_fork
            )

    def _after_fork(self) -> None:
        """In a forked child the thread that forked is the only one."""
        me = get_ident()
        self._holders = {holder: thread for holder, thread in self._holders.items() if thread == me}
        if not self._holders:
            self._restore()
        self._lock.release()

    def _restore(self) -> None:
        for i, number in list(self._found.items()):
            if self._libraries[i].get_num_threads() == 1:
                _set_num_threads(self._libraries[i], number)
        self._found = {}

    def renew(self) -> None:
        """Set the limit, if it is not set; of others, who have lifted it, too. For holders."""
        with self._lock:
            for i, library in enumerate(self._libraries):
                number = library.get_num_threads()
                if number is not None and number != 1:
                    self._found[i] = number
                    _set_num_threads(library, 1)

    def hold(self, holder: int) -> None:
        with self._lock:
            self._holders[holder] = get_ident()
            self.renew()

    def release(self, holder: int) -> None:
        """Once, or again after an interrupt."""
        with self._lock:
            self._holders.pop(holder, None)
            if not self._holders:
                self._restore()


def _set_num_threads(library: LibController, number: int) -> None:
    """Set a library's number of threads, whichever thread set it last.

    Later versions of threadpoolctl let one thread alone set that of OpenBLAS, and do nothing, silently, in others.
    """
    release = getattr(library, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)
    library.set_num_threads(number)
    if release is not None:
        release(force=True)


_BLAS_LIMIT = _BlasLimit()


def single_threaded_blas() -> Held:
    """Context in which BLAS calls run on the thread that makes them.

    The threads over blocks are ours, and no bit of a result depends on how many threads BLAS would take.
    """
    return Held(_BLAS_LIMIT.hold, _BLAS_LIMIT.release)


class BlockMap:
    """Ordered map over the blocks of ``n_rows`` rows.

    Parameters
    ----------
    n_rows, n_inducing, n_features : int
    n_latents : int, latent functions that share the rows' covariances
    n_jobs : int or None
        As in scikit-learn: None means one unless in a ``joblib.parallel_config`` context, -1 all cores.

    Notes
    -----
    Use as a context manager: threads and scratch live until its end.
    """

    def __init__(self, n_rows: int, n_inducing: int, n_features: int, n_jobs: int | None, n_latents: int = 1):
        self.starts = range(0, n_rows, BLOCK_ROWS)
        self.n_rows = n_rows
        n_threads = max(1, min(effective_n_jobs(n_jobs), len(self.starts)))
        if n_rows * n_inducing * (n_latents * n_inducing + n_features) < MIN_PARALLEL_WORK:
            n_threads = 1
        self.n_threads = n_threads
        self._group = max(1, min(GROUP, GROUP_BYTES // (8 * n_latents * n_inducing**2)))
        # Results that can be alive at a time: a group taken up, and one for each thread meanwhile.
        self.n_alive = 1 if n_threads == 1 else n_threads + self._group
        self._workspaces: SimpleQueue[Workspace] = SimpleQueue()
        tile = min(TILE_ROWS, max(n_rows, 1))
        for _ in range(n_threads):
            self._workspaces.put(Workspace(tile, n_inducing, n_features, n_latents))
        self._pool = ThreadPoolExecutor(n_threads, thread_name_prefix="xgpc") if n_threads > 1 else None
        self._blas = single_threaded_blas()

    def __enter__(self) -> BlockMap:
        self._blas.__enter__()
        return self

    def __exit__(self, *exception) -> None:
        try:
            if self._pool is not None:
                self._pool.shutdown(cancel_futures=True)
        finally:
            self._blas.__exit__(*exception)

    def __call__(self, task: Callable[[int, int, Workspace], Result]) -> Iterator[Result]:
        """``task(start, stop, workspace)`` of each block, in order.

        A result may be consumed by the caller only until the next one is asked for: at most ``n_alive`` results are
        alive at a time, so that a task may write into buffers that are used in rotation.
        """
        _BLAS_LIMIT.renew()
        if self._pool is None:
            work = self._workspaces.get()
            try:
                for start in self.starts:
                    yield task(start, min(start + BLOCK_ROWS, self.n_rows), work)
            finally:
                self._workspaces.put(work)
            return
        pending: deque[Future[Result]] = deque()
        try:
            for start in self.starts:
                pending.append(self._pool.submit(self._run, task, start))
                if len(pending) == self.n_alive:
                    pending[self._group - 1].exception()
                    for _ in range(self._group):
                        yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()

    def _run(self, task: Callable[[int, int, Workspace], Result], start: int) -> Result:
        work = self._workspaces.get()
        try:
            return task(start, min(start + BLOCK_ROWS, self.n_rows), work)
        finally:
            self._workspaces.put(work)
