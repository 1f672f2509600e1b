"""
The latent function behind the probabilities
============================================

A Gaussian process classifier turns the values of a latent function into probabilities. The mean and variance of this
function contain more information than the probabilities: they tell whether a probability of one half means that both
classes are likely, or that the model knows nothing about the place.
"""

import matplotlib.pyplot as plt
import numpy as np

from xgpc import GPClassifier

rng = np.random.default_rng(1)
X = np.concatenate([rng.uniform(-4, -1, 60), rng.uniform(0.5, 3, 60)])[:, None]
y = (rng.random(len(X)) < 1 / (1 + np.exp(-4 * np.sin(2 * X[:, 0])))).astype(int)
model = GPClassifier(random_state=0).fit(X, y)

grid = np.linspace(-5, 5, 300)[:, None]
mean, covariance = model.predict_latent(grid, return_cov=True)
deviation = np.sqrt(np.diag(covariance))
draws = rng.multivariate_normal(mean, covariance, size=5, method="eigh")

figure, (top, bottom) = plt.subplots(2, 1, figsize=(8, 6.5), layout="constrained", sharex=True)
top.fill_between(grid[:, 0], mean - 2 * deviation, mean + 2 * deviation, color="#0072B2", alpha=0.2)
top.plot(grid[:, 0], mean, color="#0072B2", label="mean, and two standard deviations")
top.plot(grid[:, 0], draws.T, color="0.5", linewidth=0.7, label=["draws of the joint posterior"] + [None] * 4)
top.set(title="Latent function, and the probability that follows from it", ylabel="Latent function")
top.legend()
bottom.plot(grid[:, 0], model.predict_proba(grid)[:, 1], color="#D55E00")
bottom.scatter(X[:, 0], y, marker="|", color="black", label="rows")
bottom.set(xlabel="x", ylabel="Probability of class 1")
bottom.legend()
plt.show()

# %%
# In the gap between the rows, and outside their range, the band is wide and the probability approaches one half. Where
# the curve crosses one half among many rows, the band is narrow: there the classes overlap.
