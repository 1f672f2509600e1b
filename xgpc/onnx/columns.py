"""Inputs of an ONNX model, and the matrix that xgpc makes of them, as a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from onnx import TensorProto

from ..data.encoding import IN_OWN_COLUMN, INDICATOR, PLAIN, REPEATED, ColumnEncoding, Encoding
from .graph import Graph, Tensor, absolute, concatenated, log, maximum, minimum, sqrt, where

# What the outputs are called, and what no column of a table can be called.
OUTPUTS = "label", "probabilities"


class Input(NamedTuple):
    """An input (rows, width) of a type of ``onnx.TensorProto``."""

    name: str
    type: int
    width: int

    def tensor(self, graph: Graph) -> Tensor:
        """The input, numbers in double precision."""
        rows = Tensor(graph, self.name)
        return rows if self.type == TensorProto.STRING else rows.cast(TensorProto.DOUBLE)


def inputs_of(encoding: Encoding, n_features: int, number: int) -> list[Input]:
    """The inputs: one for each column of a table with levels or missing numbers, else a matrix, of type ``number``."""
    if not encoding.columns:
        return [Input("X", number, n_features)]
    if bad := [column.name for column in encoding.columns if column.name in ("", *OUTPUTS)]:
        raise ValueError(
            f"No input of an ONNX model can be called {bad[0]!r}: fit to a table with another name for it."
        )
    return [Input(column.name, TensorProto.STRING if column.has_text else number, 1) for column in encoding.columns]


def matrix(graph: Graph, inputs: Sequence[Input], encoding: Encoding, n_features: int) -> Tensor:
    """Rows of the matrix that the posterior is for, from columns of features that may be in several inputs."""
    n_columns = sum(source.width for source in inputs)
    if n_columns != n_features:
        raise ValueError(f"The inputs have {n_columns} columns together; the model was fitted to {n_features}.")
    if not encoding.columns and any(source.type == TensorProto.STRING for source in inputs):
        raise ValueError("An input is text; the model was fitted to numbers.")
    tensors = [(source.tensor(graph), source) for source in inputs]
    if encoding.columns:
        columns = [(tensor.slice(1, j, j + 1), source.type) for tensor, source in tensors for j in range(source.width)]
        rows = _encoded(columns, encoding)
    else:
        rows = concatenated([tensor for tensor, _ in tensors], 1)
    return rows if encoding == PLAIN else _transformed(rows, encoding, len(encoding.matrix_names) or n_features)


def _encoded(columns: Sequence[tuple[Tensor, int]], table: Encoding) -> Tensor:
    """The matrix of the columns of a table, as in ``Encoding.matrix``."""
    parts = []
    for number, column, prefix, *_ in table.parts:
        values, kind = columns[number]
        is_text, has_no_values = kind == TensorProto.STRING, column.is_categorical and not column.levels
        if is_text != column.has_text and not has_no_values:
            given, fitted = ("text", "numbers") if is_text else ("numbers", "text")
            raise ValueError(f"The input of the column {column.name!r} is {given}; the model was fitted to {fitted}.")
        if column.is_categorical or prefix == REPEATED:
            codes = _text_places(column, values) if is_text else _places(column, values, kind)
            parts.append(codes.apply("Equal", np.arange(column.n_known + 1.0)).cast(TensorProto.DOUBLE) * IN_OWN_COLUMN)
        else:
            is_missing = values.apply("IsNaN")
            parts.append(
                is_missing.cast(TensorProto.DOUBLE) if prefix == INDICATOR else where(is_missing, column.fill, values)
            )
    rows = concatenated(parts, 1)
    # The matrix of columns in single precision has it, too.
    return rows.cast(TensorProto.FLOAT).cast(TensorProto.DOUBLE) if table.dtype == "float32" else rows


def _text_places(column: ColumnEncoding, values: Tensor) -> Tensor:
    """Positions (rows, 1) of text among the levels, as in ``ColumnEncoding.places``; empty text is missing."""
    if column.has_missing and "" in column.levels:
        raise ValueError(
            f"The column {column.name!r} has empty text as a level, and missing values, for which an ONNX model has "
            "empty text, too: fit to a table with another text for one of them."
        )
    keys = list(dict.fromkeys([*map(str, column.levels), ""]))
    codes = values.apply(
        "LabelEncoder", keys_strings=keys, values_int64s=list(range(len(keys))), default_int64=column.n_known
    )
    return codes.cast(TensorProto.DOUBLE)


def _places(column: ColumnEncoding, values: Tensor, kind: int) -> Tensor:
    """Positions (rows, 1) of numbers of the type ``kind`` among the levels, as in ``ColumnEncoding.places``."""
    # A column without known values has no level that anything equals.
    levels = np.array(column.levels or [np.inf], dtype=np.float64)
    if kind == TensorProto.FLOAT or column.is_single:
        levels, values = levels.astype(np.float32), values.cast(TensorProto.FLOAT).cast(TensorProto.DOUBLE)
    if len(np.unique(levels)) < len(levels):
        raise ValueError(
            f"Levels of the column {column.name!r} are equal in single precision, float32: make its input float64."
        )
    is_level = values.apply("Equal", levels.astype(np.float64)).cast(TensorProto.DOUBLE)
    before_unknown = (is_level * (column.n_known - np.arange(float(len(levels))))).sum(1)
    return where(values.apply("IsNaN"), float(len(column.levels)), float(column.n_known) - before_unknown)


def _transformed(rows: Tensor, encoding: Encoding, d: int) -> Tensor:
    """Rows of d features as ``Encoding.transform`` makes them: runtimes have no arcsinh in double precision."""
    low, high = np.full(d, -np.inf), np.full(d, np.inf)
    for j, least, most in encoding.limits:
        low[j], high[j] = least, most
    centre, scale, is_warped = np.zeros(d), np.ones(d), np.zeros(d, dtype=bool)
    for j, middle, width in encoding.warps:
        centre[j], scale[j], is_warped[j] = middle, width, True
    limited = minimum(maximum(rows, low), high)
    ratio = (limited - centre) / scale
    size = absolute(ratio)
    arcsinh = ratio.apply("Sign") * log(size + sqrt(size * size + 1.0))
    return where(rows.graph.constant(is_warped), arcsinh * scale + centre, limited)
