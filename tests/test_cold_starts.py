"""Fits from the prior end where warm starts do, or say that they did not converge."""

import pytest
from sklearn.datasets import make_blobs
from sklearn.gaussian_process.kernels import RBF
from support.cold_starts import Setting, setting, shortfall

# Nats for each nat of the best warm start's bound, or of one.
TOLERANCE = 1e-3
ONE = ((1e-3, 0.03, 1.0),)


@pytest.mark.parametrize("variance", [100.0, 1e4, 1e5])
def test_a_large_variance_does_not_end_a_fit_of_ten_classes_early(variance):
    X, y = make_blobs(300, centers=10, random_state=1)
    given = Setting("blobs", X, y, variance, RBF(5.0), 0.0, {"n_inducing": 30, "random_state": 0})
    missing, _ = shortfall(given, ONE)
    assert missing < TOLERANCE


@pytest.mark.parametrize("seed", range(1001, 1009))
def test_cold_starts_end_where_warm_ones_do_or_say_that_they_did_not_converge(seed):
    """``python tools/cold_starts.py`` has hundreds more settings."""
    missing, cold = shortfall(setting(seed), ONE)
    assert missing < TOLERANCE or not cold.converged_
