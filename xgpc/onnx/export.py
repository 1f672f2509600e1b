"""A fitted classifier as an ONNX model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike
from onnx import ModelProto, TensorProto, checker, helper
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .. import __version__
from ..classifier import GPClassifier
from ..data.encoding import of_table
from ..data.far_values import Limit
from ..data.warps import Warp
from ..linear import BayesianLinearClassifier
from .graph import Graph, Tensor, absolute, concatenated, log, maximum, minimum, sqrt, where
from .latent import marginals
from .links import Latent, probabilities

# The oldest operator set that takes the axes of a sum as an input, and the oldest file format that has it. Runtimes
# since 2022 read both.
OPSET, IR_VERSION = 17, 8
DTYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}
LABELS = {"U": TensorProto.STRING, "b": TensorProto.BOOL, "i": TensorProto.INT64, "f": TensorProto.DOUBLE}


def to_onnx(model: BaseEstimator, dtype: DTypeLike = "float64") -> ModelProto:
    """``predict_proba`` and ``predict`` of a fitted classifier as an ONNX model.

    Parameters
    ----------
    model : GPClassifier without neighbours, or BayesianLinearClassifier
    dtype : {"float64", "float32"} or NumPy's types of these names, default="float64"
        Type of the input and the probabilities. The model computes in double precision.

    Returns
    -------
    onnx.ModelProto
        A model of operator set 17 with the input "X" (rows, d), for any number of rows, and the outputs "label" (rows,)
        and "probabilities" (rows, C), in the order of ``classes_``. ``onnx.save(to_onnx(model), path)`` writes it. The
        model holds the inducing points, which are the training rows of a full process, and m by m matrices: two, or
        C + 1 for C > 2 classes.

    Raises
    ------
    TypeError
        For an object that is not one of these classifiers.
    ValueError
        For a model with neighbours, or of a table with levels or missing numbers, for another ``dtype``, and for labels
        that are not numbers, booleans or strings.

    Notes
    -----
    Probabilities differ from those of ``predict_proba`` by less than 1e-5, usually by 1e-8. The model does not check
    its input: NaN or infinity give NaN. Memory for a row is a multiple of 8 m bytes, and with C > 2 classes of another
    2560 C bytes: give some thousands of rows per call.
    """
    if not isinstance(model, GPClassifier | BayesianLinearClassifier):
        raise TypeError(
            f"to_onnx takes a GPClassifier or a BayesianLinearClassifier; got {type(model).__name__}. For a pipeline "
            "give its last step, and apply the other steps to the rows yourself."
        )
    try:
        name = "" if dtype is None else np.dtype(dtype).name
    except TypeError:
        name = ""
    if name not in DTYPES:
        raise ValueError(f"dtype must be one of {list(DTYPES)}, or NumPy's type of such a name; got {dtype!r}.")
    check_is_fitted(model)
    labels = _labels(model.classes_)
    graph = Graph()
    rows = Tensor(graph, "X").apply("Cast", to=TensorProto.DOUBLE)
    proba = _proba(model, rows)
    graph.named(proba.apply("Cast", to=DTYPES[name]), "probabilities")
    graph.named(graph.apply("Gather", labels, proba.apply("ArgMax", axis=1, keepdims=0)), "label")
    return _model(graph, model, DTYPES[name], LABELS[labels.dtype.kind])


def _labels(classes: np.ndarray) -> np.ndarray:
    """The classes as an array whose type ONNX has; all integers become int64."""
    found = classes.astype(str) if classes.dtype.kind == "O" else classes
    if found.dtype.kind not in "Ubiuf" or not np.array_equal(found, classes):
        raise ValueError(
            f"Only labels that are numbers, booleans or strings have an ONNX type; got {classes.tolist()}."
        )
    return found.astype(np.int64) if found.dtype.kind in "iu" else found


def _proba(model: BaseEstimator, rows: Tensor) -> Tensor:
    """Probabilities (rows, C)."""
    if isinstance(model, BayesianLinearClassifier):
        mean = rows @ model.coef_.T + model.intercept_
        ones = 1.0 + 0.0 * rows.slice(1, 0, 1)
        with_one = concatenated([rows, ones], 1) if model.fit_intercept else rows
        variance = ((with_one @ model.coef_covariance_) * with_one).sum(1)
        return probabilities(model._record, Latent(mean, variance, 1), None)
    if model.n_neighbors_:
        raise ValueError(
            f"The model predicts with {model.n_neighbors_} neighbours, and ONNX cannot search for them: fit with "
            "n_neighbors=0."
        )
    if reason := model.posterior_.prior.groups[0].spec.not_compiled:
        raise ValueError(f"ONNX takes compiled kernels only; {reason}. Give a sum or product of compiled kernels.")
    if of_table(model.encoding_) is not None:
        raise ValueError(
            "The model was fitted to a table with levels or missing numbers, but an ONNX model takes a matrix of "
            "numbers: encode the table by sklearn.preprocessing.OneHotEncoder, and fit to the result."
        )
    if model.encoding_ is not None:
        d = model.n_features_in_
        rows = _warped(_within(rows, model.encoding_.limits, d), model.encoding_.warps, d)
    mean, variance = marginals(model.posterior_.covariance_forms(), rows)
    latent = Latent(mean + np.atleast_1d(model.mean_), variance, model.posterior_.n_latents or 1)
    return probabilities(model._record, latent, model._parameter)


def _within(rows: Tensor, limits: Sequence[Limit], d: int) -> Tensor:
    """Rows of d features with far values replaced as in ``xgpc.data.far_values``."""
    ends, given, slopes = np.full((2, d), [[-np.inf], [np.inf]]), np.zeros((2, d)), np.zeros((d, d))
    is_predicted = np.zeros(d, dtype=bool)
    for one in limits:
        j = one.feature
        ends[:, j], given[:, j] = (one.low, one.high), (one.mean, one.intercept)
        if one.slopes:
            slopes[:, j], is_predicted[j] = one.slopes, True
    moved = minimum(maximum(rows, ends[0]), ends[1])
    is_far = (-absolute(rows - moved) < 0.0).apply("And", is_predicted)
    filled = where(is_far, given[0], moved)
    return where(is_far, minimum(maximum(filled @ slopes + given[1], ends[0]), ends[1]), moved)


def _warped(rows: Tensor, warps: Sequence[Warp], d: int) -> Tensor:
    """Rows of d features with warps as in ``xgpc.data.warps``: runtimes have no arcsinh in double precision."""
    centre, scale, is_warped = np.zeros(d), np.ones(d), np.zeros(d, dtype=bool)
    for one in warps:
        centre[one.feature], scale[one.feature], is_warped[one.feature] = one.centre, one.scale, True
    ratio = (rows - centre) / scale
    size = absolute(ratio)
    arcsinh = ratio.apply("Sign") * log(size + sqrt(size * size + 1.0))
    return rows.graph.apply("Where", is_warped, arcsinh * scale + centre, rows)


def _model(graph: Graph, model: BaseEstimator, dtype: int, label: int) -> ModelProto:
    """The graph as a checked ONNX model."""
    value = helper.make_tensor_value_info
    rows = value("X", dtype, ["rows", model.n_features_in_])
    outputs = [value("label", label, ["rows"]), value("probabilities", dtype, ["rows", len(model.classes_)])]
    made = helper.make_graph(graph.nodes, type(model).__name__, [rows], outputs, graph.constants)
    whose = {"producer_name": "xgpc", "producer_version": __version__}
    opset = [helper.make_opsetid("", OPSET)]
    found = helper.make_model(made, opset_imports=opset, ir_version=IR_VERSION, **whose)
    checker.check_model(found, full_check=True)
    return found
