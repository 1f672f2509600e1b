"""The first and the last step of a fit of ``GPClassifier``: check the rows, and set the fitted attributes."""

from __future__ import annotations

import reprlib
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning

from .config import FitConfig, check_batches, check_streamed, checked_mean, checked_noise, is_name
from .data.checks import checked_classes, class_numbers, kind_of, weights_of_classes
from .data.moments import mean_and_spread
from .data.partitions import Partitions, survey_partitions
from .data.survey import AllRows, seed_of_keys, survey
from .data.table import levels_in, note_of_index
from .data.training import FitInput, TrainingData, training_data, transformed
from .inference.prior_mean import PriorMean, base_rates
from .inference.run import Run
from .kernels.wrappers import is_precomputed
from .learning import stages
from .learning.fit import Fit, FitResult, PreviousFit
from .learning.hold_out import HoldOut
from .learning.stages import check_optimizer
from .likelihoods import LikelihoodBound, record_of, resolve
from .names import listed
from .predict import PosteriorClassifier
from .rows.batches import Rows
from .rows.columnar import ArrowRows
from .rows.executor import Executor
from .rows.source import NONE, ArraySource
from .status import Status, warn_user


def new_run(config: FitConfig, executor: Executor) -> Run:
    """The run of a fit that starts now."""
    return Run(executor, Status() if config.verbose else None, config.callback, config.random_state)


def rows_in_memory(model: PosteriorClassifier, config: FitConfig, run: Run, inputs: FitInput) -> Fit:
    """Check the rows of ``fit``."""
    run.history.tell(stage="checking")
    return fit_of(model, config, run, training_data(model, inputs))


def previous_fit(model: PosteriorClassifier, config: FitConfig) -> PreviousFit | None:
    """The fit that a warm start continues."""
    # The inducing points of a precomputed kernel are rows of the earlier matrix.
    if not config.warm_start or not hasattr(model, "posterior_") or is_precomputed(config.kernel):
        return None
    return PreviousFit(model.posterior_, model._record.by_level(model.classes_), model._encoding, model._record.known)


def rows_in_batches(
    model: PosteriorClassifier, config: FitConfig, run: Run, source: object, classes: ArrayLike | None
) -> Fit:
    """Check rows that may not fit into memory: the first reading counts them and draws a sample to learn from."""
    run.history.tell(stage="checking")
    check_batches(config)
    checked = None if classes is None else checked_classes(classes, None, model._is_ordered)
    run.history.tell(stage="reading")

    def progress(n_rows: int) -> None:
        if n_rows > stages.LAST_ROWS:
            check_streamed(config, stages.LAST_ROWS)
        run.history.tell(n_rows=n_rows)

    def size(n_features: int) -> int:
        """Rows to keep in memory."""
        return max(stages.LAST_ROWS, config.most_rows(1, n_features) if config.may_keep_rows else 0)

    args = checked, size, run.random_state, progress
    read, sample, stream = survey_partitions(source, *args) if isinstance(source, Partitions) else survey(source, *args)
    order = NONE
    if model._is_ordered and (levels := levels_in(read.summary.orders) if checked is None else checked) is not None:
        # A level without rows is no class of a fit to batches.
        order = class_numbers(np.asarray(levels)[np.isin(levels, read.classes)], read.classes)
    is_sample = read.n_rows > size(read.columns.n_features)
    if is_sample:
        n_sample = len(sample.X)
        run.history.tell(decision=f"{read.n_rows} rows were read; kernels are learned from a sample of {n_sample}.")
    # As in a fit, sparse rows are not warped, and have no neighbours.
    sample = sample._replace(X=csr_array(sample.X)) if read.summary.is_sparse else sample
    index = source.index if isinstance(source, ArrowRows) else ()
    data = TrainingData(sample, read.classes, read.counts[1], read.columns, order, index_columns=index)
    return fit_of(model, config, run, data, (read, stream) if is_sample else None)


def fit_of(
    model: PosteriorClassifier, config: FitConfig, run: Run, data: TrainingData, all_rows: AllRows | None = None
) -> Fit:
    """Collect checked rows, and the model's parts; ``all_rows`` if ``data`` has only a sample of the rows."""
    rows, classes, n_each, columns, order, groups, places, index_columns = data
    if index_columns:
        run.history.add(decision=note_of_index(index_columns))
    record = record_of(*resolve(config.likelihood, config.bound, len(classes)).key, order)
    if record.is_ordinal and not record.order and kind_of(classes.dtype) == "text":
        sorting = f"The classes are ordered as their names sort, {reprlib.repr(classes.tolist())}"
        note = f"{sorting}: for another order give classes=[...], lowest first."
        run.history.add(decision=note)
        warn_user(note)
    check_optimizer(config.optimizer, record)
    noise = checked_noise(config.label_noise, record)
    class_totals = np.bincount(rows.y, rows.weight, len(classes)) if all_rows is None else all_rows[0].counts[2]
    prior_mean = prior_mean_of(config, record, class_totals)
    labels = record.site_labels(np.arange(len(classes)))
    X, sentences = rows.X, columns.encoding.described_levels(rows.X)
    if config.feature_transform is not None and not is_precomputed(config.kernel):
        keeps_kernel = config.warm_start and (config.kernel is None or config.optimizer is not None)
        previous = model._columns if keeps_kernel and hasattr(model, "posterior_") else None
        X, columns, told = transformed(rows, columns, config.kernel is None, previous)
        sentences += told
    for sentence in sentences:
        run.history.add(decision=sentence)
    source = ArraySource(X, labels[rows.y], rows.weight)
    mean_of_rows, spread, is_rounding = mean_and_spread(source, run.executor)
    if np.any(is_rounding):
        names = listed([columns.described[j] for j in np.flatnonzero(is_rounding)])
        run.history.add(
            decision="Features whose values differ by less than 1e-12 of their size (5e-7 in single precision) or by "
            f"1e-292 count as constant, as if by rounding errors: {names}. Standardise them if need be."
        )
    columns = columns._replace(mean=mean_of_rows, spread=spread)
    stream = None if all_rows is None else all_rows[1](replace(all_rows[0], labels=labels, columns=columns))
    n_rows = (stream or source).n_rows
    if not config.has_batches(n_rows) and (config.batch_size or not is_name(config.learning_rate, ("adaptive",))):
        beginning = f"batch_size={config.batch_size} and learning_rate={config.learning_rate!r} are not followed"
        run.history.add(decision=f"{beginning}: mini-batches need a batch_size below the number of rows, {n_rows}.")
    # Either all classes of a row with counts are held out or none.
    hold_out = HoldOut(groups, config.held_out_split, rows.y, run.random_state, places=places)
    of_classes = classes, class_totals, weights_of_classes(config.class_weight, classes, n_each)
    # Only learning needs a seed; making it takes a fortieth of a fit to few rows.
    seed = 0 if config.optimizer is None else int(seed_of_keys(run.random_state)[0])
    return Fit(config, run, source, *of_classes, record.at(noise), hold_out, columns, stream, prior_mean, seed)


def prior_mean_of(config: FitConfig, record: LikelihoodBound, class_totals: np.ndarray) -> PriorMean:
    """The prior mean that the parameters ask for; ``class_totals`` (C,) are the total weights of the classes."""
    mean = checked_mean(config.mean, record, len(class_totals))
    return PriorMean(mean, base_rates(class_totals) if mean is None else None)


def publish(model: PosteriorClassifier, fit: Fit, result: FitResult, stream_rows: Rows | None = None) -> None:
    """Set the fitted attributes, and warn; ``stream_rows`` are those that a stream's model keeps."""
    if result.messages:
        warn_user("\n".join(result.messages), ConvergenceWarning)
    model._set_columns(fit.columns)
    model.class_weight_ = fit.class_weight
    model.classes_, model.class_count_ = fit.classes, fit.class_totals
    model.n_samples_seen_ = (fit.stream or fit.source).n_rows
    model.warnings_ = result.messages
    site = result.site
    model._set_fit(result.q, fit.record.at(site.parameter), site.prior_mean, result.evidence)
    model.held_out_score_ = None if result.scores is None else (result.scores.mean, result.scores.error)
    model.label_agreement_, model._agreement_log = result.agreement
    # A fit begins anew, so that the drift of an earlier stream goes; ``partial_fit`` sets a new one.
    model.__dict__.pop("drift_", None)
    model._stream_rows = stream_rows
    model.n_iter_ = max(1, result.n_iter)
    model.converged_ = result.is_complete
    model.history_ = fit.run.history.arrays()
