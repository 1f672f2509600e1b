"""Decisions and the summary of a fit: sentences, and lines that agree with the model's attributes."""

from operator import attrgetter
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern
from sklearn.metrics import log_loss
from support.fits import refuses, reloaded
from support.reference import moons

from xgpc import GPClassifier
from xgpc.explain import shapley_values

IN_DEVIATIONS = ", in standard deviations"


def lines_of(model):
    """Values of the summary by their names, and its sentences by their title."""
    values, said, title = {}, {}, None
    for line in model.summary().splitlines():
        if line.startswith("  "):
            name, value = line.strip().split("  ", 1)
            values[name] = value.strip()
        elif line.startswith("- "):
            said[title].append(line[2:])
        else:
            title = line.rstrip(":")
            said[title] = []
    return values, said


def test_the_summary_says_what_the_model_says():
    """Of two columns of numbers, one of them constant, and one of levels; of three labels, and of weights."""
    random = np.random.default_rng(0)
    X, colour, weight = random.normal(size=200), random.choice(["red", "green"], 200), random.integers(1.0, 4.0, 200)
    frame = pd.DataFrame({"width": X, "colour": pd.Categorical(colour), "constant": np.full(200, 3.0)})
    y = np.where(X > 0.5, "high", np.where(colour == "red", "low", "middle"))
    with pytest.warns(ConvergenceWarning):
        model = GPClassifier(random_state=0, max_iter=3).fit(frame, y, sample_weight=weight)
    values, said = lines_of(model)
    shares = np.array([weight[y == name].sum() for name in model.classes_]) / weight.sum()
    base = -log_loss(y, np.tile(shares, (len(y), 1)), labels=model.classes_, sample_weight=weight)
    assert (values["rows"], values["features"]) == ("200", "3")
    assert all(f"{name} {share:.1%}" in values["classes"] for name, share in zip(model.classes_, shares, strict=True))
    assert values["bound (ELBO)"] == f"{model.elbo_:.2f} nats, {model.elbo_ / weight.sum():.4f} per row"
    assert values["class frequencies alone"] == f"{base:.4f} nats per row"
    assert values["inducing points"] == str(len(model.inducing_points_))
    # Length scales have the names of columns and levels; along what is constant no row differs.
    scales, is_in_deviations, _ = values["length scales"].partition(IN_DEVIATIONS)
    assert is_in_deviations
    assert sorted(scale.rsplit(" ", 1)[0] for scale in scales.split(", ")) == ["colour=green", "colour=red", "width"]
    assert (said["Warnings"], said["Decisions"]) == (model.warnings_, model.decisions_)
    assert any("max_iter=3 was reached" in message for message in model.warnings_)


def test_length_scales_are_in_standard_deviations_and_the_shortest_come_first():
    random = np.random.default_rng(0)
    scale, spread = np.array([4.0, 1.0, 9.0, 6.0, 2.0, 3.0, 8.0]), np.array([1.0, 2.0, 3.0, 1.0, 4.0, 0.0, 2.0])
    X = random.normal(size=(100, 7))
    X = pd.DataFrame(spread * (X - X.mean(axis=0)) / X.std(axis=0), columns=list("abcdefg"))
    kernel = ConstantKernel(4.0) * Matern(scale, nu=1.5) + RBF(2.0)
    values, _ = lines_of(GPClassifier(kernel, optimizer=None, n_inducing=8, random_state=0).fit(X, X["a"] > 0.0))
    shortest = values["length scales"].removesuffix(f" and 1 more{IN_DEVIATIONS}").split(", ")
    assert sorted(shortest[:2]) == ["b 0.5", "e 0.5"]
    assert [text.split()[1] for text in shortest] == ["0.5", "0.5", "3", "4", "4"]


def test_features_matter_by_their_shapley_values_at_the_inducing_points():
    X, y = moons(300)
    X = pd.DataFrame(np.column_stack([X, np.zeros(300), X[:, 0]]), columns=["a", "b", "none", "a too"])
    kernel = ConstantKernel(4.0) * RBF([0.5, 0.5, 1.0, 1.5])
    model = GPClassifier(kernel, optimizer=None, n_inducing=20, n_neighbors=0, random_state=0).fit(X, y)
    values, said = lines_of(model)
    points = pd.DataFrame(model.inducing_points_, columns=X.columns)
    found = shapley_values(model, points)
    size, std = np.abs(found.values).mean(axis=0), found.std.mean(axis=0)
    order = np.argsort(-size)
    assert X.columns[order[-1]] == "none"
    order = order[size[order] > 2.0 * std[order]]  # the posterior leaves open whether the others have an effect
    assert 1 < len(order) < 4
    assert values["features that matter"] == ", ".join(X.columns[order])
    assert values["mean |Shapley value|"] == ", ".join(f"{size[j]:.3g} +- {std[j]:.2g}" for j in order)
    leave_out, explain, full = said["What to try next"]
    assert leave_out == "Leave out features that hardly change predictions: none."
    assert "shapley_values(model, X)" in explain
    assert "inducing_points='all'" in full
    values, said = lines_of(GPClassifier(Matern([0.5, 0.5, 1.0, 5.0]), optimizer=None, inducing_points="all").fit(X, y))
    assert "features that matter" not in values
    (other,) = said["What to try next"]
    assert other == "Give a kernel of RBF or AxisMatern if xgpc.explain.shapley_values is to explain predictions."


@pytest.mark.parametrize("seed", range(3))
def test_features_of_noise_do_not_matter(seed):
    random = np.random.default_rng(seed)
    X = random.normal(size=(300, 5))
    y = X[:, 0] + X[:, 1] + 0.5 * random.normal(size=300) > 0.0
    values, _ = lines_of(GPClassifier(n_neighbors=0, random_state=0).fit(X, y))
    assert sorted(values["features that matter"].split(", ")) == ["feature 0", "feature 1"]
    few = GPClassifier(RBF(np.ones(5)), optimizer=None, n_neighbors=0)
    values, _ = lines_of(few.fit(X[:20], random.permutation(y[:20])))
    assert values["features that matter"] == "none for certain"


def test_a_notebook_shows_the_summary_line_by_line():
    X, y = moons(100)
    text = GPClassifier(optimizer=None, n_inducing=5).fit(X, np.where(y > 0, "<b>", "&")).summary()
    assert "".join(ElementTree.fromstring(text._repr_html_()).itertext()) == text


@pytest.mark.parametrize("ask", [attrgetter("decisions_"), attrgetter("kernel_"), GPClassifier.to_arrays])
def test_what_describes_a_fit_needs_one(ask):
    refuses("This GPClassifier instance is not fitted yet", ask, GPClassifier(), error=NotFittedError)


def test_decisions_are_sentences_of_the_history_in_their_order():
    X, y = moons(400)
    model = GPClassifier(random_state=0, tol=1e-2).fit(X, y)
    assert model.decisions_
    assert model.decisions_ == [text for text in model.history_["decision"] if text]
    assert all(type(text) is str and text[0].isupper() and text.endswith(".") for text in model.decisions_)
    assert GPClassifier(optimizer=None, n_inducing=5).fit(X, y).decisions_ == []


@pytest.mark.parametrize("factor", [1.0, 0.5])
@pytest.mark.parametrize("begin", ["fit", "partial_fit"])
def test_all_batches_are_summed_up(begin, factor, tmp_path):
    X, y = moons(300)
    weight = np.random.default_rng(0).integers(0, 3, 300).astype(float)
    model = GPClassifier(n_inducing=8, n_neighbors=0, optimizer=None, random_state=0)
    getattr(model, begin)(X[:200], y[:200], sample_weight=weight[:200])
    assert model.n_samples_seen_ == np.count_nonzero(weight[:200])
    expected = np.bincount(y[:200] > 0, weight[:200])
    for part in (slice(200, 250), slice(250, 300)):
        model.partial_fit(X[part], y[part], sample_weight=weight[part], forgetting_factor=factor)
        expected = factor * expected + np.bincount(y[part] > 0, weight[part])
    np.testing.assert_allclose(model.class_count_, expected)
    assert model.n_samples_seen_ == np.count_nonzero(weight)
    values, _ = lines_of(model)
    assert values["rows"] == str(model.n_samples_seen_)
    assert all(f"{name} {share:.1%}" in values["classes"] for name, share in enumerate(expected / expected.sum()))
    # The bound is what partial_fit says that it is.
    last = np.count_nonzero(weight[250:])
    assert values["bound (ELBO)"] == f"{model.elbo_:.2f} nats, of the last batch, of {last} rows"
    again = reloaded(model, tmp_path)
    assert again.summary() == model.summary()
    assert again.n_samples_seen_ == model.n_samples_seen_
    assert lines_of(model.fit(X, y))[0]["rows"] == "300"


def test_many_classes_take_few_lines():
    X, y = np.random.default_rng(0).normal(size=(84, 2)), np.arange(84) % 12
    text = GPClassifier(share="none", optimizer=None, n_inducing=5, random_state=0).fit(X, y).summary()
    assert "12 classes: 0 8.3%, 1 8.3%, " in text
    assert " and 2 more" in text
    assert text.count("  kernel  ") == 5
