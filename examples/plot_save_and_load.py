"""
Saving a model, and predicting elsewhere
========================================

``save`` writes a fitted model to one file without pickled objects, so that loading the file executes no code. On the
same machine, the predictions of the loaded model have the same bits.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from xgpc import GPClassifier
from xgpc.plotting import ReliabilityDisplay

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
X, X_test, y, y_test = train_test_split(X[["mean radius", "mean texture", "mean smoothness"]], y, random_state=0)
model = GPClassifier(n_inducing=32, random_state=0).fit(X, y)

path = Path(tempfile.mkdtemp()) / "model.npz"
model.save(path)
loaded = GPClassifier.load(path)
print(f"{path.stat().st_size / 1024:.0f} kB; columns: {list(loaded.feature_names_in_)}")
assert np.array_equal(loaded.predict_proba(X_test), model.predict_proba(X_test))

# %%
# The file contains arrays in NumPy's format.

with np.load(path, allow_pickle=False) as file:
    for name in file.files:
        print(f"{name:20s} {file[name].dtype!s:10s} {file[name].shape}")

# %%
# The loaded model is an ordinary GPClassifier. Missing columns, or columns in another order, are an error.

figure, ax = plt.subplots(figsize=(6, 5), layout="constrained")
ReliabilityDisplay.from_estimator(loaded, X_test, y_test, ax=ax)
ax.set_title("Test rows, predicted by the loaded model")
plt.show()

try:
    loaded.predict(X_test[["mean texture", "mean radius", "mean smoothness"]])
except ValueError as error:
    print(error)
