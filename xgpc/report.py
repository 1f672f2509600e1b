"""A fitted classifier on one HTML page: how far its probabilities can be trusted, and what they depend on."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.metrics import confusion_matrix

from .files import Arrays, replacing
from .inference.prior_mean import base_rates
from .metrics import Bins, Gaps, check_classifier, class_positions, scores
from .names import MatrixLike
from .rows.block import dense
from .summary import feature_names, score_rows, summary_rows

# Sections list at most this many classes, features and rows.
LISTED = 12
FREQUENCIES = "class frequencies"
# Bins of fewer rows would have intervals that any model satisfies.
LEAST_ROWS = 50
# Rows with a shuffled feature that are predicted to find out which features matter: of ten classes with neighbours the
# predictions take seconds.
SHUFFLED = 20_000
# Words of decisions and summaries, for readers who know no Gaussian processes.
WORDS = {
    "kernel": "how alike the latent function, which gives the probabilities, is at two rows, and so how smooth it is",
    "RBF": "kernel of very smooth functions, which may bend in any direction",
    "Matern": "kernel of rougher functions: rough and jagged for nu=0.5, smoother for 1.5 and 2.5",
    "AxisMatern": "kernel of functions with changes along single features: rough for nu=0.5, smoother for 1.5",
    "variance": "the larger that of the kernel is, the more extreme the probabilities may become",
    "length scales": "distances over which the function changes; it changes most along features with short ones",
    "inducing points": "places at which the function is stored; they summarise the training rows",
    "neighbours": "the training rows nearest to a row; their labels correct its prediction",
    "bound": "lower limit of the log probability of all training labels, which the fit raises as far as it can",
}
STYLE = """body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 50em; margin: auto; padding: 0 1em 2em }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin: 2em 0 .5em; border-bottom: 1px solid #ccc } .wide { overflow-x:
auto; background: linear-gradient(#fff, #fff) right / 1em 110% no-repeat local, linear-gradient(to left, #999, #fff)
right / .6em 100% no-repeat } table { border-collapse: collapse } td, th { padding: .15em .8em .15em 0; text-align:
left; vertical-align: top } th { font-weight: 600 } .number { text-align: right; font-variant-numeric: tabular-nums;
white-space: nowrap } .bar { background: #0072b2; height: .8em } .bars td:nth-child(2) { width: 40%; color: #666 }
svg { width: 100%; max-width: 24em; height: auto } svg text { font: 4px system-ui, sans-serif; fill: #222 }
.good { border-left: .4em solid #009e73; padding-left: .6em } .bad { border-left: .4em solid #d55e00; padding-left:
.6em } td:first-child { min-width: 6em } .bars { width: 100%; table-layout: fixed; overflow-wrap: anywhere }
@media (max-width: 30em) { table { font-size: .75em } td, th { padding-right: .35em } .number { white-space: normal }
th { font-weight: 400; border-bottom: 1px solid #ccc } td:first-child { min-width: 0 } } @media print { h2 {
break-after: avoid } tr, svg, p { break-inside: avoid } .wide { overflow: visible } table { font-size: .8em } }"""


class Report(str):
    """An HTML page, which a notebook shows and ``save`` writes to a file."""

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self)}" style="width: 100%; height: 45em; border: 0"></iframe>'

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page; an existing file is replaced only when the new one is complete."""
        with replacing(path) as file:
            file.write(self.encode())


def report(
    model: BaseEstimator, X: MatrixLike, log_p: np.ndarray, y: ArrayLike, others: Arrays, further: str = ""
) -> Report:
    """The page of a fitted GPClassifier for log probabilities (n, C) of test rows and their labels (n,).

    ``X`` has these rows, or the first of them, ``others`` log probabilities of other models by name, and ``further`` is
    HTML of a last section.
    """
    labels = np.asarray(y)
    if labels.shape != (len(log_p),) or not len(log_p):
        raise ValueError(f"y needs the label of each of the {len(log_p)} test rows, at least one; got {labels.shape}.")
    codes, p, rates = class_positions(labels, model.classes_), np.exp(log_p), np.log(base_rates(model.class_count_))
    models = {type(model).__name__: log_p, **others, FREQUENCIES: np.tile(rates, (len(codes), 1))}
    decisions, of_model = [*model.warnings_, *model.decisions_], summary_rows(model)
    is_two = len(model.classes_) == 2
    outcome = codes == (1 if is_two else np.argmax(p, axis=1))
    shown = outcome, np.minimum(p[:, 1] if is_two else np.max(p, axis=1), 1.0)
    of_class = f"class {model.classes_[1]}" if is_two else ""
    weighted = "<p>class_weight multiplies the probabilities, so they need not be the frequencies of the classes.</p>"
    are_weighted = len(set(model.class_weight_.tolist())) > 1
    said, order = f"{decisions} {of_model}", model._record.by_level(np.arange(len(model.classes_)))
    sections = {
        "Can the probabilities be trusted?": _trust(*shown, of_class) + weighted * are_weighted,
        "Is it better than simpler models?": _comparison(codes, models),
        "Which classes are mistaken for each other?": _confusion(codes, p, model.classes_, order),
        "Which features matter?": _features(model, X, codes),
        "Where is it least sure?": _unsure(codes, p, model.classes_),
        "Data and model": _table([], of_model),
        "What the fit decided, and warnings": "".join(f"<p>{escape(text)}</p>" for text in decisions or ["Nothing."]),
        "What do these words mean?": _table([], [item for item in WORDS.items() if re.search(rf"\b{item[0]}\b", said)]),
    }
    body = "".join(f"<section><h2>{title}</h2>{text}</section>" for title, text in sections.items())
    title = f"{type(model).__name__}: predictions of {len(codes)} test rows"
    page = (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body><h1>{title}</h1>{body}{further}</body></html>\n"
    )
    # A name from the user may have characters that UTF-8 lacks.
    return Report(page.encode(errors="backslashreplace").decode())


def other_predictions(model: BaseEstimator, X: MatrixLike, others: Mapping[str, BaseEstimator]) -> Arrays:
    """Log probabilities (n, C) by other fitted classifiers of the same classes."""
    if not isinstance(others, Mapping):
        raise ValueError(f"others must be a dict of name to fitted classifier; got {type(others).__name__}.")
    predicted: Arrays = {}
    for name, other in others.items():
        name, taken = str(name), [type(model).__name__, FREQUENCIES, *predicted]
        if name in taken:
            raise ValueError(f"others must have names other than {taken}, which the page has already; got {name!r}.")
        check_classifier(other)
        if (classes := np.asarray(other.classes_).tolist()) != (own := model.classes_.tolist()):
            raise ValueError(f"others[{name!r}] must have the classes {own}, in this order; it has {classes}.")
        with np.errstate(divide="ignore"):
            predicted[name] = np.log(other.predict_proba(X))
    return predicted


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of text; if it has a head, the columns after the first are aligned at the right, as numbers."""
    aligned = [""] + [' class="number"' if head else ""] * (max(map(len, rows), default=1) - 1)
    lines = [("th", head)] * bool(head) + [("td", row) for row in rows]
    cells = [
        "".join(f"<{tag}{place}>{escape(cell)}</{tag}>" for place, cell in zip(aligned, line, strict=False))
        for tag, line in lines
    ]
    return f'<div class="wide"><table>{"".join(f"<tr>{line}</tr>" for line in cells)}</table></div>'


def _trust(outcome: np.ndarray, p: np.ndarray, of_class: str) -> str:
    """Whether the calibration error of a probability, that of a class or else of the predicted one, is that of a
    calibrated model, in words; and a picture."""
    gaps, missing = Gaps.of(outcome, p), outcome - p
    mean, deviation = gaps.by_chance()
    error, most = np.sum(np.abs(gaps.hits)) / len(p), (mean + 2.0 * deviation) / len(p)
    what = f"rows are of {escape(of_class)}" if of_class else "predicted classes are right"
    words = (
        f"{np.mean(outcome):.1%} of the {what}; on average their probabilities promise {np.mean(p):.1%}. The "
        f"calibration error, the mean distance between the two among rows of similar probability, is {error:.3f}; "
        f"by chance alone it would rarely be above {most:.3f}."
    )
    # Sums of outcome minus probability: as it is, and with its sign reversed where the probability is below one half.
    excess, caution = np.sum(missing), np.sum(missing * np.sign(p - 0.5) if of_class else missing)
    side = f"the model is too {'sure' if caution < 0.0 else 'cautious'}"
    if of_class and abs(excess) >= abs(caution):
        side = f"the probabilities of {of_class} are too {'small' if excess > 0.0 else 'large'}"
    if len(p) < LEAST_ROWS:
        verdict = f"<p>These are too few rows to tell. {words}</p>"
    elif error <= most:
        verdict = f'<p class="good">Yes, as far as these rows tell. {words}</p>'
    else:
        verdict = f'<p class="bad">Not quite: {escape(side)}. {words}</p>'
    return verdict + _calibration(outcome, p, of_class or "the predicted class")


def _calibration(outcome: np.ndarray, p: np.ndarray, of: str) -> str:
    """A picture of observed frequencies with 95 % intervals against probabilities, as in ``ReliabilityDisplay``."""
    bins = Bins.of(outcome, p, 10)
    x, y, low, high = 10.0 + 80.0 * bins.mean, *(90.0 - 80.0 * part for part in (bins.frequency, bins.low, bins.high))
    marks = "".join(
        f'<line x1="{at:.2f}" x2="{at:.2f}" y1="{bottom:.2f}" y2="{top:.2f}" stroke="#0072b2" stroke-width=".5"/>'
        f'<circle cx="{at:.2f}" cy="{middle:.2f}" r="1.2" fill="#0072b2"/>'
        for at, middle, bottom, top in zip(x, y, low, high, strict=True)
    )
    ticks = "".join(
        f'<text x="{10 + 80 * t:g}" y="95" text-anchor="middle">{t:g}</text><text x="8" y="{91 - 80 * t:g}" '
        f'text-anchor="end">{t:g}</text>'
        for t in (0.0, 0.5, 1.0)
    )
    return (
        f'<svg viewBox="0 0 96 102" role="img" aria-label="Calibration">'
        '<path d="M10 10V90H90M10 90L90 10" fill="none" stroke="#999" stroke-width=".4"/>'
        f'{ticks}{marks}<text x="50" y="100" text-anchor="middle">probability of {escape(of)}</text>'
        '<text x="10" y="7">observed share, with 95 % intervals</text></svg>'
        "<p>The points of a model whose probabilities can be trusted are near the diagonal.</p>"
    )


def _comparison(codes: np.ndarray, models: Arrays) -> str:
    """Scores of models, and by how much the first model's log probabilities exceed those of each other model."""
    (first, own), *_ = models.items()
    rows_and_codes, columns = (np.arange(len(codes)), codes), list[tuple[str, ...]]()
    for name, log_p in models.items():
        gains = own[rows_and_codes] - log_p[rows_and_codes]
        gain = "" if not columns else "infinite" if np.isinf(gains).any() else f"{np.mean(gains):+.3f}{_error(gains)}"
        rows = dict(score_rows(scores(codes, log_p), own.shape[1]))
        columns.append((name, *(value.partition(":")[0] for value in rows.values()), gain))
    lines = list(zip(("", *rows, f"gain of {first} (nats a row)"), *columns, strict=True))
    # The last are the class frequencies.
    is_shown = np.isinf(gains).any() or np.mean(gains) > 2.0 * _standard_error(gains)
    no = '<p class="bad">No: these rows do not show that it is better than the class frequencies.</p>'
    note = (
        "<p>For AUC higher is better, for the other scores lower. NLL is the mean negative logarithm of the "
        "probabilities that the true classes had, and the nat is its unit: .01 nats a row are a small difference, .1 a "
        "large one. A gain that exceeds twice its standard error (after ±) is hardly chance. Class frequencies are "
        "calibrated, but the same for all rows.</p>"
    )
    return ("" if is_shown else no) + _table(lines[0], lines[1:]) + note


def _standard_error(values: np.ndarray) -> np.ndarray:
    """Standard errors of the means along the last axis; 0 for a single value."""
    return np.asarray(np.std(values, axis=-1) / np.sqrt(max(values.shape[-1] - 1, 1)))


def _error(values: np.ndarray) -> str:
    """The standard error of a mean, as text; a single value has none."""
    return f" ± {_standard_error(values):.3f}" if len(values) > 1 else ""


def _confusion(codes: np.ndarray, p: np.ndarray, classes: np.ndarray, order: np.ndarray) -> str:
    """Numbers of rows by class and predicted class, in an order; of many classes, the most frequent mistakes."""
    counts = confusion_matrix(codes, np.argmax(p, axis=1), labels=order)
    names = [str(label) for label in classes[order]]
    if len(classes) <= LISTED:
        rows = [(name, *map(str, row)) for name, row in zip(names, counts, strict=True)]
        return _table(["class \\ predicted", *names], rows)
    mistakes = counts - np.diag(np.diag(counts))
    worst = [divmod(int(i), len(classes)) for i in np.argsort(-mistakes, axis=None, kind="stable")[:LISTED]]
    rows = [(names[i], names[j], str(mistakes[i, j])) for i, j in worst if mistakes[i, j]]
    return _table(["class", "taken for", "rows"], rows) if rows else "<p>None.</p>"


def _features(model: BaseEstimator, X: MatrixLike, codes: np.ndarray) -> str:
    """Bars of how much the mean log probability of some rows' labels falls if a feature is shuffled among them."""
    rng, p, X = np.random.default_rng(0), model.n_features_in_, model._rows(X)
    if SHUFFLED // p < LEAST_ROWS:
        return f"<p>With {p} features it would take long to find out.</p>"
    some = rng.permutation(X.shape[0])[: SHUFFLED // p]
    rows, places = np.asarray(dense(X[some])), (np.arange(len(some)), codes[some])
    features = model._encoding.features_of(rows.shape[1])
    unshuffled, falls = model._log_proba(rows)[places], np.empty((p, len(some)))
    for j in range(p):
        shuffled, of_feature = rows.copy(), features == j
        shuffled[:, of_feature] = rng.permutation(rows[:, of_feature])
        falls[j] = unshuffled - model._log_proba(shuffled)[places]
    fall, names = np.mean(falls, axis=1), feature_names(model)
    matters = fall > 2.0 * _standard_error(falls)
    order = np.lexsort((-fall, ~matters))[:LISTED]
    longest = np.max(fall, where=matters, initial=0.0)
    bars = "".join(
        f"<tr><td>{escape(names[j])}</td><td>"
        + (f'<div class="bar" style="width: {fall[j] / longest:.1%}"></div>' if matters[j] else "could be chance")
        + f'</td><td class="number">{fall[j]:.3f}{_error(falls[j])}</td></tr>'
        for j in order
    )
    return (
        f'<table class="bars">{bars}</table><p>How much worse the predictions of {len(some)} test rows become (nats a '
        "row) if the feature's values are shuffled among them. Without a bar the number is below twice its standard "
        "error (after ±), and noise gives such numbers, too. Where two features carry the same information, to "
        f"shuffle one may change little. {len(order)} of {p} features are shown; if they have no names, they are "
        "numbered from 0.</p>"
    )


def _unsure(codes: np.ndarray, p: np.ndarray, classes: np.ndarray) -> str:
    """The rows whose predicted class has the smallest probability: look at them, or measure them again, first."""
    top, predicted = np.max(p, axis=1), classes[np.argmax(p, axis=1)]
    order = np.argsort(top, kind="stable")[:LISTED]
    rows = [(str(i), str(predicted[i]), f"{top[i]:.3f}", str(classes[codes[i]])) for i in order]
    return _table(["row, from 0", "predicted", "its probability", "class"], rows)
