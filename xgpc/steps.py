"""The first and the last step of a fit of ``GPClassifier``: check the rows, and set the fitted attributes."""

from __future__ import annotations

import reprlib
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from .approximations.base import Posterior
from .config import FitConfig, check_batches, check_streamed, checked_mean, checked_noise
from .data.checks import checked_classes, checked_groups, has_counts, kind_of, listed
from .data.partitions import survey_partitions
from .data.survey import Streamed, seed_of_keys, survey
from .data.table import Table, note_of_index
from .data.training import Columns, training_data, transformed
from .inference.prior_mean import PriorMean, base_rates
from .inference.run import Run
from .kernels.wrappers import is_precomputed
from .learning import stages
from .learning.hold_out import HoldOut
from .learning.inducing import mean_and_spread
from .learning.stages import check_optimizer
from .learning.start import Data, FitResult, FurtherRows
from .likelihoods import LikelihoodBound, record_of, resolve
from .names import MatrixLike
from .predict import PosteriorClassifier
from .rows.batches import Rows
from .rows.clock import Clock
from .rows.columnar import ArrowRows
from .rows.partitions import Partitions
from .rows.source import NONE, ArraySource, labels_and_weights, source_of
from .status import Status, warn_user

# Earlier rows of a stream leave once they weigh less than this share of the mean weight of the latest batch. They would
# take the places of neighbours that know more: with a forgetting factor of .01 NLL was .644, and .625 without them.
LEAST_SHARE = 0.01
# Rows of a batch whose joint covariance is computed for ``drift_``: for these it takes .01 s, and .3 s with neighbours.
DRIFT_ROWS = 300
# Of latent values, in units of their spread, for derivatives of probabilities.
DIFFERENCE = 1e-4
# Rounding errors of log probabilities. A standard error of their sum that is below these means nothing.
ROUNDING = 1e-12


def new_run(config: FitConfig, clock: Clock | None) -> Run:
    """The run of a fit that starts now."""
    return Run(clock, Status() if config.verbose else None, config.callback, config.random_state)


def rows_in_memory(
    model: PosteriorClassifier,
    config: FitConfig,
    run: Run,
    X: MatrixLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    groups: ArrayLike | None = None,
    classes: ArrayLike | None = None,
) -> Data:
    """Check the rows of ``fit``."""
    run.history.tell(stage="checking")
    table = Table.of(X)
    if table.index_columns:
        run.history.add(decision=note_of_index(table.index_columns))
    # The checks keep the columns of these rows in the model.
    before = _columns_before(model, config)
    rows, names, columns, places, order = training_data(model, table, y, sample_weight, classes)
    of_counts = has_counts(y)
    if groups is not None:
        groups = checked_groups(groups, np.shape(y)[0], None if of_counts else sample_weight)
        groups = groups[places] if of_counts else groups
    # Either all classes of a row with counts are held out or none. Otherwise an array as large as the labels is freed.
    places = places if of_counts else NONE
    data = _data(config, run, rows, names, columns, before, groups, order=order)
    return replace(data, hold_out=replace(data.hold_out, places=places)) if of_counts else data


def _columns_before(model: PosteriorClassifier, config: FitConfig) -> Columns | None:
    """The columns of the previous fit whose kernel a warm start keeps."""
    keeps = config.warm_start and (config.kernel is None or config.optimizer is not None)
    return model._columns if keeps and hasattr(model, "posterior_") else None


def rows_in_batches(
    model: PosteriorClassifier, config: FitConfig, run: Run, source: object, classes: ArrayLike | None
) -> Data:
    """Check rows that may not fit into memory: the first reading counts them and draws a sample to learn from."""
    run.history.tell(stage="checking")
    if isinstance(source, ArrowRows) and source.index:
        run.history.add(decision=note_of_index(source.index))
    check_batches(config)
    given = None if classes is None else checked_classes(classes, None, model._is_ordered)
    run.history.tell(stage="reading")

    def progress(n_rows: int) -> None:
        if n_rows > stages.LAST_ROWS:
            check_streamed(config, stages.LAST_ROWS)
        run.history.tell(n_rows=n_rows)

    def size(n_features: int) -> int:
        """Rows to keep in memory."""
        return max(stages.LAST_ROWS, config.most_rows(1, n_features) if config.may_keep_rows else 0)

    how = given, config.class_weight, size, run.random_state, progress
    found, sample, stream = survey_partitions(source, *how) if isinstance(source, Partitions) else survey(source, *how)
    order = NONE if given is None or not model._is_ordered else np.searchsorted(found.classes, given)
    collected = partial(_data, config, run, sample, found.classes, found.columns, _columns_before(model, config))
    if found.n_rows <= size(found.columns.n_features):
        return collected(order=order)
    n_sample = len(sample.X)
    run.history.tell(decision=f"{found.n_rows} rows were read; kernels are learned from a sample of {n_sample}.")
    return collected(stream=stream, class_totals=found.totals, order=order)


def further_rows(
    model: PosteriorClassifier,
    config: FitConfig,
    run: Run,
    X: MatrixLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    classes: ArrayLike | None,
    forgetting_factor: float,
) -> FurtherRows:
    """Check rows that ``partial_fit`` adds to a fitted model, whose likelihood, classes and features are given."""
    run.history.tell(stage="checking")
    if classes is not None:
        checked_classes(classes, model._record.by_level(model.classes_), model._is_ordered)
    fitted = model._columns
    classes, table = model.classes_ if classes is None else classes, Table.of(X, fitted.names or ())
    (rows, codes, weight), _, columns, *_ = training_data(model, table, y, sample_weight, classes, fitted)
    record, n_classes = model._record, len(model.classes_)
    source = source_of(rows, record.site_labels(codes), weight)
    data = Data(
        config,
        source,
        model.classes_,
        _class_totals(codes, source.weight, n_classes),
        record,
        model._parameter,
        HoldOut(len(codes), None, None, codes, run.random_state),
        columns,
        prior_mean=PriorMean(np.atleast_1d(model.mean_)),
    )
    kept, earlier = model.posterior_.kept_rows, model._stream_rows
    if kept is not None:
        earlier = Rows(kept.X, kept.y, kept.weight)
    if earlier is None:
        return FurtherRows(data, None, np.arange(0), False)
    return _after_earlier_rows(data, earlier, forgetting_factor, model.class_count_, model.n_samples_seen_)


def stream_rows(data: Data | None, q: Posterior) -> Rows | None:
    """The latest rows of a stream, from which a later call learns, if the posterior q does not hold them itself.

    None if the model keeps no rows: it kept none before (``data`` is None), has ``n_neighbors=0``, or cannot have
    neighbours.
    """
    if data is None:
        return None
    config, source = data.config, data.source
    keeps = config.may_keep_rows and config.optimizer is not None and data.record.cavity is not None
    if q.kept_rows is not None or not keeps or source.makes_dense:
        return None
    latest = slice(-_most_of_stream(data), None)
    y, weight = labels_and_weights(source)
    return Rows(source.X[latest], y[latest], weight[latest])


def _most_of_stream(data: Data) -> int:
    """Most rows that the model of a stream keeps."""
    n_latents = data.record.n_latents(len(data.classes))
    return data.config.most_rows(n_latents, data.source.n_features, is_stream=True)


def _after_earlier_rows(
    data: Data, earlier: Rows, forgetting_factor: float, class_totals: np.ndarray, n_seen: int
) -> FurtherRows:
    """The batch, and the rows that the model keeps with it: the latest ones, without those of almost no weight.

    Learning is due when the number of rows seen, ``n_seen`` before the batch, passes a power of two, or a multiple of
    the rows that the model may keep.
    """
    config, further, most = data.config, data.source, _most_of_stream(data)
    if isinstance(config.max_rows_in_model, str):
        # A fit may have kept more.
        most = max(most, len(earlier.y))
    y, weight = labels_and_weights(further)
    first = max(0, further.n_rows - most)
    weight, of_earlier = weight[first:], forgetting_factor * earlier.weight
    stay = np.flatnonzero(of_earlier > LEAST_SHARE * np.mean(weight))
    stay = stay[max(0, len(stay) + len(weight) - most) :]
    source = ArraySource(
        np.concatenate([earlier.X[stay], further.X[first:].astype(earlier.X.dtype, copy=False)]),
        np.concatenate([earlier.y[stay], y[first:]]),
        np.concatenate([of_earlier[stay], weight]),
    )
    random_state, totals = data.hold_out.random_state, forgetting_factor * class_totals + data.class_totals
    kept = replace(
        data,
        source=source,
        hold_out=HoldOut(source.n_rows, None, config.held_out_split, data.record.codes(source.y), random_state),
        class_totals=totals,
        prior_mean=_prior_mean(config, data.record, totals),
        seed=int(seed_of_keys(random_state)[0]),
    )
    before, now = (n.bit_length() + n // most for n in (n_seen, n_seen + further.n_rows))
    return FurtherRows(data, kept, stay, config.optimizer is not None and now > before)


def drift_of(model: PosteriorClassifier, data: Data) -> float:
    """``drift_`` of further rows: expected minus actual log probability of the labels, as a z score.

    Under the model, s_i = -log p(y_i) of a row has mean -sum_c p_c log p_c and variance sum_c p_c (log p_c)^2 minus the
    squared mean. Two rows have the covariance g_i Cov(f_i, f_j) g_j to first order, where g is the derivative of
    E[s | f] by f; that of all pairs is estimated from pairs of at most ``DRIFT_ROWS`` rows. The skewness of the sum is
    taken out as Wilson & Hilferty (PNAS 17, 1931) do for gamma variables.
    """
    labels, weight = data.hold_out.labels.astype(np.intp), labels_and_weights(data.source)[1]
    n, some = len(labels), np.linspace(0, len(labels) - 1, min(len(labels), DRIFT_ROWS)).astype(np.intp)
    mean, variance = model._latent_at(data.source.rows)
    log_proba = model._log_probabilities(mean, variance)
    p, of_labels = np.exp(log_proba), np.take_along_axis(log_proba, labels[:, None], axis=1)[:, 0]
    expected = np.sum(p * log_proba, axis=1)
    total, cubes = (weight**k @ np.sum(p * (expected[:, None] - log_proba) ** k, axis=1) for k in (2, 3))
    covariance = model.posterior_.covariance(data.source.sample(some).X).reshape(-1, len(some), len(some))
    for c, together in enumerate(covariance):
        step = np.zeros_like(mean[..., some])
        np.atleast_2d(step)[c] = DIFFERENCE * np.sqrt(1.0 + np.atleast_2d(variance)[c, some])
        ends = (np.exp(model._log_probabilities(mean[..., some] + h, variance[..., some])) for h in (-step, step))
        slope = np.subtract(*ends) / (2.0 * np.atleast_2d(step)[c][:, None])
        g = weight[some] * np.sum(slope * log_proba[some], axis=1)
        np.fill_diagonal(together, 0.0)
        total += max(0.0, g @ together @ g) * (n * (n - 1.0)) / max(1.0, len(some) * (len(some) - 1.0))
    error, rounding = np.sqrt(total), ROUNDING * np.sqrt(weight @ weight)
    # Where all classes are as probable, every label is as surprising.
    if error <= rounding:
        return 0.0
    z, skewness = float(weight @ (expected - of_labels) / error), float(cubes / error**3)
    if abs(skewness) < ROUNDING:
        return z
    return float(6.0 / skewness * (np.cbrt(0.5 * skewness * z + 1.0) - 1.0) + skewness / 6.0)


def _data(
    config: FitConfig,
    run: Run,
    rows: Rows,
    classes: np.ndarray,
    columns: Columns,
    before: Columns | None,
    groups: np.ndarray | None = None,
    stream: Streamed | None = None,
    class_totals: np.ndarray | None = None,
    order: np.ndarray = NONE,
) -> Data:
    """Collect checked rows, with class numbers as y, and the model's parts in a ``Data``.

    When ``rows`` are only a sample, ``stream`` builds the source of all rows, and ``class_totals`` (C,) are the total
    weights of the classes. ``order`` is that of ``TrainingData``.
    """
    record = record_of(*resolve(config.likelihood, config.bound, len(classes)).key, order)
    if record.is_ordinal and not record.order and kind_of(classes.dtype) == "text":
        run.history.add(
            decision=f"The classes are ordered as their names sort, {reprlib.repr(classes.tolist())}, because the "
            "labels have no order of their own: give classes, all labels in their order, for another."
        )
    check_optimizer(config.optimizer, record)
    noise = checked_noise(config.label_noise, record)
    if class_totals is None:
        class_totals = _class_totals(rows.y, rows.weight, len(classes))
    prior_mean = _prior_mean(config, record, class_totals)
    labels = record.site_labels(np.arange(len(classes)))
    X, encoding = rows.X, columns.encoding
    for sentence in () if encoding is None else encoding.described_levels(X):
        run.history.add(decision=sentence)
    if config.feature_transform is not None and not is_precomputed(config.kernel):
        X, encoding, told = transformed(rows, columns, config.kernel is None, before)
        for decision in told:
            run.history.add(decision=decision)
    source = source_of(X, labels[rows.y], rows.weight)
    mean_of_rows, spread, is_rounding = mean_and_spread(source)
    if np.any(is_rounding):
        names = listed([columns.described[j] for j in np.flatnonzero(is_rounding)])
        run.history.add(decision=f"Features whose values differ by rounding alone count as constant: {names}.")
    everything = None if stream is None else stream(labels, encoding)
    return Data(
        config,
        source,
        classes,
        class_totals,
        record,
        noise,
        HoldOut(len(rows.y), groups, config.held_out_split, rows.y, run.random_state),
        columns._replace(encoding=encoding, mean=mean_of_rows, spread=spread),
        stream=everything,
        prior_mean=prior_mean,
        seed=int(seed_of_keys(run.random_state)[0]),
    )


def _prior_mean(config: FitConfig, record: LikelihoodBound, class_totals: np.ndarray) -> PriorMean:
    """The prior mean that the parameters ask for; ``class_totals`` (C,) are the total weights of the classes."""
    mean = checked_mean(config.mean, record, len(class_totals))
    return PriorMean(mean, base_rates(class_totals) if mean is None else None)


def _class_totals(codes: np.ndarray, weight: np.ndarray, n_classes: int) -> np.ndarray:
    """Total weight (C,) of each class; an empty ``weight`` (0,) counts every row once."""
    return np.bincount(codes, weight if len(weight) else None, n_classes).astype(np.float64)


def publish(
    model: PosteriorClassifier, data: Data, run: Run, result: FitResult, stream_rows: Rows | None = None
) -> None:
    """Set the fitted attributes, and warn; ``stream_rows`` are those that a stream's model keeps."""
    if result.messages:
        warn_user("\n".join(result.messages), ConvergenceWarning)
    model._set_columns(data.columns)
    model.classes_, model.encoding_ = data.classes, data.encoding
    model.feature_mean_, model.feature_spread_ = data.columns.mean, data.columns.spread
    model.class_count_, model.n_samples_seen_ = data.class_totals, (data.stream or data.source).n_rows
    model.warnings_ = result.messages
    site = result.site
    model._set_fit(result.q, data.record, site.parameter, site.prior_mean, result.evidence)
    model.held_out_score_ = None if result.scores is None else (result.scores.mean, result.scores.error)
    model.label_agreement_ = result.label_agreement
    model._stream_rows = stream_rows
    model.n_iter_ = max(1, result.n_iter)
    model.converged_ = result.is_complete
    model.history_ = run.history.arrays()
