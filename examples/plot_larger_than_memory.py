"""
Rows in files that need not fit into memory
===========================================

``fit_batches`` reads rows in batches, several times. With ``n_neighbors=0`` it never holds all rows in memory. Here two
hundred thousand rows are written to files and read back in batches; a hundred million rows would need the same memory.
The fit learns the kernel and the inducing points from a random sample that the first reading draws. The posterior is
that of all rows.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import xgpc
from xgpc import GPClassifier


def landscape(X):
    """Log odds of class 1 at the rows of X."""
    return 3 * np.sin(1.5 * X[:, 0]) * np.cos(1.2 * X[:, 1]) + 0.5 * X[:, 0]


folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)
X = np.lib.format.open_memmap(folder / "X.npy", mode="w+", dtype=np.float32, shape=(200_000, 2))
y = np.lib.format.open_memmap(folder / "y.npy", mode="w+", dtype=np.int8, shape=(200_000,))
for start in range(0, len(X), 20_000):
    part = slice(start, start + 20_000)
    X[part] = rng.uniform(-4, 4, (20_000, 2))
    y[part] = rng.random(20_000) < 1 / (1 + np.exp(-landscape(X[part])))

# %%
# The source may also be a Parquet file (``xgpc.rows.from_parquet``), or any function that returns an iterator of
# batches.

rows = xgpc.rows.from_npy(folder / "X.npy", folder / "y.npy")
model = GPClassifier(n_inducing=64, n_neighbors=0, subset_sizes=(4000,), random_state=0).fit_batches(rows)
print(model.decisions_)

# %%
# Predictions also come batch by batch. The picture compares them with the true probabilities on a grid.

axis = np.linspace(-4, 4, 160)
grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2).astype(np.float32)
batches = (grid[start : start + 5000] for start in range(0, len(grid), 5000))
predicted = np.concatenate([p[:, 1] for p in model.predict_proba_batches(batches)])
truth = 1 / (1 + np.exp(-landscape(grid)))

figure, columns = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
for ax, values, title in zip(
    columns, (truth, predicted), ("True probability", "Learned from 200 000 rows"), strict=True
):
    drawn = ax.imshow(values.reshape(160, 160), origin="lower", extent=(-4, 4, -4, 4), vmin=0, vmax=1, cmap="RdBu")
    ax.set_title(title)
figure.colorbar(drawn, ax=columns, label="Probability of class 1")
print(f"mean difference of the probabilities {np.mean(np.abs(predicted - truth)):.4f}")
plt.show()
