"""Threads that work for a calling thread, and contexts, whose ends no exception skips.

Python calls a signal's handler between any two of its instructions, so an interrupt may skip what a ``finally`` or an
``__exit__`` in Python has to do. In compiled code it calls one only where that code calls Python or waits for a lock.
What must be done is therefore done here: an exception that comes meanwhile is raised once all is done. The threads are
started and waited for without the module ``threading``, whose own code may be interrupted.
"""
import os
from _queue import Empty, SimpleQueue
from _thread import RLock, _local, allocate_lock, get_ident, start_new_thread
from collections import deque

cdef extern from "tiny.h":
    unsigned int xg_without_tiny() noexcept
    void xg_set_mode(unsigned int mode) noexcept

# The end of a context is tried this many times at most, because an error of its own would come again each time.
cdef int ATTEMPTS = 100

_of_thread = _local()


def scratch():
    """What functions keep for their next call in the same thread: a dictionary, emptied at the end of a pool."""
    return vars(_of_thread)


cdef class Held:
    """Context that calls ``hold(id)`` and ``release(id)`` with its own id, under a lock; both may be called twice.

    If an exception comes between the last line of a block and ``__exit__``, as that of a tracing function can, only the
    destructor releases. So nothing else should refer to the context.
    """
    cdef object _hold, _release, _lock
    cdef bint _is_held

    def __init__(self, hold, release, lock=None):
        self._hold, self._release, self._is_held = hold, release, False
        self._lock = allocate_lock() if lock is None else lock

    def __enter__(self):
        self._is_held = True
        try:
            with self._lock:
                self._hold(id(self))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *exception):
        self._end()

    def __del__(self):
        if self._is_held:
            self._end()

    cdef _end(self):
        error = None
        for _ in range(ATTEMPTS):
            try:
                with self._lock:
                    self._release(id(self))
                break
            except BaseException as raised:
                error = raised
        self._is_held = False
        if error is not None:
            raise error


cdef class Numerics(Held):
    """As ``Held``; meanwhile results below 2.2e-308, with which arithmetic is slow, are zero in this thread."""
    cdef unsigned int _mode

    def __enter__(self):
        self._mode = xg_without_tiny()
        return Held.__enter__(self)

    cdef _end(self):
        xg_set_mode(self._mode)
        Held._end(self)


cdef class BlasLimit:
    """The limit of BLAS libraries to one thread while there is a holder.

    Each library is given by two functions, which return and set its number of threads, if it is known.

    Others may set the numbers of threads too: a new holder that finds another number than one sets one and remembers
    what was there. The last holder restores it, unless someone else has changed it meanwhile. ``hold`` and ``release``
    are called with the lock; they may be interrupted and repeated.
    """
    cdef readonly object lock
    cdef list _libraries
    # Threads of the holders, by the holders' id; and the libraries' former numbers of threads.
    cdef dict _holders, _former

    def __init__(self, libraries):
        # Reentrant: a signal handler may run at any point, and hold the limit itself.
        self._libraries, self.lock, self._holders, self._former = list(libraries), RLock(), {}, {}
        if hasattr(os, "register_at_fork"):
            # No process forks while another thread changes the numbers.
            os.register_at_fork(
                before=self.lock.acquire, after_in_parent=self.lock.release, after_in_child=self._after_fork
            )

    def _after_fork(self):
        """Release the holders of other threads than the one that forked, the only one in the child."""
        me = get_ident()
        for holder, thread in list(self._holders.items()):
            if thread != me:
                self.release(holder)
        self.lock.release()

    def hold(self, holder):
        self._holders[holder] = get_ident()
        for i, (get, set_number) in enumerate(self._libraries):
            number = get()
            if number is not None and number != 1:
                self._former[i] = number
                set_number(1)

    def release(self, holder):
        self._holders.pop(holder, None)
        if not self._holders:
            for i, number in list(self._former.items()):
                get, set_number = self._libraries[i]
                if get() == 1:
                    set_number(number)
            self._former = {}


cdef class Task:
    """A call that a thread makes; the futures of the standard library do not survive interrupts."""
    cdef object _function, _arguments, _value, _error, _ended
    cdef bint _is_cancelled

    def __cinit__(self, function, arguments):
        self._function, self._arguments = function, arguments
        self._ended = allocate_lock()
        self._ended.acquire()

    cdef _run(self):
        try:
            if not self._is_cancelled:
                self._value = self._function(*self._arguments)
        except BaseException as error:
            self._error = error
        self._function = self._arguments = None
        self._ended.release()

    cdef _wait(self):
        """Wait for the end of the call."""
        with self._ended:
            pass

    def result(self):
        """Wait for the value, or raise the call's exception."""
        self._wait()
        if self._error is not None:
            raise self._error
        return self._value


def _work(queue, ended):
    # the life of a thread of a pool
    cdef Task task
    xg_without_tiny()
    try:
        while (task := queue.get()) is not None:
            task._run()
            # Its value is not kept while the thread waits for the next.
            task = None
    finally:
        ended.release()


cdef class Pool:
    """Threads that work for the calling thread; a context, at whose end all of them have ended.

    Tasks that have not begun by then are left out. Further exceptions do not shorten the wait for the others.

    Attributes
    ----------
    n_threads : int, most threads; a thread starts when there is a task for it
    is_ending : bool, whether long tasks should end early
    """
    cdef readonly int n_threads
    cdef readonly bint is_ending
    cdef object _queue, _ended

    def __cinit__(self, *arguments, **named):
        self._queue, self._ended = SimpleQueue(), deque()

    def __init__(self, int n_threads):
        self.n_threads = n_threads

    def submit(self, function, *arguments):
        """Have a thread call a function; returns the ``Task``."""
        task = Task(function, arguments)
        if len(self._ended) < self.n_threads:
            ended = allocate_lock()
            ended.acquire()
            start_new_thread(_work, (self._queue, ended))
            self._ended.append(ended)
        self._queue.put(task)
        return task

    def in_order(self, function, items, int at_once):
        """Iterator over a function's values at the items, in order.

        The calling thread wakes for ``at_once`` values together. By then as many tasks, and one more for each thread,
        have been submitted. No task is at work after the iterator's end.
        """
        tasks = deque()
        try:
            for item in items:
                tasks.append(self.submit(function, item))
                if len(tasks) == self.n_threads + at_once:
                    (<Task>tasks[at_once - 1])._wait()
                    for _ in range(at_once):
                        yield tasks.popleft().result()
            while tasks:
                yield tasks.popleft().result()
        finally:
            for task in tasks:
                (<Task>task)._is_cancelled = True
            for task in tasks:
                (<Task>task)._wait()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.is_ending, error = True, None
        scratch().clear()
        try:
            while True:
                task = self._queue.get_nowait()
                (<Task?>task)._is_cancelled = True
                (<Task>task)._run()
        except Empty:
            pass
        for _ in self._ended:
            self._queue.put(None)
        while self._ended:
            try:
                self._ended[0].acquire()
                self._ended.popleft()
            except BaseException as raised:
                error = raised
        if error is not None:
            raise error

    def __del__(self):
        for _ in self._ended:
            self._queue.put(None)
