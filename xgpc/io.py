"""Save and load models. A file has no code, and only a file that ``save`` could have written is accepted.

``contents`` lists what a file holds. ``load`` checks shapes, types and size of all numbers by one table, and builds the
model with the checks of a fit: of parameters, kernels and posterior. Then it compares the contents of this model with
the file, which finds all else: missing, superfluous or contradictory values, and wrong types.
"""

from __future__ import annotations

import math
import os
import reprlib
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.gaussian_process.kernels import Kernel

from .approximations.base import KernelPosterior, grouped
from .approximations.full import FullPrior
from .approximations.local import EIGENVALUE_ERROR, LocalPosterior, Posterior
from .approximations.sparse import PRECISIONS, SparsePrior
from .config import PARAMETERS, UNSAVED, FitConfig, integer, is_integer, one_of
from .data.encoding import PLAIN, Encoding
from .data.training import Columns
from .files import KINDS, Arrays, Header, reading, to_json, write
from .inference.fitting import Evidence
from .kernels.features import Groups
from .kernels.spec import KERNELS, KernelSpec, check_tree
from .learning.inducing import given_points
from .likelihoods import record_of, resolve
from .ranges import LARGEST_FEATURE, WEIGHT_RANGE, largest_size
from .rows.batches import Rows
from .rows.blas import single_threaded_blas
from .rows.coinciding import NO_AGREEMENT, NODES
from .rows.source import NONE

Model = TypeVar("Model", bound=BaseEstimator)

# Largest number in an array; averages of features exceed the largest feature by rounding errors.
LARGEST_NUMBER = 2.0 * LARGEST_FEATURE


class Kind(NamedTuple):
    """What an array may be: its axes, its least and largest number, and its types.

    L: latent functions; K: kernels, 1 for a shared one; m: inducing points; p: as m, none for a full process; g: points
    of the parameter ``inducing_points``; d: features; n: training rows; c: classes; b: cut points of ordered classes;
    f: columns of X; a: nodes of an agreement.
    """

    axes: str
    least: float = -LARGEST_NUMBER
    most: float = LARGEST_NUMBER
    types: tuple[str, ...] = ("f8",)


# The arrays of files. Those of posteriors have the names that ``to_arrays`` gives them.
SCHEMA = {
    "Z": Kind("Kmd"),
    **dict.fromkeys(("eta", "correction_precision"), Kind("Lmp")),
    **dict.fromkeys(("h", "whitened_mean", "correction_linear"), Kind("Lm")),
    "rows": Kind("nd", types=("f4", "f8")),
    "row_labels": Kind("n"),
    "row_weights": Kind("n", 0.0, WEIGHT_RANGE[1]),
    "site_precision": Kind("Ln", 0.0),
    "site_linear": Kind("Ln"),
    "whitened_covariance": Kind("Lmm", -1.0 - EIGENVALUE_ERROR, 1.0 + EIGENVALUE_ERROR),
    "variance_scale": Kind("", float(np.finfo(np.float64).tiny)),
    "label_agreement": Kind("", 0.0, float(np.nextafter(1.0, 0.0))),
    "label_agreement_log": Kind("a"),
    "mean": Kind("L"),
    "cut_points": Kind("b"),
    **dict.fromkeys(("drift", "label_noise", "guess_rate", "lapse_rate", "elbo", "bound_gap"), Kind("")),
    "inducing_points": Kind("gd"),
    "classes": Kind("c", types=tuple(KINDS)),
    "class_count_": Kind("c", 0.0),
    "class_weight_": Kind("c", float(np.nextafter(0.0, 1.0)), float(np.finfo(np.float64).max)),
    **dict.fromkeys(("feature_mean_", "feature_fill"), Kind("d")),
    "feature_spread_": Kind("d", 0.0),
    **dict.fromkeys(("feature_names", "column_labels"), Kind("f", types=("U",))),
}
CORRECTION = ("correction_precision", "correction_linear")
HISTORY = "history_"
# Attributes of a fitted model that files hold as they are, with functions that give them their types.
ATTRIBUTES: dict[str, Callable[..., object]] = {
    "n_iter_": int,
    "converged_": bool,
    "n_samples_seen_": int,
    "warnings_": lambda texts: list(map(str, texts)),
    "held_out_score_": lambda pair: None if pair is None else (float(pair[0]), float(pair[1])),
}
# Smaller numbers of a covariance are 0 in its factorisation, in which products of them take a hundred times as long.
TINY = 1e-30


def check(is_valid: object, reason: str) -> None:
    """Raise ValueError for a file that is not valid, with what is wrong."""
    if not is_valid:
        raise ValueError(reason)


def kernel_to_data(kernel: object) -> object:
    """A kernel, or the value of a parameter, as data for JSON; ValueError for a class that files cannot have."""
    if not isinstance(kernel, Kernel):
        return np.asarray(kernel).tolist()
    if KERNELS.get(type(kernel).__name__) is not type(kernel):
        raise ValueError(
            f"Files hold kernels of {', '.join(KERNELS)}; {kernel} is a {type(kernel).__name__}. pickle keeps a model "
            "with any kernel."
        )
    parameters = {name: kernel_to_data(value) for name, value in kernel.get_params(deep=False).items()}
    return {"type": type(kernel).__name__, **parameters}


def kernel_from_data(data: Any) -> Any:
    """The kernel, or the value, that ``kernel_to_data`` described."""
    if not isinstance(data, dict):
        return np.array(data) if isinstance(data, list) else data
    check_tree(data, lambda part: [value for value in part.values() if isinstance(value, dict)])
    return KERNELS[data["type"]](**{name: kernel_from_data(value) for name, value in data.items() if name != "type"})


def posterior_contents(q: Posterior) -> tuple[Header, Arrays]:
    """What files hold of a posterior."""
    used = getattr(q.prior.groups[0], "dtype", np.float64)
    header = {
        "full": q.prior.is_full,
        "kernels": [kernel_to_data(group.spec.kernel) for group in q.prior.groups],
        "precision": next(name for name, dtype in PRECISIONS.items() if dtype is used),
        "neighbors": q.n_neighbors,
    }
    return header, {"Z": q.prior.Z.reshape(-1, *q.prior.Z.shape[-2:]), **q.to_arrays()}


def posterior_from(
    header: Header,
    arrays: Arrays,
    n_latents: int,
    groups: Groups | None = None,
    prior_class: type[SparsePrior] = SparsePrior,
) -> Posterior:
    """The posterior of ``posterior_contents``, or an exception; ``groups`` are features that share a length scale."""
    kernels = header["kernels"]
    check(isinstance(kernels, list) and len(kernels) == len(arrays["Z"]), f"its kernels are {reprlib.repr(kernels)}")
    k, dtype, d = int(header["neighbors"]), PRECISIONS[header["precision"]], arrays["Z"].shape[2]
    specs = [KernelSpec(kernel_from_data(kernel), d, groups) for kernel in kernels]
    pairs = list(zip(specs, arrays["Z"], strict=True))
    if k:
        rows, V, scale = _rows_from(arrays, n_latents), arrays["whitened_covariance"], float(arrays["variance_scale"])
        check(1 <= k <= len(rows.X), "its number of neighbours is not valid")
        check(_is_covariance(V), "its array 'whitened_covariance' is not symmetric, or not positive semidefinite")
        prior, sites = SparsePrior.build(*pairs[0], dtype), (arrays["site_precision"], arrays["site_linear"])
        return LocalPosterior(prior, *rows, *sites, arrays["whitened_mean"], V, k, scale)
    full, eta = header["full"], arrays["eta"]
    priors = [FullPrior.build(*pair) if full else prior_class.build(*pair, dtype) for pair in pairs]
    q: KernelPosterior | None = grouped(priors).posterior((eta if full else np.tril(eta), arrays["h"]))
    if q is None or not math.isfinite(q.kl):
        raise ValueError("its posterior precision is not positive definite, or its mean is not finite")
    return q


def _is_covariance(V: np.ndarray) -> bool:
    """Whether matrices (C, m, m) are symmetric and positive semidefinite, but for rounding errors."""
    if not np.allclose(V, np.swapaxes(V, 1, 2), rtol=0.0, atol=EIGENVALUE_ERROR):
        return False
    try:
        np.linalg.cholesky(np.where(np.abs(V) < TINY, 0.0, V) + EIGENVALUE_ERROR * np.eye(V.shape[1]))
    except np.linalg.LinAlgError:
        return False
    return True


def _rows_from(arrays: Arrays, n_latents: int) -> Rows:
    """Rows that a model keeps, with the labels that its sites need."""
    labels, allowed = arrays["row_labels"], [-1.0, 1.0] if n_latents == 1 else np.arange(n_latents)
    check(np.all(np.isin(labels, allowed)), "the labels of its rows are not valid")
    return Rows(arrays["rows"], labels, arrays["row_weights"])


def check_arrays(arrays: Arrays, n_latents: int, is_full: bool, n_classes: int = 0, n_columns: int = 0) -> None:
    """Raise ValueError unless the arrays have the shapes and types of the schema, and each number is in its range."""
    K, m, d = arrays["Z"].shape
    sizes = {"L": n_latents, "K": K if K == 1 else n_latents, "m": m, "d": d, "c": n_classes, "b": n_classes - 1}
    sizes |= {"f": n_columns, "a": len(NODES)} | ({} if is_full else {"p": m})
    sizes |= {axis: len(arrays.get(name, ())) for axis, name in (("n", "rows"), ("g", "inducing_points"))}
    for name in arrays.keys() & SCHEMA.keys():
        kind, array = SCHEMA[name], arrays[name]
        shape = tuple(sizes[axis] for axis in kind.axes if axis in sizes)
        check(
            array.shape == shape and array.dtype.str[1:].startswith(kind.types),
            f"its arrays do not fit each other: {name!r} of shape {array.shape} and type {array.dtype}, not {shape}",
        )
        # NaN compares as false, and is refused, too.
        is_within = array.dtype.kind != "f" or (np.all(array >= kind.least) and np.all(array <= kind.most))
        check(is_within, f"its array {name!r} has numbers outside of [{kind.least:g}, {kind.most:g}]")


def contents(model: BaseEstimator) -> tuple[Header, Arrays]:
    """What a file holds of a fitted ``GPClassifier``."""
    header, arrays = posterior_contents(model.posterior_)
    # Files have ordered classes by level.
    classes, counts = map(model._record.by_level, (model.classes_, model.class_count_))
    weights = list(model.class_weight.items()) if isinstance(model.class_weight, dict) else model.class_weight
    # Given inducing points are an array of the file instead.
    points = model.inducing_points
    points_name = points if isinstance(points, str) else None
    header |= {
        "parameters": parameters_to_data(model) | {"inducing_points": points_name, "class_weight": weights},
        "likelihood_and_bound": model._record.key,
        "has_objects_as_labels": classes.dtype.kind == "O",
        "encoding": None if model.encoding_ is None else model.encoding_.to_data(),
        **{name: getattr(model, name) for name in ATTRIBUTES},
    }
    elbo, correction, gap = model._evidence or (None, None, None)
    numbers: dict[str, object] = {
        **model._record.named(),
        **dict(zip(CORRECTION, correction or (None, None), strict=True)),
        "drift": getattr(model, "drift_", None),
        "label_agreement": model.label_agreement_ or None,
        "label_agreement_log": model._agreement_log if np.any(model._agreement_log) else None,
        "elbo": elbo,
        "bound_gap": gap,
        "mean": np.atleast_1d(model.mean_),
        # The parameter may have been set after the fit.
        "inducing_points": given_points(points, arrays["Z"].shape[2]) if points_name is None else None,
    }
    arrays |= {name: np.asarray(value, dtype=np.float64) for name, value in numbers.items() if value is not None}
    if model._stream_rows is not None:
        arrays |= zip(("rows", "row_labels", "row_weights"), model._stream_rows, strict=True)
    arrays |= {"class_weight_": model.class_weight_, "class_count_": counts}
    arrays |= {"feature_mean_": model.feature_mean_, "feature_spread_": model.feature_spread_}
    arrays |= {f"{HISTORY}{name}": column for name, column in model.history_.items()}
    arrays["classes"] = classes.astype(str) if classes.dtype.kind == "O" else classes
    return header, arrays | column_names(model._columns)


def column_names(columns: Columns) -> Arrays:
    """Names, labels and fill of the columns that a model was fitted to, as far as they have any."""
    values = {"feature_names": columns.names, "column_labels": columns.labels, "feature_fill": columns.fill}
    return {name: np.array(of_columns) for name, of_columns in values.items() if of_columns is not None}


def columns_from(arrays: Arrays, n_columns: int, encoding: Encoding = PLAIN) -> Columns:
    """Columns with what ``column_names`` gave, and with moments, if a file has any."""
    stored = (arrays.get(name) for name in ("feature_names", "column_labels"))
    names, labels = (None if texts is None else tuple(texts.tolist()) for texts in stored)
    mean, spread = (arrays.get(name, NONE) for name in ("feature_mean_", "feature_spread_"))
    return Columns(n_columns, names, labels, encoding, mean, spread, arrays.get("feature_fill"))


def parameters_to_data(model: BaseEstimator) -> Header:
    """Constructor arguments that files hold, the kernel as data for JSON; a seed that is no integer is left out."""
    saved = {name: value for name, value in vars(model).items() if name in PARAMETERS and name not in UNSAVED}
    seed = model.random_state
    return saved | {"kernel": kernel_to_data(model.kernel), "random_state": seed if is_integer(seed) else None}


def save(model: BaseEstimator, path: str | os.PathLike[str], rows_dtype: str | None = None) -> None:
    """Write a fitted ``GPClassifier``."""
    FitConfig.of(model)
    one_of("float32", "float64", None).check("rows_dtype", rows_dtype)
    header, arrays = contents(model)
    if arrays["classes"].dtype.kind not in KINDS or not np.array_equal(np.sort(arrays["classes"]), model.classes_):
        raise ValueError(
            f"Only labels that are numbers, booleans or strings can be saved; got {model.classes_.tolist()}."
        )
    if rows_dtype is not None and "rows" in arrays:
        largest = largest_size(arrays["rows"])
        if rows_dtype == "float32" and largest > float(np.finfo(np.float32).max):
            raise ValueError(
                f"rows_dtype='float32' has no values of size {largest:.3g}; leave rows_dtype=None, or scale the "
                "features before the fit."
            )
        arrays["rows"] = arrays["rows"].astype(rows_dtype)
    write(path, "model", header, arrays)


def load(cls: type[Model], path: str | os.PathLike[str]) -> Model:
    """Read a model of class ``cls``."""
    with reading(path, "model", cls.__name__) as (header, arrays):
        # Numbers that overflow are refused, so that NumPy need not warn of them.
        with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
            model = _model(cls, header, arrays)
        check_complete(header, arrays, *contents(model))
        return model


def check_complete(header: Header, arrays: Arrays, expected_header: Header, expected: Arrays) -> None:
    """Raise ValueError unless a file has just what is written for the model that was made from it."""
    check(sorted(expected) == sorted(arrays), f"its arrays are {sorted(arrays)}, not {sorted(expected)}")
    for name in header | expected_header:
        written, value = to_json({name: expected_header.get(name)}), header.get(name)
        check(to_json({name: value}) == written, f"its {name} is not valid: {reprlib.repr(value)}")


def _model(cls: type[Model], header: Header, arrays: Arrays) -> Model:
    """The model that a file describes; an exception of some type if it describes none."""
    classes = arrays["classes"]
    likelihood, bound = header["likelihood_and_bound"]
    record = resolve(likelihood, bound, len(classes))
    n_latents, d = record.n_latents(len(classes)), arrays["Z"].shape[-1]
    encoding = PLAIN if header["encoding"] is None else Encoding.from_data(header["encoding"])
    n_columns = len(encoding.columns) or d
    check_arrays(arrays, n_latents, header["full"], len(classes), n_columns)
    check(not encoding.columns or len(encoding.matrix_names) == d, "its encoding does not fit its arrays")
    check(all(j < d for j, *_ in (*encoding.limits, *encoding.warps)), "its encoding does not fit its arrays")
    in_order = record.is_ordinal or np.all(classes[:-1] < classes[1:])
    are_distinct, labels = len(np.unique(classes)) == len(classes) >= 2, reprlib.repr(classes.tolist())
    check(in_order and are_distinct, f"the order of its classes is not valid: {labels}")
    are_whole = classes.dtype.kind != "f" or np.all(np.isfinite(classes) & (classes == np.floor(classes)))
    check(are_whole, f"its classes are not whole numbers: {labels}")
    check(np.any(arrays["class_count_"]), "its class_count_ has no rows")
    reason = f"its likelihood {likelihood!r} is that of another class; load it by the class that saved it"
    check(record.is_ordinal == cls._is_ordered, reason)
    sorter = np.argsort(classes)
    order, values = np.argsort(sorter) if record.is_ordinal else (), [arrays[name] for name in record.parameter]
    record = record_of(*record.key, order).at(np.hstack([[], *values]))
    check(record.is_valid(len(classes)), f"its likelihood's parameter is not valid: {reprlib.repr(record.named())}")
    parameters = dict(header["parameters"])
    points, weights, rate = (parameters[name] for name in ("inducing_points", "class_weight", "learning_rate"))
    parameters["kernel"] = kernel_from_data(parameters["kernel"])
    parameters["inducing_points"] = arrays["inducing_points"] if points is None else points
    parameters["class_weight"] = dict(weights) if isinstance(weights, list) else weights
    parameters["learning_rate"] = tuple(rate) if isinstance(rate, list) else rate
    model = cls(**parameters)
    FitConfig.of(model)
    model.history_ = _history(arrays)
    has_objects = header["has_objects_as_labels"] and classes.dtype.kind == "U"
    model.classes_ = (classes.astype(object) if has_objects else classes)[sorter]
    model.class_count_, model.class_weight_ = arrays["class_count_"][sorter], arrays["class_weight_"]
    model.label_agreement_ = float(arrays.get("label_agreement", 0.0))
    model._agreement_log = arrays.get("label_agreement_log", NO_AGREEMENT.log_likelihood)
    for name, convert in ATTRIBUTES.items():
        setattr(model, name, convert(header[name]))
    for name in ("n_iter_", "n_samples_seen_"):
        integer(0).check(f"its {name}", getattr(model, name))
    if "drift" in arrays:
        model.drift_ = float(arrays["drift"])
    model._set_columns(columns_from(arrays, n_columns, encoding))
    if "rows" in arrays and not header["neighbors"]:
        model._stream_rows = _rows_from(arrays, n_latents)
    # What takes long comes last.
    q = posterior_from(header, arrays, n_latents, encoding.groups if encoding.columns else None)
    evidence = None
    if "elbo" in arrays or not header["neighbors"]:
        correction = (arrays[CORRECTION[0]], arrays[CORRECTION[1]]) if record.is_jaakkola_jordan else None
        gap = float(arrays["bound_gap"]) if "bound_gap" in arrays else None
        evidence = Evidence(float(arrays["elbo"]), correction, gap)
    model._set_fit(q, record, arrays["mean"], evidence)
    return model


def _history(arrays: Arrays) -> Arrays:
    """The record of the fit: columns of the same rows, the last of which says of how many training rows it is."""
    history = {name.removeprefix(HISTORY): array for name, array in arrays.items() if name.startswith(HISTORY)}
    n_rows = history.get("n_rows", np.empty(0))
    for name, array in history.items():
        is_column = array.ndim == 1 + (name == "theta") and len(array) == len(n_rows)
        is_valid = is_column and (array.dtype.kind == "U") == (name == "decision")
        check(is_valid, f"its {HISTORY} has a column {name!r} of shape {array.shape} and type {array.dtype}")
    check(len(n_rows) and 0.0 <= n_rows[-1] < np.inf, f"its {HISTORY} does not say how many rows the fit had")
    return history
