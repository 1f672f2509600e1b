"""Class probabilities by the number of classes.

Milliseconds a row of softmax and multinomial probit and step, for latent values of classes that are all alike, that
spread, and that lie so far apart that most probabilities are below what the integral reaches. Medians of seven calls.
"""

import statistics
from functools import partial

import numpy as np
from internals import multinomial_log_probabilities, softmax_log_probabilities
from markdown_tables import number, table
from measure import seconds
from records import LIBRARY

from . import Option, Part

DEPENDS, TIMED = LIBRARY, True
CLASSES = (3, 10, 30, 100, 300, 1000)
OPTIONS = {"classes": Option(CLASSES, "numbers of classes"), "repeats": Option(7, "calls")}
QUICK = {"classes": [3, 10], "repeats": 1}
LINKS = {
    "softmax": softmax_log_probabilities,
    "multinomial probit": partial(multinomial_log_probabilities, noise_variance=1.0, delta=0.01),
    "multinomial step": partial(multinomial_log_probabilities, noise_variance=0.0, delta=0.01),
}
# Standard deviation of the means, and the variances' least and largest.
LATENTS = {"alike": (0.1, 0.9, 1.1), "spread": (4.0, 0.2, 5.0), "far": (100.0, 0.5, 2.0)}
# Classes times rows of a call.
SIZE = 30_000


def measure(n_classes, repeats):
    rng, shape, rows = np.random.default_rng(n_classes), (SIZE // n_classes, n_classes), []
    for latents, (sd, low, high) in LATENTS.items():
        mean, variance = sd * rng.normal(size=shape), rng.uniform(low, high, shape)
        for link, function in LINKS.items():
            times = seconds(partial(function, mean, variance), repeats)
            milliseconds = 1e3 * statistics.median(times) / len(mean)
            rows.append({"latents": latents, "link": link, "milliseconds": milliseconds, "seconds": times})
    return {"rows": rows}


def parts(options):
    for n_classes in options.classes:
        yield Part(f"{n_classes} classes", partial(measure, n_classes, options.repeats))


def report(records):
    rows = []
    for name, record in records.items():
        found = {(row["latents"], row["link"]): row["milliseconds"] for row in record["numbers"]["rows"]}
        rows.append([name, *(", ".join(number(found[latents, link]) for latents in LATENTS) for link in LINKS)])
    return table(["", *(f"{link}: {', '.join(LATENTS)}" for link in LINKS)], rows)
