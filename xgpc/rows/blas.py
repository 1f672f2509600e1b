"""Limits the process's BLAS libraries to one thread, because the threads over blocks of rows are ours.

The limit holds for the whole process while a fit runs. Afterwards every library has the number that it had.
"""

from functools import partial

from threadpoolctl import ThreadpoolController

from .._threads import BlasLimit, Numerics

LIBRARIES = ThreadpoolController().select(user_api="blas").lib_controllers
LIMIT = BlasLimit(LIBRARIES)
# A context in which BLAS calls run on the thread that makes them, so that its number of threads changes no bit, and in
# which results below 2.2e-308 are zero.
single_threaded_blas = partial(Numerics, LIMIT.hold, LIMIT.release, LIMIT.lock)
