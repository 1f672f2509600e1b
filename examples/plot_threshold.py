"""
Active learning of a threshold
==============================

At which intensity is a stimulus noticed with probability 0.75, for each frequency? The threshold is where the latent
function crosses a level. The most uncertain labels are those at probability 0.5, away from the threshold.
``expected_misclassification_reduction`` chooses labels that would tell most about which settings are above the
threshold.
"""

# %%
# A simulated listener: the log odds of noticing a stimulus grow with its intensity, and the threshold depends on the
# frequency. All numbers are from -1 to 1.

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit, logit
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from xgpc import GPClassifier
from xgpc.acquisition import expected_misclassification_reduction, predictive_entropy

LEVEL = float(logit(0.75))
KERNEL = ConstantKernel(9.0) * RBF([0.6, 1.0])
N_FIRST, N_LABELS, N_SEEDS = 10, 60, 4


def log_odds(settings):
    frequency, intensity = settings.T
    return 5.0 * (intensity - 0.4 * np.cos(3.0 * frequency) - 0.2 * frequency)


axis = np.linspace(-1.0, 1.0, 21)
GRID = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
ABOVE = log_odds(GRID) > LEVEL

# %%
# The loop that chooses settings. Its score is the share of settings that the model has on the wrong side of the
# threshold. The kernel is given, because so few labels do not determine it.


def uncertain(model, candidates):
    return predictive_entropy(model, candidates)


def look_ahead(model, candidates):
    return expected_misclassification_reduction(model, candidates, GRID[::2], LEVEL)


def learn(score, seed):
    rng = np.random.default_rng(seed)
    settings, errors = rng.uniform(-1.0, 1.0, (N_FIRST, 2)), []
    noticed = rng.random(N_FIRST) < expit(log_odds(settings))
    while True:
        model = GPClassifier(KERNEL, inducing_points="all", optimizer=None)
        model.fit(settings, noticed, classes=[False, True])
        errors.append(np.mean((model.predict_latent(GRID)[0] > LEVEL) != ABOVE))
        if len(settings) == N_LABELS:
            return np.array(errors), settings[N_FIRST:]
        candidates = rng.uniform(-1.0, 1.0, (60, 2))
        best = candidates[[np.argmax(score(model, candidates))]]
        settings = np.vstack([settings, best])
        noticed = np.append(noticed, rng.random() < expit(log_odds(best)))


strategies = {"most uncertain label": uncertain, "expected reduction": look_ahead}
results = {name: [learn(score, seed) for seed in range(N_SEEDS)] for name, score in strategies.items()}

# %%
# The chosen settings differ: uncertain labels are below the threshold.

for name, runs in results.items():
    print(f"{name}: {100 * np.mean([errors[-10:] for errors, _ in runs]):.1f} % on the wrong side at the end")

figure, axes = plt.subplots(1, 3, figsize=(11.0, 3.6), layout="constrained")
for ax, (name, runs) in zip(axes, results.items(), strict=False):
    ax.contour(axis, axis, log_odds(GRID).reshape(21, 21), [LEVEL], colors="k")
    ax.plot(*np.vstack([chosen for _, chosen in runs]).T, ".", markersize=4)
    ax.set(title=name, xlabel="Frequency", ylabel="Intensity")
for name, runs in results.items():
    axes[2].plot(np.arange(N_FIRST, N_LABELS + 1), 100 * np.mean([errors for errors, _ in runs], axis=0), label=name)
axes[2].set(title="Settings on the wrong side, %", xlabel="Labels")
axes[2].grid(alpha=0.3)
axes[2].legend()
plt.show()
