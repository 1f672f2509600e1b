"""Models with each kind of posterior and kernel, of rows that are few."""

import numpy as np

from xgpc import GPClassifier

from .dense import KERNELS
from .fits import quietly

POSTERIORS = {
    "sparse": {"n_inducing": 9, "n_neighbors": 0},
    "full": {"inducing_points": "all"},
    "local": {"n_inducing": 6, "n_neighbors": 5},
}
LABELS = np.array(["bad", "good", "odd"])


def kernels(length_scales, *names):
    return {name: KERNELS[name](np.array(length_scales), 2.0, 0.1) for name in names}


def labelled(n_classes=2, d=2):
    """Rows (70, d), of which two features tell the label."""
    random = np.random.default_rng(0)
    X = random.normal(size=(70, d))
    score = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.5 * random.normal(size=70)
    return X, LABELS[np.digitize(score, [0.0, 0.8][: n_classes - 1])]


def stretched(X):
    """Rows whose last feature has heavy tails, around 10."""
    return np.column_stack([X[:, :-1], 10.0 + np.sinh(3.0 * X[:, -1])])


def model_of(n_classes=2, posterior="sparse", kernel=None, d=2, change=None, **options):
    """A fit to labelled rows, which are changed before."""
    X, y = labelled(n_classes, d)
    options = {"optimizer": None, "random_state": 0, **POSTERIORS[posterior], **options}
    return quietly(GPClassifier(kernel, **options), X if change is None else change(X), y)
