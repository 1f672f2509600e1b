"""A saved model is whole: failures, interrupts and readers at the same time."""

import errno
import os
import subprocess
import sys
import threading
from unittest.mock import Mock

import numpy as np
import pytest
from support.fits import refuses
from support.reference import moons

from xgpc import GPClassifier

X, Y = moons(60)


@pytest.fixture(scope="module")
def models():
    return [GPClassifier(n_inducing=m, optimizer=None, random_state=True).fit(X, Y) for m in (5, 9)]


def assert_predicts_as(path, model):
    assert np.array_equal(GPClassifier.load(path).predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("function", ["fsync", "replace", "chmod"])
@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_model_and_nothing_else(models, tmp_path, monkeypatch, function, error):
    old, new = models
    path = tmp_path / "model.npz"
    old.save(path)
    path.chmod(0o640)

    with monkeypatch.context() as patched:
        patched.setattr(os, function, Mock(side_effect=error))
        refuses(None, new.save, path, error=type(error))
    assert os.listdir(tmp_path) == ["model.npz"]
    assert path.stat().st_mode & 0o777 == 0o640
    assert_predicts_as(path, old)


@pytest.mark.parametrize("points", [np.zeros((3, 5)), [1.0, 2.0], [[np.nan, 0.0]]])
def test_points_that_do_not_fit_the_model_leave_the_old_file(points, tmp_path):
    model, path = GPClassifier(n_inducing=5, optimizer=None, random_state=0).fit(X, Y), tmp_path / "model.npz"
    model.save(path)
    refuses("inducing_points ", model.set_params(inducing_points=points).save, path)
    assert_predicts_as(path, model)


def test_a_full_disk_leaves_the_old_model(models, tmp_path):
    old, new = models
    path, other = tmp_path / "model.npz", tmp_path / "new.npz"
    old.save(path)
    new.save(other)
    limits = [0, 1, 100, 1000, 4096, other.stat().st_size - 1]
    program = (
        "import os, resource, sys\n"
        "from xgpc import GPClassifier\n"
        "model = GPClassifier.load('new.npz')\n"
        "for limit in map(int, sys.argv[1:]):\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))\n"
        "    for path in ('model.npz', 'another.npz'):\n"
        "        try:\n"
        "            model.save(path)\n"
        "        except OSError as error:\n"
        "            print(error.errno, len(os.listdir()))\n"
    )
    command = [sys.executable, "-c", program, *map(str, limits)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.stderr == ""
    assert run.stdout.splitlines() == [f"{errno.EFBIG} 2"] * 2 * len(limits)
    assert_predicts_as(path, old)


def test_readers_find_a_whole_model_while_it_is_saved(models, tmp_path):
    path, stop = tmp_path / "model.npz", threading.Event()
    models[0].save(path)
    allowed = {model.predict_proba(X).tobytes() for model in models}

    def save():
        while not stop.is_set():
            for model in models:
                model.save(path)

    writer = threading.Thread(target=save)
    writer.start()
    try:
        found = {GPClassifier.load(path).predict_proba(X).tobytes() for _ in range(100)}
    finally:
        stop.set()
        writer.join()
    assert found <= allowed
    assert os.listdir(tmp_path) == ["model.npz"]


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_its_target_is_written(models, tmp_path, exists):
    old, new = models
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    target, link = tmp_path / "a" / "model.npz", tmp_path / "b" / "link.npz"
    if exists:
        old.save(target)
    link.symlink_to(os.path.join("..", "a", "model.npz"))
    new.save(link)
    assert link.is_symlink()
    assert not target.is_symlink()
    assert_predicts_as(target, new)
    assert [os.listdir(tmp_path / folder) for folder in "ab"] == [["model.npz"], ["link.npz"]]


def test_what_is_no_file_is_refused(models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("folder")
    os.mkfifo("pipe")
    os.symlink("loop", "loop")
    open("file", "w").close()
    before = sorted(os.listdir())
    for name, error, match in (
        ("folder", IsADirectoryError, "folder"),
        ("pipe", ValueError, "pipe' is a device, a pipe or a socket"),
        ("nowhere/model.npz", FileNotFoundError, "nowhere"),
        ("file/model.npz", NotADirectoryError, "file"),
        ("loop", OSError, "loop"),
        ("", FileNotFoundError, "no name of a file"),
        ("folder/", FileNotFoundError, "no name of a file"),
        ("missing/", FileNotFoundError, "no name of a file"),
    ):
        refuses(match, models[0].save, name, error=error)
    assert sorted(os.listdir()) == before
    assert os.listdir("folder") == []
    # The reader does not wait for a writer at the other end.
    refuses("is a device, a pipe or a socket", GPClassifier.load, "pipe")
