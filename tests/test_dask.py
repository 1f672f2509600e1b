"""Rows on a dask cluster: the fit that they make, however they are divided and whoever works on them, and faults."""

import itertools
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import TimeSeriesSplit
from support.batches import OPTIONS, N, assert_same_fit, problem
from support.fits import clone_of, refuses, without_warnings

from xgpc import GPClassifier

# Data frames of dask are made of its own.
pytest.importorskip("pandas")
import dask
import pandas as pd
from dask import array, dataframe
from dask.delayed import delayed
from distributed import Client, KilledWorker, LocalCluster, get_worker

from xgpc.dask import DaskGPClassifier, DaskPartitions

# What distributed measures of garbage collection can fail in its own callback, which is nobody's error.
pytestmark = pytest.mark.filterwarnings("ignore:.*GCDiagnosis:pytest.PytestUnraisableExceptionWarning")

X, Y, WEIGHT = problem()
# Uneven, one of a row, one without any, one of more than two blocks.
CUTS = (0, 1700, 1701, 1701, 5000, N)
# Readings at which a worker dies; a fit that takes longer than this hangs.
ALWAYS, SECONDS = None, 120


def fitted(*rows, estimator=DaskGPClassifier, **options):
    return without_warnings(estimator(**OPTIONS | options).fit, *rows)


def parts(values, cuts=CUTS):
    return [values[start:stop] for start, stop in itertools.pairwise(cuts)]


def of_unknown_sizes(values, cuts=CUTS, replaced=()):
    """A dask array of partitions whose sizes are not known before they are computed; some are replaced."""
    pieces = dict(enumerate(parts(values, cuts))) | dict(replaced)
    shape = (np.nan, *values.shape[1:])
    return array.concatenate([array.from_delayed(delayed(piece), shape, values.dtype) for piece in pieces.values()])


def of_known_sizes(values, cuts=None):
    chunks = tuple(np.diff(cuts or (0, len(values))).tolist())
    return array.from_array(values, chunks=(chunks, *((1,) * n for n in values.shape[1:])))


def of_frames(table, cuts=CUTS):
    return dataframe.from_delayed([delayed(part) for part in parts(table, cuts)], meta=table[:0])


def local_cluster(n_workers, **given):
    return LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=":0", **given)


@pytest.fixture(scope="module")
def connected():
    with local_cluster(2, processes=False) as cluster, Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture
def client(connected):
    with connected.as_current():
        yield connected


LEARNED = {"optimizer": "profile", "max_iter": 5, "kernel": None}
FEW = {"weights": {}, "neighbours": {"n_neighbors": 3}, "learned": LEARNED}
MANY = {
    "learned": LEARNED, "weights": {"class_weight": "balanced"}, "several classes": {}, "float32": {},
    "corrected": {"bound": "polya-gamma"}, "label noise": {"bound": "additive-noise"}, "far values": {},
    "neighbours": {"n_neighbors": 3, "max_rows_in_model": 1000, "held_out_split": TimeSeriesSplit()},
}  # fmt: skip


@pytest.mark.parametrize("kind", FEW)
def test_few_rows_make_the_fit_of_arrays(client, kind):
    rows = problem(2500)[: 3 if kind == "weights" else 2]
    options = {"n_neighbors": 0} | FEW[kind]
    model = fitted(*(of_known_sizes(part, (0, 900, 900, 2500)) for part in rows), **options)
    assert_same_fit(model, fitted(*rows, estimator=GPClassifier, **options), rows[0])


@pytest.mark.parametrize("kind", MANY)
def test_many_rows_make_the_fit_of_batches(client, small_subset, kind):
    X, y, weight = problem(n_classes=3 if kind == "several classes" else 2)
    if kind == "float32":
        X = X.astype(np.float32)
    elif kind == "far values":
        X[::50, 1] = -9999.0
    rows = (X, y, weight)[: 3 if kind == "weights" else 2]
    expected = without_warnings(GPClassifier(**OPTIONS | MANY[kind]).fit_batches, [rows])
    model = fitted(*map(of_unknown_sizes, rows), **MANY[kind])
    # The same rows are drawn: what is learned from them is the same.
    assert model.kernel_ == expected.kernel_
    np.testing.assert_array_equal(model.inducing_points_, expected.inducing_points_)
    assert bool(model.encoding_) == (kind == "far values")
    assert model.n_iter_ == expected.n_iter_
    assert model.elbo_ == pytest.approx(expected.elbo_, rel=1e-12)
    is_corrected = kind == "corrected"
    local = expected.predict_log_proba(X, is_corrected)
    np.testing.assert_allclose(model.predict_log_proba(X, is_corrected), local, rtol=0.0, atol=1e-10)


def test_frames(client, small_subset):
    table = pd.DataFrame(X, columns=["east", "north"]).assign(label=np.array(["no", "yes"])[Y], weight=WEIGHT)
    local, rows = table[["east", "north"]], of_frames(table)
    expected = without_warnings(GPClassifier(**OPTIONS).fit_batches, [(local, table["label"], table["weight"])])
    model = fitted(rows[["east", "north"]], rows["label"], rows["weight"])
    assert model.feature_names_in_.tolist() == ["east", "north"]
    assert model.classes_.tolist() == ["no", "yes"]
    found = model.predict_proba(rows[["east", "north"]]).compute()
    np.testing.assert_allclose(found, expected.predict_proba(local), rtol=0.0, atol=1e-10)
    assert model.predict(rows[["east", "north"]]).compute().tolist() == expected.predict(local).tolist()
    refuses("feature names should match", model.predict, rows[["north", "east"]])


@pytest.mark.parametrize("n_classes", [2, 3])
def test_predictions_are_lazy_and_those_of_the_local_model(client, n_classes):
    X, y, _ = problem(900, n_classes)
    model = fitted(of_known_sizes(X), of_known_sizes(y))
    local = model.to_local()
    assert type(local) is GPClassifier
    cuts = (0, 300, 300, 301, 900)
    rows = of_known_sizes(X, cuts)
    for method in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
        expected = getattr(local, method)(X)
        np.testing.assert_array_equal(getattr(model, method)(X), expected)
        for given in (rows, of_unknown_sizes(X, cuts)):
            lazy = getattr(model, method)(given)
            assert isinstance(lazy, array.Array)
            assert (lazy.dtype, lazy.ndim) == (expected.dtype, expected.ndim)
            np.testing.assert_allclose(lazy.compute(), expected, rtol=0.0, atol=1e-12)
        assert getattr(model, method)(rows).shape == expected.shape
    refuses("3 features", model.predict, array.zeros((4, 3)))
    # The message tells of methods that take such rows, and of what others take.
    refuses(r"compute\(\) makes\. Only .*predict_proba.* of xgpc\.dask\..* take it", model.predict_latent, rows)


LAZY = {
    "known": of_known_sizes,
    "unknown": of_unknown_sizes,
    "frames": lambda part, cuts: of_frames((pd.DataFrame if part.ndim == 2 else pd.Series)(part), cuts),
}


@pytest.mark.parametrize("kind", LAZY)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_score_is_that_of_the_local_model(client, kind, weighted):
    X, y, weight = problem(900, 3)
    labels = np.array(["a", "b", "c"])[y]
    model = fitted(of_known_sizes(X), of_known_sizes(labels))
    rows = (X, labels, weight)[: 3 if weighted else 2]
    expected = model.to_local().score(*rows)
    assert model.score(*rows) == expected
    lazy = [LAZY[kind](part, (0, 300, 300, 301, 900)) for part in rows]
    assert model.score(*lazy) == pytest.approx(expected, rel=1e-12)
    if weighted:
        lazy[2] = 0.0 * lazy[2]
        refuses("no row of positive weight", model.score, *lazy)
    refuses("y must be an array, .* of dask; got a ndarray.*takes rows in memory", model.score, lazy[0], labels)


def bad_rows(folder=None):
    """X and y by what is wrong, what the error says of them, and the number of the partition that it names."""
    lazy_X, lazy_y = of_unknown_sizes(X), of_unknown_sizes(Y)
    known_X, known_y = of_known_sizes(X, CUTS), of_known_sizes(Y, CUTS)
    gap, missing, both = X.copy(), Y.astype(float), np.column_stack([X, Y])
    gap[1702, 1] = missing[5100] = np.nan
    narrow, words = of_unknown_sizes(X, replaced={4: X[5000:, :1]}), Y[1701:5000].astype(str)

    def fewer(rows):
        number = len(os.listdir(folder))
        tempfile.mkstemp(dir=folder)
        # For X and for y in each pass.
        return rows[: len(rows) - number // 2]

    shrinking = of_unknown_sizes(both, replaced={3: delayed(fewer)(both[1701:5000])})
    too_few = of_unknown_sizes(Y, (0, 1700, 1701, 1701, 4990, N))
    return {
        "a feature that is no number": (of_unknown_sizes(gap), lazy_y, "1 in feature 1", 3),
        "a label that is none": (lazy_X, of_unknown_sizes(missing), "missing label", 4),
        "columns that others have not": (narrow, lazy_y, "has 1 features, .*; the first batch has 2 features", 4),
        "labels of another kind": (lazy_X, of_unknown_sizes(Y, replaced={3: words}), "labels that are text", 3),
        "labels that are too few": (lazy_X, too_few, "inconsistent numbers of samples", 3),
        "other rows each time": (shrinking[:, :2], shrinking[:, 2], "the same rows each time", 3),
        "arrays in memory": (X, Y, "must be an array, data frame or series of dask; got a ndarray", None),
        "labels in memory": (known_X, Y, "y must be an array, data frame or series of dask", None),
        "other partitions": (known_X, of_unknown_sizes(Y, (0, 10, N)), "5 partitions of rows, y has 2", None),
        "other numbers of rows": (known_X, known_y[:-1], "6000 rows, y has 5999", None),
        "one class": (known_X, 0 * known_y, "two classes", None),
        "no rows": (known_X[:0], known_y[:0], "no rows", None),
        "counts": (known_X, known_X, "y must have one label for each row; it has 2 columns", None),
        "one dimension": (known_y, known_y, "two dimensions", None),
    }


@pytest.mark.parametrize("kind", bad_rows())
def test_bad_rows_are_errors_that_name_the_partition(client, small_subset, kind, tmp_path):
    X, y, message, number = bad_rows(tmp_path)[kind]
    notes = getattr(refuses(message, DaskGPClassifier(**OPTIONS).fit, X, y), "__notes__", [])
    assert notes == ([] if number is None else [f"(partition {number} of the rows, counted from 0)"])


def test_parameters_copies_and_files(client, tmp_path):
    model = DaskGPClassifier(**OPTIONS, client=client)
    assert model.get_params().keys() == GPClassifier(**OPTIONS).get_params().keys() | {"client"}
    refuses("n_inducting", DaskGPClassifier, n_inducting=3, error=TypeError)
    copy = clone(model).set_params(tol=1e-3)
    assert copy.client is client
    assert (copy.kernel, copy.tol, model.tol) == (OPTIONS["kernel"], 1e-3, 1e-4)
    assert copy.kernel is not model.kernel
    X, y, _ = problem(400)
    model.fit(of_known_sizes(X, (0, 150, 400)), of_known_sizes(y, (0, 150, 400)))
    expected = model.predict_proba(X)
    again = clone_of(model)
    assert (again.client, model.client) == (None, client)
    model.save(tmp_path / "model.npz")
    for other in (again, *(kind.load(tmp_path / "model.npz") for kind in (GPClassifier, DaskGPClassifier))):
        np.testing.assert_array_equal(other.predict_proba(X), expected)
    assert not hasattr(model.to_local(), "client")
    model.set_params(warm_start=True, max_iter=1)
    assert without_warnings(model.fit, of_known_sizes(X), of_known_sizes(y)).n_iter_ == 1


async def all_are_up(cluster):
    """A worker that dies while its nanny still waits for it to start is not started again."""
    for nanny in cluster.workers.values():
        await nanny.process.running.wait()


def mortal(folder, X):
    """A function that makes X in partitions which end the process of whoever reads number 3, at given readings."""

    def read(values, name, deaths):
        number = sum(one.startswith(name) for one in os.listdir(folder))
        with open(os.path.join(folder, f"{name}-{number}"), "x"):
            pass
        if deaths is ALWAYS or number in deaths:
            os._exit(1)
        return values

    def rows(name, deaths):
        pieces = [delayed(read)(part, f"{name}{i}-", deaths if i == 3 else ()) for i, part in enumerate(parts(X))]
        return of_unknown_sizes(X, replaced=enumerate(pieces))

    return rows


@pytest.mark.nightly
def test_five_workers_that_die_in_one_fit_change_no_bit_and_where_all_die_it_ends(
    client, small_subset, tmp_path, monkeypatch
):
    calm = fitted(of_unknown_sizes(X), of_unknown_sizes(Y))
    rows, run = mortal(str(tmp_path), X), DaskPartitions.run
    settings = {
        # A local cluster looks so long after a death whether the worker is back, and gives it up if it has died again.
        "distributed.deploy.lost-worker-timeout": "1 hour",
        # Processes that begin with dask imported start sooner.
        "distributed.worker.multiprocessing-method": "forkserver" if os.name == "posix" else "spawn",
    }
    with (
        dask.config.set(settings),
        ThreadPoolExecutor(1) as thread,
        local_cluster(2, processes=True) as cluster,
        Client(cluster) as client,
    ):

        def run_where_all_are_up(*given):
            client.wait_for_workers(2)
            cluster.sync(all_are_up, cluster)
            return run(*given)

        def fitted_in_time(*given):
            # Not in this thread: a fit that hangs is an error after a while.
            return thread.submit(without_warnings, model.fit, *given).result(timeout=SECONDS)

        monkeypatch.setattr(DaskPartitions, "run", run_where_all_are_up)
        model = DaskGPClassifier(**OPTIONS, client=client)
        # As the rows are counted, as they are drawn from, and in three passes; each is read again by another worker.
        fitted_in_time(rows("stormy", (0, 2, 4, 6, 8)), of_unknown_sizes(Y))
        assert {f"stormy3--{number}" for number in range(10)} <= set(os.listdir(tmp_path))
        assert_same_fit(model, calm, X)

        # Of one task; the default is 3, of which dask itself has tests.
        cluster.scheduler.allowed_failures = 1
        before = dict(vars(model))
        error = refuses(None, fitted_in_time, rows("deadly", ALWAYS), of_unknown_sizes(Y), error=KilledWorker)
        assert "more memory" in "".join(error.__notes__)
        assert vars(model) == before


def test_looks_that_end_with_a_task_and_errors_leave_nothing(client, small_subset, tuned):
    """A result may come as a fit looks for workers; after an error whose traceback is kept, no worker has a result."""
    rows = of_known_sizes(X, CUTS), of_known_sizes(Y, CUTS)
    expected = fitted(*rows)
    tuned(seconds_between_looks=0.002)
    assert_same_fit(fitted(*rows), expected, X)

    def fail(progress):
        if progress.stage == "reading":
            raise ZeroDivisionError

    error = refuses(None, DaskGPClassifier(**OPTIONS, callback=fail).fit, *rows, error=ZeroDivisionError)
    deadline = time.monotonic() + 10.0
    while left := client.run_on_scheduler(lambda dask_scheduler: [k for k in dask_scheduler.tasks if "xgpc" in k]):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    assert error.__traceback__


def test_a_cluster_that_has_lost_all_workers_is_an_error(small_subset, tuned):
    tuned(seconds_without_workers=0.2, seconds_between_looks=0.2, seconds_to_start=0.2)

    def left(values):
        worker = get_worker()
        worker.loop.add_callback(worker.close)
        return values

    labels = array.from_delayed(delayed(left)(Y), (np.nan,), Y.dtype)
    # The thread is left last: without its cluster a fit ends.
    with ThreadPoolExecutor(1) as thread, local_cluster(1, processes=False) as cluster, Client(cluster) as client:
        model = DaskGPClassifier(**OPTIONS, client=client)
        waits = pytest.warns(UserWarning, match=r"has no workers: the fit waits for some, 0\.2 seconds at most")
        with pytest.raises(RuntimeError, match=r"no workers for 0\.2 seconds.*more memory"), waits:
            thread.submit(model.fit, of_unknown_sizes(X, (0, N)), labels).result(timeout=SECONDS)
        assert not hasattr(model, "classes_")
        # There are none any more as this fit begins.
        with pytest.raises(RuntimeError, match=r"no workers for 0\.2 seconds"), waits:
            thread.submit(model.fit, of_known_sizes(X), of_known_sizes(Y)).result(timeout=SECONDS)


def test_frames_that_are_divided_at_other_rows(client):
    X = dataframe.from_pandas(pd.DataFrame(problem(300)[0]), npartitions=2)
    refuses("divided at different rows", DaskGPClassifier().fit, X, X[0].repartition(divisions=[0, 10, 299]))


def test_without_a_cluster():
    model, rows, message = DaskGPClassifier(), of_known_sizes(X), r"There is no dask cluster .* distributed\.Client"
    refuses(message, model.fit, rows, of_known_sizes(Y))
    refuses(None, model.predict, rows, error=NotFittedError)


def test_a_client_that_is_not_the_current_one(connected, small_subset):
    model = fitted(of_known_sizes(X, CUTS), of_known_sizes(Y, CUTS), client=connected)
    expected = without_warnings(GPClassifier(**OPTIONS).fit_batches, [(X, Y)])
    np.testing.assert_allclose(model.to_local().predict_log_proba(X), expected.predict_log_proba(X), atol=1e-10)


def test_a_closed_client_is_refused(connected):
    client = Client(connected.scheduler.address, set_as_default=False)
    client.close()
    message = "The client is closed: give one that is connected"
    refuses(message, fitted, of_known_sizes(X), of_known_sizes(Y), client=client)
    message = r"client must be a distributed\.Client.*; got '.*://"
    refuses(message, fitted, of_known_sizes(X), of_known_sizes(Y), client=connected.scheduler.address)


def test_fits_to_other_labels_have_other_tokens():
    """By these dask tells tasks apart: a model's state is in them, not only its parameters."""
    rows = np.random.default_rng(0).normal(size=(30, 2))
    first, second = (GPClassifier(optimizer=None, random_state=0).fit(rows, rows[:, j] > 0.0) for j in (0, 1))
    assert dask.base.tokenize(first) != dask.base.tokenize(second)
    assert dask.base.tokenize(first) != dask.base.tokenize(clone(first))
