import signal

import pytest

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
