"""What the benchmarks share: timing, single-threaded BLAS, and the file a result goes to."""

import json
import platform
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import scipy
from scipy.linalg import blas
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


def write(name, results):
    """Store results with the command and the machine in ``bench/results/name.json``."""
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
    path.write_text(json.dumps({"command": command, "machine": machine, **results}, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {path.relative_to(RESULTS.parent.parent)}")
