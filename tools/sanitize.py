"""The compiled core under sanitizers: its tests, and its block functions in several threads.

    python tools/sanitize.py [TEST ...]
    python tools/sanitize.py --threads

The first builds the package with AddressSanitizer and UndefinedBehaviorSanitizer into an environment of its own, which
takes all other packages from the present one, and runs the given tests, or all that call the core directly; any finding
ends them. Half an hour; a part: python tools/sanitize.py tests/test_local.py. The second builds ``tools/threads.c``
with the C files, and then the package, with ThreadSanitizer; it runs that program and the tests with several threads,
and prints "clean" if it finds nothing; three minutes. Linux and GCC.
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = (
    "vmath", "sites", "binary_sites", "multiclass_sites", "likelihoods", "kernels", "axis_matern", "gradients", "tiles",
    "rows", "precision", "inference", "full", "local", "links", "memory_maps",
)  # fmt: skip
THREAD_TESTS = ("free_threading", "neighbours", "rows", "local")
# Symbols of the sanitizers are those of the process.
BUILD = {"b_lundef": "false", "buildtype": "debugoptimized"}
MEMORY = {**BUILD, "b_sanitize": "address,undefined", "c_args": "-fno-sanitize-recover=all"}
# Functions that choose the instructions while a library is loaded would call the sanitizer before it is ready.
RACES = {**BUILD, "b_sanitize": "thread", "dispatch": "false"}


# Registers of two numbers, which every machine has; other widths are the same source.
PROGRAM = (
    "gcc", "-std=gnu11", "-g", "-O1", "-fsanitize=thread", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi",
    "-Isrc/xgpc", "tools/threads.c", "-pthread", "-o",
)  # fmt: skip


def environment(folder):
    """The interpreter of a new environment, which finds the packages of the present one but no editable install."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    scheme = {"base": str(folder), "platbase": str(folder)}
    site = Path(sysconfig.get_path("purelib", "venv", vars=scheme))
    # What .pth files there begin, such as the hooks of editable installs, does not run for a folder that is added so.
    (site / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    return python


def build(python, settings):
    """Install the package with sanitizers."""
    settings = [f"-Csetup-args=-D{name}={value}" for name, value in settings.items()]
    command = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--force-reinstall"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    subprocess.run([*command, *settings, ROOT], check=True, env={**os.environ, "PATH": path})
    # Of the present environment's package nothing would be found.
    find = "from importlib.util import find_spec; print(find_spec('xgpc').origin)"
    found = Path(subprocess.check_output([python, "-P", "-c", find], text=True).strip())
    if not found.is_relative_to(python.parents[1]):
        raise SystemExit(f"The tests would take the package at {found.parent}.")


def run(python, tests, *libraries):
    """Run the tests with these libraries loaded before all others; the exit status."""
    paths = [subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip() for name in libraries]
    variables = {
        "LD_PRELOAD": " ".join(os.path.realpath(path) for path in paths),
        # The interpreter keeps memory until its end.
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        # Freed memory is then the sanitizer's, not the interpreter's own allocator's.
        "PYTHONMALLOC": "malloc",
    }
    # -P: the sources are not taken for the package.
    command = [python, "-P", "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}).returncode


def files(names):
    return [f"tests/test_{name}.py" for name in names]


def main(arguments):
    with tempfile.TemporaryDirectory() as folder:
        python = environment(Path(folder) / "venv")
        if arguments != ["--threads"]:
            build(python, MEMORY)
            # C++ is there for its exceptions, which the sanitizer intercepts.
            return run(python, arguments or files(TESTS), "libasan.so", "libubsan.so", "libstdc++.so")
        program = Path(folder) / "threads"
        sources = sorted(set((ROOT / "src" / "xgpc").glob("*.c")) - {ROOT / "src" / "xgpc" / "dispatch.c"})
        subprocess.run([*PROGRAM, program, *sources, "-lm"], cwd=ROOT, check=True)
        subprocess.run([program], check=True)
        build(python, RACES)
        # A race is status 66 at the end of the process.
        status = run(python, [*files(THREAD_TESTS), "-k", "thread or jobs or share or same_time"], "libtsan.so")
        print("a finding, see above" if status else "clean")
        return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
