"""What users are told of a fit: parameters at their bounds, by the names of features; and what nobody need be told."""

import io
import itertools
import logging
import re
import sys

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from support.fits import quietly, refuses, warnings_of
from support.frames import named
from support.reference import moons, twonorm

from xgpc import GPClassifier


def test_a_fit_names_the_columns_of_a_data_frame():
    rng = np.random.default_rng(0)
    # The second feature says nothing: each row is there with both of its values.
    signal = np.tile(rng.normal(size=100), 2)
    frame = named(np.column_stack([signal, np.repeat([-1.0, 1.0], 100)]), ["signal", "worst area"])
    y = np.sin(2.0 * signal) + 0.3 * np.tile(rng.normal(size=100), 2) > 0.0
    model = GPClassifier(ConstantKernel(2.0) * RBF([1.0, 1.0], (1e-2, 50.0)), n_inducing=20, random_state=0)
    for rows, name in ((frame, "'worst area'"), (frame.to_numpy(), "feature 1")):
        [message] = warnings_of(model, rows, y)
        assert message.startswith(f"The length scale of {name} (k2__length_scale[1] = 50) is at its upper bound")


def test_a_fit_that_neither_optimizer_nor_posterior_ends_is_told_of_once():
    model = GPClassifier(n_inducing=8, bound="polya-gamma", max_iter=2, tol=1e-12, random_state=0)
    (message,) = warnings_of(model, *moons(200))
    assert message.count("max_iter=2 was reached before tol=1e-12") == 2
    assert message.count("raise max_iter") == 1
    assert model.warnings_ == [message]


def test_one_warning_names_the_parameters_that_ran_to_their_bounds_and_what_to_do():
    X, y = twonorm(300, np.random.default_rng(0))
    kernel = ConstantKernel(2.0, (1.9, 2.1)) * RBF(np.ones(4), [*[(1e-2, 1e2)] * 3, (0.9, 1.1)])
    [message] = warnings_of(GPClassifier(kernel, n_inducing=20, random_state=0), X[:, :4], y)
    for text in ("k1__constant_value = 2.1 is at its upper bound", "k2__length_scale[3] = 1.1 is at its upper bound"):
        assert text in message
    assert "k2__length_scale[0]" not in message
    assert "widen their bounds, or fix them" in message


SMALL = {"n_inducing": "auto", "n_neighbors": 0, "random_state": 0, "max_iter": 10, "verbose": 1}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_fit_tells_how_it_goes_without_carriage_returns(capsys):
    model = quietly(GPClassifier(**SMALL), *moons())
    out, err = capsys.readouterr()
    assert out == ""
    assert "\r" not in err
    lines = err.splitlines()
    assert lines[0].startswith("xgpc: checking")
    places = [lines.index(f"xgpc: {text}") for text in model.history_["decision"] if text]
    assert places
    assert all(earlier < later for earlier, later in itertools.pairwise(places))
    assert [line.split()[2] for line in lines[-2:]] == ["kernel", "posterior"]


def test_a_fit_tells_an_application(caplog, capsys):
    with caplog.at_level(logging.INFO, logger="xgpc"):
        model = quietly(GPClassifier(**SMALL), *moons())
    messages = [record.getMessage() for record in caplog.records]
    assert {text for text in model.history_["decision"] if text} < set(messages)
    assert capsys.readouterr() == ("", "")


def test_a_stream_does_not_swallow_the_error_of_a_signals_handler(monkeypatch):
    stream = Terminal()
    stream.write = lambda text: (_ for _ in ()).throw(TimeoutError("after ten seconds"))
    monkeypatch.setattr("sys.stderr", stream)
    refuses("after ten seconds", GPClassifier(verbose=True).fit, *moons(), error=TimeoutError)


@pytest.mark.parametrize("has_tqdm", [True, False])
def test_a_terminal_has_a_bar_below_the_decisions_if_tqdm_is_installed(has_tqdm, monkeypatch):
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    if not has_tqdm:
        monkeypatch.setitem(sys.modules, "tqdm", None)
    model = quietly(GPClassifier(**SMALL), *moons())
    assert {f"xgpc: {text}" for text in model.decisions_} < set(re.split("[\r\n]", stream.getvalue()))
    assert ("\r" in stream.getvalue()) == has_tqdm


@pytest.mark.parametrize("kind", ["closed", "full", "missing"])
def test_what_cannot_be_written_is_left_out(kind, monkeypatch):
    stream = Terminal()
    if kind == "closed":
        stream.close()
    elif kind == "full":
        stream.write = lambda text: (_ for _ in ()).throw(OSError("no space"))
    monkeypatch.setattr("sys.stderr", None if kind == "missing" else stream)
    assert np.isfinite(quietly(GPClassifier(**SMALL), *moons(60)).elbo_)
