"""Learning curves next to the SVGP of GPyTorch and GPflow.

Test likelihood against training time. A tenth of the rows is for testing, 100 inducing points for all and no
neighbours, the same threads; of several classes, softmax and one kernel to begin with. The target is the best test NLL
that another library reaches within the given seconds, plus .002 or .005: that library is thus stopped at its best by
the test rows. The seconds are those until a method's NLL is at most the target, of the other libraries the faster
one's; each point of xgpc is a fit of its own, ``GPClassifier(n_inducing=100, n_neighbors=0, max_time=limit)``, with
limits from .05 s on, each 1.25 times the one before; in records of commits before 110b8aa, which are marked stale, with
``max_iter`` of 1, 2, 3 and so on instead. The pictures show Nystroem features with logistic regression, too, where they
were run.
"""

import itertools
from functools import partial

from markdown_tables import number, set_table, tally
from measure import scores
from methods import NAMES, method
from problems import BINARY, MADE, Problem, load, split
from records import LIBRARY
from threadpoolctl import threadpool_limits

from . import THREADS, Option, Part

DEPENDS, TIMED, SETS = LIBRARY, True, (*BINARY, "statlog-landsat", "pendigits")
OPTIONS = {
    "seconds": Option(100.0, "of training that a method may take"),
    "threads": THREADS,
    "methods": Option(("xgpc", "gpytorch", "sklearn"), f"some of {', '.join(NAMES)}"),
}
QUICK = {"sets": ["ringnorm"], "seconds": 1.0, "methods": ["xgpc", "sklearn"]}
MARGINS = 0.002, 0.005
OTHERS = "gpytorch", "gpflow"
LABELS = {"sklearn": "Nystroem, logistic regression", "gpytorch": "GPyTorch, SVGP", "gpflow": "GPflow, SVGP"}


def curve(name, data, threads, seconds, **settings):
    return [
        {"seconds": spent, **scores(model.predict_proba(data.X_test), data.y_test), **details}
        for spent, model, details in method(name).path(data, threads, seconds, **settings)
    ]


def curves(data, options):
    """The methods one after the other: the first milliseconds after another library's threads are slow."""
    return {"curves": {name: curve(name, data, options.threads, options.seconds) for name in options.methods}}


def warm_up(names, threads):
    """First points on a tiny problem: imports, threads and first calls cost time once in a process."""
    tiny = split(Problem("tiny", *MADE["ringnorm"](n=400)), seed=0)
    for name in names:
        for _ in itertools.islice(method(name).path(tiny, threads, 1.0), 2):
            pass


def parts(options):
    with threadpool_limits(options.threads):
        warm_up(options.methods, options.threads)
        for name in options.sets:
            problem = load(options.data, name)
            yield Part(name, partial(curves, split(problem, seed=0), options), name, problem.hash)


def best(points):
    return min(point["nll"] for point in points)


def first_within(points, target):
    return next((point["seconds"] for point in points if point["nll"] <= target), None)


def compared(numbers, margin=MARGINS[0]):
    """Best NLLs of xgpc and of the better of the others, whose it is, and seconds to the target; {} without others."""
    points = numbers["curves"]
    others = {name: best(points[name]) for name in OTHERS if name in points}
    if "xgpc" not in points or not others:
        return {}
    name = min(others, key=others.get)
    target = others[name] + margin
    reached = [spent for other in others if (spent := first_within(points[other], target)) is not None]
    seconds = {"others": min(reached), "xgpc": first_within(points["xgpc"], target)}
    return {"name": name, "theirs": others[name], "ours": best(points["xgpc"]), "seconds": seconds}


def cells(numbers):
    found = compared(numbers)
    if not found:
        return [", ".join(f"{name} only" for name in numbers["curves"]), *[""] * (1 + 3 * len(MARGINS))]
    row = [f"{number(found['theirs'], 4)}, {found['name']}"]
    for margin in MARGINS:
        seconds = compared(numbers, margin)["seconds"]
        theirs, ours = seconds["others"], seconds["xgpc"]
        row += [f"{theirs:.1f} s", "not reached" if ours is None else f"{ours:.2f} s",
                "" if ours is None else f"{theirs / ours:.1f}"]  # fmt: skip
    return [*row, number(found["ours"], 4)]


def report(records):
    words = [str(margin).lstrip("0") for margin in MARGINS]
    header = ["set", "the other's best NLL"]
    for word in words:
        header += [f"seconds to that + {word}", "xgpc's", "times as fast"]
    both = {name: record for name, record in records.items() if compared(record["numbers"])}
    pair = tally(both, lambda n: (compared(n)["ours"], compared(n)["theirs"]), "xgpc's best NLL", "the other's")
    return set_table([*header, "xgpc's best NLL"], records, SETS, cells) + f"\n\n{pair}"


def draw(records, folder):
    """NLL against training seconds, a picture for each set."""
    from matplotlib.figure import Figure

    names = []
    for name, record in records.items():
        axes = Figure(figsize=(6, 4), layout="constrained").subplots()
        for label, points in record["numbers"]["curves"].items():
            axes.plot([p["seconds"] for p in points], [p["nll"] for p in points], ".-", label=LABELS.get(label, label))
        if found := compared(record["numbers"]):
            axes.axhline(
                found["theirs"] + MARGINS[0], color="grey", linestyle=":",
                label=f"{LABELS[found['name']]}, best + {MARGINS[0]}",
            )  # fmt: skip
        axes.set(title=name, xlabel="training seconds", ylabel="test NLL, nats a row", xscale="log")
        axes.legend()
        names.append(f"learning_{name}.png")
        axes.figure.savefig(folder / names[-1], dpi=100)
    return names
