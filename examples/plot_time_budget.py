"""
A time limit, and the history of a fit
======================================

``max_time`` ends a fit after this number of seconds, with the best result so far and the posterior of all rows.
``history_`` has one row per evaluation, with the seconds since the start.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from xgpc import GPClassifier

rng = np.random.default_rng(0)
X = rng.normal(size=(8000, 8))
y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * rng.normal(size=len(X)) > 0

figure, ax = plt.subplots(figsize=(8, 4.2), layout="constrained")
for budget, marker in ((0.5, "s"), (1.0, "^"), (None, "o")):
    with warnings.catch_warnings():
        # A warning lists the parts of the fit that were skipped for lack of time.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = GPClassifier(n_inducing=128, n_neighbors=0, subset_sizes=None, max_time=budget, random_state=0).fit(
            X, y
        )
    history = model.history_
    # If there was no time for an evaluation, the history has no such column.
    learning = ~np.isnan(history.get("evaluation", np.full(len(history["seconds"]), np.nan)))
    seconds, bound = history["seconds"][learning], history["elbo"][learning]
    name = "no budget" if budget is None else f"max_time={budget}"
    ax.plot(seconds, bound / len(X), label=name, marker=marker, markersize=4, linewidth=1)
    print(f"{name}: bound {model.elbo_:.0f} nats, converged {model.converged_}, {model.decisions_}")
ax.set(xlabel="Seconds since the start", ylabel="Bound, nats per row", title="Evaluations of the optimizer")
ax.legend()
plt.show()

# %%
# The curves coincide until they end: a time limit changes when a fit ends, but not its course. If time ran out,
# ``converged_`` is False, and a ConvergenceWarning says so.
