"""Assertions that tests of many modules make."""

import numpy as np
import pytest


def assert_refused(message, call, *given, error=ValueError, **named):
    """A call ends with an error, whose text has this pattern."""
    with pytest.raises(error, match=message):
        call(*given, **named)


def assert_same_bits(one, other, X, names=("elbo_", "kernel_", "inducing_points_"), other_X=None):
    """Two models predict the same of rows, which the other may have in another form, and have the same attributes."""
    other_X = X if other_X is None else other_X
    for method in ("predict_log_proba", "predict_latent", "predict"):
        np.testing.assert_equal(getattr(other, method)(other_X), getattr(one, method)(X), err_msg=method)
    for name in names:
        np.testing.assert_equal(getattr(other, name, None), getattr(one, name, None), err_msg=name)
