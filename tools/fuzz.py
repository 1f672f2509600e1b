"""Fuzz one target: inputs are changed at random, and those that reach new lines of xgpc are changed further.

    python tools/fuzz.py TARGET [--seconds 600]

A finding is an exception that is no refusal, an answer that is none, a crash, more than 20 seconds for an input, or
more than 2 GB. A target's inputs are kept in a folder of temporary files, where a later run goes on. ``--input FILE``
tries one again. It needs atheris, which xgpc does not depend on: pip install atheris. Targets:

model     files of models, in which arrays, their shapes and values of the header change: each is refused, or predicts
table     tables of numbers, text, missing, infinite and huge values, for fits with several options
csv       CSV files, for the commands ``fit``, ``predict`` and ``evaluate``
parquet   Parquet files, as bytes or with columns of several types, for these commands
core      sites, predictive probabilities, kernels, the search of near rows, and posteriors with neighbours
"""

import argparse
import gc
import io
import linecache
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from types import FunctionType

import atheris
import numpy as np
import pandas as pd
import pyarrow as pa
from fuzz_inputs import (
    CELLS,
    NUMBERS,
    SHORT,
    TYPES,
    changed_model,
    columns,
    kernels,
    model_seeds,
    own_rows,
    picker,
    random_seeds,
    row_seeds,
)
from pyarrow import csv, parquet

from xgpc import GPClassifier, GPOrdinalClassifier, GPPreference
from xgpc._sites import sites
from xgpc.app.cli import Exit
from xgpc.app.cli import main as command
from xgpc.approximations.local import LocalPosterior
from xgpc.approximations.sparse import SparsePrior
from xgpc.kernels.spec import KernelSpec
from xgpc.likelihoods import LIKELIHOODS, MULTI_CLASS, ORDERED, record_of
from xgpc.rows.neighbours import Metric, Neighbours

FOLDER = Path(tempfile.gettempdir()) / "xgpc-fuzz"


def is_refusal(error):
    """Whether it is a ValueError or TypeError that was meant: of a line with ``raise``, or NumPy's about an array."""
    trace = error.__traceback__
    while trace.tb_next:
        trace = trace.tb_next
    file = trace.tb_frame.f_code.co_filename
    line = linecache.getline(file, trace.tb_lineno).strip()
    is_meant = line.startswith("raise") or "asarray(" in line or "sklearn" in file
    return isinstance(error, ValueError | TypeError) and is_meant and str(error).strip() != ""


def are_finite(*arrays):
    return all(np.all(np.isfinite(array)) for array in arrays)


def check_probabilities(p):
    assert are_finite(p), p
    assert np.all(p >= 0.0), p
    assert np.allclose(p.sum(axis=-1), 1.0, atol=1e-9), p


def model(data):
    Path("model.npz").write_bytes(data)
    for kind in (GPClassifier, GPOrdinalClassifier, GPPreference):
        try:
            found = kind.load("model.npz")
            if kind is GPPreference:
                p = found.predict_proba(np.zeros((1, found.n_features_in_)), np.ones((1, found.n_features_in_)))
                check_probabilities(np.column_stack([p, 1.0 - p]))
            else:
                check_probabilities(found.predict_proba(own_rows(found)))
        except ValueError as error:
            if not is_refusal(error):
                raise


def table(data):
    take = atheris.FuzzedDataProvider(data)
    n, pick = take.ConsumeIntInRange(2, 24), picker(take)
    y = [pick(pick([("no", "yes"), (0, 1), (0.0, 1.0, 2.0), ("a", "b", "c"), (*"ab", None), CELLS])) for _ in range(n)]
    options = {
        "n_neighbors": pick([0, 2, "auto"]),
        "likelihood": pick(["logit", *LIKELIHOODS]),
        "precision": pick(["double", "mixed"]),
        "feature_transform": pick(["auto", None]),
        "inducing_points": pick(["kmeans", "all"]),
        "kernel": pick([None, *kernels(pick)]),
    }
    found = dict(columns(take, n))
    rows = list(zip(*found.values(), strict=True))
    try:
        X = [pd.DataFrame, pa.table, lambda _: rows, lambda _: np.array(rows, float)][take.ConsumeIntInRange(0, 3)](
            found
        )
    except Exception:
        return  # the other library makes no such table
    try:
        fitted = GPClassifier(**SHORT | options).fit(X, y)
        check_probabilities(fitted.predict_proba(X))
        assert are_finite(*fitted.predict_latent(X))
    except (ValueError, TypeError) as error:
        if not is_refusal(error):
            raise


def commands(path):
    """The three commands on a file of rows, which end with 0, or with 2 and a message."""
    options = ["--inducing", "4", "--max-iter", "3", "--max-time", "2", "--jobs", "1", "--neighbors", "0"]
    Path("made.npz").unlink(missing_ok=True)
    for arguments in (
        ["fit", path, "--target", "y", "--model", "made.npz", *options],
        ["predict", "made.npz", path, "--output", "out.csv"],
        ["evaluate", "made.npz", path, "--target", "y"],
        ["predict", "fitted.npz", path, "--output", "out.csv"],
    ):
        if arguments[1] == "made.npz" and not Path("made.npz").exists():
            continue
        with redirect_stderr(io.StringIO()) as said, redirect_stdout(io.StringIO()):
            status = command(arguments)
        n_errors = said.getvalue().count("xgpc: error: ")
        assert (status, n_errors) in ((Exit.OK, 0), (Exit.BAD_INPUT, 1)), (status, said.getvalue())
        if arguments[0] == "predict" and status == Exit.OK:
            found = csv.read_csv("out.csv").to_pandas()
            check_probabilities(found[[one for one in found if one.startswith("probability_")]].to_numpy(float))


def csv_file(data):
    Path("rows.csv").write_bytes(data)
    commands("rows.csv")


def parquet_file(data):
    Path("rows.parquet").write_bytes(data)
    if not data.startswith(b"PAR1"):
        take = atheris.FuzzedDataProvider(data)
        pick, n = picker(take), take.ConsumeIntInRange(0, 12)
        found = dict(columns(take, n))
        found["y"] = [pick(["no", "yes", pick(CELLS)]) for _ in range(n)]
        try:
            arrays = [pa.array(cells, pick([None, *TYPES])) for cells in found.values()]
            parquet.write_table(pa.table(arrays, list(found)), "rows.parquet")
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            return  # there is no such file
    commands("rows.parquet")


def core(data):
    take = atheris.FuzzedDataProvider(data)
    pick, n = picker(take), take.ConsumeIntInRange(1, 40)
    most = pick([0.0, 1.0, 1e3, 1e9])

    def numbers(*shape):
        size = int(np.prod(shape))
        some = [pick([0.0, 1.0, -0.5, 0.25, 1e-9]) for _ in range(0 if most else size)]
        return np.array(some or take.ConsumeFloatListInRange(size, -most, most)).reshape(shape)

    pick([check_sites, check_rows])(pick, numbers, n)


def check_sites(pick, numbers, n):
    name = pick(LIKELIHOODS)
    record, is_ordinal = record_of(name, pick(LIKELIHOODS[name])), name in ORDERED
    classes = pick([2, 3, 7]) if is_ordinal or name in MULTI_CLASS else 2
    parameter = np.linspace(-1.0, 2.0, classes - 1) if is_ordinal else pick([0.01, 1e-6, 0.3])
    shape = (n,) if record.n_latents(classes) == 1 else (classes, n)
    mean, variance = pick([1.0, 1e90]) * numbers(*shape), pick([1.0, 1e90]) * np.abs(numbers(*shape))
    labels = range(classes) if len(shape) == 2 else range(-1, 2 * classes - 2, 2)
    y = np.array([float(pick(labels)) for _ in range(n)])
    ell, precision, linear = np.empty(n), np.empty(shape), np.empty(shape)
    sites(record.at(parameter).site(classes), mean, variance, y, np.empty(0), ell, precision, linear)
    assert are_finite(ell, precision, linear), (name, ell, precision, linear)
    assert np.all(ell <= 1e-5), (name, ell)
    assert record.has_wrong_labels or np.all(precision >= 0.0), (name, precision)
    check_probabilities(np.exp(record.at(parameter).log_probabilities(mean.T, variance.T)))
    # Numbers that are not finite may have any site.
    for moments in (mean, variance):
        for place in range(0, moments.size, 3):
            moments.flat[place] = pick(NUMBERS)
    sites(record.at(parameter).site(classes), mean, variance, y, np.empty(0), ell, precision, linear)


def check_rows(pick, numbers, n):
    d, m, k = pick([1, 2, 5, 20]), pick([1, 2, 5]), 1 + n // 3
    X, Z, kernel = numbers(n, d), numbers(m, d), pick(kernels(pick))
    for metric in (Metric(), Metric(pick([1.0, 1e-3, 1e3]), 1)):
        for z, index in zip(Z, Neighbours(X, metric).of(Z, k), strict=True):
            distances = metric.distances(X, z)
            assert np.allclose(distances[index], np.sort(distances)[:k]), (distances, index)
    try:
        prior = SparsePrior.build(KernelSpec(kernel, d), Z, np.float64)
    except ValueError as error:
        if is_refusal(error):
            return
        raise
    assert are_finite(prior.core.cross(X)), (kernel, X, Z)
    precision, w, V, ones = np.abs(numbers(1, n)), numbers(1, m), 0.5 * np.eye(m)[None], np.ones(n)
    mean, variance = LocalPosterior(prior, X, ones, ones, precision, numbers(1, n), w, V, k).marginals(X)
    # With larger numbers the rounding errors of the kernel's values matter.
    largest = np.max(prior.core.diagonals(np.concatenate([X, Z]))) * max(np.max(precision), 1.0)
    if largest < 1e12 and np.max(np.abs(X)) <= 1e3:
        assert are_finite(mean, variance), (kernel, mean, variance)
        assert np.all(variance >= 0.0), (kernel, variance)


# The function, its seeds, the largest number of bytes, and how inputs are changed.
TARGETS = {
    "model": (model, model_seeds, 2**16, {"custom_mutator": changed_model}),
    "table": (table, random_seeds, 2**11, {}),
    "csv": (csv_file, row_seeds, 2**10, {}),
    "parquet": (parquet_file, lambda: (*row_seeds(), *random_seeds()), 2**12, {}),
    "core": (core, random_seeds, 2**12, {}),
}


def fuzz(name, options):
    """Run a target in this process, which libFuzzer ends."""
    function, seeds, most, mutator = TARGETS[name]
    warnings.simplefilter("ignore")
    for i, content in enumerate(seeds()):
        (Path("corpus") / f"seed{i}").write_bytes(content)
    import_module("xgpc.app.commands")
    for one in gc.get_objects():
        if isinstance(one, FunctionType) and (one.__module__ or "").startswith("xgpc"):
            atheris.instrument_func(one)
    limits = ["-timeout=20", "-rss_limit_mb=2048", f"-max_len={most}", "-print_final_stats=1"]
    atheris.Setup([name, *limits, *options], function, **mutator)
    atheris.Fuzz()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--input", type=Path, help="try this file alone")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    folder, start = FOLDER / given.target, time.perf_counter()
    (folder / "corpus").mkdir(parents=True, exist_ok=True)
    if given.child:
        options = [str(given.input.resolve())] if given.input else [f"-max_total_time={given.seconds}", "corpus"]
        os.chdir(folder)
        fuzz(given.target, options)
    child = [sys.executable, str(Path(__file__).resolve()), *sys.argv[1:], "--child"]
    done = subprocess.run(child, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True, errors="replace")
    runs = re.findall(r"number_of_executed_units: (\d+)", done.stdout) or ["?"]
    edges = re.findall(r" cov: (\d+)", done.stdout) or ["?"]
    written = re.findall(r"Test unit written to (\S+)", done.stdout)
    if done.returncode:
        print(done.stdout[-8000:])
    result = f"see {folder / written[-1]}" if written else "a finding, see above" if done.returncode else "no finding"
    seconds = time.perf_counter() - start
    print(f"{given.target}: {runs[-1]} inputs, {seconds:.0f} s, edges {edges[0]} to {edges[-1]}: {result}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
