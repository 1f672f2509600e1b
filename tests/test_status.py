"""How fits are told of while they run: on terminals, in files, and in the records of applications."""

import io
import itertools
import logging

import pytest
from support.fits import quietly
from support.reference import moons

from xgpc import BayesianLinearClassifier, GPClassifier
from xgpc.status import SECONDS_BETWEEN_LINES, SECONDS_BETWEEN_UPDATES, Status

SMALL = {"n_inducing": "auto", "n_neighbors": 0, "random_state": 0, "max_iter": 10, "verbose": 1}


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    """Tells a time that only the test moves on."""

    now = 0.0

    def __call__(self):
        return self.now


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


def test_a_terminal_has_a_line_that_is_replaced():
    stream, clock = Terminal(), Clock()
    status = Status(stream, clock)
    status.update(lambda: "a long line of the beginning")
    status.update(lambda: pytest.fail("made too early"))
    clock.now += SECONDS_BETWEEN_UPDATES
    status.update(lambda: "shorter")
    assert screen(stream.getvalue()) == ["xgpc: shorter"]
    status.say("a decision")
    clock.now += SECONDS_BETWEEN_UPDATES
    status.update(lambda: "x" * 200)
    assert screen(stream.getvalue()) == ["xgpc: a decision", "xgpc: " + "x" * 73]
    status.close()
    assert screen(stream.getvalue()) == ["xgpc: a decision", ""]
    status.close()


def test_other_streams_get_lines_now_and_then():
    stream, clock = io.StringIO(), Clock()
    status = Status(stream, clock)
    for second in range(31):
        clock.now = float(second)
        status.update(lambda: f"{clock.now:g} s")
    status.close()
    assert SECONDS_BETWEEN_LINES == 10.0
    assert stream.getvalue().splitlines() == [f"xgpc: {second} s" for second in (0, 10, 20, 30)]


def test_a_terminal_that_cannot_replace_gets_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    Status(stream, Clock()).update(lambda: "told")
    assert stream.getvalue() == "xgpc: told\n"


def test_a_message_counts_as_a_line():
    stream, clock = io.StringIO(), Clock()
    status = Status(stream, clock)
    status.say("a decision")
    status.update(lambda: pytest.fail("made too early"))
    assert stream.getvalue() == "xgpc: a decision\n"


def test_applications_get_records_and_nothing_else(caplog):
    stream, clock = Terminal(), Clock()
    with caplog.at_level(logging.INFO, logger="xgpc"):
        status = Status(stream, clock)
        status.say("100 % sure")
        clock.now += SECONDS_BETWEEN_LINES
        status.update(lambda: "how it goes")
        status.update(lambda: pytest.fail("made too early"))
        status.close()
    assert [(one.name, one.levelname, one.getMessage()) for one in caplog.records] == [
        ("xgpc", "INFO", "100 % sure"),
        ("xgpc", "INFO", "how it goes"),
    ]
    assert stream.getvalue() == ""


def test_records_that_nobody_would_see_are_lines(caplog):
    """Handlers alone, at the level of warnings, do not take what verbose=1 asks for."""
    stream = io.StringIO()
    with caplog.at_level(logging.WARNING, logger="xgpc"):
        Status(stream, Clock()).say("told")
    assert stream.getvalue() == "xgpc: told\n"
    assert not caplog.records


def test_what_cannot_be_written_is_left_out():
    closed, full = io.StringIO(), Terminal()
    closed.close()

    def write(text):
        raise OSError("no space")

    full.write = write
    for stream in (closed, full):
        status, made = Status(stream, Clock()), []
        status.update(lambda made=made: made.append("told") or "told")
        status.say("told")
        status.close()
        assert made == ["told"]
    assert full.getvalue() == ""


def test_there_may_be_no_standard_error(monkeypatch):
    silent = quietly(GPClassifier(**{**SMALL, "verbose": 0}), *moons(60))
    monkeypatch.setattr("sys.stderr", None)
    assert quietly(GPClassifier(**SMALL), *moons(60)).elbo_ == silent.elbo_


def test_characters_that_a_stream_has_no_code_for():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    Status(stream, Clock()).say("grün")
    assert raw.getvalue() == b"xgpc: gr\\xfcn\n"


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
