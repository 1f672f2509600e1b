"""The registry: what every likelihood's bound says of itself, and the compiled list of sites that it names."""

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from support import sites
from support.fits import clone_of, quietly, refuses
from support.latents import RECORDS, every, seeds
from support.sites import evaluate
from support.training import softmax_curvatures

from xgpc import BayesianLinearClassifier, _sites
from xgpc.likelihoods import LIKELIHOODS, ORDERED, record_of

COUPLED = [record for record in RECORDS if record.curvature is not None]
every_record = every(RECORDS)


def problem(record, seed, n=12, n_classes=4):
    """A site, and marginals (C, n) and labels of n rows."""
    site = record.at(0.05).site(n_classes)
    m, v, y = sites.problem(site.n_latents, seed, n, 3.0, 0.1, 20.0)
    return site, m, v, y.astype(float)


def test_every_compiled_site_has_a_record_and_every_record_a_site():
    assert [record.key for record in RECORDS] == list(dict.fromkeys(record.key for record in RECORDS))
    ordered = [record for bounds in ORDERED.values() for record in bounds.values()]
    assert {record.key for record in [*RECORDS, *ordered]} == set(_sites.KINDS)
    assert {record.key for record in RECORDS if record.is_multi_class} == _sites.MULTI_CLASS
    assert sorted(_sites.KINDS.values()) == list(range(len(RECORDS) + len(ordered)))


@every_record
def test_names_in_a_record_are_records_of_as_many_latent_functions(record):
    for key in (record.start, record.other_start, record.fallback, record.exact):
        if key is not None:
            other = record_of(*key)
            assert other.key == key != record.key
            assert other.is_multi_class == record.is_multi_class
            assert other.is_bound
            # No site that is to help has itself something to learn.
            assert not other.has_label_noise


@every(record for record in RECORDS if record.start or record.has_label_noise)
@settings(max_examples=20)
@given(seed=seeds)
def test_starts_need_no_start_and_have_no_negative_precision(record, seed):
    """Bounds with label noise need one, because all of their precisions can be negative at the prior."""
    start = record_of(*record.start)
    assert start.start is None
    site, m, v, y = problem(start, seed)
    assert np.all(evaluate(site, m, v, y)[1] >= 0.0)


@every(record for record in RECORDS if record.fallback or record.exact)
@settings(max_examples=20)
@given(seed=seeds)
def test_fallbacks_are_no_higher_and_exact_expectations_no_lower(record, seed):
    site, m, v, y = problem(record, seed)
    for key, sign, quality in (record.fallback, -1.0, "is_safe"), (record.exact, 1.0, "is_exact"):
        if key:
            other = record_of(*key)
            assert (other.likelihood, getattr(other, quality)) == (record.likelihood, True)
            assert np.all(sign * (evaluate(other.site(4), m, v, y)[0] - evaluate(site, m, v, y)[0]) >= -1e-7)


@every(record for record in RECORDS if record.has_quadratics)
@settings(max_examples=20)
@given(seed=seeds)
def test_quadratics_are_concave_and_of_one_latent_function(record, seed):
    assert not record.is_multi_class
    assert not record.has_wrong_labels
    site, m, v, y = problem(record, seed)
    assert np.all(evaluate(site, m, v, y)[1] > 0.0)


@every_record
def test_the_linear_classifier_takes_what_has_quadratics(record):
    X, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
    model = BayesianLinearClassifier(record.likelihood, bound=record.bound)
    if record.has_quadratics:
        assert quietly(model, X, y).predict(X).shape == (20,)
    else:
        refuses(r"likelihood|bound", model.fit, X, y)


@every(record for record in RECORDS if record.is_safe and record.is_bound and record.has_quadratics)
@settings(max_examples=20)
@given(seed=seeds)
def test_safe_bounds_have_quadratics_below_them(record, seed):
    """At marginals anywhere, of sites made elsewhere; the expansion has no bound to be below."""
    site, m, v, y = problem(record, seed)
    _, other, spread, _ = problem(record, seed + 1)
    ell, precision, linear = evaluate(site, m, v, y)
    quadratic = ell + linear * (other - m) - 0.5 * precision * (other**2 + spread - m**2 - v)
    assert np.all(quadratic <= evaluate(site, other, spread, y)[0] + 1e-9 * (1.0 + np.abs(quadratic)))


@every_record
@settings(max_examples=20)
@given(seed=seeds)
def test_jaakkola_jordan_sites_are_those_of_their_paper(record, seed):
    """xi = sqrt(m^2 + v), tanh(xi / 2) / (2 xi) and y / 2: exactly those bounds have them."""
    site, m, v, y = problem(record, seed)
    _, precision, linear = evaluate(site, m, v, y)
    xi = np.sqrt(m**2 + v)
    is_of_form = not record.is_multi_class and np.allclose(precision, np.tanh(0.5 * xi) / (2.0 * xi), rtol=1e-12)
    assert is_of_form == record.is_jaakkola_jordan
    if is_of_form:
        assert_allclose(linear[0], 0.5 * y, rtol=0.0)


@every_record
def test_shares_of_wrong_labels_are_what_changes_the_site(record):
    _, m, v, y = problem(record, 3)
    values = [evaluate(record.at(delta).site(4), m, v, y)[0] for delta in (0.01, 0.2)]
    assert np.allclose(*values, rtol=1e-3) != record.has_wrong_labels
    learned = record.site(4, first=0.03)
    assert learned.learned == record.has_label_noise
    assert not record.at(0.1).site(4).learned
    if record.has_wrong_labels:
        assert (learned.parameter, record.at(0.1).site(4).parameter) == (0.03, 0.1)


@every_record
@settings(max_examples=20)
@given(seed=seeds)
def test_precisions_of_one_latent_function_are_negative_where_labels_may_be_wrong(record, seed):
    site, m, v, y = problem(record, seed, n=100)
    assert record.is_multi_class or record.has_wrong_labels == bool(np.any(evaluate(site, m, v, y)[1] < 0.0))


@every_record
def test_only_what_is_no_bound_says_so(record):
    """The expected log likelihood is where the variance goes to zero: a bound is below it with more, at any mean."""
    site, m, v, y = problem(record, 4)
    exact = next((r for r in LIKELIHOODS[record.likelihood].values() if r.is_exact), None)
    is_bound = True
    if exact is not None and not record.has_wrong_labels and not record.is_multi_class:
        is_bound = np.all(evaluate(site, m, v, y)[0] <= evaluate(exact.site(4), m, v, y)[0] + 1e-6)
    assert record.is_bound == is_bound


def dense_star(point_sites, y, weight):
    """The second: sums of positive precisions, each times d d^T, d from its class to that of the label."""
    precision = np.maximum(point_sites[2], 0.0)
    d = np.eye(len(precision))[y.astype(int)][:, None] - np.eye(len(precision))
    return None, np.einsum("cn,nci,ncj->nij", precision, d, d)


DENSE = {("softmax", bound): softmax_curvatures for bound in ("exact", "additive-noise")}
DENSE |= {(f"multinomial-{name}", "additive-noise"): dense_star for name in ("step", "probit", "logit")}


def test_likelihoods_with_a_curvature_are_those_that_a_common_shift_leaves():
    """And no others: logistic-softmax and two classes depend on it."""
    for record in RECORDS:
        site, m, v, y = problem(record, 8)
        moved = np.allclose(evaluate(site, m + 2.0, v, y)[0], evaluate(site, m, v, y)[0], rtol=1e-9)
        assert moved == (record.curvature is not None)
    assert {record.key for record in COUPLED} == set(DENSE)


@every(COUPLED)
@settings(max_examples=20)
@given(seed=seeds, weighted=st.booleans(), n_classes=st.integers(2, 6))
def test_curvatures_are_those_of_dense_matrices(record, seed, weighted, n_classes):
    site, m, v, y = problem(record, seed, n_classes=n_classes)
    random = np.random.default_rng(seed)
    weight = random.uniform(0.2, 3.0, len(y)) if weighted else np.ones(len(y))
    _, precision, linear = evaluate(site, m, v, y, weight)
    gradient, values = linear - precision * m, random.normal(size=m.shape)
    arrays = (y, weight, values, gradient, precision)
    before = [a.copy() for a in arrays]
    times = record.curvature(y, weight, gradient, precision)
    product = times(values)
    for i, H in enumerate(DENSE[record.key]((m, v, precision, linear), y, weight)[1]):
        assert_allclose(product[:, i], H @ values[:, i], rtol=1e-9, atol=1e-12 * np.abs(H).max())
        assert np.linalg.eigvalsh(H)[0] > -1e-12 * (1.0 + np.abs(H).max())
    assert_allclose(times(np.ones_like(m)), 0.0, atol=1e-12 * (1.0 + precision.max()))
    assert np.array_equal(times(values), product)
    # Of some rows it is that of all.
    part = slice(3, 9)
    again = record.curvature(y[part], weight[part], gradient[:, part], precision[:, part])(values[:, part])
    assert np.array_equal(again, product[:, part])
    np.testing.assert_equal(list(arrays), before)


@every_record
@pytest.mark.parametrize("copied", [clone_of, copy.copy, copy.deepcopy], ids=lambda function: function.__name__)
def test_sites_survive_pickling(record, copied):
    """With table, key and record: the same sites, bit for bit."""
    site, m, v, y = problem(record, 7)
    site = record.site(4, 0.03)
    other = copied(site)
    names = ("likelihood", "bound", "n_latents", "parameter", "learned", "key")
    assert [getattr(other, name) for name in names] == [getattr(site, name) for name in names]
    assert other.record is record
    np.testing.assert_equal(evaluate(other, m, v, y), evaluate(site, m, v, y))
    table = None if record.table is None else record.table()
    assert copied(_sites.Site(*record.key, n_latents=site.n_latents, table=table)).record is None
