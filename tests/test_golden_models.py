"""Model files of every format that a release wrote are read, and predict what they did: see tools/golden_models.py."""

from pathlib import Path

import numpy as np
import pytest

from xgpc import GPClassifier
from xgpc.files import FORMAT

FOLDER = Path(__file__).parent / "models"
EXPECTED = "expected_probabilities.npz"
FILES = sorted(path for path in FOLDER.glob("format_*/*.npz") if path.name != EXPECTED)
# Of probabilities, between machines: factors of covariance matrices are made anew.
ATOL = 1e-8


def test_the_present_format_has_files():
    assert f"format_{FORMAT}" in {path.name for path in FOLDER.iterdir()}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_saved_models_are_read(path, tmp_path):
    model = GPClassifier.load(path)
    with np.load(path.parent / EXPECTED) as archive:
        X, expected = archive["rows"], archive[path.stem]
    if hasattr(model, "feature_names_in_"):
        pd = pytest.importorskip("pandas")
        X = pd.DataFrame(X, columns=model.feature_names_in_)
    found = model.predict_proba(X)
    assert ("held-out rows" if model.n_neighbors_ else "bound (ELBO)") in model.summary()
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=ATOL)
    model.save(tmp_path / "again.npz")
    np.testing.assert_array_equal(GPClassifier.load(tmp_path / "again.npz").predict_proba(X), found)
