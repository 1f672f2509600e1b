"""Work on parts of arrays by threads, and arrays whose memory is used again."""

import os
import signal
import threading
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info

from xgpc.rows.executor import MOST_PARTS, PART_ROWS, Threads, on_threads, parts_of
from xgpc.rows.memory import SPARE, empty


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.mark.parametrize("n_jobs", [1, 2, 3])
def test_each_has_the_values_in_order_and_one_thread_of_blas(n_jobs):
    def square(x):
        assert blas_threads() <= {1}
        return x**2

    with Threads(n_jobs) as executor:
        assert executor.each(square, range(50)) == [x**2 for x in range(50)]
        assert executor.each(square, []) == []
    assert on_threads(n_jobs)(square, range(50)) == [x**2 for x in range(50)]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_each_raises_what_the_function_raises_and_leaves_no_thread(n_jobs):
    def fail(x):
        raise ValueError(f"of {x}")

    before = threading.active_count()
    with pytest.raises(ValueError, match="of 0"):
        on_threads(n_jobs)(fail, range(20))
    assert threading.active_count() == before


@given(st.integers(0, 2 * MOST_PARTS * PART_ROWS))
def test_parts_are_all_rows_once_and_few(n):
    parts = parts_of(n)
    assert len(parts) <= MOST_PARTS
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(n))


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 5), st.booleans()), max_size=30))
def test_arrays_that_are_alive_share_no_memory(steps):
    """Whatever is made and dropped, other arrays keep their values."""
    alive = []
    with Threads(1):
        for number, (rows, width, keep) in enumerate(steps):
            array = empty((rows, width))
            assert array.shape == (rows, width)
            assert array.dtype == np.float64
            array[...] = number
            # A view alone keeps the memory, too.
            alive.append((array[::2].T, number))
            if not keep:
                alive.pop(len(alive) // 2)
            for view, value in alive:
                assert np.all(view == value)


def test_memory_is_used_again_while_threads_are_entered_and_not_kept_after():
    with Threads(1):
        first = empty((30, 40))
        address = first.ctypes.data
        view = first[3:]
        del first
        # The view has it still.
        other = empty((30, 40))
        assert not np.shares_memory(view, other)
        del view
        # Of much larger arrays it is not taken, of somewhat smaller ones it is.
        assert empty((2, 3)).ctypes.data != address
        with Threads(1):
            assert empty((25, 40)).ctypes.data == address
        assert empty((30, 40)).ctypes.data == address
    del other
    assert not SPARE.free


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are forks on POSIX systems alone")
def test_a_forked_child_has_the_lock_and_its_own_holders():
    """Another thread takes memory all the time: without care the child would wait for a lock that nobody releases."""
    done, enough = threading.Event(), []

    def busy():
        with Threads(1):
            while not done.is_set():
                enough.append(empty((3, 3)).shape)

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        codes = []
        for _ in range(20):
            with warnings.catch_warnings():
                # That a process with threads forks is the point.
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if not child:
                signal.alarm(20)
                with Threads(1):
                    empty((5, 5))
                os._exit(len(SPARE.free))
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    finally:
        done.set()
        thread.join()
    assert codes == [0] * 20
    assert enough
