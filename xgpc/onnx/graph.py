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

    def apply(self, operator: str, *inputs: Tensor | ArrayLike, n_outputs: int = 1, **attributes: Attribute) -> Tensor:
        """The last output of an operator; inputs that are not tensors become constants."""
        names = [(value if isinstance(value, Tensor) else self.constant(value)).name for value in inputs]
        name = f"xgpc/{operator}_{len(self.nodes)}"
        outputs = [f"{name}_{i}" for i in range(n_outputs)]
        node = helper.make_node(operator, names, outputs, name, domain=DOMAINS.get(operator, ""))
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self.nodes.append(node)
        return Tensor(self, outputs[-1])

    def named(self, tensor: Tensor, name: str) -> None:
        """Make a tensor an output of the graph with the given name."""
        self.nodes.append(helper.make_node("Identity", [tensor.name], [name], f"xgpc/{name}"))


def _operator(name: str) -> Callable[[Tensor, Tensor | ArrayLike], Tensor]:
    return lambda self, other: self.apply(name, other)


def _reflected(name: str) -> Callable[[Tensor, ArrayLike], Tensor]:
    return lambda self, other: self.graph.apply(name, other, self)


class Tensor:
    """The output of an operator in a graph. Sums, maxima and minima keep their axis with one element."""

    # An array on the left of an arithmetic operator leaves the operation to the tensor.
    __array_ufunc__ = None

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.name = graph, name

    def apply(self, operator: str, *others: Tensor | ArrayLike, n_outputs: int = 1, **attributes: Attribute) -> Tensor:
        """The last output of an operator with this tensor as its first input."""
        return self.graph.apply(operator, self, *others, n_outputs=n_outputs, **attributes)

    __add__, __radd__ = _operator("Add"), _reflected("Add")
    __sub__, __rsub__ = _operator("Sub"), _reflected("Sub")
    __mul__, __rmul__ = _operator("Mul"), _reflected("Mul")
    __truediv__, __rtruediv__ = _operator("Div"), _reflected("Div")
    __matmul__, __lt__ = _operator("MatMul"), _operator("Less")

    def __neg__(self) -> Tensor:
        return self.apply("Neg")

    def sum(self, axis: int) -> Tensor:
        return self.apply("ReduceSum", [axis], keepdims=1)

    def max(self, axis: int) -> Tensor:
        return self._extreme("ReduceMax", axis)

    def min(self, axis: int) -> Tensor:
        return self._extreme("ReduceMin", axis)

    def _extreme(self, operator: str, axis: int) -> Tensor:
        # The axes of all reductions are inputs since the operator set 18.
        if self.graph.opset < 18:
            return self.apply(operator, axes=[axis], keepdims=1)
        return self.apply(operator, [axis], keepdims=1)

    def cumulated(self, axis: int, **attributes: int) -> Tensor:
        """Cumulative sum along an axis."""
        return self.apply("CumSum", axis, **attributes)

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

    def reshaped(self, *shape: int) -> Tensor:
        """The tensor in another shape: 0 keeps an axis, and -1 stands for the size that follows from the others."""
        return self.apply("Reshape", list(shape))


def _function(operator: str) -> Callable[..., Tensor]:
    return lambda x, *others: x.apply(operator, *others)


exp, log, sin, sqrt, absolute = map(_function, ("Exp", "Log", "Sin", "Sqrt", "Abs"))
maximum, minimum, where = map(_function, ("Max", "Min", "Where"))


def concatenated(tensors: list[Tensor], axis: int) -> Tensor:
    """The tensors one after another along an axis."""
    return tensors[0].apply("Concat", *tensors[1:], axis=axis) if len(tensors) > 1 else tensors[0]
