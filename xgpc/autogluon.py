"""A model of AutoGluon (extra ``autogluon``): ``GPClassifier`` in the ensembles of ``TabularPredictor``."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from .classifier import GPClassifier
from .config import is_integer
from .data.encoding import MAX_LEVELS
from .learning.learn import DEFAULT_NEIGHBORS
from .names import MatrixLike
from .rows.source import CACHE_BYTES

try:
    from autogluon.common.features.types import R_BOOL, R_CATEGORY, R_FLOAT, R_INT
    from autogluon.common.space import Categorical, Real, Space
    from autogluon.common.utils.pandas_utils import get_approximate_df_mem_usage
    from autogluon.core.constants import BINARY, MULTICLASS
    from autogluon.core.models import AbstractModel
    from autogluon.core.utils.exceptions import TimeLimitExceeded
except ImportError as error:
    raise ImportError("Models of AutoGluon need autogluon.tabular: pip install 'xgpc[autogluon]'") from error

# AutoGluon sets the level of its own loggers alone.
LOGGER = logging.getLogger(f"autogluon.{__name__}")
# Its level of what it says with ``verbosity=3`` and above: a bag of eight fits would repeat each warning.
DETAIL = 15
# A fit may exceed ``max_time`` by a tenth.
OVERRUN = 1.1
# What a fit holds: bytes at the start, and of the cache of whitened rows at most; copies of the rows; for each latent
# function matrices of inducing points, and numbers for each row and neighbour. Of twelve fits to 2000 to 100 000 rows
# with up to 2048 inducing points and 6 classes, none took more than the estimate, and large ones up to 6 times less.
BASE, COPIES, MATRICES, NUMBERS = 100e6, 3, 14, 10
# Inducing points of "auto" in the estimate: twice as many as any default fit of the benchmarks' 25 data sets takes.
USUAL_INDUCING = 512


def search_space() -> dict[str, Space]:
    """Hyperparameters that are worth tuning, with their ranges: for AutoGluon and for TabArena's ``ConfigGenerator``.

    Returns
    -------
    dict of str to autogluon.common.space.Space
        Names and ranges of parameters of ``GPClassifier``. They are valid for two and for more classes, and the
        defaults of the ranges are those of the model.
    """
    return {
        "n_inducing": Categorical("auto", 32, 64, 128, 256, 512),
        "n_neighbors": Categorical("auto", 0, 8, 16, 32, 64),
        "length_scale_prior": Real(0.25, 4.0, default=1.0, log=True),
        "learn_inducing": Categorical(True, False),
        "mean": Categorical(0.0, "base-rate"),
    }


class XGPCModel(AbstractModel):
    """``GPClassifier`` as a model of AutoGluon: ``TabularPredictor(...).fit(data, hyperparameters={XGPCModel: {}})``.

    The hyperparameters are the parameters of ``GPClassifier``, with the same defaults. AutoGluon gives the seed, the
    number of threads and the time limit. A fit that runs out of time ends with a complete model, and logs what it left
    out. ``refit_full`` fits all rows, with the mean of the folds' time limits.

    Warnings of xgpc are logged and appear with ``verbosity=3``.

    Raises
    ------
    ValueError
        If a hyperparameter is none of ``GPClassifier``, or has a value that is not allowed.
    autogluon.core.utils.exceptions.TimeLimitExceeded
        If no time is left when the fit starts.
    """

    ag_key = "XGPC"
    ag_name = "XGPC"
    # AutoGluon fits models of higher priority first: before CatBoost (70), which may leave no time for others.
    ag_priority = 75
    seed_name = "random_state"
    _supported_problem_types = [BINARY, MULTICLASS]  # noqa: RUF012 - as AutoGluon asks
    _default_auxiliary_params_extra = {"valid_raw_types": [R_BOOL, R_INT, R_FLOAT, R_CATEGORY]}  # noqa: RUF012

    def _fit(
        self,
        X: MatrixLike,
        y: MatrixLike,
        time_limit: float | None = None,
        sample_weight: MatrixLike = None,
        num_cpus: int = 1,
        **kwargs: object,
    ) -> None:
        start = time.monotonic()
        X = self.preprocess(X, y=y)
        params = {"n_jobs": num_cpus, **self._get_model_params()}
        if time_limit is not None:
            seconds_left = (time_limit - (time.monotonic() - start)) / OVERRUN
            if seconds_left <= 0.0:
                raise TimeLimitExceeded
            limit = params.get("max_time")
            # AutoGluon sets no limit when it fits again to all rows, and takes what is trained from here.
            max_time = seconds_left if limit is None else min(limit, seconds_left)
            params["max_time"] = self.params_trained["max_time"] = max_time
        with _logged_warnings():
            model = GPClassifier().set_params(**params)
            # A part of the rows may lack a class; AutoGluon expects a column for each.
            self.model = model.fit(X, y, sample_weight, classes=np.arange(self.num_classes))

    def _predict_proba(self, X: MatrixLike, **kwargs: object) -> MatrixLike:
        with _logged_warnings():
            return super()._predict_proba(X, **kwargs)

    def _get_default_searchspace(self) -> dict[str, Space]:
        return search_space()

    @classmethod
    def _estimate_memory_usage_static(
        cls,
        *,
        X: MatrixLike,
        hyperparameters: dict[str, object] | None = None,
        num_classes: int | None = None,
        **kwargs: object,
    ) -> int:
        n_columns = X.shape[1] + sum(min(X[name].nunique(), MAX_LEVELS) for name in X.select_dtypes("category"))
        params = hyperparameters or {}
        m, k = (
            min(given if is_integer(given := params.get(name)) else usual, len(X))
            for name, usual in (("n_inducing", USUAL_INDUCING), ("n_neighbors", DEFAULT_NEIGHBORS))
        )
        n_latent = num_classes if num_classes is not None and num_classes > 2 else 1
        numbers = COPIES * len(X) * n_columns + n_latent * (MATRICES * m**2 + NUMBERS * len(X) * k)
        return int(BASE + get_approximate_df_mem_usage(X).sum() + 8 * numbers + min(8 * len(X) * m, CACHE_BYTES))

    def _more_tags(self) -> dict[str, bool]:
        # The fit chooses by held-out rows of its own.
        return {"can_refit_full": True}


@contextmanager
def _logged_warnings() -> Iterator[None]:
    """Log warnings instead of showing them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        LOGGER.log(DETAIL, "\t%s", warning.message)
