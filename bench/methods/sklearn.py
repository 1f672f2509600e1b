"""scikit-learn's classifiers at their defaults."""

import numpy as np
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.svm import SVC

LEVELS = make_column_selector(dtype_include="category")
# Votes added to each class: a forest says 0 where no tree has the class, which would cost infinitely much.
SMOOTHING = 0.5


class Forest:
    """A random forest whose shares of trees are never 0."""

    def __init__(self, threads, seed):
        self.model = RandomForestClassifier(n_jobs=threads, random_state=seed)

    def fit(self, X, y):
        model = self.model
        if hasattr(X, "dtypes"):
            categories = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
            model = make_pipeline(make_column_transformer((categories, LEVELS), remainder="passthrough"), model)
        self.fitted_ = model.fit(X, y)
        return self

    def predict_proba(self, X):
        votes = len(self.model.estimators_) * self.fitted_.predict_proba(X) + SMOOTHING
        return votes / np.sum(votes, axis=1, keepdims=True)


def scaled_columns(X):
    """What makes a table an array: columns for the levels, a missing one, too, then scaled numbers with means for
    missing ones. Arrays stay: those of the studies are scaled."""
    if not hasattr(X, "dtypes"):
        return FunctionTransformer()
    numbers = make_pipeline(SimpleImputer(keep_empty_features=True), StandardScaler())
    levels = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return make_column_transformer((levels, LEVELS), remainder=numbers)


class Logistic:
    """A logistic regression on scaled columns."""

    def __init__(self):
        self.model = LogisticRegression(max_iter=1000)

    def fit(self, X, y):
        self.fitted_ = make_pipeline(scaled_columns(X), self.model).fit(X, y)
        return self

    def predict_proba(self, X):
        return self.fitted_.predict_proba(X)


def make(threads, seed, name, **settings):
    if name == "forest":
        return Forest(threads, seed)
    if name == "logistic":
        return Logistic()
    if name == "svm":
        # Platt's scaling.
        return SVC(probability=True, random_state=seed)
    kinds = {"histogram": HistGradientBoostingClassifier, "laplace": GaussianProcessClassifier}
    return kinds[name](random_state=seed, **settings)
