"""A saved model is whole: failures, interrupts and readers at the same time."""

import errno
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from support.reference import moons

from xgpc import GPClassifier, files
from xgpc.app.cli import main

X, Y = moons(60)


@pytest.fixture(scope="module")
def models():
    """Two models of different size."""
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

    def fail(*arguments, **options):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(os, function, fail)
        with pytest.raises(type(error)):
            new.save(path)
    assert os.listdir(tmp_path) == ["model.npz"]
    assert path.stat().st_mode & 0o777 == 0o640
    assert_predicts_as(path, old)


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
    run = subprocess.run(
        [sys.executable, "-c", program, *map(str, limits)], cwd=tmp_path, capture_output=True, text=True
    )
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


def test_the_bytes_are_on_the_disk_before_the_name_is(models, tmp_path, monkeypatch):
    """Else a loss of power could leave an empty file under the name."""
    calls, fsync, replace = [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: (calls.append(os.fstat(descriptor)), fsync(descriptor)))
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append(os.path.getsize(a)), replace(a, b)))
    path = tmp_path / "model.npz"
    models[0].save(path)
    assert calls[0].st_size == calls[1] == path.stat().st_size
    assert calls[2].st_ino == tmp_path.stat().st_ino


def test_a_directory_that_cannot_be_synchronised_does_no_harm(models, tmp_path, monkeypatch):
    fsync = os.fsync

    def fail(descriptor):
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    models[0].save(tmp_path / "model.npz")
    assert_predicts_as(tmp_path / "model.npz", models[0])


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_modes(models, tmp_path, umask):
    kept = tmp_path / "kept.npz"
    models[0].save(kept)
    kept.chmod(0o604)
    before = os.umask(umask)
    try:
        models[1].save(tmp_path / "new.npz")
        models[1].save(kept)
    finally:
        os.umask(before)
    assert (tmp_path / "new.npz").stat().st_mode & 0o777 == 0o666 & ~umask
    assert kept.stat().st_mode & 0o777 == 0o604


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


@pytest.mark.parametrize("name", ["model", "model.txt", ".npz", "mo del.npz.bak", "m" * 255])
def test_any_name_is_kept_as_it_is(models, tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path / name, name, os.fsencode(name)):
        models[0].save(path)
        assert os.listdir(tmp_path) == [name]
        assert_predicts_as(path, models[0])
    # True is a seed, but not an integer for files.
    assert GPClassifier.load(name).random_state is None


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
        with pytest.raises(error, match=match):
            models[0].save(name)
    assert sorted(os.listdir()) == before
    assert os.listdir("folder") == []
    # The reader does not wait for a writer at the other end.
    with pytest.raises(ValueError, match="is a device, a pipe or a socket"):
        GPClassifier.load("pipe")


def test_a_file_that_may_not_be_written_is_not_replaced(models, tmp_path, monkeypatch):
    path = tmp_path / "model.npz"
    models[0].save(path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "access", lambda name, mode: os.path.isdir(name))
        with pytest.raises(PermissionError, match="permission denied"):
            models[1].save(path)
    assert_predicts_as(path, models[0])


def test_the_command_line_refuses_a_pipe_for_a_model_before_it_fits(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(GPClassifier, "fit", lambda *arguments: pytest.fail("fitted"))
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "data.csv").write_text("a,y\n1,u\n2,v\n3,u\n")
    arguments = ["fit", str(tmp_path / "data.csv"), "--target", "y", "--model", str(tmp_path / "pipe")]
    assert main(arguments) == 2
    assert "is a device, a pipe or a socket" in capsys.readouterr().err
    assert files.is_special(tmp_path / "pipe")
