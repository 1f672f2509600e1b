"""All sets at all defaults, and within five seconds.

``GPClassifier().fit(X, y)`` as it is, and with ``max_time=5``, which ends learning early with a complete posterior; one
split, a tenth of the rows for testing, features in units of the training rows' deviations. The seconds asked for are
10 up to 20 000 rows, 60 up to 100 000, and with the limit 6 for every set.
"""

from functools import partial

from markdown_tables import number, set_table
from measure import fit_and_score
from methods import method
from problems import BINARY, load, split
from records import LIBRARY

from . import THREADS, Option, Part
from .multi_class import SETS as SEVERAL

DEPENDS, TIMED = LIBRARY, True
SETS = (
    *BINARY, "a8a", "adult", "bank-marketing", "german", "ijcnn1", "skin_nonskin", "splice", "susy", "svmguide1",
    "twonorm", "waveform-raetsch", *SEVERAL,
)  # fmt: skip
OPTIONS = {"split": Option(0, "which split"), "limit": Option(5.0, "seconds of the second fit"), "threads": THREADS}
QUICK = {"sets": ["breast-cancer", "wine"]}
# Seconds that fits of up to so many rows are to take at most.
AIMS = ((20_000, 10.0), (100_000, 60.0))


def measure(problem, seed, limit, threads):
    data = split(problem, seed)
    model = method("xgpc").make(threads)
    found = {"rows": len(data.y), "features": data.X.shape[1], "default": fit_and_score(model, data)}
    classes = len(model.classes_)
    found.update(classes=classes, m=model.inducing_points_.shape[-2], neighbours=model.n_neighbors_)
    found["limited"] = fit_and_score(method("xgpc").make(threads, max_time=limit), data)
    return found


def parts(options):
    for name in options.sets:
        problem = load(options.data, name)
        run = partial(measure, problem, options.split, options.limit, options.threads)
        yield Part(name, run, name, problem.hash)


def aim(rows):
    return next((seconds for most, seconds in AIMS if rows <= most), None)


def cells(numbers):
    found, limited, most = numbers["default"], numbers["limited"], aim(numbers["rows"])
    return [
        *(str(numbers[one]) for one in ("rows", "features", "classes", "m", "neighbours")),
        number(found["nll"], 4), number(found["error"], 4), f"{found['seconds']:.1f} s",
        "" if most is None else f"{most:g} s", number(limited["nll"], 4), f"{limited['seconds']:.1f} s",
    ]  # fmt: skip


def within(records):
    """A sentence on which fits took no longer than asked."""
    known = {key: record["numbers"] for key, record in records.items() if aim(record["numbers"]["rows"])}
    late = [key for key, numbers in known.items() if numbers["default"]["seconds"] > aim(numbers["rows"])]
    longest = max((record["numbers"]["limited"]["seconds"] for record in records.values()), default=0.0)
    return (
        f"Within what is asked: {len(known) - len(late)} of {len(known)} sets"
        + (f"; longer: {', '.join(late)}. " if late else ". ")
        + f"With the limit the longest fit took {longest:.1f} s."
    )


def report(records):
    header = [
        "set", "rows", "features", "classes", "m", "neighbours", "NLL", "error", "fit", "asked", "limited: NLL", "fit",
    ]  # fmt: skip
    return set_table(header, records, SETS, cells) + f"\n\n{within(records)}"
