"""Fits of rows on a dask cluster (extra ``dask``): the same steps as in one process, the passes on the workers."""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self
from uuid import uuid4

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .classifier import GPClassifier
from .data.partitions import OverPartitions, in_partition
from .data.training import rows_to_predict
from .status import warn_user

try:
    import dask
    import distributed
    from dask import array, dataframe
    from dask.delayed import Delayed, delayed
except ImportError as error:
    raise ImportError("Fits on a cluster need dask: pip install 'xgpc[dask]'") from error

# A task that fails is run so many times more before its error is the fit's: storage may be out of reach for a moment. A
# worker's death is no failure of the task; of these dask allows ``distributed.scheduler.allowed-failures``.
RETRIES = 2
# The state of a pass holds some (m, m) matrices and goes to the scheduler once: 2048 inducing points make 100 MB, of
# which dask would warn.
LARGEST_STATE = "1 GiB"
# Dask waits for workers as long as it takes. Where there were some and none is left it is an error after so many
# seconds: a nanny whose worker dies as it starts gives up. To start a worker takes some ten: after twice that a warning
# says what is waited for. Looked for at intervals.
SECONDS_WITHOUT_WORKERS, SECONDS_TO_START, SECONDS_BETWEEN_LOOKS = 120.0, 20.0, 5.0
WHAT_TO_DO = (
    "Mostly it is too little memory: divide the rows into more partitions (rechunk, repartition), give workers more "
    "memory or fewer threads, and look at their logs. The estimator is what it was before."
)


def _apply(packed: tuple[Callable[..., Any], Any], each: Any, *batch: Any) -> Any:
    function, common = packed
    return function(batch, common, each)


class DaskPartitions:
    """Partitions of dask collections; see ``xgpc.data.partitions.Partitions``.

    Every task is made of the partition's own graph and of values: it can run on any worker, and again on another.

    Parameters
    ----------
    client : distributed.Client
    batches : a tuple of Delayed X, y and, where there are some, weights for each partition
    """

    def __init__(self, client: distributed.Client, batches: Sequence[tuple[Delayed, ...]]):
        self._client, self._batches = client, batches
        # Those of a cluster that has none yet may take long to come.
        self._had_workers = bool(client.nthreads())
        self._has_warned = False

    def __len__(self) -> int:
        return len(self._batches)

    def run(self, function: Callable[[Any, Any, Any], Any], common: Any, each: Sequence[Any]) -> Iterator[Any]:
        # As bytes: dask would look for its own collections in it. A task makes it of these again, on any worker.
        name = f"xgpc-{function.__name__}-{uuid4().hex}"
        packed = delayed(pickle.loads)(pickle.dumps((function, common)), dask_key_name=f"{name}-state")
        tasks = [
            delayed(_apply)(packed, one, *batch, dask_key_name=f"{name}-{number}")
            for number, (one, batch) in enumerate(zip(each, self._batches, strict=True))
        ]
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": LARGEST_STATE}):
            futures = self._client.compute(tasks, retries=RETRIES)
        futures.reverse()
        number = 0
        try:
            while futures:
                with in_partition(number), _explained():
                    result = self._result(futures[-1])
                futures.pop().release()
                yield result
                number += 1
        finally:
            if futures:
                self._client.cancel(futures)

    def _result(self, future: distributed.Future) -> Any:
        """Of a task, once it has one; RuntimeError if all workers have gone and none comes in their place."""
        gone_since = math.inf
        while True:
            try:
                return future.result(timeout=SECONDS_BETWEEN_LOOKS)
            except TimeoutError:
                # The task's own.
                if future.done():
                    raise
            now = time.monotonic()
            gone_since = math.inf if self._client.nthreads() else min(gone_since, now)
            if now - gone_since > SECONDS_TO_START and not self._has_warned:
                self._has_warned = True
                limit = f", {SECONDS_WITHOUT_WORKERS:g} seconds at most" if self._had_workers else ""
                warn_user(f"The cluster has no workers: the fit waits for some{limit}.")
            if self._had_workers and now - gone_since > SECONDS_WITHOUT_WORKERS:
                raise RuntimeError(f"The workers of the cluster have died, and no others have come. {WHAT_TO_DO}")


@contextmanager
def _explained() -> Iterator[None]:
    """What to do about workers that die, with dask's error."""
    try:
        yield
    except distributed.KilledWorker as error:
        error.add_note(f"Worker after worker died while it had this partition. {WHAT_TO_DO}")
        raise


def _batches(X: Any, y: Any, sample_weight: Any) -> list[tuple[Delayed, ...]]:
    """X, y and, where there are some, weights of each partition.

    Raises
    ------
    ValueError
        For what is no collection of dask, and for partitions that are not of the same rows, as far as can be known.
    """
    given = {"X": X, "y": y} if sample_weight is None else {"X": X, "y": y, "sample_weight": sample_weight}
    for name, values in given.items():
        if not isinstance(values, array.Array | dataframe.DataFrame | dataframe.Series):
            kind = type(values).__name__
            raise ValueError(
                f"{name} must be an array, data frame or series of dask; got a {kind}. dask.array.from_array makes an "
                "array of one in memory, or fit xgpc.GPClassifier."
            )
    if X.ndim != 2:
        raise ValueError(f"X must have two dimensions, rows and features; it has {X.ndim}.")
    aligned = [_in_row_chunks(_aligned(name, values, X)) for name, values in given.items()]
    for name, values in zip(given, aligned, strict=True):
        if values.npartitions != aligned[0].npartitions:
            raise ValueError(
                f"X has {aligned[0].npartitions} partitions of rows, {name} has {values.npartitions}: give both the "
                "same ones, by rechunk or repartition."
            )
    return list(zip(*(np.ravel(values.to_delayed()).tolist() for values in aligned), strict=True))


def _in_row_chunks(values: Any) -> Any:
    """The same with all columns in each chunk."""
    if isinstance(values, array.Array) and values.ndim == 2 and values.numblocks[1] > 1:
        return values.rechunk({1: -1})
    return values


def _aligned(name: str, values: Any, X: Any) -> Any:
    """Values in X's partitions, as far as the sizes of both are known."""
    if isinstance(values, array.Array) and isinstance(X, array.Array):
        ours, theirs = values.chunks[0], X.chunks[0]
        if ours == theirs or np.isnan(sum(ours)) or np.isnan(sum(theirs)):
            return values
        if sum(ours) != sum(theirs):
            raise ValueError(f"X has {sum(theirs)} rows, {name} has {sum(ours)}: give one for each row.")
        return values.rechunk({0: theirs})
    if not isinstance(values, array.Array) and not isinstance(X, array.Array):
        both_known = values.known_divisions and X.known_divisions
        if both_known and values.divisions != X.divisions:
            raise ValueError(
                f"X and {name} are divided at other rows, {X.divisions} and {values.divisions}: take both from one "
                "data frame, or repartition one as the other."
            )
    return values


def _predicted(rows: Any, model: GPClassifier, method: str, empty: np.ndarray, **options: Any) -> np.ndarray:
    """What a method of a fitted model predicts of some rows, or ``empty`` of none."""
    return getattr(model, method)(rows, **options) if len(rows) else empty


class DaskGPClassifier(GPClassifier):
    """A ``GPClassifier`` of rows on a dask cluster.

    The fit is that of ``GPClassifier.fit_batches`` on the same rows in the same order, but for rounding in the sums
    over rows: all rows are checked and counted where they are, 131 072 of them are drawn and brought to this process,
    which learns kernel and inducing points from them, and the posterior of all rows is made by a few passes over them
    on the workers. No more rows than that make the fit of ``GPClassifier.fit``. The result has the same bits for any
    number of workers, and if workers die meanwhile: what they had is computed again.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel, default=None
        As for ``GPClassifier``.
    client : distributed.Client, default=None
        Client of the cluster; None: the current one. It is no part of copies and pickles.
    **parameters
        All others of ``GPClassifier``, by name. ``n_jobs`` are threads of this process; a worker's thread works on a
        partition at a time.

    Attributes
    ----------
    All of ``GPClassifier``.

    Notes
    -----
    X, y and weights are computed anew in each pass, each by its own graph; ``dask.persist(X, y)`` keeps them in the
    workers' memory, if they fit there. A task needs memory for its partition, a copy of it, and the sums, C m^2
    numbers, which come to this process, one partition's after the other: partitions of 10 to 200 MB are fine.

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

    def __init__(self, kernel: Any = None, *, client: Any = None, **parameters: Any) -> None:
        super().__init__(kernel, **parameters)
        self.client = client

    # A client cannot be copied.
    _shared = (*GPClassifier._shared, "client")

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted([*GPClassifier._get_param_names(), "client"])

    def __getstate__(self) -> Any:
        return {**super().__getstate__(), "client": None}

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # type: ignore[override]
        """Fit kernel, inducing points and posterior.

        Parameters
        ----------
        X : dask array (n, d), or data frame
            In chunks or partitions of any numbers of rows, known or not; some may have no rows, or rows of one class.
        y : dask array (n,), or series, of labels
            In the same partitions; arrays whose chunks are known are cut as X is.
        sample_weight : dask array (n,), or series, default=None
            As y.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            As ``fit_batches``; notes of the error name the partition, counted from 0. Also where there is no client, or
            a closed one.
        distributed.KilledWorker
            If worker after worker that takes up a task dies: more than dask's setting
            ``distributed.scheduler.allowed-failures``.
        RuntimeError
            If all workers have died, and for two minutes no others have come.

        Warns
        -----
        ConvergenceWarning
            As ``GPClassifier.fit`` does.
        UserWarning
            If there have been no workers for twenty seconds, and the fit waits for some.
        """
        partitions = DaskPartitions(self._connected(), _batches(X, y, sample_weight))
        return self._fitted(partitions, None, validate=GPClassifier._validate_batches, threads=OverPartitions)

    def _connected(self) -> distributed.Client:
        if self.client is not None:
            if self.client.status in ("closing", "closed"):
                raise ValueError(
                    f"The client is {self.client.status}: give one that is connected, such as distributed.Client(), or "
                    "None for the current one."
                )
            return self.client
        try:
            return distributed.get_client()
        except ValueError as error:
            raise ValueError(
                "There is no dask cluster to fit on: make a distributed.Client before, such as Client() for the cores "
                "of this machine, or give one as client."
            ) from error

    def to_local(self) -> GPClassifier:
        """The fitted ``GPClassifier``, which needs no cluster and no dask."""
        check_is_fitted(self)
        model = GPClassifier()
        model.__dict__ = {name: value for name, value in vars(self).items() if name != "client"}
        return model

    def save(self, path: Any, rows_dtype: Any = None) -> None:
        """Write the fitted model to a file that ``GPClassifier.load`` reads, too; see ``GPClassifier.save``."""
        self.to_local().save(path, rows_dtype)

    def predict_log_proba(self, X: Any, corrected: bool = False) -> Any:
        """Log probabilities (n, C); a lazy dask array of a dask array or data frame, else at once."""
        return self._of_rows("predict_log_proba", X, self._n_classes, corrected=corrected)

    def predict_proba(self, X: Any, corrected: bool = False) -> Any:
        """Probabilities (n, C) in the order of ``classes_``; lazy as in ``predict_log_proba``."""
        return self._of_rows("predict_proba", X, self._n_classes, corrected=corrected)

    def predict(self, X: Any) -> Any:
        """The most probable class of each row (n,); lazy as in ``predict_log_proba``."""
        return self._of_rows("predict", X, None)

    def decision_function(self, X: Any) -> Any:
        """Log odds (n,), or log probabilities (n, C) of several classes; lazy as in ``predict_log_proba``."""
        return self._of_rows("decision_function", X, None if self._n_classes == 2 else self._n_classes)

    @property
    def _n_classes(self) -> int:
        check_is_fitted(self)
        return len(self.classes_)

    def _of_rows(self, method: str, X: Any, n_columns: int | None, **options: Any) -> Any:
        model = self.to_local()
        if not isinstance(X, array.Array | dataframe.DataFrame):
            return getattr(model, method)(X, **options)
        dtype = self.classes_.dtype if method == "predict" else np.dtype(np.float64)
        empty = np.empty(0 if n_columns is None else (0, n_columns), dtype)
        is_array = isinstance(X, array.Array)
        # Names and numbers of columns are known now.
        sample = np.empty((0, *X.shape[1:])) if is_array else X._meta
        rows_to_predict(sample, self._columns)
        # The model is a task's result, not a part of each task; its threads are the worker's.
        on_worker = delayed(model.set_params(n_jobs=1), pure=False, traverse=False)
        given = {"model": on_worker, "method": method, "empty": empty, "meta": empty, **options}
        if not is_array:
            return X.map_partitions(_predicted, **given)
        X = _in_row_chunks(X)
        if n_columns is None:
            return X.map_blocks(_predicted, drop_axis=1, dtype=dtype, **given)
        return X.map_blocks(_predicted, chunks=(X.chunks[0], (n_columns,)), dtype=dtype, **given)
