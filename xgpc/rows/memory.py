"""Arrays whose memory is used again while a fit or a prediction runs.

Memory that is fresh from the system costs: each page is cleared when it is first touched, and threads wait for each
other there. Of a gradient with neighbours, which makes arrays of the same shapes at each step, that was a third of the
time by one thread and half of it by two.
"""

from __future__ import annotations

import math
import os
from threading import RLock, get_ident

import numpy as np


class Spare:
    """Memory that nobody uses any more, kept as long as somebody may ask for it."""

    def __init__(self) -> None:
        # A garbage collection may give memory back at any time, in the thread that holds the lock, too.
        self._lock = RLock()
        # Who may ask, and their threads.
        self._holders: dict[int, int] = {}
        self.free: list[np.ndarray] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._lock.acquire, after_in_parent=self._lock.release, after_in_child=self._after_fork
            )

    def _after_fork(self) -> None:
        """In a forked child the thread that forked is the only one."""
        me = get_ident()
        self._holders = {holder: thread for holder, thread in self._holders.items() if thread == me}
        self._lock.release()

    def hold(self, holder: object) -> None:
        """Keep memory until the holder releases it."""
        with self._lock:
            self._holders[id(holder)] = get_ident()

    def release(self, holder: object) -> None:
        with self._lock:
            self._holders.pop(id(holder), None)
            if not self._holders:
                self.free = []

    def take(self, size: int) -> np.ndarray:
        """The smallest of at least so many doubles, if it has no more than twice as many; or fresh memory."""
        with self._lock:
            fitting = [i for i, memory in enumerate(self.free) if size <= len(memory) <= 2 * size]
            if fitting:
                return self.free.pop(min(fitting, key=lambda i: len(self.free[i])))
        return np.empty(size)

    def give_back(self, memory: np.ndarray) -> None:
        with self._lock:
            if self._holders:
                self.free.append(memory)


SPARE = Spare()


class _Owner:
    """What arrays, and views of them, keep alive; at its end the memory can be used again."""

    def __init__(self, memory: np.ndarray):
        self._memory = memory
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        SPARE.give_back(self._memory)


def empty(shape: tuple[int, ...]) -> np.ndarray:
    """As ``np.empty``, of doubles; the memory is that of arrays which no longer are, if there is some.

    Memory is kept while a ``Threads`` is entered.
    """
    size = math.prod(shape)
    return np.asarray(_Owner(SPARE.take(size)))[:size].reshape(shape)
