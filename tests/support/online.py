"""Batches of a stream, and estimators of given kernel and inducing points."""

import numpy as np
from sklearn.datasets import load_iris
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.preprocessing import StandardScaler

from xgpc import GPClassifier
from xgpc.likelihoods import MULTI_CLASS, record_of

from .latents import CASES as EVERY_CASE
from .reference import moons

KERNEL = ConstantKernel(3.0) * RBF([1.0, 1.5])
X, y = moons(160, seed=3)
FIRST, SECOND, THIRD = slice(0, 60), slice(60, 120), slice(120, 160)
FLOWERS = StandardScaler().fit_transform(load_iris().data[:, 2:])
KINDS = load_iris().target
SHUFFLED = np.random.default_rng(0).permutation(150)
FLOWERS, KINDS = FLOWERS[SHUFFLED], KINDS[SHUFFLED]
CASES = [case for case in EVERY_CASE if case[2] == "kernel" or case[0] == "softmax"]


def rows_for(likelihood):
    return (FLOWERS, KINDS) if likelihood in MULTI_CLASS else (X, y)


def model(likelihood="logit", bound="auto", **params):
    """An estimator of given kernel and inducing points, so that nothing is learned."""
    rows = FLOWERS if likelihood in MULTI_CLASS else X
    noise = bound != "auto" and record_of(likelihood, bound).has_label_noise
    given = {"inducing_points": rows[:12], "optimizer": None, "tol": 1e-9, "max_iter": 2000, "random_state": 0}
    given |= {"label_noise": 0.05} if noise else {}
    given |= {"guess_rate": 0.05, "lapse_rate": 0.1} if likelihood == "psychometric" else {}
    return GPClassifier(KERNEL, likelihood=likelihood, bound=bound, **given | params)
