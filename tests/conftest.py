import pytest

# An editable install compiles what changed when it is imported: once here, before the workers do so at the same time.
import xgpc  # noqa: F401

# Failures of the assertions that the tests share say as much as those in the tests.
pytest.register_assert_rewrite("support")
