"""Data frames of pandas, without which tests that need one are skipped, and fits to tables in a moment."""

from functools import partial

import pytest

from xgpc import GPClassifier

from .fits import fit

small = partial(GPClassifier, n_inducing=12, max_iter=5, random_state=0)
fitted = partial(fit, n_inducing=12, max_iter=5)


def named(X, names=("a", "b")):
    return pytest.importorskip("pandas").DataFrame(X, columns=list(names))


def inputs_of(table, text, numbers="float64"):
    """A table as inputs of an ONNX model, one for each column: one of text, and numbers of a type."""
    columns = table.assign(**{text: table[text].astype(object).fillna("")}).items()
    return {name: (column if name == text else column.astype(numbers)).to_numpy()[:, None] for name, column in columns}
