"""scikit-learn: the Gaussian process by Laplace's method, and Nystroem features with a logistic regression."""

import time

import numpy as np
from measure import scores, timed_fit
from problems import hold_out
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

COMPONENTS = (50, 150, 500)
GAMMAS = (1 / 16, 1 / 4, 1, 4)
PENALTIES = (0.1, 1.0, 10.0, 100.0)


class NystroemClassifier(ClassifierMixin, BaseEstimator):
    """Length scale and penalty are those of the lowest NLL on a tenth of the training rows."""

    def __init__(self, components=150, seed=0):
        self.components, self.seed = components, seed

    def _features(self, gamma, X):
        return Nystroem(gamma=gamma, n_components=min(self.components, len(X)), random_state=self.seed).fit(X)

    def fit(self, X, y):
        part, tried = hold_out(X, y), []
        for gamma in np.array(GAMMAS) / X.shape[1]:
            features = self._features(gamma, part.X)
            F, F_test = features.transform(part.X), features.transform(part.X_test)
            for C in PENALTIES:
                model = LogisticRegression(C=C, max_iter=1000)
                timed_fit(model, F, part.y)
                tried.append((scores(model.predict_proba(F_test), part.y_test)["nll"], gamma, C))
        _, self.gamma_, self.C_ = min(tried)
        features, model = self._features(self.gamma_, X), LogisticRegression(C=self.C_, max_iter=1000)
        timed_fit(model, features.transform(X), y)
        self.classes_, self.model_ = model.classes_, make_pipeline(features, model)
        return self

    def predict_proba(self, X):
        return self.model_.predict_proba(X)


def make(threads=2, seed=0, components=None, **settings):
    """The Gaussian process, or that many Nystroem features; the caller limits the threads, which are those of BLAS."""
    if components is None:
        return GaussianProcessClassifier(random_state=seed, **settings)
    return NystroemClassifier(components, seed, **settings)


def path(data, threads, seconds):
    """More and more Nystroem features; the seconds are those of the choice and the fit."""
    for components in COMPONENTS:
        model, start = make(threads, components=components), time.perf_counter()
        model.fit(data.X, data.y)
        yield time.perf_counter() - start, model, {"components": components, "gamma": model.gamma_, "C": model.C_}
