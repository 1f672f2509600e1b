"""What the benchmarks share: timing, single-threaded BLAS, and the file a result goes to."""

import importlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy
from scipy.linalg import blas
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_info

RESULTS = Path(__file__).parent / "results"


def seconds(function, repeats):
    """Wall times of ``repeats`` calls after one that is not counted."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return times


def side_by_side(functions, repeats):
    """Wall times of several functions, called in turn so that a slow moment of the machine meets them all."""
    for function in functions.values():
        function()
    times = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - start)
    return times


def median_ratio(numerators, denominators):
    """Median of the ratios of calls made in the same turn."""
    return statistics.median(a / b for a, b in zip(numerators, denominators, strict=True))


def gemm_call(size=1024):
    """A dgemm of the machine's single-thread rate, and its number of flops."""
    rng = np.random.default_rng(0)
    a, b = (np.asfortranarray(rng.normal(size=(size, size))) for _ in range(2))
    c = np.zeros((size, size), order="F")
    return (lambda: blas.dgemm(1.0, a, b, 0.0, c, overwrite_c=1)), 2 * size**3


def revision():
    """The commit that is checked out, and whether the package and the benchmarks are as it has them."""
    root = RESULTS.parent.parent

    def git(*arguments):
        return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", "xgpc", "src", "bench/*.py", "meson.build")
        return {"commit": git("rev-parse", "HEAD"), "changed": bool(changed)}
    except (OSError, subprocess.CalledProcessError):
        return {"commit": None, "changed": None}


def write(name, results):
    """Store results with the command, the commit and the machine in ``bench/results/name.json``."""
    RESULTS.mkdir(exist_ok=True)
    cores = sorted({(i["internal_api"], i.get("version"), i.get("architecture")) for i in threadpool_info()}, key=str)
    machine = {
        "processor": platform.machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "libraries": [list(core) for core in cores],
    }
    arguments = ["FOLDER" if before == "--data" else a for before, a in zip(sys.argv, sys.argv[1:], strict=False)]
    command = " ".join(["python", f"bench/{Path(sys.argv[0]).name}", *arguments])
    path = RESULTS / f"{name}.json"
    content = {"command": command, **revision(), "machine": machine, **results}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {path.relative_to(RESULTS.parent.parent)}")


class Split(NamedTuple):
    """Training and test rows in float64, and labels 0 or 1."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def load(folder, name):
    """Features (n, d) in float64 and labels (n,), 0 or 1, of ``folder/name.npz``."""
    with np.load(folder / f"{name}.npz", allow_pickle=False) as file:
        return file["X"].astype(np.float64), file["y"].astype(int)


def split(X, y, seed):
    """The first tenth of a random permutation is for testing; features in units of the training rows' deviations."""
    order = np.random.default_rng(seed).permutation(len(X))
    test, train = np.split(order, [len(X) // 10])
    # A constant feature may have a deviation of rounding errors: leave it alone.
    varies = np.ptp(X[train], axis=0) > 0
    mean = np.where(varies, X[train].mean(axis=0), 0.0)
    scale = np.where(varies, X[train].std(axis=0), 1.0)
    return Split((X[train] - mean) / scale, y[train], (X[test] - mean) / scale, y[test])


def hold_out(data):
    """The training rows of a split, which are in random order, as nine tenths to fit and one tenth to choose by."""
    size = len(data.y) // 10
    return Split(data.X[size:], data.y[size:], data.X[:size], data.y[:size])


def scores(probabilities, y):
    """Mean negative log likelihood (nats) and error rate of probabilities (n, 2) at labels 0 or 1."""
    # Certainty that is wrong would cost infinitely much.
    true = np.maximum(probabilities[np.arange(len(y)), y], 1e-15)
    return {"nll": float(-np.mean(np.log(true))), "error": float(np.mean(probabilities.argmax(axis=1) != y))}


def timed_fit(model, X, y, **options):
    """Seconds that ``model.fit`` takes, its warnings about iterations silenced."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y, **options)
    return time.perf_counter() - start


def require(module, install):
    """Import a module that the package does without."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise SystemExit(f"This benchmark compares with {module}: pip install {install}") from None


def processor_seconds_of_others():
    """Processor seconds that all other processes have taken so far; NaN where the system does not tell."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            user, nice, system, _, _, interrupts, soft_interrupts, stolen = map(int, file.readline().split()[1:9])
    except OSError:
        return float("nan")
    busy = user + nice + system + interrupts + soft_interrupts + stolen
    return busy / os.sysconf("SC_CLK_TCK") - time.process_time()


class Others:
    """Cores that other processes keep busy in a ``with`` block: ``cores`` after it."""

    def __enter__(self):
        self._start = time.perf_counter(), processor_seconds_of_others()
        return self

    def __exit__(self, *exception):
        start, taken = self._start
        self.cores = (processor_seconds_of_others() - taken) / (time.perf_counter() - start)
