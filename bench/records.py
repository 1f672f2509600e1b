"""Records of results: what was measured, with which code, data and machine, and whether it still holds.

``results/STUDY.json`` has a record for each part of a study, a data set as a rule. A record names the commit, and the
hash of those files of the library that its study depends on. It is stale when that hash is no longer the one of the
files; it is busy when other processes took more than ``BUSY_CORES`` while it was measured.
"""

import datetime
import hashlib
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from threadpoolctl import threadpool_info

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
# Cores taken by others that a comparison of times does not stand. GPyTorch's threads wait for each other in every
# operation of every step: on 2 cores, one of them taken by another process, it fell from 140 steps a second to 2.
BUSY_CORES = 0.05
# All that fits and predictions depend on; a later pattern with "!" takes files away.
LIBRARY = (
    "xgpc/**/*", "src/**/*", "!xgpc/**/plotting.py", "!xgpc/**/linear*.py", "!xgpc/**/row_span.py",
    "!xgpc/**/catalogue.py", "!xgpc/**/prior_variance.py", "!xgpc/gibbs/*", "!xgpc/app/*", "!xgpc/onnx/*",
)  # fmt: skip
SAMPLER = (*LIBRARY, "xgpc/gibbs/*")
SOURCES = {".py", ".pyx", ".pxd", ".c", ".h", ".build"}
# Modules whose versions a record keeps where a study has loaded them, and their distributions.
MODULES = {
    "numpy": "numpy", "scipy": "scipy", "sklearn": "scikit-learn", "threadpoolctl": "threadpoolctl",
    "polyagamma": "polyagamma", "torch": "torch", "gpytorch": "gpytorch", "tensorflow": "tensorflow",
    "gpflow": "gpflow", "lightgbm": "lightgbm", "catboost": "catboost", "gpboost": "gpboost",
}  # fmt: skip


def files(patterns, root=ROOT):
    """Source files below root that the patterns leave, in sorted order."""
    found = set()
    for pattern in patterns:
        if pattern.startswith("!"):
            found.difference_update(root.glob(pattern[1:]))
            continue
        matches = {path for path in root.glob(pattern) if path.suffix in SOURCES}
        if not matches:
            raise ValueError(f"no source file matches {pattern!r}: name those that the study depends on now")
        found |= matches
    return sorted(found, key=lambda path: path.relative_to(root).as_posix())


def hash_of(patterns, root=ROOT):
    """Hash of the names and contents of the files that match."""
    digest = hashlib.sha256()
    for path in files(patterns, root):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def revision():
    """The commit that is checked out, and whether the library and the benchmarks differ from it."""

    def git(*arguments):
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", "xgpc", "src", "meson.build", "bench", ":!bench/results")
        return {"commit": git("rev-parse", "HEAD"), "changed": bool(changed)}
    except (OSError, subprocess.CalledProcessError):
        return {"commit": None, "changed": None}


def processor():
    """The processor's model."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def libraries():
    """Versions of Python, of the libraries that are loaded, and of their BLAS and OpenMP."""
    versions = {"python": platform.python_version()}
    versions |= {module: version(name) for module, name in MODULES.items() if module in sys.modules}
    pools = {(pool["internal_api"], pool["version"], pool.get("architecture")) for pool in threadpool_info()}
    return {"versions": versions, "threads": [list(pool) for pool in sorted(pools, key=str)]}


def circumstances(patterns):
    """What a record says about its code and machine, found before the measurements."""
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {**revision(), "files": hash_of(patterns), "date": date, "processor": processor(), "cores": os.cpu_count()}


def read(study, folder=None):
    """Records of a study by name, of bench/results if no folder is given; none if there is no file."""
    path = (folder or RESULTS) / f"{study}.json"
    return json.loads(path.read_text(encoding="utf-8"))["records"] if path.exists() else {}


def store(study, name, record, folder):
    """Put a record into the study's file, in the place of an earlier one of that name."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"study": study, "records": {**read(study, folder), name: record}}
    path = folder / f"{study}.json"
    path.with_suffix(".tmp").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    path.with_suffix(".tmp").replace(path)


def objections(record, current, timed):
    """Why a record must not be shown as what this code does: a list of sentences, empty for a good one.

    ``current`` is the hash of the files of the study now; ``timed`` says whether the study's numbers are times.
    """
    found = []
    at = "an unknown commit" if record["commit"] is None else f"commit {record['commit'][:9]}"
    if record["changed"]:
        at += " with changes that it does not have"
    if record["files"] is None:
        stored = f", first stored with commit {record['stored_with'][:9]}" if "stored_with" in record else ""
        found.append(f"stale: made at {at} before hashes were kept{stored}")
    elif record["files"] != current:
        found.append(f"stale: made at {at}, before later changes of the library")
    if timed and record["others"] is None:
        found.append("load unknown: what other processes took was not kept")
    elif timed and not record["others"] <= BUSY_CORES:
        found.append(f"busy: other processes took {record['others']:.2f} cores")
    return found


def command(study, options, sets=(), data=False):
    """The command that measures these data sets with these options."""
    words = ["python bench/run.py", study, *(["--data FOLDER"] if data else [])]
    if sets:
        words += ["--sets", *sets]
    for name, value in options.items():
        values = value if isinstance(value, list | tuple) else [value]
        words += [f"--{name.replace('_', '-')}", *map(str, values)]
    return " ".join(words)
