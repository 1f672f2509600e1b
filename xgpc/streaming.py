"""Rows of a stream that ``partial_fit`` adds to a model: checks, which rows the model keeps, and drift."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator

from .approximations.local import Posterior
from .config import FitConfig, check_keeps_no_rows, integer, is_name, number
from .data.checks import checked_classes, weights_of_classes
from .data.survey import seed_of_keys
from .data.training import FitInput, training_data
from .inference.prior_mean import PriorMean
from .inference.run import Run
from .learning.fit import Fit, FurtherRows
from .learning.hold_out import HoldOut
from .likelihoods import resolve
from .predict import PosteriorClassifier
from .rows.batches import Rows
from .rows.source import ArraySource
from .status import warn_user
from .steps import prior_mean_of

# Earlier rows of a stream leave once they weigh less than this share of the mean weight of the latest batch. They would
# take the places of neighbours that know more: with a forgetting factor of .01 NLL was .644, and .625 without them.
LEAST_SHARE = 0.01
# Rows of a batch whose joint covariance is computed for ``drift_``: for these it takes .01 s, and .3 s with neighbours.
DRIFT_ROWS = 300
# Step of a latent value, in units of sqrt(1 + variance), in finite differences of probabilities.
DIFFERENCE = 1e-4
# Rounding errors of log probabilities. A standard error of their sum, or a skewness, that is below these means nothing.
ROUNDING = 1e-12


def check_stream(config: FitConfig, model: BaseEstimator, forgetting_factor: object, n_new_inducing: object) -> None:
    """Raise ValueError if ``GPClassifier.partial_fit`` cannot continue from the model or with the arguments."""
    number(lambda value: 0.0 <= value <= 1.0, "a number from 0 to 1").check("forgetting_factor", forgetting_factor)
    integer(0).check("n_new_inducing", n_new_inducing)
    check_keeps_no_rows(config, "partial_fit keeps none")
    if is_name(config.class_weight, ("balanced",)):
        raise ValueError(
            "class_weight='balanced' needs the number of rows of each class, which partial_fit cannot know; give a "
            "dict of weights or sample_weight."
        )
    if not hasattr(model, "posterior_"):
        return
    if model.posterior_.prior.is_full:
        raise ValueError(
            "This model is a full Gaussian process, in which every row is an inducing point; partial_fit adds no rows "
            "to these. Fit the model with inducing points first, or use a new estimator."
        )
    if model.n_neighbors_ and not config.may_keep_rows:
        raise ValueError(
            f"This model predicts with {model.n_neighbors_} neighbours and has to keep rows, but n_neighbors="
            f"{config.n_neighbors} and batch_size={config.batch_size} keep none. Set them back, or use a new estimator."
        )
    if config.given_neighbors and not model.n_neighbors_ and model._stream_rows is None:
        warn_user(
            f"n_neighbors={config.n_neighbors} is not followed: this model has kept no rows. Give n_neighbors before "
            "the first call, or use a new estimator."
        )
    if model.n_neighbors_ and n_new_inducing:
        raise ValueError(
            f"n_new_inducing={n_new_inducing} is for models without neighbours; this one keeps its rows, and learns "
            "its inducing points anew from time to time. Leave n_new_inducing=0, or fit with n_neighbors=0."
        )
    fitted = model._record
    if resolve(config.likelihood, config.bound, len(model.classes_)).key != fitted.key:
        raise ValueError(
            f"partial_fit continues from a posterior of likelihood {fitted.likelihood!r} with bound {fitted.bound!r}; "
            f"now they are {config.likelihood!r} and {config.bound!r}. Set them back, or use a new estimator."
        )


def further_rows(
    model: PosteriorClassifier, config: FitConfig, run: Run, inputs: FitInput, forgetting_factor: float
) -> FurtherRows:
    """Check rows that ``partial_fit`` adds to a fitted model, whose likelihood, classes and features are given."""
    run.history.tell(stage="checking")
    if inputs.classes is None:
        inputs = inputs._replace(classes=model.classes_)
    else:
        checked_classes(inputs.classes, model._record.by_level(model.classes_), model._is_ordered)
    (rows, codes, weight), _, n_each, columns, *_ = training_data(model, inputs, model._columns)
    record = model._record
    source = ArraySource(columns.encoding.transform(rows), record.site_labels(codes), weight)
    totals, mean = np.bincount(codes, weight, len(model.classes_)), PriorMean(np.atleast_1d(model.mean_))
    hold_out = HoldOut(None, None, codes, run.random_state)
    of_classes = model.classes_, totals, weights_of_classes(config.class_weight, model.classes_, n_each)
    batch = Fit(config, run, source, *of_classes, record, hold_out, columns, prior_mean=mean)
    kept, earlier = model.posterior_.kept_rows, model._stream_rows
    if kept is not None:
        earlier = Rows(kept.X, kept.y, kept.weight)
    if earlier is None:
        return FurtherRows(batch, None, np.arange(0), False)
    return _after_earlier_rows(batch, earlier, forgetting_factor, model)


def stream_rows(fit: Fit | None, q: Posterior) -> Rows | None:
    """The latest rows of a stream, from which a later call learns, if the posterior q does not hold them itself.

    None if the model keeps no rows: it kept none before (``fit`` is None), has ``n_neighbors=0``, or cannot have
    neighbours.
    """
    if fit is None or q.kept_rows is not None or issparse(fit.source.rows):
        return None
    if not fit.config.may_keep_rows or not fit.learns or fit.record.cavity is None:
        return None
    most = fit.config.most_rows(fit.n_latents, fit.source.n_features, is_stream=True)
    return Rows(fit.source.X, fit.source.y, fit.source.weight).part(slice(-most, None))


def _after_earlier_rows(batch: Fit, earlier: Rows, forgetting_factor: float, model: PosteriorClassifier) -> FurtherRows:
    """The batch, and the rows that the model keeps with it: the latest ones, without those of almost no weight.

    Learning is due when the number of rows seen, with those of the batch, passes a power of two, or a multiple of the
    rows that the model may keep.
    """
    config, further = batch.config, batch.source
    most = config.most_rows(batch.n_latents, further.n_features, is_stream=True)
    if isinstance(config.max_rows_in_model, str):
        # A fit may have kept more.
        most = max(most, len(earlier.y))
    first = max(0, further.n_rows - most)
    weight, earlier_weight = further.weight[first:], forgetting_factor * earlier.weight
    stay = np.flatnonzero(earlier_weight > LEAST_SHARE * np.mean(weight))
    stay = stay[max(0, len(stay) + len(weight) - most) :]
    source = ArraySource(
        np.concatenate([earlier.X[stay], further.X[first:].astype(earlier.X.dtype, copy=False)]),
        np.concatenate([earlier.y[stay], further.y[first:]]),
        np.concatenate([earlier_weight[stay], weight]),
    )
    random_state, totals = batch.run.random_state, forgetting_factor * model.class_count_ + batch.class_totals
    kept = replace(
        batch,
        source=source,
        hold_out=HoldOut(None, config.held_out_split, batch.record.codes(source.y), random_state),
        class_totals=totals,
        prior_mean=prior_mean_of(config, batch.record, totals),
        seed=int(seed_of_keys(random_state)[0]),
    )
    n_seen = model.n_samples_seen_
    n_due_before, n_due = (n.bit_length() + n // most for n in (n_seen, n_seen + further.n_rows))
    return FurtherRows(batch, kept, stay, batch.learns and n_due > n_due_before)


def drift_of(model: PosteriorClassifier, batch: Fit) -> float:
    """``drift_`` of further rows: expected minus actual log probability of the labels, as a z score.

    Under the model, s_i = -log p(y_i) of a row has mean -sum_c p_c log p_c and variance sum_c p_c (log p_c)^2 minus the
    squared mean. Two rows have the covariance g_i Cov(f_i, f_j) g_j to first order, where g is the derivative of
    E[s | f] by f; that of all pairs is estimated from pairs of at most ``DRIFT_ROWS`` rows. The skewness of the sum is
    taken out as Wilson & Hilferty (PNAS 17, 1931) do for gamma variables.
    """
    labels, weight = batch.hold_out.labels.astype(np.intp), batch.source.weight
    n, r = len(labels), min(len(labels), DRIFT_ROWS)
    some = np.linspace(0, n - 1, r).astype(np.intp)
    mean, variance = model._latent_at(batch.source.rows)
    log_proba = model._log_probabilities(mean, variance)
    p, label_log_proba = np.exp(log_proba), np.take_along_axis(log_proba, labels[:, None], axis=1)[:, 0]
    expected = np.sum(p * log_proba, axis=1)
    total, cubes = (weight**k @ np.sum(p * (expected[:, None] - log_proba) ** k, axis=1) for k in (2, 3))
    # A single row is in no pair.
    pairs = model.posterior_.covariance(batch.source.sample(some).X).reshape(-1, r, r) if n > 1 else ()
    for c, together in enumerate(pairs):
        step = np.zeros_like(mean[..., some])
        np.atleast_2d(step)[c] = DIFFERENCE * np.sqrt(1.0 + np.atleast_2d(variance)[c, some])
        ends = (np.exp(model._log_probabilities(mean[..., some] + h, variance[..., some])) for h in (-step, step))
        slope = np.subtract(*ends) / (2.0 * np.atleast_2d(step)[c][:, None])
        g = weight[some] * np.sum(slope * log_proba[some], axis=1)
        np.fill_diagonal(together, 0.0)
        total += max(0.0, g @ together @ g) * (n * (n - 1.0)) / (r * (r - 1.0))
    error, rounding = np.sqrt(total), ROUNDING * np.sqrt(weight @ weight)
    # Where all classes are as probable, every label is as surprising.
    if error <= rounding:
        return 0.0
    z, skewness = float(weight @ (expected - label_log_proba) / error), float(cubes / error**3)
    if abs(skewness) < ROUNDING:
        return z
    return float(6.0 / skewness * (np.cbrt(0.5 * skewness * z + 1.0) - 1.0) + skewness / 6.0)
