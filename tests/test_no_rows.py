"""Predictions of no rows, such as a filter leaves: arrays of no rows, of the type and width that others have."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from support.fits import quietly
from support.online import FLOWERS, KINDS, X, y

from xgpc import BayesianLinearClassifier, GPClassifier
from xgpc.acquisition import latent_variance, mutual_information, predictive_entropy, probability_of_feasibility
from xgpc.gibbs import GibbsClassifier

NUMBERS = pd.DataFrame(X, columns=["a", "b"])
LEVELS = NUMBERS.assign(b=pd.Categorical(np.where(X[:, 1] > 0.0, "up", "down")))
FEW = {"max_iter": 3, "n_inducing": 8, "random_state": 0}
MODELS = {
    "two classes": (GPClassifier(**FEW), X, y),
    "several": (GPClassifier(**FEW), FLOWERS, KINDS),
    "their own kernels": (GPClassifier(share="none", **FEW), FLOWERS, KINDS),
    "full": (GPClassifier(inducing_points="all", max_iter=3), X, y),
    "neighbours": (GPClassifier(n_neighbors=5, **FEW), X, y),
    "neighbours, several": (GPClassifier(n_neighbors=5, **FEW), FLOWERS, KINDS),
    "corrected": (GPClassifier(bound="polya-gamma", **FEW), X, y),
    "float32": (GPClassifier(**FEW), X.astype(np.float32), y),
    "sparse": (GPClassifier(**FEW), sparse.csr_matrix(X), y),
    "frame": (GPClassifier(**FEW), NUMBERS, y),
    "levels": (GPClassifier(**FEW), LEVELS, y),
    "linear": (BayesianLinearClassifier(), X, y),
    "gibbs": (GibbsClassifier(n_samples=10, n_warmup=2, thin=1, n_chains=2, random_state=0), X[:40], y[:40]),
}
CALLS = [
    ("predict", {}),
    ("predict_proba", {}),
    ("predict_log_proba", {}),
    ("decision_function", {}),
    ("predict_latent", {}),
    ("predict_latent", {"return_cov": True}),
    ("sample_latent", {"n_samples": 2, "random_state": 0}),
]


def arrays(found):
    return found if isinstance(found, tuple) else (found,)


# Another number than those of classes and features.
SOME = 7


@pytest.mark.parametrize("name", MODELS)
def test_predictions_of_no_rows(name):
    model, rows, labels = MODELS[name]
    fitted = quietly(model, rows, labels)
    for method, options in CALLS:
        # Other classifiers' options have other names.
        if not isinstance(model, GPClassifier) and (options or not hasattr(model, method)):
            continue
        of_some, of_none = (arrays(getattr(fitted, method)(rows[:n], **options)) for n in (SOME, 0))
        for one, other in zip(of_some, of_none, strict=True):
            assert other.shape == tuple(0 if size == SOME else size for size in one.shape)
            assert other.dtype == one.dtype


def test_scores_of_no_rows():
    fitted = quietly(*MODELS["several"])
    for score in (predictive_entropy, latent_variance, mutual_information):
        assert score(fitted, FLOWERS[:0]).shape == (0,)
    assert probability_of_feasibility(fitted, FLOWERS[:0], 1).shape == (0,)
