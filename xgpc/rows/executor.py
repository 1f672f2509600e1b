"""Who works on blocks of rows: threads.

A result that is a sum over points is formed block by block and added in the order of the blocks, whatever thread
computed which block: the same bits for any number of threads.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from types import TracebackType
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from joblib import effective_n_jobs

from .._engine import Workspace
from .blas import single_threaded_blas
from .block import BLOCK_ROWS, Block
from .memory import SPARE
from .source import RowSource

# Rows of a tile: what a thread works on at a time. (tile, 100) scratch stays in a second-level cache of 1 MB; a
# multiple of 8, 16 and 24, the rows that BLAS kernels take at once.
TILE_ROWS = 384
# Rows of a part of arrays that are at hand: (part, 100) ones stay in that cache, too. They are larger where there would
# be more parts than this, as what each makes, an (m, m) matrix perhaps, is kept until all are done.
PART_ROWS, MOST_PARTS = 512, 64
# Blocks that the calling thread takes up at a time: waking for each costs the workers some percent. Fewer if their
# records would take more memory than this.
GROUP = 8
GROUP_BYTES = 2**23
# Below this many multiply-adds, half a millisecond, a pass stays on the calling thread: starting others costs as much.
# Measured, two threads once running: 1.2 x one at 1.4e6, 1.5 to 1.7 x at 1e7.
MIN_PARALLEL_WORK = 5e6


class Cost(NamedTuple):
    """What a function of a block and a state takes: multiply-adds a row, and numbers of its record."""

    work: float
    numbers: int


class State(Protocol):
    """What a function of a block is told besides: picklable, and not changed by it."""

    @property
    def cost(self) -> Cost: ...


Item = TypeVar("Item")
Result = TypeVar("Result")
Function = Callable[[Block, Any], Result]


@contextmanager
def closed_at_end(iterator: Iterator[Result]) -> Iterator[Iterator[Result]]:
    """An iterator that is closed, if it can be, however its use ends: one over blocks may have a thread that reads."""
    try:
        yield iterator
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()


class Pool(ThreadPoolExecutor):
    """Threads whose tasks have ended where its context ends, however often starting or ending it is interrupted.

    Joining threads does not do that alone: one whose start is interrupted is not among those to join, and Python below
    3.13 takes a thread for ended once joining it is interrupted.
    """

    def __init__(self, n_threads: int, name: str = "xgpc"):
        super().__init__(n_threads, thread_name_prefix=name)
        self._n_running, self._changed = 0, threading.Condition()

    def submit(self, function: Callable[..., Result], /, *args: Any, **named: Any) -> Future[Result]:
        return super().submit(self._counted, function, *args, **named)

    def _counted(self, function: Callable[..., Result], *args: Any, **named: Any) -> Result:
        with self._changed:
            self._n_running += 1
        try:
            return function(*args, **named)
        finally:
            with self._changed:
                self._n_running -= 1
                self._changed.notify()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        try:
            super().shutdown(False, cancel_futures=cancel_futures)
            with self._changed:
                self._changed.wait_for(lambda: not self._n_running)
            super().shutdown(wait)
        except KeyboardInterrupt:
            self.shutdown(wait, cancel_futures=cancel_futures)
            raise


class Executor(ABC):
    """Applies a module-level, pure function to every block of a source.

    Attributes
    ----------
    n_threads : threads of this process that work which is not of blocks, such as a search, may take
    """

    n_threads: int = 1

    @abstractmethod
    def map(self, function: Function[Result], source: RowSource, state: State) -> Iterator[Result]:
        """Records of ``function(block, state)``, in the order of the blocks."""

    def each(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Values of a function at each item, in order, where no source of rows is at hand; it may write to arrays."""
        return list(map(function, items))

    def reduce(self, function: Function[Result], source: RowSource, state: State) -> Result:
        """Their sum, added in the order of the blocks.

        The first record is added to in place, where it can be. A record may have a method ``release``: it is called
        once the record has been added and nobody uses it any more, so that its memory can serve the next blocks.
        """
        with closed_at_end(iter(self.map(function, source, state))) as records:
            total: Any = next(records)
            for record in records:
                total += record
                release = getattr(record, "release", None)
                if release is not None:
                    release()
        return total


_scratch = threading.local()
# Matrices of records that have been added: fresh memory for those of each block would cost 3 % of a pass.
_spare: deque[np.ndarray] = deque(maxlen=2 * GROUP)


def lower_triangles(n_latents: int, m: int) -> np.ndarray:
    """Matrices (n_latents, m, m) of which the lower triangles are to be written, zeros above."""
    try:
        matrices = _spare.pop()
    except IndexError:
        return np.zeros((n_latents, m, m))
    return matrices if matrices.shape == (n_latents, m, m) else np.zeros((n_latents, m, m))


def give_back(matrices: np.ndarray) -> None:
    """Matrices that ``lower_triangles`` made, and nobody uses any more."""
    _spare.append(matrices)


def workspace(rows: int, n_inducing: int, n_features: int, n_latents: int = 1) -> Workspace:
    """Scratch of the present thread for blocks of so many rows, the same one as long as its shape will do."""
    work = getattr(_scratch, "work", None)
    tile, shape = min(TILE_ROWS, max(1, rows)), (n_inducing, n_features, n_latents)
    if work is None or work.rows < tile or (work.n_inducing, work.n_features, work.n_latents) != shape:
        # The old one first: there need not be memory for both.
        _scratch.work = work = None
        _scratch.work = work = Workspace(tile, *shape)
    return work


def is_small(source: RowSource, state: State) -> bool:
    """Whether a pass is not worth another thread."""
    return source.n_rows * state.cost.work < MIN_PARALLEL_WORK


def parts_of(n_rows: int) -> list[slice]:
    """Rows in parts, for ``Executor.each``."""
    size = max(PART_ROWS, -(-n_rows // MOST_PARTS))
    return [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]


class Threads(Executor):
    """Threads of this process; a context manager, in which BLAS has one thread.

    Parameters
    ----------
    n_jobs : int or None
        As in scikit-learn: None means one unless in a ``joblib.parallel_config`` context, -1 all cores.
    """

    def __init__(self, n_jobs: int | None = None):
        self.n_threads = max(1, effective_n_jobs(n_jobs))
        self._pool: Pool | None = None
        self._blas = single_threaded_blas()

    def __enter__(self) -> Threads:
        SPARE.hold(self)
        self._blas.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            _scratch.work = None
            _spare.clear()
            if self._pool is not None:
                self._pool.shutdown(cancel_futures=True)
                self._pool = None
        finally:
            self._blas.__exit__(kind, error, trace)
            SPARE.release(self)

    def threads_for(self, source: RowSource, state: State) -> int:
        """How many threads a pass is worth."""
        return 1 if is_small(source, state) else min(self.n_threads, len(source.blocks()))

    def map(self, function: Function[Result], source: RowSource, state: State) -> Iterator[Result]:
        """Records of a few groups are alive at a time."""
        # BLAS: set again if somebody has lifted it, and held whether or not this is entered as a context.
        with single_threaded_blas(), closed_at_end(iter(source.blocks())) as blocks:
            if self.threads_for(source, state) > 1:
                yield from self._parallel(function, blocks, state)
            else:
                for block in blocks:
                    yield function(block, state)

    def each(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        is_alone = self.n_threads == 1 or len(items) < 2
        with single_threaded_blas():
            return list(map(function, items) if is_alone else self._threads.map(function, items))

    @property
    def _threads(self) -> Pool:
        if self._pool is None:
            self._pool = Pool(self.n_threads)
        return self._pool

    def _parallel(self, function: Function[Result], blocks: Iterator[Block], state: State) -> Iterator[Result]:
        group = max(1, min(GROUP, GROUP_BYTES // (8 * state.cost.numbers)))
        # Blocks of little work are handed over several at a time.
        size = max(1, min(group, int(0.5 * MIN_PARALLEL_WORK / (BLOCK_ROWS * state.cost.work))))
        waited = group // size

        def of_blocks(some: list[Block]) -> list[Result]:
            return [function(block, state) for block in some]

        pending: deque[Future[list[Result]]] = deque()
        try:
            while some := list(islice(blocks, size)):
                pending.append(self._threads.submit(of_blocks, some))
                if len(pending) == self.n_threads + waited:
                    pending[waited - 1].exception()
                    for _ in range(waited):
                        yield from pending.popleft().result()
            while pending:
                yield from pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def on_threads(n_jobs: int | None) -> Callable[[Callable[[Item], Result], Sequence[Item]], list[Result]]:
    """``each`` of so many threads, which begin and end with it; of one item, as of a row to predict, there are none."""

    def each(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        if len(items) < 2:
            return list(map(function, items))
        with Threads(n_jobs) as executor:
            return executor.each(function, items)

    return each
