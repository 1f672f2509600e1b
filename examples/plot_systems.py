"""
Systems of the papers, by their names
=====================================

``xgpc.systems`` contains the keyword arguments of published systems: X-GPC with mini-batches and Adam, vi-JJ with
alternating updates and L-BFGS steps, and others. Here some systems and the default settings learn from the same rows.
"""

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

import xgpc
from xgpc import GPClassifier


def rows(n, seed):
    """Ringnorm of Breiman 1996: a wide normal distribution around a narrow one, in ten dimensions."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 10))
    return np.where(y[:, None], X + 2 / np.sqrt(10), 2 * X), y


X, y = rows(1000, 0)
X_test, y_test = rows(4000, 1)

found = {}
for name in ("X-GPC", "SVGPC", "vi-JJ", "vi-Taylor", "GPC-II", None):
    settings = {} if name is None else dict(xgpc.systems[name])
    settings |= {"n_inducing": 30, "n_neighbors": 0, "max_iter": 60, "random_state": 0}
    with warnings.catch_warnings():
        # Some systems need more iterations than they get here.
        warnings.simplefilter("ignore", ConvergenceWarning)
        start = time.perf_counter()
        model = GPClassifier(**settings).fit(X, y)
    seconds = time.perf_counter() - start
    log_p = model.predict_log_proba(X_test)[np.arange(len(y_test)), y_test]
    found[name or "the default"] = seconds, -np.mean(log_p)
    print(f"{name or 'the default':12s} {seconds:5.2f} s, negative log likelihood {-np.mean(log_p):.3f}")

# %%
# Points on the left are faster, points at the bottom more accurate.

figure, ax = plt.subplots(figsize=(7, 4.4), layout="constrained")
for name, (seconds, loss) in found.items():
    ax.plot(seconds, loss, "o", color="#D55E00" if name == "the default" else "#0072B2")
    ax.annotate(name, (seconds, loss), textcoords="offset points", xytext=(7, 4))
ax.set(xscale="log", xlabel="Seconds of a fit", ylabel="Negative log likelihood of test rows")
ax.set_title("Time and accuracy of published systems and the default")
ax.margins(0.2)
plt.show()
