import signal

import pytest
from threadpoolctl import threadpool_limits

# An editable install compiles what changed when it is imported: once here, before the workers do so at the same time.
import xgpc  # noqa: F401

# Failures of the assertions that the tests share say as much as those in the tests.
pytest.register_assert_rewrite("support")


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
