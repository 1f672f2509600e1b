"""Rows on a dask cluster: the fit that they make, however they are divided and whoever works on them, and faults."""

import itertools
import os
import pickle
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import TimeSeriesSplit
from support.fits import without_warnings

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

KERNEL = ConstantKernel(2.0) * RBF([1.0, 1.5])
N = 6000
# Uneven, one of a row, one without any, one of more than two blocks.
CUTS = (0, 1700, 1701, 1701, 5000, N)
# Readings at which a worker dies; a fit that takes longer than this hangs.
ALWAYS, SECONDS = None, 120


def problem(n=N, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    score = X[:, 0] + np.sin(2.0 * X[:, 1]) + 0.5 * rng.normal(size=n)
    y = np.digitize(score, np.linspace(-1.0, 1.0, n_classes + 1)[1:-1])
    weight = rng.uniform(0.5, 2.0, n)
    weight[::7] = 0.0
    return X, y, weight


def options(**given):
    return {"kernel": KERNEL, "inducing_points": problem()[0][:20], "n_inducing": 20, "random_state": 0, **given}


def parts(values, cuts=CUTS):
    return [values[start:stop] for start, stop in itertools.pairwise(cuts)]


def of_unknown_sizes(values, cuts=CUTS):
    """A dask array whose partitions' sizes are not known before they are computed."""
    pieces = [delayed(piece) for piece in parts(values, cuts)]
    shape = (np.nan, *values.shape[1:])
    return array.concatenate([array.from_delayed(one, shape, values.dtype) for one in pieces], axis=0)


def of_known_sizes(values, cuts=CUTS):
    chunks = tuple(np.diff(cuts).tolist())
    return array.from_array(values, chunks=(chunks, *((1,) * n for n in values.shape[1:])))


def assert_same_bits(one, other, X):
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))
    assert one.elbo_ == other.elbo_
    assert one.kernel_ == other.kernel_


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


@pytest.mark.parametrize("kind", ["weights", "neighbours", "learned"])
def test_few_rows_make_the_fit_of_arrays(client, kind):
    X, y, weight = problem(2500)
    given, chosen = (X, y, weight)[: 3 if kind == "weights" else 2], options(optimizer=None, n_neighbors=0)
    if kind == "neighbours":
        chosen["n_neighbors"] = 3
    elif kind == "learned":
        chosen.update(optimizer="profile", max_iter=5, kernel=None)
    expected = without_warnings(GPClassifier(**chosen).fit, *given)
    model = DaskGPClassifier(**chosen)
    without_warnings(model.fit, *(of_known_sizes(one, (0, 900, 900, 2500)) for one in given))
    assert_same_bits(model, expected, X)


@pytest.mark.parametrize(
    "kind", ["learned", "weights", "several classes", "float32", "corrected", "label noise", "far values", "neighbours"]
)
def test_many_rows_make_the_fit_of_batches(client, small_subset, kind):
    X, y, weight = problem(n_classes=3 if kind == "several classes" else 2)
    chosen = options(optimizer=None)
    if kind == "learned":
        chosen.update(optimizer="profile", max_iter=5, kernel=None)
    elif kind == "weights":
        chosen["class_weight"] = "balanced"
    elif kind == "float32":
        X = X.astype(np.float32)
    elif kind == "corrected":
        chosen["bound"] = "polya-gamma"
    elif kind == "label noise":
        chosen["bound"] = "additive-noise"
    elif kind == "far values":
        X[::50, 1] = -9999.0
    elif kind == "neighbours":
        chosen.update(n_neighbors=3, max_rows_in_model=1000, held_out_split=TimeSeriesSplit())
    rows = (X, y, weight)[: 3 if kind == "weights" else 2]
    expected = without_warnings(GPClassifier(**chosen).fit_batches, [rows])
    model = without_warnings(DaskGPClassifier(**chosen).fit, *map(of_unknown_sizes, rows))
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
    X, y, weight = problem()
    table = pd.DataFrame(X, columns=["east", "north"]).assign(label=np.array(["no", "yes"])[y], weight=weight)
    expected = without_warnings(
        GPClassifier(**options(optimizer=None)).fit_batches,
        [(table[["east", "north"]], table["label"], table["weight"])],
    )
    rows = dataframe.from_delayed([delayed(part) for part in parts(table)], meta=table[:0])
    X_rows = rows[["east", "north"]]
    model = without_warnings(DaskGPClassifier(**options(optimizer=None)).fit, X_rows, rows["label"], rows["weight"])
    assert model.feature_names_in_.tolist() == ["east", "north"]
    assert model.classes_.tolist() == ["no", "yes"]
    local = expected.predict_proba(table[["east", "north"]])
    np.testing.assert_allclose(model.predict_proba(X_rows).compute(), local, rtol=0.0, atol=1e-10)
    assert model.predict(X_rows).compute().tolist() == expected.predict(table[["east", "north"]]).tolist()
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(rows[["north", "east"]])


@pytest.mark.parametrize("n_classes", [2, 3])
def test_predictions_are_lazy_and_those_of_the_local_model(client, n_classes):
    X, y, _ = problem(900, n_classes)
    model = without_warnings(
        DaskGPClassifier(**options(optimizer=None)).fit, of_known_sizes(X, (0, 900)), of_known_sizes(y, (0, 900))
    )
    local = model.to_local()
    assert type(local) is GPClassifier
    rows = of_known_sizes(X, (0, 300, 300, 301, 900))
    for method in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
        expected = getattr(local, method)(X)
        at_once = getattr(model, method)(X)
        np.testing.assert_array_equal(at_once, expected)
        for given in (rows, of_unknown_sizes(X, (0, 300, 300, 301, 900))):
            lazy = getattr(model, method)(given)
            assert isinstance(lazy, array.Array)
            assert (lazy.dtype, lazy.ndim) == (expected.dtype, expected.ndim)
            np.testing.assert_allclose(lazy.compute(), expected, rtol=0.0, atol=1e-12)
        assert getattr(model, method)(rows).shape == expected.shape
    with pytest.raises(ValueError, match="3 features"):
        model.predict(array.zeros((4, 3)))
    # The message tells of methods that take such rows, and of what others take.
    with pytest.raises(ValueError, match=r"compute\(\) makes\. Only .*predict_proba.* of xgpc\.dask\..* take it"):
        model.predict_latent(rows)


@pytest.mark.parametrize("given", ["known", "unknown", "frames"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_score_is_that_of_the_local_model(client, given, weighted):
    X, y, weight = problem(900, 3)
    cuts, labels = (0, 300, 300, 301, 900), np.array(["a", "b", "c"])[y]
    model = without_warnings(
        DaskGPClassifier(**options(optimizer=None)).fit, of_known_sizes(X, (0, 900)), of_known_sizes(labels, (0, 900))
    )
    rows = (X, labels, weight)[: 3 if weighted else 2]
    expected = model.to_local().score(*rows)
    assert model.score(*rows) == expected
    if given == "frames":
        tables = pd.DataFrame(X), pd.Series(labels), pd.Series(weight)
        lazy = [
            dataframe.from_delayed([delayed(part) for part in parts(one, cuts)], meta=one[:0])
            for one in tables[: len(rows)]
        ]
    else:
        lazy = [(of_known_sizes if given == "known" else of_unknown_sizes)(one, cuts) for one in rows]
    assert model.score(*lazy) == pytest.approx(expected, rel=1e-12)
    if weighted:
        lazy[2] = 0.0 * lazy[2]
        with pytest.raises(ValueError, match="no row of positive weight"):
            model.score(*lazy)


def bad(kind, folder):
    """X, y and what the error says, of rows in five partitions."""
    X, y, _ = problem()
    if kind == "a feature that is no number":
        X[1702, 1] = np.nan
        return of_unknown_sizes(X), of_unknown_sizes(y), "1 in feature 1", 3
    if kind == "a label that is none":
        y = np.where(np.arange(N) == 5100, np.nan, y)
        return of_unknown_sizes(X), of_unknown_sizes(y), "missing label", 4
    if kind == "columns that others have not":
        pieces = [delayed(part) for part in parts(X)]
        pieces[4] = delayed(X[5000:, :1])
        rows = array.concatenate([array.from_delayed(one, (np.nan, 2), X.dtype) for one in pieces])
        return rows, of_unknown_sizes(y), "has 1 features, .*; the first batch has 2 features", 4
    if kind == "labels of another kind":
        pieces = [delayed(part) for part in parts(y)]
        pieces[3] = delayed(y[1701:5000].astype(str))
        labels = array.concatenate([array.from_delayed(one, (np.nan,), y.dtype) for one in pieces])
        return of_unknown_sizes(X), labels, "labels that are text", 3
    if kind == "labels that are too few":
        return (
            of_unknown_sizes(X),
            of_unknown_sizes(y, (0, 1700, 1701, 1701, 4990, N)),
            "inconsistent numbers of samples",
            3,
        )
    if kind == "other rows each time":

        def fewer(rows):
            number = len(os.listdir(folder))
            tempfile.mkstemp(dir=folder)
            # For X and for y in each pass.
            return rows[: len(rows) - number // 2]

        pieces = [delayed(part) for part in parts(np.column_stack([X, y]))]
        pieces[3] = delayed(fewer)(pieces[3])
        both = array.concatenate([array.from_delayed(one, (np.nan, 3), float) for one in pieces])
        return both[:, :2], both[:, 2], "the same rows each time", 3
    both = of_known_sizes(X), of_known_sizes(y)
    return {
        "arrays in memory": (X, y, "must be an array, data frame or series of dask; got a ndarray", None),
        "labels in memory": (both[0], y, "y must be an array, data frame or series of dask", None),
        "other partitions": (both[0], of_unknown_sizes(y, (0, 10, N)), "5 partitions of rows, y has 2", None),
        "other numbers of rows": (both[0], both[1][:-1], "6000 rows, y has 5999", None),
        "one class": (both[0], array.zeros(N, dtype=int, chunks=both[1].chunks), "two classes", None),
        "no rows": (both[0][:0], both[1][:0], "no rows", None),
        "one dimension": (both[1], both[1], "two dimensions", None),
    }[kind]


KINDS = (
    "a feature that is no number", "a label that is none", "columns that others have not", "labels of another kind",
    "labels that are too few", "other rows each time", "arrays in memory", "labels in memory", "other partitions",
    "other numbers of rows", "one class", "no rows", "one dimension",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_bad_rows_are_errors_that_name_the_partition(client, small_subset, kind, tmp_path):
    X, y, message, number = bad(kind, tmp_path)
    model = DaskGPClassifier(**options(optimizer=None))
    before = dict(vars(model))
    with pytest.raises(ValueError, match=message) as caught:
        model.fit(X, y)
    assert vars(model) == before
    notes = getattr(caught.value, "__notes__", [])
    assert notes == ([] if number is None else [f"(partition {number} of the rows, counted from 0)"])


def test_parameters_copies_and_files(client, tmp_path):
    model = DaskGPClassifier(**options(client=client, optimizer=None))
    assert model.get_params().keys() == GPClassifier().get_params().keys() | {"client"} | {
        name for name in model.get_params() if name.startswith("kernel__")
    }
    with pytest.raises(TypeError, match="n_inducting"):
        DaskGPClassifier(n_inducting=3)
    copy = clone(model).set_params(tol=1e-3)
    assert copy.client is client
    assert (copy.kernel, copy.tol, model.tol) == (KERNEL, 1e-3, 1e-4)
    assert copy.kernel is not model.kernel
    X, y, _ = problem(400)
    model.fit(of_known_sizes(X, (0, 150, 400)), of_known_sizes(y, (0, 150, 400)))
    expected = model.predict_proba(X)
    again = pickle.loads(pickle.dumps(model))
    assert (again.client, model.client) == (None, client)
    model.save(tmp_path / "model.npz")
    for other in (again, *(kind.load(tmp_path / "model.npz") for kind in (GPClassifier, DaskGPClassifier))):
        np.testing.assert_array_equal(other.predict_proba(X), expected)
    assert not hasattr(model.to_local(), "client")
    warm = without_warnings(
        model.set_params(warm_start=True, max_iter=1).fit, of_known_sizes(X, (0, 400)), of_known_sizes(y, (0, 400))
    )
    assert warm.n_iter_ == 1


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
        return array.concatenate([array.from_delayed(one, (np.nan, 2), X.dtype) for one in pieces])

    return rows


@pytest.mark.nightly
def test_five_workers_that_die_in_one_fit_change_no_bit_and_where_all_die_it_ends(
    client, small_subset, tmp_path, monkeypatch
):
    X, y, _ = problem()
    calm = without_warnings(DaskGPClassifier(**options(optimizer=None)).fit, of_unknown_sizes(X), of_unknown_sizes(y))
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

        def fitted(*given):
            # Not in this thread: a fit that hangs is an error after a while.
            return thread.submit(without_warnings, model.fit, *given).result(timeout=SECONDS)

        monkeypatch.setattr(DaskPartitions, "run", run_where_all_are_up)
        model = DaskGPClassifier(**options(optimizer=None, client=client))
        # As the rows are counted, as they are drawn from, and in three passes; each is read again by another worker.
        fitted(rows("stormy", (0, 2, 4, 6, 8)), of_unknown_sizes(y))
        assert {f"stormy3--{number}" for number in range(10)} <= set(os.listdir(tmp_path))
        assert_same_bits(model, calm, X)

        before = dict(vars(model))
        # Of one task; the default is 3, of which dask itself has tests.
        cluster.scheduler.allowed_failures = 1
        with pytest.raises(KilledWorker) as caught:
            fitted(rows("deadly", ALWAYS), of_unknown_sizes(y))
        assert "more memory" in "".join(caught.value.__notes__)
        assert vars(model) == before


def test_looks_that_end_with_a_task_and_errors_leave_nothing(client, small_subset, tuned):
    """A result may come as a fit looks for workers; after an error whose traceback is kept, no worker has a result."""
    X, y, _ = problem()
    rows = of_known_sizes(X), of_known_sizes(y)
    expected = without_warnings(DaskGPClassifier(**options(optimizer=None)).fit, *rows)
    tuned(seconds_between_looks=0.002)
    assert_same_bits(without_warnings(DaskGPClassifier(**options(optimizer=None)).fit, *rows), expected, X)

    def fail(progress):
        if progress.stage == "reading":
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        DaskGPClassifier(**options(callback=fail)).fit(*rows)
    deadline = time.monotonic() + 10.0
    while left := client.run_on_scheduler(
        lambda dask_scheduler: [key for key in dask_scheduler.tasks if "xgpc" in key]
    ):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    assert caught.value.__traceback__


def test_a_cluster_that_has_lost_all_workers_is_an_error(small_subset, tuned):
    """It is said that there are none any more, and after a while it is an error."""
    X, y, _ = problem()
    tuned(seconds_without_workers=0.2, seconds_between_looks=0.2, seconds_to_start=0.2)

    def left(values):
        worker = get_worker()
        worker.loop.add_callback(worker.close)
        return values

    labels = array.from_delayed(delayed(left)(y), (np.nan,), y.dtype)
    # The thread is left last: without its cluster a fit ends.
    with ThreadPoolExecutor(1) as thread, local_cluster(1, processes=False) as cluster, Client(cluster) as client:
        model = DaskGPClassifier(**options(optimizer=None, client=client))
        waits = pytest.warns(UserWarning, match=r"has no workers: the fit waits for some, 0\.2 seconds at most")
        with pytest.raises(RuntimeError, match=r"no others have come.*more memory"), waits:
            thread.submit(model.fit, of_unknown_sizes(X, (0, N)), labels).result(timeout=SECONDS)
        assert not hasattr(model, "classes_")


def test_frames_that_are_divided_at_other_rows(client):
    table = pd.DataFrame(problem(300)[0])
    X, y = (dataframe.from_pandas(table, npartitions=n) for n in (2, 2))
    y = y[0].repartition(divisions=[0, 10, 299])
    with pytest.raises(ValueError, match="divided at different rows"):
        DaskGPClassifier().fit(X, y)


def test_without_a_cluster():
    X, y, _ = problem()
    with pytest.raises(ValueError, match=r"There is no dask cluster .* distributed\.Client"):
        DaskGPClassifier().fit(of_known_sizes(X), of_known_sizes(y))
    with pytest.raises(NotFittedError):
        DaskGPClassifier().predict(of_known_sizes(X))


def test_a_client_that_is_not_the_current_one(connected, small_subset):
    X, y, _ = problem()
    rows = of_known_sizes(X), of_known_sizes(y)
    model = without_warnings(DaskGPClassifier(**options(client=connected, optimizer=None)).fit, *rows)
    expected = without_warnings(GPClassifier(**options(optimizer=None)).fit_batches, [(X, y)])
    np.testing.assert_allclose(model.to_local().predict_log_proba(X), expected.predict_log_proba(X), atol=1e-10)


def test_a_closed_client_is_refused(connected):
    X, y, _ = problem()
    client = Client(connected.scheduler.address, set_as_default=False)
    client.close()
    with pytest.raises(ValueError, match=r"The client is closed: give one that is connected"):
        DaskGPClassifier(**options(client=client)).fit(of_known_sizes(X), of_known_sizes(y))
