"""One module for each study. Each has

DEPENDS : patterns of the files that its numbers depend on (records.hash_of)
TIMED : whether its numbers are times, which other processes spoil
SETS : names of its data sets, if it has any
OPTIONS : dict of name -> Option, its command's options besides --data and --sets
QUICK : dict of options that make a run of seconds, to see that it works
parts(options) : an iterator of Part; what it does between parts is not measured
report(records) : Markdown of its records, dict of name -> record
draw(records, folder) : pictures, if it has any; returns their names

and a docstring, which is its text in docs/benchmarks.md: a title, and what was done.
"""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Option(NamedTuple):
    """Default, text and, if the default is None, type ("kind") of a command's option; tuples take several values."""

    default: Any
    help: str
    kind: type | None = None


class Part(NamedTuple):
    """What makes one record: its name, a function that returns its raw numbers, and its data set's name and hash."""

    name: str
    measure: Callable[[], dict]
    set: str | None = None
    data: str | None = None


THREADS = Option(2, "of xgpc, and of BLAS where others use it")
SPLITS = Option(3, "random splits of each set")


def names():
    return sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))


def study(name):
    return importlib.import_module(f"studies.{name}")


def title_and_text(module):
    """Title and text of a study, from its docstring."""
    title, _, text = module.__doc__.strip().partition("\n")
    return title.rstrip("."), text.strip()
