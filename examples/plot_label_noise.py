"""
Labels that may be wrong
========================

Fifteen per cent of the labels are swapped. Under the default likelihood, "logit", the latent function must explain each
label. A likelihood with additive noise allows wrong labels: it learns their share, and the cost of a wrong label does
not depend on how deep in the other class the row lies.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.inspection import DecisionBoundaryDisplay
from sklearn.metrics import log_loss

from xgpc import GPClassifier

X, y = make_moons(600, noise=0.12, random_state=0)
X_test, y_test = make_moons(4000, noise=0.12, random_state=1)
rng = np.random.default_rng(0)
given = np.where(rng.random(len(y)) < 0.15, 1 - y, y)
given_test = np.where(rng.random(len(y_test)) < 0.15, 1 - y_test, y_test)

settings = {
    "logit, exact bound": {},
    "step, additive noise": {"likelihood": "step"},
}
figure, columns = plt.subplots(1, 2, figsize=(13, 5), layout="constrained")
for ax, (name, keywords) in zip(columns, settings.items(), strict=True):
    model = GPClassifier(n_inducing=32, random_state=0, **keywords).fit(X, given)
    DecisionBoundaryDisplay.from_estimator(model, X, response_method="predict_proba", cmap="coolwarm", ax=ax)
    ax.scatter(*X.T, c=given, s=12, cmap="coolwarm", edgecolor="white", linewidth=0.3)
    learned = f", learned noise {model.label_noise_:.2f}" if hasattr(model, "label_noise_") else ""
    ax.set_title(f"{name}{learned}: bound {model.elbo_:.0f} nats")
    loss = log_loss(given_test, model.predict_proba(X_test))
    right = model.score(X_test, y_test)
    print(f"{name}: negative log likelihood of given test labels {loss:.3f}, accuracy on true labels {right:.3f}")
plt.show()

# %%
# Both models predict about equally well: a Gaussian process averages over many rows, so that single wrong labels do
# little harm. The second model also learns the share of wrong labels, which limits its probabilities deep inside a
# class, and it has the higher bound. The bound is a lower bound of the log probability of the labels, and shows without
# test rows which likelihood explains the labels better. The next figure compares the learned noise with the true share
# of swapped labels.

shares = np.linspace(0.0, 0.3, 7)
learned = []
for share in shares:
    given = np.where(np.random.default_rng(1).random(len(y)) < share, 1 - y, y)
    learned.append(GPClassifier(likelihood="step", n_inducing=32, random_state=0).fit(X, given).label_noise_)
figure, ax = plt.subplots(figsize=(5, 4), layout="constrained")
ax.plot(shares, shares, color="0.6", linestyle="--", label="true share")
ax.plot(shares, learned, "o-", label="learned")
ax.set(title="Learned and true share", xlabel="Share of swapped labels", ylabel="label_noise_")
ax.legend()
plt.show()
