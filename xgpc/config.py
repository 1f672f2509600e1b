"""The parameters of a fit: one table of their names, types, defaults and allowed values, and checks before a fit."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple, Self, TypeGuard, get_args

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.gaussian_process.kernels import Kernel
from sklearn.model_selection import BaseCrossValidator

from .inference.run import FitState
from .kernels.default import checked_kernel
from .likelihoods import LIKELIHOODS, ORDERED, ORDINAL, LikelihoodBound, resolve
from .names import (
    Auto,
    ClassWeight,
    LearningRate,
    OptimizerName,
    Points,
    PointsName,
    PrecisionName,
    RandomSeed,
    ShareName,
    shown,
)

# Length scales whose logarithms have a smaller prior standard deviation than this are practically equal.
LEAST_SPREAD = 1e-3


def is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def is_name(value: object, names: Container[object]) -> TypeGuard[str]:
    """Whether a value is one of some strings; an array is not, even if it cannot be compared."""
    return isinstance(value, str) and value in names


class Rule(NamedTuple):
    """The allowed values of a parameter: a test, and the words of the error message."""

    allows: Callable[[Any], bool]
    words: str

    def check(self, name: str, value: object) -> None:
        if not self.allows(value):
            raise ValueError(f"{name} must be {self.words}; got {shown(value)}.")


def one_of(*options: Rule | str | None) -> Rule:
    """One of these values, or what another rule allows."""
    rules = [option for option in options if isinstance(option, Rule)]
    *first, last = (option.words if isinstance(option, Rule) else repr(option) for option in options)

    def allows(value: object) -> bool:
        is_value = None in options if value is None else is_name(value, options)
        return is_value or any(rule.allows(value) for rule in rules)

    return Rule(allows, ", ".join(first) + (", or " if len(first) > 1 else " or ") + last)


def number(test: Callable[[float], bool], words: str) -> Rule:
    return Rule(lambda value: is_number(value) and test(value), words)


def integer(least: int) -> Rule:
    words = {0: "an integer that is not negative", 1: "a positive integer"}
    return Rule(lambda value: is_integer(value) and value >= least, words.get(least, f"an integer of at least {least}"))


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim == 1)


def _are_columns(value: object) -> bool:
    """Whether these could be categorical columns of some table."""
    kinds = (str, bool | np.bool_, numbers.Integral)
    return _is_list(value) and any(all(isinstance(item, kind) for item in value) for kind in kinds)


def _are_sizes(value: object) -> bool:
    values = np.asarray(value) if _is_list(value) else np.empty(0)
    are_integers = values.ndim == 1 and len(values) > 0 and values.dtype.kind in "iu"
    return are_integers and values[0] >= 1 and bool(np.all(np.diff(values) > 0))


def _is_decay(value: object) -> bool:
    if not (_is_list(value) and len(value) == 2):
        return False
    delay, forgetting = value
    return is_number(delay) and is_number(forgetting) and 1.0 <= delay < math.inf and 0.5 < forgetting <= 1.0


TRUTH = Rule(lambda value: isinstance(value, bool | np.bool_), "True or False")


def _row(rule: Rule) -> Any:
    return field(metadata={"rule": rule})


SPLITTER = Rule(
    lambda value: (
        not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in ("split", "get_n_splits"))
    ),
    "an object with the methods split and get_n_splits, which divides any number of rows, such as scikit-learn's "
    "TimeSeriesSplit() (an instance, not the class)",
)
NUMERIC_POINTS = "a numeric array (m, d) (n_inducing is their number)"
POINTS = one_of(*get_args(PointsName), Rule(lambda value: not isinstance(value, str | numbers.Number), NUMERIC_POINTS))
LOG_SPREAD = number(
    lambda value: LEAST_SPREAD <= value < math.inf,
    f"a finite standard deviation of log length scales of at least {LEAST_SPREAD:g} (1.0 is weak)",
)
SIZES = Rule(_are_sizes, "increasing positive integers")
NOISE = number(lambda value: 0.0 < value < 0.5, "a number between 0 and 0.5")
RATE = number(lambda value: 0.0 <= value < 1.0, "a number from 0 to less than 1")
PROBABILITY = number(lambda value: 0.0 < value < 1.0, "a number between 0 and 1")
MEAN = Rule(
    lambda value: all(
        is_number(item) and math.isfinite(item) for item in (value if _is_list(value) and len(value) else [value])
    ),
    "a finite number, a list with one number for each class",
)
TOLERANCE = number(lambda value: 0.0 <= value < math.inf, "a number that is not negative, and finite")
COLUMNS = Rule(_are_columns, "a list of column names, of column positions, or of True and False for each column")
CONSTANT = number(lambda value: 0.0 < value <= 1.0, "a constant in (0, 1]")
DECAY = Rule(
    _is_decay,
    "a pair (delay, forgetting) with delay >= 1 and 0.5 < forgetting <= 1 for the rate (t + delay)^-forgetting",
)
WEIGHTS = Rule(lambda value: isinstance(value, dict), "a dict of the classes' weights")
SECONDS = number(lambda value: 0.0 < value < math.inf, "a positive number of seconds")
# The neighbour search counts threads in a 32-bit integer.
THREADS = Rule(lambda value: is_integer(value) and 0 < abs(value) < 2**31, "a number of threads, -1 for all cores")
FUNCTION = Rule(callable, "a function of one argument, the state of the fit")


# Most rows that a model with neighbours keeps by default: rows times latent functions, of which a million take 1.7 GB
# while they are fitted, and rows times features, which take .8 GB in double precision.
MOST_CLASS_ROWS, MOST_ROW_VALUES = 1_000_000, 100_000_000
# A stream keeps so many times fewer, because each batch takes some sweeps over all of them (.7 s for 100 000 rows).
STREAM_SHARE = 10


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """The checked parameters of a fit; the docstring of ``GPClassifier`` explains them."""

    kernel: Kernel | None
    likelihood: str
    bound: str
    n_inducing: int | Auto = _row(one_of(integer(1), "auto"))
    n_neighbors: int | Auto = _row(one_of(integer(0), "auto"))
    max_rows_in_model: int | Auto = _row(one_of(integer(2), "auto"))
    held_out_split: BaseCrossValidator | None = _row(one_of(SPLITTER, None))
    inducing_points: PointsName | Points = _row(POINTS)
    optimizer: OptimizerName | None = _row(one_of(*get_args(OptimizerName), None))
    learn_inducing: bool = _row(TRUTH)
    n_restarts_optimizer: int = _row(integer(0))
    length_scale_prior: float | Auto | None = _row(one_of("auto", None, LOG_SPREAD))
    subset_sizes: Sequence[int] | Auto | None = _row(one_of("auto", None, SIZES))
    share: ShareName = _row(one_of(*get_args(ShareName)))
    label_noise: str | float = _row(one_of("learn", NOISE))
    guess_rate: float | Literal["learn"] = _row(one_of("learn", RATE))
    lapse_rate: float | Literal["learn"] = _row(one_of("learn", RATE))
    mean: float | Sequence[float] | Literal["base-rate"] = _row(one_of(MEAN, "base-rate"))
    batch_size: int | None = _row(one_of(integer(1), None))
    learning_rate: LearningRate = _row(one_of("adaptive", CONSTANT, DECAY))
    max_iter: int = _row(integer(1))
    tol: float = _row(TOLERANCE)
    precision: PrecisionName = _row(one_of(*get_args(PrecisionName)))
    class_weight: ClassWeight | None = _row(one_of("balanced", None, WEIGHTS))
    categorical_features: Literal["from_dtype"] | Sequence[str | int] | None = _row(one_of("from_dtype", None, COLUMNS))
    feature_transform: str | None = _row(one_of("auto", None))
    warm_start: bool = _row(TRUTH)
    max_time: float | None = _row(one_of(SECONDS, None))
    keep_on_interrupt: bool = _row(TRUTH)
    callback: Callable[[FitState], object] | None = _row(one_of(FUNCTION, None))
    n_jobs: int | None = _row(one_of(THREADS, None))
    random_state: RandomSeed
    verbose: int = _row(one_of(integer(0), TRUTH))

    @classmethod
    def of(cls, model: BaseEstimator) -> Self:
        """Take the parameters of a ``GPClassifier``; ValueError if one is not allowed."""
        likelihood = _likelihood_of(model)
        check_allowed(model, {})
        _check_rates(model, resolve(likelihood, model.bound))
        if is_name(model.inducing_points, ("all",)):
            for name, allowed in (("optimizer", ("profile", None)), ("batch_size", (None,))):
                value = getattr(model, name)
                if value not in allowed:
                    raise ValueError(
                        f"inducing_points='all' is a full Gaussian process, for which {name} must be "
                        f"{' or '.join(map(repr, allowed))}; got {value!r}. Choose inducing points to use other values."
                    )
        values = {name: getattr(model, name) for name in PARAMETERS}
        values |= {"max_iter": int(model.max_iter), "tol": float(model.tol), "kernel": checked_kernel(model.kernel)}
        return cls(**values | {"likelihood": likelihood})

    @property
    def learned_rates(self) -> tuple[bool, bool]:
        """Whether guess and lapse rate are learned."""
        return isinstance(self.guess_rate, str), isinstance(self.lapse_rate, str)

    @property
    def fixed_rates(self) -> np.ndarray:
        """Guess and lapse rate (2,), 0 for those that are learned."""
        return np.array([0.0 if isinstance(rate, str) else rate for rate in (self.guess_rate, self.lapse_rate)])

    @property
    def has_auto_neighbors(self) -> bool:
        """Whether the fit itself decides if it uses neighbours."""
        return isinstance(self.n_neighbors, str)

    @property
    def given_neighbors(self) -> int:
        """The number of neighbours that the user asks for; 0 if there are none, or the fit decides."""
        return 0 if isinstance(self.n_neighbors, str) else self.n_neighbors

    @property
    def may_keep_rows(self) -> bool:
        """Whether the model may keep rows: for neighbours, or to learn from a stream anew."""
        return self.n_neighbors != 0 and self.batch_size is None and not self.is_full

    def most_rows(self, n_latents: int, n_features: int, is_stream: bool = False) -> int:
        """Most rows that a model keeps."""
        if not isinstance(self.max_rows_in_model, str):
            return self.max_rows_in_model
        most = min(MOST_CLASS_ROWS // n_latents, MOST_ROW_VALUES // max(1, n_features))
        return max(1, most // STREAM_SHARE if is_stream else most)

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


# Allowed values of each parameter; None if the check needs the data or other parameters.
PARAMETERS: dict[str, Rule | None] = {field.name: field.metadata.get("rule") for field in fields(FitConfig)}
# Parameters that model files do not hold.
UNSAVED = ("held_out_split", "callback")


def check_allowed(model: BaseEstimator, own: Mapping[str, Rule]) -> None:
    """Raise ValueError for a constructor argument that breaks a rule: one of the model's own, or one of the table.

    A name means the same in every classifier here.
    """
    # ``get_params`` would take as long as all rules together.
    for name, rule in (PARAMETERS | dict(own)).items():
        if rule and name in vars(model):
            rule.check(name, getattr(model, name))


def _likelihood_of(model: BaseEstimator) -> str:
    """The registry's name of a model's likelihood; ValueError for one that is not for the model."""
    name: str = model.likelihood
    if model._is_ordered:
        one_of(*(ordered.removeprefix(ORDINAL) for ordered in ORDERED)).check("likelihood", name)
        return ORDINAL + name
    if is_name(name, ORDERED):
        raise ValueError(f"likelihood={name!r} is for GPOrdinalClassifier; GPClassifier takes {list(LIKELIHOODS)}.")
    return name


def _check_rates(model: BaseEstimator, record: LikelihoodBound) -> None:
    """Raise ValueError for guess and lapse rates that the other parameters do not allow."""
    rates = {name: getattr(model, name) for name in ("guess_rate", "lapse_rate")}
    numbers = [rate for rate in rates.values() if not isinstance(rate, str)]
    shown = ", ".join(f"{name}={value!r}" for name, value in rates.items())
    if any(rates.values()) and not record.has_rates:
        raise ValueError(f"{shown} are for likelihood='psychometric'; got {model.likelihood!r}. Leave both at 0.0.")
    if sum(numbers) >= 1.0:
        raise ValueError(f"The sum of guess_rate and lapse_rate must be below 1; got {shown}.")
    if len(numbers) < 2 and not is_name(model.optimizer, ("profile",)):
        raise ValueError(f"optimizer='profile' alone learns rates; got {shown} and optimizer={model.optimizer!r}.")


def checked_noise(label_noise: str | float, record: LikelihoodBound) -> float | None:
    """The label noise, or None if it is learned; ValueError if the likelihood's bound has no label noise."""
    if label_noise == "learn":
        return None
    if not record.has_label_noise:
        raise ValueError(
            f"label_noise={label_noise:g} is for bounds 'additive-noise' of likelihoods other than softmax; the bound "
            f"is {record.bound!r} of {record.likelihood!r}. Leave label_noise='learn', or choose another bound."
        )
    return float(label_noise)


def checked_mean(mean: str | float | Sequence[float], record: LikelihoodBound, n_classes: int) -> np.ndarray | None:
    """The prior mean (L,) of the latent functions, None for "base-rate"; ValueError for a wrong shape."""
    n_latents, likelihood = record.n_latents(n_classes), record.likelihood
    if record.is_ordinal and not (is_number(mean) and mean == 0.0):
        raise ValueError(f"Ordered classes have cut points instead of a prior mean: leave mean=0.0; got {mean!r}.")
    if isinstance(mean, str):
        if record.has_wrong_labels:
            raise ValueError(
                f"mean='base-rate' is not for bound {record.bound!r} of likelihood {likelihood!r}, whose wrong labels "
                "are part of every prediction. Give numbers, or choose another likelihood or bound."
            )
        return None
    values = np.asarray(mean, dtype=np.float64)
    if values.ndim == 0 and (n_latents == 1 or values == 0.0):
        return np.full(n_latents, float(values))
    if n_latents == 1 or values.shape != (n_latents,):
        wanted = "a number" if n_latents == 1 else f"0, a list of {n_latents} numbers in the order of classes_,"
        raise ValueError(
            f"mean must be {wanted} or 'base-rate' for likelihood {likelihood!r} and {n_classes} classes; got {mean!r}."
        )
    return values


def check_keeps_no_rows(config: FitConfig, why: str) -> None:
    """Raise ValueError for a full Gaussian process, which holds all rows; ``why`` says that there are none to hold."""
    if config.is_full:
        raise ValueError(f"inducing_points='all', a full Gaussian process, needs all rows at once, but {why}.")


def check_batches(config: FitConfig) -> None:
    """Raise ValueError for parameters that batches do not allow."""
    chosen = config.categorical_features
    if not (chosen is None or isinstance(chosen, str)):
        raise ValueError(
            f"categorical_features={chosen!r} is only for fit; rows in batches and dask collections must be numbers. "
            "Encode the columns first, for example with sklearn.preprocessing.OneHotEncoder, and leave 'from_dtype'."
        )


def check_streamed(config: FitConfig, most_rows: int) -> None:
    """Raise ValueError for parameters that need all rows in memory if there are more than ``most_rows``."""
    why = f"a source of more than {most_rows} rows is not kept in memory"
    check_keeps_no_rows(config, why)
    if config.batch_size is not None and not config.learns_in_batches:
        raise ValueError(
            f"batch_size={config.batch_size} takes rows in random order, but {why}: leave batch_size=None, or choose "
            "optimizer='stochastic' or 'adam', which learn from a sample of the rows."
        )
