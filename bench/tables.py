"""Markdown tables of stored results: learning curves, splits and trees, with every data set of each.

    python bench/tables.py

Each table is followed by the commit that its numbers were measured at, and by the sets during whose runs other
processes kept more than a twentieth of a core busy.
"""

import json

from common import RESULTS
from learning import BUSY_CORES


def table(header, rows):
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *rows)]
    return "\n".join(lines)


def source(command, entries):
    """Command, commits and busy sets of entries (name, commit, changed, cores)."""
    commits = sorted({f"{commit[:9]}{' with changes' if changed else ''}" for _, commit, changed, _ in entries})
    busy = [name for name, *_, cores in entries if not cores <= BUSY_CORES]
    also = f" Other processes ran beside {', '.join(busy)}." if busy else ""
    return f"`{command}`, at commit {', '.join(commits)}.{also}\n"


def stored(name):
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def learning():
    sets = stored("learning")["sets"]
    rows = []
    for name, found in sets.items():
        theirs, ours, ratio = (found.get(key) for key in ("reference_seconds", "xgpc_seconds", "ratio"))
        rows.append([
            name, f"{found['reference_best_nll']:.4f}", f"{theirs:.1f} s",
            "not reached" if ours is None else f"{ours:.2f} s", "" if ratio is None else f"{ratio:.1f}",
            f"{found['xgpc_best_nll']:.4f}",
        ])  # fmt: skip
    header = ["set", "GPyTorch's best NLL", "its seconds to that + .002", "xgpc's", "times as fast", "xgpc's best NLL"]
    entries = [(name, f["commit"], f["changed"], f["cores_taken_by_others"]) for name, f in sets.items()]
    return table(header, rows) + "\n\n" + source("python bench/learning.py --data FOLDER", entries)


def splits():
    found = stored("splits")
    rows = [
        [row["data"], str(row["rows"]), f"{row['reference_nll']:.3f}", f"{row['runs'][0]['nll']:.3f}",
         f"{row['medians']['nll']:.3f}", f"{row['medians']['error']:.3f}", f"{row['medians']['seconds']:.2f} s"]
        for row in found["rows"]
    ]  # fmt: skip
    entries = [(r["data"], found["commit"], found["changed"], r["cores_taken_by_others"]) for r in found["rows"]]
    header = ["set", "rows", "reference, split 0", "NLL, split 0", "median NLL", "median error", "median fit"]
    return table(header, rows) + "\n\n" + source(found["command"], entries)


def trees():
    found = stored("trees")
    rows = [
        [row["data"], str(row["rows"]), f"{row['m']:.0f}", f"{row['gp_nll']:.3f}", f"{row['trees_nll']:.3f}",
         f"{row['gp_error']:.3f}", f"{row['trees_error']:.3f}",
         f"{row['gp_seconds']:.1f} s ({row['gp_processor_seconds']:.0f} s)", f"{row['trees_seconds']:.1f} s"]
        for row in found["sets"]
    ]  # fmt: skip
    entries = [(r["data"], found["commit"], found["changed"], r["cores_taken_by_others"]) for r in found["runs"]]
    header = ["set", "rows", "m", "NLL", "LightGBM's", "error", "LightGBM's", "fit (processor)", "LightGBM's"]
    return table(header, rows) + "\n\n" + source(found["command"], entries)


if __name__ == "__main__":
    print(learning(), splits(), trees(), sep="\n")
