"""Measure what has no record that holds, store the records, and write the pages that show them.

    python bench/run.py --all --data FOLDER      every study, in at most 170 minutes on two cores
    python bench/run.py STUDY ... --data FOLDER  these studies: {studies}
    python bench/run.py --quick                  every study at tiny sizes, in two minutes; stores nothing

FOLDER has a file NAME.npz with arrays X and y for every data set that is not made here. Parts whose library is not
installed are left out. A record is stored as soon as it is measured, and notes how many cores other processes took; a
part with times is measured once more if that was too much for these to hold.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

import goldens
import problems
import records
import report
import studies
from measure import Others

import xgpc


def measured(part, data, outputs, attempts=2):
    """The record of a part, from the first attempt that other processes leave alone, or the last."""
    for _ in range(attempts):
        with Others() as others:
            numbers = part.measure()
        if not others.cores > records.MUCH_LOAD:
            break
    data_hash = problems.load(data, part.set).hash if part.set else None
    return {
        "of": list(part.of), "set": part.set, "data": data_hash, **records.circumstances(),
        "outputs": outputs[records.OUTPUTS], "others": round(others.cores, 4), "numbers": numbers,
    }  # fmt: skip


def run(study, options):
    """Measure and store the parts of a study that are asked for."""
    folder = options.results
    outputs = goldens.kept()["numbers"] if options.quick else goldens.update(folder)
    known = {}
    if not options.quick and not options.again:
        known = records.holding(study, outputs, folder, records.processor(), options.times)
    found, start = {}, time.perf_counter()
    for part in study.parts(options.data, options.quick):
        if part.name in known or not any(text in part.name for text in options.only):
            continue
        if missing := [library for library in part.of if records.installed(library) is None]:
            print(f"{study.NAME}, {part.name}: left out, as {', '.join(missing)} is not installed", file=sys.stderr)
            continue
        found[part.name] = record = measured(
            part, options.data, outputs, 1 if options.quick or not part.is_timed else 2
        )
        if not options.quick:
            records.store(study.NAME, part.name, record, folder)
        print(f"{study.NAME}, {part.name}: others took {record['others']:.2f} cores", file=sys.stderr, flush=True)
    minutes = (time.perf_counter() - start) / 60
    print(f"## {study.NAME}: {minutes:.1f} minutes, planned {study.MINUTES}\n\n{study.report(found)}\n", flush=True)


def main(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__.format(studies=", ".join(studies.NAMES)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("studies", nargs="*", choices=[[], *studies.NAMES], metavar="STUDY")
    parser.add_argument("--all", action="store_true", help="every study")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="with a file NAME.npz for each data set")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="TEXT", help="parts with one of these texts in their names"
    )
    parser.add_argument("--again", action="store_true", help="measure parts that have a record that holds, too")
    parser.add_argument("--times", action="store_true", help="measure parts whose times do not hold, too")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, nothing stored")
    parser.add_argument("--results", type=Path, default=records.RESULTS, metavar="FOLDER", help="of the records")
    options = parser.parse_args(arguments)
    # Records of another checkout's library would name the wrong commit.
    if Path(xgpc.__file__).parent != records.ROOT / "xgpc":
        raise SystemExit("The benchmarks measure the library of their own checkout: pip install --no-build-isolation "
                         f"-e {records.ROOT}")  # fmt: skip
    chosen = studies.ORDER if options.all or not options.studies else options.studies
    if not (options.all or options.studies or options.quick):
        parser.error("name studies, or give --all or --quick")
    if len(chosen) > 1:
        # Each in a process of its own: threads and memory of other libraries are no part of the next study.
        words = [word for word in arguments if word != "--all" and word not in options.studies]
        failed = [name for name in chosen if subprocess.run([sys.executable, __file__, name, *words]).returncode]
        if failed:
            raise SystemExit(f"Failed: {', '.join(failed)}")
        return
    run(studies.study(chosen[0]), options)
    if not options.quick and options.results == records.RESULTS:
        report.write()


if __name__ == "__main__":
    main(sys.argv[1:])
