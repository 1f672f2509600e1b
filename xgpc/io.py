"""Models as one ``.npz`` file of plain arrays: nothing in it is ever executed."""

from __future__ import annotations

import json
import numbers
import os
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from .blocks import single_threaded_blas
from .files import regular, replacing
from .full import FullPosterior, FullPrior
from .kernels import KERNELS, KernelSpec
from .likelihoods import resolve
from .posterior import Prior, SeparatePriors, SparsePosterior

FORMAT = 3
# Constructor arguments kept as they are; kernel, inducing points, class weights and random state have forms of their
# own.
PARAMETERS = (
    "likelihood", "bound", "n_inducing", "optimizer", "learn_inducing", "n_restarts_optimizer",
    "subset_sizes", "share", "label_noise", "batch_size", "learning_rate",
    "max_iter", "tol", "warm_start", "n_jobs", "verbose",
)  # fmt: skip


def kernel_to_data(kernel: Kernel) -> dict[str, Any]:
    """A kernel tree as JSON-ready data."""
    data: dict[str, Any] = {"type": type(kernel).__name__}
    for name, value in kernel.get_params(deep=False).items():
        if isinstance(value, Kernel):
            data[name] = kernel_to_data(value)
        else:
            data[name] = np.asarray(value).tolist() if not isinstance(value, str) else value
    return data


def kernel_from_data(data: dict[str, Any]) -> Kernel:
    """The kernel that ``kernel_to_data`` described."""
    parameters: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, dict):
            parameters[name] = kernel_from_data(value)
        elif name != "type":
            parameters[name] = np.array(value) if isinstance(value, list) else value
    return KERNELS[data["type"]](**parameters)


def save(model: Any, path: str | os.PathLike) -> None:
    """Write a fitted ``GPClassifier``."""
    if model.classes_.dtype.kind == "O":
        classes = model.classes_.astype(str)
        if not np.array_equal(classes, model.classes_):
            raise ValueError(
                f"Only labels that are numbers, booleans or strings can be saved; got {model.classes_.tolist()}."
            )
    else:
        classes = model.classes_
    q = model.posterior_
    parameters = {name: getattr(model, name) for name in PARAMETERS}
    weights = model.class_weight
    parameters["class_weight"] = list(weights.items()) if isinstance(weights, dict) else weights
    seed = model.random_state
    parameters["random_state"] = seed if isinstance(seed, numbers.Integral) else None
    points = model.inducing_points
    parameters["inducing_points"] = points if isinstance(points, str) else np.asarray(points, dtype=np.float64)
    parameters["kernel"] = None if model.kernel is None else kernel_to_data(model.kernel)
    full = isinstance(q, FullPosterior)
    header = {
        "format": FORMAT,
        "full": full,
        "parameters": parameters,
        "kernels": [kernel_to_data(prior.spec.kernel) for prior in q.prior.groups],
        "resolved": model._resolved,
        "label_noise": getattr(model, "label_noise_", None),
        "object_labels": model.classes_.dtype.kind == "O",
        "bound_gap": model._bound_gap,
        "elbo": model.elbo_,
        "n_iter": model.n_iter_,
        "converged": model.converged_,
    }
    eta, h = q.natural
    # Of a full Gaussian process the sites' precisions, else lower triangles of P.
    eta = eta if full else np.tril(eta)
    arrays = {f"history_{name}": column for name, column in model.history_.items()}
    if model._correction is not None:
        arrays["correction_precision"], arrays["correction_linear"] = model._correction
    if hasattr(model, "feature_names_in_"):
        arrays["feature_names"] = model.feature_names_in_.astype(str)
    header_text = json.dumps(header, default=lambda value: np.asarray(value).tolist())
    with replacing(path) as file:
        np.savez(file, header=header_text, classes=classes, Z=q.prior.Z, eta=eta, h=h, **arrays)


def load(cls: type, path: str | os.PathLike) -> Any:
    """Read a model of class ``cls``."""
    with regular(path) as file:
        # A damaged or foreign file can fail in any way that zip, NumPy, JSON or the estimator know.
        try:
            with np.lib.npyio.NpzFile(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            with single_threaded_blas:
                return _rebuild(cls, arrays)
        except Exception as error:
            reason = str(error).rstrip(".")
            raise ValueError(f"{os.fspath(path)!r} is not a model saved by GPClassifier.save: {reason}.") from error


def _rebuild(cls: type, arrays: dict[str, np.ndarray]) -> Any:
    header = json.loads(str(arrays["header"]))
    if header["format"] != FORMAT:
        raise ValueError(f"its format is {header['format']}, this version reads {FORMAT}")
    Z, eta, h, classes = (arrays[name] for name in ("Z", "eta", "h", "classes"))
    m, d = Z.shape[-2:]
    names = arrays.get("feature_names", np.empty(d))
    likelihood, bound = header["resolved"]
    n_latents = resolve(likelihood, bound, len(classes))[0].n_latents(len(classes))
    shape = () if n_latents is None else (n_latents,)
    kernels = header["kernels"]
    size = (m,) if header["full"] else (m, m)
    if (eta.shape, h.shape, names.shape) != ((*shape, *size), (*shape, m), (d,)) or (Z.ndim, len(kernels)) not in (
        (2, 1),
        (3, n_latents),
    ):
        raise ValueError("its arrays do not fit each other")
    parameters = header["parameters"]
    if isinstance(parameters["learning_rate"], list):
        parameters["learning_rate"] = tuple(parameters["learning_rate"])
    if isinstance(parameters["class_weight"], list):
        parameters["class_weight"] = dict(parameters["class_weight"])
    if isinstance(parameters["inducing_points"], list):
        parameters["inducing_points"] = np.array(parameters["inducing_points"])
    if parameters["kernel"] is not None:
        parameters["kernel"] = kernel_from_data(parameters["kernel"])
    one_prior, posterior = (FullPrior, FullPosterior) if header["full"] else (Prior, SparsePosterior)
    priors = tuple(
        one_prior.build(KernelSpec(kernel_from_data(kernel), d), points)
        for kernel, points in zip(kernels, Z.reshape(-1, m, d), strict=True)
    )
    q = posterior.from_natural(priors[0] if Z.ndim == 2 else SeparatePriors(priors), eta, h)
    if q is None:
        raise ValueError("its posterior precision is not positive definite")
    model = cls(**parameters)
    correction = None
    if "correction_linear" in arrays:
        correction = arrays["correction_precision"], arrays["correction_linear"]
        if (correction[0].shape, correction[1].shape) != (eta.shape, h.shape):
            raise ValueError("its arrays do not fit each other")
    model._set_fit(q, likelihood, bound, header["label_noise"], correction, header["bound_gap"])
    model.classes_ = classes.astype(object) if header["object_labels"] else classes
    model.n_features_in_ = d
    if "feature_names" in arrays:
        model.feature_names_in_ = names.astype(object)
    model.elbo_, model.n_iter_, model.converged_ = header["elbo"], header["n_iter"], header["converged"]
    prefix = "history_"
    model.history_ = {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
    return model
