"""GPBoost's Vecchia approximation of a Gaussian process: its neighbours are those of the latent function itself.

A Matern kernel of smoothness 3/2 with a length scale for each feature, 20 neighbours, and otherwise its defaults: a
Laplace approximation of the logistic likelihood, learned by L-BFGS. One thread: on two cores two took 3 to 10 times as
long (heart, diabetes-pima).
"""

import gpboost
import numpy as np

KERNEL = {"cov_function": "matern_ard", "cov_fct_shape": 1.5}


class Vecchia:
    def __init__(self, seed, settings):
        self.model, self.settings = None, {"num_parallel_threads": 1, "seed": seed, **KERNEL, **settings}

    def fit(self, X, y):
        self.model = gpboost.GPModel(
            gp_coords=X, likelihood="bernoulli_logit", gp_approx="vecchia", num_neighbors=20, **self.settings
        )
        self.model.fit(y=y.astype(float))
        return self

    def predict_proba(self, X):
        second = self.model.predict(gp_coords_pred=X, predict_response=True)["mu"]
        return np.column_stack([1.0 - second, second])


def make(threads=2, seed=0, **settings):
    return Vecchia(seed, settings)
