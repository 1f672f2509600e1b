"""
Two classes, and the uncertainty of the model
=============================================

The default settings are fitted to two interleaved half-moons. Shades and lines show the probability of class 1. Crosses
are the inducing points, a few points that summarise all rows.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.inspection import DecisionBoundaryDisplay

from xgpc import GPClassifier

X, y = make_moons(400, noise=0.25, random_state=0)
model = GPClassifier(random_state=0).fit(X, y)
print(model.kernel_)

figure, ax = plt.subplots(figsize=(7, 5), layout="constrained")
look = {"levels": np.linspace(0, 1, 21), "cmap": "coolwarm"}
display = DecisionBoundaryDisplay.from_estimator(model, X, response_method="predict_proba", ax=ax, **look)
figure.colorbar(display.surface_, ax=ax)
ax.contour(display.xx0, display.xx1, display.response, levels=[0.1, 0.5, 0.9], colors="0.2", linestyles=[":", "-", ":"])
ax.scatter(*X.T, c=y, s=22, cmap="coolwarm", edgecolor="white", linewidth=0.5)
ax.scatter(*model.inducing_points_.T, color="black", marker="x")
ax.set(title="Probability of class 1", xlabel="Feature 0", ylabel="Feature 1")
plt.show()

# %%
# A probability near one half has two possible reasons: both classes are likely, or the model knows nothing about the
# place. The standard deviation of the latent function distinguishes the two: it is small on the border between the
# moons, and far from all rows it is that of the prior.

axes = [np.linspace(-3, 4, 120), np.linspace(-2.5, 3, 120)]
grid = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
_, variance = model.predict_latent(grid)
figure, ax = plt.subplots(figsize=(7, 5), layout="constrained")
shades = ax.contourf(*axes, np.sqrt(variance).reshape(120, 120), levels=15, cmap="cividis")
ax.scatter(*X.T, s=10, color="white", edgecolor="0.3", linewidth=0.3)
ax.set(title="Standard deviation of the latent function", xlabel="Feature 0", ylabel="Feature 1")
figure.colorbar(shades, ax=ax)
plt.show()
