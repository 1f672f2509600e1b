"""Fits to partitions that a class of one's own works on, and the recipes of ``examples/cluster`` that have such ones.

Ray and Spark are large, and no part of the extra ``test``: their recipes are tested where they are installed.
"""

import itertools
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from support.fits import without_warnings
from support.partitions import InThisProcess

from xgpc import GPClassifier

pd = pytest.importorskip("pandas")

RECIPES = Path(__file__).parent.parent / "examples" / "cluster"
# Few of the rows are learned from; a partition has more than one block.
SIZE, N, CUTS = 300, 6000, (0, 1700, 1701, 5000, 6000)
SECONDS = 120


def problem(n_classes=2):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2))
    score = X[:, 0] + np.sin(2.0 * X[:, 1]) + 0.5 * rng.normal(size=N)
    return X, np.digitize(score, np.linspace(-1.0, 1.0, n_classes + 1)[1:-1]), rng.uniform(0.5, 2.0, N)


def parts(*arrays):
    return [tuple(one[start:stop] for one in arrays) for start, stop in itertools.pairwise(CUTS)]


@pytest.fixture(autouse=True)
def small_subset(monkeypatch):
    monkeypatch.setattr("xgpc.learning.stages.LAST_ROWS", SIZE)


def model(**given):
    X = problem()[0]
    kernel = ConstantKernel(2.0) * RBF([1.0, 1.5])
    return GPClassifier(kernel, inducing_points=X[:20], n_inducing=20, optimizer=None, random_state=0, **given)


@pytest.mark.parametrize("kind", ["two classes", "weights", "three classes", "no rows in some", "few rows"])
def test_partitions_make_the_fit_of_batches(kind, monkeypatch):
    given = problem(3 if kind == "three classes" else 2)[: 3 if kind == "weights" else 2]
    if kind == "few rows":
        monkeypatch.setattr("xgpc.learning.stages.LAST_ROWS", N)
    batches = parts(*given)
    if kind == "no rows in some":
        batches = [tuple(one[:0] for one in given), *batches]
    expected = without_warnings(model().fit_batches, batches)
    found = without_warnings(model().fit_batches, InThisProcess(batches))
    assert found.elbo_ == pytest.approx(expected.elbo_, rel=1e-12)
    # Several classes take ten times as many steps, in which rounding grows.
    error = 1e-8 if kind == "three classes" else 1e-10
    X = given[0]
    np.testing.assert_allclose(found.predict_proba(X), expected.predict_proba(X), rtol=0.0, atol=error)


def test_classes_that_are_given_are_all_that_there_are():
    X, y, _ = problem()
    partitions = InThisProcess(parts(X, y))
    assert without_warnings(model().fit_batches, partitions, classes=[1, 0]).classes_.tolist() == [0, 1]
    with pytest.raises(ValueError, match=r"No row has a label of the given classes \[2\]"):
        model().fit_batches(partitions, classes=[0, 1, 2])
    y[1702] = 7
    estimator = model()
    before = dict(vars(estimator))
    with pytest.raises(ValueError, match=r"Row 1 of the batch has the label 7") as caught:
        estimator.fit_batches(partitions, classes=[0, 1])
    assert caught.value.__notes__ == ["(partition 2 of the rows, counted from 0)"]
    assert vars(estimator) == before


@pytest.fixture
def folder(tmp_path):
    """Parquet files, one for each partition, in the order of their names."""
    X, y, _ = problem()
    (tmp_path / "rows").mkdir()
    for number, (features, labels) in enumerate(parts(X, y)):
        table = pd.DataFrame(features, columns=["east", "north"]).assign(label=labels)
        table.to_parquet(tmp_path / "rows" / f"{number}.parquet")
    return tmp_path


def assert_fit_of(batches, path):
    """The model that a recipe wrote is that of the same rows, in one process."""
    X = np.concatenate([rows for rows, _ in batches])
    assert {tuple(row) for row in X} == {tuple(row) for row in problem()[0]}
    expected = without_warnings(GPClassifier(n_inducing=100, random_state=0).fit_batches, batches)
    found = GPClassifier.load(path)
    assert found.kernel_ == expected.kernel_
    assert found.feature_names_in_.tolist() == ["east", "north"]
    assert found.elbo_ == pytest.approx(expected.elbo_, rel=1e-12)
    table = pd.DataFrame(X, columns=["east", "north"])
    np.testing.assert_allclose(found.predict_proba(table), expected.predict_proba(table), rtol=0.0, atol=1e-10)


def run_recipe(name, *arguments):
    """What the recipe's command does, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [name, *map(str, arguments)])
        return without_warnings(runpy.run_path, str(RECIPES / name), run_name="__main__")


# Runs a recipe where fewer rows are learned from.
DRIVER = f"""
import runpy, sys
from xgpc.learning import stages
stages.LAST_ROWS = {SIZE}
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def mpi(folder, ranks):
    """The recipe in so many ranks."""
    pytest.importorskip("mpi4py")
    (folder / "driver.py").write_text(DRIVER)
    # That of the extra "test" is beside the interpreter, whether or not that folder is on the path.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    mpirun = [shutil.which("mpirun", path=path), "--oversubscribe", "-n", ranks]
    driver, files = folder / "driver.py", sorted((folder / "rows").iterdir())
    command = [*mpirun, sys.executable, "-m", "mpi4py", driver, RECIPES / "mpi_recipe.py", "label"]
    # Ranks that wait leave their core to the others; root may start it.
    settings = dict.fromkeys(
        ("OMPI_MCA_mpi_yield_when_idle", "OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "1"
    )
    return subprocess.run(
        [*map(str, [*command, folder / "model.npz", *files])],
        env={**os.environ, **settings}, timeout=SECONDS, capture_output=True, text=True,
    )  # fmt: skip


def test_mpi(folder):
    ended = mpi(folder, ranks=3)
    assert ended.returncode == 0, ended.stderr
    X, y, _ = problem()
    assert_fit_of([(pd.DataFrame(X, columns=["east", "north"]), y)], folder / "model.npz")


def test_an_error_of_a_rank_ends_the_job(folder):
    path = folder / "rows" / "2.parquet"
    table = pd.read_parquet(path)
    table.loc[1, "north"] = np.nan
    table.to_parquet(path)
    ended = mpi(folder, ranks=2)
    assert ended.returncode != 0
    assert "(partition 2 of the rows, counted from 0)" in ended.stderr
    assert not (folder / "model.npz").exists()


@pytest.fixture
def ray_cluster():
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


@pytest.mark.filterwarnings("ignore")
def test_ray(ray_cluster, folder):
    recipe = run_recipe("ray_recipe.py", folder / "rows", "label", folder / "model.npz")
    # The files' order is Ray's.
    assert_fit_of(ray_cluster.get(recipe["partitions"].batches), folder / "model.npz")
    X, y, weight = problem()
    X[1702, 1] = np.nan
    estimator = model()
    partitions = recipe["RayPartitions"]([ray_cluster.put(batch) for batch in parts(X, y, weight)])
    with pytest.raises(ValueError, match="nan in column 1") as caught:
        estimator.fit_batches(partitions)
    assert caught.value.__notes__ == ["(partition 2 of the rows, counted from 0)"]
    assert not hasattr(estimator, "classes_")


@pytest.fixture
def spark_session():
    sql = pytest.importorskip("pyspark.sql")
    session = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    yield session
    session.stop()


@pytest.mark.filterwarnings("ignore")
def test_spark(spark_session, folder):
    recipe = run_recipe("spark_recipe.py", folder / "rows", "label", folder / "model.npz")
    # The files' order is Spark's.
    rows = recipe["frame"].toPandas()
    assert_fit_of([(rows[["east", "north"]], rows["label"])], folder / "model.npz")
    table = pd.DataFrame(problem()[0], columns=["east", "north"]).assign(label=problem()[1])
    table.loc[1702, "north"] = np.nan
    partitions = recipe["SparkPartitions"](spark_session.createDataFrame(table).repartition(3), "label")
    assert len(partitions) == 3
    with pytest.raises(ValueError, match="nan in column 1") as caught:
        model().fit_batches(partitions)
    assert [note for note in caught.value.__notes__ if note.startswith("(partition ")]
