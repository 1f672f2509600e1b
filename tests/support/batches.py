"""Rows of which a fit reads batches or partitions, and what two fits to them must have alike."""

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

N = 6000


def problem(n=N, n_classes=2):
    """Rows of two features, classes from 0, and weights, of which some are zero."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    score = X[:, 0] + np.sin(2.0 * X[:, 1]) + 0.5 * rng.normal(size=n)
    y = np.digitize(score, np.linspace(-1.0, 1.0, n_classes + 1)[1:-1])
    weight = rng.uniform(0.5, 2.0, n)
    weight[::7] = 0.0
    return X, y, weight


# Of a fit in a moment.
OPTIONS = {
    "kernel": ConstantKernel(2.0) * RBF([1.0, 1.5]), "inducing_points": problem()[0][:20], "n_inducing": 20,
    "optimizer": None, "random_state": 0,
}  # fmt: skip


def assert_same_fit(one, other, X):
    """Bit for bit, history and all but times."""
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))
    assert one.elbo_ == other.elbo_
    assert one.kernel_ == other.kernel_
    np.testing.assert_array_equal(one.inducing_points_, other.inducing_points_)
    np.testing.assert_array_equal(one.classes_, other.classes_)
    assert one.classes_.dtype == other.classes_.dtype
    assert one.history_.keys() == other.history_.keys()
    for name in one.history_.keys() - {"seconds"}:
        np.testing.assert_array_equal(one.history_[name], other.history_[name])
