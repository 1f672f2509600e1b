"""A graph of ONNX operators written as arithmetic of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper


class Graph:
    """Nodes and constants of a graph that grows.

    Attributes
    ----------
    nodes, constants : lists of what ``onnx.helper.make_graph`` takes
    """

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def constant(self, value: Any) -> Tensor:
        """A number, or an array of numbers or strings; numbers are float64 or int64."""
        array = np.asarray(value)
        if array.dtype.kind == "f":
            array = array.astype(np.float64)
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return Tensor(self, name)

    def apply(self, operator: str, *inputs: Any, **attributes: Any) -> Tensor:
        """The single output of an operator; inputs that are no tensors become constants."""
        names = [(given if isinstance(given, Tensor) else self.constant(given)).name for given in inputs]
        tensor = Tensor(self, f"{operator}_{len(self.nodes)}")
        self.nodes.append(helper.make_node(operator, names, [tensor.name], **attributes))
        return tensor

    def named(self, tensor: Tensor, name: str) -> None:
        """Make a tensor an output of that name."""
        self.nodes.append(helper.make_node("Identity", [tensor.name], [name]))


class Tensor:
    """What an operator of a graph gives."""

    # With an array on the left of an operator, that of the tensor counts.
    __array_ufunc__ = None

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.name = graph, name

    def apply(self, operator: str, *others: Any, **attributes: Any) -> Tensor:
        """An operator with this tensor as its first input."""
        return self.graph.apply(operator, self, *others, **attributes)

    def __add__(self, other: Any) -> Tensor:
        return self.apply("Add", other)

    def __sub__(self, other: Any) -> Tensor:
        return self.apply("Sub", other)

    def __mul__(self, other: Any) -> Tensor:
        return self.apply("Mul", other)

    def __truediv__(self, other: Any) -> Tensor:
        return self.apply("Div", other)

    def __matmul__(self, other: Any) -> Tensor:
        return self.apply("MatMul", other)

    def __lt__(self, other: Any) -> Tensor:
        return self.apply("Less", other)

    def __radd__(self, other: Any) -> Tensor:
        return self.graph.apply("Add", other, self)

    def __rsub__(self, other: Any) -> Tensor:
        return self.graph.apply("Sub", other, self)

    def __rmul__(self, other: Any) -> Tensor:
        return self.graph.apply("Mul", other, self)

    def __rtruediv__(self, other: Any) -> Tensor:
        return self.graph.apply("Div", other, self)

    def __neg__(self) -> Tensor:
        return self.apply("Neg")

    def sum(self, axis: int) -> Tensor:
        """Along an axis, which stays, with one element."""
        return self.apply("ReduceSum", [axis], keepdims=1)

    def max(self, axis: int) -> Tensor:
        """Along an axis, which stays, with one element."""
        return self.apply("ReduceMax", axes=[axis], keepdims=1)

    def min(self, axis: int) -> Tensor:
        """Along an axis, which stays, with one element."""
        return self.apply("ReduceMin", axes=[axis], keepdims=1)

    def cumulated(self, axis: int, **attributes: int) -> Tensor:
        return self.apply("CumSum", axis, **attributes)

    def slice(self, axis: int, start: int, stop: int) -> Tensor:
        """Elements from ``start`` to before ``stop`` along an axis."""
        return self.apply("Slice", [start], [stop], [axis])

    def with_axis(self, axis: int) -> Tensor:
        """With another axis, of one element, there."""
        return self.apply("Unsqueeze", [axis])

    def reshaped(self, *shape: int) -> Tensor:
        """-1 for one axis that follows from the others, 0 for one as it is."""
        return self.apply("Reshape", list(shape))


def exp(x: Tensor) -> Tensor:
    return x.apply("Exp")


def log(x: Tensor) -> Tensor:
    return x.apply("Log")


def sqrt(x: Tensor) -> Tensor:
    return x.apply("Sqrt")


def absolute(x: Tensor) -> Tensor:
    return x.apply("Abs")


def maximum(x: Tensor, other: Any) -> Tensor:
    return x.apply("Max", other)


def minimum(x: Tensor, other: Any) -> Tensor:
    return x.apply("Min", other)


def where(condition: Tensor, then: Any, otherwise: Any) -> Tensor:
    return condition.apply("Where", then, otherwise)


def concatenated(tensors: list[Tensor], axis: int) -> Tensor:
    """Several tensors along an axis, or the only one."""
    return tensors[0].apply("Concat", *tensors[1:], axis=axis) if len(tensors) > 1 else tensors[0]
