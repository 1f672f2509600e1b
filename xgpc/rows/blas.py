"""Limits the process's BLAS libraries to one thread, because the threads over blocks of rows are ours.

The limit holds for the whole process while a fit runs. Afterwards every library has the number that it had.
"""

from functools import partial

from threadpoolctl import ThreadpoolController

from .._threads import BlasLimit, Held

LIBRARIES = ThreadpoolController().select(user_api="blas").lib_controllers
LIMIT = BlasLimit(LIBRARIES)
# A context in which BLAS calls run on the thread that makes them, so that its number of threads changes no bit.
single_threaded_blas = partial(Held, LIMIT.hold, LIMIT.release, LIMIT.lock)
