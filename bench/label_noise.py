"""Additive noise with the label noise delta fixed at 0.001 against learned: test likelihood and accuracy.

    python bench/label_noise.py --data FOLDER [--splits 3] [--threads 2]

FOLDER holds adult.npz and waveform-noise.npz with arrays X and y. The experiment is that of section IV-B1 of Liu, Ong,
Yu, Cai, Shen, arXiv 1909.06541: GPC-I, II and III on adult, their versions of several classes on waveform-noise. A
fixed delta must be worse. 100 inducing points, the default kernel, a tenth of the rows for testing, features in units
of the training rows' deviations; as in the paper, adult's eight categorical columns are integer codes, used as numbers.
"""

import argparse
import statistics
from pathlib import Path

from common import load, scores, split, timed_fit, write

from xgpc import GPClassifier
from xgpc.catalogue import SYSTEMS

N_INDUCING = 100
FIXED = 1e-3
SETS = {"adult": ("GPC-I", "GPC-II", "GPC-III"), "waveform-noise": ("GPC-I-mc", "GPC-II-mc", "GPC-III-mc")}


def measure(system, label_noise, seed, data, threads):
    model = GPClassifier(
        **SYSTEMS[system], label_noise=label_noise, n_inducing=N_INDUCING, n_jobs=threads, random_state=0
    )
    seconds = timed_fit(model, data.X, data.y)
    result = scores(model.predict_proba(data.X_test), data.y_test)
    return {
        "split": seed,
        "seconds": seconds,
        "nll": result["nll"],
        "accuracy": 1.0 - result["error"],
        "delta": float(model.label_noise_),
        "bound": model.elbo_,
        "converged": model.converged_,
    }


def compare(name, system, splits, threads):
    """Runs with delta fixed and learned, their medians, and the splits on which learning it lowers the NLL."""
    row = {"data": name, "system": system}
    for label, label_noise in (("fixed", FIXED), ("learned", "learn")):
        runs = [measure(system, label_noise, seed, data, threads) for seed, data in enumerate(splits)]
        medians = {key: statistics.median(run[key] for run in runs) for key in ("nll", "accuracy", "delta", "seconds")}
        row[label] = {"medians": medians, "runs": runs}
    row["better_on"] = sum(
        learned["nll"] < fixed["nll"]
        for fixed, learned in zip(row["fixed"]["runs"], row["learned"]["runs"], strict=True)
    )
    print(f"{name:14s} {system:10s}", "; ".join(
        "{0}: NLL {nll:.4f}, accuracy {accuracy:.4f}, delta {delta:.4f}".format(label, **row[label]["medians"])
        for label in ("fixed", "learned")), f"; better on {row['better_on']} of {len(splits)}", flush=True)  # fmt: skip
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    rows = []
    for name, systems in SETS.items():
        splits = [split(*load(arguments.data, name), seed) for seed in range(arguments.splits)]
        rows += [compare(name, system, splits, arguments.threads) for system in systems]
    write("label_noise", {"fixed_delta": FIXED, "rows": rows})


if __name__ == "__main__":
    main()
