"""The benchmarks' harness: records that go stale, reports that refuse them, tables that list every data set."""

import itertools
import json
import re
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "bench"))

import markdown_tables  # noqa: E402
import measure  # noqa: E402
import methods  # noqa: E402
import picture  # noqa: E402
import problems  # noqa: E402
import records  # noqa: E402
import report  # noqa: E402
import run  # noqa: E402
import studies  # noqa: E402

STUDIES = studies.names()
# The source distribution has the benchmarks, but not what they have measured.
of_records = pytest.mark.skipif(not records.RESULTS.is_dir(), reason="there are no records in a source distribution")


@pytest.fixture
def library(tmp_path):
    """A folder with the sources of a small library."""
    (tmp_path / "xgpc").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "xgpc" / "fit.py").write_text("fit = 1\n")
    (tmp_path / "xgpc" / "cli.py").write_text("cli = 1\n")
    (tmp_path / "src" / "core.c").write_text("int core;\n")
    return tmp_path


PATTERNS = ("xgpc/**/*", "src/**/*", "!xgpc/**/cli.py")


def test_hash_changes_with_the_content_and_the_names_of_its_files(library):
    before = records.hash_of(PATTERNS, library)
    assert records.hash_of(PATTERNS, library) == before
    (library / "src" / "core.c").write_text("int core; \n")
    edited = records.hash_of(PATTERNS, library)
    (library / "src" / "core.c").write_text("int core;\n")
    assert records.hash_of(PATTERNS, library) == before != edited
    (library / "src" / "core.c").rename(library / "src" / "other.c")
    assert records.hash_of(PATTERNS, library) != before


def test_hash_does_not_see_files_that_are_taken_away_or_no_sources(library):
    before = records.hash_of(PATTERNS, library)
    (library / "xgpc" / "cli.py").write_text("cli = 2\n")
    (library / "xgpc" / "core.so").write_text("built")
    (library / "README.md").write_text("text")
    assert records.hash_of(PATTERNS, library) == before
    assert records.hash_of(PATTERNS[:2], library) != before


def test_hash_is_of_sorted_files_and_refuses_a_pattern_without_any(library):
    assert [path.name for path in records.files(PATTERNS, library)] == ["core.c", "fit.py"]
    with pytest.raises(ValueError, match=r"no source file matches 'xgpc/passes.py'"):
        records.hash_of(("xgpc/passes.py",), library)


def record(**changes):
    made = {
        "command": "python bench/run.py splits", "options": {}, "set": None, "data": None, "commit": "0123456789ab",
        "changed": False, "files": "now", "others": 0.01, "processor": "a processor", "cores": 2, "numbers": {},
    }  # fmt: skip
    return {**made, **changes}


def test_a_good_record_has_no_objections():
    assert records.objections(record(), "now", timed=True) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"files": "then"}, "stale: made at commit 012345678, before later changes of the library"),
        ({"files": "then", "changed": True}, "stale: made at commit 012345678 with changes that it does not have"),
        ({"files": None, "commit": None}, "stale: made at an unknown commit before hashes were kept"),
        ({"files": None, "stored_with": "a" * 40}, "hashes were kept, first stored with commit aaaaaaaaa"),
        ({"others": 0.2}, "busy: other processes took 0.20 cores"),
        ({"others": float("nan")}, "busy: other processes took nan cores"),
        ({"others": None}, "load unknown: what other processes took was not kept"),
    ],
)
def test_stale_and_busy_records_say_why(changes, said):
    (sentence,) = records.objections(record(**changes), "now", timed=True)
    assert said in sentence


def test_the_load_of_others_is_no_objection_to_numbers_that_are_no_times():
    assert records.objections(record(others=1.5), "now", timed=False) == []


def test_stored_records_are_read_again_and_replace_those_of_their_name(tmp_path):
    records.store("splits", "a", {"numbers": 1}, tmp_path)
    records.store("splits", "b", {"numbers": 2}, tmp_path)
    records.store("splits", "a", {"numbers": 3}, tmp_path)
    assert records.read("splits", tmp_path) == {"a": {"numbers": 3}, "b": {"numbers": 2}}
    assert records.read("trees", tmp_path) == {}
    assert [path.name for path in tmp_path.iterdir()] == ["splits.json"]


def runs_of(nll):
    return {"rows": 10, "reference_nll": 0.3, "runs": [{"split": 0, "seconds": 1.0, "nll": nll, "error": 0.1}]}


@pytest.fixture
def splits(tmp_path, monkeypatch):
    """A results folder with one good record, and a report that writes beside it."""
    current = records.hash_of(studies.study("splits").DEPENDS)
    monkeypatch.setattr(records, "RESULTS", tmp_path)
    page = report.GUIDE.read_text(encoding="utf-8")
    for name in ("DOCS", "README", "PICTURE", "GUIDE"):
        monkeypatch.setattr(report, name, tmp_path / f"{name}.md")
    report.GUIDE.write_text(page, encoding="utf-8")
    report.README.write_text("before\n<!-- bench: summary -->\nold\n<!-- bench: end -->\nafter\n")
    good = record(files=current, set="magic", numbers=runs_of(0.25), options={"splits": 2})
    records.store("splits", "magic", good, tmp_path)
    return good


def test_report_writes_good_records_without_marks(splits):
    report.main([])
    assert "| magic | 10 | 0.300 | 0.250 |" in report.DOCS.read_text()
    text = report.README.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "Not measured." in text
    assert not report.PICTURE.exists()
    assert "Stale" not in text + report.DOCS.read_text()


@pytest.mark.parametrize(("changes", "kind"), [({"files": "then"}, "Stale"), ({"others": 0.4}, "Busy")])
def test_report_refuses_stale_and_busy_records_with_the_command_that_renews_them(splits, tmp_path, changes, kind):
    records.store("splits", "banana", {**splits, "set": "banana", **changes}, tmp_path)
    with pytest.raises(SystemExit, match="Not written") as refused:
        report.main([])
    assert f"splits: banana: {kind.lower()}: " in str(refused.value)
    assert "    python bench/run.py splits --data FOLDER --sets banana --splits 2" in str(refused.value)
    assert "magic" not in str(refused.value)
    assert not report.DOCS.exists()
    assert "old" in report.README.read_text()

    report.main(["--allow-stale"])
    assert f"> **{kind}.** banana: " in report.DOCS.read_text()


def test_what_a_study_makes_itself_counts_as_measured(splits):
    """Such records have a name, but no set of data."""
    study = studies.study("neighbours")
    numbers = {name: {"nll": 0.5} for name in ("without", "with")}
    found = {study.BOARD: record(set=None, numbers=numbers, options={})}
    (said,) = [line for line in report.section("neighbours", found).splitlines() if line.startswith("Not measured")]
    assert study.BOARD not in said
    assert f", {study.GROWTH}, {study.PATH}." in said


def test_tables_list_every_name_and_every_record():
    cells = lambda numbers: [str(numbers), "x"]  # noqa: E731
    found = {"b": {"numbers": 1}, "other": {"numbers": 2}}
    lines = markdown_tables.set_table(["set", "n", "z"], found, ("a", "b"), cells).splitlines()
    assert lines == ["| set | n | z |", "| --- | --- | --- |", "| a | not measured |  |", "| b | 1 | x |",
                     "| other | 2 | x |"]  # fmt: skip


def test_tally_names_the_sets_on_which_xgpc_loses():
    found = {name: {"numbers": pair} for name, pair in {"a": (1, 2), "b": (2, 2), "c": (3, 2), "d": (None, 2)}.items()}
    said = markdown_tables.tally(found, lambda pair: pair, "the NLL", "theirs")
    assert said == "the NLL is lower than or equal to theirs on 2 of 4 sets, higher on c, d."


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_has_what_the_harness_uses(name):
    study = studies.study(name)
    title, text = studies.title_and_text(study)
    assert title
    assert text
    assert isinstance(study.TIMED, bool)
    assert re.fullmatch(r"[0-9a-f]{16}", records.hash_of(study.DEPENDS))
    options = run.parser_of(name, study, quick=True).parse_args([])
    assert set(study.QUICK) <= set(study.OPTIONS) | {"sets"}
    assert all(getattr(options, option) == value for option, value in study.QUICK.items())
    defaults = run.parser_of(name, study, quick=False).parse_args([])
    assert run.changed(study, defaults) == {}


@of_records
@pytest.mark.parametrize("name", STUDIES)
def test_every_stored_record_is_in_its_study_s_table_and_in_the_document(name):
    found = records.read(name)
    made = studies.study(name).report(found)
    for stored in found.values():
        assert stored["set"] is None or stored["set"] in made
    missing = [known for known in getattr(studies.study(name), "SETS", ()) if known not in made]
    document = report.DOCS.read_text(encoding="utf-8")
    assert made in document
    assert not missing or f"Not measured: {', '.join(missing)}." in document


def test_every_stored_file_has_a_study():
    assert {path.stem for path in records.RESULTS.glob("*.json")} <= set(STUDIES)


@of_records
def test_the_readme_and_its_picture_are_those_of_the_records():
    found = picture.comparison()
    assert picture.summary(found) in report.README.read_text(encoding="utf-8")
    with Image.open(picture.PICTURE) as drawn:
        assert drawn.text[picture.KEY] == picture.digest(found)


def compared(gaps, rows=20_000, **theirs):
    """Numbers of a set whose NLL is .2 here, and higher by a gap with its standard error (negative: lower) there."""
    numbers = {"rows": rows, "test_rows": 2000, "features": 3, "classes": 2}
    numbers["xgpc"] = {"nll": 0.2, "error": 0.1, "seconds": 4.0, "prediction_seconds": 0.01, "neighbours": 24}
    for name, (gap, error) in zip(("lightgbm", "catboost"), gaps, strict=True):
        made = {"nll": 0.2 - gap, "error": 0.1, "seconds": 1.0, "prediction_seconds": 0.002, **theirs}
        numbers[name] = {**made, "gap": gap, "error_of_gap": error}
    return numbers


@pytest.fixture
def stored_comparison(tmp_path, monkeypatch):
    sets = {
        "magic": compared([(-0.1, 0.01), (-0.03, 0.01)]),
        "higgs": compared([(0.05, 0.02), (0.05, 0.03)], seconds=3.0),
        "heart": compared([(-0.01, 0.02), (-0.02, 0.01)], rows=200),
    }
    for name, numbers in sets.items():
        made = record(set=name, numbers=numbers, date="2026-01-02T03:04:05+00:00")
        records.store("boosted", name, made, tmp_path)
    monkeypatch.setattr(records, "RESULTS", tmp_path)
    return picture.comparison()


def test_wins_losses_and_ties_are_counted_by_two_standard_errors(stored_comparison):
    assert list(stored_comparison) == ["magic", "heart", "higgs"]
    text = picture.summary(stored_comparison)
    wins = {line.split(" | ")[0]: line.split(" | ")[1:4] for line in text.splitlines() if line.startswith("| ")}
    assert wins["| LightGBM"] == ["1", "1", "1"]
    assert wins["| CatBoost"] == ["1", "0", "2"]
    # Fits of many rows alone: 4 s twice, 1 and 3 s.
    assert "| 4 s (4 to 4) | 5 µs (5 to 5) |" in text
    assert "| 2 s (1 to 3) | 1 µs (1 to 1) |" in text
    words = " ".join(text.split())
    assert "Losses: to LightGBM on higgs." in words
    assert "(`n_jobs=2`)" in words
    assert "Measured 2026-01-02, at commit 0123456." in words
    assert "Not measured: electricity, " in words
    report_text = studies.study("boosted").report(stored_comparison)
    assert "Next to LightGBM: 1 wins, 1 losses, 1 ties; losses: higgs." in report_text


def test_numbers_of_a_busy_machine_say_so(stored_comparison, tmp_path):
    records.store("boosted", "heart", {**stored_comparison["heart"], "others": 0.9}, tmp_path)
    assert "while other processes took a part of the machine." in " ".join(
        picture.summary(picture.comparison()).split()
    )


def test_labels_of_the_picture_s_axis_do_not_overlap(stored_comparison, tmp_path):
    wide = {**stored_comparison, "letter": record(numbers=compared([(-9.0, 0.1), (0.19, 0.01)]))}
    for found in (stored_comparison, wide):
        (axes,) = picture.draw(found, tmp_path / "picture.png").axes
        boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
        assert len(boxes) >= 2
        assert all(left.x1 + 2.0 < right.x0 for left, right in itertools.pairwise(boxes))
        with Image.open(tmp_path / "picture.png") as drawn:
            assert drawn.text[picture.KEY] == picture.digest(found)


def test_adult_is_a_table_for_all_methods():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 3, 50) for _ in range(14)]).astype(float)
    data, settings, options = studies.study("boosted").drawn(problems.Problem("adult", X, X[:, 1] > 0), 0)
    assert (settings, options) == ({}, {})
    assert (len(data.y), len(data.y_test)) == (45, 5)
    levels = [name for name in data.X.columns if data.X[name].dtype == "category"]
    assert levels == [f"column {j}" for j in studies.study("tables").CATEGORICAL["adult"]]


@of_records
def test_pictures_that_documents_show_are_there():
    for document in (ROOT / "README.md", ROOT / "docs" / "benchmarks.md"):
        shown = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", document.read_text(encoding="utf-8"))
        assert shown
        assert all((document.parent / path).is_file() for path in shown)


def test_every_record_has_all_that_a_reader_needs():
    needed = {"command", "options", "set", "data", "commit", "changed", "files", "date", "processor", "cores",
              "versions", "threads", "others", "numbers"}  # fmt: skip
    for path in records.RESULTS.glob("*.json"):
        for name, stored in json.loads(path.read_text(encoding="utf-8"))["records"].items():
            assert needed <= set(stored), (path.name, name)


def test_a_run_stores_a_record_that_the_report_accepts(tmp_path, monkeypatch):
    study = studies.study("links")
    # The gate's library is installed from a wheel.
    monkeypatch.setattr(run, "xgpc", Namespace(__file__=str(ROOT / "xgpc" / "__init__.py")))
    monkeypatch.setattr(study, "SIZE", 30)
    monkeypatch.setattr(run.Others, "__exit__", lambda self, *exception: setattr(self, "cores", 0.0))
    run.main(["links", "--classes", "3", "--repeats", "1", "--results", str(tmp_path)])
    (stored,) = records.read("links", tmp_path).values()
    assert stored["command"] == "python bench/run.py links --classes 3 --repeats 1"
    assert records.objections(stored, records.hash_of(study.DEPENDS), study.TIMED) == []
    assert stored["cores"] >= 1
    assert stored["versions"]["numpy"] == np.__version__
    assert len(stored["numbers"]["rows"]) == 9
    assert "| 3 classes |" in study.report({"3 classes": stored})


@pytest.mark.parametrize("name", STUDIES)
def test_the_commands_of_refusals_are_understood_and_measure_every_record_s_set(name):
    study, measured = studies.study(name), set()
    for command in report.renewals(name, records.read(name)):
        program, script, study_name, *words = command.split()
        assert (program, script, study_name) == ("python", "bench/run.py", name)
        measured |= set(getattr(run.parser_of(name, study, quick=False).parse_args(words), "sets", ()))
    assert {stored["set"] for stored in records.read(name).values()} - {None} <= measured


def test_renewed_records_of_several_classes_have_the_names_of_the_old_ones():
    study = studies.study("multi_class")
    defaults = {name: option.default for name, option in study.OPTIONS.items()}
    for name, stored in records.read("multi_class").items():
        assert study.part_name(stored["set"], Namespace(**{**defaults, **stored["options"]})) == name


def test_a_run_refuses_the_library_of_another_checkout(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "xgpc", Namespace(__file__=str(tmp_path / "xgpc" / "__init__.py")))
    with pytest.raises(SystemExit, match="library of their own checkout"):
        run.main(["links", "--quick"])


def test_problems_have_splits_in_units_of_the_training_rows_and_a_hash_of_their_content(tmp_path):
    rng = np.random.default_rng(0)
    X, y = np.column_stack([rng.normal(3.0, 5.0, 50), np.full(50, 0.1)]), rng.integers(0, 2, 50)
    np.savez(tmp_path / "small.npz", X=X.astype(np.float32), y=y)
    problem = problems.load(tmp_path, "small")
    assert problem.X.dtype == np.float64
    data = problems.split(problem, 0)
    assert len(data.y_test) == 5
    assert len(data.y) == 45
    np.testing.assert_allclose(data.X[:, 0].std(), 1.0)
    np.testing.assert_array_equal(data.X[:, 1], np.float32(0.1))
    assert problem.hash == problems.load(tmp_path, "small").hash
    assert problem.hash != problem._replace(y=1 - y).hash
    assert problem.hash != problem._replace(X=problem.X.T.reshape(50, 2)).hash
    with pytest.raises(SystemExit, match=r"No data set 'large': .* has no large.npz"):
        problems.load(tmp_path, "large")


def test_scores_are_those_of_the_true_classes():
    found = measure.scores(np.array([[0.8, 0.2], [0.6, 0.4], [1.0, 0.0]]), np.array([0, 1, 1]))
    np.testing.assert_allclose(found["nll"], -(np.log(0.8) + np.log(0.4) + np.log(1e-15)) / 3)
    np.testing.assert_allclose(found["error"], 2 / 3)


@pytest.fixture
def tiny(monkeypatch):
    """A split of few rows, one length scale and penalty to choose from, and one thread."""
    monkeypatch.setattr(methods.method("sklearn"), "GAMMAS", (1.0,))
    monkeypatch.setattr(methods.method("sklearn"), "PENALTIES", (1.0,))
    with threadpool_limits(1):
        yield problems.split(problems.Problem("tiny", *problems.ringnorm(80)), 0)


@pytest.mark.parametrize(
    ("name", "settings"), [("xgpc", {"n_inducing": 8, "max_iter": 3}), ("sklearn", {}), ("sklearn", {"components": 8})]
)
def test_adapters_make_estimators_that_fit_and_predict_probabilities(tiny, name, settings):
    model = methods.method(name).make(threads=1, seed=0, **settings)
    found = measure.fit_and_score(model, tiny)
    p = model.predict_proba(tiny.X_test)
    assert p.shape == (8, 2)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert found == {"seconds": found["seconds"], **measure.scores(p, tiny.y_test)}


def test_paths_yield_trained_models_with_growing_details(tiny, monkeypatch):
    monkeypatch.setattr(methods.method("sklearn"), "COMPONENTS", (2, 4))
    found = studies.study("learning").curve("sklearn", tiny, threads=1, seconds=60.0)
    assert [point["components"] for point in found] == [2, 4]
    assert all(point["seconds"] > 0.0 and np.isfinite(point["nll"]) for point in found)


def test_limits_of_time_grow_until_a_fit_ends_by_itself(tiny, monkeypatch):
    method = methods.method("xgpc")
    monkeypatch.setattr(method, "FIRST_LIMIT", 1e-3)
    monkeypatch.setattr(method, "LONGER", 4.0)
    found = list(method.path(tiny, 1, 60.0))
    limits = [details["max_time"] for _, _, details in found]
    np.testing.assert_allclose(limits, 1e-3 * 4.0 ** np.arange(len(found)))
    whole = method.make(1, n_inducing=method.N_INDUCING, n_neighbors=0).fit(tiny.X, tiny.y)
    np.testing.assert_array_equal(found[-1][1].predict_proba(tiny.X_test), whole.predict_proba(tiny.X_test))
    assert len(list(method.path(tiny, 1, 0.0))) == 1


def test_figures_of_the_paper_have_a_point_for_each_fit_and_pictures_of_what_was_measured(tiny, tmp_path):
    study = studies.study("paper_figures")
    options = Namespace(budgets=[0.1, 0.2], inducing=[4, 8], threads=1)
    in_time, by_points = study.against_time(tiny, options), study.against_points(tiny, options)
    for points in in_time["paths"].values():
        assert [one["budget"] for one in points] == [0.1, 0.2][: len(points)]
        assert len(points) == 2 or points[-1]["converged"]
    assert list(by_points["fits"]) == list(study.METHODS)
    assert all([one["inducing"] for one in fits] == [4, 8] for fits in by_points["fits"].values())
    found = {"electricity": {"numbers": in_time}, study.SHUTTLE: {"numbers": by_points}}
    assert "| electricity |" in study.report(found)
    assert f"| {study.SHUTTLE}: inducing points |" in study.report(found)
    drawn = study.draw(found, tmp_path)
    assert sorted(drawn) == ["paper_figures_1.png", "paper_figures_inducing.png"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(drawn)


def test_rows_and_memory_are_drawn_of_whatever_was_measured(tmp_path):
    study = studies.study("larger_than_memory")
    runs = {
        "100 rows": {"rows": 100, "seconds": 2.0, "gigabytes": 0.2, "elbo": -60.0, "reading": 0.5, "pass": 0.1},
        "100 rows in memory": {"rows": 100, "seconds": 1.0, "gigabytes": 1.5, "input": 0.4, "elbo": -60.0},
        "100 rows, X-GPC": {"rows": 100, "x_gpc": True, "seconds": 1.0, "gigabytes": 0.2, "elbo": -61.0},
        "inducing points": {
            "rows": 100, "fits": [{"inducing": 10, "seconds": 2.0, "iterations": 4, "gigabytes": 0.3}],
        },
    }  # fmt: skip
    for names in (list(runs), list(runs)[:1]):
        found = {name: {"numbers": runs[name]} for name in names}
        assert len(study.report(found).split("\n\n")) == len(names)
        assert study.draw(found, tmp_path) == ["larger_than_memory.png"]
    beyond_in_gib = (1.5 - 0.4) * 1e9 / 2**30
    assert f"| 100 | 0.40 GB | 1.0 s | 1.50 GB | {beyond_in_gib:.2f} |" in study.in_memory(
        study.of_kind({"": {"numbers": runs["100 rows in memory"]}}, "input")
    )


def test_a_library_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    monkeypatch.delitem(sys.modules, "methods.lightgbm", raising=False)
    with pytest.raises(SystemExit, match="pip install lightgbm"):
        methods.method("lightgbm")


def test_core_measures_steps_passes_threads_and_memory():
    core = studies.study("core")
    found = [
        core.mini_batches(1, steps=2, s=10, m=8),
        core.full_pass(1, m=8, n=100),
        core.class_pass(1, "softmax", "exact", 3, m=8, n=100),
        core.two_threads(1, m=8, n=100),
    ]
    for numbers in found:
        assert all(value > 0.0 for key, value in numbers.items() if key != "seconds")
        assert all(len(times) == 1 for times in numbers["seconds"].values())
    # Beyond the rows: the whitened rows (1000, 100) in float64, and vectors of length n.
    assert core.memory(1000, np.float64, True) - core.memory(1000, np.float64, False) >= 8 * 1000 * 99


def test_ascents_of_the_safeguard_start_at_one_bound_and_only_raw_steps_lower_it(monkeypatch):
    safeguard = studies.study("safeguard")
    for name, value in (("N_INDUCING", 10), ("ITERATIONS", 12), ("LEARNING_ITERATIONS", 2)):
        monkeypatch.setattr(safeguard, name, value)
    settings = safeguard.climb(problems.split(problems.load(None, "iris"), 0), threads=1)
    assert list(settings) == ["variance 2", "variance 20", "learned"]
    for found in settings.values():
        curves = {way: np.array(curve["bound"]) for way, curve in found["ways"].items()}
        assert len({bounds[0] for bounds in curves.values()}) == 1
        # Bounds are rounded to thousandths of a nat.
        assert min(np.diff(curves["halved"]).min(), np.diff(curves["library"]).min()) >= -1e-3
    raw = settings["variance 20"]["ways"]["raw"]["bound"]
    assert len(raw) == 13
    assert np.diff(raw).min() < 0.0
