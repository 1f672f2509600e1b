"""What the safeguard of full-batch steps does for softmax with additive noise (GPCsm): the bound at each iteration.

    python bench/safeguard.py --data FOLDER [--threads 2]

FOLDER holds pendigits.npz and statlog-landsat.npz with arrays X and y. At a fixed kernel and 100 inducing points, from
the prior, three ways up: raw unit natural-gradient steps of the sites; the same, halved while they lower the bound; and
the library's, halved, too, but with the means of all classes moved by one Newton step and damped precisions. Kernels:
RBF with length scale sqrt(d) and variances of 2 and 20, k-means centres; and kernel and inducing points of a fit of
GPCsm in a few iterations.

An overshoot is a step that lowers the bound. In a 2-cycle the bound comes back every other step and not to the best.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from common import RESULTS, load, split, timed_fit, write
from sklearn.cluster import KMeans
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from xgpc.passes import Passes
from xgpc.approximations.sparse import SparsePrior

from xgpc import GPClassifier
from xgpc.catalogue import SYSTEMS
from xgpc.inference.history import History
from xgpc.inference.ascent import coordinate_ascent, natural_step
from xgpc.kernels.spec import KernelSpec
from xgpc.likelihoods import LIKELIHOODS

SETS = ("pendigits", "statlog-landsat")
N_INDUCING = 100
VARIANCES = (2, 20)
LEARNED = "learned"
# Of the optimizer, on so many rows; it is the kernel of a fit on its way.
LEARNING_ITERATIONS, LEARNING_ROWS = 10, 2000
ITERATIONS = 100
DRAWN = ("variance 20", LEARNED)
# Nats from the best bound that count as there.
NEAR = 1.0
# Last bounds that tell a cycle: neighbours differ by more than a nat, and ten times as much as every other one.
CYCLE_BOUNDS, CYCLE_NATS, CYCLE_RATIO = 10, 1.0, 10.0


class UncoupledPasses(Passes):
    """The sites' own steps, class by class."""

    def coupled_target(self, q, site):
        return self.target


def raw_steps(passes, q, site):
    """The bound at q and after each unit step of the sites, whatever it does to the bound."""
    bounds = []
    for _ in range(ITERATIONS + 1):
        bounds.append(passes.update(q, site)[0] - q.kl)
        q = natural_step(q, passes.target, 1.0)
        if q is None:
            break
    return {"iteration": list(range(len(bounds))), "bound": bounds}


def ascent(passes, q, site):
    """The bound after each step that was taken; iterations are counted with steps that failed."""
    history = History()
    *_, converged = coordinate_ascent(passes, q, site, tol=1e-4, max_iter=ITERATIONS, history=history)
    columns = history.arrays()
    return {
        "iteration": columns["iteration"].astype(int).tolist(),
        "bound": columns["elbo"].tolist(),
        "converged": converged,
    }


WAYS = {"raw": (Passes, raw_steps), "halved": (UncoupledPasses, ascent), "library": (Passes, ascent)}


def priors(X, y, threads):
    """Kernels with inducing points, by name."""
    d = X.shape[1]
    Z = KMeans(N_INDUCING, n_init=1, random_state=0).fit(X).cluster_centers_
    for variance in VARIANCES:
        yield f"variance {variance}", SparsePrior.build(KernelSpec(ConstantKernel(variance) * RBF(np.sqrt(d)), d), Z)
    model = GPClassifier(
        **SYSTEMS["GPCsm"],
        n_inducing=N_INDUCING,
        max_iter=LEARNING_ITERATIONS,
        subset_sizes=[LEARNING_ROWS],
        n_jobs=threads,
        random_state=0,
    )
    timed_fit(model, X, y)
    yield LEARNED, model.posterior_.prior


def cycles(bounds):
    """Whether the last bounds go to and fro."""
    last = np.array(bounds[-CYCLE_BOUNDS:])
    to_and_fro = np.median(np.abs(np.diff(last)))
    every_other = np.median(np.abs(last[2:] - last[:-2]))
    return bool(to_and_fro > CYCLE_NATS and to_and_fro > CYCLE_RATIO * every_other)


def summary(curve, best):
    """Falls of the bound, its last values, and how many iterations it took to come near the best of all ways."""
    falls = np.maximum(-np.diff(curve["bound"]), 0.0)
    near = [i for i, bound in zip(curve["iteration"], curve["bound"], strict=True) if bound > best - NEAR]
    return {
        "largest_fall": float(falls.max()),
        "first_fall_after": int(np.argmax(falls > 0)) if np.any(falls) else None,
        "falls": int(np.sum(falls > 0)),
        "cycles": cycles(curve["bound"]) if "converged" not in curve else False,
        "last": curve["bound"][-2:],
        "near_best_after": min(near, default=None),
    }


def climb(name, data, threads):
    """The curves of all ways at every kernel."""
    y, n_classes = data.y.astype(np.float64), int(data.y.max()) + 1
    site = LIKELIHOODS["softmax"].site("additive-noise", n_classes)
    rows = []
    for setting, prior in priors(data.X, data.y, threads):
        curves = {}
        for way, (kind, function) in WAYS.items():
            with kind(data.X, y, None, prior.n_inducing, threads, n_latents=n_classes) as passes:
                curves[way] = function(passes, passes.at_prior(prior), site)
        best = max(max(curve["bound"]) for curve in curves.values())
        row = {"data": name, "setting": setting, "kernel": str(prior.spec.kernel), "best": best}
        row["ways"] = {way: {**summary(curve, best), **curve} for way, curve in curves.items()}
        rows.append(row)
        for way, found in row["ways"].items():
            last = ", ".join(f"{bound:.1f}" for bound in found["last"])
            near = f"near the best {best:.1f} after {found['near_best_after']}"
            print(f"{name:15s} {setting:12s} {way:8s} falls {found['falls']:3d}, largest {found['largest_fall']:8.1f}; "
                  f"last {last}{' (2-cycle)' if found['cycles'] else ''}; {near}; "
                  f"converged {found.get('converged', '-')}", flush=True)  # fmt: skip
    return rows


def draw(rows):
    """Nats below the best bound of any way, against iterations: a column for each set."""
    from matplotlib.figure import Figure

    names = {"raw": "sites, unit steps", "halved": "sites, halved", "library": "library"}
    drawn = [row for row in rows if row["setting"] in DRAWN]
    figure = Figure(figsize=(9, 7), layout="constrained")
    axes = figure.subplots(len(DRAWN), len(SETS), sharex=True)
    for row in drawn:
        ax = axes[DRAWN.index(row["setting"]), SETS.index(row["data"])]
        for way, label in names.items():
            gap = np.maximum(row["best"] - np.array(row["ways"][way]["bound"]), 0.1)
            ax.plot(row["ways"][way]["iteration"], gap, ".-", linewidth=0.8, markersize=3, label=label)
        ax.set(title=f"{row['data']}, {row['setting']}", yscale="log", ylabel="nats below the best (.1 or less: there)")
    for ax in axes[-1]:
        ax.set(xlabel="iterations")
    axes[0, 0].legend()
    figure.savefig(RESULTS / "safeguard.png", dpi=100)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    rows = []
    for name in SETS:
        rows += climb(name, split(*load(arguments.data, name), seed=0), arguments.threads)
    # So many numbers: thousandths of a nat are enough.
    rounded = json.loads(json.dumps(rows), parse_float=lambda text: round(float(text), 3))
    write("safeguard", {"rows": rounded})
    draw(rounded)


if __name__ == "__main__":
    main()
