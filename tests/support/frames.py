"""Data frames of pandas, without which tests that need one are skipped."""

import pytest


def named(X, names=("a", "b")):
    """Rows with names of their columns."""
    return pytest.importorskip("pandas").DataFrame(X, columns=list(names))
