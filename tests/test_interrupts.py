"""Interrupts while threads work: none ends the process, and none leaves threads behind."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from xgpc.rows.batches import read_ahead
from xgpc.rows.executor import Threads

CAMPAIGN = Path(__file__).resolve().parents[1] / "tools" / "interrupts.py"
needs_signals = pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="interrupts of this system")


@needs_signals
def test_predictions_with_neighbours_survive_interrupts():
    """As ``tools/interrupts.py`` has it, in short: no thread is left at work, and predictions have the same bits."""
    options = ["--call", "predict", "--rows", "20000", "--interrupts", "10", "--runs", "0"]
    done = subprocess.run([sys.executable, CAMPAIGN, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@needs_signals
@pytest.mark.parametrize("kind", ["executor", "reader"])
def test_threads_have_ended_where_an_interrupt_leaves_though_the_wait_for_them_is_interrupted_too(kind):
    raised, left, is_alone = [threading.Event(), threading.Event()], threading.Event(), []

    def interrupt(number, frame):
        for event in raised:
            if not event.is_set():
                event.set()
                raise KeyboardInterrupt

    def work(item):
        for event in raised:
            # Again, if it came just before the main thread began to wait.
            while not event.wait(0.05):
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        # Long for a thread, if nobody waits for this one.
        is_alone.append(left.wait(0.3))
        return item

    def run():
        if kind == "reader":
            list(read_ahead(lambda: map(work, [0])))
        else:
            with Threads(2) as executor:
                executor.each(lambda item: work(item) if item else item, [0, 1])

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            run()
        left.set()
    finally:
        signal.signal(signal.SIGINT, before)
    assert is_alone == [False]
