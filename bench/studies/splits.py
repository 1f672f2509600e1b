"""All defaults but 100 inducing points, random splits.

A tenth of the rows is for testing. The reference is the better of GPyTorch 1.15 (SVGP, Adam) and GPflow 2.11 (natural
gradients and Adam) with 100 inducing points after 20 to 100 seconds on 2 cores, on split 0; it was measured
elsewhere.
"""

from functools import partial

from markdown_tables import number, set_table, tally
from measure import fit_and_score, median_of
from methods import method
from problems import BINARY, load, split
from records import LIBRARY

from . import THREADS, Option, Part

DEPENDS, TIMED, SETS = LIBRARY, True, BINARY
OPTIONS = {"splits": Option(5, "random splits of each set"), "threads": THREADS}
QUICK = {"sets": ["breast-cancer"], "splits": 2}
N_INDUCING = 100
REFERENCE = {
    "electricity": 0.411, "magic": 0.292, "banana": 0.214, "cod-rna": 0.096, "a9a": 0.329, "covtype": 0.369,
    "higgs": 0.551, "diabetes-pima": 0.482, "german-numer": 0.340, "heart": 0.334, "ringnorm": 0.048,
}  # fmt: skip


def measure(problem, options):
    runs = []
    for seed in range(options.splits):
        model = method("xgpc").make(options.threads, n_inducing=N_INDUCING)
        runs.append({"split": seed, **fit_and_score(model, split(problem, seed))})
    return {"rows": len(problem.y), "reference_nll": REFERENCE.get(problem.name), "runs": runs}


def parts(options):
    for name in options.sets:
        problem = load(options.data, name)
        yield Part(name, partial(measure, problem, options), name, problem.hash)


def cells(numbers):
    runs = numbers["runs"]
    return [
        str(numbers["rows"]), number(numbers["reference_nll"]), number(runs[0]["nll"]), number(median_of(runs, "nll")),
        number(median_of(runs, "error")), f"{median_of(runs, 'seconds'):.2f} s",
    ]  # fmt: skip


def report(records):
    header = ["set", "rows", "reference, split 0", "NLL, split 0", "median NLL", "median error", "median fit"]
    referred = {name: record for name, record in records.items() if record["numbers"]["reference_nll"] is not None}
    pair = tally(
        referred, lambda n: (n["runs"][0]["nll"], n["reference_nll"]), "On split 0, xgpc's NLL", "the reference"
    )
    return set_table(header, records, SETS, cells) + f"\n\n{pair}"
