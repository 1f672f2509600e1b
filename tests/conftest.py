import io
import signal
from types import SimpleNamespace

import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

# An editable install compiles what changed when it is imported: once here, before the workers do so at the same time.
import xgpc  # noqa: F401

# Failures of the assertions that the tests share say as much as those in the tests.
pytest.register_assert_rewrite("support")

# Every run of the tests draws the same examples, however slow the machine is.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")


@pytest.fixture(scope="session", autouse=True)
def default_interrupts():
    """SIGINT as Python treats it, though whoever started the tests may have it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module", autouse=True)
def one_thread_of_blas():
    """Beside the other workers of the tests more are in each other's way; tests of threads set numbers of their own."""
    with threadpool_limits(1, user_api="blas"):
        yield


# Private constants by names that tests have for them; several places are one number for the tests.
TUNED = {
    "all_compared_rows": ["rows.neighbours.EXACT_ROWS"],
    "batch_rows": ["rows.columnar.BATCH_ROWS"],
    "batch_tile_rows": ["inference.mini_batch.TILE_ROWS"],
    "block_rows": ["rows.block.BLOCK_ROWS", "rows.executor.BLOCK_ROWS"],
    "compared_rows": ["rows.neighbours.COMPARED_ROWS"],
    "cosines": ["approximations.draws.N_COSINES"],
    "covariance_bytes": ["predict.MOST_COVARIANCE_BYTES"],
    "csv_bytes": ["app.tables.BLOCK_BYTES"],
    "decision_share": ["learning.hold_out.DECISION_SHARE"],
    "demo_splits": ["app.demo.SPLITS"],
    "dense_values": ["rows.source.DENSE_VALUES"],
    "exact_draws": ["predict.EXACT_ROWS"],
    "failures": ["_engine.FALLBACK_AFTER", "inference.ascent.FALLBACK_AFTER"],
    "full_rows": ["approximations.full.MAX_ROWS"],
    "jitter": ["approximations.sparse.JITTER"],
    "kept_rows": ["learning.stages.LAST_ROWS", "config.MOST_CLASS_ROWS"],
    "largest_r_hat": ["gibbs.classifier.LARGEST_R_HAT"],
    "learned_rows": ["learning.stages.LAST_ROWS", "learning.learn.LAST_ROWS"],
    "many_features": ["learning.stages.MANY_FEATURES"],
    "many_neighbors": ["learning.learn.MANY_NEIGHBORS"],
    "measured_steps": ["inference.ascent.MEASURED"],
    "memory": ["app.commands.IN_MEMORY"],
    "most_bytes": ["learning.inducing.MOST_BYTES"],
    "most_inducing": ["learning.inducing.MAX_INDUCING"],
    "most_sweeps": ["inference.sweeps.MAX_SWEEPS"],
    "parallel_batch_rows": ["inference.mini_batch.PART_ROWS"],
    "parallel_work": ["rows.executor.MIN_PARALLEL_WORK"],
    "seconds_between_looks": ["dask.SECONDS_BETWEEN_LOOKS"],
    "seconds_to_start": ["dask.SECONDS_TO_START"],
    "seconds_without_workers": ["dask.SECONDS_WITHOUT_WORKERS"],
    "softmax_iterations": ["inference.ascent.CG_MAX_ITER"],
    "start_rows": ["learning.inducing.SAMPLE_ROWS"],
    "sweep_tolerance": ["inference.sweeps.TOLERANCE"],
    "tile_rows": ["_engine.TILE_ROWS"],
}


@pytest.fixture
def tuned(monkeypatch):
    """Other values of private constants, until the test ends: so that few rows meet a limit that many would."""

    def tune(**values):
        for name, value in values.items():
            for place in TUNED[name]:
                monkeypatch.setattr(f"xgpc.{place}", value)

    return tune


@pytest.fixture
def exact_sweeps(tuned):
    """Sites that agree with each other do not depend on where the sweeps began, nor do two fits on a tolerance."""
    tuned(sweep_tolerance=1e-10, most_sweeps=300)


@pytest.fixture
def small_subset(tuned):
    """Of 6000 rows a fit keeps some, more than a block."""
    tuned(kept_rows=1500)


@pytest.fixture
def run(capsys, monkeypatch):
    """Run a command, whose standard input is ``text``; its output and what it says on standard error."""
    from xgpc.app.cli import main

    def run(*arguments, text=None, status=0):
        capsys.readouterr()
        if text is not None:
            monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text)))
        assert main([str(argument) for argument in arguments]) == status
        return capsys.readouterr()

    return run


@pytest.fixture
def fails(run):
    """Run a command that fails with one line on standard error, which has the fragments in it."""

    def fails(arguments, *fragments, **options):
        out, err = run(*arguments, status=2, **options)
        assert out == ""
        assert err.startswith("xgpc: error: ")
        assert err.count("\n") == 1
        assert err[:-1].isprintable()
        for fragment in fragments:
            assert fragment in err

    return fails
