"""The summary of a fit in a few lines of text."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence

import numpy as np
from sklearn.base import BaseEstimator

from .explain import NotAProduct, relevance
from .inference.prior_mean import log_likelihood_of_frequencies
from .kernels.spec import KernelSpec
from .names import LISTED, MatrixLike, listed

# One (name, value) for each line.
Rows = list[tuple[str, str]]

# Largest number of classes to list with their shares.
LISTED_CLASSES = 10
# A feature with less than this share of the largest mean Shapley value hardly changes predictions.
SMALL_SHARE = 0.01
# A full process of so many rows is fitted in a second (docs/benchmarks.md).
FEW_ROWS = 1000

NLL, ECE = "mean NLL (nats)", "calibration error (ECE)"
SCORE_NAMES = {"error": "error", "nll": NLL, "brier": "Brier score", "auc": "AUC", "ece": ECE}
# The scores that are sums or averages over the classes where there are more than two.
SEVERAL_NAMES = {**SCORE_NAMES, "brier": "Brier score (0 to 2)", "auc": "AUC (one-vs-rest mean)"}


class Summary(str):
    """Text, which a notebook shows line by line."""

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self)}</pre>"


def aligned(rows: Sequence[tuple[str, str]]) -> str:
    """One line for each (name, value); all values start in the same column."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name:<{width}}  {value}" for name, value in rows)


def sentences(title: str, texts: Sequence[str]) -> str:
    """A title and one line for each sentence; an empty string without sentences."""
    return "".join([f"\n{title}:", *(f"\n- {text}" for text in texts)]) if texts else ""


def summary(model: BaseEstimator) -> Summary:
    """The summary of a fitted GPClassifier: data and model, then warnings, decisions and what to try next."""
    matter, to_try = features_that_matter(model)
    said = sentences("Warnings", model.warnings_) + sentences("Decisions", model.decisions_)
    return Summary(aligned([*summary_rows(model), *matter]) + said + sentences("What to try next", to_try))


def feature_names(model: BaseEstimator, X: MatrixLike | None = None) -> list[str]:
    """Names of the features, or of the columns of a table: those of X, or of the fit, or numbers."""
    names = getattr(X, "columns", getattr(model, "feature_names_in_", None))
    return [f"feature {j}" for j in range(model.n_features_in_)] if names is None else [str(name) for name in names]


def features_that_matter(model: BaseEstimator) -> tuple[Rows, list[str]]:
    """The features with the largest Shapley values, and sentences on what to try next."""
    rows, to_try, names = [], [], feature_names(model)
    try:
        size, std = relevance(model)
        if len(size) and np.any(size):
            order, is_small = np.argsort(-size, kind="stable"), size < SMALL_SHARE * np.max(size)
            # Features of noise have sizes, too, but not beyond what the posterior leaves open.
            large = order[(~is_small & (size > 2.0 * std))[order]][:LISTED]
            rows.append(("features that matter", ", ".join(names[j] for j in large) or "none for certain"))
            if len(large):
                rows.append(("mean |Shapley value|", ", ".join(f"{size[j]:.3g} +- {std[j]:.2g}" for j in large)))
            if small := [names[j] for j in order[is_small[order]]]:
                to_try.append(f"Leave out features that hardly change predictions: {listed(small)}.")
        to_try.append("xgpc.explain.shapley_values(model, X) says which features gave a row its prediction.")
    except NotAProduct:
        to_try.append("Give a kernel of RBF or AxisMatern if xgpc.explain.shapley_values is to explain predictions.")
    # After partial_fit not all rows are at hand.
    has_all = int(model.history_["n_rows"][-1]) == model.n_samples_seen_ > model.inducing_points_.shape[-2]
    if model.n_samples_seen_ <= FEW_ROWS and has_all and not model.posterior_.prior.is_full:
        to_try.append("Few rows allow a fit without the approximation by inducing points: inducing_points='all'.")
    return rows, to_try


def summary_rows(model: BaseEstimator) -> Rows:
    """Data, kernel, posterior and bound of a fitted GPClassifier."""
    likelihood, bound = model._record.key
    Z, counts, score = model.inducing_points_, model.class_count_, model.held_out_score_
    shares = counts / np.sum(counts)
    categorical = [column.name for column in model._encoding.columns if column.is_categorical and column.levels]
    rows = [("rows", str(model.n_samples_seen_)), ("features", str(model.n_features_in_))]
    if categorical:
        rows.append(("categorical", ", ".join(map(repr, categorical))))
    rows.append(("classes", class_shares(*map(model._record.by_level, (model.classes_, counts)))))
    rows.append(("likelihood", f"{likelihood}, bound {bound}"))
    means = {"prior mean": model.mean_} if np.any(model.mean_) else {}
    for name, value in {**model._record.named(), **means}.items():
        rows.append((name.replace("_", " "), ", ".join(f"{number:.3g}" for number in np.atleast_1d(value))))
    rows += kernels_rows(model)
    points = str(len(Z)) if Z.ndim == 2 else f"{Z.shape[1]} for each class"
    rows.append(("inducing points", "all rows" if model.posterior_.prior.is_full else points))
    if model.n_neighbors_:
        # There is no bound here: it belongs to the sparse posterior, which predicts nothing and needs another fit.
        rows.append(("neighbours", f"{model.n_neighbors_}; the model holds the training rows"))
    else:
        # After partial_fit the bound is that of the last batch.
        n_last, elbo = int(model.history_["n_rows"][-1]), model.elbo_
        is_last = n_last < model.n_samples_seen_
        scope = f"of the last batch, of {n_last} rows" if is_last else f"{elbo / np.sum(counts):.4f} per row"
        rows.append(("bound (ELBO)", f"{elbo:.2f} nats, {scope}"))
    # Predictions by the class frequencies have this mean log probability.
    rows.append(("class frequencies alone", f"{log_likelihood_of_frequencies(shares):.4f} nats per row"))
    if score:
        rows.append(("held-out rows", f"log probability {score[0]:.4f} +- {score[1]:.4f} nats per row"))
    return rows


def class_shares(classes: np.ndarray, counts: np.ndarray) -> str:
    """The classes with their shares of the rows; of many classes, the most frequent ones."""
    is_many, shares = len(classes) > LISTED_CLASSES, counts / np.sum(counts)
    order = np.argsort(-counts, kind="stable") if is_many else np.arange(len(classes))
    shown = listed([f"{classes[k]} {shares[k]:.1%}" for k in order], LISTED_CLASSES)
    return f"{len(classes)} classes: {shown}" if is_many else shown


def kernels_rows(model: BaseEstimator) -> Rows:
    """The kernel of a model, or the kernels of its first classes."""
    specs = [group.spec for group in model.posterior_.prior.groups]
    names, spread = model._encoding.matrix_names or feature_names(model), model.feature_spread_
    labels = [""] if len(specs) == 1 else [f"{label}: " for label in model.classes_[:LISTED]]
    each = zip(labels, specs, strict=False)
    rows = [(name, label + value) for label, spec in each for name, value in kernel_rows(spec, names, spread)]
    return rows + [("further kernels", str(len(specs) - LISTED))] * (len(specs) > LISTED)


def kernel_rows(spec: KernelSpec, names: Sequence[str], spread: np.ndarray) -> Rows:
    """A kernel in few lines, with its shortest length scales; the features have these names and deviations (d,)."""
    kernel, groups = spec.kernel, spec.groups
    rows = [("kernel", re.sub(r"length_scale=\[[^]]*\]", "length_scale=[...]", str(kernel)))]
    for _, leaf in spec.compiled(kernel).factors:
        scales = np.atleast_1d(getattr(leaf.kernel, "length_scale", 1.0))
        if len(scales) == 1:
            continue
        features = [np.flatnonzero(leaf.places == j) for j in range(len(scales))]
        # Several features share a length scale only in a group.
        is_own = max(map(len, features)) == 1
        owners = [names[own[0]] if groups is None or is_own else groups.names[groups.index[own[0]]] for own in features]
        unit = np.array([math.hypot(*spread[own]) for own in features])
        # All rows have the same value of a constant feature, whose length scale means nothing.
        varying = np.flatnonzero(unit > 0.0)
        relative = scales[varying] / unit[varying]
        shortest = [f"{owners[varying[j]]} {relative[j]:.3g}" for j in np.argsort(relative, kind="stable")]
        rows.append(("length scales", f"{listed(shortest)}, in standard deviations"))
    return rows


def score_rows(scores: dict[str, float], n_classes: int = 2) -> list[tuple[str, str]]:
    """The names and values of ``metrics.scores``, with four decimals each."""
    several = n_classes > 2
    undefined = "undefined: a class has no rows" if several else "undefined: the rows are of one class"
    names = SEVERAL_NAMES if several else SCORE_NAMES
    return [(name, undefined if np.isnan(scores[key]) else f"{scores[key]:.4f}") for key, name in names.items()]
