"""Lines of code, functions and tuned numbers by folder, and lines with the type ``Any``: the size that may only fall.

    python tools/size.py
    python tools/size.py --check

A line of code is one that is not a docstring, comment, import or blank. A tuned number is a number, a tuple of numbers,
or an expression of numbers and other such names, that a module assigns to a name in capital letters.
"""

import argparse
import ast
import io
import re
import tokenize
import tomllib
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def _span(node):
    return set(range(node.lineno, node.end_lineno + 1))


def _docstring_lines(node):
    body = getattr(node, "body", None)
    if not isinstance(node, ast.Module | ast.ClassDef | FUNCTIONS) or not body or ast.get_docstring(node) is None:
        return set()
    return _span(body[0])


def _is_tuned(value):
    """Whether an expression has a number, and otherwise only operators, tuples, and names in capital letters."""
    parts = [
        part
        for part in ast.walk(value)
        if not isinstance(part, ast.operator | ast.unaryop | ast.expr_context | ast.Load)
    ]
    allowed = all(
        isinstance(part, ast.BinOp | ast.UnaryOp | ast.Tuple)
        or (isinstance(part, ast.Constant) and type(part.value) in (int, float))
        or (isinstance(part, ast.Name) and part.id.lstrip("_").isupper())
        for part in parts
    )
    return allowed and any(isinstance(part, ast.Constant) for part in parts)


def of_python(text):
    """Lines of code, functions, tuned numbers and lines with ``Any`` of a module."""
    tree = ast.parse(text)
    without = set().union(*map(_docstring_lines, ast.walk(tree)))
    without |= set().union(*(_span(n) for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)))
    lines, with_any = set(), set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines |= set(range(token.start[0], token.end[0] + 1))
        if token.type == tokenize.NAME and token.string == "Any":
            with_any.add(token.start[0])
    functions = sum(isinstance(node, FUNCTIONS) for node in ast.walk(tree))
    tuned = 0
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        names = [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name) and n.id.lstrip("_").isupper()]
        if names and node.value is not None and _is_tuned(node.value):
            tuned += len(names)
    return len(lines - without), functions, tuned, len(with_any - without)


def of_c(text):
    """Lines of code of a C file."""
    return sum(bool(line.strip()) for line in C_COMMENT.sub("", text).splitlines()), 0, 0, 0


def of_cython(text):
    """Lines of code of a Cython file, whose docstrings and comments are found by their quotes and their #."""
    text = re.sub(r'"""(?:[^"\\]|\\.|"(?!""))*"""', "", text)
    lines = [line.strip() for line in text.splitlines()]
    starts = ("#", "import ", "from ", "cimport ")
    return sum(bool(line) and not line.startswith(starts) for line in lines), 0, 0, 0


COLUMNS = ("code", "functions", "tuned", "Any", "lines")
COUNTS = {".py": of_python, ".c": of_c, ".h": of_c, ".pyx": of_cython, ".pxd": of_cython, ".pxi": of_cython}


def sizes(folder):
    """Counts of each folder of code below a folder, by name; single files together as ``(files)``."""
    by_name = defaultdict(lambda: [0] * 5)
    for path in sorted(folder.rglob("*")):
        if path.suffix in COUNTS:
            parts = path.relative_to(folder).parts
            name = parts[0] if len(parts) > 1 else "(files)"
            text = path.read_text(encoding="utf-8")
            counts = *COUNTS[path.suffix](text), text.count("\n")
            by_name[name] = [a + b for a, b in zip(by_name[name], counts, strict=True)]
    return dict(by_name)


def totals(folder):
    """Counts of a folder, and of its folders by name."""
    by_name = sizes(ROOT / folder)
    return dict(zip(COLUMNS, map(sum, zip(*by_name.values(), strict=True)), strict=True)), by_name


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if a count is above its limit in pyproject.toml")
    options = parser.parse_args()
    limits = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["xgpc"]["size"]
    print(f"{'':24}" + "".join(f"{name:>11}" for name in COLUMNS))
    too_large = []
    for folder in ("xgpc", "src", "tests"):
        counts, by_name = totals(folder)
        if folder == "xgpc":
            for name, row in sorted(by_name.items(), key=lambda item: -item[1][0]):
                print(f"{'  ' + name:24}" + "".join(f"{count:11}" for count in row))
        print(f"{folder:24}" + "".join(f"{count:11}" for count in counts.values()))
        for name, limit in limits.get(folder, {}).items():
            if counts[name] > limit:
                too_large.append(f"{folder} has {counts[name]} {name}; its limit in pyproject.toml is {limit}")
    if options.check and too_large:
        raise SystemExit("\n".join(too_large))


if __name__ == "__main__":
    main()
