"""Converters of the classifiers for skl2onnx, which converts pipelines."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..classifier import GPClassifier
from ..linear import BayesianLinearClassifier
from .columns import Input
from .export import label_values, model_of


def register() -> None:
    """Let ``skl2onnx.to_onnx`` convert pipelines with a ``GPClassifier`` or a ``BayesianLinearClassifier``.

    Call it once, before the conversion; more calls change nothing. The options are those of skl2onnx's
    classifiers: ``zipmap``, ``nocl``, ``output_class_labels``, and ``raw_scores`` for the ``decision_function``.

    Raises
    ------
    ImportError
        Without the package skl2onnx.

    Notes
    -----
    ``to_onnx`` says what can be converted. The features may be in one input or in several, in the order of the columns;
    inputs of a classifier that have the names of a table's columns in another order are an error.
    For a model of a table with levels or missing numbers, the ``initial_types`` are an input for each column, of text
    or of numbers as the levels are. Probabilities are in double precision if the first input is, else in single.

    Examples
    --------
    >>> from skl2onnx import to_onnx  # doctest: +SKIP
    >>> register()
    >>> to_onnx(make_pipeline(StandardScaler(), GPClassifier()).fit(X, y), X[:1], options={"zipmap": False})
    """
    try:
        from skl2onnx import update_registered_converter
    except ImportError as error:
        raise ImportError("Pipelines as ONNX models need the skl2onnx package: pip install 'xgpc[onnx]'") from error
    # As skl2onnx's own classifiers have them. CalibratedClassifierCV takes raw scores, as scikit-learn's does.
    options = {
        "zipmap": [True, False, "columns"],
        "nocl": [True, False],
        "output_class_labels": [False, True],
        "raw_scores": [True, False],
    }
    for classifier in (GPClassifier, BayesianLinearClassifier):
        update_registered_converter(classifier, f"Xgpc{classifier.__name__}", _set_types, _convert, options=options)


def _labels(operator: Any) -> np.ndarray:
    """Labels of text, or as integers, which skl2onnx makes of all numbers; with the option "nocl" their positions."""
    from skl2onnx.common.utils_classifier import get_label_classes

    labels = label_values(get_label_classes(operator.scope_inst, operator.raw_operator))
    return labels if labels.dtype.kind == "U" else labels.astype(np.int64)


def _set_types(operator: Any) -> None:
    """Set types and shapes of an operator's outputs."""
    from skl2onnx.common.data_types import Int64TensorType, StringTensorType

    labels, n_rows = _labels(operator), operator.inputs[0].get_first_dimension()
    label, proba = operator.outputs
    label.set_type((StringTensorType if labels.dtype.kind == "U" else Int64TensorType)([n_rows]))
    proba.type.shape = [n_rows, len(labels)]


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """Add the graph of a classifier to that of a pipeline."""
    from skl2onnx.helpers import add_onnx_graph

    model, (_, proba), sources = operator.raw_operator, operator.outputs, operator.inputs
    names, fitted = [source.raw_name for source in sources], list(getattr(model, "feature_names_in_", ()))
    if names != fitted and sorted(names) == sorted(fitted):
        raise ValueError(f"The inputs are {names}; give initial_types in the order of the fit: {fitted}.")
    # skl2onnx mostly knows how many columns a step makes, but not always.
    n_default = model.n_features_in_ if len(sources) == 1 else 1
    widths = [(*source.type.shape[1:], None)[0] or n_default for source in sources]
    inputs = [Input(source.onnx_name, _type(source), width) for source, width in zip(sources, widths, strict=True)]
    has_scores = container.get_options(model, {"raw_scores": False})["raw_scores"]
    opset = container.target_opset_any_domain("")
    model_proto = model_of(model, inputs, _type(proba), opset, _labels(operator), has_scores)
    add_onnx_graph(scope, operator, container, model_proto)


def _type(variable: Any) -> int:
    """The type of a variable of skl2onnx, a number of ``onnx.TensorProto``."""
    return int(variable.type.to_onnx_type().tensor_type.elem_type)
