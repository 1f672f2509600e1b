"""Milliseconds a row that class probabilities take, by the number of classes.

    python bench/links.py

Of softmax and multinomial probit and step, for latent values of classes that are all alike, that spread, and that lie
so far apart that most probabilities are below what the integral reaches (likelihoods/largest.py). Medians of seven.
"""

import statistics
from functools import partial

import numpy as np
from common import seconds, write

from xgpc.likelihoods.multinomial import multinomial_log_probabilities
from xgpc.likelihoods.softmax import softmax_log_probabilities

CLASSES = (3, 10, 30, 100, 300, 1000)
LINKS = {
    "softmax": softmax_log_probabilities,
    "multinomial probit": partial(multinomial_log_probabilities, noise_variance=1.0, delta=0.01),
    "multinomial step": partial(multinomial_log_probabilities, noise_variance=0.0, delta=0.01),
}
# Standard deviation of the means, and the variances' least and largest.
LATENTS = {"alike": (0.1, 0.9, 1.1), "spread": (4.0, 0.2, 5.0), "far": (100.0, 0.5, 2.0)}
# Classes times rows of a call.
SIZE, REPEATS = 30_000, 7


def main():
    rng = np.random.default_rng(0)
    rows = []
    for n_classes in CLASSES:
        shape = (SIZE // n_classes, n_classes)
        for latents, (sd, low, high) in LATENTS.items():
            mean, variance = sd * rng.normal(size=shape), rng.uniform(low, high, shape)
            for link, function in LINKS.items():
                times = seconds(partial(function, mean, variance), REPEATS)
                milliseconds = 1e3 * statistics.median(times) / len(mean)
                rows.append({"classes": n_classes, "latents": latents, "link": link, "milliseconds": milliseconds})
                print(f"{n_classes:5d} classes, {latents:6s} {link:18s} {milliseconds:.3f} ms a row", flush=True)
    write("links", {"rows": rows})


if __name__ == "__main__":
    main()
