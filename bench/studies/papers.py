"""The papers' tables beside ours.

Each published number next to what `xgpc.systems` of that name does, one thread; what the differences come from is said
in [the guide](guide/papers.md). Features are in units of the training rows' deviations. Errors, means of the negative
log likelihood (NLL) and its median over test rows; seconds are of the whole fit, with k-means. Ten stratified folds on
diabetes-pima, german and the sets of the support vector machine; elsewhere a tenth of the rows is for testing, once or
a few times. "One length scale" is the kernel of the X-GPC paper, a variance, one length scale and noise, where ours has
a length scale for each feature and no noise; "profile" is the way of this library to learn, at the same likelihood,
bound and number of inducing points, for at most two minutes. Higgs, SUSY and covtype are samples; shuttle is class 0
against the rest.

Next to the SVGP of GPyTorch and GPflow: mini-batches of 100 rows, 100 inducing points, the same kernel and k-means
centres to begin with, Adam for all that these two learn, as in the paper. Each method is measured by the seconds to the
test NLL that profile reaches with the method's own bound, plus .005; and to the lowest NLL that the method itself
reaches, plus .005. X-GPC's points are fits of their own of more and more epochs.
"""

import time
from functools import partial

import numpy as np
from internals import mini_batch_steps, moving_prior, prior_of, single_threaded_blas, site_of
from markdown_tables import number, table
from measure import mean_of, median_of, seconds, timed_fit
from methods import method
from methods.checkpoints import start_centres
from problems import load, split, standardised
from published import ADDITIVE_NOISE, GRID_POINTS, GRID_SECONDS, S_BSVM_SECONDS, TUNING_SECONDS, X_GPC
from records import LIBRARY
from sklearn.datasets import make_classification
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from threadpoolctl import threadpool_limits

from xgpc import BayesianLinearClassifier, systems

from . import Option, Part
from .learning import best, curve, first_within, warm_up
from .multi_class import SETS as SOFTMAX
from .paper_figures import found_of
from .svm import SETS as S_BSVM
from .svm import folds

DEPENDS = (*LIBRARY, "xgpc/catalogue.py", "xgpc/**/linear*.py", "xgpc/**/row_span.py")
TIMED = True
JAAKKOLA_JORDAN = ("german-numer", "svmguide1", "magic", "a8a")
# Adam for all, as in the paper.
PEERS = {"gpytorch": {}, "gpflow": {"natural_rate": None}}
# Sets of each table.
TABLES = {
    "x-gpc": tuple(X_GPC),
    "svgp": ("electricity", "bank-marketing", "covtype"),
    "svm": tuple(S_BSVM_SECONDS),
    "noise": tuple(ADDITIVE_NOISE),
    "jaakkola-jordan": JAAKKOLA_JORDAN,
    "systems": (),
    "steps": (),
}
SETS = tuple(dict.fromkeys(name for names in TABLES.values() for name in names))
OPTIONS = {
    "tables": Option(tuple(TABLES), f"some of {', '.join(TABLES)}"),
    "folds": Option(10, "of the ten of small sets"),
    "full_folds": Option(1, "of the ten, that the full process on waveform is fitted to"),
    "splits": Option(1, "random splits of the other sets"),
    "seconds": Option(60.0, "of training that GPyTorch and GPflow may take"),
    "peers": Option(tuple(PEERS), "libraries beside X-GPC"),
}
QUICK = {"sets": ["breast-cancer"], "tables": ["x-gpc", "svm", "noise", "jaakkola-jordan"], "folds": 2}
THREADS, N_INDUCING, SMALL = 1, 100, 1000
POLYA_GAMMA = {"likelihood": "logit", "bound": "polya-gamma"}
# Of shuttle it takes longer, and of the others at most half of that.
LONGEST = 120.0
PROFILE = {
    "max_time": LONGEST,
    "optimizer": "profile",
    "n_inducing": N_INDUCING,
    "n_neighbors": 0,
    "length_scale_prior": None,
}
# What a method's own bound has its maximum found of.
OWN_BOUND = {
    "X-GPC": POLYA_GAMMA, "gpytorch": {"likelihood": "probit", "bound": "exact"},
    "gpflow": {"likelihood": "probit", "bound": "exact"},
}  # fmt: skip
MARGIN = 0.005
BINARY_NOISE = {"GPCaug": "X-GPC", "GPC-I": "GPC-I", "GPC-II": "GPC-II", "GPC-III": "GPC-III"}
SEVERAL_NOISE = {"GPCaug": "GPCaug-mc", "GPC-I": "GPC-I-mc", "GPC-II": "GPC-II-mc", "GPC-III": "GPC-III-mc",
                 "GPCsm": "GPCsm"}  # fmt: skip
VI_JJ = ("vi-JJ", "vi-JJ-full", "vi-JJ-hybrid", "vi-Taylor")
# Length scale of the paper's figure 1 on waveform: exp(-|x - x'|^2 / 5^2); elsewhere where ours start.
WAVEFORM, WAVEFORM_LENGTH_SCALE = "waveform-raetsch", 5.0 / np.sqrt(2.0)
# Steps of the length scale, as many as in the paper: 6.11 where 17 of them come to 6.08, in a sixth of the time.
TUNING_STEPS = 5
GRID, GRID_FOLDS = np.geomspace(1.0, 30.0, 13), 3
STEPS, BATCH_ROWS, STEP_FEATURES = 1000, 100, 20
# In the place of what a paper does not have.
NOTHING = ["", ""]


def fitted(settings, data, kernel=None):
    model = method("xgpc").make(THREADS, kernel=kernel, **settings)
    return model, timed_fit(model, data.X, data.y)


def fit(settings, data, kernel=None):
    """Scores of a fit and its seconds."""
    model, spent = fitted(settings, data, kernel)
    return {**found_of(model, data, spent), "elbo": model.elbo_, "converged": model.converged_}


def several(splits, function):
    """Runs of a function of a split, by its keys."""
    runs = [function(data) for data in splits]
    return {key: [run[key] for run in runs] for key in runs[0]}


def random_splits(problem, n):
    return [split(problem, seed) for seed in range(n)]


def x_gpc_ways(data):
    d = data.X.shape[1]
    one_length_scale = ConstantKernel() * RBF(np.sqrt(d)) + WhiteKernel()
    found = {
        "X-GPC": fit(systems["X-GPC"], data),
        "one length scale": fit(systems["X-GPC"], data, one_length_scale),
        "profile": fit({**POLYA_GAMMA, **PROFILE}, data),
    }
    if len(data.y) <= SMALL:
        found |= {
            "X-GPC-batch": fit(systems["X-GPC-batch"], data),
            "one length scale, batch": fit(systems["X-GPC-batch"], data, one_length_scale),
        }
    return found


def x_gpc(problem, options):
    problem = problem._replace(y=np.minimum(problem.y, 1))
    small = len(problem.y) <= SMALL
    splits = folds(problem, options.folds) if small else random_splits(problem, options.splits)
    return {"rows": len(problem.y), "features": problem.X.shape[1], **several(splits, x_gpc_ways)}


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


def svgp(problem, options):
    data = split(problem, 0)
    kernel = ConstantKernel(1.0) * RBF(np.full(data.X.shape[1], np.sqrt(data.X.shape[1])))
    paths = {"X-GPC": x_gpc_path(data, kernel, options.seconds)}
    if options.peers:
        warm_up(options.peers, THREADS)
    for name in options.peers:
        paths[name] = curve(name, data, THREADS, options.seconds, batch_rows=BATCH_ROWS, **PEERS[name])
    bounds = {tuple(OWN_BOUND[name].values()): OWN_BOUND[name] for name in paths}
    ends = {words: fit({**bound, **PROFILE}, data, kernel) for words, bound in bounds.items()}
    optimum = {name: ends[tuple(OWN_BOUND[name].values())] for name in paths}
    return {"rows": len(problem.y), "paths": paths, "optimum": optimum}


def fixed(length_scale):
    return ConstantKernel(1.0, "fixed") * RBF(length_scale, "fixed")


def brier_and(settings, data, kernel):
    """Scores of a fit with a fixed kernel, and the Brier score, which that paper has."""
    model, spent = fitted(settings, data, kernel)
    p = model.predict_proba(data.X_test)[:, 1]
    return {**found_of(model, data, spent), "brier": float(np.mean((p - data.y_test) ** 2))}


def tuned(data):
    """The length scale of the highest bound, by so many steps of L-BFGS on all rows, and its seconds."""
    start = ConstantKernel(1.0, "fixed") * RBF(np.sqrt(data.X.shape[1]), (GRID[0], GRID[-1]))
    bound = {"likelihood": "svm", "bound": "augmented"}
    model, spent = fitted({**bound, **PROFILE, "learn_inducing": False, "max_iter": TUNING_STEPS}, data, start)
    return {"length_scale": float(np.exp(model.kernel_.theta[0])), "seconds": spent}


def svm(problem, options):
    """S-BSVM and B-BSVM at one kernel; on waveform the tuning of the length scale and a grid of them, too."""
    every = folds(problem, options.folds)
    is_waveform = problem.name == WAVEFORM
    full = every[: options.full_folds] if is_waveform else every
    scales = [{"length_scale": WAVEFORM_LENGTH_SCALE, "seconds": 0.0} if is_waveform else tuned(data) for data in every]
    found = {"rows": len(problem.y), "scales": scales}
    for name, data in (("S-BSVM", every), ("B-BSVM", full)):
        found[name] = [
            brier_and(systems[name], one, fixed(scale["length_scale"]))
            for one, scale in zip(data, scales, strict=False)
        ]
    if is_waveform:
        few = every[:GRID_FOLDS]
        found["tuned"] = [tuned(data) for data in few]
        found["at_tuned"] = [
            brier_and(systems["S-BSVM"], data, fixed(one["length_scale"]))
            for data, one in zip(few, found["tuned"], strict=True)
        ]
        found["grid"] = [[brier_and(systems["S-BSVM"], data, fixed(scale)) for scale in GRID] for data in few]
    return found


def noise(problem, options):
    names = SEVERAL_NOISE if problem.y.max() > 1 else BINARY_NOISE
    d = problem.X.shape[1]
    kernel = ConstantKernel(5.0, (1e-2, 1e5)) * RBF(np.full(d, np.sqrt(d)), (1e-2, 1e3))

    def ways(data):
        return {paper: fit(systems[name], data, kernel) for paper, name in names.items()}

    return {"rows": len(problem.y), **several(random_splits(problem, options.splits), ways)}


def jaakkola_jordan(problem, options):
    def ways(data):
        found = {name: fit(systems[name], data) for name in VI_JJ}
        settings = {**POLYA_GAMMA, **PROFILE, "learn_inducing": False}
        return {**found, "profile": fit(settings, data)}

    return {"rows": len(problem.y), **several(random_splits(problem, options.splits), ways)}


def shape_of_image():
    """Two classes in the shape of the benchmark image of Raetsch and others."""
    X, y = make_classification(2310, 18, n_informative=10, n_clusters_per_class=6, class_sep=1.2, flip_y=0.02,
                               random_state=0)  # fmt: skip
    return standardised(X, y, slice(2079), slice(2079, None))


def four_classes():
    X, y = make_classification(5500, 24, n_informative=12, n_classes=4, n_clusters_per_class=3, class_sep=1.5,
                               flip_y=0.02, random_state=0)  # fmt: skip
    return standardised(X, y, slice(5000), slice(5000, None))


def system(name):
    data = four_classes() if name.endswith("-mc") or name == "GPCsm" else shape_of_image()
    if name != "linear-BSVM":
        return fit(systems[name], data)
    model = BayesianLinearClassifier(**systems[name], n_jobs=THREADS)
    return found_of(model, data, timed_fit(model, data.X, data.y))


def every_system():
    """All of them, the first fit of the process not counted."""
    fit(systems["vi-JJ"], shape_of_image())
    return {"systems": {name: system(name) for name in systems}}


def steps_a_second(repeats=5, steps=STEPS, rows=20_000, m=N_INDUCING):
    """Compiled mini-batch steps at a kernel that stays, and with a step of Adam after each, or after one in ten."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, STEP_FEATURES))
    y = np.sign(X[:, 0] * X[:, 1] + 0.5 * rng.normal(size=rows))
    prior = prior_of(ConstantKernel(2.0) * RBF(np.full(STEP_FEATURES, np.sqrt(STEP_FEATURES))), X[:m])
    order = rng.integers(0, rows, steps * BATCH_ROWS).astype(np.intp)
    site, found = site_of("logit", "polya-gamma"), {}
    for name, learns in (("kernel stays", {}), ("Adam after each", {"every": 1}), ("after one in ten", {"every": 10})):
        if learns:
            learns["moving"] = moving_prior(prior)
        run = mini_batch_steps(X, y, prior, site, order, BATCH_ROWS, **learns)
        found[name] = [steps / spent for spent in seconds(run, repeats)]
    return {"steps_a_second": found}


MEASURES = {"x-gpc": x_gpc, "svgp": svgp, "svm": svm, "noise": noise, "jaakkola-jordan": jaakkola_jordan}


def parts(options):
    with threadpool_limits(THREADS), single_threaded_blas():
        for title in options.tables:
            # A set that no table has, such as those of a quick run, is measured for each.
            names = [name for name in options.sets if name in TABLES[title] or name not in SETS]
            for name in names if title in MEASURES else ():
                problem = load(options.data, name)
                yield Part(f"{title}: {name}", partial(MEASURES[title], problem, options), name, problem.hash)
        if "systems" in options.tables:
            yield Part("systems", every_system)
        if "steps" in options.tables:
            yield Part("steps", steps_a_second)


def with_deviation(runs, key):
    values = [run[key] for run in runs]
    return f"{np.mean(values):.3f}" + (f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else "")


def said(pair):
    return "" if pair is None else f"{pair[0]:.2f} ± {pair[1]:.2f}"


def of_table(records, title):
    """Numbers of a table's records by set, in its order."""
    found = {name.partition(": ")[2]: record["numbers"] for name, record in records.items()
             if name.partition(": ")[0] == title}  # fmt: skip
    return {name: found[name] for name in dict.fromkeys([*TABLES[title], *found]) if name in found}


def x_gpc_rows(found):
    """(label, published numbers, numbers, ways) of each row; a set of few rows has a second, of the full batch."""
    for name, numbers in found.items():
        yield name, X_GPC.get(name), numbers, ("X-GPC", "one length scale", "profile")
        if "X-GPC-batch" in numbers:
            ways = ("X-GPC-batch", "one length scale, batch", "profile")
            yield f"{name}, all rows in each step", X_GPC.get(name), numbers, ways


def x_gpc_table(records):
    errors, likelihoods, times = [], [], []
    for label, paper, numbers, ways in x_gpc_rows(of_table(records, "x-gpc")):
        runs = [numbers[way] for way in ways]
        sizes, published = [f"{numbers['rows']} x {numbers['features']}", ""], {}
        if paper:
            sizes[1] = f"{paper.rows} x {paper.features}"
            published = {"error": [said(paper.error), said(paper.their_error)],
                         "nll": [said(paper.nll), said(paper.their_nll)],
                         "seconds": [f"{paper.seconds[0]:g}", f"{paper.their_seconds[0]:g}"]}  # fmt: skip
        ours = [with_deviation(run, "error") for run in runs]
        errors.append([label, *sizes, *published.get("error", NOTHING), *ours])
        scores = [with_deviation(run, score) for score in ("median", "nll") for run in runs]
        likelihoods.append([label, *published.get("nll", NOTHING), *scores])
        spent = [median_of(run, "seconds") for run in runs]
        faster = f"{paper.seconds[0] / spent[0]:.1f}" if paper else ""
        ended = ["" if all(one["converged"] for one in run) else ", not converged" for run in runs]
        ours = [f"{one:.2f}{end}" for one, end in zip(spent, ended, strict=True)]
        times.append([label, *published.get("seconds", NOTHING), *ours, faster])
    three = ["X-GPC", "X-GPC, one length scale", "profile"]
    theirs = ["the paper's X-GPC", "its SVGPC"]
    return "\n\n".join([
        table(["error", "rows x features", "the paper's", *theirs, *three], errors),
        table(["NLL", *theirs, *(f"median: {way}" for way in three), *(f"mean: {way}" for way in three)], likelihoods),
        table(["seconds", *theirs, *three, "the paper's X-GPC / X-GPC"], times),
    ])  # fmt: skip


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
    header = ["set", "method", "NLL of its bound's maximum", "seconds to that + .005", "lowest NLL",
              "seconds to that + .005", "X-GPC's to the same", "times as fast"]  # fmt: skip
    return table(header, rows)


def svm_table(records):
    rows, text = [], ""
    for name, numbers in of_table(records, "svm").items():
        fast, full = numbers["S-BSVM"], numbers["B-BSVM"]
        spent = [median_of(runs, "seconds") for runs in (fast, full)]
        paper, theirs = S_BSVM.get(name, {}), S_BSVM_SECONDS.get(name, ("", ""))
        rows.append([
            name, said(paper.get("error")), with_deviation(fast, "error"), with_deviation(full, "error"),
            said(paper.get("brier")), with_deviation(fast, "brier"), with_deviation(full, "brier"),
            str(theirs[0]), f"{spent[0]:.2f}", f"{spent[1]:.2f}", f"{spent[1] / spent[0]:.1f}",
        ])  # fmt: skip
        text += tuning(numbers) if "grid" in numbers else ""
    header = ["set", "error: the paper's S-BSVM", "S-BSVM", "B-BSVM", "Brier score: the paper's S-BSVM", "S-BSVM",
              "B-BSVM", "seconds: the paper's S-BSVM", "S-BSVM", "B-BSVM", "B-BSVM's / S-BSVM's"]  # fmt: skip
    return table(header, rows) + text


def tuning(numbers):
    """A sentence about the length scale of the highest bound and the best one of the grid."""
    errors = np.array([[run["error"] for run in runs] for runs in numbers["grid"]])
    spent = np.sum([[run["seconds"] for run in runs] for runs in numbers["grid"]], axis=1)
    chosen = int(np.argmin(errors.mean(axis=0)))
    return (
        f"\n\nOn {WAVEFORM} the bound's length scale is {mean_of(numbers['tuned'], 'length_scale'):.2f}, found in "
        f"{median_of(numbers['tuned'], 'seconds'):.2f} s (the paper: {TUNING_SECONDS} s); the error there is "
        f"{mean_of(numbers['at_tuned'], 'error'):.4f}, at the best of {len(GRID)} length scales, {GRID[chosen]:.2f}, "
        f"{errors[:, chosen].mean():.4f}. That grid takes {np.median(spent):.1f} s for a fold, one of {GRID_POINTS} "
        f"would take {np.median(spent) / len(GRID) * GRID_POINTS:.0f} s (the paper, ten folds: {GRID_SECONDS} s)."
    )


def noise_rows(name, numbers):
    """(system, published accuracy and NLL) of a set."""
    accuracies, nlls = ADDITIVE_NOISE.get(name, ([None] * 4, [None] * 4))
    yield from zip(BINARY_NOISE, accuracies, nlls, strict=True)
    if "GPCsm" in numbers:
        softmax = SOFTMAX.get(name)
        yield "GPCsm", softmax and 100.0 * softmax.accuracy, softmax and softmax.nll


def noise_table(records):
    rows = []
    for name, numbers in of_table(records, "noise").items():
        for way, accuracy, nll in noise_rows(name, numbers):
            runs = numbers[way]
            ours = 100.0 * (1.0 - mean_of(runs, "error"))
            rows.append([name, way, number(accuracy, 2), number(ours, 2), number(nll, 4),
                         number(mean_of(runs, "nll"), 4), f"{median_of(runs, 'seconds'):.2f}"])  # fmt: skip
    return table(["set", "system", "accuracy: the paper's", "ours", "NLL: the paper's", "ours", "seconds"], rows)


def jaakkola_jordan_table(records):
    rows = []
    for name, numbers in of_table(records, "jaakkola-jordan").items():
        for way in (*VI_JJ, "profile"):
            runs = numbers[way]
            rows.append([name, way, number(100.0 * (1.0 - mean_of(runs, "error")), 2), number(mean_of(runs, "nll"), 4),
                         number(mean_of(runs, "elbo"), 1), f"{median_of(runs, 'seconds'):.2f}"])  # fmt: skip
    return table(["set", "system", "accuracy", "NLL", "bound", "seconds"], rows)


def systems_table(records):
    found = records["systems"]["numbers"]["systems"] if "systems" in records else {}
    rows = [[name, f"{one['seconds']:.2f}", number(one["error"], 4), number(one["nll"], 4)]
            for name, one in found.items()]  # fmt: skip
    return table(["system", "seconds", "error", "NLL"], rows)


def steps_table(records):
    found = records["steps"]["numbers"]["steps_a_second"] if "steps" in records else {}
    return table(["", "steps a second"], [[name, f"{np.median(rates):.0f}"] for name, rates in found.items()])


REPORTS = {"x-gpc": x_gpc_table, "svgp": svgp_table, "svm": svm_table, "noise": noise_table,
           "jaakkola-jordan": jaakkola_jordan_table, "systems": systems_table, "steps": steps_table}  # fmt: skip


def tables(records):
    """Markdown by table, for the guide."""
    return {title: REPORTS[title](records) for title in TABLES}


def report(records):
    return "\n\n".join(tables(records).values())
