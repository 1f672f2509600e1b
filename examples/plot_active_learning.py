"""
Active learning: which rows to label next
=========================================

Labels are often expensive. Here a classifier starts with ten labelled images of the handwritten digits 3 and 8, and
requests five more labels in each round: for random rows, or for rows whose labels give most information about the
latent function (mutual information). The curves are test scores, averaged over several random starts.
"""

# %%
# The features are principal components, so that distances between rows compare shapes.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from xgpc import GPClassifier
from xgpc.acquisition import select

X, y = load_digits(return_X_y=True)
kept = np.isin(y, (3, 8))
X, y = PCA(16).fit_transform(X[kept]), (y[kept] == 8).astype(int)
X /= X[:, 0].std()

# %%
# The loop that requests labels. The kernel is fixed, because so few rows do not determine it.

N_FIRST, N_BATCH, N_ROUNDS, N_SEEDS = 10, 5, 10, 5
KERNEL = ConstantKernel(10.0) * RBF(2.0)


def learn(strategy, seed):
    """Error and log loss on test rows after each round."""
    rng = np.random.default_rng(seed)
    X_pool, X_test, y_pool, y_test = train_test_split(X, y, test_size=0.4, stratify=y, random_state=seed)
    known = list(rng.permutation(len(y_pool))[:N_FIRST])
    scores = []
    for _ in range(N_ROUNDS + 1):
        model = GPClassifier(KERNEL, inducing_points="all", optimizer=None).fit(X_pool[known], y_pool[known])
        proba = model.predict_proba(X_test)
        scores.append((np.mean(np.argmax(proba, axis=1) != y_test), log_loss(y_test, proba)))
        rest = np.setdiff1d(np.arange(len(y_pool)), known)
        if strategy == "random":
            chosen = rng.choice(len(rest), N_BATCH, replace=False)
        else:
            chosen = select(model, X_pool[rest], N_BATCH, score=strategy)
        known.extend(rest[chosen])
    return np.array(scores)


strategies = {"random": "random rows", "mutual_information": "mutual information"}
results = {name: np.array([learn(name, seed) for seed in range(N_SEEDS)]) for name in strategies}

# %%
# With mutual information, fewer labels give the same score.

labels = N_FIRST + N_BATCH * np.arange(N_ROUNDS + 1)
for name, scores in results.items():
    error, loss = scores.mean(axis=0)[-1]
    print(f"{strategies[name]}, {labels[-1]} labels: error {error:.3f}, log loss {loss:.3f}")

figure, axes = plt.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained")
for k, (ax, title) in enumerate(zip(axes, ("Test error", "Test log loss"), strict=True)):
    for name, scores in results.items():
        mean = scores[..., k].mean(axis=0)
        error = scores[..., k].std(axis=0, ddof=1) / np.sqrt(N_SEEDS)
        (line,) = ax.plot(labels, mean, marker="o", markersize=3.5, label=strategies[name])
        ax.fill_between(labels, mean - error, mean + error, color=line.get_color(), alpha=0.2, linewidth=0)
    ax.set(title=f"{title} by strategy", xlabel="Labelled rows", ylabel=title)
    ax.grid(alpha=0.3)
axes[0].legend()
plt.show()
