"""Measure a study and store its records.

    python bench/run.py STUDY [--data FOLDER] [--sets NAME ...] [options]     python bench/run.py STUDY --help

FOLDER holds a file NAME.npz with arrays X and y for every data set that is not made here. A record replaces an earlier
one of its name in bench/results/STUDY.json as soon as it is measured; python bench/report.py then writes the tables.
Run it on an idle machine: report.py refuses times that were measured while others took more than .05 cores.
"""

import argparse
import sys
from pathlib import Path

import records
import studies
from measure import Others

import xgpc


def parser_of(name, study, quick):
    parser = argparse.ArgumentParser(
        prog=f"python bench/run.py {name}", description=study.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    if hasattr(study, "SETS"):
        parser.add_argument("--data", type=Path, metavar="FOLDER", help="with a file NAME.npz for each data set")
        parser.add_argument("--sets", nargs="+", default=list(study.SETS), metavar="NAME", help=", ".join(study.SETS))
    for option, (default, text, kind) in study.OPTIONS.items():
        several = isinstance(default, tuple)
        parser.add_argument(
            f"--{option.replace('_', '-')}", nargs="+" if several else None, default=default,
            type=kind or type(default[0] if several else default), help=f"{text} (default: {default})",
        )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="a tiny run to see that it works, not stored by itself")
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="of the records (default: bench/results)")
    if quick:
        parser.set_defaults(**study.QUICK)
    return parser


def changed(study, options):
    """Options that differ from the study's defaults."""
    chosen = {name: getattr(options, name) for name in study.OPTIONS}
    same = {name: list(d) if isinstance(d := option.default, tuple) else d for name, option in study.OPTIONS.items()}
    return {k: v for k, v in chosen.items() if (list(v) if isinstance(v, tuple) else v) != same[k]}


def measured(name, study, options):
    """The study's records by name, each when it is ready."""
    # Of another checkout the hash would be a lie.
    if Path(xgpc.__file__).parent != records.ROOT / "xgpc":
        raise SystemExit("The benchmarks measure the library of their own checkout: pip install --no-build-isolation "
                         f"-e {records.ROOT}")  # fmt: skip
    about, chosen = records.circumstances(study.DEPENDS), changed(study, options)
    for part in study.parts(options):
        with Others() as others:
            numbers = part.measure()
        sets = () if part.set is None else (part.set,)
        files = part.set is not None and options.data is not None
        command = records.command(name, chosen, sets, files)
        yield part.name, {
            "command": command, "options": chosen, "set": part.set, "data": part.data, **about, **records.libraries(),
            "others": round(others.cores, 4), "numbers": numbers,
        }  # fmt: skip


def main(arguments):
    if not arguments or arguments[0] not in studies.names():
        raise SystemExit(f"{__doc__}\nStudies: {', '.join(studies.names())}")
    name, *rest = arguments
    study = studies.study(name)
    options = parser_of(name, study, "--quick" in rest).parse_args(rest)
    folder = options.results or (None if options.quick else records.RESULTS)
    found = {}
    for part, record in measured(name, study, options):
        found[part] = record
        busy = " - not an idle machine" if study.TIMED and not record["others"] <= records.BUSY_CORES else ""
        print(f"{part}: measured, others took {record['others']:.2f} cores{busy}", file=sys.stderr, flush=True)
        if folder is not None:
            records.store(name, part, record, folder)
    print(study.report(found))
    if folder is not None and hasattr(study, "draw"):
        study.draw(records.read(name, folder), folder)


if __name__ == "__main__":
    main(sys.argv[1:])
