"""Label noise, fixed and learned.

Additive noise with the label noise delta fixed at .001 against learned: test likelihood and accuracy. The experiment
is that of section IV-B1 of Liu, Ong, Yu, Cai, Shen, arXiv 1909.06541: GPC-I, II and III on adult, their versions of
several classes on waveform-noise; the models are theirs, learned as this library does. A fixed delta must be worse.
100 inducing points, the default kernel, a tenth of the rows for testing, features in units of the training rows'
deviations; as in the paper, adult's eight categorical columns are integer codes, used as numbers. Medians.
"""

from functools import partial

from markdown_tables import number, table
from measure import median_of, scores, timed_fit
from methods import method
from problems import load, split
from records import LIBRARY

from . import SPLITS, THREADS, Part

DEPENDS, TIMED, SETS = LIBRARY, False, ("adult", "waveform-noise")
OPTIONS, QUICK = {"splits": SPLITS, "threads": THREADS}, {"sets": ["iris"], "splits": 1}
N_INDUCING = 100
DELTAS = {"fixed": 1e-3, "learned": "learn"}
TWO_CLASSES = {"GPC-I": "step", "GPC-II": "probit", "GPC-III": "logit"}
SEVERAL = {"GPC-I-mc": "multinomial-step", "GPC-II-mc": "multinomial-probit", "GPC-III-mc": "multinomial-logit"}


def run_of(likelihood, label_noise, seed, data, threads):
    model = method("xgpc").make(
        threads, likelihood=likelihood, bound="additive-noise", label_noise=label_noise, n_inducing=N_INDUCING
    )
    seconds = timed_fit(model, data.X, data.y)
    result = scores(model.predict_proba(data.X_test), data.y_test)
    return {"split": seed, "seconds": seconds, "nll": result["nll"], "accuracy": 1.0 - result["error"],
            "delta": float(model.label_noise_), "bound": model.elbo_, "converged": model.converged_}  # fmt: skip


def measure(problem, options):
    """Runs with delta fixed and learned, by system."""
    splits = [split(problem, seed) for seed in range(options.splits)]
    systems = TWO_CLASSES if problem.y.max() == 1 else SEVERAL
    return {
        system: {
            label: [run_of(likelihood, delta, seed, data, options.threads) for seed, data in enumerate(splits)]
            for label, delta in DELTAS.items()
        }
        for system, likelihood in systems.items()
    }


def parts(options):
    for name in options.sets:
        problem = load(options.data, name)
        yield Part(name, partial(measure, problem, options), name, problem.hash)


def report(records):
    rows = []
    for name, record in records.items():
        for system, found in record["numbers"].items():
            fixed, learned = found["fixed"], found["learned"]
            better = sum(a["nll"] < b["nll"] for a, b in zip(learned, fixed, strict=True))
            cells = [number(median_of(runs, key)) for key in ("nll", "accuracy") for runs in (fixed, learned)]
            rows.append([name, system, *cells, number(median_of(learned, "delta")), f"{better} of {len(fixed)}"])
    header = ["set", "model", "NLL, delta = .001", "NLL, learned", "accuracy, .001", "accuracy, learned",
              "delta learned", "splits on which learning it lowers the NLL"]  # fmt: skip
    return table(header, rows)
