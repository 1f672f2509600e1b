"""Sphinx: ``sphinx-build -W --keep-going -b html docs build/docs``."""

import inspect
import os
import re
from importlib.metadata import version as version_of
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

# The gallery draws into files.
os.environ.setdefault("MPLBACKEND", "agg")

HERE = Path(__file__).parent

project = "xgpc"
author = "the xgpc developers"
project_copyright = "the xgpc developers"
release = version = version_of("xgpc")

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["auto_examples/*.ipynb", "auto_examples/*.py", "auto_examples/*.md5", "auto_examples/*.json"]
templates_path = ["_templates"]

# Pages.
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
# Browsers draw MathML themselves: formulas need no script, and no network.
html_math_renderer = "mathml"
# As GitHub has them: the benchmarks' contents link to their sections.
myst_heading_anchors = 3

# Public names.
autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"
# The pages are built without these libraries, which are large, and of which AutoGluon needs an older pandas.
autodoc_mock_imports = ["autogluon", "botorch", "gpytorch", "linear_operator", "torch"]
numpydoc_show_class_members = False
toc_object_entries_show_parents = "hide"

html_theme = "pydata_sphinx_theme"
html_title = "xgpc"
html_static_path = ["_static"]
html_css_files = ["xgpc.css"]
html_show_sourcelink = False
html_theme_options = {
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": True,
    "footer_start": [],
    "footer_end": [],
}
# A page without children needs no list of them.
html_sidebars = {"quickstart": [], "api": [], "benchmarks": [], "paper": [], "changelog": [], "security": []}

sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "auto_examples",
    "backreferences_dir": None,
    "doc_module": ("xgpc",),
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_signature": False,
    # What a cell prints is shown, not what its last line returns.
    "capture_repr": (),
    # Its table of times wants scripts from the network.
    "write_computation_times": False,
    "image_scrapers": ("matplotlib",),
    "parallel": 2,
}


def cite_the_class(app, what, name, obj, options, lines):
    """Methods cite by the numbers of their class, whose references stand on the same page."""
    if what in {"method", "property", "attribute"} and not any(".. [" in line for line in lines):
        lines[:] = [re.sub(r"(\[\d+\])_", r"\1", line) for line in lines]


def cite_the_module(app, what, name, obj, options, lines):
    """Functions cite by the numbers of their module, whose references are put on their page."""
    cited = set(re.findall(r"(\[\d+\])_", "\n".join(lines))) if what == "function" else set()
    if cited and not any(".. [" in line for line in lines):
        references = inspect.getdoc(inspect.getmodule(obj)).partition("References\n----------\n")[2]
        found = re.findall(r"^\.\. (\[\d+\]) (.*(?:\n   .*)*)", references, re.MULTILINE)
        lines += ["", "References", "----------"]
        for number, text in found:
            if number in cited:
                lines += f".. {number} {text}".splitlines()
        lines.append("")


def signature_of_init(app, what, name, obj, options, signature, returns):
    """The parameters of a class whose base class is not imported; autodoc would show those of the base class."""
    if what == "class" and isinstance(obj, type) and signature == "(*args, **kwargs)" and "__init__" in vars(obj):
        own = list(inspect.signature(obj.__init__).parameters.values())[1:]
        bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in own]
        return str(inspect.Signature(bare)), returns
    return None


def skip_member(app, what, name, obj, skip, options):
    """Of scikit-learn's own members, which are documented there."""
    if re.fullmatch(r"set_\w+_request|get_metadata_routing", name):
        return True
    module = getattr(inspect.unwrap(obj) if callable(obj) else obj, "__module__", None) or ""
    return True if module.split(".")[0] == "sklearn" else None


def formula(translator, node):
    """MathML of a formula within a sentence, or of one that stands by itself; a name that is not known is an error."""
    tex = node.astext()
    if re.search(r"frac\s*\w", tex):
        raise ValueError(f"docutils reads 12 in \\frac12 as one number: write \\frac{{1}}{{2}} in {tex!r}.")
    is_block = isinstance(node, nodes.math_block)
    # The thin space of TeX between a function and an argument without brackets.
    thin = r'\g<0><mspace width="0.17em"/>'
    mathml = re.sub(r"<mo>&ApplyFunction;</mo>(?=\s*<m(?!o|row))", thin, tex2mathml(tex, is_block))
    translator.body.append(f'<div class="formula">{mathml}</div>' if is_block else mathml)
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (formula, None), (formula, None))
    # Before numpydoc's own, which has the usual place in the queue.
    app.connect("autodoc-process-docstring", cite_the_class, priority=400)
    app.connect("autodoc-process-docstring", cite_the_module, priority=400)
    app.connect("autodoc-process-signature", signature_of_init)
    app.connect("autodoc-skip-member", skip_member)
