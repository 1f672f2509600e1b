"""Columns of joint covariances of posteriors, made one by one, are those of the whole matrices."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, WhiteKernel
from support.fits import quietly
from support.online import FLOWERS, KINDS, X, y

from xgpc import GPClassifier
from xgpc.approximations import columns
from xgpc.approximations.columns import covariance_columns

NOISY = ConstantKernel(3.0) * RBF([1.0, 1.5]) + WhiteKernel(0.3)
SUM = ConstantKernel(2.0) * Matern([0.8, 1.1], nu=0.5) + DotProduct(0.5) * ConstantKernel(0.1)
FIXED = {"optimizer": None, "n_inducing": 12, "random_state": 0}
MODELS = {
    "sparse": ({"kernel": SUM, **FIXED}, X, y),
    "sparse with noise": ({"kernel": NOISY, **FIXED}, X, y),
    "several": ({"kernel": NOISY, **FIXED}, FLOWERS, KINDS),
    "their own kernels": ({"share": "none", "n_inducing": 8, "max_iter": 4, "random_state": 0}, FLOWERS, KINDS),
    "negative precisions": ({"kernel": SUM, "likelihood": "step", "label_noise": 0.2, **FIXED}, X, y),
    "full": ({"kernel": NOISY, "inducing_points": "all", "optimizer": None}, X[:60], y[:60]),
    "full, several": ({"kernel": SUM, "inducing_points": "all", "optimizer": None}, FLOWERS[:60], KINDS[:60]),
    "neighbours": ({"kernel": SUM, "n_neighbors": 5, **FIXED}, X, y),
    "neighbours, noise": ({"kernel": NOISY, "n_neighbors": 7, **FIXED}, X, y),
    "neighbours, several": ({"kernel": NOISY, "n_neighbors": 5, **FIXED}, FLOWERS, KINDS),
    "neighbours, learned": ({"n_neighbors": 6, "max_iter": 5, "random_state": 0}, X, y),
}


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_columns_are_those_of_the_joint_covariance(name, n_jobs, monkeypatch):
    monkeypatch.setattr(columns, "WEIGHT_ROWS", 7)
    params, rows, labels = MODELS[name]
    model = quietly(GPClassifier(**params), rows, labels)
    q = model.posterior_ or model.posterior_
    assert model.n_neighbors_ == params.get("n_neighbors", 0)
    # Rows of the training set, a row twice, and rows near and far.
    random = np.random.default_rng(1)
    asked = np.concatenate([rows[:6], rows[2:3], rows[:9] + random.normal(size=(9, rows.shape[1])), rows[:2] + 50.0])
    whole = q.covariance(asked).reshape(-1, len(asked), len(asked))
    column = covariance_columns(q, asked, n_jobs)
    for i in range(len(asked)):
        others = np.arange(len(asked)) != i
        found = column(i)
        assert found.shape == whole.shape[:2]
        np.testing.assert_allclose(found[:, others], whole[:, i, others], atol=1e-9 * np.max(np.abs(whole)))


def test_columns_of_float32_rows_and_of_any_order():
    model = quietly(GPClassifier(SUM, **FIXED), X, y)
    rows = np.asfortranarray(X[:20].astype(np.float32))
    column = covariance_columns(model.posterior_, rows, None)
    expected = model.posterior_.covariance(np.ascontiguousarray(rows, dtype=np.float64))
    np.testing.assert_allclose(column(3)[0], expected[3], atol=1e-9)
