"""Sparse rows, and the memory that a fit to them takes.

The same training rows as a CSR matrix and as a dense array, each fitted at all defaults (of the array without
neighbours, which sparse rows do not take) in a process of its own. Beyond the rows: the most that the process had,
for reading the file, the fit and the predictions of the test rows, less what it had with all imported and what the
training rows take; asked are 300 MB. Features are as they are in the file, as those of sparse matrices are not centred.
"""

from functools import partial

import numpy as np
from markdown_tables import number, set_table
from measure import fit_and_score, peak_memory
from methods import method
from problems import Split, load
from records import LIBRARY
from scipy import sparse

from . import THREADS, Option, Part
from .larger_than_memory import alone

DEPENDS, TIMED = LIBRARY, False
SETS = ("a9a", "a8a")
OPTIONS = {"split": Option(0, "which split"), "threads": THREADS}
QUICK = {"sets": ["breast-cancer"]}
ASKED = 0.3


def fit(folder, name, seed, is_sparse, threads):
    """In a process that has done nothing else."""
    before = peak_memory()
    problem = load(folder, name)
    order = np.random.default_rng(seed).permutation(len(problem.X))
    test, train = np.split(order, [len(order) // 10])
    form = sparse.csr_matrix if is_sparse else np.ascontiguousarray
    data = Split(form(problem.X[train]), problem.y[train], form(problem.X[test]), problem.y[test])
    held = data.X.data.nbytes + data.X.indices.nbytes + data.X.indptr.nbytes if is_sparse else data.X.nbytes
    del problem
    model = method("xgpc").make(threads, n_neighbors="auto" if is_sparse else 0)
    found = fit_and_score(model, data)
    return {
        **found,
        "input": held / 1e9,
        "beyond": peak_memory() - before - held / 1e9,
        "m": model.inducing_points_.shape[0],
    }


def measure(folder, problem, seed, threads):
    kinds = {"sparse": True, "dense": False}
    fits = {kind: alone(fit, folder, problem.name, seed, is_sparse, threads) for kind, is_sparse in kinds.items()}
    return {"rows": len(problem.y), "features": problem.X.shape[1], **fits}


def parts(options):
    for name in options.sets:
        problem = load(options.data, name)
        yield Part(name, partial(measure, options.data, problem, options.split, options.threads), name, problem.hash)


def cells(numbers):
    megabytes = [f"{1e3 * numbers[kind][what]:.0f} MB" for what in ("input", "beyond") for kind in ("sparse", "dense")]
    return [
        str(numbers["rows"]), str(numbers["features"]), str(numbers["sparse"]["m"]), *megabytes,
        *(number(numbers[kind]["nll"], 4) for kind in ("sparse", "dense")),
        *(f"{numbers[kind]['seconds']:.1f} s" for kind in ("sparse", "dense")),
    ]  # fmt: skip


def report(records):
    header = [
        "set", "rows", "features", "m", "CSR", "dense", "CSR: beyond the rows", "dense", "CSR: NLL", "dense",
        "CSR: fit", "dense",
    ]  # fmt: skip
    most = max((record["numbers"]["sparse"]["beyond"] for record in records.values()), default=0.0)
    said = f"Fits to sparse rows took {1e3 * most:.0f} MB at most beyond these; asked are {1e3 * ASKED:.0f}."
    return set_table(header, records, SETS, cells) + "\n\n" + said
