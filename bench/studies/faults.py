"""Saved models under faults.

Full disks, killed processes, readers at the same time, damaged and crafted files. Every save that fails or is killed
must leave the old model readable; every file must be refused with a ValueError, or predict the same bits, within a
second and 100 MB beyond what the arrays' own headers declare. The file system of 64 kB takes the right to mount one;
without it that line says so.
"""

import contextlib
import io
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
import warnings
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
from markdown_tables import table
from records import LIBRARY
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF

from xgpc import GPClassifier

from . import Option, Part

# What is counted does not depend on the load of others.
DEPENDS, TIMED = LIBRARY, False
OPTIONS = {"flips": Option(3000, "files with flipped bytes"), "kills": Option(50, "processes"),
           "seconds": Option(4.0, "of the reader")}  # fmt: skip
QUICK = {"flips": 60, "kills": 3, "seconds": 0.5}
X, TWO = make_moons(40, noise=0.25, random_state=0)
THREE = TWO + (X[:, 0] > 1.0)
MODELS = {
    "sparse": (GPClassifier(n_inducing=8, max_iter=3, random_state=0), TWO),
    "several classes": (GPClassifier(n_inducing=4, max_iter=3, random_state=0), THREE),
    "one kernel each": (GPClassifier(n_inducing=4, share="none", max_iter=3, random_state=0), THREE),
    "full": (GPClassifier(RBF() ** 2, inducing_points="all", max_iter=3, random_state=0), TWO),
    "corrected": (GPClassifier(n_inducing=4, bound="polya-gamma", max_iter=3, random_state=0), TWO),
    "noisy": (GPClassifier(likelihood="multinomial-step", n_inducing=4, max_iter=3, random_state=0), THREE),
}
SAVING = "import sys\nfrom xgpc import GPClassifier\nmodel = GPClassifier.load(sys.argv[1])\nprint(flush=True)\n"
FOREVER = SAVING + "while True:\n    model.save(sys.argv[2])\n"
SMALL_DISK = 64 * 1024
# Of the crafted file whose member nothing needs.
UNUSED_BYTES = 800_000_000


def readable(path, expected):
    """Whether a model can be loaded and predicts one of the expected bits."""
    try:
        return GPClassifier.load(path).predict_proba(X).tobytes() in expected
    except ValueError:
        return False


def on_a_small_disk(folder, old, new):
    """Saves of a model larger than the disk: how many failed, and after how many the old one was readable."""
    disk = folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        return None
    try:
        old.save(disk / "model.npz")
        expected = {old.predict_proba(X).tobytes()}
        failed = kept = 0
        trials = 20
        for _ in range(trials):
            try:
                new.save(disk / "model.npz")
            except OSError:
                failed += 1
            kept += readable(disk / "model.npz", expected) and os.listdir(disk) == ["model.npz"]
        return {"trials": trials, "failed": failed, "old model readable": kept}
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def with_limited_file_sizes(folder, old, new):
    """The same under limits of a file's size from nothing to nearly all of it."""
    path = folder / "limited.npz"
    old.save(path)
    size = path.stat().st_size
    expected, limits = {old.predict_proba(X).tobytes()}, np.linspace(0, 0.99 * size, 50).astype(int)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    failed = kept = 0
    for limit in limits.tolist():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        try:
            new.save(path)
        except OSError:
            failed += 1
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        kept += readable(path, expected)
    return {"trials": len(limits), "failed": failed, "old model readable": kept}


def with_kills(folder, old, kills):
    """Processes that save without pause, each killed at a moment of its own."""
    path, source = folder / "killed.npz", folder / "source.npz"
    for target in (path, source):
        old.save(target)
    expected, rng = {old.predict_proba(X).tobytes()}, np.random.default_rng(0)
    kept = interrupted = 0
    for _ in range(kills):
        with subprocess.Popen([sys.executable, "-c", FOREVER, source, path], stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            time.sleep(rng.uniform(0.0, 0.1))
            process.send_signal(signal.SIGKILL)
        kept += readable(path, expected)
        left = list(folder.glob(".xgpc-*.tmp"))
        interrupted += bool(left)
        for name in left:
            name.unlink()
    return {"trials": kills, "killed while writing": interrupted, "old model readable": kept}


def with_a_reader(folder, models, seconds):
    """One thread that saves two models in turn, and one that loads."""
    path, stop, saves = folder / "shared.npz", threading.Event(), [0]
    models[0].save(path)
    expected = {model.predict_proba(X).tobytes() for model in models}

    def save():
        while not stop.is_set():
            models[saves[0] % 2].save(path)
            saves[0] += 1

    writer = threading.Thread(target=save)
    writer.start()
    loads = refused = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        refused += not readable(path, expected)
        loads += 1
    stop.set()
    writer.join()
    return {"saves": saves[0], "loads": loads, "refused loads": refused}


def verdict(path, expected):
    """What becomes of a file ("refused", "same bits" or "other bits"), the seconds it takes, and its memory in MB."""
    start = time.perf_counter()
    try:
        said = GPClassifier.load(path).predict_proba(X).tobytes()
        found = "same bits" if said == expected else "other bits"
    except ValueError:
        found = "refused"
    seconds = time.perf_counter() - start
    tracemalloc.start()
    with contextlib.suppress(ValueError):
        GPClassifier.load(path)
    memory = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return found, seconds, memory


def with_flipped_bytes(folder, fitted, flips):
    """One to three random bytes of a file changed; for all models together."""
    rng, path, verdicts = np.random.default_rng(0), folder / "flipped.npz", []
    for model in fitted.values():
        model.save(path)
        content, expected = path.read_bytes(), model.predict_proba(X).tobytes()
        for trial in range(flips // len(fitted)):
            damaged = bytearray(content)
            for _ in range(1 + trial % 3):
                damaged[rng.integers(len(content))] ^= rng.integers(1, 256)
            path.write_bytes(damaged)
            verdicts.append(verdict(path, expected))
    kinds, seconds, memory = zip(*verdicts, strict=True)
    counts = {kind: kinds.count(kind) for kind in ("refused", "same bits", "other bits")}
    return {"trials": len(kinds), **counts, "most seconds": max(seconds), "most MB": max(memory)}


def crafted(content, kind):
    """A valid archive of a model that is none, of the named kind; its header and arrays are changed."""
    with np.load(io.BytesIO(content)) as archive:
        arrays = dict(archive)
    header = json.loads(arrays["header"].tobytes())
    kernel = {"type": "RBF", "length_scale": 1.0, "length_scale_bounds": "fixed"}
    if kind == "exponent of 10^9":
        header["kernels"] = [{"type": "Exponentiation", "kernel": kernel, "exponent": 10**9}]
    elif kind == "noise to the 10^9":
        noise = {"type": "WhiteKernel", "noise_level": 1.0, "noise_level_bounds": "fixed"}
        header["kernels"] = [{"type": "Exponentiation", "kernel": noise, "exponent": 10**9}]
    elif kind == "tree of 2^15 kernels":
        for _ in range(15):
            kernel = {"type": "Sum", "k1": kernel, "k2": kernel}
        header["kernels"] = [kernel]
    elif kind == "unused 800 MB":
        arrays["unused"] = np.zeros(UNUSED_BYTES, dtype=np.int8)
    elif kind == "h of 800 MB":
        arrays["h"] = np.zeros(UNUSED_BYTES // 8)
    elif kind == "NaN in h":
        arrays["h"][0] = np.nan
    elif kind == "equal classes":
        arrays["classes"][:] = arrays["classes"][0]
    elif kind == "reversed classes":
        arrays["classes"] = arrays["classes"][::-1]
    elif kind == "label noise 7":
        arrays["label_noise"] = np.float64(7.0)
    elif kind == "unknown bound":
        header["likelihood_and_bound"][1] = "unknown"
    elif kind == "header of 10^6 lists":
        header["kernels"] = [[]] * 10**6
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    if kind == "compressed":
        np.savez_compressed(buffer, **arrays)
    else:
        np.savez(buffer, **arrays)
    if kind == "4000 members":
        with zipfile.ZipFile(buffer, "a") as archive:
            for i in range(4000):
                archive.writestr(f"history_{i}.npy", b"")
    return buffer.getvalue()


CRAFTED = (
    "exponent of 10^9", "noise to the 10^9", "tree of 2^15 kernels", "unused 800 MB", "h of 800 MB", "NaN in h",
    "equal classes", "reversed classes", "label noise 7", "unknown bound", "header of 10^6 lists", "compressed",
    "4000 members",
)  # fmt: skip


def with_crafted_files(folder, model):
    path, results = folder / "crafted.npz", {}
    model.save(path)
    content, expected = path.read_bytes(), model.predict_proba(X).tobytes()
    for kind in CRAFTED:
        path.write_bytes(crafted(content, kind))
        results[kind] = verdict(path, expected)
    path.unlink()
    os.mkfifo(path)
    results["named pipe"] = verdict(path, expected)
    return {kind: dict(zip(("found", "seconds", "MB"), found, strict=True)) for kind, found in results.items()}


def fitted_models():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = {name: model.fit(X, y) for name, (model, y) in MODELS.items()}
        rows = np.random.default_rng(0).normal(size=(400, 2))
        large = GPClassifier(n_inducing=120, optimizer=None, random_state=0).fit(rows, rows[:, 0] > 0.0)
    return fitted, large


def parts(options):
    fitted, large = fitted_models()
    old, other = fitted["sparse"], fitted["corrected"]
    trials = {
        "disk of 64 kB": lambda folder: on_a_small_disk(folder, old, large),
        "limits of file size": lambda folder: with_limited_file_sizes(folder, old, large),
        "kill -9": lambda folder: with_kills(folder, old, options.kills),
        "a reader at the same time": lambda folder: with_a_reader(folder, [old, other], options.seconds),
        "flipped bytes": lambda folder: with_flipped_bytes(folder, fitted, options.flips),
        "crafted files": lambda folder: with_crafted_files(folder, old),
    }

    def in_a_folder(trial):
        with tempfile.TemporaryDirectory() as name:
            return {"found": trial(Path(name))}

    for name, trial in trials.items():
        yield Part(name, partial(in_a_folder, trial))


def words(result):
    if result is None:
        return "not run, as mounting is not permitted here"
    parts = (f"{name} {value:.2g}" if isinstance(value, float) else f"{name} {value}" for name, value in result.items())
    return ", ".join(parts)


def report(records):
    rows = []
    for name, record in records.items():
        found = record["numbers"]["found"]
        if name == "crafted files":
            rows += [[f"crafted: {kind}", words(result)] for kind, result in found.items()]
        else:
            rows.append([name, words(found)])
    return table(["fault", "found"], rows)
