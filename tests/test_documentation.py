"""What the documents say is so: their code runs as pasted, and their list of what is public is whole."""

import contextlib
import inspect
import io
import re
from pathlib import Path

import matplotlib
import pytest

import xgpc
from xgpc import gibbs, kernels, metrics, plotting, rows

# Of pages.
pytest.importorskip("pandas")

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "docs" / "index.md", ROOT / "docs" / "quickstart.md",
         *sorted((ROOT / "docs" / "guide").glob("*.md"))]  # fmt: skip
TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in PAGES}
# What the tests at night have: at day, a page ends before the block that first imports it.
EXTRA = re.compile(r"^(?:from|import) (?:xgpc\.)?(autogluon|botorch|gpytorch|torch)\b", re.MULTILINE)
DAY = [pytest.param(EXTRA.split(text)[0], id=name) for name, text in TEXTS.items()]
NIGHT = [pytest.param(text, id=f"whole {name}", marks=pytest.mark.nightly)
         for name, text in TEXTS.items() if EXTRA.search(text)]  # fmt: skip
BLOCK = re.compile(r"^```(python|output)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# Threads of dask's scheduler say more at their end than a page's reader sees.
pytestmark = pytest.mark.filterwarnings("ignore:.*GCDiagnosis:pytest.PytestUnraisableExceptionWarning")


def numbers_and_words(text):
    """The words of an output, and its numbers, which rounding may change between processors."""
    words = re.findall(r"-?\d+\.?\d*(?:e[+-]?\d+)?|[^\s\d]+", text)
    return [float(word) if re.match(r"-?\d", word) else word for word in words]


@pytest.mark.parametrize("page", [*DAY, *NIGHT])
def test_code_runs_as_pasted_and_prints_what_the_page_shows(page, tmp_path, monkeypatch):
    """The python blocks of a page, one after the other, in one namespace and an empty folder."""
    for library in EXTRA.findall(page):
        pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    matplotlib.use("agg")
    namespace, printed = {"__name__": "__main__"}, ""
    for language, text in BLOCK.findall(page):
        if language == "python":
            heard = io.StringIO()
            with contextlib.redirect_stdout(heard):
                exec(compile(text, "page", "exec"), namespace)
            printed = heard.getvalue()
            continue
        said, shown = numbers_and_words(printed), numbers_and_words(text)
        assert [word for word in said if isinstance(word, str)] == [word for word in shown if isinstance(word, str)]
        values = [word for word in said if isinstance(word, float)]
        assert values == pytest.approx([word for word in shown if isinstance(word, float)], rel=0.05, abs=0.02)


def public_names():
    """Names as they stand in docs/api.md: those of modules that say so, the displays, and the functions of metrics."""
    names = {*xgpc.__all__, "dask.DaskGPClassifier"}
    names |= {f"{module.__name__[5:]}.{name}" for module in (gibbs, kernels, rows) for name in module.__all__}
    names |= {f"plotting.{name}" for name in plotting.__all__ if name != "Display"}
    functions = inspect.getmembers(metrics, inspect.isfunction)
    names |= {f"metrics.{name}" for name, function in functions if function.__module__ == "xgpc.metrics"}
    return sorted(name for name in names if not name.rpartition(".")[2].startswith("_"))


@pytest.mark.parametrize("name", public_names())
def test_every_public_name_has_its_place_in_the_list(name):
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert re.search(rf"^   {re.escape(name)}$|``xgpc\.{re.escape(name)}``", text, re.MULTILINE)


@pytest.mark.parametrize("name", xgpc.systems)
def test_every_system_is_described(name):
    assert re.search(rf"\b{re.escape(name)}\b", (ROOT / "docs" / "guide" / "systems.md").read_text(encoding="utf-8"))


def test_every_page_of_the_guide_has_one_title():
    for name, text in TEXTS.items():
        outside = BLOCK.sub("", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.M))
        assert len(re.findall(r"^# ", outside, re.MULTILINE)) == 1, name


def test_local_links_lead_somewhere():
    """Of the README and the pages, which Sphinx does not check where it does not build them."""
    for name, text in TEXTS.items():
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            if "://" in target or "auto_examples" in target:
                continue
            assert ((ROOT / name).parent / target).exists(), f"{name}: {target}"
