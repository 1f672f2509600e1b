"""Bayesian optimisation with trials that fail

BoTorch minimises functions of two settings. Outside a region a trial fails, and returns no value. Townsend's function
has a region with a smooth, curved border; Branin's has an L-shaped one with sharp edges, and two of its three equal
minima are near an edge. The first trials are ten Sobol points, or more until two work and one fails; 25 other trials
follow. `SingleTaskGP` learns the objective from the trials that worked, and a classifier of all trials gives the
probability that a setting works. The next trial maximises `qLogNoisyExpectedImprovement`, with the constraint that this
probability is above 1/2. All classifiers have the same first trials and the same search, without gradients: 512 Sobol
points, then two rounds of normal steps from the best ones. "xgpc with gradients" searches with `optimize_acqf` instead,
as the [guide](guide/torch.md#in-botorch) does. xgpc has its defaults but for `n_neighbors=0`, and the random forest its
defaults. The classifier of scikit-learn and the variational process of GPyTorch have an RBF kernel with a length scale
per setting, which they learn; GPyTorch has an inducing point at each trial, and 60 steps of Adam. Without a model, all
settings have the same probability. The constraint was chosen after a pilot with three of the seeds.

"Failures" counts the failed trials after the first ones. "Regret" is the least value of the trials that worked, minus
the minimum of the region; regrets that differ by at most .001 are equal. Both are medians over 20 seeds, with quartiles
in brackets. The columns beside them compare xgpc with the model of the row, seed by seed. The goal is half the failures
of the best other model at an equal regret. `bench/results/failures.json` has every trial.
"""

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from markdown_tables import number, table
from measure import timed_fit
from methods import make
from records import OUTPUTS_WITHOUT_NEIGHBORS
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from . import Part, by_set

MINUTES, EXPIRES = 25, {OUTPUTS_WITHOUT_NEIGHBORS}
SEEDS, FIRST, TRIALS = 20, 10, 25
# Candidates of a search, then normal steps in the unit square: how many from each of how many best ones, and how wide.
CANDIDATES, STEPS, STARTS, WIDTHS = 512, 32, 8, (0.05, 0.01)
SAMPLES = 64
# Steps of Adam, and their rate. Of 38 Sobol trials of Branin's function, 60 and 400 steps gave an NLL of .22 and .16.
ADAM_STEPS, ADAM_RATE = 60, 0.1
# Where the kernels of the other libraries start: their usual start, 1, is the width of the box.
LENGTH_SCALE = 0.3
EQUAL = 1e-3


class Task(NamedTuple):
    """A function to minimise in a box (2, 2) of lower and upper limits, where it works, and its minimum there."""

    box: np.ndarray
    value: Callable
    works: Callable
    minimum: float


def townsend(x, y):
    return -(np.cos((x - 0.1) * y) ** 2) - x * np.sin(3.0 * x + y)


def in_townsends_region(x, y):
    t = np.arctan2(x, y)
    radius = 2.0 * np.cos(t) - np.cos(2.0 * t) / 2 - np.cos(3.0 * t) / 4 - np.cos(4.0 * t) / 8
    return x**2 + y**2 < radius**2 + (2.0 * np.sin(t)) ** 2


def branin(x, y):
    valley = y - 5.1 * x**2 / (4.0 * np.pi**2) + 5.0 * x / np.pi - 6.0
    return valley**2 + 10.0 * (1.0 - 1.0 / (8.0 * np.pi)) * np.cos(x) + 10.0


def in_l_shape(x, y):
    return (x < -1.25) | (y < 3.0)


TASKS = {
    "Townsend": Task(np.array([[-2.25, -2.5], [2.25, 1.75]]), townsend, in_townsends_region, -2.0239884),
    "Branin": Task(np.array([[-5.0, 0.0], [10.0, 15.0]]), branin, in_l_shape, 0.3978874),
}


def fitted(name, X, works, **settings):
    model = make(name, threads=1, **settings)
    timed_fit(model, X.numpy(), works.astype(int))
    return model


def classifier(name, X, works, **settings):
    """A method of the benchmarks."""
    import torch

    model = fitted(name, X, works, **settings)
    return lambda rows: torch.as_tensor(model.predict_proba(rows.numpy())[:, 1])


def xgpc(X, works):
    from xgpc.torch import FeasibilityModel

    return FeasibilityModel(fitted("xgpc", X, works, n_neighbors=0), feasible=1)


def variational(X, works):
    """GPyTorch's process with an inducing point at each trial, and Adam on all trials."""
    import gpytorch
    import torch
    from methods.gpytorch import Process

    process, likelihood = Process(X, 2).double(), gpytorch.likelihoods.BernoulliLikelihood()
    bound = gpytorch.mlls.VariationalELBO(likelihood, process, num_data=len(X))
    adam, y = torch.optim.Adam(process.parameters(), lr=ADAM_RATE), torch.as_tensor(works, dtype=torch.float64)
    process.covar_module.base_kernel.lengthscale = LENGTH_SCALE
    for _ in range(ADAM_STEPS):
        adam.zero_grad()
        (-bound(process(X), y)).backward()
        adam.step()
    process.eval()
    return lambda rows: likelihood(process(rows)).mean


def share(X, works):
    """The share of trials that worked, at all settings."""
    import torch

    return lambda rows: torch.full((len(rows),), works.mean(), dtype=torch.float64)


def acquisition(objective, X, probability):
    """BoTorch's improvement over the trials X that worked, with the constraint that the probability is above 1/2."""
    import torch
    from botorch.acquisition.logei import qLogNoisyExpectedImprovement
    from botorch.acquisition.objective import GenericMCObjective
    from botorch.models import ModelList
    from botorch.models.deterministic import GenericDeterministicModel
    from botorch.sampling.get_sampler import get_sampler

    def constraint(rows):
        return 0.5 - probability(rows.reshape(-1, 2)).reshape(*rows.shape[:-1], 1)

    outcomes = ModelList(objective, GenericDeterministicModel(constraint))
    return qLogNoisyExpectedImprovement(
        outcomes, X, get_sampler(outcomes.posterior(X), torch.Size([SAMPLES]), seed=0),
        GenericMCObjective(lambda samples, X: samples[..., 0]), constraints=[lambda samples: samples[..., 1]],
    )  # fmt: skip


def without_gradients(score, seed):
    """The setting (1, 2) with the largest acquisition function among Sobol points and steps from the best ones."""
    import torch

    random = torch.Generator().manual_seed(seed)

    def best(rows, count):
        with torch.no_grad():
            return rows[torch.topk(score(rows[:, None]), count).indices]

    rows = torch.quasirandom.SobolEngine(2, scramble=True, seed=seed).draw(CANDIDATES, dtype=torch.float64)
    for width in WIDTHS:
        found = best(rows, STARTS)
        steps = torch.randn(STEPS, *found.shape, generator=random, dtype=torch.float64)
        rows = torch.cat([found, (found + width * steps).clamp(0.0, 1.0).reshape(-1, 2)])
    return best(rows, 1)


def with_gradients(score, seed):
    import torch
    from botorch.optim import optimize_acqf

    box = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    return optimize_acqf(score, box, q=1, num_restarts=4, raw_samples=CANDIDATES)[0]


KERNEL = ConstantKernel() * RBF([LENGTH_SCALE, LENGTH_SCALE])
# Title -> what fits the probability, what searches, and the library.
METHODS = {
    "xgpc": (xgpc, without_gradients, "xgpc"),
    "random forest": (partial(classifier, "forest"), without_gradients, "sklearn"),
    "GaussianProcessClassifier": (partial(classifier, "laplace", kernel=KERNEL), without_gradients, "sklearn"),
    "GPyTorch": (variational, without_gradients, "gpytorch"),
    "no model": (share, without_gradients, "botorch"),
    "xgpc with gradients": (xgpc, with_gradients, "xgpc"),
}


def optimise(task, fit, search, trials, seed):
    """Which trials work, the regret after each, how many are first ones, and seconds of a fit of the classifier."""
    import torch
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from gpytorch.mlls import ExactMarginalLogLikelihood

    def run(X):
        x = (task.box[0] + X.numpy() * (task.box[1] - task.box[0])).T
        return task.works(*x), task.value(*x)

    torch.manual_seed(seed)
    X = torch.quasirandom.SobolEngine(2, scramble=True, seed=seed).draw(16 * FIRST, dtype=torch.float64)
    works, values = run(X)
    enough = (np.cumsum(works) >= 2) & (np.cumsum(~works) >= 1)
    first = max(FIRST, 1 + int(np.argmax(enough)))
    X, works, values, seconds = X[:first], works[:first], values[:first], []
    for trial in range(trials):
        objective = SingleTaskGP(X[works], torch.as_tensor(-values[works, None]))
        fit_gpytorch_mll(ExactMarginalLogLikelihood(objective.likelihood, objective))
        start = time.process_time()
        probability = fit(X, works)
        seconds.append(time.process_time() - start)
        new = search(acquisition(objective, X[works], probability), 1000 * seed + trial)
        new_works, new_values = run(new)
        X, works, values = torch.cat([X, new]), np.append(works, new_works), np.append(values, new_values)
    regret = np.minimum.accumulate(np.where(works, values, np.inf))[first - 1 :] - task.minimum
    return {"first": first, "works": works.astype(int).tolist(), "regret": np.round(regret, 5).tolist(),
            "seconds": float(np.median(seconds))}  # fmt: skip


def measure(task, method, seeds, trials):
    import torch

    torch.set_num_threads(1)
    fit, search, _ = METHODS[method]
    with warnings.catch_warnings():
        # The settings of few trials are no great sample: BoTorch and PyTorch say so in each of some thousand fits.
        warnings.simplefilter("ignore")
        return {"runs": [optimise(TASKS[task], fit, search, trials, seed) for seed in range(seeds)]}


def parts(data, quick):
    size = (1, 2) if quick else (SEEDS, TRIALS)
    return [
        Part(f"{task}: {name}", partial(measure, task, name, *size), of=tuple(dict.fromkeys((library, "botorch"))))
        for task in TASKS for name, (_, _, library) in METHODS.items()
    ]  # fmt: skip


def failures(run):
    return run["works"][run["first"] :].count(0)


def final(run):
    return run["regret"][-1]


def compared(ours, theirs, equal):
    """Wins, losses and ties of the first numbers, which are better where they are smaller."""
    gain = np.subtract(theirs, ours)
    return f"{np.sum(gain > equal)} / {np.sum(gain < -equal)} / {np.sum(np.abs(gain) <= equal)}"


def quartiles(values, digits):
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return f"{number(middle, digits)} [{number(low, digits)}, {number(high, digits)}]"


def runs_of(records):
    """Runs by function and model, both in their order."""
    return {
        task: {name: found[name]["runs"] for name in METHODS if name in found}
        for task, found in by_set(records, TASKS).items()
    }


def summary(records):
    """The table of medians, and whether the goal is reached."""
    rows, sentences = [], []
    for task, found in runs_of(records).items():
        for name, runs in found.items():
            cells = [task, name]
            for score, digits, equal in ((failures, 1, 0), (final, 4, EQUAL)):
                scored = [score(run) for run in runs]
                is_pair = name != "xgpc" and "xgpc" in found
                ours = [score(run) for run in found["xgpc"]] if is_pair else None
                cells += [quartiles(scored, digits), compared(ours, scored, equal) if is_pair else ""]
            rows.append(cells)
        medians = {name: np.median([failures(run) for run in runs]) for name, runs in found.items()}
        others = [name for name in medians if not name.startswith("xgpc")]
        if others and "xgpc" in medians:
            fewest = min(others, key=medians.get)
            is_reached = medians["xgpc"] <= medians[fewest] / 2
            sentences.append(
                f"{task}: {medians['xgpc']:g} failures with xgpc, {medians[fewest]:g} with the best other model, "
                f"{fewest}; the goal is {'' if is_reached else 'not '}reached."
            )
    header = ["function", "model", "failures", "xgpc has fewer / more / as many", "regret",
              "xgpc has a lower / higher / equal one"]  # fmt: skip
    return "\n\n".join([table(header, rows), " ".join(sentences)])


report = summary
