"""The parameters of a fit, checked once; every error says what was given and what is allowed."""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self, get_args

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from .inference.mini_batch import learning_rate_schedule
from .inference.run import FitState
from .likelihoods import LIKELIHOODS, has_label_noise, resolve
from .names import OptimizerName, PointsName, PrecisionName, ShareName

OPTIMIZERS, POINTS, PRECISIONS = (get_args(names) for names in (OptimizerName, PointsName, PrecisionName))
# Length scales whose logarithms have a smaller prior deviation than this are practically equal.
LEAST_SPREAD = 1e-3


def is_integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def is_name(value: Any, names: Container[str]) -> bool:
    """Whether a value is one of some strings; an array is not, even if it cannot be compared."""
    return isinstance(value, str) and value in names


def _is_positive_integer(value: Any) -> bool:
    return is_integer(value) and value >= 1


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def _is_path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike) and bool(os.fspath(value)) and "\0" not in os.fsdecode(value)


def _is_splitter(value: Any) -> bool:
    methods = (getattr(value, name, None) for name in ("split", "get_n_splits"))
    return not isinstance(value, type) and all(map(callable, methods))


def _are_features(value: Any) -> bool:
    """Whether ``categorical_features`` may have this value for some set of columns."""
    if value is None or isinstance(value, str):
        return value is None or value == "from_dtype"
    if not (isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim == 1)):
        return False
    kinds = (str, bool | np.bool_, numbers.Integral)
    return any(all(isinstance(one, kind) for one in value) for kind in kinds)


def _are_subset_sizes(sizes: Any) -> bool:
    if sizes is None or is_name(sizes, ("auto",)):
        return True
    values = np.asarray(sizes) if isinstance(sizes, list | tuple | np.ndarray) else np.empty(0)
    is_list_of_integers = values.ndim == 1 and len(values) > 0 and values.dtype.kind in "iu"
    return is_list_of_integers and values[0] >= 1 and not np.any(np.diff(values) <= 0)


def _is_mean(value: Any) -> bool:
    values = list(value) if isinstance(value, list | tuple | np.ndarray) and np.ndim(value) == 1 else [value]
    return is_name(value, ("base-rate",)) or all(is_number(one) and math.isfinite(one) for one in values)


# A test of a value, and the text of the error message.
Rule = tuple[Callable[[Any], bool], str]


def integer_from(least: int) -> Rule:
    return lambda value: is_integer(value) and value >= least, f"an integer of at least {least}"


# The rules for constructor arguments; a name means the same in every classifier here.
ALLOWED: dict[str, Rule] = {
    "optimizer": (lambda value: value is None or is_name(value, OPTIMIZERS), f"one of {list(OPTIMIZERS)} or None"),
    "label_noise": (
        lambda value: is_name(value, ("learn",)) or (is_number(value) and 0.0 < float(value) < 0.5),
        "'learn' or a number between 0 and 0.5",
    ),
    "mean": (_is_mean, "a finite number, a list with one number for each class, or 'base-rate'"),
    "subset_sizes": (_are_subset_sizes, "'auto', None, or increasing positive integers"),
    "n_restarts_optimizer": (lambda value: is_integer(value) and value >= 0, "an integer that is not negative"),
    "length_scale_prior": (
        lambda value: (
            value is None or is_name(value, ("auto",)) or (is_number(value) and LEAST_SPREAD <= float(value) < math.inf)
        ),
        f"'auto', None, or a finite standard deviation of log length scales of at least {LEAST_SPREAD:g} (1.0 is weak)",
    ),
    "precision": (lambda value: is_name(value, PRECISIONS), f"one of {list(PRECISIONS)}"),
    "share": (lambda value: is_name(value, get_args(ShareName)), "'auto', 'kernel' or 'none'"),
    "n_inducing": (
        lambda value: is_name(value, ("auto",)) or _is_positive_integer(value),
        "a positive integer or 'auto'",
    ),
    "n_neighbors": (
        lambda value: is_name(value, ("auto",)) or (is_integer(value) and value >= 0),
        "an integer that is not negative, or 'auto'",
    ),
    "query_split": (
        lambda value: value is None or _is_splitter(value),
        "an object with the methods split and get_n_splits, which divides any number of rows, such as scikit-learn's "
        "TimeSeriesSplit() (an instance, not the class), or None",
    ),
    "batch_size": (lambda value: value is None or _is_positive_integer(value), "a positive integer or None"),
    "max_iter": (_is_positive_integer, "a positive integer"),
    "n_jobs": (
        # The neighbour search counts threads in a 32-bit integer.
        lambda value: value is None or (is_integer(value) and 0 < abs(value) < 2**31),
        "a number of threads, -1 for all cores, or None",
    ),
    "learn_inducing": (_is_truth, "True or False"),
    "warm_start": (_is_truth, "True or False"),
    "max_time": (
        lambda value: value is None or (is_number(value) and 0.0 < float(value) < math.inf),
        "a positive number of seconds or None",
    ),
    "keep_on_interrupt": (_is_truth, "True or False"),
    "categorical_features": (
        _are_features,
        "'from_dtype', None, or a list of column names, of column positions, or of True and False for each column",
    ),
    "feature_transform": (lambda value: value is None or is_name(value, ("auto",)), "'auto' or None"),
    "checkpoint": (
        lambda value: value is None or _is_path(value),
        "the path of a file, a string or os.PathLike, or None",
    ),
    "callback": (
        lambda value: value is None or callable(value),
        "a function of one argument, the state of the fit, or None",
    ),
    "fit_intercept": (_is_truth, "True or False"),
    "tol": (
        lambda value: is_number(value) and 0.0 <= float(value) < math.inf,
        "a number that is not negative, and finite",
    ),
    "verbose": (
        lambda value: _is_truth(value) or (is_integer(value) and value >= 0),
        "an integer that is not negative, True or False",
    ),
}


def check_allowed(model: Any, own: Mapping[str, Rule]) -> None:
    """Raise ValueError for a constructor argument that breaks the model's own rules or the common ones."""
    given = model.get_params(deep=False)
    for name, (is_allowed, what) in {**own, **ALLOWED}.items():
        if name in given and not is_allowed(given[name]):
            raise ValueError(f"{name} must be {what}; got {given[name]!r}.")
    if "learning_rate" in given:
        learning_rate_schedule(given["learning_rate"])


@dataclass(frozen=True)
class FitConfig:
    """The checked parameters of a fit; the docstring of ``GPClassifier`` explains them."""

    kernel: Kernel | None
    likelihood: str
    bound: str
    n_inducing: Any
    n_neighbors: Any
    query_split: Any
    inducing_points: Any
    optimizer: str | None
    learn_inducing: bool
    n_restarts_optimizer: int
    length_scale_prior: Any
    subset_sizes: Any
    share: str
    label_noise: str | float
    mean: Any
    batch_size: int | None
    learning_rate: str | float | Sequence[float]
    max_iter: int
    tol: float
    precision: str
    class_weight: Any
    feature_transform: str | None
    warm_start: bool
    max_time: float | None
    keep_on_interrupt: bool
    checkpoint: str | os.PathLike[str] | None
    callback: Callable[[FitState], Any] | None
    n_jobs: int | None
    random_state: Any
    verbose: int

    @classmethod
    def of(cls, model: Any) -> Self:
        """Take the parameters of a ``GPClassifier``.

        Raises
        ------
        ValueError
            If a parameter is not allowed.
        """
        check_parameters(model)
        given = {field.name: getattr(model, field.name) for field in fields(cls)}
        return cls(**given | {"max_iter": int(model.max_iter), "tol": float(model.tol)})

    @property
    def has_auto_neighbors(self) -> bool:
        """Whether the fit itself decides if it uses neighbours."""
        return isinstance(self.n_neighbors, str)

    @property
    def is_full(self) -> bool:
        """Whether the model is a full Gaussian process, with every row as an inducing point."""
        return is_name(self.inducing_points, ("all",))

    @property
    def learns_in_batches(self) -> bool:
        """Whether kernels and inducing points are learned from mini-batches."""
        return self.optimizer in ("adam", "stochastic")

    def has_batches(self, n_rows: int) -> bool:
        """Whether ``batch_size`` is smaller than the number of rows."""
        return self.batch_size is not None and self.batch_size < n_rows


def check_parameters(model: Any) -> None:
    """Raise ValueError for a constructor argument of a ``GPClassifier`` that is not allowed."""
    resolve(model.likelihood, model.bound)
    points = model.inducing_points
    is_known = not isinstance(points, str) or points in POINTS
    check_allowed(
        model,
        {"inducing_points": (lambda value: is_known, f"one of {list(POINTS)} or a numeric array (m, d)")},
    )
    if isinstance(points, str) and points == "all":
        for name, allowed in (("optimizer", ("profile", None)), ("batch_size", (None,))):
            value = getattr(model, name)
            if value not in allowed:
                raise ValueError(
                    f"inducing_points='all' is a full Gaussian process, for which {name} must be "
                    f"{' or '.join(map(repr, allowed))}; got {value!r}. Choose inducing points to use other values."
                )


def checked_noise(label_noise: str | float, likelihood: str, bound: str) -> float | None:
    """The label noise, or None if it is learned; ValueError if the likelihood's bound has no label noise."""
    if label_noise == "learn":
        return None
    if not has_label_noise(likelihood, bound):
        raise ValueError(
            f"label_noise={label_noise:g} is for bounds 'additive-noise' of likelihoods other than softmax; the bound "
            f"is {bound!r} of {likelihood!r}. Leave label_noise='learn', or choose another bound."
        )
    return float(label_noise)


def checked_mean(mean: Any, likelihood: str, bound: str, n_classes: int) -> np.ndarray | None:
    """The prior mean (L,) of the latent functions, None for "base-rate"; ValueError for a wrong shape."""
    n_latents = LIKELIHOODS[likelihood].n_latents(n_classes)
    if isinstance(mean, str):
        if has_label_noise(likelihood, bound):
            raise ValueError(
                f"mean='base-rate' is not for bound {bound!r} of likelihood {likelihood!r}, whose label noise is part "
                "of every prediction. Give a number (a list with one for each class if there are several), or choose "
                "another bound."
            )
        return None
    given = np.asarray(mean, dtype=np.float64)
    if given.ndim == 0 and (n_latents is None or given == 0.0):
        return np.full(n_latents or 1, float(given))
    if given.shape != (n_latents,):
        wanted = "a number" if n_latents is None else f"0, a list of {n_latents} numbers in the order of classes_,"
        raise ValueError(
            f"mean must be {wanted} or 'base-rate' for likelihood {likelihood!r} and {n_classes} classes; got {mean!r}."
        )
    return given


def check_stream(model: Any, forgetting_factor: Any, n_new_inducing: Any) -> None:
    """Raise ValueError if ``GPClassifier.partial_fit`` cannot continue from the model or with the arguments."""
    if not (is_number(forgetting_factor) and 0.0 <= float(forgetting_factor) <= 1.0):
        raise ValueError(f"forgetting_factor must be a number from 0 to 1; got {forgetting_factor!r}.")
    if not (is_integer(n_new_inducing) and n_new_inducing >= 0):
        raise ValueError(f"n_new_inducing must be an integer that is not negative; got {n_new_inducing!r}.")
    if not isinstance(model.n_neighbors, str) and model.n_neighbors > 0:
        raise ValueError(
            f"n_neighbors={model.n_neighbors} needs all rows at once, which partial_fit does not keep; give "
            "n_neighbors=0 or 'auto', or call fit with all rows."
        )
    if getattr(model, "n_neighbors_", 0):
        raise ValueError(
            f"This model predicts with {model.n_neighbors_} neighbours, for which its kernel was learned, but "
            "partial_fit keeps no rows. Fit the model with n_neighbors=0 first, or call partial_fit on a new "
            "estimator."
        )
    is_full = is_name(model.inducing_points, ("all",))
    if is_full or (hasattr(model, "posterior_") and model.posterior_.prior.is_full):
        raise ValueError(
            "inducing_points='all' is a full Gaussian process, which needs all rows at once, but partial_fit keeps "
            "no rows. Choose inducing points (and a new estimator if this one is fitted), or call fit with all rows."
        )
    if hasattr(model, "posterior_"):
        likelihood, bound = resolve(model.likelihood, model.bound, len(model.classes_))
        if (likelihood.name, bound) != tuple(model._resolved):
            raise ValueError(
                f"partial_fit continues from a posterior of likelihood {model._resolved[0]!r} with bound "
                f"{model._resolved[1]!r}, but now likelihood={model.likelihood!r} and bound={model.bound!r} are set. "
                "Set them back, or use a new estimator."
            )
    if is_name(model.class_weight, ("balanced",)):
        raise ValueError(
            "class_weight='balanced' needs the number of rows of each class, which partial_fit cannot know in "
            "advance; give a dict of weights or sample_weight."
        )


def check_batches(model: Any) -> None:
    """Raise ValueError for parameters of a ``GPClassifier`` that batches do not allow."""
    chosen = model.categorical_features
    if not (chosen is None or isinstance(chosen, str)):
        raise ValueError(
            f"categorical_features={chosen!r} is only for fit; rows in batches and dask collections must be numbers. "
            "Encode the columns first, for example with sklearn.preprocessing.OneHotEncoder, and leave 'from_dtype'."
        )


def check_streamed(config: FitConfig, most_rows: int) -> None:
    """Raise ValueError for parameters that need all rows in memory if there are more than ``most_rows``."""
    limit = f"The source has more than {most_rows} rows, which are not kept in memory"
    if not config.has_auto_neighbors and config.n_neighbors > 0:
        raise ValueError(
            f"n_neighbors={config.n_neighbors} makes all training rows part of the model. {limit}: leave "
            "n_neighbors='auto', or give 0."
        )
    if config.is_full:
        raise ValueError(f"inducing_points='all' has a latent value at each row. {limit}: choose another value.")
    if config.batch_size is not None and not config.learns_in_batches:
        raise ValueError(
            f"batch_size={config.batch_size} takes rows in random order. {limit} but read in their order: leave "
            "batch_size=None, or choose optimizer='stochastic' or 'adam', which learn from a sample of the rows in "
            "mini-batches."
        )
