"""Limits the process's BLAS libraries to one thread, because the threads over blocks of rows are ours.

The limit holds for the whole process while a fit runs. Afterwards every library has the number that it had.
"""

from collections.abc import Callable
from functools import partial
from itertools import product

from threadpoolctl import LibController, ThreadpoolController

from .._threads import BlasLimit, Numerics

OPENBLAS = tuple(product(("", "scipy_"), ("", "64_", "_64")))


def thread_functions(library: LibController) -> tuple[Callable[[], int | None], Callable[[int], object]]:
    """Functions that return and set a library's number of threads.

    Those of OpenBLAS are its own: threadpoolctl searches for them in each call, 20 µs for two libraries, and later
    versions let only the thread that set the number set it again, and silently do nothing in others.
    """
    is_openblas = library.internal_api == "openblas" and library.threading_layer != "openmp"

    def function(verb: str) -> Callable[..., int | None]:
        names = (f"{prefix}openblas_{verb}_num_threads{suffix}" for prefix, suffix in OPENBLAS if is_openblas)
        own = (getattr(library.dynlib, name) for name in names if hasattr(library.dynlib, name))
        return next(own, getattr(library, f"{verb}_num_threads"))

    return function("get"), function("set")


LIMIT = BlasLimit(map(thread_functions, ThreadpoolController().select(user_api="blas").lib_controllers))
# A context in which BLAS calls run on the thread that makes them, so that its number of threads changes no bit, and in
# which results below 2.2e-308 are zero.
single_threaded_blas = partial(Numerics, LIMIT.hold, LIMIT.release, LIMIT.lock)
