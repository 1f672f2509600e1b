"""Several classes next to published figures.

Test likelihood and accuracy of softmax, exact and GPCsm. A tenth of the rows is for testing, features are in units of
the training rows' deviations, the kernel is a variance times an RBF, started at variance 5 and length scale sqrt(d).
The reference is GPCsm in Liu et al. 2019 (arXiv 1909.06541), tables III and IV: means of ten runs, a tenth of the
rows for testing, inputs normalised. Their sets are the copies of Fernandez-Delgado et al. 2014, as ours are but for
shuttle, pendigits and landsat, which are those of UCI. Means over our splits, which are others than theirs.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from markdown_tables import NOT_MEASURED, number, table
from measure import mean_of, scores, timed_fit
from methods import method
from problems import load, split
from records import LIBRARY
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from . import SPLITS, THREADS, Option, Part


class Setting(NamedTuple):
    """Inducing points, whether classes share a kernel and features a length scale, most iterations; GPCsm's figures."""

    m: int = 100
    share: str = "kernel"
    ard: bool = False
    max_iter: int = 40
    nll: float | None = None
    accuracy: float | None = None


DEPENDS, TIMED = LIBRARY, False
SETS = {
    "waveform": Setting(100, "kernel", True, 40, 0.2832, 0.8784),
    "waveform-noise": Setting(100, "kernel", True, 40, 0.2999, 0.8624),
    "page-blocks": Setting(100, "kernel", False, 40, 0.0896, 0.9710),
    "statlog-landsat": Setting(200, "none", False, 40, 0.2110, 0.9191),
    "pendigits": Setting(200, "kernel", False, 20, 0.0282, 0.9945),
    "statlog-shuttle": Setting(200, "kernel", True, 15, 0.0045, 0.9988),
    "letter": Setting(400, "kernel", False, 15, 0.1528, 0.9625),
    "wine-quality-white": Setting(200, "none", False, 20, 0.9953, 0.5724),
}
BOUNDS = ("exact", "additive-noise")
OPTIONS = {
    "splits": SPLITS,
    "threads": THREADS,
    "bounds": Option(BOUNDS, "exact, additive-noise (GPCsm)"),
    "inducing": Option(None, "points, in place of the set's own number", int),
    "max_iter": Option(None, "in place of the set's own", int),
}
QUICK = {"sets": ["iris"], "splits": 1}


def run_of(data, bound, setting, seed, threads):
    d = data.X.shape[1]
    length_scale = np.full(d if setting.ard else 1, np.sqrt(d))
    model = method("xgpc").make(
        threads, kernel=ConstantKernel(5.0, (1e-2, 1e5)) * RBF(length_scale, (1e-2, 1e3)), likelihood="softmax",
        bound=bound, n_inducing=setting.m, share=setting.share, max_iter=setting.max_iter, n_neighbors=0,
    )  # fmt: skip
    seconds = timed_fit(model, data.X, data.y)
    # A class of a handful of rows can be missing among the training rows.
    probabilities = np.zeros((len(data.y_test), 1 + max(np.max(data.y), np.max(data.y_test))))
    probabilities[:, model.classes_] = model.predict_proba(data.X_test)
    return {"split": seed, "seconds": seconds, "elbo": model.elbo_, **scores(probabilities, data.y_test)}


def measure(problem, setting, options):
    numbers = {"m": setting.m, "share": setting.share, "ard": setting.ard, "max_iter": setting.max_iter,
               "paper": {"nll": setting.nll, "accuracy": setting.accuracy}}  # fmt: skip
    splits = [split(problem, seed) for seed in range(options.splits)]
    for bound in options.bounds:
        numbers[bound] = [run_of(data, bound, setting, seed, options.threads) for seed, data in enumerate(splits)]
    return numbers


def part_name(name, options):
    """The set's name, and what of its setting and of the number of splits the options change."""
    changes = [f"m = {options.inducing}"] if options.inducing else []
    changes += [f"{options.max_iter} iterations"] if options.max_iter else []
    changes += [f"{options.splits} splits"] if options.splits != OPTIONS["splits"].default else []
    changes += [f"{bound} only" for bound in options.bounds if len(options.bounds) == 1]
    return ", ".join([name, *changes])


def parts(options):
    for name in options.sets:
        problem, setting = load(options.data, name), SETS.get(name, Setting())
        setting = setting._replace(m=options.inducing or setting.m, max_iter=options.max_iter or setting.max_iter)
        yield Part(part_name(name, options), partial(measure, problem, setting, options), name, problem.hash)


def found(runs):
    return [""] * 3 if runs is None else [
        number(mean_of(runs, "nll"), 4), number(1.0 - mean_of(runs, "error"), 4), f"{mean_of(runs, 'seconds'):.1f} s"
    ]  # fmt: skip


def report(records):
    measured = {record["set"] for record in records.values()}
    order = list(SETS)
    rows = [[name, NOT_MEASURED, *[""] * 10] for name in order if name not in measured]
    for record in sorted(records.values(), key=lambda r: order.index(r["set"]) if r["set"] in order else len(order)):
        numbers, paper = record["numbers"], record["numbers"]["paper"]
        runs = [numbers.get(bound) for bound in BOUNDS]
        splits = len(next(run for run in runs if run is not None))
        rows.append([record["set"], str(numbers["m"]), str(numbers["max_iter"]), str(splits), *found(runs[0]),
                     *found(runs[1]), number(paper["nll"], 4), number(paper["accuracy"], 4)])  # fmt: skip
    header = ["set", "m", "iterations at most", "splits", "NLL, exact", "accuracy", "fit", "NLL, GPCsm", "accuracy",
              "fit", "NLL, paper", "accuracy"]  # fmt: skip
    return table(header, rows)
