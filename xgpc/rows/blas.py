"""Limits the process's BLAS libraries to one thread, because the threads over blocks of rows are ours.

The limit holds for the whole process while a fit runs. Afterwards every library has the number that it had.
"""

from __future__ import annotations

import os
from functools import partial
from threading import RLock, get_ident

from threadpoolctl import LibController, ThreadpoolController

from .._threads import Held


class _BlasLimit:
    """The limit to one thread, while there is a holder.

    Others may set the numbers of threads too: a new holder that finds another number than one sets one and remembers
    what was found. The last holder restores it, unless someone else has changed it meanwhile. ``hold`` and ``release``
    are called with the lock; they may be interrupted and repeated.
    """

    def __init__(self) -> None:
        self._libraries = ThreadpoolController().select(user_api="blas").lib_controllers
        # Reentrant: a signal handler may run at any point, and hold the limit itself.
        self.lock = RLock()
        # Threads of the holders, by the holders' id; and the libraries' former numbers of threads.
        self._holders: dict[int, int] = {}
        self._former: dict[int, int] = {}
        if hasattr(os, "register_at_fork"):
            # No process forks while another thread changes the numbers.
            os.register_at_fork(
                before=self.lock.acquire, after_in_parent=self.lock.release, after_in_child=self._after_fork
            )

    def _after_fork(self) -> None:
        """Release the holders of other threads than the one that forked, the only one in the child."""
        me = get_ident()
        for holder, thread in list(self._holders.items()):
            if thread != me:
                self.release(holder)
        self.lock.release()

    def hold(self, holder: int) -> None:
        self._holders[holder] = get_ident()
        for i, library in enumerate(self._libraries):
            number = library.get_num_threads()
            if number is not None and number != 1:
                self._former[i] = number
                _set_num_threads(library, 1)

    def release(self, holder: int) -> None:
        self._holders.pop(holder, None)
        if not self._holders:
            for i, number in list(self._former.items()):
                if self._libraries[i].get_num_threads() == 1:
                    _set_num_threads(self._libraries[i], number)
            self._former = {}


def _set_num_threads(library: LibController, number: int) -> None:
    """Set a library's number of threads, whichever thread set it last.

    Later versions of threadpoolctl let only one thread set that of OpenBLAS, and silently do nothing in others.
    """
    release = getattr(library, "clear_controlling_thread", lambda force: None)
    release(force=True)
    library.set_num_threads(number)
    release(force=True)


BLAS_LIMIT = _BlasLimit()


# A context in which BLAS calls run on the thread that makes them, so that its number of threads changes no bit.
single_threaded_blas = partial(Held, BLAS_LIMIT.hold, BLAS_LIMIT.release, BLAS_LIMIT.lock)
