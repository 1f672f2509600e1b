"""Fits to rows on a dask cluster (extra ``dask``): the steps of a fit in one process, with passes on the workers."""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, TypeAlias
from uuid import uuid4

import numpy as np
from numpy.typing import ArrayLike
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils.validation import check_is_fitted

from .classifier import GPClassifier
from .data.checks import checked_labels, checked_weights
from .data.partitions import in_partition
from .estimator import all_or_nothing
from .names import MatrixLike
from .status import warn_user
from .steps import rows_in_batches

try:
    import dask
    import distributed
    from dask import array, dataframe
    from dask.delayed import Delayed, delayed
except ImportError as error:
    raise ImportError("Fits on a cluster need dask: pip install 'xgpc[dask]'") from error

# Rows or labels.
Collection: TypeAlias = array.Array | dataframe.DataFrame | dataframe.Series
# A task that fails runs again this many times before its error ends the fit: storage may be out of reach for a moment.
# The death of a worker is no failure of the task; dask allows ``distributed.scheduler.allowed-failures`` deaths.
RETRIES = 2
# The state of a pass goes to the scheduler once; dask would warn of the 100 MB of 2048 inducing points.
LARGEST_STATE = "1 GiB"
# Dask waits for workers without end. A cluster that has none for SECONDS_WITHOUT_WORKERS is an error: whether it had
# some before the fit, and lost them, cannot be told.
# A worker starts in about ten seconds; after twice that, a warning says that the fit waits.
SECONDS_WITHOUT_WORKERS, SECONDS_TO_START, SECONDS_BETWEEN_LOOKS = 120.0, 20.0, 5.0
WHAT_TO_DO = (
    "the usual reason is too little memory: divide the rows into more partitions (rechunk, repartition), give workers "
    "more memory or fewer threads, and look at their logs. The estimator is unchanged."
)
# Dask's settings are those of the process: one thread at a time changes them and sets them back.
SETTINGS = Lock()
ENDED = ("closing", "closed")


def _apply(packed: tuple[Callable[..., object], object], each: object, *batch: MatrixLike) -> object:
    function, common = packed
    return function(batch, common, each)


class DaskPartitions:
    """Partitions of dask collections; see ``xgpc.data.partitions.Partitions``.

    Each task consists of the partition's own graph and of values, so that it can run on any worker, and run again.

    Parameters
    ----------
    client : distributed.Client
    batches : X, y and maybe weights of each partition
    """

    def __init__(self, client: distributed.Client, batches: Sequence[tuple[Delayed, ...]]):
        self._client, self._batches = client, batches
        self._has_warned = False

    def __len__(self) -> int:
        return len(self._batches)

    def run(self, function: Callable[..., Any], common: object, each: Sequence[object]) -> Generator[Any, None, None]:
        # Dask would look for collections in the state, but not in bytes.
        name = f"xgpc-{function.__name__}-{uuid4().hex}"
        packed = delayed(pickle.loads)(pickle.dumps((function, common)), dask_key_name=f"{name}-state")
        tasks = [
            delayed(_apply)(packed, value, *batch, dask_key_name=f"{name}-{number}")
            for number, (value, batch) in enumerate(zip(each, self._batches, strict=True))
        ]
        with SETTINGS, dask.config.set({"distributed.admin.large-graph-warning-threshold": LARGEST_STATE}):
            futures: list[distributed.Future] = self._client.compute(tasks, retries=RETRIES)
        try:
            for number in range(len(futures)):
                with in_partition(number):
                    result = self._result(futures[0])
                futures.pop(0).release()
                yield result
        finally:
            if futures and self._client.status not in ENDED:
                self._client.cancel(futures)

    def _result(self, future: distributed.Future) -> Any:
        """Wait for the result of a task; RuntimeError if there are no workers for too long."""
        gone_since = math.inf
        while not future.done():
            # It waits by the current client.
            with suppress(TimeoutError), self._client.as_current():
                distributed.wait(future, timeout=SECONDS_BETWEEN_LOOKS)
                break
            now = time.monotonic()
            gone_since = math.inf if self._client.nthreads() else min(gone_since, now)
            if now - gone_since > SECONDS_TO_START and not self._has_warned:
                self._has_warned = True
                limit = f"{SECONDS_WITHOUT_WORKERS:g} seconds at most"
                warn_user(f"The cluster has no workers: the fit waits for some, {limit}.")
            if now - gone_since > SECONDS_WITHOUT_WORKERS:
                raise RuntimeError(
                    f"The cluster has had no workers for {SECONDS_WITHOUT_WORKERS:g} seconds. If none has started yet, "
                    f"start some before the fit: client.wait_for_workers(1) waits for them. If all died, {WHAT_TO_DO}"
                )
        try:
            return future.result()
        except distributed.KilledWorker as error:
            error.add_note(f"Several workers died, one after the other, in this task; {WHAT_TO_DO}")
            raise


def _batches(X: Collection, y: Collection, sample_weight: Collection | None) -> list[tuple[Delayed, ...]]:
    """Return X, y and, where there are some, weights of each partition.

    ValueError for anything but dask collections, and for partitions of different rows, as far as sizes are known.
    """
    collections = {"X": X, "y": y} if sample_weight is None else {"X": X, "y": y, "sample_weight": sample_weight}
    for name, values in collections.items():
        if not isinstance(values, Collection):
            raise ValueError(
                f"{name} must be an array, data frame or series of dask; got a {type(values).__name__}. "
                "dask.array.from_array makes one of an array in memory, and xgpc.GPClassifier takes rows in memory."
            )
    if X.ndim != 2:
        raise ValueError(f"X must have two dimensions, rows and features; it has {X.ndim}.")
    if y.ndim == 2 and y.shape[1] > 1:
        raise ValueError(f"y must have one label for each row; it has {y.shape[1]} columns.")
    # Data frames are divided by rows alone.
    collections["X"] = X = X.rechunk({1: -1}) if isinstance(X, array.Array) else X
    parts = [np.ravel(_aligned(name, values, X).to_delayed()).tolist() for name, values in collections.items()]
    return list(zip(*parts, strict=True))


def _aligned(name: str, values: Collection, X: Collection) -> Collection:
    """Return values in X's partitions, as far as the sizes of both are known."""
    are_arrays = [isinstance(part, array.Array) for part in (values, X)]
    # Unknown numbers of rows are NaN.
    if all(are_arrays) and np.isfinite(values.shape[0] + X.shape[0]):
        if len(values) != len(X):
            raise ValueError(f"X has {len(X)} rows, {name} has {len(values)}: give one for each row.")
        values = values.rechunk({0: X.chunks[0]})
    elif not any(are_arrays) and values.known_divisions and X.known_divisions and values.divisions != X.divisions:
        places = f"divided at different rows, {X.divisions} and {values.divisions}"
        raise ValueError(f"X and {name} are {places}: take both from one data frame, or repartition one.")
    if values.npartitions != X.npartitions:
        parts = f"X has {X.npartitions} partitions of rows, {name} has {values.npartitions}"
        raise ValueError(f"{parts}: give both the same ones, by rechunk or repartition.")
    return values


def _predicted(rows: MatrixLike, model: GPClassifier, method: str, **options: bool) -> np.ndarray:
    """Return the predictions of a method of a fitted model."""
    return getattr(model, method)(rows, **options)


def _correct(model: GPClassifier, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike = 1.0) -> np.ndarray:
    """Return the weight of a partition's rows, and of those whose label is predicted."""
    weight, is_right = checked_weights(sample_weight, len(X)), model.predict(X) == checked_labels(y, len(X))
    return np.array([np.sum(weight), np.sum(weight[is_right])])


def _on_worker(model: GPClassifier) -> Delayed:
    """Return the model as the result of a task and no part of each task; its threads are the worker's."""
    return delayed(model.set_params(n_jobs=1), pure=False, traverse=False)


class DaskGPClassifier(GPClassifier):
    """A ``GPClassifier`` for rows on a dask cluster.

    The fit equals that of ``GPClassifier.fit_batches`` on the same rows in the same order, up to rounding in the sums
    over rows: the workers check and count all rows, this process learns the kernel and the inducing points from a
    sample, and a few passes over the rows on the workers compute the posterior. If the sample has all rows, at most
    ``max_rows_in_model`` (with ``n_neighbors=0``, 131 072), the fit equals that of ``GPClassifier.fit``. This process
    also searches neighbours, among the sample, and computes the posterior with them. The result has the same bits for
    any number of workers, also if some die.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel, default=None
        As for ``GPClassifier``.
    client : distributed.Client, default=None
        Client of the cluster; None means the current one. Pickles do not contain it.
    **parameters
        All other parameters of ``GPClassifier``, by name. ``n_jobs`` is the number of threads of this process; each
        thread of a worker works on one partition at a time.

    Attributes
    ----------
    All of ``GPClassifier``.

    Notes
    -----
    Each pass computes X, y and weights anew, each by its own graph; ``dask.persist(X, y)`` keeps them in the workers'
    memory, if they fit there. A task needs memory for its partition, for a copy of it, and for the sums, C m^2 numbers.
    Partitions of 10 to 200 MB are fine.

    Examples
    --------
    >>> from dask import array
    >>> from distributed import Client
    >>> from xgpc.dask import DaskGPClassifier
    >>> client = Client()  # doctest: +SKIP
    >>> X = array.random.default_rng(0).normal(size=(1_000_000, 10), chunks=(100_000, 10))
    >>> model = DaskGPClassifier(n_inducing=100, random_state=0)
    >>> model.fit(X, X[:, 0] > 0.0).predict_proba(X)  # doctest: +SKIP
    """

    def __init__(self, kernel: Kernel | None = None, *, client: distributed.Client = None, **parameters: Any) -> None:
        super().__init__(kernel, **parameters)
        self.client = client

    # A client cannot be copied.
    _shared = (*GPClassifier._shared, "client")

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted([*GPClassifier._get_param_names(), "client"])

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "client": None}

    @all_or_nothing
    def fit(self, X: Collection, y: Collection, sample_weight: Collection | None = None) -> None:  # type: ignore[override]
        """Fit kernel, inducing points and posterior; the result is the classifier itself.

        Parameters
        ----------
        X : dask array (n, d), or data frame
            Chunks or partitions may have any numbers of rows, known or not, also no rows, or rows of one class.
        y : dask array (n,), or series, of labels
            In the same partitions as X; arrays whose chunks are known are divided like X.
        sample_weight : dask array (n,), or series, default=None
            Divided like y.

        Raises
        ------
        ValueError
            For the reasons of ``fit_batches``; notes of the error name the partition, counted from 0. Also if there is
            no client, or a closed one.
        distributed.KilledWorker
            If more workers die with one task than dask's setting ``distributed.scheduler.allowed-failures`` allows.
        RuntimeError
            If there are no workers for two minutes, because all have died or none has started.

        Warns
        -----
        ConvergenceWarning
            As ``GPClassifier.fit`` does.
        UserWarning
            If there have been no workers for twenty seconds, and the fit waits for some.
        """
        try:
            client = distributed.get_client() if self.client is None else self.client
        except ValueError as error:
            raise ValueError(
                "There is no dask cluster to fit on: make a distributed.Client before, such as Client() for the cores "
                "of this machine, or give one as client."
            ) from error
        if not isinstance(client, distributed.Client):
            raise ValueError(
                f"client must be a distributed.Client, or None for the current one; got {client!r}. Client(address) of "
                "distributed makes one of an address."
            )
        if client.status in ENDED:
            raise ValueError(
                f"The client is {client.status}: give one that is connected, such as distributed.Client(), or None for "
                "the current one."
            )
        partitions = DaskPartitions(client, _batches(X, y, sample_weight))
        self._fit(lambda config, run: rows_in_batches(self, config, run, partitions, None))

    def to_local(self) -> GPClassifier:
        """The fitted ``GPClassifier``, which needs no cluster and no dask."""
        check_is_fitted(self)
        model = GPClassifier()
        model.__dict__ = {name: value for name, value in vars(self).items() if name != "client"}
        return model

    def predict_log_proba(self, X: MatrixLike, corrected: bool = False) -> Collection:
        """Log probabilities (n, C); a lazy dask array of a dask array or data frame, else at once."""
        return self._lazily("predict_log_proba", X, corrected=corrected)

    def predict_proba(self, X: MatrixLike, corrected: bool = False, return_grad: bool = False) -> Collection:
        """Probabilities (n, C) in the order of ``classes_``; lazy as in ``predict_log_proba``.

        ``return_grad`` is for rows in memory alone.
        """
        if return_grad:
            return self.to_local().predict_proba(X, corrected, return_grad=True)
        return self._lazily("predict_proba", X, corrected=corrected)

    def predict(self, X: MatrixLike) -> Collection:
        """The most probable class of each row (n,); lazy as in ``predict_log_proba``."""
        return self._lazily("predict", X)

    def decision_function(self, X: MatrixLike) -> Collection:
        """Log odds (n,), or log probabilities (n, C) of several classes; lazy as in ``predict_log_proba``."""
        return self._lazily("decision_function", X)

    def score(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Share of the rows whose label is predicted, by their weights, computed at once.

        All are collections of dask, divided as for ``fit``, or all are in memory.
        """
        model = self.to_local()
        if not isinstance(X, Collection):
            return float(model.score(X, y, sample_weight))
        on_worker = _on_worker(model)
        tasks = [delayed(_correct)(on_worker, *batch) for batch in _batches(X, y, sample_weight)]
        total, right = np.sum(dask.compute(*tasks, scheduler=self.client), axis=0)
        if not total:
            raise ValueError("X has no row of positive weight, and so no score.")
        return float(right / total)

    def _lazily(self, method: str, X: MatrixLike, **options: bool) -> Collection:
        """Predictions by a method of ``GPClassifier``: lazy for collections of dask, else at once."""
        model = self.to_local()
        if not isinstance(X, array.Array | dataframe.DataFrame):
            return getattr(model, method)(X, **options)
        # The names and the number of columns are known before any row is.
        is_array = isinstance(X, array.Array)
        model._rows(np.empty((0, *X.shape[1:])) if is_array else X._meta)
        n_classes, is_label = len(self.classes_), method == "predict"
        has_columns = not is_label and (method != "decision_function" or n_classes > 2)
        empty = np.empty((0, n_classes) if has_columns else 0, self.classes_.dtype if is_label else np.float64)
        arguments = {"model": _on_worker(model), "method": method, "meta": empty, **options}
        if not is_array:
            return X.map_partitions(_predicted, **arguments)
        shape = {"chunks": (X.chunks[0], (n_classes,))} if has_columns else {"drop_axis": 1}
        return X.rechunk({1: -1}).map_blocks(_predicted, dtype=empty.dtype, **shape, **arguments)
