"""How fits are told of while they run: on terminals, in files, and in the records of applications."""

import io
import itertools
import logging

import pandas as pd
import pytest
from support.fits import quietly
from support.reference import moons

from xgpc import GPClassifier

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
