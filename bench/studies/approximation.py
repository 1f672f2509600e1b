"""How near the posterior the approximations come.

Table 1 and figure 1 of X-GPC, Wenzel et al. 2019 (arXiv 1802.06383), section 5.1: a full Gaussian process on two
small sets, its Polya-Gamma posterior with and without the perturbative correction, and Gibbs samples of the true one,
400 000 states. Here the exact bound is a fourth. A tenth of the rows is for testing, features are in units of the
training rows' deviations. The paper's hyperparameters are not stated: one fixed setting for each set, and those that
the exact bound learns, of the same kernel (a variance times an RBF).

Differences are mean absolute ones of the latent means and variances at the test rows from those of one Gibbs run, in
parentheses as a share of Polya-Gamma's. "again" is another run with another seed: what of the differences is its
Monte Carlo error.
"""

from functools import partial

import numpy as np
from markdown_tables import number, table
from measure import scores, timed_fit
from problems import load, split
from records import SAMPLER
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from xgpc import GPClassifier
from xgpc.gibbs import GibbsClassifier

from . import SPLITS, THREADS, Option, Part

DEPENDS, TIMED = SAMPLER, False
# Fixed length scale and variance.
SETS = {"diabetes-pima": (3.0, 4.0), "german": (4.0, 10.0)}
# Draws kept of each of 4 chains, states for each, and proposals for each sweep.
OPTIONS = {"splits": SPLITS, "draws": Option(2000, "kept of each of 4 chains"), "threads": THREADS}
QUICK = {"sets": ["breast-cancer"], "splits": 1, "draws": 20}
THIN, PROPOSALS = 50, 200
METHODS = ("polya-gamma", "corrected", "exact", "again", "gibbs")
DRAWN = METHODS[:3]


def sample(kernel, data, seed, options):
    model = GibbsClassifier(
        kernel, n_samples=options.draws, thin=THIN, n_proposals=PROPOSALS, n_jobs=options.threads, random_state=seed
    )
    return model, timed_fit(model, data.X, data.y)


def moments_of(kernel, data, options):
    """Latent moments and probabilities of every method at the test rows, times, and the chains' diagnostics."""
    found, about = {}, {"seconds": {}, "diagnostics": []}
    for bound in ("polya-gamma", "exact"):
        model = GPClassifier(
            kernel, bound=bound, inducing_points="all", optimizer=None, tol=1e-8, n_jobs=options.threads
        )
        about["seconds"][bound] = timed_fit(model, data.X, data.y)
        found[bound] = *model.predict_latent(data.X_test), model.predict_proba(data.X_test)
        if bound == "polya-gamma":
            moments = model.predict_latent(data.X_test, corrected=True)
            found["corrected"] = *moments, model.predict_proba(data.X_test, corrected=True)
            about["bound_gap"] = model.bound_gap()
    for name, seed in (("gibbs", 0), ("again", 1)):
        model, about["seconds"][name] = sample(kernel, data, seed, options)
        found[name] = *model.predict_latent(data.X_test), model.predict_proba(data.X_test)
        about["diagnostics"].append(
            {"r_hat": model.r_hat_, "ess_of_kept": model.ess_, "acceptance_rate": model.acceptance_rate_}
        )
    return found, about


def run_of(seed, kernel, data, options):
    found, about = moments_of(kernel, data, options)
    mean, variance, _ = found["gibbs"]
    differences = {
        name: {"d_mean": float(np.mean(np.abs(found[name][0] - mean))),
               "d_variance": float(np.mean(np.abs(found[name][1] - variance))),
               **scores(found[name][2], data.y_test)}
        for name in METHODS
    }  # fmt: skip
    run = {"split": seed, "kernel": str(kernel), "methods": differences, **about}
    if seed == 0:
        # For the picture; four digits are enough there.
        run["marginals"] = {name: [np.round(values, 4).tolist() for values in (*found[name][:2], found[name][2][:, 1])]
                            for name in (*DRAWN, "gibbs")}  # fmt: skip
    return run


def learned(data, threads):
    """The kernel that the exact bound learns from the training rows."""
    d = data.X.shape[1]
    model = GPClassifier(ConstantKernel(4.0) * RBF(np.sqrt(d)), inducing_points="all", n_jobs=threads)
    timed_fit(model, data.X, data.y)
    return model.kernel_


def measure(problem, setting, options):
    length_scale, variance = SETS.get(problem.name, (4.0, 4.0))
    fixed, runs = ConstantKernel(variance) * RBF(length_scale), []
    for seed in range(options.splits):
        data = split(problem, seed)
        kernel = fixed if setting == "fixed" else learned(data, options.threads)
        runs.append(run_of(seed, kernel, data, options))
    return {"setting": setting, "runs": runs}


def parts(options):
    for name in options.sets:
        problem = load(options.data, name)
        for setting in ("fixed", "learned"):
            yield Part(f"{name}, {setting}", partial(measure, problem, setting, options), name, problem.hash)


def means(runs, key):
    return {name: float(np.mean([run["methods"][name][key] for run in runs])) for name in METHODS}


def report(records):
    rows = []
    for name, record in records.items():
        runs = record["numbers"]["runs"]
        for text, key in (("mean", "d_mean"), ("variance", "d_variance")):
            found = means(runs, key)
            first = found["polya-gamma"]
            others = (found[method] for method in ("corrected", "exact", "again"))
            shares = (f"{number(value, 4)} ({number(value / first, 2)})" for value in others)
            rows.append([name, text, number(first, 4), *shares, ""])
        for text, key in (("NLL", "nll"), ("error", "error")):
            rows.append([name, text, *(number(value, 4) for value in means(runs, key).values())])
    r_hat = max(entry["r_hat"] for record in records.values() for run in record["numbers"]["runs"]
                for entry in run["diagnostics"])  # fmt: skip
    header = ["data", "", "Polya-Gamma", "corrected", "exact", "again", "Gibbs"]
    return table(header, rows) + f"\n\nR-hat is at most {r_hat:.4f}."


def draw(records, folder):
    """Test marginals of every method against those of the Gibbs run: a row for each setting."""
    from matplotlib.figure import Figure

    first = {name: record["numbers"]["runs"][0] for name, record in records.items()}
    # Records from before the marginals were kept have a picture already.
    shown = {f"{name}: {run['kernel']}": run["marginals"] for name, run in first.items() if "marginals" in run}
    if not shown:
        return []
    figure = Figure(figsize=(10, 3.1 * len(shown)), layout="constrained")
    axes = figure.subplots(len(shown), 3, squeeze=False)
    for row, (title, found) in zip(axes, shown.items(), strict=True):
        for column, (ax, quantity) in enumerate(zip(row, ("mean", "variance", "probability"), strict=True)):
            gibbs = found["gibbs"][column]
            for name, marker in zip(DRAWN, "osx", strict=True):
                style = {"markersize": 3.5, "alpha": 0.7, "markeredgewidth": 0.7, "label": name}
                ax.plot(gibbs, found[name][column], marker, **style)
            ends = [min(gibbs), max(gibbs)]
            ax.plot(ends, ends, "k-", linewidth=0.6)
            ax.set(xlabel=f"{quantity}, Gibbs", ylabel="approximation")
        row[0].set_title(title, fontsize="medium", loc="left")
    axes[0, 0].legend()
    figure.savefig(folder / "approximation.png", dpi=80)
    return ["approximation.png"]
