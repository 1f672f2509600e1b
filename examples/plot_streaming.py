"""
A stream whose classes drift
============================

``partial_fit`` learns from one batch after another; with ``n_neighbors=0`` it keeps no rows. Here the border between
two classes rotates slowly. A model that gives all batches the same weight becomes inaccurate; ``forgetting_factor``
gives old rows less weight. ``drift_`` compares the labels of each batch with what the model predicted before it learned
from them: about 0 if the predictions were right, and above 3 if the classes have changed. Later, the models are less
certain, so that wrong predictions surprise them less.
"""

import matplotlib.pyplot as plt
import numpy as np

from xgpc import GPClassifier


def batch(t, n=300):
    """Rows in the square, divided by a wavy border that has turned by t."""
    rng = np.random.default_rng(int(1000 * t))
    X = rng.uniform(-1, 1, (n, 2))
    along, across = X @ [np.cos(t), np.sin(t)], X @ [-np.sin(t), np.cos(t)]
    return X, (across + 0.25 * np.sin(4 * along) + 0.1 * rng.normal(size=n) > 0).astype(int)


turns = np.linspace(0, np.pi, 26)
accuracy = {1.0: [], 0.8: [], 0.5: []}
drift = {factor: [] for factor in accuracy}
models = {
    factor: GPClassifier(n_inducing=32, n_neighbors=0, random_state=0).partial_fit(*batch(turns[0], 2000))
    for factor in accuracy
}
for t in turns[1:]:
    X, y = batch(t)
    for factor, model in models.items():
        accuracy[factor].append(model.score(X, y))  # before the batch is learned
        model.partial_fit(X, y, forgetting_factor=factor)
        drift[factor].append(model.drift_)

figure, (above, below) = plt.subplots(2, 1, figsize=(7.5, 6), sharex=True, layout="constrained")
for factor, values in accuracy.items():
    above.plot(np.degrees(turns[1:]), values, label=f"forgetting_factor={factor}")
    below.plot(np.degrees(turns[1:]), drift[factor])
above.set(ylabel="Accuracy on the next batch", ylim=(0.6, 1))
below.axhline(3.0, color="grey", linestyle=":")
below.set(xlabel="Rotation, degrees", ylabel="drift_")
above.legend()
plt.show()

# %%
# The pictures show the predictions of the three models after the last batch, and the rows of this batch.

axis = np.linspace(-1, 1, 80)
grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
figure, columns = plt.subplots(1, 3, figsize=(13, 4.4), layout="constrained")
for ax, (factor, model) in zip(columns, models.items(), strict=True):
    shades = model.predict_proba(grid)[:, 1].reshape(80, 80)
    drawn = ax.imshow(shades, origin="lower", extent=(-1, 1, -1, 1), vmin=0, vmax=1, cmap="RdBu")
    ax.scatter(*X.T, c=y, s=18, cmap="RdBu", edgecolor="white", linewidth=0.5)
    ax.set_title(f"forgetting_factor={factor}")
figure.colorbar(drawn, ax=columns, label="Probability of class 1", shrink=0.8)
plt.show()
