"""Records: what was measured, with which code, data and machine, and when it expires.

``results/STUDY.json`` has one record for each part of a study. A record expires when its numbers may have changed. The
numbers of xgpc expire when the outputs of the golden fits move (of all, or of those without neighbours), or when xgpc
has another version; a study's ``EXPIRES`` says which of these count. The numbers of another library expire when another
version of it is installed. Times hold only if other processes took little, and next to times of the same processor.
"""

import datetime
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
OUTPUTS, OUTPUTS_WITHOUT_NEIGHBORS, VERSION = "outputs", "outputs without neighbours", "version"
# Numbers of a record that are times, in studies of accuracy.
TIMES = ("seconds", "prediction_seconds")
# Distributions of the libraries that are measured, by the name of their module.
LIBRARIES = {
    "xgpc": "xgpc", "sklearn": "scikit-learn", "lightgbm": "lightgbm", "catboost": "catboost", "xgboost": "xgboost",
    "gpytorch": "gpytorch", "gpflow": "gpflow", "autogluon": "autogluon.tabular", "botorch": "botorch",
    "pytabkit": "pytabkit", "xrfm": "xrfm", "gpboost": "gpboost", "interpret": "interpret-core",
}  # fmt: skip
# Other modules whose versions a record keeps.
BESIDES = ("numpy", "scipy", "threadpoolctl", "polyagamma", "torch", "tensorflow", "dask")
# Cores of other processes that make measured times too long.
MUCH_LOAD = 0.1


def installed(library):
    """The version of a library, None where it is not installed."""
    try:
        return version(LIBRARIES[library])
    except PackageNotFoundError:
        return None


def expired(record, expires, outputs):
    """Why a record does not hold, an empty text if it does; ``outputs`` has the numbers of today's golden outputs."""
    # The oldest records have neither their libraries nor their outputs, and have expired.
    for library in record.get("of", ["xgpc"]):
        measured, now = record["versions"].get(library), installed(library)
        other_version = now not in (None, measured)
        if library == "xgpc":
            if any(record.get("outputs", 0) < outputs[kind] for kind in expires if kind in outputs):
                return "xgpc's outputs have changed since"
            other_version = other_version and VERSION in expires
        if other_version:
            return f"measured with {library} {measured}, and {now} is installed"
    return ""


def is_timed(record, processor):
    """Whether the record's times can stand beside others of that processor."""
    return record["processor"] == processor and not record["others"] > MUCH_LOAD


def without_times(record):
    numbers = {key: value for key, value in record["numbers"].items() if key not in TIMES}
    return {**record, "numbers": numbers}


def holding(study, outputs, folder=None, processor=None, needs_times=False):
    """The records of a study that hold, by name, with times of a processor, by default that of the newest record.

    Records whose times do not hold are there without them, unless times are needed: in studies whose numbers expire
    with the version, or as said.
    """
    found = read(study.NAME, folder)
    found = {name: record for name, record in found.items() if not expired(record, study.EXPIRES, outputs)}
    if processor is None:
        processor = max(found.values(), key=lambda record: record["date"], default={}).get("processor")
    timed = {name: record for name, record in found.items() if is_timed(record, processor)}
    if needs_times or VERSION in study.EXPIRES:
        return timed
    return {name: timed.get(name) or without_times(record) for name, record in found.items()}


def read(name, folder=None):
    """All records of a study by name; none if there is no file."""
    path = (folder or RESULTS) / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))["records"] if path.exists() else {}


def write_json(path, content):
    """Replace a file as a whole, so that an interrupted run leaves the earlier one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".tmp").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    path.with_suffix(".tmp").replace(path)


def store(study, name, record, folder):
    """Put a record into the study's file, in the place of an earlier one of that name."""
    write_json(folder / f"{study}.json", {"study": study, "records": {**read(study, folder), name: record}})


def revision():
    """The commit that is checked out, and whether the library or the benchmarks differ from it."""

    def git(*arguments):
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changes = git("status", "--porcelain", "--", "xgpc", "src", "bench", ":!bench/results")
        return {"commit": git("rev-parse", "HEAD"), "changed": bool(changes)}
    except (OSError, subprocess.CalledProcessError):
        return {"commit": None, "changed": None}


def processor():
    """The processor's name, family and model as Linux has them, elsewhere the machine's name.

    A virtual machine's name alone does not tell whether the processor has AVX-512.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
        words = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
        return f"{words['model name']} (family {words['cpu family']}, model {words['model']})"
    except (OSError, KeyError):
        return platform.processor() or platform.machine()


def circumstances():
    """What a record says about its code, machine and libraries, after the measurement has loaded them."""
    known = {**LIBRARIES, **{name: name for name in BESIDES}}
    names = {name: found for name, found in known.items() if name in sys.modules}
    return {
        **revision(), "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "processor": processor(), "cores": os.cpu_count(),
        "versions": {"python": platform.python_version(), **{name: version(found) for name, found in names.items()}},
    }  # fmt: skip
