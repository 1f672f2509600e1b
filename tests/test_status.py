"""How fits are told of while they run: on terminals, in files, and in the records of applications."""

import io
import itertools
import logging

import pandas as pd
import pytest
from support.fits import quietly
from support.reference import moons

from xgpc import BayesianLinearClassifier, GPClassifier

SMALL = {"n_inducing": "auto", "n_neighbors": 0, "random_state": 0, "max_iter": 10, "verbose": 1}


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def a_terminal_that_can(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")


def screen(text):
    """What a terminal shows of a text in the end: later characters replace those before them in the line."""
    lines = []
    for line in text.split("\n"):
        shown = []
        for part in line.split("\r"):
            shown[: len(part)] = part
        lines.append("".join(shown).rstrip())
    return lines


def test_there_may_be_no_standard_error(monkeypatch):
    silent = quietly(GPClassifier(**{**SMALL, "verbose": 0}), *moons(60))
    monkeypatch.setattr("sys.stderr", None)
    assert quietly(GPClassifier(**SMALL), *moons(60)).elbo_ == silent.elbo_


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


def test_a_fit_on_a_terminal_leaves_its_messages(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    model = quietly(GPClassifier(**SMALL), *moons())
    shown = screen(terminal.getvalue())
    assert {f"xgpc: {text}" for text in model.history_["decision"] if text} < set(shown)
    assert shown[-1] == ""
    assert "\rxgpc: checking" in terminal.getvalue()


def test_a_fit_tells_an_application(caplog, capsys):
    with caplog.at_level(logging.INFO, logger="xgpc"):
        model = quietly(GPClassifier(**SMALL), *moons())
    messages = [record.getMessage() for record in caplog.records]
    assert {text for text in model.history_["decision"] if text} < set(messages)
    assert capsys.readouterr() == ("", "")


def test_records_that_nobody_would_see_are_lines(caplog, capsys):
    """Handlers alone, at the level of warnings, do not take what verbose=1 asks for."""
    with caplog.at_level(logging.WARNING, logger="xgpc"):
        quietly(GPClassifier(**SMALL), *moons(60))
    assert capsys.readouterr().err.startswith("xgpc: checking")
    assert not caplog.records


@pytest.mark.parametrize("kind", ["closed", "full", "without the characters", "a terminal without a cursor"])
def test_what_cannot_be_written_is_left_out(kind, monkeypatch):
    stream = Terminal()
    if kind == "closed":
        stream = io.StringIO()
        stream.close()
    elif kind == "full":
        stream.write = lambda text: (_ for _ in ()).throw(OSError("no space"))
    elif kind == "without the characters":
        stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    else:
        monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("sys.stderr", stream)
    X = pd.DataFrame(moons(60)[0], columns=["grün", "blau"])
    X.iloc[0, 0] = 1e7
    model = quietly(GPClassifier(**SMALL), X, moons(60)[1])
    assert any("grün" in text for text in model.decisions_)
    if kind == "without the characters":
        assert b"gr\\xfcn" in stream.buffer.getvalue()
    elif kind != "closed":
        assert "\r" not in stream.getvalue()
        assert bool(stream.getvalue()) == (kind != "full")


def test_fits_are_silent_unless_they_are_asked(caplog, capsys):
    with caplog.at_level(logging.DEBUG):
        quietly(GPClassifier(**{**SMALL, "verbose": 0}), *moons(60))
    assert not [record for record in caplog.records if record.name == "xgpc"]
    assert capsys.readouterr() == ("", "")


def test_a_linear_fit_tells_its_end(capsys):
    BayesianLinearClassifier(verbose=1).fit(*moons())
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("xgpc: checking")
    assert last.startswith("xgpc: The bound is -")
