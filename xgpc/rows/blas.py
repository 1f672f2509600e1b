"""The process's BLAS libraries held at one thread: the threads over blocks of rows are ours.

OpenBLAS, BLIS and MKL as threadpoolctl knows them have a number of threads for the process, not one for each thread.
While a fit runs, other threads' calls of BLAS have one thread, too: what they compute is right. Afterwards every
library has the number that it had.
"""

from __future__ import annotations

import os
from threading import RLock, get_ident

from threadpoolctl import LibController, ThreadpoolController

from .._blas import Held


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
        """Set the limit, if it is held and not set; of others, who have lifted it, too."""
        with self._lock:
            for i, library in enumerate(self._libraries if self._holders else ()):
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


BLAS_LIMIT = _BlasLimit()


def single_threaded_blas() -> Held:
    """Context in which BLAS calls run on the thread that makes them.

    The threads over blocks are ours, and no bit of a result depends on how many threads BLAS would take.
    """
    return Held(BLAS_LIMIT.hold, BLAS_LIMIT.release)
