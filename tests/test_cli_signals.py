"""Signals that reach a process of the command line, and inputs without end."""

import os
import signal
import subprocess
import sys

import pytest

from xgpc.app.arguments import MODEL_ENDING
from xgpc.app.cli import main

posix = pytest.mark.skipif(os.name != "posix", reason="signals of this system")

# Standard input that sends its reader a signal.
ENDED = """
import io, os, signal, sys
from xgpc.app.cli import command

class Ending(io.RawIOBase):
    def readable(self):
        return True

    def readinto(self, memory):
        os.kill(os.getpid(), signal.SIG{})
        memory[:4] = b"a,b\\n"
        return 4

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.stdin = io.TextIOWrapper(io.BufferedReader(Ending()))
sys.argv = ["xgpc", "fit", "-", "--target", "b", "--model", sys.argv[1]]
sys.exit(command())
"""

# The package's imports end as if interrupted.
INTERRUPTED = """
import sys
import _xgpc_command

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "sklearn":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
sys.exit(_xgpc_command.main())
"""


def run(script, *arguments, cwd):
    return subprocess.run([sys.executable, "-c", script, *arguments], cwd=cwd, capture_output=True, text=True)


@posix
@pytest.mark.parametrize(("name", "word"), [("TERM", "terminated"), ("INT", "interrupted")])
def test_a_fit_that_a_signal_ends_leaves_no_files(tmp_path, name, word):
    done = run(ENDED.format(name), str(tmp_path / f"model{MODEL_ENDING}"), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (128 + signal.Signals[f"SIG{name}"], f"xgpc: {word}\n")
    assert os.listdir(tmp_path) == []


def test_an_interrupt_of_the_imports_is_one_line(tmp_path):
    done = run(INTERRUPTED, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (130, "xgpc: interrupted\n")


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="needs a device without end")
def test_a_device_without_end_is_an_error(tmp_path, capsys):
    pytest.importorskip("pyarrow")
    assert main(["fit", "/dev/zero", "--target", "a", "--model", str(tmp_path / f"model{MODEL_ENDING}")]) == 2
    assert "'/dev/zero': " in capsys.readouterr().err
    assert os.listdir(tmp_path) == []
