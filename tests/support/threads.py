"""Threads of the package."""

import os
import sys
import threading
import traceback

from threadpoolctl import threadpool_info

import xgpc

PACKAGE = os.path.dirname(xgpc.__file__)


def threads_of_blas():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def threads_at_work():
    """Other threads that run code of the package; those that wait for work have no frame."""
    frames = {thread: frame for thread, frame in sys._current_frames().items() if thread != threading.get_ident()}
    return [
        thread
        for thread, frame in frames.items()
        if any(one.f_code.co_filename.startswith(PACKAGE) for one, _ in traceback.walk_stack(frame))
    ]
