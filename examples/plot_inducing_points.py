"""
Inducing points, from four to sixty-four
========================================

With m inducing points, a pass over n rows takes O(n m²) time. How many points are enough? If more points no longer
raise the bound, there are enough.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.inspection import DecisionBoundaryDisplay

from xgpc import GPClassifier


def spiral(n, seed):
    rng = np.random.default_rng(seed)
    radius, label = np.sqrt(rng.uniform(0.02, 1, n)), rng.integers(0, 2, n)
    angle = 3.2 * np.pi * radius + np.pi * label
    X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    return X + 0.035 * rng.normal(size=X.shape), label


X, y = spiral(600, 0)
X_test, y_test = spiral(4000, 1)
sizes = [4, 8, 12, 16, 32, 64]
models = [GPClassifier(n_inducing=m, n_neighbors=0, random_state=0).fit(X, y) for m in sizes]

figure, grid = plt.subplots(2, 3, figsize=(13, 7.6), layout="constrained")
for ax, m, model in zip(grid.ravel(), sizes, models, strict=True):
    DecisionBoundaryDisplay.from_estimator(model, X, response_method="predict_proba", cmap="coolwarm", ax=ax)
    ax.scatter(*X.T, c=y, s=12, cmap="coolwarm", edgecolor="white", linewidth=0.3)
    ax.scatter(*model.inducing_points_.T, color="black", marker="x")
    ax.set(title=f"{m} points: bound {model.elbo_:.0f} nats", xlabel="", ylabel="", xticks=[], yticks=[])
plt.show()

# %%
# The points move to the border between the classes. The next figure shows the bound and the test likelihood. By default
# xgpc starts with 32 points (64 below 2000 rows), and doubles their number while the bound rises by at least 0.05 nats
# per added point.

figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.semilogx(sizes, [model.elbo_ / len(X) for model in models], "o-", label="bound, training rows", base=2)
found = [np.mean(model.predict_log_proba(X_test)[np.arange(len(y_test)), y_test]) for model in models]
ax.semilogx(sizes, found, "s--", label="mean log probability, test rows", base=2)
ax.set(xlabel="Inducing points", ylabel="Nats per row", xticks=sizes, xticklabels=[str(m) for m in sizes])
ax.set_title("Bound and test score by the number of points")
ax.minorticks_off()
ax.legend()
plt.show()
