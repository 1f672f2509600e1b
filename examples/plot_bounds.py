"""
Bounds and the exact posterior
==============================

The posterior of a classifier's latent function is not normal, but a fit approximates it by a normal distribution. The
quality of the approximation depends on the bound that the fit maximises. Here the kernel is fixed, and long Gibbs
sampling (``pip install 'xgpc[gibbs]'``) gives the exact posterior. The example compares three bounds with it.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process.kernels import RBF

from xgpc import GPClassifier
from xgpc.gibbs import GibbsClassifier

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(-4, 4, 120))[:, None]
y = (rng.random(120) < 1 / (1 + np.exp(-5 * np.sin(1.6 * X[:, 0])))).astype(int)
kernel = 40.0 * RBF(1.0)

grid = np.linspace(-5, 5, 200)[:, None]
exact = GibbsClassifier(kernel, n_samples=2000, random_state=0).fit(X, y)
mean, variance = exact.predict_latent(grid)
print(f"Gibbs: R-hat {exact.r_hat_:.3f}, {exact.ess_:.0f} effective samples")

# %%
# The shaded band shows the exact posterior of the latent function: its mean, plus and minus two standard deviations.
# The lines are the approximations. Where latent values are large, the variances of the Polya-Gamma bound are too small.

figure, (left, right) = plt.subplots(1, 2, figsize=(13, 4.6), layout="constrained")
band = 2 * np.sqrt(variance)
left.fill_between(grid[:, 0], mean - band, mean + band, color="0.85", label="Gibbs samples")
left.plot(grid[:, 0], mean, color="0.4")
right.plot(grid[:, 0], exact.predict_proba(grid)[:, 1], color="0.4", linewidth=3, alpha=0.5, label="Gibbs samples")
for bound, colour in (("polya-gamma", "#D55E00"), ("taylor", "#009E73"), ("exact", "#0072B2")):
    model = GPClassifier(kernel, bound=bound, inducing_points="all", optimizer=None).fit(X, y)
    m, v = model.predict_latent(grid)
    for sign in (-2, 2):
        left.plot(grid[:, 0], m + sign * np.sqrt(v), color=colour, label=bound if sign > 0 else None)
    right.plot(grid[:, 0], model.predict_proba(grid)[:, 1], color=colour, label=bound)
    error = np.mean(np.abs(np.sqrt(v) - np.sqrt(variance)))
    print(f"{bound}: bound {model.elbo_:.2f} nats, standard deviations off by {error:.3f} on average")
left.set(title="Latent function, mean and two standard deviations", xlabel="x", ylabel="f(x)")
left.legend()
right.scatter(X[:, 0], y, s=14, color="black", marker="|", label="rows")
right.set(title="Probability of class 1", xlabel="x")
right.legend()
plt.show()

# %%
# The probabilities differ little, so that the Polya-Gamma bound is often good enough for predictions. Intervals, active
# learning and other uses of the variances are better with the exact bound, the default.
