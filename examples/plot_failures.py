"""
Bayesian optimisation with trials that fail
===========================================

Some settings of an experiment fail and return no value. A classifier learns from all trials which settings work, and a
regression learns the objective from those that worked. The next trial has the largest expected improvement among the
settings that probably work. The `guide <../guide/torch.html>`_ does the same in BoTorch.
"""

# %%
# Townsend's function is to be minimised inside a curved region, of which the loop knows nothing but its trials.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import qmc
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from xgpc import GPClassifier
from xgpc.acquisition import expected_improvement, probability_of_feasibility

LOWER, UPPER, MINIMUM = [-2.25, -2.5], [2.25, 1.75], -2.0239884


def value(x, y):
    return -(np.cos((x - 0.1) * y) ** 2) - x * np.sin(3.0 * x + y)


def works(x, y):
    t = np.arctan2(x, y)
    radius = 2.0 * np.cos(t) - np.cos(2.0 * t) / 2 - np.cos(3.0 * t) / 4 - np.cos(4.0 * t) / 8
    return x**2 + y**2 < radius**2 + (2.0 * np.sin(t)) ** 2


# %%
# The loop. ``n_neighbors=0`` is the right choice for a model that is fitted after each trial: fits are shorter, and
# probabilities are smooth.


def draw(n, seed):
    return qmc.scale(qmc.Sobol(2, rng=seed).random(n), LOWER, UPPER)


def optimise(knows_failures, n_first=16, n_trials=34):
    """All trials, and the last classifier."""
    X = draw(n_first, seed=1)
    for trial in range(n_trials):
        ok = works(*X.T)
        classifier = GPClassifier(n_neighbors=0, random_state=0)
        objective = GaussianProcessRegressor(ConstantKernel() * RBF([1.0, 1.0]), alpha=1e-6, normalize_y=True)
        with warnings.catch_warnings():
            # The first trials are too few to learn length scales, and both models say so.
            warnings.simplefilter("ignore", ConvergenceWarning)
            if knows_failures:
                classifier.fit(X, ok)
            objective.fit(X[ok], value(*X[ok].T))
        candidates = draw(2048, seed=100 + trial)
        mean, std = objective.predict(candidates, return_std=True)
        score = expected_improvement(mean, std, np.min(value(*X[ok].T)))
        if knows_failures:
            score *= probability_of_feasibility(classifier, candidates, True) > 0.5
        X = np.vstack([X, candidates[np.argmax(score)]])
    return X, classifier


found = {"with a classifier": optimise(True), "without": optimise(False)}
for name, (X, _) in found.items():
    ok = works(*X.T)
    best = np.min(value(*X[ok].T))
    print(f"{name}: {np.sum(~ok)} of {len(X)} trials failed, the best is {best - MINIMUM:.3f} above the minimum")

# %%
# The trials with the classifier. The black line is the border of the region, the blue one that of the model.

grid = np.stack(np.meshgrid(*np.linspace(LOWER, UPPER, 160).T), axis=-1)
shape, points = grid.shape[:2], grid.reshape(-1, 2)
X, classifier = found["with a classifier"]
ok = works(*X.T)

figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.2), layout="constrained")
levels = np.where(works(*points.T), value(*points.T), np.nan).reshape(shape)
left.contourf(*np.moveaxis(grid, -1, 0), levels, 20, cmap="Greys_r", alpha=0.7)
left.contour(*np.moveaxis(grid, -1, 0), works(*points.T).reshape(shape), [0.5], colors="black", linewidths=1.0)
probability = probability_of_feasibility(classifier, points, True).reshape(shape)
left.contour(*np.moveaxis(grid, -1, 0), probability, [0.5], colors="#0072B2", linewidths=2.0)
left.plot(*X[ok].T, "o", color="#009E73", markersize=4.5, label="worked")
left.plot(*X[~ok].T, "x", color="#D55E00", label="failed")
left.legend(loc="lower left")
left.set(xlabel="x", ylabel="y", title="Trials with a classifier")
for name, (X, _) in found.items():
    right.step(np.arange(1, len(X) + 1), np.cumsum(~works(*X.T)), where="post", label=name)
right.axvline(16, color="0.6", linewidth=0.8)
right.legend()
right.set(xlabel="Trials; the first 16 are Sobol points", ylabel="Failed trials")
plt.show()
