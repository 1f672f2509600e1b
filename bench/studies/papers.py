"""The papers' numbers beside ours

The systems of the papers (`xgpc.systems`) with one thread, and X-GPC beside the SVGP of GPyTorch and GPflow. [The
guide](guide/papers.md) has the tables, and the reasons for the differences. HIGGS, SUSY and covtype are samples; in
statlog-shuttle the classes are class 0 and all others.
"""

import time
from functools import partial

import numpy as np
import problems
from markdown_tables import number, table
from measure import scores, timed_fit
from methods import make, warm_up
from methods.checkpoints import start_centres
from published import ADDITIVE_NOISE, GPCSM, S_BSVM, X_GPC
from records import OUTPUTS_WITHOUT_NEIGHBORS, VERSION
from sklearn.datasets import make_classification
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from threadpoolctl import threadpool_limits

from xgpc import BayesianLinearClassifier, systems

from . import Part
from .svgp import best, curve, first_within

MINUTES, EXPIRES = 12, {OUTPUTS_WITHOUT_NEIGHBORS, VERSION}
# Adam for all that GPyTorch and GPflow learn, as in the paper.
PEERS = {"gpytorch": {}, "gpflow": {"natural_rate": None}}
# Sets of each table.
TABLES = {
    "x-gpc": tuple(X_GPC),
    "svgp": ("electricity", "bank-marketing"),
    "svm": tuple(S_BSVM),
    "noise": ("ringnorm", "twonorm", "page-blocks", "waveform", "waveform-noise"),
    "jaakkola-jordan": ("german-numer", "svmguide1"),
}
N_INDUCING, SMALL = 100, 1000
POLYA_GAMMA = {"likelihood": "logit", "bound": "polya-gamma"}
# This library's way to learn, for half a minute; cod-rna and shuttle would take minutes.
PROFILE = {"max_time": 30.0, "n_inducing": N_INDUCING, "n_neighbors": 0, "length_scale_prior": None}
# Of training that GPyTorch and GPflow may take, and of the NLL that counts as reached.
SECONDS, MARGIN = 60.0, 0.005
BINARY_NOISE = {"GPCaug": "X-GPC", "GPC-I": "GPC-I", "GPC-II": "GPC-II", "GPC-III": "GPC-III"}
SEVERAL_NOISE = {"GPCaug": "GPCaug-mc", "GPC-I": "GPC-I-mc", "GPC-II": "GPC-II-mc", "GPC-III": "GPC-III-mc",
                 "GPCsm": "GPCsm"}  # fmt: skip
# Length scale of the paper's figure 1 on waveform: exp(-|x - x'|^2 / 5^2).
WAVEFORM, WAVEFORM_LENGTH_SCALE = "waveform-raetsch", 5.0 / np.sqrt(2.0)
# Steps of the length scale, as many as in the paper: 6.11 where 17 of them come to 6.08, in a sixth of the time.
TUNING_STEPS = 5
# Epochs, whose difference in time is that of so many steps.
EPOCHS, BATCH_ROWS, STEP_FEATURES, STEP_ROWS = (2, 12), 100, 20, 20_000


def found_of(model, data, seconds):
    """Seconds and scores, with the median of the rows' NLL and the Brier score, which two of the papers have."""
    p = model.predict_proba(data.X_test)
    true = np.maximum(p[np.arange(len(data.y_test)), data.y_test], 1e-15)
    medians = {"median": float(-np.median(np.log(true))), "brier": float(np.mean((1.0 - true) ** 2))}
    return {"seconds": seconds, **scores(p, data.y_test), **medians}


def fit(settings, data, kernel=None):
    """Scores of a fit and its seconds."""
    model = make("xgpc", 1, kernel=kernel, **settings)
    found = found_of(model, data, timed_fit(model, data.X, data.y))
    return {**found, "elbo": model.elbo_, "converged": model.converged_}


def x_gpc(problem, n_folds):
    problem = problem._replace(y=np.minimum(problem.y, 1))
    d, is_small = problem.X.shape[1], len(problem.y) <= SMALL
    splits = problems.folds(problem, n_folds) if is_small else [problems.split(problem, 0)]
    one_length_scale = ConstantKernel() * RBF(np.sqrt(d)) + WhiteKernel()
    ways = {
        "X-GPC": (systems["X-GPC"],),
        "one length scale": (systems["X-GPC"], one_length_scale),
        "profile": ({**POLYA_GAMMA, **PROFILE},),
    }
    if is_small:
        ways["X-GPC-batch"] = (systems["X-GPC-batch"],)
        ways["one length scale, batch"] = systems["X-GPC-batch"], one_length_scale
    found = {name: [fit(settings, data, *kernel) for data in splits] for name, (settings, *kernel) in ways.items()}
    return {"rows": len(problem.y), "features": d, **found}


def x_gpc_path(data, kernel, limit):
    """Points of X-GPC with the inducing points of the others, k-means counted: fits of more and more epochs."""
    start = time.perf_counter()
    Z = start_centres(data.X, N_INDUCING)
    centres, points, epochs = time.perf_counter() - start, [], 1
    while not points or not (points[-1]["converged"] or points[-1]["seconds"] > limit):
        found = fit({**systems["X-GPC"], "inducing_points": Z, "max_iter": epochs}, data, kernel)
        points.append({**found, "seconds": centres + found["seconds"], "epochs": epochs})
        epochs += 1 + epochs // 2
    return points


def svgp(problem, n_folds, seconds=SECONDS):
    data = problems.split(problem, 0)
    kernel = ConstantKernel(1.0) * RBF(np.full(data.X.shape[1], np.sqrt(data.X.shape[1])))
    paths = {"X-GPC": x_gpc_path(data, kernel, seconds)}
    for name, settings in PEERS.items():
        warm_up(name, threads=1, seconds=1.0)
        paths[name] = curve(data, name, seconds, threads=1, batch_rows=BATCH_ROWS, **settings)
    ours, theirs = (fit({**bound, **PROFILE}, data, kernel) for bound in (POLYA_GAMMA, {"likelihood": "probit"}))
    return {"rows": len(problem.y), "paths": paths, "optimum": {"X-GPC": ours, "gpytorch": theirs, "gpflow": theirs}}


def tuned_length_scale(data):
    """The length scale of the highest bound, by a few steps of L-BFGS on all rows."""
    start = ConstantKernel(1.0, "fixed") * RBF(np.sqrt(data.X.shape[1]), (1.0, 30.0))
    settings = {"likelihood": "svm", "bound": "augmented", "learn_inducing": False, "max_iter": TUNING_STEPS}
    model = make("xgpc", 1, kernel=start, **{**PROFILE, **settings})
    timed_fit(model, data.X, data.y)
    return float(np.exp(model.kernel_.theta[0]))


def svm(problem, n_folds):
    """S-BSVM and the full process B-BSVM at one kernel; on waveform, the only set with a published one, no B-BSVM."""
    is_waveform, found = problem.name == WAVEFORM, {"rows": len(problem.y), "S-BSVM": [], "B-BSVM": []}
    for data in problems.folds(problem, n_folds):
        scale = WAVEFORM_LENGTH_SCALE if is_waveform else tuned_length_scale(data)
        for name in ("S-BSVM",) if is_waveform else ("S-BSVM", "B-BSVM"):
            found[name].append(fit(systems[name], data, ConstantKernel(1.0, "fixed") * RBF(scale, "fixed")))
    return found


def noise(problem, n_folds):
    names = SEVERAL_NOISE if problem.y.max() > 1 else BINARY_NOISE
    d = problem.X.shape[1]
    kernel = ConstantKernel(5.0, (1e-2, 1e5)) * RBF(np.full(d, np.sqrt(d)), (1e-2, 1e3))
    data = problems.split(problem, 0)
    return {"rows": len(problem.y), **{paper: [fit(systems[name], data, kernel)] for paper, name in names.items()}}


def jaakkola_jordan(problem, n_folds):
    data = problems.split(problem, 0)
    ways = {
        **{name: systems[name] for name in ("vi-JJ", "vi-JJ-full", "vi-JJ-hybrid", "vi-Taylor")},
        "profile": {**POLYA_GAMMA, **PROFILE, "learn_inducing": False},
    }
    return {"rows": len(problem.y), **{name: [fit(settings, data)] for name, settings in ways.items()}}


# Rows, features, informative ones, clusters of a class, separation and training rows of made sets, by classes: two are
# in the shape of the benchmark image of Raetsch and others.
MADE = {2: (2310, 18, 10, 6, 1.2, 2079), 4: (5500, 24, 12, 3, 1.5, 5000)}


def made(classes):
    n, d, informative, clusters, separation, train = MADE[classes]
    X, y = make_classification(n, d, n_informative=informative, n_classes=classes, n_clusters_per_class=clusters,
                               class_sep=separation, flip_y=0.02, random_state=0)  # fmt: skip
    return problems.standardised(X, y, slice(train), slice(train, None))


def every_system(names=tuple(systems)):
    """Scores of all systems, the first fit of the process not counted."""
    sets, found = {classes: made(classes) for classes in MADE}, {}
    fit(systems["vi-JJ"], sets[2])
    for name in names:
        data = sets[4 if name.endswith("-mc") or name == "GPCsm" else 2]
        if name == "linear-BSVM":
            model = BayesianLinearClassifier(**systems[name], n_jobs=1)
            found[name] = found_of(model, data, timed_fit(model, data.X, data.y))
        else:
            found[name] = fit(systems[name], data)
    return {"systems": found}


def steps_a_second(repeats=3, rows=STEP_ROWS):
    """Mini-batch steps at a kernel that stays, and with Adam's steps of kernel and inducing points, of whole fits."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, STEP_FEATURES))
    y = X[:, 0] * X[:, 1] + 0.5 * rng.normal(size=rows) > 0
    kernel = ConstantKernel(2.0) * RBF(np.full(STEP_FEATURES, np.sqrt(STEP_FEATURES)))
    steps, found = (EPOCHS[1] - EPOCHS[0]) * rows / BATCH_ROWS, {}
    for name, optimizer in (("kernel stays", None), ("Adam moves kernel and points", "stochastic")):
        settings = {**POLYA_GAMMA, "optimizer": optimizer, "batch_size": BATCH_ROWS, "tol": 0.0, "n_neighbors": 0,
                    "inducing_points": X[:N_INDUCING], "subset_sizes": None}  # fmt: skip
        models = [make("xgpc", 1, kernel=kernel, max_iter=epochs, **settings) for epochs in EPOCHS]
        times = [[timed_fit(model, X, y) for model in models] for _ in range(repeats)]
        found[name] = [steps / (longer - shorter) for shorter, longer in times]
    return {"steps_a_second": found}


MEASURES = {"x-gpc": x_gpc, "svgp": svgp, "svm": svm, "noise": noise, "jaakkola-jordan": jaakkola_jordan}


def one_thread(measure, folder, name, *arguments):
    """A measurement with one thread of BLAS, of a data set if it has a name."""
    with threadpool_limits(1):
        return measure(*((problems.load(folder, name),) if name else ()), *arguments)


def parts(data, quick):
    found = []
    for title, measure in MEASURES.items():
        arguments = (2 if quick else 10, *((0.5,) if quick and title == "svgp" else ()))
        for name in ("breast-cancer",) if quick else TABLES[title]:
            run = partial(one_thread, measure, data, name, *arguments)
            found.append(Part(f"{title}: {name}", run, name, ("xgpc", *PEERS) if title == "svgp" else ("xgpc",)))
    few, steps = (((("vi-JJ", "S-BSVM"),), (1, 500)) if quick else ((), ()))  # fmt: skip
    found.append(Part("systems", partial(one_thread, every_system, data, None, *few)))
    return [*found, Part("steps", partial(one_thread, steps_a_second, data, None, *steps))]


# Columns of the tables: key, heading and format.
COLUMNS = {
    "error": ("error", "{:.4f}"), "median": ("NLL, median", "{:.3f}"), "nll": ("NLL, mean", "{:.4f}"),
    "brier": ("Brier score", "{:.3f}"), "elbo": ("bound", "{:.1f}"), "seconds": ("seconds", "{:.2f}"),
}  # fmt: skip
SCORED = {
    "x-gpc": ("error", "median", "nll", "seconds"), "svm": ("error", "brier", "seconds"),
    "noise": ("error", "nll", "seconds"), "jaakkola-jordan": ("error", "nll", "elbo", "seconds"),
    "systems": ("error", "nll", "seconds"),
}  # fmt: skip
# Numbers of a record that are no fits of a system.
NO_SYSTEMS = ("rows", "features")


def of_table(records, title):
    """Numbers of a table's records by set, in its order."""
    found = {name.partition(": ")[2]: record["numbers"] for name, record in records.items()
             if name.partition(": ")[0] == title}  # fmt: skip
    return {name: found[name] for name in dict.fromkeys([*TABLES[title], *found]) if name in found}


def published(title, name):
    """(Label, texts by key) of what a paper prints about a set."""
    if title == "x-gpc" and name in X_GPC:
        size, *found = X_GPC[name]
        for system, (error, nll, seconds) in zip(("X-GPC", "SVGPC"), found, strict=True):
            texts = {"error": said(error), "median": said(nll), "seconds": f"{seconds:g}"}
            yield f"the paper's {system}, {size}", texts
    if title == "svm" and name in S_BSVM:
        error, brier, seconds = S_BSVM[name]
        yield "the paper's S-BSVM", {"error": said(error), "brier": said(brier), "seconds": f"{seconds:g}"}
    if title == "noise" and name in ADDITIVE_NOISE:
        for system, accuracy, nll in zip(BINARY_NOISE, *ADDITIVE_NOISE[name], strict=True):
            yield f"the paper's {system}", {"error": f"{1.0 - accuracy / 100.0:.4f}", "nll": f"{nll:.4f}"}
        if name in GPCSM:
            yield "the paper's GPCsm", {"error": f"{1.0 - GPCSM[name][0] / 100.0:.4f}", "nll": f"{GPCSM[name][1]:.4f}"}


def said(pair):
    return f"{pair[0]:.2f} ± {pair[1]:.2f}"


def cell(runs, key):
    """The mean of several fits with its deviation, of seconds the median."""
    values = [run[key] for run in runs if key in run]
    if not values:
        return ""
    if key == "seconds":
        ended = "" if all(run.get("converged", True) for run in runs) else ", not converged"
        return f"{np.median(values):.2f}{ended}"
    deviation = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return COLUMNS[key][1].format(np.mean(values)) + deviation


def scores_table(records, title, wanted=lambda label: True):
    """A row for each set and system, the paper's numbers first."""
    rows, keys = [], SCORED[title]
    for name, numbers in of_table(records, title).items():
        size = f"{numbers['rows']} x {numbers['features']}" if "features" in numbers else f"{numbers['rows']} rows"
        rows += [[name, label, *(texts.get(key, "") for key in keys)] for label, texts in published(title, name)]
        rows += [[f"{name}, {size}", way, *(cell(runs, key) for key in keys)]
                 for way, runs in numbers.items() if way not in NO_SYSTEMS and runs]  # fmt: skip
    return table(["set", "system", *(COLUMNS[key][0] for key in keys)], [row for row in rows if wanted(row[1])])


def svgp_table(records):
    rows = []
    for name, numbers in of_table(records, "svgp").items():
        for way, points in numbers["paths"].items():
            end, lowest = numbers["optimum"][way], best(points)
            to_end, to_lowest = (first_within(points, target + MARGIN) for target in (end["nll"], lowest))
            ours = first_within(numbers["paths"]["X-GPC"], lowest + MARGIN)
            cells = ["never" if one is None else f"{one:.2f}" for one in (to_end, to_lowest, ours)]
            ratio = "" if ours is None or way == "X-GPC" else f"{to_lowest / ours:.0f}"
            rows.append([name, way, number(end["nll"], 4), cells[0], number(lowest, 4), *cells[1:], ratio])
    header = ["set", "method", "NLL at the maximum of its bound", "seconds to this + .005", "lowest NLL",
              "seconds to this + .005", "seconds of X-GPC to the same", "times as fast"]  # fmt: skip
    return table(header, rows)


def systems_table(records):
    found = records["systems"]["numbers"]["systems"] if "systems" in records else {}
    rows = [[name, *(cell([one], key) for key in SCORED["systems"])] for name, one in found.items()]
    return table(["system", *(COLUMNS[key][0] for key in SCORED["systems"])], rows)


def steps_table(records):
    found = records["steps"]["numbers"]["steps_a_second"] if "steps" in records else {}
    return table(["", "steps a second"], [[name, f"{np.median(rates):.0f}"] for name, rates in found.items()])


def tables(records):
    """Markdown by table, for the guide."""
    made = {title: scores_table(records, title) for title in ("x-gpc", "svm", "noise", "jaakkola-jordan")}
    return {**made, "svgp": svgp_table(records), "systems": systems_table(records), "steps": steps_table(records)}


def report(records):
    short = scores_table(records, "x-gpc", lambda label: label == "X-GPC" or label.startswith("the paper's X-GPC"))
    return f"{short}\n\n{svgp_table(records)}"
