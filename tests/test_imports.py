"""What the modules of tests may import: each stands alone and takes what it shares with others from ``support``."""

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


def imported(source):
    """The top-level names of all modules that Python source imports, at any depth of its code."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level or node.module.partition(".")[0]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("test_*.py")), ids=lambda path: path.stem)
def test_no_test_module_imports_another(path):
    others = {other.stem for other in FOLDER.glob("test_*.py")} | {".", "tests"}
    assert not others.intersection(imported(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", sorted((FOLDER / "support").glob("*.py")), ids=lambda path: path.stem)
def test_what_is_shared_imports_no_test_module(path):
    assert not {name for name in imported(path.read_text(encoding="utf-8")) if name.startswith("test_")}


# What is imported is below who imports it: data flow down this list.
LAYERS = (
    ("__main__",),
    ("app",),
    ("acquisition", "dask", "gibbs", "onnx"),
    ("__init__",),
    ("classifier", "linear"),
    ("steps",),
    ("checkpoint", "predict"),
    ("io", "summary"),
    ("estimator",),
    ("learning",),
    ("config",),
    ("inference",),
    ("approximations",),
    ("statistics",),
    ("data",),
    ("rows",),
    ("likelihoods", "kernels"),
    ("plotting",),
    ("pictures",),
    ("catalogue", "ranges", "files", "status", "metrics"),
    ("names",),
)


def test_imports_of_the_package_go_one_way():
    package = Path(__file__).parent.parent / "xgpc"
    height = {name: -number for number, names in enumerate(LAYERS) for name in names}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package).with_suffix("").parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not node.level:
                continue
            base = parts[: len(parts) - node.level]
            names = [node.module.split(".")] if node.module else [[alias.name] for alias in node.names]
            for name in names:
                target = (*base, *name)[0]
                if not target.startswith("_") and target != parts[0]:
                    assert height[target] < height[parts[0]], f"{path} imports {target}"
