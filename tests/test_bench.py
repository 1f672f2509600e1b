"""The benchmarks: records that expire, golden outputs, pages of what holds, and every study at tiny sizes."""

import json
import re
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "bench"))

import goldens  # noqa: E402
import measure  # noqa: E402
import methods  # noqa: E402
import problems  # noqa: E402
import records  # noqa: E402
import report  # noqa: E402
import run  # noqa: E402
import studies  # noqa: E402

# The source distribution has the benchmarks, but not what they have measured.
of_records = pytest.mark.skipif(not records.RESULTS.is_dir(), reason="there are no records in a source distribution")
BOTH = {records.OUTPUTS, records.VERSION}


def record(**changes):
    made = {
        "of": ["xgpc"], "set": None, "data": None, "commit": "0123456789ab", "changed": False, "others": 0.01,
        "date": "2026-01-02T03:04:05+00:00", "processor": "a processor", "cores": 2, "outputs": 3, "numbers": {},
        "versions": {"xgpc": "1.0", "lightgbm": "4.0", "python": "3.12"},
    }  # fmt: skip
    return {**made, **changes}


@pytest.fixture
def versions(monkeypatch):
    """Versions that are installed, by library; None for others."""
    found = {"xgpc": "1.0"}
    monkeypatch.setattr(records, "installed", found.get)
    return found


def test_records_of_accuracy_expire_with_outputs_and_those_of_times_with_the_version(versions):
    assert records.expired(record(), BOTH, 3) == ""
    assert "outputs have changed" in records.expired(record(), {records.OUTPUTS}, 4)
    assert records.expired(record(), {records.VERSION}, 4) == ""
    versions["xgpc"] = "1.1"
    assert records.expired(record(), {records.OUTPUTS}, 3) == ""
    assert records.expired(record(), {records.VERSION}, 3) == "measured with xgpc 1.0, and 1.1 is installed"


def test_numbers_of_another_library_expire_with_its_version_alone(versions):
    theirs = record(of=["lightgbm"])
    assert records.expired(theirs, BOTH, 4) == ""
    versions["lightgbm"] = "4.0"
    assert records.expired(theirs, BOTH, 4) == ""
    versions["lightgbm"] = "5.0"
    assert records.expired(theirs, set(), 3) == "measured with lightgbm 4.0, and 5.0 is installed"
    assert records.expired(record(), BOTH, 3) == ""


def test_records_from_before_stamps_are_of_the_first_outputs(versions):
    versions["xgpc"] = records.FIRST_VERSION
    old = record(versions={"gpytorch": "1.0"})
    del old["of"], old["outputs"]
    assert records.libraries_of(old) == ["xgpc", "gpytorch"]
    assert records.expired(old, BOTH, records.FIRST_OUTPUTS) == ""
    assert records.expired(old, BOTH, records.FIRST_OUTPUTS + 1)
    versions["gpytorch"] = "2.0"
    assert "gpytorch" in records.expired(old, BOTH, records.FIRST_OUTPUTS)


def test_stored_records_are_read_again_and_replace_those_of_their_name(tmp_path):
    for name, number in (("a", 1), ("b", 2), ("a", 3)):
        records.store("trees", name, {"numbers": number}, tmp_path)
    assert records.read("trees", tmp_path) == {"a": {"numbers": 3}, "b": {"numbers": 2}}
    assert records.read("svgp", tmp_path) == {}
    assert [path.name for path in tmp_path.iterdir()] == ["trees.json"]


def test_outputs_get_a_new_number_when_they_move_by_more_than_rounding(tmp_path, monkeypatch):
    now = {"linear": [-0.25, -0.5, 0.75]}
    monkeypatch.setattr(goldens, "FITS", dict.fromkeys(now))
    monkeypatch.setattr(goldens, "outputs_of", lambda name: now[name])
    assert goldens.kept(tmp_path) == (0, {})
    assert goldens.update(tmp_path) == 1
    now["linear"] = [-0.25, -0.5, 0.75 + 0.9e-4]
    assert goldens.update(tmp_path) == 1
    now["linear"] = [-0.25, -0.5, 0.75 + 2e-4]
    assert goldens.moved(goldens.kept(tmp_path)[1], now) == ["linear: moved by 2.0e-04"]
    assert goldens.update(tmp_path) == 2
    assert goldens.kept(tmp_path) == (2, now)
    assert goldens.moved({"linear": [1.0]}, now) == ["linear: no outputs were kept"]


@of_records
def test_golden_fits_have_kept_outputs_and_their_fits_repeat():
    assert set(goldens.kept()[1]) == set(goldens.FITS)
    found = [goldens.outputs_of("linear") for _ in range(2)]
    np.testing.assert_array_equal(*found)
    assert len(found[0]) == 2 + goldens.SHOWN


def stored_trees():
    """Records of two sets: a win and a loss beside LightGBM, and rows that chance explains beside CatBoost."""
    trees, rng, found = studies.study("trees"), np.random.default_rng(0), {}
    ours = rng.exponential(0.3, 2000)
    for name, shift in (("magic", -0.1), ("higgs", 0.1)):
        theirs = {"xgpc": ours, "lightgbm": np.maximum(ours - shift, 0.0), "catboost": rng.permutation(ours)}
        for method, losses in theirs.items():
            numbers = {"rows": 20_000, "features": 3, "classes": 2, "test_rows": 2000, "error": 0.1, "seconds": 2.0}
            numbers |= {"prediction_seconds": 0.01, "neighbours": 24, "losses": trees.packed(losses)}
            numbers["nll"] = float(np.mean(losses))
            found[f"{name}: {method}"] = record(of=[methods.METHODS[method].library], numbers=numbers)
    return found


def test_losses_of_rows_are_packed_with_small_errors():
    trees, losses = studies.study("trees"), np.random.default_rng(0).exponential(0.3, 5000)
    text = trees.packed(losses)
    assert len(text) < 2 * len(losses)
    found = trees.unpacked(text)
    np.testing.assert_allclose(np.sqrt(found), np.sqrt(losses), atol=0.51 / trees.STEPS)
    assert abs(found.mean() - losses.mean()) < 1e-3
    assert trees.unpacked(trees.packed(np.array([34.6])))[0] == pytest.approx(34.6, abs=0.2)


def test_wins_losses_and_ties_are_counted_by_two_standard_errors(tmp_path):
    trees, stored = studies.study("trees"), stored_trees()
    found = trees.found_of(stored)
    assert list(found) == ["magic", "higgs"]
    verdicts = {(key, name): trees.verdict(found[key], name) for key in found for name in ("lightgbm", "catboost")}
    assert [verdicts[key, "lightgbm"] for key in found] == ["W", "L"]
    assert [verdicts[key, "catboost"] for key in found] == ["=", "="]
    assert trees.losses(found) == "to LightGBM on higgs"
    made = trees.report(stored)
    assert "Losses: to LightGBM on higgs." in made
    assert "**L**" in next(line for line in made.splitlines() if line.startswith("| higgs"))
    text = report.summary({"trees": stored, "svgp": {}})
    assert "| LightGBM | 1 | 1 | 0 | 2 s | 5 µs |" in text
    assert "| CatBoost | 0 | 0 | 2 |" in text
    assert "XGBoost" not in text
    assert "Measured 2026-01-02 at 0123456; a processor, 2 cores;" in " ".join(text.split())
    report.draw(found, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").exists()


def test_a_page_shows_what_holds_and_the_command_for_the_rest():
    page = report.section("trees", stored_trees())
    assert "| magic |" in page
    assert "No record holds of 144 parts from electricity: xgpc to cod-rna-kept-apart: forest" in page
    assert "`python bench/run.py trees --data FOLDER`" in page
    assert "| magic |" not in report.section("trees", {})
    assert "No record holds" in report.summary({"trees": {}, "svgp": {}})


def test_a_page_without_the_marks_of_a_table_is_refused():
    page = "<!-- bench: steps -->\nold\n<!-- bench: end -->\n"
    assert report.filled(page, "steps", "new") == "<!-- bench: steps -->\n\nnew\n\n<!-- bench: end -->\n"
    with pytest.raises(SystemExit, match="needs one <!-- bench: systems -->"):
        report.filled(page, "systems", "new")


def test_the_target_of_learning_curves_is_the_better_other_library_s_best(tmp_path):
    svgp = studies.study("svgp")
    nlls = {"xgpc": (0.5, 0.301), "gpytorch": (0.4, 0.3), "gpflow": (0.32, 0.31)}
    found = {
        f"banana: {name}": {"numbers": {"points": [
            {"seconds": 1.0 + i * factor, "nll": nll, "error": nll} for i, nll in enumerate(values)
        ]}} for (name, values), factor in zip(nlls.items(), (1.0, 9.0, 20.0), strict=True)
    }  # fmt: skip
    assert svgp.compared(svgp.curves_of(found)["banana"]) == ("gpytorch", 0.3, 0.301, 10.0, 2.0)
    assert svgp.ratios(found) == {"banana": 5.0}
    assert "| banana | GPyTorch | 0.3000 | 0.3010 | 10.0 s | 2.00 s | 5 |" in svgp.report(found)
    assert svgp.draw(found, tmp_path) == ["svgp.png"]
    found["banana: xgpc"]["numbers"]["points"].pop()
    assert "never reaches the target on banana" in svgp.report(found)


@of_records
def test_pages_are_short_and_have_every_study():
    document = report.DOCS.read_text(encoding="utf-8")
    assert len(document.splitlines()) <= 300
    for name in studies.NAMES:
        assert f"## {studies.title_and_text(studies.study(name))[0]}\n" in document
    for path in (report.DOCS, report.README):
        for shown in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / shown).is_file()


@of_records
def test_every_stored_record_is_readable_and_of_a_study():
    assert {path.stem for path in records.RESULTS.glob("*.json")} <= {*studies.NAMES, "goldens"}
    needed = {"set", "data", "commit", "changed", "date", "processor", "cores", "versions", "others", "numbers"}
    for name in studies.NAMES:
        found = records.read(name)
        assert all(needed <= set(stored) for stored in found.values()), name
        assert isinstance(studies.study(name).report(found), str)
    page = report.GUIDE.read_text(encoding="utf-8")
    assert report.guide(page, records.read("papers")).count("<!-- bench: end -->") == page.count("<!-- bench: end -->")


def test_the_plan_fits_its_limits():
    minutes = [studies.study(name).MINUTES for name in studies.NAMES]
    assert max(minutes) <= 15
    assert sum(minutes) <= 75
    assert sorted(studies.ORDER) == sorted(studies.NAMES)
    for name in studies.NAMES:
        study = studies.study(name)
        assert study.EXPIRES <= BOTH
        names = [part.name for part in study.parts(None, quick=False)]
        assert len(set(names)) == len(names)


@pytest.mark.parametrize(("name", "only"), [("trees", "wine"), ("calibration", "wine"), ("small", "50 rows: xgpc"),
                                            ("papers", "noise"), ("truth", "sampler")])  # fmt: skip
def test_a_run_stores_records_that_hold_and_measures_no_part_twice(name, only, tmp_path, monkeypatch, capsys):
    if name == "truth":
        pytest.importorskip("polyagamma")
    monkeypatch.setattr(goldens, "update", lambda folder: 7)
    study = studies.study(name)
    tiny = study.parts(None, quick=True)
    monkeypatch.setattr(study, "parts", lambda data, quick: tiny)
    options = Namespace(data=None, only=only, again=False, quick=False, results=tmp_path)
    run.run(study, options)
    stored = records.holding(study, 7, tmp_path)
    assert stored
    assert all(only in key and found["outputs"] == 7 and found["versions"]["xgpc"] for key, found in stored.items())
    assert all((found["data"] is None) == (found["set"] is None) for found in stored.values())
    json.dumps(stored)
    capsys.readouterr()
    run.run(study, options)
    assert "others took" not in capsys.readouterr().err


def test_a_run_refuses_the_library_of_another_checkout(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "xgpc", Namespace(__file__=str(tmp_path / "xgpc" / "__init__.py")))
    with pytest.raises(SystemExit, match="library of their own checkout"):
        run.main(["trees", "--quick"])


def test_problems_have_splits_in_units_of_the_training_rows_and_a_hash_of_their_content(tmp_path):
    rng = np.random.default_rng(0)
    X, y = np.column_stack([rng.normal(3.0, 5.0, 50), np.full(50, 0.1)]), np.arange(50) % 2
    np.savez(tmp_path / "small.npz", X=X.astype(np.float32), y=y)
    problem = problems.load(tmp_path, "small")
    data = problems.split(problem, 0)
    assert (len(data.y), len(data.y_test)) == (45, 5)
    np.testing.assert_allclose(data.X[:, 0].std(), 1.0)
    np.testing.assert_array_equal(data.X[:, 1], np.float32(0.1))
    assert problem.hash != problem._replace(y=1 - y).hash
    assert problem.hash != problem._replace(X=problem.X.T.reshape(50, 2)).hash
    with pytest.raises(SystemExit, match="No data set 'large'"):
        problems.load(tmp_path, "large")


def test_splits_keep_time_and_equal_rows_apart_and_tables_have_levels():
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 4, (60, 3)).astype(float), np.arange(60) % 2
    data, settings, _ = problems.draw(problems.Problem("x" + problems.IN_TIME, X, y), 0)
    np.testing.assert_array_equal(data.y_test, y[-6:])
    assert "query_split" in settings
    data, _, options = problems.draw(problems.Problem("x" + problems.KEPT_APART, X, y), 0)
    assert not {tuple(row) for row in data.X} & {tuple(row) for row in data.X_test}
    assert len(options["groups"]) == len(data.y)
    data, *_ = problems.draw(problems.load(None, "table"), 0)
    assert [str(kind) for kind in data.X.dtypes] == ["float64", "category"]


def test_scores_are_those_of_the_true_classes():
    found = measure.scores(np.array([[0.8, 0.2], [0.6, 0.4], [1.0, 0.0]]), np.array([0, 1, 1]))
    np.testing.assert_allclose(found["nll"], -(np.log(0.8) + np.log(0.4) + np.log(1e-15)) / 3)
    np.testing.assert_allclose(found["error"], 2 / 3)
