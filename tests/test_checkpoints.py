"""Fits that are killed and go on from their checkpoint."""

import errno
import itertools
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.gaussian_process.kernels import RBF
from sklearn.preprocessing import StandardScaler
from support.fits import quietly
from support.reference import moons

from xgpc import GPClassifier, checkpoint, files
from xgpc.learning import own_kernels
from xgpc.rows.deadline import Deadline

X, Y = moons()
PARAMS = {"random_state": 0, "n_inducing": 8, "tol": 1e-6, "max_iter": 300, "length_scale_prior": None}


class Killed(BaseException):
    """A fit that ends as if its process did: nothing of it goes on."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Every milestone is written."""
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN", 0.0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "fit.npz"


def iris():
    X, y = load_iris(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def write_and_die(monkeypatch, after):
    """The fit is killed after so many checkpoints; a list counts those."""
    written, honest = [], checkpoint.Checkpoint._write

    def write(self, best):
        honest(self, best)
        written.append(best)
        if len(written) == after:
            raise Killed

    monkeypatch.setattr(checkpoint.Checkpoint, "_write", write)
    return written


def killed(monkeypatch, model, X, y, after):
    with monkeypatch.context() as patched:
        write_and_die(patched, after)
        with pytest.raises(Killed):
            quietly(model, X, y)


KINDS = {
    "stages": (moons, {"subset_sizes": [60, 200]}),
    "growth": (moons, {"n_inducing": "auto", "tol": 1e-4}),
    "restarts": (moons, {"n_restarts_optimizer": 2, "kernel": RBF(1.0, (0.1, 10.0))}),
    "label noise": (moons, {"likelihood": "step"}),
    "rates": (moons, {"likelihood": "psychometric", "guess_rate": "learn", "lapse_rate": 0.02}),
    "full": (lambda: moons(60), {"inducing_points": "all"}),
    "alternate": (moons, {"bound": "polya-gamma", "optimizer": "alternate", "tol": 1e-4, "max_iter": 60}),
    "adam": (lambda: moons(60), {"optimizer": "adam", "tol": 1e-4, "max_iter": 15}),
    "classes": (iris, {"tol": 1e-5, "n_neighbors": 0}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_fit_goes_on_to_the_same_optimum(kind, path, monkeypatch):
    monkeypatch.setattr(own_kernels, "LEAST_ROWS", 100)
    data, own = KINDS[kind]
    X, y = data()
    params = {**PARAMS, **own}
    # By "tol" the last five iterations gained as much on average. Bounds with label noise have several optima that are
    # about as high, and what comes after a checkpoint can lead to another.
    nats = 0.5 if kind == "label noise" else 10 * params["tol"] * 500.0
    with monkeypatch.context() as patched:
        milestones = write_and_die(patched, after=0)
        whole = quietly(GPClassifier(**params, checkpoint=path), X, y)
    assert not path.exists()
    for after in {2, len(milestones) // 2} if kind == "stages" else {len(milestones) // 2}:
        killed(monkeypatch, GPClassifier(**params, checkpoint=path), X, y, after)
        model = quietly(GPClassifier(**params, checkpoint=path), X, y)
        assert not path.exists()
        assert any("resumes from the checkpoint" in text for text in model.history_["decision"])
        assert model.elbo_ == pytest.approx(whole.elbo_, abs=nats)
        assert model.share_ == whole.share_


def test_a_checkpoint_changes_no_bit(path):
    with_one = quietly(GPClassifier(**PARAMS, checkpoint=path), X, Y)
    assert with_one.elbo_ == quietly(GPClassifier(**PARAMS), X, Y).elbo_


SCRIPT = """
import signal, sys
from sklearn.datasets import make_moons
from xgpc import GPClassifier, checkpoint

checkpoint.SECONDS_BETWEEN = 0.0
honest = checkpoint.Checkpoint._write
count = 0

def write(self, milestone):
    global count
    honest(self, milestone)
    count += 1
    if count == 4:
        print("written", flush=True)
        signal.pause()

checkpoint.Checkpoint._write = write
X, y = make_moons(200, noise=0.25, random_state=0)
params = {"random_state": 0, "n_inducing": 8, "tol": 1e-6, "max_iter": 300, "length_scale_prior": None}
GPClassifier(**params, checkpoint=sys.argv[1]).fit(X, y)
"""


def test_a_process_that_is_terminated_leaves_a_checkpoint_to_go_on_from(path):
    with subprocess.Popen([sys.executable, "-c", SCRIPT, path], stdout=subprocess.PIPE, cwd=path.parent) as process:
        assert process.stdout.readline().strip() == b"written"
        process.send_signal(signal.SIGTERM)
        assert process.wait() == -signal.SIGTERM
    assert os.listdir(path.parent) == [path.name]
    model = quietly(GPClassifier(**PARAMS, checkpoint=path), X, Y)
    assert any("resumes from" in text for text in model.history_["decision"])
    assert model.elbo_ == pytest.approx(quietly(GPClassifier(**PARAMS), X, Y).elbo_, abs=5e-3)


class Ticking(GPClassifier):
    """With a clock that each reading moves on by one: time runs out after ``max_time`` of them."""

    def _deadline(self):
        readings = itertools.count()
        return Deadline(self.max_time, lambda: float(next(readings)))


def test_time_that_runs_out_leaves_a_checkpoint(path):
    params = {**PARAMS, "checkpoint": path}
    short = quietly(Ticking(**params, max_time=400), X, Y)
    assert not short.converged_
    assert path.exists()
    model = quietly(GPClassifier(**params), X, Y)
    assert model.converged_
    assert not path.exists()


OTHERS = {
    "rows": (moons(150), {}, r"the number of rows \(200 in the file, 150 now\)"),
    "labels": ((X, 1 - Y), {}, "the labels y"),
    "names of labels": ((X, np.array(["a", "b"])[Y]), {}, "the classes"),
    "features": ((X + 1.0, Y), {}, "the features X"),
    "weights": ((X, Y, np.linspace(1, 2, len(Y))), {}, "the sample weights"),
    "kernel": (
        (X, Y),
        {"kernel": RBF(2.0)},
        r"the parameter kernel \(None in the file, RBF\(length_scale=2\) \[\w+\] now\)",
    ),
    "tol": ((X, Y), {"tol": 1e-3}, r"the parameter tol \(1e-06 in the file, 0.001 now\)"),
    "points": ((X, Y), {"inducing_points": X[:5]}, "the parameter inducing_points"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_checkpoint_of_another_fit_is_refused(what, path, monkeypatch):
    killed(monkeypatch, GPClassifier(**PARAMS, checkpoint=path), X, Y, 2)
    kept = path.read_bytes()
    data, params, words = OTHERS[what]
    model = GPClassifier(**{**PARAMS, **params}, checkpoint=path)
    before = dict(vars(model))
    with pytest.raises(
        ValueError, match=rf"of another fit, which differs in .*{words}.*another path; .* delete the file"
    ):
        model.fit(*data)
    assert vars(model) == before
    assert path.read_bytes() == kept


def test_a_full_disk_ends_no_fit_and_keeps_the_file_of_before(path, monkeypatch):
    params = {**PARAMS, "checkpoint": path}
    killed(monkeypatch, GPClassifier(**params), X, Y, 2)
    kept, seen, honest = path.read_bytes(), [], checkpoint.Checkpoint.offer

    def offer(self, best, at_once=False):
        honest(self, best, at_once)
        seen.append(path.read_bytes() == kept)

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    monkeypatch.setattr(checkpoint.Checkpoint, "offer", offer)
    with pytest.warns(UserWarning, match="could not be written: .*No space left") as caught:
        model = GPClassifier(**params).fit(X, Y)
    assert sum("could not be written" in str(one.message) for one in caught) == 1
    assert len(seen) > 1
    assert all(seen)
    assert model.converged_
    assert os.listdir(path.parent) == []


def test_fits_that_have_begun_with_the_same_path_do_not_mix(path, monkeypatch):
    """The first to write has the file; the other one says so, and makes what it would without."""
    kept = []

    def meanwhile(state):
        if state.stage == "learning" and not kept:
            killed(monkeypatch, GPClassifier(**PARAMS, checkpoint=path), X, Y, 2)
            kept.append(path.read_bytes())

    params = {**PARAMS, "n_inducing": 6}
    model = GPClassifier(**params, checkpoint=path, callback=meanwhile)
    with pytest.warns(
        UserWarning, match=r"another fit has written it .*in the labels y, .* n_inducing \(.*; give each"
    ):
        model.fit(X, 1 - Y)
    assert path.read_bytes() == kept[0]
    assert model.elbo_ == quietly(GPClassifier(**params), X, 1 - Y).elbo_
    other = quietly(GPClassifier(**PARAMS, checkpoint=path), X, Y)
    assert any("resumes from" in text for text in other.history_["decision"])
    assert not path.exists()


def test_a_new_start_beside_a_previous_fit_does_not_resume_it(path):
    """The previous fit learned from labels without a pattern; its checkpoint would bring it back."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 3))
    options = {"random_state": 0, "n_neighbors": 0, "warm_start": True}
    models = GPClassifier(**options, checkpoint=path), GPClassifier(**options)
    for model in models:
        quietly(model, rows, rng.permutation(np.arange(300) % 2))
        quietly(model, rows, (rows[:, 0] > 0.0).astype(int))
        assert model.score(rows, rows[:, 0] > 0.0) > 0.95
