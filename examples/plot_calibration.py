"""
Calibrated probabilities
========================

If a calibrated classifier gives rows a probability of 0.8, eight in ten of these rows have the class. Here the true
probabilities are known. The example compares them with the predictions of a logistic regression, scikit-learn's
Gaussian process classifier, and xgpc.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from xgpc import GPClassifier
from xgpc.plotting import ReliabilityDisplay


def rows(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    truth = 1 / (1 + np.exp(-(4 * np.sin(X[:, 0]) * np.cos(X[:, 1]) + X[:, 1])))
    return X, (rng.random(n) < truth).astype(int), truth


X, y, _ = rows(500, 0)
X_test, y_test, truth = rows(4000, 1)

models = {
    "Logistic regression": LogisticRegression(),
    "scikit-learn's Gaussian process": GaussianProcessClassifier(ConstantKernel() * RBF([1.0, 1.0]), random_state=0),
    "xgpc": GPClassifier(random_state=0),
}
figure, columns = plt.subplots(1, 3, figsize=(14, 4.6), layout="constrained")
for ax, (name, model) in zip(columns, models.items(), strict=True):
    start = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - start
    p = model.predict_proba(X_test)[:, 1]
    loss, least = log_loss(y_test, p), log_loss(y_test, truth)
    print(f"{name}: {seconds:.2f} s, negative log likelihood {loss:.3f}, of the true probabilities {least:.3f}")
    ReliabilityDisplay.from_predictions(y_test, p, ax=ax)
    ax.set_title(f"{name}\nnegative log likelihood {loss:.3f}")
plt.show()

# %%
# The points of the two Gaussian processes are near the diagonal. The points of the logistic regression are not, because
# the boundary between the classes is not linear. The negative log likelihood of test rows measures such errors; on
# average, no model is better than the true probabilities.
#
# The next figure compares the predicted and the true probability of each row.

figure, columns = plt.subplots(1, 3, figsize=(13, 4.4), layout="constrained", sharey=True)
for ax, (name, model) in zip(columns, models.items(), strict=True):
    p = model.predict_proba(X_test)[:, 1]
    ax.scatter(truth, p, s=2, alpha=0.4)
    ax.plot([0, 1], [0, 1], color="0.35", linestyle="--", linewidth=1)
    ax.set(title=f"{name}\nmean error {np.mean(np.abs(p - truth)):.3f}", xlabel="True probability", aspect="equal")
columns[0].set_ylabel("Predicted probability")
plt.show()
