"""The steps of a fit of ``GPClassifier``: to rows in memory, to batches, or to rows that follow earlier ones."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import Kernel

from .approximations.base import Training
from .approximations.conditioned import ConditionedPosterior, ConditionedPrior
from .approximations.sparse import SparsePosterior
from .checkpoint import Checkpoint, fingerprint
from .config import FitConfig, check_batches, check_parameters, check_streamed, checked_mean, checked_noise
from .data.checks import check_same_classes, checked_classes, checked_groups, site_labels
from .data.draw import seed_of_keys
from .data.encoding import Encoding
from .data.far_values import Limit
from .data.frames import index_columns, note_of_index
from .data.partitions import Partitions, survey_partitions
from .data.survey import survey
from .data.training import with_limits
from .fitted import PosteriorClassifier
from .inference.online import posterior_before, restated_sums
from .inference.prior_mean import PriorMean, base_rates
from .inference.run import FitState, Run
from .learning import pipeline, stages
from .learning.hold_out import HoldOut
from .learning.inducing import MAX_INDUCING, mean_and_spread, with_more_points
from .learning.messages import no_gain, parameters_at_bounds
from .learning.schemes import check_optimizer
from .learning.start import Data, FitResult, HyperparameterFit, InitialState, PreviousFit
from .likelihoods import LIKELIHOODS, START_NOISE, resolve
from .rows.batches import Rows
from .rows.blas import single_threaded_blas
from .rows.columnar import ArrowRows
from .rows.deadline import Deadline, stopped_by_interrupts
from .rows.executor import Executor, Threads
from .rows.source import RowSource, source_of
from .status import Status, warn_user


def _class_totals(codes: np.ndarray, weight: np.ndarray, n_classes: int) -> np.ndarray:
    """Total weight (C,) of each class; an empty ``weight`` (0,) counts every row once."""
    return np.bincount(codes, weight if len(weight) else None, n_classes).astype(np.float64)


class FittedInSteps(PosteriorClassifier):
    """The steps of a fit of ``GPClassifier``, given its parameters."""

    kernel: Kernel | None
    likelihood: str
    bound: str
    query_split: Any
    optimizer: str | None
    label_noise: str | float
    mean: Any
    batch_size: int | None
    learning_rate: str | float | tuple[float, float]
    max_iter: int
    tol: float
    feature_transform: str | None
    class_weight: dict[Any, float] | str | None
    max_time: float | None
    keep_on_interrupt: bool
    checkpoint: str | os.PathLike[str] | None
    callback: Callable[[FitState], Any] | None
    random_state: Any
    verbose: int

    # Copies and clones share these parameters instead of copying them.
    _shared: tuple[str, ...] = ("callback",)

    def __sklearn_clone__(self) -> Self:
        # A callback may hold objects that cannot be copied, so the clone keeps the same callback.
        bare = copy.copy(self)
        for name in self._shared:
            setattr(bare, name, None)
        other: Self = super(FittedInSteps, bare).__sklearn_clone__()
        for name in self._shared:
            setattr(other, name, getattr(self, name))
        return other

    def __copy__(self) -> Self:
        other = type(self).__new__(type(self))
        other.__dict__ = dict(vars(self))
        return other

    def __getstate__(self) -> Any:
        # Many callbacks cannot be pickled, and a fitted model no longer needs its callback.
        state = super().__getstate__()
        return {**state, "callback": None} if hasattr(self, "posterior_") else state

    def _check_parameters(self) -> None:
        check_parameters(self)

    def _begun(self) -> Run:
        return Run(self._deadline(), Status() if self.verbose else None, self.callback, self.random_state)

    def _validate(
        self,
        run: Run,
        X: Any,
        y: Any,
        sample_weight: Any,
        groups: Any = None,
        classes: Any = None,
        note: str = "",
        config: FitConfig | None = None,
    ) -> Data:
        """Check the rows in memory; a ``config`` replaces the estimator's parameters."""
        for text in filter(None, (note, note_of_index(index_columns(X)))):
            run.history.add(decision=text)
        X, codes, classes, weight, encoding, _ = self._training_data(X, y, sample_weight, classes)
        groups = None if groups is None else checked_groups(groups, len(y), sample_weight)
        rows = Rows(X, codes, weight)
        return self._data(run, config or FitConfig.of(self), rows, classes, groups, encoding=encoding)

    def _data(
        self,
        run: Run,
        config: FitConfig,
        rows: Rows,
        classes: np.ndarray,
        groups: np.ndarray | None,
        stream: Callable[[np.ndarray, Sequence[Limit]], RowSource] | None = None,
        encoding: Encoding | None = None,
        class_totals: np.ndarray | None = None,
    ) -> Data:
        """Collect checked rows, with class numbers as y, and the model's parts in a ``Data``.

        ``stream`` builds the source of all rows from the site labels of the classes and the limits of the features; it
        is given when ``rows`` are only a sample. ``class_totals`` (C,) are then the total weights of the classes.
        """
        likelihood, bound = resolve(config.likelihood, config.bound, len(classes))
        check_optimizer(config.optimizer, likelihood.name, bound)
        noise = checked_noise(config.label_noise, likelihood.name, bound)
        if class_totals is None:
            class_totals = _class_totals(rows.y, rows.weight, len(classes))
        mean = checked_mean(config.mean, likelihood.name, bound, len(classes))
        labels = site_labels(np.arange(len(classes)), likelihood.n_latents(len(classes)))
        X = rows.X
        if self.feature_transform is not None:
            names = self._columns._replace(encoding=encoding).described
            X, encoding, told = with_limits(rows, encoding, names)
            if told:
                run.history.add(decision=told)
        source = source_of(X, labels[rows.y], rows.weight)
        self.feature_mean_, self.feature_spread_ = mean_and_spread(source)
        hold_out = HoldOut(len(rows.y), groups, config.query_split, rows.y, run.random_state)
        everything = None if stream is None else stream(labels, () if encoding is None else encoding.limits)
        data = Data(
            config,
            source,
            classes,
            class_totals,
            likelihood,
            bound,
            noise,
            hold_out,
            stream=everything,
            encoding=encoding,
            prior_mean=PriorMean(mean, base_rates(class_totals) if mean is None else None),
            seed=int(seed_of_keys(run.random_state)[0]),
        )
        if config.checkpoint is not None:
            run.progress.store = Checkpoint(config.checkpoint, fingerprint(self, data))
        return data

    def _validate_batches(self, run: Run, source: Any, classes: ArrayLike | None) -> Data:
        """Check rows that may not fit into memory: the first reading counts them and draws a sample to learn from."""
        if isinstance(source, ArrowRows) and source.index:
            run.history.add(decision=note_of_index(source.index))
        check_batches(self)
        given, config = None if classes is None else checked_classes(classes), FitConfig.of(self)
        run.history.tell(stage="reading")

        def progress(n_rows: int) -> None:
            if n_rows > stages.LAST_ROWS:
                check_streamed(config, stages.LAST_ROWS)
            run.history.tell(n_rows=n_rows)

        read_first = survey_partitions if isinstance(source, Partitions) else survey
        found, sample, stream = read_first(
            source, given, self.class_weight, stages.LAST_ROWS, run.random_state, progress
        )
        self._set_columns(found.preparation.columns)
        if found.n_rows <= stages.LAST_ROWS:
            return self._data(run, config, sample, found.classes, None)
        n_sample = len(sample.X)
        run.history.tell(decision=f"{found.n_rows} rows were read; kernels are learned from a sample of {n_sample}.")
        return self._data(run, config, sample, found.classes, None, stream, class_totals=found.totals)

    def _deadline(self) -> Deadline | None:
        """The deadline, counted from now; None if nothing can end the fit early."""
        if self.max_time is None and not self.keep_on_interrupt and self.callback is None:
            return None
        return Deadline(math.inf if self.max_time is None else float(self.max_time))

    def _interrupts(self, run: Run) -> AbstractContextManager[None]:
        if not self.keep_on_interrupt or run.deadline is None:
            return nullcontext()
        return stopped_by_interrupts(run.deadline)

    def _start(self, data: Data, run: Run, executor: Executor) -> InitialState:
        previous = None
        if data.config.warm_start and hasattr(self, "posterior_"):
            noise = getattr(self, "label_noise_", START_NOISE)
            previous = PreviousFit(self.posterior_, self.classes_, self.encoding_, noise)
        return pipeline.start(data, run, executor, previous)

    def _learn(self, data: Data, run: Run, initial: InitialState) -> HyperparameterFit:
        return pipeline.learn(data, run, initial)

    def _infer(self, data: Data, run: Run, learned: HyperparameterFit) -> FitResult:
        return pipeline.infer(data, run, learned)

    def _publish(self, data: Data, run: Run, inferred: FitResult, is_first: bool = True) -> None:
        """Set the fitted attributes and warn; ``is_first`` is False if ``partial_fit`` continues from earlier rows."""
        q, evidence = inferred.q, inferred.evidence
        unfinished, uniform_log_likelihood = inferred.unfinished, -np.log(len(data.classes)) * data.total_weight
        messages = [*unfinished, *inferred.notes]
        is_learned = data.config.optimizer is not None and not data.is_of_one_class
        record = data.likelihood.bounds[data.bound]
        # The support vector machine's likelihood is not a probability, so its bound is no evidence.
        is_evidence = record.is_bound and record.likelihood != "svm"
        if evidence and is_first and is_evidence and is_learned and not (inferred.notes or run.progress.skipped):
            messages += no_gain(evidence.elbo, uniform_log_likelihood, data.base_rate_log_score)
        # Parameters at the bounds of the default kernel are not reported: the user did not choose these bounds.
        if is_learned and data.config.kernel is not None and not inferred.notes:
            specs, labels = [group.spec for group in q.prior.groups], [repr(label) for label in data.classes.tolist()]
            names, spread = self._columns._replace(encoding=data.encoding).described, self.feature_spread_
            messages += parameters_at_bounds(specs, labels, names, spread)
        if messages:
            warn_user("\n".join(messages), ConvergenceWarning)
        self.classes_, self.encoding_ = data.classes, data.encoding
        self.class_count_, self.n_samples_seen_ = data.class_totals, (data.stream or data.source).n_rows
        self.warnings_ = messages
        name, delta, mean = data.likelihood.name, inferred.site.parameter, inferred.site.prior_mean
        self._set_fit(q, name, data.bound, delta, mean, evidence)
        self._distinct_labels = inferred.labels
        self.query_score_ = None if inferred.scores is None else (inferred.scores.mean, inferred.scores.error)
        self.n_iter_ = max(1, inferred.n_iter)
        self.converged_ = not unfinished
        self.history_ = run.history.arrays()
        store, latest = run.progress.store, run.progress.latest
        if store is None:
            return
        if not run.progress.skipped:
            store.remove()
        elif latest is not None:
            store.offer(latest, at_once=True)

    def _continued(
        self, config: FitConfig, X: Any, y: Any, sample_weight: Any, classes: Any, factor: float, n_more: int
    ) -> None:
        """Continue ``partial_fit`` with a further batch: kernel, inducing points and previous posterior are given."""
        q = self.posterior_
        assert isinstance(q, SparsePosterior)
        if classes is not None:
            check_same_classes(classes, self.classes_)
        (name, bound), noise = self._resolved, getattr(self, "label_noise_", None)
        with single_threaded_blas():
            with self._begun() as run:
                run.history.tell(stage="checking")
                rows, codes, _, weight, *_ = self._training_data(X, y, sample_weight, self.classes_, is_first=False)
                source = source_of(rows, site_labels(codes, q.n_latents), weight)
                hold_out = HoldOut(len(codes), None, None, codes, run.random_state)
                likelihood = LIKELIHOODS[name]
                totals = _class_totals(codes, source.weight, len(self.classes_))
                given = config, source, self.classes_, totals, likelihood, bound, noise, hold_out
                mean = PriorMean(np.atleast_1d(self.mean_))
                data = Data(*given, encoding=self.encoding_, prior_mean=mean)
                m = q.prior.n_inducing
                prior = with_more_points(q.prior, rows, min(n_more, MAX_INDUCING - m), run.random_state, n_before=m)
                with Threads(self.n_jobs) as executor, self._interrupts(run):
                    training = Training(data.source, run.watching(executor), q.n_latents)
                    site = likelihood.site(bound, len(self.classes_), noise)
                    before = ConditionedPrior(posterior_before(q, prior, factor))
                    learned = HyperparameterFit(InitialState(training, before, None, 0, site), None, before, site)
                    # Take a step even if it gains less than tol: the gains of many batches add up.
                    inferred = pipeline.infer(data, run, learned, leaves_prior=True)
            assert isinstance(inferred.q, ConditionedPosterior)
            assert self._evidence is not None
            assert inferred.evidence is not None
            evidence, before_sums = inferred.evidence, self._evidence.correction
            if before_sums is not None and evidence.correction is not None:
                sums = restated_sums(before_sums, q.prior, prior)
                added = evidence.correction
                correction = sums[0] * factor + added[0], sums[1] * factor + added[1]
                evidence = evidence._replace(correction=correction)
            posterior = inferred.q.under_first_prior()
            counts, n_seen = self.class_count_, self.n_samples_seen_
            self._publish(data, run, replace(inferred, q=posterior, evidence=evidence), is_first=False)
            self.class_count_, self.n_samples_seen_ = factor * counts + self.class_count_, n_seen + self.n_samples_seen_
