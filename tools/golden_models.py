"""Small models of every kind as files of the present format, and what they predict: what later versions must read.

    python tools/golden_models.py

writes ``tests/models/format_N``. Run it once for a new format, before its first release; files of a released one stay
as they are. For a format that no release had, delete the folder of the one before.
"""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, RationalQuadratic, WhiteKernel

from xgpc import GPClassifier
from xgpc.files import FORMAT

FOLDER = Path(__file__).parent.parent / "tests" / "models" / f"format_{FORMAT}"


def rows():
    """Rows (24, 2) and labels of two and of three classes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(24, 2))
    two = (X[:, 0] + 0.5 * rng.normal(size=24) > 0.0).astype(int)
    return X, two, two + (X[:, 1] > 0.5)


def models():
    """Name -> model to fit, rows and labels."""
    X, two, three = rows()
    named = pd.DataFrame(X, columns=["width", "height"])
    short = {"max_iter": 3, "random_state": 0}
    kernel = ConstantKernel(2.0) * RBF([1.0, 2.0]) + WhiteKernel(0.1, "fixed")
    algebra = (Matern(1.5, nu=1.5) + RationalQuadratic(1.0, 2.0)) * DotProduct(0.5) ** 2
    words = np.array(["no", "yes"], dtype=object)[two]
    return {
        "sparse": (GPClassifier(kernel, n_inducing=5, class_weight={"no": 1.0, "yes": 2.0}, **short), X, words),
        "kernel_algebra": (GPClassifier(algebra, n_inducing=4, optimizer=None, **short), X, two),
        "several_classes": (GPClassifier(n_inducing=4, **short), named, three),
        "one_kernel_each": (GPClassifier(n_inducing=4, share="none", **short), X, three),
        "full": (GPClassifier(RBF() ** 2, inducing_points="all", **short), X, two.astype(bool)),
        "corrected": (GPClassifier(inducing_points=X[:4], bound="polya-gamma", **short), X, two),
        "neighbours": (GPClassifier(n_neighbors=5, n_inducing=4, **short), X, two),
        "label_noise": (GPClassifier(likelihood="multinomial-step", n_inducing=4, **short), X, three),
    }


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    expected = {"rows": rows()[0]}
    for name, (model, X, y) in models().items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, y).save(FOLDER / f"{name}.npz")
        expected[name] = model.predict_proba(X)
    np.savez(FOLDER / "expected_probabilities.npz", **expected)


if __name__ == "__main__":
    main()
