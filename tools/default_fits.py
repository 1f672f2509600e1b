"""Default fits on public data sets: seconds, test NLL, and how many calls of the package lie above the core.

    python tools/default_fits.py --data FOLDER [SET ...]
    python tools/default_fits.py --data FOLDER --frames magic

FOLDER has a file NAME.npz with arrays X and y for each set. Run it with two versions of the package in turn, three
times each, and compare medians.
"""

import argparse
import time
import traceback
import warnings
from pathlib import Path

import numpy as np

import xgpc
from xgpc import GPClassifier
from xgpc.approximations import local_rows, sparse

PACKAGE = Path(xgpc.__file__).parent
ROWS = {"magic": 3000, "banana": 2000, "electricity": 3000, "higgs": 3000, "svmguide1": 3000, "waveform": 2500,
        "pendigits": 2200, "german": 800, "splice": 2200, "bank-marketing": 3000}  # fmt: skip


class Counted:
    """A compiled module, or an object of one, that counts the package's frames above one of its functions."""

    def __init__(self, inner, name, counts):
        self._inner, self._name, self._counts = inner, name, counts

    def __getattr__(self, key):
        found = getattr(self._inner, key)
        if key == "Neighbourhoods":
            return lambda *arguments: Counted(found(*arguments), self._name, self._counts)
        if key == self._name:
            stack = traceback.extract_stack()[:-1]
            self._counts.append(sum(PACKAGE in Path(frame.filename).parents for frame in stack))
        return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=list(ROWS), metavar="SET", help=", ".join(ROWS))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--frames", action="store_true", help="count frames, which takes time")
    options = parser.parse_args()
    counts = {"update_block": [], "condition": []}
    if options.frames:
        sparse._engine = Counted(sparse._engine, "update_block", counts["update_block"])
        local_rows._local = Counted(local_rows._local, "condition", counts["condition"])
    for name in options.sets:
        file = np.load(options.data / f"{name}.npz")
        X, y, order = file["X"].astype(float), file["y"], np.random.default_rng(0).permutation(len(file["y"]))
        rows, others = order[: ROWS[name]], order[ROWS[name] : ROWS[name] + 1000]
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = GPClassifier(random_state=0).fit(X[rows], y[rows])
        seconds = time.perf_counter() - start
        log_p = model.predict_log_proba(X[others])[np.arange(len(others)), np.searchsorted(model.classes_, y[others])]
        print(f"{name}: {seconds:.2f} s, NLL {-np.mean(log_p):.4f}", flush=True)
    for name, found in counts.items():
        if found:
            print(f"frames of the package above {name}: {min(found)} to {max(found)}")


if __name__ == "__main__":
    main()
