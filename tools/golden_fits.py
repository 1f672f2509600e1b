"""Fits of every kind, kept and compared: what a change of the code's shape must leave as it was.

    python tools/golden_fits.py record before.npz
    python tools/golden_fits.py compare before.npz

Bounds, probabilities and histories agree to 1e-9 where hyperparameters are given, relative to the largest value; where
they are learned the bound and probabilities agree to 1e-3, as an optimiser magnifies rounding.
"""

import argparse
import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_moons
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel
from sklearn.preprocessing import StandardScaler

from xgpc import BayesianLinearClassifier, GPClassifier, systems

GIVEN, LEARNED = 1e-9, 1e-3
SEED = {"random_state": 0}


LEARNED_FITS = {
    "profile": {},
    "profile full": {"inducing_points": "all"},
    "profile ARD of the default": {"kernel": None},
    "profile auto": {"n_inducing": "auto"},
    "profile svm": {"likelihood": "svm"},
    "profile step": {"likelihood": "step"},
    "profile polya-gamma": {"bound": "polya-gamma"},
    "alternate": {"bound": "polya-gamma", "optimizer": "alternate"},
    "alternate exact": {"optimizer": "alternate"},
    "taylor": {"bound": "taylor", "optimizer": "alternate"},
    "hybrid": {"bound": "polya-gamma", "optimizer": "hybrid"},
    "joint": {"bound": "polya-gamma", "optimizer": "joint"},
    "adam": {"optimizer": "adam", "max_iter": 10},
    "adam mini-batches": {"optimizer": "adam", "batch_size": 50, "max_iter": 10},
    "X-GPC": {"max_iter": 10, **systems["X-GPC"]},
}


def data(name):
    """Standardised rows and labels."""
    if name == "moons":
        X, y = make_moons(3000, noise=0.25, random_state=0)
    elif name == "cancer":
        X, y = load_breast_cancer(return_X_y=True)
    elif name == "wine":
        X, y = load_wine(return_X_y=True)
    else:
        X, y = load_digits(return_X_y=True)
        X, y = X[:600], y[:600] % 4
    return StandardScaler().fit_transform(X), y


def kernel(d):
    return ConstantKernel(4.0) * RBF(d**0.5)


def cases():
    """Name -> (estimator, name of the data, whether rows are weighted)."""
    found = {}
    binary = [("logit", "exact"), ("logit", "polya-gamma"), ("logit", "taylor"), ("logit", "additive-noise"),
              ("probit", "exact"), ("probit", "additive-noise"), ("step", "additive-noise"), ("svm", "exact"),
              ("svm", "augmented")]  # fmt: skip
    several = [("softmax", "exact"), ("softmax", "additive-noise"), ("multinomial-step", "additive-noise"),
               ("multinomial-probit", "additive-noise"), ("multinomial-logit", "additive-noise"),
               ("logistic-softmax", "polya-gamma")]  # fmt: skip
    for likelihood, bound in binary:
        which = {"likelihood": likelihood, "bound": bound, "optimizer": None, **SEED}
        found[f"{likelihood} {bound}"] = GPClassifier(kernel(30), n_inducing=40, **which), "cancer", False
        if bound != "taylor":
            found[f"{likelihood} {bound} full"] = (
                GPClassifier(kernel(30), inducing_points="all", **which), "cancer", False
            )  # fmt: skip
    for likelihood, bound in several:
        which = {"likelihood": likelihood, "bound": bound, "optimizer": None, **SEED}
        for share in ("kernel", "none"):
            model = GPClassifier(kernel(13), n_inducing=30, share=share, **which)
            found[f"{likelihood} {bound} {share}"] = model, "wine", False
    for likelihood in ("logit", "svm", "probit"):
        model = GPClassifier(
            kernel(2), likelihood=likelihood, n_inducing=60, optimizer=None, batch_size=100, n_neighbors=0, **SEED
        )
        found[f"{likelihood} mini-batches"] = model, "moons", likelihood == "svm"
    model = GPClassifier(kernel(64), n_inducing=30, optimizer=None, batch_size=50, max_iter=20, **SEED)
    found["softmax mini-batches"] = model, "digits", False
    noisy = Matern(3.0, nu=1.5) + WhiteKernel(0.3)
    found["weights"] = GPClassifier(noisy, n_inducing=50, optimizer=None, n_neighbors=0, **SEED), "moons", True
    found["weights full"] = GPClassifier(noisy, inducing_points="all", optimizer=None, **SEED), "cancer", True
    found["softmax full"] = GPClassifier(kernel(13), inducing_points="all", optimizer=None, **SEED), "wine", True
    near = {"n_neighbors": 8, **SEED}
    found["neighbours"] = GPClassifier(noisy, n_inducing=20, optimizer=None, **near), "moons", True
    found["neighbours softmax"] = GPClassifier(kernel(64), n_inducing=20, optimizer=None, **near), "digits", False
    found["neighbours learned"] = GPClassifier(n_inducing=20, max_iter=10, **near), "moons", False
    found["neighbours softmax learned"] = GPClassifier(n_inducing=20, max_iter=10, **near), "digits", False
    for likelihood, bound in (("logit", "exact"), ("svm", "augmented"), ("probit", "exact")):
        model = BayesianLinearClassifier(likelihood, bound=bound, prior_variance=1.0)
        found[f"linear {likelihood} {bound}"] = model, "cancer", bound == "augmented"
    # As many epochs as are asked for: when to stop is looked at now and then only, which is not what is compared.
    model = BayesianLinearClassifier(prior_variance=0.5, batch_size=100, max_iter=5, tol=0.0, **SEED)
    found["linear mini-batches"] = model, "moons", True
    found["linear learned"] = BayesianLinearClassifier(), "cancer", False
    found["linear mini-batches learned"] = (
        BayesianLinearClassifier(batch_size=50, max_iter=5, tol=0.0, **SEED),
        "moons",
        False,
    )
    for name, options in LEARNED_FITS.items():
        model = GPClassifier(**{"kernel": kernel(30), "n_inducing": 20, "max_iter": 20, **SEED, **options})
        found[f"{name} learned"] = model, "cancer", name == "profile svm"
    for share in ("kernel", "none"):
        model = GPClassifier(kernel(13), n_inducing=15, share=share, max_iter=15, **SEED)
        found[f"softmax {share} learned"] = model, "wine", False
    return found


def fitted(model, X, y, weighted):
    """Arrays by name: bound, log probabilities and the history."""
    if isinstance(model, BayesianLinearClassifier) or model.likelihood in ("svm", "probit", "step"):
        y = y > 0
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y)) if weighted else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y, weight)
    arrays = {"proba": model.predict_log_proba(X[:200])}
    if not getattr(model, "n_neighbors_", 0):
        arrays["elbo"] = np.array([model.elbo_])
    corrected = isinstance(model, GPClassifier) and (model.likelihood, model.bound) == ("logit", "polya-gamma")
    if corrected and len(model.classes_) == 2:
        arrays["corrected"] = model.predict_proba(X[:200], corrected=True)
    if isinstance(model, GPClassifier) and "elbo" in arrays and model._evidence.gap is not None:
        arrays["gap"] = np.array([model.bound_gap()])
    # "change" of a step that has not been taken is no number to compare.
    skipped = ("seconds", "change", "epoch") if isinstance(model, BayesianLinearClassifier) else ("seconds",)
    history = {
        name: column for name, column in model.history_.items() if column.dtype.kind == "f" and name not in skipped
    }
    return arrays | {f"history {name}": column for name, column in history.items()}


def difference(before, after):
    """Largest absolute difference, relative to the largest value; infinite for other shapes."""
    if before.shape != after.shape or not np.array_equal(np.isnan(before), np.isnan(after)):
        return np.inf
    scale = max(1e-12, float(np.nanmax(np.abs(before), initial=0.0)))
    return float(np.nanmax(np.abs(after - before), initial=0.0)) / scale


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("file")
    parser.add_argument("--only", default="", help="fits whose names hold this text")
    options = parser.parse_args()
    chosen = {name: case for name, case in cases().items() if options.only in name}
    results = {}
    for name, (model, which, weighted) in chosen.items():
        results |= {f"{name}: {key}": value for key, value in fitted(model, *data(which), weighted).items()}
    if options.what == "record":
        np.savez_compressed(options.file, **results)
        print(f"{len(chosen)} fits")
        return
    before, bad = np.load(options.file), 0
    for name in chosen:
        limit = LEARNED if name.endswith("learned") else GIVEN
        keys = [key for key in before.files if key.startswith(f"{name}: ")]
        if limit == LEARNED:
            keys = [key for key in keys if "history" not in key]
        worst = {key: difference(before[key], results.get(key, np.empty(0))) for key in keys}
        for key, value in worst.items():
            if not value <= limit:
                bad += 1
                print(f"{key}: {value:.2e}")
        print(f"{name}: {max(worst.values()):.1e}")
    print(f"{len(chosen)} fits, {bad} arrays differ by more than they may")
    raise SystemExit(bad > 0)


if __name__ == "__main__":
    main()
