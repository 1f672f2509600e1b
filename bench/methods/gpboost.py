"""GPBoost's Vecchia-inducing-points approximation with the Laplace approximation and iterative solvers, two classes.

Number of neighbours and of inducing points are its defaults. The kernel has a length scale for each column.
"""

from contextlib import contextmanager

import gpboost
import numpy as np

from . import CannotFit
from .sklearn import scaled_columns

# Deviations by which training rows are moved: this approximation takes no equal rows.
MOVED = 1e-3


@contextmanager
def its_errors():
    """Errors of the library mean that it cannot fit these rows."""
    try:
        yield
    except gpboost.basic.GPBoostError as error:
        raise CannotFit("a fit or a prediction ends with an error of the library") from error


class FullScaleVecchia:
    def __init__(self, threads, seed):
        self.settings = {
            "likelihood": "bernoulli_logit", "cov_function": "matern_ard", "cov_fct_shape": 1.5,
            "gp_approx": "full_scale_vecchia", "matrix_inversion_method": "iterative", "num_parallel_threads": threads,
            "seed": seed,
        }  # fmt: skip

    def fit(self, X, y):
        if np.max(y) > 1:
            raise CannotFit("two classes only")
        self.columns_ = scaled_columns(X).fit(X)
        rows = self.columns_.transform(X)
        rows += MOVED * np.random.default_rng(self.settings["seed"]).normal(size=rows.shape)
        self.model_ = gpboost.GPModel(gp_coords=rows, **self.settings)
        with its_errors():
            self.model_.fit(y=y.astype(float), X=np.ones((len(y), 1)))
        return self

    def predict_proba(self, X):
        rows, ones = self.columns_.transform(X), np.ones((len(X), 1))
        with its_errors():
            p = self.model_.predict(gp_coords_pred=rows, X_pred=ones, predict_response=True)["mu"]
        return np.column_stack([1 - p, p])


make = FullScaleVecchia
