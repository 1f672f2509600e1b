"""Random rows and kernels, and how far below warm starts a fit from the prior ends."""

from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_digits, load_iris, load_wine, make_blobs, make_classification
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel, Matern, RationalQuadratic, WhiteKernel
from sklearn.preprocessing import StandardScaler

from xgpc import GPClassifier

from .fits import quietly

# Factors of the variance, one after the other, each fit from the sites of the one before.
CONTINUATIONS = ((1e-4, 1e-3, 1e-2, 1e-1, 1.0), (1e-2, 1.0), (0.1, 0.3, 1.0), (10.0, 1.0))
SEVERAL = (("softmax", "exact"), ("softmax", "exact"), ("softmax", "exact"), ("softmax", "additive-noise"))
TWO = (("logit", "exact"), ("probit", "exact"), ("svm", "exact"), ("logit", "polya-gamma"))


@dataclass(frozen=True)
class Setting:
    """Rows, a kernel ``variance * shape + noise``, and what else a fit is told."""

    name: str
    X: np.ndarray
    y: np.ndarray
    variance: float
    shape: Kernel
    noise: float
    options: dict

    def kernel(self, factor):
        kernel = ConstantKernel(factor * self.variance) * self.shape
        return kernel + WhiteKernel(self.noise) if self.noise else kernel

    def model(self, **options):
        return GPClassifier(self.kernel(1.0), n_neighbors=0, optimizer=None, **self.options, **options)


def rows(random):
    """Name, standardised features and labels of up to 250 rows, of 2 to 10 classes, some wrong."""
    seed, n_classes = int(random.integers(2**31)), int(random.integers(2, 11))
    kind = random.choice(["blobs", "classification", "iris", "wine", "digits"])
    if kind == "blobs":
        X, y = make_blobs(250, int(random.integers(1, 6)), centers=n_classes, random_state=seed)
    elif kind == "classification":
        X, y = make_classification(250, 8, n_informative=5, n_classes=n_classes, flip_y=0.05, random_state=seed)
    else:
        X, y = {"iris": load_iris, "wine": load_wine, "digits": load_digits}[kind](return_X_y=True)
    chosen = random.permutation(len(y))[: int(random.integers(60, 251))]
    X, y = StandardScaler().fit_transform(X[chosen]), y[chosen].copy()
    wrong = random.uniform(size=len(y)) < random.choice([0.0, 0.1])
    y[wrong] = random.permutation(y[wrong])
    return f"{kind}, {len(y)} rows, {len(np.unique(y))} classes", X, y


def setting(seed):
    random = np.random.default_rng(seed)
    name, X, y = rows(random)
    length_scale = np.sqrt(X.shape[1]) * 10.0 ** random.uniform(-0.7, 0.7)
    shapes = (
        RBF(length_scale),
        *(Matern(length_scale, nu=nu) for nu in (0.5, 1.5, 2.5)),
        RationalQuadratic(length_scale),
    )
    variance, noise = 10.0 ** random.uniform(-1.0, 5.0), random.choice([0.0, 0.0, 0.1])
    likelihood, bound = random.permutation(SEVERAL if len(np.unique(y)) > 2 else TWO)[0]
    points = "all" if random.uniform() < 0.2 else X[random.permutation(len(X))[: int(random.integers(5, 60))]]
    options = {"likelihood": likelihood, "bound": bound, "inducing_points": points}
    return Setting(name, X, y, variance, shapes[random.integers(len(shapes))], noise, options)


def shortfall(given, continuations=CONTINUATIONS):
    """How many nats for each nat of the best warm start's bound, of one at least, a fit from the prior ends below it;
    and the fit."""
    cold, bounds = quietly(given.model(), given.X, given.y), []
    for factors in continuations:
        model = given.model(warm_start=True, tol=1e-5, max_iter=400)
        for factor in factors:
            quietly(model.set_params(kernel=given.kernel(factor)), given.X, given.y)
        bounds.append(model.elbo_)
    best = max(bounds)
    return (best - cold.elbo_) / max(1.0, abs(best)), cold
