"""Samples of the data and inducing points drawn from them."""

import re

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import expit
from scipy.stats import chisquare
from sklearn.datasets import make_blobs
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern
from sklearn.gaussian_process.kernels import ConstantKernel as C
from sklearn.gaussian_process.kernels import WhiteKernel as White
from support.dense import smooth_part
from support.fits import quietly

from xgpc import GPClassifier
from xgpc.approximations.sparse import SparsePrior
from xgpc.data.moments import Sample
from xgpc.kernels.spec import KernelSpec
from xgpc.learning import inducing
from xgpc.rows.source import NONE, ArraySource

every_method = pytest.mark.parametrize("method", inducing.METHODS)
# A few values, so that rows repeat.
repeating_rows = arrays(
    np.float64, st.tuples(st.integers(1, 25), st.integers(1, 3)), elements=st.sampled_from([-1.0, 0.0, 0.5, 3.0])
)


def state(seed=0):
    return np.random.RandomState(seed)


def sample_of(X, weight=None, size=10**6):
    X = np.asarray(X)
    return Sample(ArraySource(X, np.zeros(len(X)), NONE if weight is None else weight), size, state())


def choose(sample, method, n_inducing, seed=0):
    """Inducing points for a kernel so rough that the greedy choice ends at the number, not at the trace."""
    spec = KernelSpec(RBF(0.5 * sample.scale), len(sample.scale))
    return inducing.inducing_points(sample, method, n_inducing, state(seed), spec)


@pytest.fixture(scope="module")
def X():
    return make_blobs(400, n_features=2, centers=12, cluster_std=0.4, random_state=0)[0]


@every_method
def test_weights_equal_repeats_for_inducing_points(X, method):
    repeats = np.random.default_rng(1).integers(1, 5, len(X))
    weighted, repeated = sample_of(X, repeats.astype(np.float64)), sample_of(np.repeat(X, repeats, axis=0))
    assert np.array_equal(*(choose(sample, method, 20, 3) for sample in (weighted, repeated)))


@settings(max_examples=60)
@given(repeating_rows, st.integers(0, 2**20))
def test_mean_and_scale_are_weighted_moments(X, seed):
    """But for features of one value, of two, whose scale is half their difference, and with values far from others."""
    weight = np.random.default_rng(seed).uniform(0.1, 3.0, len(X))
    sample = sample_of(X, weight)
    assume(sample.within_limits is sample.rows)
    mean = np.average(X, axis=0, weights=weight)
    spread = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
    values = [len(np.unique(column)) for column in X.T]
    expected = np.select([np.equal(values, 1), np.equal(values, 2)], [1.0, 0.5 * np.ptp(X, axis=0)], spread)
    np.testing.assert_allclose(sample.mean, mean, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(sample.scale, expected, rtol=1e-13)


@every_method
@pytest.mark.parametrize("scale", [1e-280, 1e150])
def test_huge_and_tiny_features_stay_in_range(X, method, scale):
    """Relative to the scale, the same as of moderate features up to rounding."""
    plain, scaled = sample_of(X), sample_of(X * scale)
    np.testing.assert_allclose(np.divide([scaled.scale, scaled.mean], scale), [plain.scale, plain.mean], rtol=1e-12)
    np.testing.assert_allclose(choose(scaled, method, 12) / scale, choose(plain, method, 12), rtol=1e-9)


@every_method
@settings(max_examples=60)
@given(X=repeating_rows, n_inducing=st.integers(1, 30))
def test_never_more_points_than_asked_for_or_distinct_rows(method, X, n_inducing):
    sample = sample_of(X)
    Z = choose(sample, method, n_inducing)
    distinct = len(sample.rows)
    assert Z.shape == (distinct if method == "all" else min(n_inducing, distinct), X.shape[1])
    assert len(np.unique(Z, axis=0)) == len(Z)
    np.testing.assert_allclose(Z, np.clip(Z, X.min(axis=0), X.max(axis=0)), atol=1e-12)
    if n_inducing >= distinct:
        assert np.array_equal(Z, sample.rows)


ROUGH = {
    "rbf": RBF(1.3),
    "ard": RBF([0.6, 1.5, 3.0]),
    "matern": C(2.0) * Matern([1.0, 0.7, 2.0], nu=1.5),
    "variances that differ": DotProduct(0.5) * RBF(1.5),
    "noise": RBF(1.3) + White(0.5) + DotProduct(0.3) * White(3.0),
}


def conditional_variances(kernel, rows, Z):
    """Diagonal of k(X, X) - k(X, Z) k(Z, Z)^-1 k(Z, X), with the pseudo-inverse."""
    cross = kernel(rows, Z)
    return kernel.diag(rows) - np.sum(cross @ np.linalg.pinv(kernel(Z), rcond=1e-12, hermitian=True) * cross, axis=1)


@pytest.mark.parametrize("kernel", ROUGH.values(), ids=ROUGH)
def test_greedy_points_have_the_largest_conditional_variances(kernel):
    """Every one as found by solving with all those before it; noise, however large, does not count."""
    rows = np.random.default_rng(0).normal(size=(120, 3))
    Z = inducing.greedy_conditional_variance(KernelSpec(kernel, 3), rows, 25)
    smooth = smooth_part(kernel)
    assert Z.shape == (25, 3)
    assert smooth.diag(rows).max() == pytest.approx(smooth.diag(Z[:1])[0], rel=1e-12)
    for j in range(1, 25):
        assert np.array_equal(Z[j], rows[np.argmax(conditional_variances(smooth, rows, Z[:j]))])


# Kernels, and their ranks for one and for five features.
RANKS = [(DotProduct(1.0), (2, 6)), (DotProduct(0.0, "fixed"), (1, 5)), (DotProduct(1.0) ** 2, (3, 21))]


@pytest.mark.parametrize(("kernel", "ranks"), [*RANKS, (C(2.0) + White(1.0), (1, 1))], ids=str)
@pytest.mark.parametrize("d", [1, 5])
def test_as_many_greedy_points_as_the_rank_explain_everything(kernel, ranks, d):
    rows = np.random.default_rng(1).normal(size=(200, d))
    Z = inducing.greedy_conditional_variance(KernelSpec(kernel, d), rows, 50)
    assert len(Z) == ranks[d == 5]
    smooth = smooth_part(kernel)
    assert np.sum(conditional_variances(smooth, rows, Z)) < inducing.JITTER * np.sum(smooth.diag(rows))


def test_greedy_points_end_at_the_trace_and_not_before():
    rows = np.random.default_rng(2).normal(size=(300, 2))
    kernel = RBF([3.0, 5.0])
    Z = inducing.greedy_conditional_variance(KernelSpec(kernel, 2), rows, 300)
    left = [np.mean(conditional_variances(kernel, rows, Z[:j])) for j in (len(Z), len(Z) - 1)]
    assert len(Z) < 100
    assert left[0] <= inducing.JITTER < left[1]


@pytest.mark.parametrize(
    "kernel", [C(3.0) * RBF([0.3, 0.5]), Matern(0.5, nu=0.5) + White(0.3), DotProduct(0.1) * RBF(0.3)], ids=str
)
def test_more_points_are_distinct_rows_that_are_no_inducing_points(kernel):
    rows = np.random.default_rng(3).normal(size=(60, 2))
    rows[:20] *= 0.01
    prior = SparsePrior.build(KernelSpec(kernel, 2), rows[:30])
    for n_more in (1, 7, 30, 1000):
        points = inducing.conditional_variance_sample(prior, np.repeat(rows, 3, axis=0), n_more, state())
        assert 1 <= len(points) <= min(n_more, 30)
        assert len(np.unique(np.vstack([points, rows[30:]]), axis=0)) == 30
        assert len(np.unique(points, axis=0)) == len(points)
        assert n_more >= 30 or len(points) == n_more


def test_points_are_drawn_in_proportion_to_their_conditional_variances():
    rows = np.array([[0.0], [0.1], [0.3], [0.6], [1.0], [1.5], [2.5], [4.0]])
    kernel, Z = C(2.0) * RBF(1.2), np.array([[0.05], [3.0]])
    prior, random = SparsePrior.build(KernelSpec(kernel, 1), Z), state(0)
    drawn = [inducing.conditional_variance_sample(prior, rows, 1, random).item() for _ in range(4000)]
    observed = np.count_nonzero(np.array(drawn)[:, None] == rows[:, 0], axis=0)
    variances = conditional_variances(kernel, rows, Z)
    assert chisquare(observed, 4000 * variances / variances.sum()).pvalue > 0.01
    assert variances.max() > 10.0 * variances.min()


def tried(model):
    """The numbers of further points that were tried, the numbers before, and whether they were taken."""
    words = r"^(T|Not t)aken: (\d+) inducing points in place of (\d+)\. The bound"
    found = re.findall(words, "\n".join(model.decisions_), re.MULTILINE)
    return [(int(after) - int(before), int(before), taken == "T") for taken, after, before in found]


@pytest.mark.parametrize(
    ("n_squares", "first", "expected"), [(1, 32, [(96, 32, False), (32, 32, False)]), (6, 128, [(128, 128, True)])]
)
def test_the_number_of_points_grows_to_128_at_once_then_doubles(n_squares, first, expected, tuned):
    tuned(most_inducing=256)
    X = np.random.default_rng(0).uniform(0.0, n_squares, (2500, 2))
    y = (np.sum(np.floor(X), axis=1) % 2 if n_squares > 1 else X[:, 0] > 0.5).astype(int)
    model = quietly(GPClassifier(n_neighbors=0, random_state=0, max_iter=10), X, y)
    assert tried(model)[: len(expected)] == expected
    assert len(model.inducing_points_) == first + sum(more for more, _, is_taken in tried(model) if is_taken)


def test_a_simple_function_of_few_rows_is_learned_once():
    """The divergence of its posterior is small, as where nothing is learned, but its bound is large."""
    X = np.random.default_rng(0).normal(size=(300, 3))
    model = quietly(GPClassifier(C(4.0) * RBF([1.0, 1.0]), random_state=0), X[:, :2], X[:, 0] + 0.5 * X[:, 2] > 0.0)
    assert not any("learning again" in text for text in model.decisions_)


def test_a_fine_pattern_beside_a_trend_is_learned():
    """Few points learn the trend alone; its bound is large, but says nothing of what is left."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (1900, 2))
    f = 0.6 * X[:, 0] + 3.0 * np.sin(6.0 * np.hypot(*X.T))
    model = quietly(GPClassifier(C() * RBF([1.0, 1.0]), random_state=0), X, rng.random(1900) < expit(f))
    assert model.elbo_ > -1000.0


def test_a_function_that_few_points_cannot_represent_is_learned_with_more(tuned):
    tuned(most_inducing=256)

    def labels(X):
        return (np.sin(12.0 * X[:, 0]) * np.sin(12.0 * X[:, 1]) > 0.0).astype(int)

    rng = np.random.default_rng(0)
    X, X_new = rng.uniform(-1.0, 1.0, (2500, 2)), rng.uniform(-1.0, 1.0, (1000, 2))
    model = quietly(GPClassifier(n_neighbors=0, random_state=0, max_iter=8), X, labels(X))
    assert any(text.startswith("Taken: learning again from the first kernel with 128 ") for text in model.decisions_)
    assert model.score(X_new, labels(X_new)) > 0.9
