import pytest

# Failures of the assertions that the tests share say as much as those in the tests.
pytest.register_assert_rewrite("support")
