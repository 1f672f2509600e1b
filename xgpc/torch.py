"""A fitted classifier as a module of PyTorch, for optimisers of settings that may fail, such as BoTorch's.

``pip install 'xgpc[torch]'``.
"""

from __future__ import annotations

import copy
import reprlib
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch.autograd.function import FunctionCtx

from .acquisition.labels import likelihood_of
from .acquisition.trials import column_of_label, probability_of_feasibility
from .config import PROBABILITY, Rule, is_integer

# Rows (n, d), and whether their gradients are wanted -> values (n, k), and with these their gradients (n, k, d) by X.
Function = Callable[[np.ndarray, bool], Any]


class _AtRows:
    """Values and gradients of a function of rows at X (..., d), in one call if gradients will be wanted."""

    def __init__(self, function: Function, is_steep: bool) -> None:
        self.function, self.is_steep = function, is_steep
        self.kept: tuple[np.ndarray, np.ndarray] | None = None  # rows with their gradients

    def values(self, rows: np.ndarray) -> np.ndarray:
        if not self.is_steep:
            return self.function(rows, False)
        values, gradient = self.function(rows, True)
        self.kept = rows, gradient
        return values

    def gradients(self, rows: np.ndarray) -> np.ndarray:
        # Transformations of ``torch.func`` may have other rows here than there.
        if self.kept is not None and np.array_equal(self.kept[0], rows):
            return self.kept[1]
        return self.function(rows, True)[1]


def _tensor(function: Callable[[np.ndarray], np.ndarray], X: torch.Tensor) -> torch.Tensor:
    """Values (..., *s) of a function that has (n, *s) for rows (n, d), at X (..., d)."""
    values = function(X.detach().to("cpu", torch.float64).reshape(-1, X.shape[-1]).numpy())
    return torch.as_tensor(values, dtype=X.dtype, device=X.device).reshape(*X.shape[:-1], *values.shape[1:])


class _Values(torch.autograd.Function):
    """Values (..., k) of a function at rows X (..., d)."""

    @staticmethod
    def forward(X: torch.Tensor, at: _AtRows) -> torch.Tensor:
        return _tensor(at.values, X)

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[torch.Tensor, _AtRows], output: torch.Tensor) -> None:
        X, ctx.at = inputs
        ctx.save_for_backward(X)
        ctx.save_for_forward(X)

    @staticmethod
    def backward(ctx: FunctionCtx, by_values: torch.Tensor) -> tuple[torch.Tensor, None]:
        # Not by einsum, which torch.autograd.functional cannot vectorise.
        return (by_values[..., None] * _Slopes.apply(*ctx.saved_tensors, ctx.at)).sum(-2), None

    @staticmethod
    def jvp(ctx: FunctionCtx, X_tangent: torch.Tensor, _: None) -> torch.Tensor:
        return (X_tangent[..., None, :] * _Slopes.apply(*ctx.saved_tensors, ctx.at)).sum(-1)

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[int, None], X: torch.Tensor, at: _AtRows) -> tuple[torch.Tensor, int]:
        return cls.apply(X.movedim(in_dims[0], 0), at), 0


class _Slopes(_Values):
    """Gradients (..., k, d) of the values, which have none themselves."""

    @staticmethod
    def forward(X: torch.Tensor, at: _AtRows) -> torch.Tensor:
        return _tensor(at.gradients, X)

    @staticmethod
    def backward(ctx: FunctionCtx, *_: object) -> NoReturn:
        raise RuntimeError(
            "FeasibilityModel has first derivatives by X, and no second ones: leave out create_graph=True, hessian and "
            "the like, take differences of gradients, or xgpc.botorch.LatentModel, whose latent values have both."
        )

    jvp = backward  # type: ignore[assignment]


def check_tensor(name: str, values: torch.Tensor, shape: str, width: int | None = None, least_axes: int = 1) -> None:
    """Raise ValueError for all but a tensor of floating point numbers, whose last axis has the width if it is given."""
    is_tensor = isinstance(values, torch.Tensor)
    is_right = is_tensor and values.is_floating_point() and values.ndim >= least_axes
    if not (is_right and width in (None, values.shape[-1])):
        kind = f"one of {values.dtype}, {tuple(values.shape)}" if is_tensor else type(values).__name__
        raise ValueError(f"{name} must be a tensor of floating point numbers {shape}; got {kind}.")


def _evaluated(X: torch.Tensor, function: Function) -> torch.Tensor:
    """Values (..., k) of a function at checked X (..., d)."""
    check_tensor("X", X, "(..., q, d)")
    return _Values.apply(X, _AtRows(function, X.requires_grad and torch.is_grad_enabled()))


# torch.compile cannot trace the classifier, but calls it.
_called = torch.compiler.disable(_evaluated)


def file_of(model: BaseEstimator) -> torch.Tensor:
    """The bytes of a model's file, for a ``state_dict``; ValueError for a model without one."""
    if not hasattr(model, "save"):
        raise ValueError(
            f"state_dict needs a model that save() can write; {type(model).__name__} has none. Pickle the module: "
            "torch.save(module, path)."
        )
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.npz"
        model.save(path)
        return torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)


def model_of(file: torch.Tensor, like: BaseEstimator) -> BaseEstimator:
    """The model of a file's bytes, of the class of another; ValueError for anything else."""
    if not (hasattr(like, "load") and isinstance(file, torch.Tensor) and file.dtype == torch.uint8):
        given = f"{type(like).__name__} and {reprlib.repr(file)}"
        raise ValueError(f"A state needs a model with load(), and the bytes that state_dict made; got {given}.")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.npz"
        path.write_bytes(file.cpu().numpy().tobytes())
        try:
            return type(like).load(path)
        except ValueError as error:
            raise ValueError(str(error).replace(repr(str(path)), "The state's tensor of bytes")) from error


class FeasibilityModel(torch.nn.Module):
    """Probability that settings are feasible, by a fitted classifier, with gradients by the settings.

    It is that of labels as they come, without ``class_weight``.
    The module has no parameters to train: gradients are those by X, in the units of the classifier's training rows.
    They are first derivatives, NaN where there are none (see ``predict_latent``); second ones raise a RuntimeError. It
    computes in double precision on the CPU, and returns tensors of the type and device of X. A later fit of the
    classifier does not change it. ``torch.func`` can transform it; ``torch.compile`` calls it outside of its graph, so
    that ``fullgraph=True`` is an error.

    ``state_dict`` holds a GPClassifier's file as a tensor: ``torch.load(path, weights_only=True)`` reads it, and
    ``load_state_dict`` restores model, label and threshold in a module of any fitted classifier of the same class.

    Parameters
    ----------
    model : fitted GPClassifier or BayesianLinearClassifier
        With neighbours (``n_neighbors_`` above 0) probabilities jump a little where the nearest rows change, which can
        stop a line search: fit with ``n_neighbors=0``. "logistic-softmax" has no gradients of probabilities, and a
        table with levels has none at all.
    feasible : label
        The label in ``classes_`` that means feasible; all other labels mean failures.
    threshold : float, default=0.5
        Probability of feasibility that ``constraint`` demands, between 0 and 1.

    Raises
    ------
    ValueError
        For another model, label or threshold; calls raise it for rows that ``predict_proba`` would refuse.
    """

    def __init__(self, model: BaseEstimator, feasible: object, threshold: float = 0.5) -> None:
        super().__init__()
        likelihood_of(model)
        PROBABILITY.check("threshold", threshold)
        # A later fit of the model, perhaps with other classes, makes another module.
        self.model, self.threshold = copy.copy(model), threshold
        self._column = column_of_label(model, "feasible", feasible)

    def extra_repr(self) -> str:
        """What ``repr`` shows between the parentheses."""
        label = np.asarray(self.model.classes_).tolist()[self._column]
        return f"{self.model!r}, feasible={label!r}, threshold={self.threshold!r}"

    def get_extra_state(self) -> dict[str, Any]:
        """What ``state_dict`` holds."""
        return {"model": file_of(self.model), "column": self._column, "threshold": self.threshold}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take what ``get_extra_state`` returned; ValueError for anything else, which changes nothing."""
        if not (isinstance(state, dict) and state.keys() == {"model", "column", "threshold"}):
            raise ValueError(f"The state must be a dict of model, column and threshold; got {reprlib.repr(state)}.")
        model = model_of(state["model"], self.model)
        labels = np.asarray(model.classes_).tolist()
        position = Rule(lambda j: is_integer(j) and 0 <= j < len(labels), f"a position in the classes {labels}")
        position.check("The state's column", state["column"])
        made = FeasibilityModel(model, labels[state["column"]], state["threshold"])
        self.model, self._column, self.threshold = made.model, made._column, made.threshold

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Probability (..., q) that the settings X (..., q, d) are feasible, each by itself."""
        return _called(X, self._probability)[..., 0]

    def constraint(self, X: torch.Tensor) -> torch.Tensor:
        """``threshold`` minus the probability (..., q): negative where feasible, as BoTorch's constraints are."""
        return self.threshold - self(X)

    def latent(self, X: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Means and variances (..., q) of the latent function, or (..., q, C) of C functions, at X (..., q, d).

        Of two classes, positive values mean ``classes_[1]``, whichever is feasible; of ordered ones, higher values mean
        higher classes.
        """
        mean, variance = torch.tensor_split(_called(X, self._moments), 2, dim=-1)
        return (mean, variance) if mean.shape[-1] > 1 else (mean[..., 0], variance[..., 0])

    def _probability(self, rows: np.ndarray, return_grad: bool) -> Any:
        score = probability_of_feasibility(self.model, rows, self.model.classes_[self._column], return_grad)
        return tuple(values[:, None] for values in score) if return_grad else score[:, None]

    def _moments(self, rows: np.ndarray, return_grad: bool) -> Any:
        if not return_grad:
            return np.column_stack(self.model.predict_latent(rows))
        mean, variance, *gradients = self.model.predict_latent(rows, return_grad=True)
        by_x = [by if by.ndim == 3 else by[:, None] for by in gradients]
        return np.column_stack([mean, variance]), np.concatenate(by_x, axis=1)
