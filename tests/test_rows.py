"""Rows, statistics and executors: pure functions of a block and a state, wherever the rows live."""

import itertools
import os
import pickle
from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from support import internals
from support.executors import FileSource, Forgetful, Processes
from support.fits import refuses
from support.threads import threads_of_blas
from support.training import options

from xgpc._kernels import KernelGradient
from xgpc.data.survey import Draw, Summary, Survey
from xgpc.likelihoods import record_of
from xgpc.rows.batches import BatchSource, Rows, in_blocks

N, D = 2 * internals.BLOCK_ROWS + 100, 3
KERNEL = ConstantKernel(3.0) * RBF(1.5) + WhiteKernel(0.1)
KINDS = ("sparse", "separate", "full", "linear", "CSR", "label noise")
THREE_CLASSES = ("separate", "label noise")


def rows(n_latents, n=N):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, D))
    score = X[:, 0] + np.sin(2.0 * X[:, 1]) + 0.3 * rng.normal(size=n)
    y = np.where(score > 0.0, 1.0, -1.0) if n_latents == 1 else np.digitize(score, [-0.5, 0.5]).astype(float)
    return X, y, rng.uniform(0.5, 2.0, n)


def problem(kind, cache_bytes=2**29):
    """Source, prior, site and number of latent functions."""
    n_latents = 3 if kind in THREE_CLASSES else 1
    X, y, weight = rows(n_latents, 300 if kind == "full" else N)
    spec = internals.KernelSpec(KERNEL, D)
    if kind == "full":
        prior = internals.FullPrior.build(spec, X)
    elif kind in ("linear", "CSR"):
        if kind == "CSR":
            X = sparse.csr_array(np.where(np.arange(D) == 0, X * (np.arange(N) % 40 == 0)[:, None], 0.0))
        prior = internals.LinearPrior(np.array([1.0, 1.0, 1.0, 10.0]), D, 0.0, 0.0)
    else:
        prior = internals.SparsePrior.build(spec, X[:20])
        if kind == "separate":
            others = [
                internals.SparsePrior.build(internals.KernelSpec(2.0 * RBF(0.5 + c), D), X[20 * c : 20 * c + 20])
                for c in range(3)
            ]
            prior = internals.grouped(others)
    names = {"separate": ("softmax", "exact"), "label noise": ("multinomial-probit", "additive-noise")}
    site = record_of(*names.get(kind, ("logit", "exact"))).site(max(2, n_latents))
    assert site.learned == (kind == "label noise")
    return internals.ArraySource(X, y, weight, cache_bytes), prior, site, n_latents


def start(training, prior, site):
    """Where an ascent begins: with label noise not at the prior, where every step fails."""
    if isinstance(prior, internals.LinearPrior):
        return prior.at_prior()
    return internals.starting_posterior(training, None, prior, site)


def arrays_of(record):
    if isinstance(record, list | tuple):
        return np.concatenate([arrays_of(part) for part in record if not isinstance(part, str)])
    if isinstance(record, KernelGradient):
        return record.values
    if hasattr(record, "__dict__"):
        return arrays_of(list(vars(record).values()))
    return np.ravel(np.asarray(record, dtype=float))


def calls(kind):
    """Every statistic, with a state."""
    source, prior, site, n_latents = problem(kind)
    with internals.Executor() as executor:
        training = internals.Training(source, executor, n_latents)
        first = start(training, prior, site)
        q = internals.coordinate_ascent(training, first, site, tol=0.0, max_iter=2, history=internals.History()).point.q
        assert q is not first
        point = internals.update(training, q, site)
        found = {
            internals.statistics.update_sums: point.sites,
            internals.statistics.log_likelihood: point.sites,
            internals.statistics.quadratic_constant: point.sites,
        }
        if kind in ("linear", "CSR"):
            return source, found
        found |= {
            internals.statistics.project_sites: internals.statistics.Projection(point.sites, prior),
            internals.statistics.mean_gradient: point.sites,
        }
        if kind in THREE_CLASSES:
            found[internals.statistics.curvature_product] = internals.statistics.Products(point.sites, q.w)
        else:
            augmented = record_of("logit", "polya-gamma").site()
            found[internals.correction.correction] = internals.statistics.SitesAtPosterior(q, augmented)
        if kind == "sparse":
            M, alpha = np.random.default_rng(1).normal(size=(1, 20, 20)), q.w + 1.0
            found[internals.statistics.gradient] = internals.statistics.Contraction(point.sites, prior, q.w, M, alpha)
            found[internals.statistics.prior_curvature] = internals.statistics.Projection(point.sites, prior)
    return source, found


@pytest.mark.parametrize("kind", KINDS)
def test_statistics_are_pure_functions_of_a_block_and_a_state(kind):
    """The same bits again, without what the block remembers, and from copies; the state stays as it is."""
    source, found = calls(kind)
    for function, state in found.items():
        before = pickle.dumps(state)
        for block in source.blocks():
            record, again = (arrays_of(function(block, state)) for _ in range(2))
            block.cache = internals.Cache()
            copied, *arguments = pickle.loads(pickle.dumps((function, block, state)))
            for other in (again, arrays_of(function(block, state)), arrays_of(copied(*arguments))):
                np.testing.assert_array_equal(record, other)
        assert pickle.dumps(state) == before


def test_a_pickled_state_lacks_the_two_matrices_that_no_pass_reads():
    state = calls("sparse")[1][internals.statistics.log_likelihood]
    assert len(pickle.dumps(state)) < len(pickle.dumps(state.q)) - 1.8 * state.q.P.nbytes


@pytest.fixture(scope="module")
def executors():
    with internals.Executor(1) as one, internals.Executor(3) as three, Processes(2) as processes:
        yield one, three, processes, Forgetful()


@pytest.mark.parametrize("kind", KINDS)
def test_a_pool_of_processes_makes_the_bits_of_threads(kind, executors):
    """Functions, states and records pickle, and nothing else is shared."""
    posteriors = []
    for executor in executors:
        source, prior, site, n_latents = problem(kind)
        training = internals.Training(source, executor, n_latents)
        first = start(training, prior, site)
        ascent = internals.coordinate_ascent(training, first, site, tol=1e-6, max_iter=4, history=internals.History())
        posteriors.append([*ascent.point.q.eta, np.array(ascent.point.elbo)])
    for other in posteriors[1:]:
        np.testing.assert_equal(other, posteriors[0])


def test_a_file_read_block_by_block_teaches_what_rows_in_memory_do(tmp_path):
    """Learning, too, with blocks that live as long as one statistic: the same bits."""
    X, y, _ = rows(None)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    _, prior, site, _ = problem("sparse")
    bits = []
    for source in (internals.ArraySource(X, y), FileSource(tmp_path / "X.npy", tmp_path / "y.npy")):
        with internals.Executor(2) as executor:
            training = internals.Training(source, executor)
            point = internals.profile(training, prior.at_prior(), site, options(1e-4, 5, learn_inducing=True)).point
            q, *_ = internals.mini_batch_ascent(training, point.q, site, options(1e-3, 2, batch_size=50))
        bits.append([point.q.P.tobytes(), point.elbo, q.q.h.tobytes(), q.elbo])
    assert bits[0] == bits[1]


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_makes_keys_of_its_own():
    """Else what it sends back could be taken for what was made here meanwhile."""
    read, write = os.pipe()
    if not os.fork():
        os.write(write, ",".join(internals.new_key() for _ in range(3)).encode())
        os._exit(0)
    mine = [internals.new_key() for _ in range(3)]
    os.wait()
    theirs = os.read(read, 1000).decode().split(",")
    os.close(read)
    os.close(write)
    assert len({*mine, *theirs}) == 6


@pytest.mark.parametrize("n_jobs", [1, 2, 3])
def test_each_has_the_values_in_order_and_one_thread_of_blas(n_jobs):
    """Or the first error of the function."""

    def square(x):
        assert set(threads_of_blas()) <= {1}
        return x**2

    def fail(x):
        raise ValueError(f"of {x}")

    with internals.Executor(n_jobs) as executor:
        assert executor.each(square, range(50)) == [x**2 for x in range(50)]
        assert executor.each(square, []) == []
        refuses("of 0", executor.each, fail, range(20))


# Rows in batches: read ahead by a thread, cut into blocks, and drawn from in one reading.


def rows_of_batches(n, n_classes=2, seed=0):
    return Rows(np.arange(2.0 * n).reshape(n, 2), np.random.default_rng(seed).integers(n_classes, size=n), np.ones(n))


def cut(all_rows, sizes):
    """Batches of these sizes and the rest."""
    places = np.minimum(np.cumsum([0, *sizes, len(all_rows.X)]), len(all_rows.X))
    return [all_rows.part(slice(*place)) for place in itertools.pairwise(places)]


LABEL_KINDS = ([3, 1, 2], int), ([3.0, 1.0, 2.0], float), (["c", "a", "bb"], str), (["c", "a"], object), ([1, 0], bool)


@given(st.lists(st.integers(0, 60), max_size=5), st.sampled_from(LABEL_KINDS), st.integers(0, 9))
def test_summaries_of_parts_add_to_that_of_all_rows(cuts, labels, seed):
    rng = np.random.default_rng(seed)
    X, y, weight = rng.normal(size=(60, 2)), rng.choice(np.array(*labels), 60), rng.integers(0, 4, 60)
    places = [0, *sorted(cuts), 60]
    batches = [(X[i:j], y[i:j], weight[i:j]) for i, j in itertools.pairwise(places) if i < j]
    total = reduce(add, (Summary.of(batch, None)[0] for batch in batches))
    whole, rows = Summary.of((X, y, weight), None)
    # Whole numbers as weights: their sums have the same bits in any order.
    assert list(total.tally) == list(whole.tally)
    np.testing.assert_array_equal(total.counts, whole.counts)
    assert (total.columns, total.dtype, total.counts[0].sum()) == (whole.columns, whole.dtype, 60)
    surveyed = Survey.of(total, None)
    classes, order = surveyed.classes, surveyed.order
    np.testing.assert_array_equal(classes, np.unique(y))
    counts = [[np.sum(y == label), np.sum(weight[y == label] > 0), np.sum(weight[y == label])] for label in classes]
    np.testing.assert_array_equal(total.counts[:, order], np.transpose(counts))
    np.testing.assert_array_equal(np.asarray(list(total.tally))[rows.y], y)


def drawn(all_rows, size, sizes=(), seed=1):
    found, keys = Draw(size), np.random.default_rng(seed)
    for block in in_blocks(cut(all_rows, sizes), internals.BLOCK_ROWS):
        found.add(block, keys.random(len(block.X)))
    return found.sample()


@pytest.mark.parametrize("n", [1, 500, 1000])
def test_few_rows_are_all_drawn(n):
    everything = rows_of_batches(n)
    everything.weight[1::2] = 0.0
    np.testing.assert_equal([array[::2] for array in everything], [*drawn(everything, 1000)])


@pytest.mark.parametrize("order", ["random", "one class after the other", "rare class last"])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_a_sample_has_the_classes_in_proportion_and_in_order(order, n_classes):
    everything = rows_of_batches(30_000, n_classes)
    if order != "random":
        everything.y[:] = np.sort(everything.y)
    if order == "rare class last":
        everything.y[:-40], everything.y[-40:] = everything.y[:-40] % (n_classes - 1), n_classes - 1
    found = drawn(everything, 1000)
    assert len(found.X) == 1000
    assert np.all(np.diff(found.X[:, 0]) > 0.0)
    assert np.all(np.abs(np.bincount(found.y) - (np.bincount(everything.y) / 30.0)) < 1.0)
    np.testing.assert_array_equal(found.y, everything.y[(found.X[:, 0] / 2).astype(int)])


def test_a_sample_is_of_rows_of_positive_weight():
    everything = rows_of_batches(30_000)
    everything.weight[::3] = 0.0
    found = drawn(everything, 1000)
    assert len(found.X) == 1000
    assert np.all(found.weight > 0.0)
    # Fewer of them than asked.
    everything.weight[500:] = 0.0
    assert len(drawn(everything, 1000).X) == np.count_nonzero(everything.weight)


def test_every_row_is_as_likely_to_be_drawn():
    n, size, repetitions = 4 * internals.BLOCK_ROWS, 400, 300
    everything = rows_of_batches(n)
    counts = np.zeros(n)
    for seed in range(repetitions):
        counts[(drawn(everything, size, seed=seed).X[:, 0] / 2).astype(int)] += 1
    # Sums over tenths of the rows are near normal: within five standard deviations.
    tenths = counts[: n // 10 * 10].reshape(10, -1).sum(axis=1)
    mean = repetitions * size / 10
    assert np.all(np.abs(tenths - mean) < 5.0 * np.sqrt(mean))


def test_a_source_of_batches_is_one_of_rows():
    everything = rows_of_batches(2 * internals.BLOCK_ROWS + 5)
    memory, n = internals.ArraySource(*everything), len(everything.X)
    source = BatchSource(lambda: iter(cut(everything, [3, 1000, 1300])), n, 2, float(n))
    for one, other in zip(source.blocks(), memory.blocks(), strict=True):
        np.testing.assert_equal([one.start, one.X, one.weight], [other.start, other.X, other.weight])
    for scale in (1.0, 2.0):
        one, other = (each.sample(np.array([5, 2000, 17, 2000]), scale) for each in (source, memory))
        np.testing.assert_equal([one.X, one.y, one.weight], [other.X, other.y, other.weight])
