"""How near the posterior the approximations come: table 1 and figure 1 of X-GPC, and what the exact bound adds.

    python bench/approximation.py --data FOLDER [--splits 3] [--threads 2]

Wenzel et al. 2019 (arXiv 1802.06383), section 5.1: a full Gaussian process on two small sets, its Polya-Gamma
posterior with and without the perturbative correction, and Gibbs samples of the true one. Here the exact bound is a
fourth. FOLDER holds diabetes-pima.npz and german.npz with arrays X and y. A tenth of the rows is for testing, features
are in units of the training rows' deviations. The paper's hyperparameters are not stated: one fixed setting for each
set, and those that the exact bound learns, of the same kernel (a variance times an RBF).

Differences are mean absolute ones of the latent means and variances at the test rows from those of one Gibbs run.
"again" is another run with another seed: what of the differences is its Monte Carlo error.
"""

import argparse
import statistics
from pathlib import Path

import numpy as np
from common import RESULTS, load, scores, split, timed_fit, write
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from xgpc import GPClassifier
from xgpc.gibbs import GibbsClassifier

# Fixed length scale and variance.
SETS = {"diabetes-pima": (3.0, 4.0), "german": (4.0, 10.0)}
# Draws kept of each of 4 chains, states for each, and proposals for each sweep.
DRAWS, THIN, PROPOSALS = 2000, 50, 200
METHODS = ("polya-gamma", "corrected", "exact", "again", "gibbs")


def sample(kernel, data, seed, threads):
    model = GibbsClassifier(
        kernel, n_samples=DRAWS, thin=THIN, n_proposals=PROPOSALS, n_jobs=threads, random_state=seed
    )
    return model, timed_fit(model, data.X, data.y)


def measure(kernel, data, threads):
    """Latent moments and probabilities of every method at the test rows, times, and the chains' diagnostics."""
    found, seconds = {}, {}
    for bound in ("polya-gamma", "exact"):
        model = GPClassifier(kernel, bound=bound, inducing_points="all", optimizer=None, tol=1e-8, n_jobs=threads)
        seconds[bound] = timed_fit(model, data.X, data.y)
        found[bound] = *model.predict_latent(data.X_test), model.predict_proba(data.X_test)
        if bound == "polya-gamma":
            moments = model.predict_latent(data.X_test, corrected=True)
            found["corrected"] = *moments, model.predict_proba(data.X_test, corrected=True)
            gap = model.bound_gap()
    diagnostics = []
    for name, seed in (("gibbs", 0), ("again", 1)):
        model, seconds[name] = sample(kernel, data, seed, threads)
        found[name] = *model.predict_latent(data.X_test), model.predict_proba(data.X_test)
        diagnostics.append(
            {"r_hat": model.r_hat_, "ess_of_kept": model.ess_, "acceptance_rate": model.acceptance_rate_}
        )
    mean, variance, _ = found["gibbs"]
    rows = {}
    for name in METHODS:
        other_mean, other_variance, probabilities = found[name]
        rows[name] = {
            "d_mean": float(np.mean(np.abs(other_mean - mean))),
            "d_variance": float(np.mean(np.abs(other_variance - variance))),
            **scores(probabilities, data.y_test),
        }
    return found, {"methods": rows, "bound_gap": gap, "seconds": seconds, "diagnostics": diagnostics}


def learned(data, threads):
    """The kernel that the exact bound learns from the training rows."""
    d = data.X.shape[1]
    model = GPClassifier(ConstantKernel(4.0) * RBF(np.sqrt(d)), inducing_points="all", n_jobs=threads)
    timed_fit(model, data.X, data.y)
    return model.kernel_


def draw(pictures):
    """Test marginals of every method against those of the Gibbs run: a row for each setting."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.1 * len(pictures)), layout="constrained")
    axes = figure.subplots(len(pictures), 3)
    for row, (title, found) in zip(axes, pictures.items(), strict=True):
        for column, (ax, quantity) in enumerate(zip(row, ("mean", "variance", "probability"), strict=True)):
            values = {
                name: found[name][column][:, 1] if column == 2 else found[name][column]
                for name in (*METHODS[:3], "gibbs")
            }
            for name, marker in (("polya-gamma", "o"), ("corrected", "s"), ("exact", "x")):
                ax.plot(
                    values["gibbs"], values[name], marker, markersize=3.5, alpha=0.7, markeredgewidth=0.7, label=name
                )
            ends = [np.min(values["gibbs"]), np.max(values["gibbs"])]
            ax.plot(ends, ends, "k-", linewidth=0.6)
            ax.set(xlabel=f"{quantity}, Gibbs", ylabel="approximation")
        row[0].set_title(title, fontsize="medium", loc="left")
    axes[0, 0].legend()
    figure.savefig(RESULTS / "approximation.png", dpi=80)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    rows, pictures = [], {}
    for name, (length_scale, variance) in SETS.items():
        X, y = load(arguments.data, name)
        for setting in ("fixed", "learned"):
            runs = []
            for seed in range(arguments.splits):
                data = split(X, y, seed)
                fixed = ConstantKernel(variance) * RBF(length_scale)
                kernel = fixed if setting == "fixed" else learned(data, arguments.threads)
                found, run = measure(kernel, data, arguments.threads)
                runs.append({"split": seed, "kernel": str(kernel), **run})
                if seed == 0:
                    pictures[f"{name}, {setting}: {kernel}"] = found
            means = {
                method: {
                    key: statistics.mean(run["methods"][method][key] for run in runs)
                    for key in ("d_mean", "d_variance", "error", "nll")
                }
                for method in METHODS
            }
            plain = means["polya-gamma"]
            ratios = {
                method: {key: means[method][key] / plain[key] for key in ("d_mean", "d_variance")}
                for method in ("corrected", "exact", "again")
            }
            r_hat = max(entry["r_hat"] for run in runs for entry in run["diagnostics"])
            rows.append(
                {"data": name, "setting": setting, "means": means, "ratios": ratios, "r_hat": r_hat, "runs": runs}
            )
            print(f"{name}, {setting} (split 0: {runs[0]['kernel']}); R-hat at most {r_hat:.4f}")
            for method in METHODS:
                print(f"  {method:12s} " + ", ".join(f"{key} {value:.4f}" for key, value in means[method].items()))
            for method, values in ratios.items():
                shares = ", ".join(f"{key} {value:.3f}" for key, value in values.items())
                print(f"  {method} / polya-gamma: {shares}", flush=True)
    write("approximation", {"rows": rows})
    draw(pictures)


if __name__ == "__main__":
    main()
