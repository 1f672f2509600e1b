"""A graph of ONNX operators, written as arithmetic with tensors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from onnx import NodeProto, TensorProto, helper, numpy_helper

Attribute = int | list[int] | list[str]

# Operators that are not in ONNX's own set, and the domain of theirs.
DOMAINS = {"LabelEncoder": "ai.onnx.ml"}


class Graph:
    """A growing graph of an operator set: ``nodes`` and ``constants`` are as ``onnx.helper.make_graph`` takes them."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def constant(self, value: ArrayLike) -> Tensor:
        """A constant from a number or an array; floating-point numbers become float64."""
        array = np.asarray(value)
        if array.dtype.kind == "f":
            array = array.astype(np.float64)
        # No column of a table, whose names are those of inputs, has such a name.
        name = f"xgpc/constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return Tensor(self, name)

    def named(self, tensor: Tensor, name: str) -> None:
        """Make a tensor an output of the graph with the given name."""
        self.nodes.append(helper.make_node("Identity", [tensor.name], [name], f"xgpc/{name}"))


def _function(operator: str) -> Callable[..., Tensor]:
    return lambda x, *others: x.apply(operator, *others)


def _reflected(operator: str) -> Callable[[Tensor, ArrayLike], Tensor]:
    return lambda self, other: self.graph.constant(other).apply(operator, self)


def _reduction(operator: str, first_opset: int) -> Callable[[Tensor, int], Tensor]:
    """A reduction along an axis, which keeps one element; from an operator set on, axes are an input of the node."""

    def reduced(x: Tensor, axis: int) -> Tensor:
        if x.graph.opset < first_opset:
            return x.apply(operator, axes=[axis], keepdims=1)
        return x.apply(operator, [axis], keepdims=1)

    return reduced


class Tensor:
    """A constant, an input, or the output of an operator in a graph."""

    # An array on the left of an arithmetic operator leaves the operation to the tensor.
    __array_ufunc__ = None

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.name = graph, name

    def apply(self, operator: str, *others: Tensor | ArrayLike, n_outputs: int = 1, **attributes: Attribute) -> Tensor:
        """The last output of an operator with this tensor as its first input; others may be constants."""
        graph = self.graph
        inputs = [self, *(other if isinstance(other, Tensor) else graph.constant(other) for other in others)]
        name = f"xgpc/{operator}_{len(graph.nodes)}"
        outputs = [f"{name}_{i}" for i in range(n_outputs)]
        names = [tensor.name for tensor in inputs]
        node = helper.make_node(operator, names, outputs, name, domain=DOMAINS.get(operator, ""))
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        graph.nodes.append(node)
        return Tensor(graph, outputs[-1])

    __add__, __radd__ = _function("Add"), _reflected("Add")
    __sub__, __rsub__ = _function("Sub"), _reflected("Sub")
    __mul__, __rmul__ = _function("Mul"), _reflected("Mul")
    __truediv__, __rtruediv__ = _function("Div"), _reflected("Div")
    __matmul__, __lt__, __neg__ = _function("MatMul"), _function("Less"), _function("Neg")
    sum, max, min = _reduction("ReduceSum", 13), _reduction("ReduceMax", 18), _reduction("ReduceMin", 18)

    def slice(self, axis: int, start: int, stop: int) -> Tensor:
        """Elements from ``start`` up to, but not including, ``stop`` along an axis."""
        return self.apply("Slice", [start], [stop], [axis])

    def with_axis(self, axis: int) -> Tensor:
        return self.apply("Unsqueeze", [axis])

    def transposed(self, *axes: int) -> Tensor:
        return self.apply("Transpose", perm=list(axes))

    def cast(self, to: int) -> Tensor:
        """The tensor as a type of ``onnx.TensorProto``."""
        return self.apply("Cast", to=to)


exp, log, sin, sqrt, absolute = map(_function, ("Exp", "Log", "Sin", "Sqrt", "Abs"))
maximum, minimum, where = map(_function, ("Max", "Min", "Where"))


def concatenated(tensors: list[Tensor], axis: int) -> Tensor:
    """The tensors one after another along an axis."""
    return tensors[0].apply("Concat", *tensors[1:], axis=axis) if len(tensors) > 1 else tensors[0]
