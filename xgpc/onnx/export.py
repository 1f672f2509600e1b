"""A fitted classifier as an ONNX model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike
from onnx import ModelProto, TensorProto, checker, defs, helper
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .. import __version__
from ..classifier import GPClassifier
from ..config import is_integer
from ..linear import BayesianLinearClassifier
from ..ranges import small_is_zero
from .columns import OUTPUTS, Input, inputs_of, matrix
from .graph import Graph, Tensor, concatenated, log
from .latent import marginals
from .links import Latent, probabilities
from .neighbours import marginals_by_neighbours

# The default, which runtimes since 2022 read, and the oldest operator set that takes the axes of a sum as an input.
OPSET, OLDEST_OPSET = 17, 13
# The oldest operator set of the domain ai.onnx.ml whose LabelEncoder turns text into numbers.
ML_OPSET = 2
DTYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}
LABELS = {"U": TensorProto.STRING, "b": TensorProto.BOOL, "i": TensorProto.INT64, "f": TensorProto.DOUBLE}


@small_is_zero
def to_onnx(model: BaseEstimator, dtype: DTypeLike = "float64", opset: int = OPSET) -> ModelProto:
    """``predict_proba`` and ``predict`` of a fitted classifier as an ONNX model.

    Parameters
    ----------
    model : GPClassifier or BayesianLinearClassifier
    dtype : {"float64", "float32"} or NumPy's types of these names, default="float64"
        Type of numbers in the input and of the probabilities. The model computes in double precision.
    opset : int, default=17
        Operator set of the model, from 13 to the latest of the installed onnx. Runtimes know all sets up to one.

    Returns
    -------
    onnx.ModelProto
        A model with the outputs "label" (rows,) and "probabilities" (rows, C), in the order of ``classes_``, for any
        number of rows. Its input is "X" (rows, d); or, for a model of a table with levels or missing numbers, an input
        (rows, 1) for each column of the table, under its name: text if its levels are text, where empty text is missing
        unless it was a level, else numbers, where NaN is missing. ``onnx.save(to_onnx(model), path)`` writes it. The
        model holds the inducing points, which are the training rows of a full process, and m by m matrices: two, or
        C + 1 for C > 2 classes. A model with neighbours holds the training rows, too, in (2 d + m + 2 C) numbers each.

    Raises
    ------
    TypeError
        For an object that is not one of these classifiers.
    ValueError
        For a model with neighbours among more than 30 000 training rows, for another ``dtype`` or ``opset``, for a
        column whose name no input can have, whose levels are equal in single precision, or which has empty text as a
        level beside missing values, and for labels that are not numbers, booleans or strings, or are 2**63 or more.

    Notes
    -----
    Probabilities differ from those of ``predict_proba`` by less than 1e-5, usually by 1e-8, but for rows that equal a
    training row if the model has a ``label_agreement_``: here they count as new rows. The model does not check
    its input: in "X", NaN gives NaN, and so does infinity, unless the model limits the feature on that side
    (``encoding_.limits``). Memory for a row is a multiple of 8 m bytes, and with C > 2 classes of another 2560 C bytes:
    give some thousands of rows per call.

    With k neighbours among n training rows the model compares each row with all of these, in O(n d + C k^3) operations
    and a multiple of 8 (n + k m + C k^2) bytes: give some hundreds of rows per call. Where several training rows are
    equally far from a row but for rounding, the model may take others of these as neighbours than xgpc does.
    """
    if not isinstance(model, GPClassifier | BayesianLinearClassifier):
        raise TypeError(
            f"to_onnx takes a GPClassifier or a BayesianLinearClassifier; got {type(model).__name__}. A pipeline is "
            "converted by skl2onnx.to_onnx, after xgpc.onnx.register()."
        )
    try:
        # None would be a name of NumPy's default.
        number = DTYPES[np.dtype("" if dtype is None else dtype).name]
    except (KeyError, TypeError):
        raise ValueError(f"dtype must be one of {[*DTYPES]}, or NumPy's type of such a name; got {dtype!r}.") from None
    check_is_fitted(model)
    inputs = inputs_of(model._encoding, model.n_features_in_, number)
    return model_of(model, inputs, number, opset, label_values(model.classes_))


def model_of(
    model: BaseEstimator,
    inputs: Sequence[Input],
    number: int,
    opset: int,
    labels: np.ndarray,
    log_probabilities: bool = False,
) -> ModelProto:
    """The ONNX model of a fitted classifier for some inputs, with probabilities of the type ``number``.

    Instead of the probabilities it can have their logarithms, of two classes both log odds.
    """
    latest = defs.onnx_opset_version()
    if not (is_integer(opset) and OLDEST_OPSET <= opset <= latest):
        raise ValueError(
            f"opset must be from {OLDEST_OPSET} to {latest}, the latest that the installed onnx knows; got {opset!r}."
        )
    graph = Graph(opset)
    proba = _proba(model, matrix(graph, inputs, model._encoding, model.n_features_in_))
    if np.ptp(model.class_weight_):
        proba = proba * model.class_weight_[None]
        proba = proba / proba.sum(1)
    label = graph.constant(labels).apply("Gather", proba.apply("ArgMax", axis=1, keepdims=0))
    if log_probabilities:
        proba = log(proba)
        proba = proba - proba.apply("Gather", [1, 0], axis=1) if len(labels) == 2 else proba
    for tensor, name in zip((label, proba.cast(number)), OUTPUTS, strict=True):
        graph.named(tensor, name)
    value = helper.make_tensor_value_info
    sources = [value(source.name, source.type, ["rows", source.width]) for source in inputs]
    outputs = [
        value(OUTPUTS[0], LABELS[labels.dtype.kind], ["rows"]),
        value(OUTPUTS[1], number, ["rows", len(labels)]),
    ]
    proto = helper.make_graph(graph.nodes, type(model).__name__, sources, outputs, graph.constants)
    domains = sorted({node.domain for node in graph.nodes})
    sets = [helper.make_opsetid(domain, ML_OPSET if domain else opset) for domain in domains]
    producer = {"producer_name": "xgpc", "producer_version": __version__}
    exported = helper.make_model(proto, opset_imports=sets, ir_version=helper.find_min_ir_version_for(sets), **producer)
    checker.check_model(exported, full_check=True)
    return exported


def label_values(classes: np.ndarray) -> np.ndarray:
    """The classes as an array whose type ONNX has, see ``LABELS``; all integers become int64."""
    labels = classes.astype({"O": str, "i": np.int64, "u": np.int64}.get(classes.dtype.kind, classes.dtype))
    if labels.dtype.kind not in "Ubif" or not np.array_equal(labels, classes):
        raise ValueError(
            f"Only labels that are numbers below 2**63, booleans or strings have an ONNX type; got {classes.tolist()}."
        )
    return labels


def _proba(model: BaseEstimator, rows: Tensor) -> Tensor:
    """Probabilities (rows, C) at rows of the matrix."""
    if isinstance(model, BayesianLinearClassifier):
        mean = rows @ model.coef_.T + model.intercept_
        ones = 1.0 + 0.0 * rows.slice(1, 0, 1)
        with_one = concatenated([rows, ones], 1) if model.fit_intercept else rows
        variance = ((with_one @ model.coef_covariance_) * with_one).sum(1)
        return probabilities(model._record, Latent(mean, variance, 1))
    q = model.posterior_
    if reason := q.prior.groups[0].spec.not_compiled:
        raise ValueError(f"ONNX takes compiled kernels only; {reason}. Give a sum or product of compiled kernels.")
    mean, variance = marginals_by_neighbours(q, rows) if q.n_neighbors else marginals(q, rows)
    latent = Latent(mean + np.atleast_1d(model.mean_), variance, q.n_latents)
    return probabilities(model._record, latent)
