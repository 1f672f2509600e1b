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


@pytest.fixture(scope="module")
def models():
    """Two models of different size, and rows to predict."""
    X, y = moons(60)
    return [GPClassifier(n_inducing=m, optimizer=None, random_state=0).fit(X, y) for m in (5, 9)], X


def assert_predicts_as(path, model, X):
    assert np.array_equal(GPClassifier.load(path).predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("function", ["fsync", "replace", "chmod"])
@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_model_and_nothing_else(models, tmp_path, monkeypatch, function, error):
    (old, new), X = models
    path = tmp_path / "model.npz"
    old.save(path)
    path.chmod(0o640)

    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr(os, function, fail)
    with pytest.raises(type(error)):
        new.save(path)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["model.npz"]
    assert path.stat().st_mode & 0o777 == 0o640
    assert_predicts_as(path, old, X)


def test_a_failed_write_to_a_new_name_leaves_nothing(models, tmp_path, monkeypatch):
    def savez(file, **arrays):
        file.write(b"part")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", savez)
    with pytest.raises(OSError, match="No space left"):
        models[0][0].save(tmp_path / "model.npz")
    assert os.listdir(tmp_path) == []


def test_a_full_disk_leaves_the_old_model(models, tmp_path):
    (old, new), X = models
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
        "    try:\n"
        "        model.save('model.npz')\n"
        "    except OSError as error:\n"
        "        print(error.errno, len(os.listdir()))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, *map(str, limits)], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.stderr == ""
    assert run.stdout.splitlines() == [f"{errno.EFBIG} 2"] * len(limits)
    assert_predicts_as(path, old, X)


def test_readers_find_a_whole_model_while_it_is_saved(models, tmp_path):
    fitted, X = models
    path = tmp_path / "model.npz"
    fitted[0].save(path)
    allowed = {model.predict_proba(X).tobytes() for model in fitted}
    stop = threading.Event()

    def save():
        while not stop.is_set():
            for model in fitted:
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
    models[0][0].save(path)
    assert calls[0].st_size == calls[1] == path.stat().st_size
    assert calls[2].st_ino == tmp_path.stat().st_ino


def test_a_directory_that_cannot_be_synchronised_does_no_harm(models, tmp_path, monkeypatch):
    fsync = os.fsync

    def fail(descriptor):
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    models[0][0].save(tmp_path / "model.npz")
    assert_predicts_as(tmp_path / "model.npz", models[0][0], models[1])


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_modes(models, tmp_path, umask):
    (old, new), _ = models
    kept = tmp_path / "kept.npz"
    old.save(kept)
    kept.chmod(0o604)
    before = os.umask(umask)
    try:
        new.save(tmp_path / "new.npz")
        new.save(kept)
    finally:
        os.umask(before)
    assert (tmp_path / "new.npz").stat().st_mode & 0o777 == 0o666 & ~umask
    assert kept.stat().st_mode & 0o777 == 0o604


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_its_target_is_written(models, tmp_path, exists):
    (old, new), X = models
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    target, link = tmp_path / "a" / "model.npz", tmp_path / "b" / "link.npz"
    if exists:
        old.save(target)
    link.symlink_to(os.path.join("..", "a", "model.npz"))
    new.save(link)
    assert link.is_symlink()
    assert not target.is_symlink()
    assert_predicts_as(target, new, X)
    assert os.listdir(tmp_path / "a") == ["model.npz"]
    assert os.listdir(tmp_path / "b") == ["link.npz"]


@pytest.mark.parametrize("name", ["model", "model.txt", ".npz", "mo del.npz.bak", "m" * 255])
def test_any_name_is_kept_as_it_is(models, tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path / name, name):
        models[0][0].save(path)
        assert os.listdir(tmp_path) == [name]
        assert_predicts_as(path, models[0][0], models[1])


def test_what_is_no_file_is_refused(models, tmp_path):
    model = models[0][0]
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    before = sorted(os.listdir(tmp_path))
    for name, error in (
        ("folder", IsADirectoryError),
        ("pipe", ValueError),
        ("nowhere/model.npz", FileNotFoundError),
        ("file/model.npz", NotADirectoryError),
        ("loop", OSError),
    ):
        with pytest.raises(error, match=name.split("/")[0]):
            model.save(tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == before
    # Neither waits for a writer at the other end.
    with pytest.raises(ValueError, match="is a device, a pipe or a socket"):
        GPClassifier.load(tmp_path / "pipe")


def test_a_file_that_may_not_be_written_is_not_replaced(models, tmp_path, monkeypatch):
    path = tmp_path / "model.npz"
    models[0][0].save(path)
    monkeypatch.setattr(os, "access", lambda name, mode: os.path.isdir(name))
    with pytest.raises(PermissionError, match="permission denied"):
        models[0][1].save(path)
    monkeypatch.undo()
    assert_predicts_as(path, models[0][0], models[1])


def test_the_command_line_refuses_a_pipe_for_a_model_before_it_fits(tmp_path, capsys, monkeypatch):
    def fit(self, X, y):
        raise AssertionError("fitted")

    monkeypatch.setattr(GPClassifier, "fit", fit)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "data.csv").write_text("a,y\n1,u\n2,v\n3,u\n")
    arguments = ["fit", str(tmp_path / "data.csv"), "--target", "y", "--model", str(tmp_path / "pipe")]
    assert main(arguments) == 2
    assert "is a device, a pipe or a socket" in capsys.readouterr().err
    assert files.is_special(tmp_path / "pipe")


@pytest.mark.parametrize("name", ["", "folder/", "missing/"])
def test_what_names_no_file_is_refused_and_leaves_nothing(name, tmp_path, monkeypatch):
    X, y = moons(40)
    model = GPClassifier(n_inducing=5, optimizer=None, random_state=0).fit(X, y)
    (tmp_path / "work" / "folder").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    with pytest.raises(FileNotFoundError, match="no name of a file"):
        model.save(name)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["work", "work/folder"]


def test_names_may_be_bytes(tmp_path):
    X, y = moons(40)
    model = GPClassifier(n_inducing=5, optimizer=None, random_state=True).fit(X, y)
    name = os.fsencode(tmp_path / "model.npz")
    model.save(name)
    loaded = GPClassifier.load(name)
    assert np.array_equal(loaded.predict_proba(X), model.predict_proba(X))
    # True is a seed, but no integer as files have it.
    assert loaded.random_state is None
