"""
Two classes, and where the model is unsure
==========================================

A fit with all defaults to two interleaved half-moons. Shades and lines are the probability of class 1; crosses are
the inducing points, the few places that summarise all rows.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from xgpc import GPClassifier
from xgpc.plotting import decision_contours

X, y = make_moons(400, noise=0.25, random_state=0)
model = GPClassifier(random_state=0).fit(X, y)
print(model.kernel_)

figure, ax = plt.subplots(figsize=(7, 5), layout="constrained")
decision_contours(model, X, y, ax=ax)
ax.set_title("Probability of class 1")
plt.show()

# %%
# A probability near one half can mean two things: that both classes are likely there, or that nothing is known. The
# standard deviation of the latent function tells them apart: on the border between the moons it is small, away from
# all rows it grows to what the kernel says of a place that nobody has seen.

axes = [np.linspace(-3, 4, 120), np.linspace(-2.5, 3, 120)]
grid = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
_, variance = model.predict_latent(grid)
figure, ax = plt.subplots(figsize=(7, 5), layout="constrained")
shades = ax.contourf(*axes, np.sqrt(variance).reshape(120, 120), levels=15, cmap="cividis")
ax.scatter(*X.T, s=10, color="white", edgecolor="0.3", linewidth=0.3)
ax.set(title="Standard deviation of the latent function", xlabel="Feature 0", ylabel="Feature 1")
figure.colorbar(shades, ax=ax)
plt.show()
