"""Test likelihood against training time, side by side with GPyTorch's SVGP and a Nystroem logistic regression.

    python bench/learning.py --data FOLDER [--sets electricity ringnorm] [--seconds 100] [--threads 2]

FOLDER holds a file NAME.npz with arrays X and y for every set but ringnorm, which is generated. A tenth of the rows is
for testing. The target is the best test NLL that GPyTorch reaches within the given seconds, plus .002; the result is
the time GPyTorch takes to reach it over the time of the first xgpc fit that does. GPyTorch is thus stopped at its best
by the test rows. The results of a set replace those of an earlier run in bench/results/learning.json.

Run it on an idle machine. GPyTorch's threads wait for each other in every operation of every step: on 2 cores, one of
them taken by another process, it fell from 140 steps a second to 2.
"""

import argparse
import itertools
import json
import time
from pathlib import Path

import numpy as np
from common import RESULTS, Others, hold_out, load, require, revision, scores, split, timed_fit, write
from scipy.special import log_ndtr
from sklearn.cluster import KMeans
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from xgpc import GPClassifier

SETS = (
    "electricity", "magic", "banana", "cod-rna", "a9a", "covtype", "higgs", "diabetes-pima", "german-numer", "heart",
    "ringnorm",
)  # fmt: skip
N_INDUCING = 100
MARGIN = 0.002
MAX_ITERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 200)
# Rows of a mini-batch and Adam's rate, for GPyTorch. After 12 s on electricity, mini-batches of 256 rows reached an NLL
# of .439, and of 1024 rows .421; at 170 steps a second against 140, smaller ones save no time.
BATCH_ROWS = 1024
ADAM_RATE = 0.01
# GPyTorch is evaluated after this many seconds of training, and each time after so much more: its time to the target
# is too long by a tenth at most; that of xgpc, whose numbers of iterations grow by a half, may be too long by a third.
FIRST_EVALUATION = 0.1
EVALUATION_FACTOR = 1.1
# Rows predicted at a time by GPyTorch: covariances of (rows, inducing points) only.
PREDICTED_ROWS = 4096
# More cores than these taken by others: the comparison is not fair, see above.
BUSY_CORES = 0.05
COMPONENTS = (50, 150, 500)
GAMMAS = (1 / 16, 1 / 4, 1, 4)
PENALTIES = (0.1, 1.0, 10.0, 100.0)


def ringnorm(n=7400, seed=0):
    """Breiman, Bias, variance, and arcing classifiers, 1996: N(0, 4 I) and N(a, I) in 20-d, a = 2 / sqrt(20)."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 20))
    return np.where(y[:, None], X + 2 / np.sqrt(20), 2 * X), y


def xgpc_curve(data, arguments):
    """A fit from scratch for each number of iterations, until one converges or takes longer than the reference may."""
    for max_iter in MAX_ITERS:
        model = GPClassifier(n_inducing=N_INDUCING, max_iter=max_iter, n_jobs=arguments.threads, random_state=0)
        seconds = timed_fit(model, data.X, data.y)
        yield {"seconds": seconds, **scores(model.predict_proba(data.X_test), data.y_test), "max_iter": max_iter}
        # More iterations would be the same fit.
        if model.converged_ or seconds > arguments.seconds:
            return


def start_centres(X, m):
    """Centres of k-means on at most 10 000 rows: the procedure, and the cost, of xgpc's own start."""
    rows = X if len(X) <= 10_000 else np.random.default_rng(0).permutation(X)[:10_000]
    m = min(m, len(np.unique(rows, axis=0)))
    return KMeans(m, n_init=1, max_iter=30, random_state=0).fit(rows).cluster_centers_


def sparse_gp(torch, gpytorch, Z):
    """GPyTorch's sparse variational Gaussian process with the parts that its documentation recommends."""

    class SparseGP(gpytorch.models.ApproximateGP):
        def __init__(self):
            q = gpytorch.variational.CholeskyVariationalDistribution(len(Z))
            super().__init__(gpytorch.variational.VariationalStrategy(self, Z, q, learn_inducing_locations=True))
            self.mean_module = gpytorch.means.ZeroMean()
            rbf = gpytorch.kernels.RBFKernel(ard_num_dims=Z.shape[1])
            rbf.lengthscale = Z.shape[1] ** 0.5
            self.covar_module = gpytorch.kernels.ScaleKernel(rbf)

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    return SparseGP()


def batches(torch, n, size):
    """Row numbers of mini-batches, epoch after epoch."""
    while True:
        yield from torch.randperm(n).split(size)


def probit_scores(model, torch, X, y):
    """Scores from the latent marginals: the probit link's probability is the normal cdf of mean / sqrt(1 + var)."""
    model.eval()
    with torch.no_grad():
        latent = [model(rows) for rows in X.split(PREDICTED_ROWS)]
        mean = torch.cat([f.mean for f in latent]).double().numpy()
        variance = torch.cat([f.variance for f in latent]).double().numpy()
    model.train()
    margin = np.where(y == 1, mean, -mean) / np.sqrt(1 + variance)
    return {"nll": float(-np.mean(log_ndtr(margin))), "error": float(np.mean((mean > 0) != (y == 1)))}


def gpytorch_curve(data, arguments, batch_rows=BATCH_ROWS):
    """One run of GPyTorch; the clock stops while it is evaluated."""
    torch, gpytorch = require("torch", "torch gpytorch"), require("gpytorch", "torch gpytorch")
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    X_test = torch.as_tensor(data.X_test, dtype=torch.float32)

    start = time.perf_counter()
    X, y = (torch.as_tensor(array, dtype=torch.float32) for array in (data.X, data.y))
    Z = torch.as_tensor(start_centres(data.X, N_INDUCING), dtype=torch.float32)
    model = sparse_gp(torch, gpytorch, Z)
    likelihood = gpytorch.likelihoods.BernoulliLikelihood()
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(X))
    adam = torch.optim.Adam(model.parameters(), lr=ADAM_RATE)
    seconds, due = time.perf_counter() - start, FIRST_EVALUATION
    for step, rows in enumerate(batches(torch, len(X), batch_rows), 1):
        start = time.perf_counter()
        adam.zero_grad()
        try:
            loss = -bound(model(X[rows]), y[rows])
        except RuntimeError as error:
            # A covariance matrix that is singular in float32: the run ends here for a user, too.
            print(f"GPyTorch failed after {seconds:.1f} s: {error}")
            return
        loss.backward()
        adam.step()
        seconds += time.perf_counter() - start
        if seconds >= due:
            yield {"seconds": seconds, **probit_scores(model, torch, X_test, data.y_test), "steps": step}
            if seconds >= arguments.seconds:
                return
            due = min(max(due, seconds) * EVALUATION_FACTOR, arguments.seconds)


def choose_nystroem(data, components):
    """Length scale and penalty of the lowest NLL on a tenth of the training rows."""
    part = hold_out(data)
    tried = []
    for gamma in np.array(GAMMAS) / data.X.shape[1]:
        features = Nystroem(gamma=gamma, n_components=min(components, len(part.X)), random_state=0).fit(part.X)
        F, F_test = features.transform(part.X), features.transform(part.X_test)
        for C in PENALTIES:
            model = LogisticRegression(C=C, max_iter=1000)
            timed_fit(model, F, part.y)
            tried.append((scores(model.predict_proba(F_test), part.y_test)["nll"], gamma, C))
    return min(tried)[1:]


def nystroem_curve(data, arguments):
    """scikit-learn's Nystroem features and logistic regression; the seconds are those of the choice and the fit."""
    for components in COMPONENTS:
        start = time.perf_counter()
        gamma, C = choose_nystroem(data, components)
        features = Nystroem(gamma=gamma, n_components=min(components, len(data.X)), random_state=0).fit(data.X)
        model = LogisticRegression(C=C, max_iter=1000)
        timed_fit(model, features.transform(data.X), data.y)
        seconds = time.perf_counter() - start
        reached = scores(model.predict_proba(features.transform(data.X_test)), data.y_test)
        yield {"seconds": seconds, **reached, "components": components, "gamma": gamma, "C": C}


METHODS = {"xgpc": xgpc_curve, "gpytorch": gpytorch_curve, "nystroem": nystroem_curve}


def warm_up(methods, threads):
    """First points on a tiny problem: imports, threads and first calls cost time once in a process."""
    tiny = split(*ringnorm(n=400), seed=0)
    for method in methods:
        for _ in itertools.islice(METHODS[method](tiny, argparse.Namespace(threads=threads, seconds=1.0)), 2):
            pass


def side_by_side(data, arguments):
    """The curves of the methods, one after the other, and the number of cores that other processes kept busy meanwhile.

    Not a point of each in turn: the first milliseconds after another library's threads are slow.
    """
    with Others() as others:
        curves = {method: list(METHODS[method](data, arguments)) for method in arguments.methods}
    return curves, others.cores


def first_within(curve, target):
    return next((point["seconds"] for point in curve if point["nll"] <= target), None)


def compare(curves):
    """Seconds to the target of the reference and of xgpc, if both were run."""
    if not {"xgpc", "gpytorch"} <= set(curves):
        return {}
    best = min(point["nll"] for point in curves["gpytorch"])
    target = best + MARGIN
    ours, theirs = (first_within(curves[method], target) for method in ("xgpc", "gpytorch"))
    return {
        "reference_best_nll": best,
        "target": target,
        "xgpc_best_nll": min(point["nll"] for point in curves["xgpc"]),
        "reference_seconds": theirs,
        "xgpc_seconds": ours,
        "ratio": theirs / ours if ours else None,
    }


def report(name, result):
    """Print what was measured."""
    if result["cores_taken_by_others"] > BUSY_CORES:
        print(f"{name}: other processes kept {result['cores_taken_by_others']:.2f} cores busy, repeat the measurement")
    for method, curve in result["curves"].items():
        best = min(curve, key=lambda point: point["nll"])
        print(f"{name} {method}: best NLL {best['nll']:.4f} (error {best['error']:.4f}) after {best['seconds']:.2f} s")
    if "target" in result:
        reached = "target not reached" if result["ratio"] is None else "{xgpc_seconds:.2f} s, ratio {ratio:.1f}"
        print((f"{name}: GPyTorch's best + {MARGIN} = {{target:.4f}} after {{reference_seconds:.2f}} s, "
               f"xgpc: {reached}").format(**result), flush=True)  # fmt: skip


def draw(name, result):
    """NLL against training seconds."""
    from matplotlib.figure import Figure

    axes = Figure(figsize=(6, 4), layout="constrained").subplots()
    for method, curve in result["curves"].items():
        axes.plot([p["seconds"] for p in curve], [p["nll"] for p in curve], ".-", label=method)
    if "target" in result:
        axes.axhline(result["target"], color="grey", linestyle=":", label=f"best of gpytorch + {MARGIN}")
    axes.set(title=name, xlabel="training seconds", ylabel="test NLL, nats a row", xscale="log")
    axes.legend()
    axes.figure.savefig(RESULTS / f"learning_{name}.png", dpi=100)


def store(name, result):
    """Put the results of a set into learning.json, beside those of other sets."""
    path = RESULTS / "learning.json"
    stored = json.loads(path.read_text(encoding="utf-8"))["sets"] if path.exists() else {}
    write("learning", {"sets": {**stored, name: result}})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    arguments = parser.parse_args()
    with threadpool_limits(arguments.threads):
        warm_up(arguments.methods, arguments.threads)
        for name in arguments.sets:
            data = split(*(ringnorm() if name == "ringnorm" else load(arguments.data, name)), seed=0)
            curves, others = side_by_side(data, arguments)
            command = (f"python bench/learning.py --data FOLDER --sets {name} --seconds {arguments.seconds:g} "
                       f"--threads {arguments.threads} --methods {' '.join(arguments.methods)}")  # fmt: skip
            result = {"command": command, **revision(), "cores_taken_by_others": others}
            result.update(compare(curves), curves=curves)
            report(name, result)
            store(name, result)
            draw(name, result)


if __name__ == "__main__":
    main()
