"""A fitted classifier as a module of PyTorch, for optimisers of settings that may fail, such as BoTorch's.

``pip install 'xgpc[torch]'``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch.autograd.function import once_differentiable

from .acquisition.labels import Link
from .acquisition.trials import column_of_label
from .config import PROBABILITY

# Rows (n, d), and whether their gradients are wanted -> values (n, k), and with these their gradients (n, k, d) by X.
Function = Callable[[np.ndarray, bool], Any]


def _pull_back(ctx: Any, output: torch.Tensor) -> tuple[torch.Tensor, None]:
    """Gradient (..., d) by X, from that by the values (..., k)."""
    (gradient,) = ctx.saved_tensors
    by_rows = torch.einsum("nk,nkd->nd", output.reshape(gradient.shape[:2]), gradient)
    return by_rows.reshape(*output.shape[:-1], gradient.shape[2]), None


class _AtRows(torch.autograd.Function):
    """Values (..., k) at rows X (..., d), whose gradients come with them."""

    @staticmethod
    def forward(ctx: Any, X: torch.Tensor, function: Function) -> torch.Tensor:
        rows = X.detach().to("cpu", torch.float64).reshape(-1, X.shape[-1]).numpy()
        values = function(rows, ctx.needs_input_grad[0])
        if ctx.needs_input_grad[0]:
            values, gradient = values
            ctx.save_for_backward(torch.as_tensor(gradient, dtype=X.dtype, device=X.device))
        return torch.as_tensor(values, dtype=X.dtype, device=X.device).reshape(*X.shape[:-1], values.shape[1])

    backward = staticmethod(once_differentiable(_pull_back))


class FeasibilityModel(torch.nn.Module):
    """Probability that settings are feasible, by a fitted classifier, with gradients by the settings.

    The module has no parameters to train: gradients are those by X, in the units of the classifier's training rows,
    once and not twice. It computes in double precision on the CPU, and returns tensors of the type and device of X. A
    later fit of the classifier does not change it.

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
        Link.of(model)
        PROBABILITY.check("threshold", threshold)
        # A later fit of the model, perhaps with other classes, makes another module.
        self.model, self.threshold = copy.copy(model), threshold
        self._column = column_of_label(model, "feasible", feasible)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Probability (..., q) that the settings X (..., q, d) are feasible, each by itself."""
        return _AtRows.apply(_checked(X), self._probability)[..., 0]

    def constraint(self, X: torch.Tensor) -> torch.Tensor:
        """``threshold`` minus the probability (..., q): negative where feasible, as BoTorch's constraints are."""
        return self.threshold - self(X)

    def latent(self, X: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Means and variances (..., q) of the latent function, or (..., q, C) of C functions, at X (..., q, d).

        Of two classes, positive values mean ``classes_[1]``, whichever is feasible.
        """
        found = _AtRows.apply(_checked(X), self._moments)
        mean, variance = torch.tensor_split(found, 2, dim=-1)
        return (mean, variance) if mean.shape[-1] > 1 else (mean[..., 0], variance[..., 0])

    def _probability(self, rows: np.ndarray, return_grad: bool) -> Any:
        column = slice(self._column, self._column + 1)
        if not return_grad:
            return self.model.predict_proba(rows)[:, column]
        return tuple(found[:, column] for found in self.model.predict_proba(rows, return_grad=True))

    def _moments(self, rows: np.ndarray, return_grad: bool) -> Any:
        if not return_grad:
            return np.column_stack(self.model.predict_latent(rows))
        mean, variance, *gradients = self.model.predict_latent(rows, return_grad=True)
        by_x = [one if one.ndim == 3 else one[:, None] for one in gradients]
        return np.column_stack([mean, variance]), np.concatenate(by_x, axis=1)


def _checked(X: torch.Tensor) -> torch.Tensor:
    if not (isinstance(X, torch.Tensor) and X.is_floating_point() and X.ndim >= 1):
        what = f"one of {X.dtype}, {tuple(X.shape)}" if isinstance(X, torch.Tensor) else type(X).__name__
        raise ValueError(f"X must be a tensor of floating point numbers (..., q, d); got {what}.")
    return X
