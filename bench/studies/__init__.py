"""One module for each study. Each has

MINUTES : planned time on two cores; all studies together take at most 170
EXPIRES : what the numbers of xgpc expire with (records.expired)
parts(data, quick) : list of Part, each one record; ``data`` is the folder of the data sets, None if none was given
report(records) : Markdown of the records that hold, dict of name -> record

and a docstring, which is its text in docs/benchmarks.md: a title, and what is measured. ``quick`` parts have tiny sizes
and show that the study works.
"""

import importlib
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from methods import METHODS

# In the order in which they are measured: those that other libraries' threads could slow come first.
ORDER = (
    "core", "small", "few", "memory", "streams", "truth", "trees", "unseen", "tuned", "autogluon", "failures",
    "papers", "svgp",
)  # fmt: skip
# In the order of the page.
NAMES = (
    "trees", "unseen", "tuned", "autogluon", "svgp", "papers", "failures", "few", "small", "memory", "streams",
    "core", "truth",
)  # fmt: skip


class Part(NamedTuple):
    """One record: its name, the function that returns its numbers, its data set, the libraries that it measures, and
    whether the numbers have times."""

    name: str
    measure: Callable[[], dict]
    set: str | None = None
    of: tuple[str, ...] = ("xgpc",)
    is_timed: bool = True


def method_parts(measure, data, sets, names, *arguments):
    """A part for each set and method: ``measure(data, set, method, *arguments)``."""
    return [
        Part(f"{one}: {name}", partial(measure, data, one, name, *arguments), one, (METHODS[name].library,))
        for one in sets for name in names
    ]  # fmt: skip


def by_set(records, sets=()):
    """Numbers of such parts by set and method, the sets in their order."""
    found = {}
    for key, record in records.items():
        one, _, name = key.rpartition(": ")
        found.setdefault(one, {})[name] = record["numbers"]
    return {one: found[one] for one in dict.fromkeys([*sets, *found]) if one in found}


def study(name):
    """The module of a study."""
    module = importlib.import_module(f"studies.{name}")
    module.NAME = name
    return module


def title_and_text(module):
    """Title and text of a study, from its docstring."""
    title, _, text = module.__doc__.strip().partition("\n")
    return title.rstrip("."), text.strip()
