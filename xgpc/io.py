"""Models as one ``.npz`` file of plain arrays: nothing in it is ever executed, and nothing in it is believed.

A file may be damaged or made to harm. Everything is checked before it is used: names, types and shapes of the arrays
before any is read, every field of the header, and that numbers are finite.
"""

from __future__ import annotations

import json
import math
import os
import reprlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from .approximations.base import KernelPosterior, grouped
from .approximations.full import FullPosterior, FullPrior
from .approximations.local import LocalPosterior
from .approximations.sparse import PRECISIONS, SparsePosterior, SparsePrior
from .archive import KINDS, Archive, Member
from .config import check_parameters, is_integer, is_name, is_number
from .data.encoding import Encoding, of_table
from .files import regular, replacing
from .inference.fitting import Evidence
from .kernels.spec import KERNELS, Groups, KernelSpec, check_tree
from .learning.inducing import given_points
from .likelihoods import LIKELIHOODS, has_label_noise, record_of
from .ranges import LARGEST_FEATURE, largest_size
from .rows.blas import single_threaded_blas

FORMAT = 7
# Of a covariance below the identity, as q(z) has it.
EIGENVALUE_ERROR = 1e-12
# Constructor arguments kept as they are; kernel, inducing points, class weights and random state have forms of their
# own.
PARAMETERS = (
    "likelihood", "bound", "n_inducing", "n_neighbors", "optimizer", "learn_inducing", "n_restarts_optimizer",
    "length_scale_prior", "subset_sizes", "share", "label_noise", "mean", "batch_size", "learning_rate",
    "max_iter", "tol", "precision", "feature_transform", "warm_start", "max_time", "keep_on_interrupt", "n_jobs",
    "verbose",
)  # fmt: skip
OWN_FORMS = ("kernel", "inducing_points", "class_weight", "random_state", "categorical_features")
# What is not kept.
NOT_KEPT = ("query_split", "checkpoint", "callback")
# What models that were saved before do not have, and what they were fitted with.
LATER = {
    "max_time": None,
    "keep_on_interrupt": False,
    "categorical_features": "from_dtype",
    "length_scale_prior": None,
    "precision": "double",
    "mean": 0.0,
    "feature_transform": None,
}
FIELDS = (
    "format", "full", "parameters", "kernels", "resolved", "label_noise", "object_labels", "bound_gap", "elbo",
    "n_iter", "converged", "feature_names", "history", "neighbors", "variance_scale",
    "query_score",
)  # fmt: skip
# Of models of tables, and of those with limits of features, alone.
ENCODING = "encoding"
# Of the latent functions under the prior; of models in which it is not 0.
MEAN = "mean"
# Of whitened rows; of models in which it is not double.
PRECISION = "precision"
# Of models of data frames whose columns have no names that are text.
LABELS = "column_labels"
# Of the training rows of each class, NaN where they are not known, and of the fit; models that were saved before have
# neither.
CLASS_COUNT, WARNINGS = "class_count", "warnings"
# Rows of all batches; of models that were saved before, those of the last fit or batch.
N_SEEN = "n_samples_seen"
OPTIONAL = {ENCODING, MEAN, PRECISION, LABELS, CLASS_COUNT, WARNINGS, N_SEEN}
# Characters of the header, and its numbers and names. It holds the kernels' parameters, three numbers for a length
# scale with its bounds: enough for 150 000 of these. To parse as much takes a second and 60 MB at most.
MAX_HEADER, MAX_VALUES = 2**24, 500_000
# Characters of an error: it may quote as many numbers as a file has.
MAX_REASON = 500
HISTORY = "history_"
# An array that models which were saved before do not have.
FEATURE_MEAN = "feature_mean"
CORRECTION = ("correction_precision", "correction_linear")
DO_NOT_FIT = "its arrays do not fit each other"


def kernel_to_data(kernel: Kernel) -> dict[str, Any]:
    """A kernel tree as JSON-ready data."""
    data: dict[str, Any] = {"type": type(kernel).__name__}
    for name, value in kernel.get_params(deep=False).items():
        if isinstance(value, Kernel):
            data[name] = kernel_to_data(value)
        else:
            data[name] = np.asarray(value).tolist() if not isinstance(value, str) else value
    return data


def kernel_from_data(data: Any) -> Kernel:
    """The kernel that ``kernel_to_data`` described."""
    check_tree(data, lambda node: [value for value in node.values() if isinstance(value, dict)])
    return _kernel(data)


def _kernel(data: dict[str, Any]) -> Kernel:
    parameters: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, dict):
            parameters[name] = _kernel(value)
        elif name != "type":
            parameters[name] = np.array(value) if isinstance(value, list) else value
    return KERNELS[data["type"]](**parameters)


def save(model: Any, path: str | os.PathLike[str], rows_dtype: Any = None) -> None:
    """Write a fitted ``GPClassifier``."""
    _check_parameters(model)
    if rows_dtype is not None and not is_name(rows_dtype, ("float32", "float64")):
        raise ValueError(f"rows_dtype must be 'float32', 'float64' or None; got {rows_dtype!r}.")
    classes = model.classes_.astype(str) if model.classes_.dtype.kind == "O" else model.classes_
    if classes.dtype.kind not in KINDS or not np.array_equal(classes, model.classes_):
        raise ValueError(
            f"Only labels that are numbers, booleans or strings can be saved; got {model.classes_.tolist()}."
        )
    predicting = model.posterior_
    local = predicting if isinstance(predicting, LocalPosterior) else None
    q = predicting if local is None else local.without_neighbors()
    evidence = model._evidence
    full = q.prior.is_full
    header = {
        "format": FORMAT,
        "full": full,
        "parameters": _parameters_to_data(model),
        "kernels": [kernel_to_data(prior.spec.kernel) for prior in q.prior.groups],
        "resolved": model._resolved,
        "label_noise": getattr(model, "label_noise_", None),
        "object_labels": model.classes_.dtype.kind == "O",
        "bound_gap": None if evidence is None else evidence.gap,
        "elbo": None if evidence is None else evidence.elbo,
        "n_iter": model.n_iter_,
        "converged": model.converged_,
        # What else there is, so that none can get lost.
        "feature_names": hasattr(model, "feature_names_in_"),
        "history": list(model.history_),
        "neighbors": model.n_neighbors_,
        "variance_scale": None if local is None else local.variance_scale,
        "query_score": model.query_score_,
        CLASS_COUNT: model.class_count_,
        WARNINGS: model.warnings_,
        N_SEEN: model.n_samples_seen_,
    }
    header |= precision_of(q)
    if model.encoding_ is not None:
        header[ENCODING] = model.encoding_.to_data()
    if model._column_labels is not None:
        header[LABELS] = list(model._column_labels)
    if np.any(model.mean_):
        header[MEAN] = np.atleast_1d(model.mean_)
    arrays = {f"{HISTORY}{name}": column for name, column in model.history_.items()}
    arrays["feature_spread"] = model.feature_spread_
    if hasattr(model, "feature_mean_"):
        arrays[FEATURE_MEAN] = model.feature_mean_
    if evidence is not None and evidence.correction is not None:
        arrays.update(zip(CORRECTION, evidence.correction, strict=True))
    if local is not None:
        of_rows = local.to_arrays()
        arrays.update(of_rows, rows=_rows_as(of_rows["rows"], rows_dtype))
    if header["feature_names"]:
        arrays["feature_names"] = model.feature_names_in_.astype(str)
    if not isinstance(model.inducing_points, str):
        arrays["inducing_points"] = np.asarray(model.inducing_points, dtype=np.float64)
    text = json.dumps(header, default=lambda value: np.asarray(value).tolist())
    _check_length(text)
    with replacing(path) as file:
        np.savez(file, header=text, classes=classes, **q.to_arrays(), **arrays)


def _rows_as(rows: np.ndarray, dtype: str | None) -> np.ndarray:
    """Training rows in the type of a file; ValueError for those that it cannot hold."""
    if dtype == "float32" and largest_size(rows) > float(np.finfo(np.float32).max):
        raise ValueError(
            f"rows_dtype='float32' has no values of size {largest_size(rows):.3g}; leave rows_dtype=None, or scale the "
            "features before the fit."
        )
    return rows if dtype is None else rows.astype(dtype)


def _check_parameters(model: Any) -> None:
    """As before a fit."""
    check_parameters(model)
    table = of_table(model.encoding_)
    groups = None if table is None else table.groups
    d = model.n_features_in_ if groups is None else len(groups.index)
    if model.kernel is not None:
        KernelSpec(model.kernel, d, groups)
    if not isinstance(model.inducing_points, str):
        given_points(model.inducing_points, d)


def _parameters_to_data(model: Any) -> dict[str, Any]:
    weights, seed, points = model.class_weight, model.random_state, model.inducing_points
    chosen = model.categorical_features
    return {
        **{name: getattr(model, name) for name in PARAMETERS},
        "kernel": None if model.kernel is None else kernel_to_data(model.kernel),
        # Those that are given are an array of their own.
        "inducing_points": points if isinstance(points, str) else None,
        "class_weight": list(weights.items()) if isinstance(weights, dict) else weights,
        "random_state": seed if is_integer(seed) else None,
        "categorical_features": chosen if chosen is None or isinstance(chosen, str) else list(chosen),
    }


def _check_length(text: str) -> None:
    if len(text) > MAX_HEADER or sum(map(text.count, ",[{")) > MAX_VALUES:
        raise ValueError(f"The header of a model has at most {MAX_VALUES} values; the kernels have more parameters.")


def load(cls: type, path: str | os.PathLike[str]) -> Any:
    """Read a model of class ``cls``."""
    with regular(path) as file:
        # A damaged or foreign file can fail in any way that zip, NumPy, JSON or the estimator know.
        try:
            archive = Archive(file)
            header = _header(archive)
            floats = _float_shapes(header, archive.members)
            _check_members(floats, header, archive.members)
            arrays = {name: archive[name] for name in archive if name != "header"}
            # What overflows is refused, and need not be warned of.
            with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
                return _rebuild(cls, header, list(floats), arrays)
        except MemoryError:
            raise
        except Exception as error:
            reason = str(error)[:MAX_REASON].rstrip(".")
            raise ValueError(f"{os.fspath(path)!r} is not a model saved by GPClassifier.save: {reason}.") from error


def _require(is_right: bool, what: str, given: Any) -> None:
    if not is_right:
        raise ValueError(f"its {what} is not valid: {reprlib.repr(given)}")


def _header(archive: Archive) -> dict[str, Any]:
    """The header, with all of its fields and each of the right type."""
    member = archive.members.get("header")
    if member is None or member.dtype.kind != "U" or member.shape or member.dtype.itemsize > 4 * MAX_HEADER:
        raise ValueError("it has no header")
    text = str(archive["header"])
    _check_length(text)
    header = json.loads(text)
    _require(isinstance(header, dict), "header", header)
    if header.get("format") != FORMAT:
        raise ValueError(f"its format is {reprlib.repr(header.get('format'))}, this version reads {FORMAT}")
    _require(sorted(set(header) - OPTIONAL) == sorted(FIELDS), "header", sorted(header))
    for name in ("full", "object_labels", "converged", "feature_names"):
        _require(isinstance(header[name], bool), name, header[name])
    precision = header.get(PRECISION, "double")
    _require(is_name(precision, PRECISIONS) and not (PRECISION in header and header["full"]), "precision", precision)
    k, scale, score = header["neighbors"], header["variance_scale"], header["query_score"]
    _require(is_integer(k) and k >= 0, "neighbors", k)
    _require(_is_finite(scale) and scale > 0.0 if k else scale is None, "variance_scale", scale)
    is_score = isinstance(score, list) and len(score) == 2 and all(map(is_number, score)) and _is_finite(score[0])
    # The standard error of a single row's score is NaN.
    is_score = is_score and not math.isinf(score[1])
    _require(is_score if k else score is None, "query_score", score)
    _require(is_integer(header["n_iter"]) and header["n_iter"] >= 1, "n_iter", header["n_iter"])
    elbo, with_neighbors = header["elbo"], header["neighbors"]
    _require(_is_finite(elbo) or (elbo is None and bool(with_neighbors)), "elbo", elbo)
    pairs = [[name, bound] for name, likelihood in LIKELIHOODS.items() for bound in likelihood.bounds]
    _require(header["resolved"] in pairs, "likelihood and bound", header["resolved"])
    gap = header["bound_gap"]
    has_gap = elbo is not None and record_of(*header["resolved"]).has_bound_gap
    _require(_is_finite(gap) if has_gap else gap is None, "bound_gap", gap)
    counts, warnings = header.setdefault(CLASS_COUNT, None), header.setdefault(WARNINGS, [])
    are_counts = isinstance(counts, list) and all(is_number(one) and not one < 0.0 for one in counts) and any(counts)
    _require(counts is None or are_counts, CLASS_COUNT, counts)
    _require(isinstance(warnings, list) and all(isinstance(one, str) for one in warnings), WARNINGS, warnings)
    seen = header.setdefault(N_SEEN, None)
    _require(seen is None or (is_integer(seen) and seen >= 1), N_SEEN, seen)
    kernels, parameters, history = header["kernels"], header["parameters"], header["history"]
    if isinstance(parameters, dict):
        header["parameters"] = parameters = {**LATER, **parameters}
    _require(isinstance(history, list) and all(isinstance(name, str) for name in history), "history", history)
    _require(isinstance(kernels, list) and all(isinstance(one, dict) for one in kernels), "kernels", kernels)
    _require(
        isinstance(parameters, dict) and sorted(parameters) == sorted(PARAMETERS + OWN_FORMS), "parameters", parameters
    )
    return header


def _is_finite(value: Any) -> bool:
    return is_number(value) and math.isfinite(value)


def _float_shapes(header: dict[str, Any], members: dict[str, Member]) -> dict[str, tuple[int, ...]]:
    """Names of the arrays of finite numbers, and the shapes that they must have by those of Z and the classes."""
    shapes = {name: member.shape for name, member in members.items()}
    Z, n_classes = shapes.get("Z", ()), math.prod(shapes.get("classes", ()))
    likelihood, bound = header["resolved"]
    n_latents = LIKELIHOODS[likelihood].n_latents(n_classes)
    latents = () if n_latents is None else (n_latents,)
    if n_classes < 2 or (n_classes > 2 and not latents) or Z[:-2] not in ((), latents) or len(Z) < 2 or not all(Z):
        raise ValueError(DO_NOT_FIT)
    _require(len(header["kernels"]) == math.prod(Z[:-2]), "number of kernels", len(header["kernels"]))
    m = Z[-2]
    found = {"Z": Z, "eta": (*latents, m) if header["full"] else (*latents, m, m), "h": (*latents, m)}
    found["feature_spread"] = Z[-1:]
    if FEATURE_MEAN in shapes:
        found[FEATURE_MEAN] = Z[-1:]
    if record_of(likelihood, bound).has_correction:
        found.update(zip(CORRECTION, (found["eta"], found["h"]), strict=True))
    if header["neighbors"]:
        rows = shapes.get("rows", ())
        if header["full"] or Z[:-2] or rows[1:] != Z[-1:] or not header["neighbors"] <= rows[0]:
            raise ValueError(DO_NOT_FIT)
        C = n_latents or 1
        sites = C, *rows[:1]
        found.update(rows=rows, site_precision=sites, site_linear=sites, local_w=(C, m), local_V=(C, m, m))
    if header["parameters"]["inducing_points"] is None:
        found["inducing_points"] = shapes.get("inducing_points", ())
    return found


def _check_members(floats: dict[str, tuple[int, ...]], header: dict[str, Any], members: dict[str, Member]) -> None:
    """ValueError unless all arrays that the header speaks of, and no others, are there with their types and shapes."""
    history = [f"{HISTORY}{name}" for name in header["history"]]
    encoding = _encoding(header)
    table, n_features = of_table(encoding), floats["Z"][-1]
    if table is not None and n_features != len(table.groups.index):
        raise ValueError(DO_NOT_FIT)
    limits = () if encoding is None else encoding.limits
    if any(one.feature >= n_features or len(one.slopes) not in (0, n_features) for one in limits):
        raise ValueError(DO_NOT_FIT)
    n_features = n_features if table is None else len(table.columns)
    names = ["feature_names"] * header["feature_names"]
    expected = sorted(["header", "classes", *floats, *history, *names])
    if expected != sorted(members):
        raise ValueError(f"its arrays are {sorted(members)}, not {expected}")
    fits = [
        *(
            members[name].shape == shape
            and members[name].dtype.str[1:] in (("f4", "f8") if name == "rows" else ("f8",))
            for name, shape in floats.items()
        ),
        *(members[name].shape == (n_features,) and members[name].dtype.kind == "U" for name in names),
        *(len(members[name].shape) in (1, 2) for name in history),
        len({members[name].shape[:1] for name in history}) <= 1,
        len(floats.get("inducing_points", (0, 0))) == 2,
        len(members["classes"].shape) == 1,
        not header["object_labels"] or members["classes"].dtype.kind == "U",
    ]
    if not all(fits):
        raise ValueError(DO_NOT_FIT)


def _encoding(header: dict[str, Any]) -> Encoding | None:
    return Encoding.from_data(header[ENCODING]) if ENCODING in header else None


def _constructor_arguments(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    parameters = dict(header["parameters"])
    if isinstance(parameters["learning_rate"], list):
        parameters["learning_rate"] = tuple(parameters["learning_rate"])
    if parameters["inducing_points"] is None:
        parameters["inducing_points"] = arrays["inducing_points"]
    if parameters["kernel"] is not None:
        parameters["kernel"] = kernel_from_data(parameters["kernel"])
    weights = parameters["class_weight"]
    if isinstance(weights, list):
        parameters["class_weight"] = weights = dict(weights)
        _require(all(_is_finite(weight) and weight > 0.0 for weight in weights.values()), "class_weight", weights)
    else:
        _require(weights in (None, "balanced"), "class_weight", weights)
    seed = parameters["random_state"]
    _require(seed is None or (is_integer(seed) and 0 <= seed < 2**32), "random_state", seed)
    return parameters


def precision_of(q: KernelPosterior) -> dict[str, str]:
    """What a header says of the precision of whitened rows: nothing where it is double."""
    used = getattr(q.prior.groups[0], "dtype", np.float64)
    name = next(name for name, dtype in PRECISIONS.items() if dtype is used)
    return {} if name == "double" else {PRECISION: name}


def posterior_from(
    header: dict[str, Any], arrays: dict[str, np.ndarray], groups: Groups | None = None
) -> KernelPosterior:
    """The posterior of ``full``, ``kernels``, ``precision`` and what ``to_arrays`` gave; ValueError if they make none.

    ``groups`` are the features that share a length scale.
    """
    Z = arrays["Z"]
    m, d = Z.shape[-2:]
    _require(largest_size(Z) <= LARGEST_FEATURE, "Z", "values too large")
    specs = [KernelSpec(kernel_from_data(kernel), d, groups) for kernel in header["kernels"]]
    pairs = list(zip(specs, Z.reshape(-1, m, d), strict=True))
    natural = arrays["eta"], arrays["h"]
    q: KernelPosterior | None
    if header["full"]:
        q = FullPosterior.from_natural(grouped([FullPrior.build(*pair) for pair in pairs]), *natural)
    else:
        dtype = PRECISIONS[header.get(PRECISION, "double")]
        q = SparsePosterior.from_natural(grouped([SparsePrior.build(*pair, dtype) for pair in pairs]), *natural)
    # Whatever of it is not finite is part of this.
    if q is None or not math.isfinite(q.kl):
        raise ValueError("its posterior precision is not positive definite, or its mean is not finite")
    return q


def _local_posterior(
    header: dict[str, Any], arrays: dict[str, np.ndarray], q: KernelPosterior
) -> LocalPosterior | None:
    if not header["neighbors"]:
        return None
    _require(largest_size(arrays["rows"]) <= LARGEST_FEATURE, "rows", "values too large")
    _require(bool(np.all(arrays["site_precision"] >= 0.0)), "site_precision", "negative values")
    V = arrays["local_V"]
    # Eigenvalues are 1 at most, and have errors of rounding.
    _require(bool(np.allclose(V, np.swapaxes(V, 1, 2), rtol=0.0, atol=EIGENVALUE_ERROR)), "local_V", "not symmetric")
    least = float(np.linalg.eigvalsh(V).min(initial=1.0))
    _require(least >= -EIGENVALUE_ERROR, "local_V", "not positive semidefinite")
    sites, k, scale = (arrays["site_precision"], arrays["site_linear"]), header["neighbors"], header["variance_scale"]
    return LocalPosterior(q.prior.groups[0], arrays["rows"], *sites, arrays["local_w"], V, k, q.n_latents, scale)


def _rebuild(cls: type, header: dict[str, Any], floats: Sequence[str], arrays: dict[str, np.ndarray]) -> Any:
    for name in floats:
        _require(bool(np.isfinite(np.min(arrays[name])) and np.isfinite(np.max(arrays[name]))), name, "not finite")
    classes, (likelihood, bound), delta = arrays["classes"], header["resolved"], header["label_noise"]
    _require(bool(np.all(classes[:-1] < classes[1:])), "order of classes", classes.tolist())
    _require(classes.dtype.kind != "f" or bool(np.all(np.isfinite(classes))), "classes", classes.tolist())
    # Guessing has the largest.
    has_noise, largest = has_label_noise(likelihood, bound), 1.0 - 1.0 / len(classes)
    _require(is_number(delta) and 0.0 < delta < largest if has_noise else delta is None, "label_noise", delta)
    counts = header[CLASS_COUNT]
    _require(counts is None or len(counts) == len(classes), CLASS_COUNT, counts)
    model = cls(**_constructor_arguments(header, arrays))
    model.class_count_ = np.full(len(classes), np.nan) if counts is None else np.array(counts, dtype=np.float64)
    model.warnings_ = header[WARNINGS]
    encoding = _encoding(header)
    table = of_table(encoding)
    model.n_features_in_ = arrays["Z"].shape[-1] if table is None else len(table.columns)
    model.encoding_ = encoding
    labels = header.get(LABELS)
    if labels is not None:
        is_right = isinstance(labels, list) and all(isinstance(label, str) for label in labels)
        _require(is_right and len(labels) == model.n_features_in_, LABELS, labels)
        model._column_labels = tuple(labels)
    _check_parameters(model)
    correction = (arrays[CORRECTION[0]], arrays[CORRECTION[1]]) if record_of(likelihood, bound).has_correction else None
    q = posterior_from(header, arrays, None if table is None else table.groups)
    mean = header.get(MEAN, [0.0] * (q.n_latents or 1))
    _require(isinstance(mean, list) and len(mean) == (q.n_latents or 1) and all(map(_is_finite, mean)), MEAN, mean)
    evidence = None if header["elbo"] is None else Evidence(header["elbo"], correction, header["bound_gap"])
    model._set_fit(_local_posterior(header, arrays, q) or q, likelihood, bound, delta, np.array(mean), evidence)
    model.query_score_ = None if header["query_score"] is None else tuple(header["query_score"])
    model.classes_ = classes.astype(object) if header["object_labels"] else classes
    if "feature_names" in arrays:
        model.feature_names_in_ = arrays["feature_names"].astype(object)
    _require(bool(np.all(arrays["feature_spread"] >= 0.0)), "feature_spread", "negative values")
    model.feature_spread_ = arrays["feature_spread"]
    if FEATURE_MEAN in arrays:
        model.feature_mean_ = arrays[FEATURE_MEAN]
    model.n_iter_, model.converged_ = header["n_iter"], header["converged"]
    model.history_ = {name.removeprefix(HISTORY): a for name, a in arrays.items() if name.startswith(HISTORY)}
    model.n_samples_seen_ = header[N_SEEN] or int(model.history_["n_rows"][-1])
    return model
