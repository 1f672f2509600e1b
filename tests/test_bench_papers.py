"""The study of the papers' numbers, and the guide's page of its tables."""

import json
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

sys.path.append(str(Path(__file__).parents[1] / "bench"))

import problems
import records
import report
import studies

# The source distribution has the benchmarks, but not what they have measured.
of_records = pytest.mark.skipif(not records.RESULTS.is_dir(), reason="there are no records in a source distribution")


@of_records
def test_the_guide_s_tables_of_the_papers_are_those_of_the_records():
    page = report.GUIDE.read_text(encoding="utf-8")
    assert report.guide(page, records.read("papers")) == page


def test_a_page_without_the_marks_of_a_table_is_refused():
    page = "<!-- bench: steps -->\nold\n<!-- bench: end -->\n"
    assert report.filled(page, "steps", "new") == "<!-- bench: steps -->\n\nnew\n\n<!-- bench: end -->\n"
    with pytest.raises(SystemExit, match="needs one <!-- bench: systems -->"):
        report.filled(page, "systems", "new")


@pytest.fixture
def papers(monkeypatch):
    """The study of the papers with two length scales to choose from and few inducing points beside X-GPC's."""
    study = studies.study("papers")
    monkeypatch.setattr(study, "GRID", np.array([2.0, 8.0]))
    monkeypatch.setattr(study, "N_INDUCING", 8)
    with threadpool_limits(1):
        yield study


@pytest.mark.parametrize("title", ["x-gpc", "svgp", "svm", "noise", "jaakkola-jordan"])
def test_tables_of_the_papers_have_what_was_measured_beside_what_is_published(papers, title):
    known = papers.WAVEFORM if title == "svm" else papers.TABLES[title][0]
    problem = problems.Problem(known, *problems.twonorm(80))
    options = Namespace(folds=2, full_folds=1, splits=1, seconds=0.1, peers=())
    numbers = json.loads(json.dumps(papers.MEASURES[title](problem, options)))
    for name in (known, "a set of no paper"):
        made = papers.tables({f"{title}: {name}": {"numbers": numbers}})
        header = made[title].splitlines()[0].split(" | ")
        rows = [line.split(" | ") for line in made[title].splitlines() if line.startswith(f"| {name}")]
        assert rows
        assert len(rows[0]) == len(header)
        assert all(name not in text for other, text in made.items() if other != title)
        if title in ("x-gpc", "svm", "noise"):
            assert all("" in row for row in rows) == (name != known)


def test_systems_and_steps_of_the_papers_are_in_their_tables(papers):
    found = {"steps": {"numbers": papers.steps_a_second(repeats=1, steps=4, rows=200, m=8)}}
    rates = found["steps"]["numbers"]["steps_a_second"]
    assert list(rates) == ["kernel stays", "Adam after each", "after one in ten"]
    assert all(rate > 0.0 for values in rates.values() for rate in values)
    assert "| after one in ten | " in papers.tables(found)["steps"]
    assert papers.four_classes().X.shape == (5000, 24)
    assert papers.shape_of_image().X.shape == (2079, 18)
    scores = {"seconds": 1.0, "error": 0.1, "nll": 0.25}
    assert (
        "| X-GPC | 1.00 | 0.1000 | 0.2500 |"
        in papers.tables({"systems": {"numbers": {"systems": {"X-GPC": scores}}}})["systems"]
    )


def test_the_study_of_equation_14_finds_the_dense_formulas_of_the_tests():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 2))
    K = np.exp(-0.5 * np.sum((X[:, None] - X) ** 2, axis=2))
    y, xi = np.where(X[:, 0] > 0.0, 1.0, -1.0), rng.uniform(0.5, 2.0, 12)
    formulas = studies.study("jaakkola_jordan").reference()
    # With an inducing point at every row: the log evidence of Jaakkola and Jordan's normal sites.
    bound = formulas.jaakkola_jordan_bound(K + 1e-9 * np.eye(12), K, np.diag(K), y, xi)
    half = np.tanh(0.5 * xi) / (4.0 * xi)
    S = np.linalg.inv(np.linalg.inv(K + 1e-9 * np.eye(12)) + 2.0 * np.diag(half))
    log_det = np.linalg.slogdet(np.eye(12) + 2.0 * K * half)[1]
    expected = 0.125 * y @ S @ y - 0.5 * log_det + np.sum(half * xi**2 - 0.5 * xi - np.log1p(np.exp(-xi)))
    assert bound == pytest.approx(expected, rel=1e-5)
