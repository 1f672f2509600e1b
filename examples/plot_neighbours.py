"""
Neighbours on a checkerboard
============================

A few inducing points cannot follow classes that change over distances much shorter than the range of the data. With
neighbours, a prediction also uses the nearest training rows. By default, the fit takes neighbours if they improve the
predictions of held-out rows.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss

from xgpc import GPClassifier


def board(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 8, (n, 2))
    wrong = rng.random(n) < 0.05
    return X, (np.floor(X).sum(axis=1) % 2 != wrong).astype(int)


X, y = board(4000, 0)
X_test, y_test = board(4000, 1)
models = {
    "32 inducing points": GPClassifier(n_inducing=32, n_neighbors=0, random_state=0),
    "the default": GPClassifier(random_state=0),
    "boosted trees": HistGradientBoostingClassifier(random_state=0),
}
axis = (np.arange(120) + 0.5) * 8 / 120
grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)

figure, columns = plt.subplots(1, 3, figsize=(13, 4.5), layout="constrained")
for ax, (name, model) in zip(columns, models.items(), strict=True):
    model.fit(X, y)
    shades = model.predict_proba(grid)[:, 1].reshape(120, 120)
    drawn = ax.imshow(shades, origin="lower", extent=(0, 8, 0, 8), vmin=0, vmax=1, cmap="RdBu")
    loss = log_loss(y_test, model.predict_proba(X_test))
    ax.set_title(f"{name}\nnegative log likelihood {loss:.2f}")
figure.colorbar(drawn, ax=columns, label="Probability of class 1", shrink=0.8)
plt.show()

print(models["the default"].decisions_)

# %%
# No model can have a negative log likelihood below 0.20 here, because one label in twenty is wrong.
