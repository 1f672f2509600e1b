"""Limits the process's BLAS libraries to one thread, because the threads over blocks of rows are ours.

The limit holds for the whole process while a fit runs. Afterwards every library has the number that it had.
"""

from __future__ import annotations

import os
from threading import RLock, get_ident

from threadpoolctl import LibController, ThreadpoolController

from .._threads import Held, locked


class _BlasLimit:
    """The limit to one thread, while there is a holder.

    Others may set the numbers of threads too: whoever finds another number than one sets one and remembers what was
    found. The last holder restores it, unless someone else has changed it meanwhile. Every step may be interrupted and
    repeated.
    """

    def __init__(self) -> None:
        self._libraries = ThreadpoolController().select(user_api="blas").lib_controllers
        # Reentrant: a signal handler may run at any point, and hold the limit itself.
        self._lock = RLock()
        # Threads of the holders, by the holders' id; and the libraries' former numbers of threads.
        self._holders: dict[int, int] = {}
        self._found: dict[int, int] = {}
        if hasattr(os, "register_at_fork"):
            # No process forks while another thread changes the numbers.
            os.register_at_fork(
                before=self._lock.acquire, after_in_parent=self._lock.release, after_in_child=self._after_fork
            )

    def _after_fork(self) -> None:
        """Keep the holders of the thread that forked, the only one in the child."""
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

    def _renew(self) -> None:
        for i, library in enumerate(self._libraries if self._holders else ()):
            number = library.get_num_threads()
            if number is not None and number != 1:
                self._found[i] = number
                _set_num_threads(library, 1)

    def _hold(self, holder: int) -> None:
        self._holders[holder] = get_ident()
        self._renew()

    def _release(self, holder: int) -> None:
        self._holders.pop(holder, None)
        if not self._holders:
            self._restore()

    def renew(self) -> None:
        """Set the limit again if it is held and someone has lifted it."""
        locked(self._lock, self._renew)

    def hold(self, holder: int) -> None:
        locked(self._lock, self._hold, holder)

    def release(self, holder: int) -> None:
        """Release once, or again after an interrupt."""
        locked(self._lock, self._release, holder)


def _set_num_threads(library: LibController, number: int) -> None:
    """Set a library's number of threads, whichever thread set it last.

    Later versions of threadpoolctl let only one thread set that of OpenBLAS, and silently do nothing in others.
    """
    release = getattr(library, "clear_controlling_thread", lambda force: None)
    release(force=True)
    library.set_num_threads(number)
    release(force=True)


BLAS_LIMIT = _BlasLimit()


def single_threaded_blas() -> Held:
    """Context in which BLAS calls run on the thread that makes them, so that its number of threads changes no bit."""
    return Held(BLAS_LIMIT.hold, BLAS_LIMIT.release)
