"""Fits of every kind, kept and compared: what a change of the code's shape must leave as it was.

    python tools/golden_fits.py record before.npz
    python tools/golden_fits.py compare before.npz

Arrays are equal bit for bit on one machine; ``--within 1e-12`` allows differences relative to an array's largest value.
Fits for BoTorch and dask are made where these are installed.
"""

import argparse
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_moons
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel
from sklearn.model_selection import GroupKFold, TimeSeriesSplit
from sklearn.preprocessing import StandardScaler

from xgpc import BayesianLinearClassifier, GPClassifier, GPOrdinalClassifier, GPPreference, acquisition, systems
from xgpc.explain import shapley_values
from xgpc.rows.clock import Clock

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
    # Without an optimizer, where the number of points is chosen.
    found["neighbours given kernel"] = GPClassifier(kernel(2), optimizer=None, **near), "moons", False
    rough = GPClassifier(n_inducing=16, n_neighbors=0, max_iter=10, **SEED)
    found["variance by held-out rows"] = rough, "moons", False
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
    """The model, fitted to two classes where its likelihood has two, and to random weights if it is ``weighted``."""
    if isinstance(model, BayesianLinearClassifier) or model.likelihood in ("svm", "probit", "step"):
        y = y > 0
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y)) if weighted else None
    return model.fit(X, y, weight)


class Timed(GPClassifier):
    """Time passes by a second with each call of the callback, so that ``max_time`` counts these."""

    def fit(self, X, y):
        self.states = []
        self.callback = self.states.append
        return super().fit(X, y)

    def _clock(self):
        return Clock(self.max_time, lambda: float(len(self.states)))


def table(n=400):
    """A frame with numbers, levels, missing values, a far value and a constant column; and labels."""
    random = np.random.default_rng(3)
    frame = pd.DataFrame({
        "size": random.lognormal(size=n), "colour": pd.Categorical.from_codes(random.integers(3, size=n), list("abc")),
        "age": random.normal(40.0, 12.0, n), "one": 1.0, "is old": random.random(n) < 0.3,
    })  # fmt: skip
    score = np.log(frame["size"]) + (frame["colour"] == "b") - 0.05 * (frame["age"] - 40.0)
    y = np.where(score + 0.5 * random.normal(size=n) > 0.0, "yes", "no")
    frame.loc[::17, "age"], frame.loc[5, "age"], frame.loc[::23, "colour"] = np.nan, -9999.0, None
    return frame, y


def of_streams(X, y):
    """Both kinds of ``partial_fit``, with what came last added point by point, and batches that are read twice."""
    some = {"n_inducing": 20, "max_iter": 15, **SEED}
    for name, options in (("without neighbours", {"n_neighbors": 0}), ("neighbours", {"max_rows_in_model": 400})):
        model = GPClassifier(**some, **options)
        for i in range(0, 900, 300):
            model.partial_fit(X[i : i + 300], y[i : i + 300], forgetting_factor=0.95 if i else 1.0)
            yield f"stream {name} {i}", model, X
        if not options.get("max_rows_in_model"):
            yield "stream new points", model.partial_fit(X[900:950], y[900:950], n_new_inducing=5), X
    batches = [(X[i : i + 700], y[i : i + 700]) for i in range(0, 2800, 700)]
    yield "batches", GPClassifier(**some).fit_batches(batches), X
    yield (
        "batches without neighbours",
        GPClassifier(n_neighbors=0, max_rows_in_model=1000, **some).fit_batches(batches),
        X,
    )


def of_tables():
    """Frames with levels and missing values, sparse rows, counts, groups, splitters, copies."""
    frame, y = table()
    some = {"n_inducing": 20, "max_iter": 15, **SEED}
    yield "table", GPClassifier(**some).fit(frame, y), frame
    X, labels = data("moons")
    X, labels = X[:400], labels[:400]
    yield "table sparse", GPClassifier(n_neighbors=0, **some).fit(sparse.csr_array(X), labels), X
    yield "float32", GPClassifier(precision="mixed", **some).fit(X.astype(np.float32), labels), X
    counts = np.random.default_rng(0).integers(3, size=(400, 2))
    yield "counts", GPClassifier(**some).fit(X, counts, classes=[0, 1]), X
    groups = np.arange(400) // 8
    yield "groups", GPClassifier(**SEED).fit(X, labels, groups=groups), X
    yield "splitter", GPClassifier(**SEED, held_out_split=GroupKFold(4)).fit(X, labels, groups=groups), X
    yield "splitter time", GPClassifier(**SEED, held_out_split=TimeSeriesSplit(3)).fit(X, labels), X
    repeated = np.r_[np.arange(400), np.arange(0, 400, 2)]
    yield "copies", GPClassifier(**SEED).fit(X[repeated], labels[repeated]), X
    yield (
        "balanced",
        GPClassifier(class_weight="balanced", **some).fit(X[labels + X[:, 0] < 1.2], labels[labels + X[:, 0] < 1.2]),
        X,
    )


def of_defaults():
    """Defaults with and without neighbours, a warm start, a given time."""
    X, y = data("moons")
    yield "default few", GPClassifier(**SEED).fit(X[:60], y[:60]), X
    model = GPClassifier(**SEED).fit(X[:1500], y[:1500])
    yield "default", model, X
    yield "default warm", model.set_params(warm_start=True, max_iter=5).fit(X[:2000], y[:2000]), X
    digits, kinds = data("digits")
    yield "default classes", GPClassifier(**SEED).fit(digits, kinds), digits
    flowers, species = data("wine")
    yield "default few classes", GPClassifier(**SEED).fit(flowers, species), flowers
    grown = {"kernel": kernel(2), "n_inducing": "auto", "n_neighbors": 0, **SEED}
    for seconds in (3.0, 30.0, 200.0):
        yield f"time {seconds:g}", Timed(max_time=seconds, **SEED).fit(X[:800], y[:800]), X
        yield f"time growth {seconds:g}", Timed(max_time=seconds, **grown).fit(X[:800], y[:800]), X


def of_likelihoods():
    """Models beside labels without an order and a latent function for each."""
    X, y = data("moons")
    X = X[:300]
    for likelihood in ("logit", "probit"):
        levels = np.digitize(X[:, 0] + X[:, 1], [-0.8, 0.3, 1.0])
        model = GPOrdinalClassifier(likelihood=likelihood, n_inducing=15, max_iter=15, **SEED)
        yield f"ordinal {likelihood}", model.fit(X, levels), X
        items = np.random.default_rng(2).normal(size=(2, 100, 2))
        better = items[:, :, 0].argmax(axis=0)
        first, second = items[better, np.arange(100)], items[1 - better, np.arange(100)]
        model = GPPreference(likelihood=likelihood, n_inducing=30, max_iter=15, **SEED)
        yield f"preference {likelihood}", model.fit(first, second), X
    for name, rates in {"given": {"guess_rate": 0.05, "lapse_rate": 0.1}, "learned": {"guess_rate": "learn"}}.items():
        model = GPClassifier(likelihood="psychometric", n_inducing=15, max_iter=15, **rates, **SEED)
        yield f"psychometric {name}", model.fit(X, y[:300]), X


def of_clusters(X, y):
    """Fits to partitions in the threads of one process."""
    if find_spec("distributed") is None:
        return
    from dask import array, config
    from distributed import Client

    from xgpc.dask import DaskGPClassifier

    with config.set({"distributed.worker.daemon": False}), Client(processes=False, dashboard_address=None) as client:
        rows, labels = array.from_array(X, chunks=(1000, 2)), array.from_array(y, chunks=1000)
        for name, options in (("", {}), (" without neighbours", {"n_neighbors": 0, "max_rows_in_model": 1000})):
            model = DaskGPClassifier(n_inducing=20, max_iter=10, client=client, **options, **SEED)
            yield f"dask{name}", model.fit(rows, labels), X


def uses(name, model, X):
    """Arrays of what else a model computes: slopes, draws, files, arrays, scores, explanations, graphs of ONNX."""
    few = X[:20] if hasattr(X, "columns") else X[:20].astype(float)
    if isinstance(model, BayesianLinearClassifier):
        return
    if isinstance(model, GPPreference):
        yield "latent", np.stack(model.predict_latent(few))
        return
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.npz")
        yield "loaded", type(model).load(Path(folder) / "model.npz").predict_log_proba(few)
    if not isinstance(model, GPClassifier) or name.startswith("table"):
        return
    yield "latent", np.stack(model.predict_latent(few))
    yield "draws", model.sample_latent(few, 3, random_state=0)
    yield "entropy", acquisition.predictive_entropy(model, few)
    yield "information", acquisition.mutual_information(model, few)
    if name.startswith("logit exact"):
        yield "shapley", shapley_values(model, few[:3], few[:10]).values
    if find_spec("botorch") is not None and len(model.classes_) == 2:
        import torch

        from xgpc.botorch import LatentModel

        yield "botorch", LatentModel(model).posterior(torch.as_tensor(few)).mvn.covariance_matrix.detach().numpy()
    if find_spec("onnxruntime") is not None and not isinstance(model, GPOrdinalClassifier):
        import onnxruntime

        from xgpc.onnx import to_onnx

        session = onnxruntime.InferenceSession(to_onnx(model, "float64").SerializeToString())
        yield "onnx", session.run(["probabilities"], {"X": few})[0]


def results(name, model, X):
    """Arrays by name: bound, log probabilities, learned parameters and the history."""
    if isinstance(model, GPPreference):
        arrays = {"proba": model.predict_proba(X[:100], X[100:200])}
    else:
        arrays = {"proba": model.predict_log_proba(X[:200])}
    arrays["elbo"] = np.array([np.nan if model.elbo_ is None else model.elbo_])
    for attribute in (
        "label_agreement_",
        "drift_",
        "n_neighbors_",
        "held_out_score_",
        "mean_",
        "cut_points_",
        "inducing_points_",
    ):
        value = getattr(model, attribute, None)
        if value is not None and not hasattr(value, "columns"):
            arrays[attribute] = np.asarray(value, dtype=float)
    if isinstance(model, GPClassifier):
        kernels = model.kernel_ if isinstance(model.kernel_, tuple | list) else [model.kernel_]
        arrays["theta"] = np.concatenate([each.theta for each in kernels])
        if (model.likelihood, model.bound) == ("logit", "polya-gamma") and len(model.classes_) == 2:
            arrays["corrected"] = model.predict_proba(X[:200], corrected=True)
        if getattr(model._evidence, "gap", None) is not None:
            arrays["gap"] = np.array([model.bound_gap()])
    history = {
        f"history {key}": column
        for key, column in getattr(model, "history_", {}).items()
        if column.dtype.kind in "fi" and key != "seconds"
    }
    return arrays | history


def models():
    """Name, fitted model, and rows to predict, of all kinds."""
    for name, (model, which, weighted) in cases().items():
        X, y = data(which)
        yield name, fitted(model, X, y, weighted), X
    moons = data("moons")
    for group in (of_defaults(), of_tables(), of_likelihoods(), of_streams(*moons), of_clusters(*moons)):
        yield from group


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
    parser.add_argument("--only", default="", help="print fits whose names hold this text")
    parser.add_argument("--within", type=float, default=0.0, help="largest relative difference that is allowed")
    options = parser.parse_args()
    arrays = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, model, X in models():
            for key, array in (results(name, model, X) | dict(uses(name, model, X))).items():
                arrays[f"{name}: {key}"] = np.array(array)
    if options.what == "record":
        np.savez_compressed(options.file, **arrays)
        print(f"{len(arrays)} arrays")
        return
    before = np.load(options.file)
    keys = [key for key in dict.fromkeys((*before.files, *arrays)) if options.only in key]
    differences = {
        key: difference(before[key], arrays[key]) if key in before and key in arrays else np.inf for key in keys
    }
    moved = {key: value for key, value in differences.items() if value > options.within}
    for key, value in moved.items():
        print(f"{key}: {value:.1e}")
    print(f"{len(keys)} arrays, {len(moved)} differ by more than they may")
    raise SystemExit(bool(moved))


if __name__ == "__main__":
    main()
