"""Arrays in memory that is used again while a fit or a prediction runs.

The system clears each page of fresh memory when it is first touched, and threads wait for each other there. A gradient
with neighbours makes arrays of the same shapes at each step: this was a third of its time with one thread.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np


class Spare:
    """Memory that is no longer used, kept while somebody holds it; its methods can be called in any thread."""

    def __init__(self) -> None:
        self._holders: set[int] = set()
        self._free: deque[np.ndarray] = deque()

    def hold(self, holder: object) -> None:
        self._holders.add(id(holder))

    def release(self, holder: object) -> None:
        self._holders.discard(id(holder))
        if not self._holders:
            self._free.clear()

    def take(self, size: int) -> np.ndarray:
        """Free memory for at least ``size`` doubles and at most twice as many; else fresh memory."""
        for _ in range(len(self._free)):
            try:
                memory = self._free.popleft()
            except IndexError:
                break
            if size <= len(memory) <= 2 * size:
                return memory
            self._free.append(memory)
        return np.empty(size)

    def give_back(self, memory: np.ndarray) -> None:
        if self._holders:
            self._free.append(memory)


SPARE = Spare()


class _Owner:
    """Owns the memory of an array and of its views, and gives it back when they are gone."""

    def __init__(self, memory: np.ndarray):
        self._memory = memory
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        SPARE.give_back(self._memory)


def empty(shape: tuple[int, ...]) -> np.ndarray:
    """As ``np.empty`` with doubles; inside a ``Threads`` context the memory may be that of an earlier array."""
    size = math.prod(shape)
    return np.asarray(_Owner(SPARE.take(size)))[:size].reshape(shape)
