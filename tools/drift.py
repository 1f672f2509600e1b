"""Whether ``drift_`` of a stream without drift is standard normal: mean, standard deviation, share above 3.

    python tools/drift.py [--streams N]

Each stream has a latent function that the prior draws (RBF, length scale 1, variance 4, two features): some rows first,
then one batch, whose ``drift_`` is that of a z test.
"""

import argparse
import warnings

import numpy as np
from scipy.special import expit
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from xgpc import GPClassifier

GIVEN = {"kernel": ConstantKernel(4.0) * RBF(1.0), "optimizer": None}
# Rows before the batch, rows of the batch, options of the model.
SETTINGS = {
    "given kernel": [(200, 1000, GIVEN), (1000, 1000, GIVEN), (1000, 100, GIVEN)],
    "learned kernel": [(1000, 300, {}), (200, 100, {})],
    "given kernel, 10 neighbours": [(600, 300, {**GIVEN, "n_neighbors": 10})],
}


def drift(seed, first, batch, options):
    rng = np.random.default_rng(seed)
    X, frequencies = rng.normal(size=(first + batch, 2)), rng.normal(size=(2, 400))
    waves = np.cos(X @ frequencies + rng.uniform(0.0, 2.0 * np.pi, 400))
    y = (rng.uniform(size=len(X)) < expit(np.sqrt(8.0 / 400.0) * waves @ rng.normal(size=400))).astype(int)
    model = GPClassifier(**{"n_inducing": 64, "n_neighbors": 0, "random_state": 0, **options})
    model.partial_fit(X[:first], y[:first], classes=[0, 1])
    return model.partial_fit(X[first:], y[first:]).drift_


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=200)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name, settings in SETTINGS.items():
        for first, batch, options in settings:
            z = np.array([drift(seed, first, batch, options) for seed in range(arguments.streams)])
            print(
                f"{name}, {first} rows and {batch} more: mean {z.mean():+.2f}, standard deviation {z.std():.2f}, "
                f"above 3: {np.mean(z > 3.0):.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
