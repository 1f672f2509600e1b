"""The page about a fitted classifier: what it says of test rows, and that it is one file."""

from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import random as random_sparse
from sklearn.datasets import load_wine, make_moons
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler
from support.fits import quietly, refuses

from xgpc import GPClassifier, GPOrdinalClassifier
from xgpc.metrics import expected_calibration_error

FEW = {"n_inducing": 10, "n_neighbors": 0, "max_iter": 20, "random_state": 0}


class Page(HTMLParser):
    """Texts of a page; its elements must be closed, and nothing may be read from elsewhere."""

    def __init__(self, html):
        super().__init__()
        self.open, self.texts, self.tags, self.rows = [], [], [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        assert tag not in ("script", "link", "img", "iframe")
        assert not {"src", "href", "onload", "onclick"} & {name for name, _ in attributes}
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        # Only this element has no end.
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        self.texts.append(text)
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1].append(text)

    def row(self, name):
        """The numbers beside the first cell of this text."""
        (cells,) = (row[1:] for row in self.rows if row and row[0] == name)
        return cells


@pytest.fixture(scope="module")
def moons():
    X, y = make_moons(400, noise=0.3, random_state=0)
    return GPClassifier(random_state=0).fit(X[:200], y[:200]), X, y


def test_the_page_has_the_scores_of_the_model_of_others_and_of_the_class_frequencies(moons):
    model, X, y = moons
    linear = LogisticRegression().fit(X[:200], y[:200])
    page = Page(model.report(X[200:], y[200:], others={"a <b>line</b>": linear}))
    assert page.rows[0] == ["GPClassifier", "a <b>line</b>", "class frequencies"]
    p, q = (each.predict_proba(X[200:])[:, 1] for each in (model, linear))
    nll = [log_loss(y[200:], each) for each in (p, q, np.full(200, np.mean(y[:200])))]
    np.testing.assert_allclose([float(cell) for cell in page.row("mean NLL (nats)")], nll, atol=6e-5)
    gains = np.log(np.where(y[200:], p, 1 - p)) - np.log(np.where(y[200:], q, 1 - q))
    mean, error = (float(part) for part in page.row("gain of GPClassifier (nats a row)")[0].split(" ± "))
    np.testing.assert_allclose([mean, error], [np.mean(gains), np.std(gains, ddof=1) / np.sqrt(200)], atol=6e-4)
    assert f"{expected_calibration_error(y[200:], p):.3f}" in "".join(page.texts)
    counts = [[np.sum((y[200:] == a) & ((p > 0.5) == b)) for b in (0, 1)] for a in (0, 1)]
    assert [page.row(str(a)) for a in (0, 1)] == [[str(count) for count in row] for row in counts]
    assert page.tags.count("svg") == 1
    assert all(words in "".join(page.texts) for words in ("For AUC higher is better", "the nat is its unit"))


def test_the_page_explains_the_kernels_that_it_names(moons):
    model, X, y = moons
    page = Page(model.report(X[200:], y[200:]))
    assert any("AxisMatern in place of RBF" in text for text in model.decisions_)
    assert "smooth" in page.row("RBF")[0]
    assert "rough" in page.row("AxisMatern")[0]
    assert not any(row[:1] == ["Matern"] for row in page.rows)


def test_the_page_says_whether_probabilities_can_be_trusted(moons):
    model, X, y = moons
    assert "Yes, as far as these rows tell." in model.report(X[200:], y[200:])
    assert "the model is too sure" in model.report(X[200:], np.random.default_rng(0).permutation(y[200:]))


def test_the_page_says_that_class_weights_move_probabilities_and_that_noise_tells_nothing():
    random = np.random.default_rng(0)
    X, y = random.normal(size=(400, 2)), random.binomial(1, 0.2, 400)
    page = quietly(GPClassifier(**FEW | {"class_weight": "balanced"}), X[:200], y[:200]).report(X[200:], y[200:])
    assert "Not quite: the probabilities of class 1 are too large" in page
    assert "class_weight multiplies the probabilities" in page
    assert "No: these rows do not show that it is better than the class frequencies." in page


def test_rows_that_the_model_is_least_sure_of_come_first(moons):
    model, X, y = moons
    page = Page(model.report(X[200:], y[200:]))
    start = page.rows.index(["row, from 0", "predicted", "its probability", "class"]) + 1
    top = np.max(model.predict_proba(X[200:]), axis=1)
    assert [int(row[0]) for row in page.rows[start : start + 12]] == np.argsort(top, kind="stable")[:12].tolist()


@pytest.mark.parametrize("n_neighbors", [0, 5])
def test_a_feature_matters_if_its_values_tell_the_class(n_neighbors):
    """The gain of a feature that alone tells the class is all that the model gains; noise gains nothing."""
    random = np.random.default_rng(0)
    colour, noise = random.choice(["red", "green", "blue"], 600), random.normal(size=600)
    X, y = pd.DataFrame({"noise": noise, "colour": colour}), np.where(colour == "red", "warm", "cold")
    page = Page(quietly(GPClassifier(**FEW | {"n_neighbors": n_neighbors}), X[:200], y[:200]).report(X[200:], y[200:]))
    assert [row[0] for row in page.rows if row and row[0] in X.columns] == ["colour", "noise"]
    # Only what matters has a bar.
    assert [len(page.row("colour")), page.row("noise")[0]] == [1, "could be chance"]
    falls = {name: [float(part) for part in page.row(name)[-1].split(" ± ")] for name in X.columns}
    assert falls["colour"][0] - falls["colour"][1] > 0.5
    assert abs(falls["noise"][0]) <= falls["noise"][1] + 1e-3


@pytest.mark.parametrize(("n_columns", "are_listed"), [(20, True), (500, False)])
def test_features_are_listed_unless_they_are_hundreds(n_columns, are_listed):
    X = random_sparse(300, n_columns, density=0.1, format="csr", rng=0)
    y = (X[:, [0]].toarray().ravel() > 0.0).astype(int)
    page = Page(quietly(GPClassifier(**FEW), X[:200], y[:200]).report(X[200:], y[200:]))
    assert any(row and row[0] == "feature 0" for row in page.rows) == are_listed
    assert any("it would take long" in text for text in page.texts) != are_listed


def test_names_and_labels_of_the_user_are_text():
    rng, name = np.random.default_rng(0), "<script>alert(1)</script>"
    X = pd.DataFrame({name: rng.normal(size=60), "a&b": pd.Categorical(rng.choice(["<i>", '"'], 60))})
    X.iloc[::7, 0] = np.nan
    y = np.where(rng.normal(size=60) > 0.0, "</td><script>", "no & yes")
    assert {name, "</td><script>"} <= set(Page(quietly(GPClassifier(**FEW), X, y).report(X, y)).texts)


@pytest.mark.parametrize("n_rows", [1, 5])
def test_test_rows_may_be_few_and_lack_classes(n_rows):
    X, y = load_wine(return_X_y=True)
    page = Page(quietly(GPClassifier(**FEW), X, y).report(X[:n_rows], y[:n_rows]))
    assert page.row("AUC (one-vs-rest mean)")[0] == "undefined"
    assert any("too few rows to tell" in text for text in page.texts)


def test_many_classes_have_a_list_of_mistakes():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(260, 500)), np.arange(260) % 26
    page = Page(quietly(GPClassifier(**FEW, share="kernel"), X, y).report(X, rng.permutation(y)))
    assert ["class", "taken for", "rows"] in page.rows


def test_classes_in_order_stay_in_order():
    (X, y), names = make_moons(60, noise=0.3, random_state=0), np.array(["low", "medium", "high"])
    grade = names[y + (X[:, 0] > 0.0)]
    model = quietly(GPOrdinalClassifier(max_iter=5, random_state=0), X, grade, classes=names)
    page, predicted = Page(model.report(X, grade)), model.predict(X)
    start = page.rows.index(["class \\ predicted", *names]) + 1
    counts = [[name, *(str(np.sum((grade == name) & (predicted == other))) for other in names)] for name in names]
    assert page.rows[start : start + 3] == counts


def test_a_notebook_shows_the_page_and_a_file_has_it(moons, tmp_path):
    model, X, y = moons
    page = model.report(X[200:], y[200:])
    assert page._repr_html_().startswith("<iframe srcdoc=")
    page.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page
    assert len(page) < 2**21
    refuses("none", page.save, tmp_path / "none" / "page.html", error=OSError)


def test_what_does_not_fit_is_an_error(moons):
    model, X, y = moons
    for labels, others, message in (
        ([0, 1, 2], None, "among the model's classes"),
        ([0, 1], None, "each of the 3 test rows"),
        (y[0], None, "at least one"),
        (y[:3], {"other": LogisticRegression().fit(X, y + 1)}, r"the classes \[0, 1\], .* it has \[1, 2\]"),
        (y[:3], {"none": StandardScaler().fit(X)}, "fitted classifier"),
        (y[:3], {"GPClassifier": model}, "names other than"),
        (y[:3], {1: model, "1": model}, "names other than"),
        (y[:3], [model], "a dict of name"),
    ):
        refuses(message, model.report, X[:3], labels, others=others)
