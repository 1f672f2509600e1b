"""What the package declares is what it needs and has: dependencies, extras, types and stubs."""

import ast
import inspect
import io
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from typing import get_args

import numpy as np
import pytest

import xgpc
from xgpc import names
from xgpc.learning.inducing import METHODS
from xgpc.learning.stages import SCHEMES
from xgpc.likelihoods import LIKELIHOODS
from xgpc.likelihoods.softmax import softmax_table
from xgpc.linear import BOUNDS

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Of modules whose name is not that of what has to be installed.
DISTRIBUTIONS = {"autogluon": "autogluon.tabular", "sklearn": "scikit-learn"}
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "xgpc").rglob("*.py"))}
COMPILED = sorted(path.stem for path in (ROOT / "xgpc").glob("_*.pyi"))


def distributions(requirements):
    return {re.match(r"[A-Za-z0-9._-]+", requirement)[0].lower() for requirement in requirements}


def imports(nodes):
    """Top-level modules that these parts of a program import, but for those of the standard library and the package."""
    nodes = list(nodes)
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    found = {name.partition(".")[0] for name in names}
    return {DISTRIBUTIONS.get(name, name) for name in found - {*sys.stdlib_module_names, "xgpc"}}


@pytest.mark.parametrize("path", TREES, ids=lambda path: path.stem)
def test_every_import_is_declared(path):
    """At the top of a module by the dependencies, in an optional part or a function by an extra at least."""
    required, tree = distributions(PROJECT["dependencies"]), TREES[path]
    extras = {name: distributions(listed) for name, listed in PROJECT["optional-dependencies"].items()}
    optional = set().union(*(listed for name, listed in extras.items() if name not in ("test", "lint")))
    part = path.relative_to(ROOT / "xgpc").with_suffix("").parts[0]
    assert imports(tree.body) <= required | extras.get(part, set())
    assert imports(ast.walk(tree)) <= required | optional


def test_every_dependency_is_imported():
    assert distributions(PROJECT["dependencies"]) <= set().union(*(imports(ast.walk(tree)) for tree in TREES.values()))


def test_the_tests_have_every_extra():
    """But for AutoGluon, which would keep pandas back, and PyTorch and BoTorch, which are large: they run at night."""
    extras = PROJECT["optional-dependencies"]
    nightly = {"autogluon", "botorch", "torch"}
    for name, listed in extras.items():
        if name not in {"lint", "docs", *nightly}:
            assert distributions(listed) <= distributions(extras["test"])
    assert distributions(extras["torch"]) <= distributions(extras["botorch"])
    workflow = (ROOT / ".github" / "workflows" / "nightly.yml").read_text(encoding="utf-8")
    assert "pip install '.[test,autogluon,botorch]' && pytest -m nightly" in workflow


def test_every_module_is_installed():
    text = (ROOT / "meson.build").read_text(encoding="utf-8")
    files = [path for path in (ROOT / "xgpc").rglob("*") if path.suffix in (".py", ".pyi", ".typed", ".npz")]
    listed = re.findall(r"'(xgpc/[^']*\.\w+)'", text)
    assert {path.relative_to(ROOT).as_posix() for path in files} == set(listed)
    assert len(listed) == len(set(listed)), "a file is listed twice"


def test_types_have_the_names_that_there_are():
    bounds = {bound for bounds in LIKELIHOODS.values() for bound in bounds}
    linear = {bound for listed in BOUNDS.values() for bound in listed}
    assert set(get_args(names.LikelihoodName)) == set(LIKELIHOODS)
    assert set(get_args(names.BoundName)) == {"auto", *bounds}
    assert set(get_args(names.LinearLikelihoodName)) == set(BOUNDS)
    assert set(get_args(names.LinearBoundName)) == {"auto", *linear}
    assert get_args(names.OptimizerName) == tuple(SCHEMES)
    assert get_args(names.PointsName) == METHODS


def test_the_list_of_public_names_is_that_of_the_package():
    listed = []
    for row in re.findall(r"^\| (`xgpc\..*?) \|", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), re.MULTILINE):
        module = ""
        for name in re.findall(r"`([\w.]+)`", row):
            # Further names of a row are of the module of its first.
            listed.append(name if name.startswith("xgpc.") else f"{module}.{name}")
            module = listed[-1].rpartition(".")[0]
    for name in listed:
        module, _, last = name.rpartition(".")
        assert hasattr(import_module(module), last) or find_spec(name), name
    for module in ("xgpc", "xgpc.gibbs", "xgpc.kernels", "xgpc.onnx", "xgpc.rows"):
        assert {f"{module}.{name}" for name in import_module(module).__all__} <= set(listed)


def test_the_version_is_the_changelogs():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    latest, date = re.search(r"^## (\S+) \((.*)\)$", text, re.MULTILINE).groups()
    release, dot_dev, _ = xgpc.__version__.partition(".dev")
    assert latest == release
    assert (date == "not yet released") == bool(dot_dev)
    assert f"version: {release}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


RIGHT = """
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xgpc import BayesianLinearClassifier, GPClassifier, systems
from xgpc.onnx import to_onnx

X, y = np.random.default_rng(0).normal(size=(50, 2)), np.arange(50) % 2
model = GPClassifier(n_inducing=10, likelihood="probit", inducing_points=X[:10], subset_sizes=[20, 50], random_state=0)
fitted: GPClassifier = model.fit(X, y)
proba: NDArray[Any] = fitted.predict_proba(X)
mean, variance = fitted.predict_latent(X)
total: float = fitted.elbo(X, y) + float((mean + variance).sum())
fitted.save("model.npz")
again: GPClassifier = GPClassifier.load("model.npz")
GPClassifier(**systems["X-GPC"]).fit(X, y)
linear: BayesianLinearClassifier = BayesianLinearClassifier("svm", class_weight="balanced").fit(X, y)
content: bytes = to_onnx(fitted, dtype="float32").SerializeToString()
"""
WRONG = {
    'GPClassifier(n_inducing="many")': "n_inducing", 'GPClassifier(likelihood="logistic")': "likelihood",
    'GPClassifier(bound="best")': "bound", 'GPClassifier(inducing_points="kmean")': "inducing_points",
    'GPClassifier(optimizer="lbfgs")': "optimizer", 'GPClassifier(share="all")': "share",
    'GPClassifier(learning_rate="fast")': "learning_rate", 'GPClassifier(subset_sizes="all")': "subset_sizes",
    'GPClassifier(class_weight="even")': "class_weight", 'BayesianLinearClassifier("step")': "BayesianLinearClassifier",
    "to_onnx(GPClassifier(), dtype=3)": "to_onnx", "GPClassifier().fit(None)": "y",
}  # fmt: skip


def test_a_source_distribution_has_all_but_the_records_of_the_benchmarks():
    if (ROOT / ".git").exists():
        command = ["git", "archive", "--format=tar", "--worktree-attributes", "HEAD"]
        archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            names = files.getnames()
    else:
        # These are the files of one.
        names = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*")]
    assert not [name for name in names if name.startswith("bench/results")]
    needed = ("xgpc/__init__.py", "src/xgpc/meson.build", "tests/test_packaging.py", "tests/models", "bench/report.py")
    assert all(any(name.startswith(path) for name in names) for path in needed)


def mypy(tmp_path, text):
    """What mypy says of a user's script, of the package as it is installed."""
    (tmp_path / "script.py").write_text(text, encoding="utf-8")
    package, environment = Path(xgpc.__file__).parents[1], dict(os.environ)
    options = ["--strict", "--no-error-summary", f"--cache-dir={tmp_path / 'cache'}"]
    if "site-packages" not in package.parts:
        # An editable install, which mypy does not find by itself: what it says of the package is no matter of the user.
        environment["MYPYPATH"] = str(package)
        options.append("--follow-imports=silent")
    command = [sys.executable, "-m", "mypy", *options, "script.py"]
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True).stdout


def test_a_users_script_is_checked_by_its_types(tmp_path):
    begin = RIGHT.rstrip().count("\n") + 2
    lines = mypy(tmp_path, RIGHT.rstrip() + "\n" + "\n".join(WRONG) + "\n").splitlines()
    errors = {int(line.split(":")[1]): line for line in lines if ": error:" in line}
    assert sorted(errors) == list(range(begin, begin + len(WRONG))), "\n".join(lines)
    for number, name in enumerate(WRONG.values(), begin):
        assert name in errors[number]


def stub_of(module):
    """Names of a stub: the parameters of functions, and of classes what is in them; None for other values."""

    def parameters(a):
        return [arg.arg for arg in (*a.posonlyargs, *a.args)] + [f"*{arg.arg}" for arg in (a.vararg,) if arg]

    def names_in(body):
        found = {node.name: parameters(node.args) for node in body if isinstance(node, ast.FunctionDef)}
        found |= {node.name: names_in(node.body) for node in body if isinstance(node, ast.ClassDef)}
        return found | {node.target.id: None for node in body if isinstance(node, ast.AnnAssign)}

    return names_in(ast.parse((ROOT / "xgpc" / f"{module}.pyi").read_text(encoding="utf-8")).body)


def assert_has(found, said, name):
    """A function has the parameters, a class the public members, that a stub says."""
    if isinstance(said, list):
        parameters = inspect.signature(found).parameters.values()
        assert [f"*{p.name}" if p.kind is p.VAR_POSITIONAL else p.name for p in parameters] == said, name
    elif isinstance(said, dict):
        public = {m for m in vars(found) if not m.startswith("_")}
        assert public == {m for m in said if not m.startswith("_")}, name
        for m in public:
            assert_has(getattr(found, m), said[m], f"{name}.{m}")


@pytest.mark.parametrize("name", COMPILED)
def test_stubs_say_what_compiled_modules_have(name):
    module, stub = import_module(f"xgpc.{name}"), stub_of(name)
    own = {n for n, value in vars(module).items() if not n.startswith("_") and not inspect.ismodule(value)}
    own = {n for n in own if getattr(getattr(module, n), "__module__", module.__name__) == module.__name__}
    assert own == set(stub)
    for n, said in stub.items():
        assert_has(getattr(module, n), said, n)


def test_stored_tables_are_those_that_the_tool_makes():
    made = run_path(str(ROOT / "tools" / "softmax_tables.py"))
    # Coefficients of high powers have the errors of a least squares fit.
    for name, make, tol in (("gumbel_normal", "gumbel_normal_tables", 1e-9), ("hazard", "hazard_table", 1e-5)):
        stored, expected = softmax_table(name), made[make]()
        np.testing.assert_allclose(stored, expected, rtol=tol, atol=tol * np.max(np.abs(expected)))
        assert not stored.flags.writeable


def test_imports_of_the_package_go_one_way():
    """What is imported is in a row below who imports it, of the table of modules in CONTRIBUTING.md."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _, _, *rows = text.partition("| modules of `xgpc/` |")[2].partition("\n\n")[0].splitlines()
    height = {name: -i for i, row in enumerate(rows) for name in re.findall(r"`(\w+)/?`", row.split("|")[1])}
    relative = [(path, n) for path, tree in TREES.items() for n in ast.walk(tree) if getattr(n, "level", 0)]
    for path, node in relative:
        parts = path.relative_to(ROOT / "xgpc").with_suffix("").parts
        names = [node.module.split(".")] if node.module else [[alias.name] for alias in node.names]
        for name in names:
            target = (*parts[: len(parts) - node.level], *name)[0]
            if not target.startswith("_") and target != parts[0]:
                assert height[target] < height[parts[0]], f"{path} imports {target}"
