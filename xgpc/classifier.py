"""The scikit-learn estimator."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils import check_random_state

from .approximations.base import Training
from .fitted import PosteriorClassifier
from .inference.correction import bound_gap, correction_terms
from .inference.fitting import PosteriorOptions, fit_posterior_or_keep
from .inference.streamed import from_some
from .learning.queries import Queries
from .learning.stages import more_iterations, no_gain, parameters_at_bounds
from .learning.start import Beginning, Data, Inferred, Learned, start
from .learning.with_neighbours import learn
from .likelihoods import resolve
from .reading import check_streamed, checked_classes, set_columns, streamed, survey
from .rows.executor import Executor
from .rows.source import NONE, ArraySource, RowSource
from .validation import check_optimizer, check_parameters, checked_groups, checked_noise, training_data


class GPClassifier(PosteriorClassifier):
    """Sparse variational Gaussian process classifier.

    A Gaussian process prior on a latent function, or on one for each of several classes, a likelihood, and a normal
    approximation of the posterior at ``m`` inducing points, fitted by natural gradients: no learning rate to choose,
    linear in the number of rows.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel, default=None
        Covariance of the latent function, of scikit-learn's ConstantKernel, RBF, Matern (nu 0.5, 1.5, 2.5, inf),
        RationalQuadratic, DotProduct and WhiteKernel, their sums, products and integer powers; bounds and fixed
        parameters are honoured. None stands for ``ConstantKernel() * RBF()`` with one length scale per feature, started
        at sqrt(d) times the feature's standard deviation (half the difference, if it has two values). White noise is
        each row's own and keeps its prior: it widens the rows' latent variances and lowers the bound, so that a noise
        level that is learned falls. Fix it if it is meant.
    likelihood : str, default="logit"
        Two classes: "logit", "probit", "step" (the sign of the latent value), "svm" (that of the Bayesian support
        vector machine [4]_). Any number: "softmax", "logistic-softmax", "multinomial-logit", "multinomial-probit" and
        "multinomial-step" (the class of the largest latent value, with logistic, normal or no noise). With more than
        two classes "logit" means "softmax".
    bound : {"auto", "exact", "polya-gamma", "taylor", "augmented", "additive-noise"}, default="auto"
        "auto" means the first of those that the likelihood has. "exact" (logit, probit, svm, softmax): the expected log
        likelihood itself, in closed form or, for softmax, by an integral. "polya-gamma": the bound of [1]_ for
        logit, of [5]_ for logistic-softmax. "taylor" (logit): the expansion about the latent mean of [3]_, section 4.2,
        with which ``elbo_`` is an approximation and no bound. "augmented" (svm): the bound of [4]_. "additive-noise":
        those of [6]_ for logit, probit, step, softmax and the multinomial likelihoods.
    n_inducing : int or "auto", default="auto"
        Number m of inducing points, at most the number of distinct rows. "auto" doubles them from 32 to 2048 at most,
        while the bound gains 0.05 nats or more by each added point: judged on a subset of the rows (40 for each point,
        or 10 beyond 256 points; 4000 at least) before anything is learned with the new points. Beyond 256 points,
        kernel parameters alone are learned. ``history_["decision"]`` tells each step.
    n_neighbors : int or "auto", default="auto"
        With k > 0 a prediction also takes what the k nearest training rows, by the learned length scales, know of the
        residual that inducing points leave: for classes that change over short distances ([7]_; bound "exact" of
        "logit", "probit" and, with a shared kernel, "softmax"). The kernel, and a factor of the predictions' variances
        (``local_posterior_.variance_scale``, 1 at most), are then learned by the mean log probability of query rows,
        predicted from the others, if these are 20 or more and better known than by class frequencies; the default
        kernel's RBF gives way to a Matern kernel. The training rows become part of the model and its file. Time: a fit
        makes tens of sweeps of O(n k^3), a prediction takes O(k^3) a row; k is n - 1 at most, usually some tens. 0:
        none. "auto", for 2000 rows or more: 24, if they raise the mean log probability of rows kept apart by more than
        its standard error, and by more than .001 nats; of several classes if rows times classes are a million at most.
        With two classes and ``n_inducing="auto"``, points are added where they gain little, 256 at most.
    query_split : splitter of scikit-learn or None, default=None
        How rows kept apart, and query rows with neighbours, are chosen: as the model will be used. None: at random, or
        by ``groups``; ``TimeSeriesSplit()`` for rows in order of time. Its ``split`` gets zeros (n, 1) as X, class
        numbers (positions in ``classes_``) as y, and ``groups``; once for all rows, of which the last split keeps some
        apart, and once for the others, so that splits of given rows (PredefinedSplit) are an error. One that shuffles
        needs a ``random_state`` of its own for fits to repeat, as elsewhere in scikit-learn.
    inducing_points : {"kmeans", "random", "greedy", "all"} or array of shape (m, d), default="kmeans"
        Where the inducing points start. "greedy": rows of largest variance given those before, under the start kernel.
        "all": no inducing points, but a full Gaussian process with a latent value at each distinct row, in O(n^3) time
        and O(n^2) memory, learned by "profile" in full batches: what inducing points at all rows would give. More
        points ("auto") are rows drawn in proportion to their variance given the points so far.
    optimizer : {"profile", "alternate", "joint", "hybrid", "adam"} or None, default="profile"
        "profile": L-BFGS on the bound maximised over the posterior. "alternate": vi-JJ of [3]_, with the Taylor bound
        vi-Taylor; "joint" and "hybrid": vi-JJ-full and vi-JJ-hybrid, for the Polya-Gamma bound; "adam": that of X-GPC
        [1]_, on mini-batches, if there are any, while the bound rises by more than their noise, then on all rows. None:
        the kernel's parameters and the inducing points stay as given.
    learn_inducing : bool, default=True
        Whether the optimizer also moves the inducing points, those given included; a full Gaussian process has none.
    n_restarts_optimizer : int, default=0
        Further starts of the kernel parameters, drawn log-uniformly within their bounds; the highest bound is kept.
    subset_sizes : "auto", None or increasing integers, default="auto"
        Rows that kernel parameters and inducing points are learned from, stage by stage, in random subsets with the
        classes in proportion. "auto": from 4000, or 40 for each inducing point, fourfold to all rows, 131 072 at most;
        None: all rows at once. The posterior is fitted to all rows in any case.
    share : {"auto", "kernel", "none"}, default="auto"
        Whether the latent functions of several classes share one kernel and its inducing points, or have their own.
        "auto", from three classes and 1000 rows on: first one is learned for all. Ten iterations on some rows, with one
        for all and with one for each, are then compared by up to 4000 others: their own, if these raise the mean log
        probability by over .001 nats and a standard error. Otherwise, and with a kernel or neighbours given,
        mini-batches, another optimizer than "profile" or ``inducing_points="all"``: one. Warm starts keep theirs.
    label_noise : "learn" or float, default="learn"
        Of the bounds "additive-noise" but softmax's: probability delta that a label is another than the likelihood
        says, 0 < delta < 1/2. "learn": the one that gives the highest bound.
    batch_size : int or None, default=None
        Rows of a mini-batch, at most half of all; None, or all rows and more: every iteration passes over all rows.
    learning_rate : "adaptive", float, or (delay, forgetting), default="adaptive"
        Rate of the mini-batch steps: that of Ranganath et al. [2]_, kept above t^-0.6; a constant in (0, 1]; or
        (t + delay)^-forgetting. Also of those between the steps of "adam". The estimate is an average of the iterates.
    max_iter : int, default=200
        Most iterations: of the posterior (passes over the data, or epochs of mini-batches), and of the optimizer in its
        last stage; earlier ones have ten times as many, 50 at most, and rounds with neighbours 15. One of "profile" can
        take 30 passes and more; one of "adam" is an epoch of mini-batches, 100 at least, or 20 steps on all rows.
    tol : float, default=1e-4
        Optimizer: stop when five iterations raise the bound by less than ``tol * max(|bound|, 500)`` nats on average.
        Posterior, full batch: stop when a step raises it by less than ``tol * max(1, |bound| / 1000)`` nats.
        Mini-batch: stop, after two epochs or more, when the relative change of the averaged natural parameters is below
        ``tol``, on average over five iterations. Rounds with neighbours, and their sites, have limits of their own.
    class_weight : dict, "balanced" or None, default=None
        Multiplies the sample weights. "balanced": n / (C n_c) by numbers of rows, whatever their weights, as in SVC.
    warm_start : bool, default=False
        Start from the previous fit's kernel (if it is learned), inducing points, posterior and label noise, whatever
        ``kernel``, ``n_inducing`` and ``inducing_points`` say now. What is then learned is kept if it raises the bound
        of all rows: without neighbours a refit on the same data does not lower it, but for rounding. Between a full
        Gaussian process and inducing points, kernel and sites go over; the points are new. With other features, other
        classes, or another number of latent functions or kernels, a fit begins anew, as ``decision`` then says.
    n_jobs : int or None, default=None
        Threads over blocks of rows; the steps of mini-batches take one. Results do not depend on it, bit for bit.
    random_state : int, RandomState or None, default=None
        Sampling of rows for start values, inducing points and mini-batches.
    verbose : int, default=0
        1 prints a line at the end of each phase of a fit.

    Attributes
    ----------
    classes_ : (C,) array
    n_features_in_ : int
    feature_names_in_ : array of str, if X had names
    share_ : "kernel" or "none", what the latent functions share; "kernel" of a single one
    kernel_ : Kernel, with the learned parameters; a list of one for each class where ``share_`` is "none"
    inducing_points_ : (m, d) array; (C, m, d) where ``share_`` is "none"; of a full process the distinct rows
    label_noise_ : float, delta, where there is one
    posterior_ : SparsePosterior, or FullPosterior with ``inducing_points="all"``
    local_posterior_ : LocalPosterior or None
    n_neighbors_ : int, neighbours that predictions take; 0 without
    query_score_ : (float, float) or None
        Mean log probability, in nats, of rows kept apart, predicted with the neighbours of all the others before they
        are given back, and its standard error, of independent rows (of one row: NaN): of a tenth of the rows, or of
        those that the last split of ``query_split`` asks, and of 4000 at most. Of fewer than ten rows, or of two
        groups, none are kept apart: then of the queries of a round, before it.
    elbo_ : float
        Lower bound of the log evidence of the training data, in nats, all constants included; with neighbours that of
        the sparse posterior at the learned kernel, which knows nothing of them.
    history_ : dict of arrays
        A row for each evaluation of the optimizer (``theta`` as scikit-learn has it), each ``decision``, in words, each
        iteration of the posterior and each round with neighbours. All rows have ``seconds`` since the start and most
        ``elbo``, the bound on the ``n_rows`` rows in use, with ``n_inducing`` points: compare it at the same ``n_rows``
        only. Columns that no row has are missing; NaN where a row has no value, an empty string in ``decision``: all
        decisions are ``[text for text in model.history_.get("decision", ()) if text]``. All columns, and what the rows
        of a round are: ``help("xgpc.inference.history")``.
    n_iter_ : int, iterations of the optimizer in all stages, or of the posterior without one
    converged_ : bool
        Whether optimizer and posterior ended by ``tol``: not by ``max_iter``, nor where the optimizer could not go on.
    jitter_ : float
        Added to the diagonal of the inducing points' covariance matrix, relative to its mean diagonal; 0 of a full
        Gaussian process.

    Notes
    -----
    A pass over n rows costs O(n (m^2 + m d)) time, and memory O(n + m^2) beyond the inputs, plus 8 n m bytes while that
    is below 512 MB; O(n (C m^2 + m d)) and O(C (n + m^2)) for C > 2 classes that share a kernel. Inputs in float32 stay
    in float32. Features of size up to 1e140 are accepted, in ``fit`` and to predict; where a kernel that grows with
    them (DotProduct) takes the latent mean beyond 1e150, an error names the row.

    References
    ----------
    .. [1] Wenzel, Galy-Fajou, Donner, Kloft, Opper. Efficient Gaussian process classification using Polya-Gamma data
       augmentation. AAAI 2019. Equations (10) to (12), corrected signs.
    .. [2] Ranganath, Wang, Blei, Xing. An adaptive learning rate for stochastic variational inference. ICML 2013.
    .. [3] Izmailov, Kropotov. Faster variational inducing input Gaussian process classification. 2016,
       arXiv 1611.06132. Equations (14), (16) and (19), algorithm 1.
    .. [4] Wenzel, Galy-Fajou, Deutsch, Kloft. Bayesian nonlinear support vector machines for big data. ECML 2017.
    .. [5] Galy-Fajou, Wenzel, Donner, Opper. Multi-class Gaussian process classification made conjugate. UAI 2019.
    .. [6] Liu, Ong, Yu, Cai, Shen. Scalable Gaussian process classification with additive noise for various
       likelihoods. 2019, arXiv 1909.06541. Equations (8), (18) and (25).
    .. [7] Gyger, Furrer, Sigrist. Vecchia-inducing-points full-scale approximations for Gaussian processes. 2025,
       arXiv 2507.05064.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from xgpc import GPClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = GPClassifier(n_inducing=32, random_state=0).fit(X, y)
    >>> model.predict_proba(X[:2]).shape
    (2, 2)
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        likelihood: str = "logit",
        bound: str = "auto",
        n_inducing: int | str = "auto",
        n_neighbors: int | str = "auto",
        query_split: Any = None,
        inducing_points: str | ArrayLike = "kmeans",
        optimizer: str | None = "profile",
        learn_inducing: bool = True,
        n_restarts_optimizer: int = 0,
        subset_sizes: str | Sequence[int] | None = "auto",
        share: str = "auto",
        label_noise: str | float = "learn",
        batch_size: int | None = None,
        learning_rate: str | float | tuple[float, float] = "adaptive",
        max_iter: int = 200,
        tol: float = 1e-4,
        class_weight: dict[Any, float] | str | None = None,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.likelihood = likelihood
        self.bound = bound
        self.n_inducing = n_inducing
        self.n_neighbors = n_neighbors
        self.query_split = query_split
        self.inducing_points = inducing_points
        self.optimizer = optimizer
        self.learn_inducing = learn_inducing
        self.n_restarts_optimizer = n_restarts_optimizer
        self.subset_sizes = subset_sizes
        self.share = share
        self.label_noise = label_noise
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.tol = tol
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: Any = None, groups: Any = None) -> Self:
        """Fit kernel, inducing points and posterior.

        Parameters
        ----------
        X : (n, d) array, float32 or float64 as given, other numbers converted to float64
            A memory map is read where it is; with rows of weight 0, and for neighbours, rows are copied.
        y : (n,) array of labels
        sample_weight : (n,) array, default=None
            Not negative. A row of weight w counts as w rows.
        groups : (n,) array, default=None
            Rows of a group are never predicted from each other where rows kept apart decide, or while a kernel with
            neighbours is learned, unless ``query_split`` does so. None may be missing.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For bad data or parameters. The estimator is then, as after an interrupt, what it was before.

        Warns
        -----
        ConvergenceWarning
            If ``max_iter`` was reached, kernel parameters have run to their bounds, or query rows tell of no kernel.
        """
        return self._fitted(X, y, sample_weight, groups=groups)

    def _validate(self, X: Any, y: Any, sample_weight: Any, groups: Any = None) -> Data:
        check_parameters(self)
        random_state = check_random_state(self.random_state)
        X, codes, classes, weight = training_data(self, X, y, sample_weight)
        groups = None if groups is None else checked_groups(groups, y, sample_weight)
        return self._data(X, codes, classes, NONE if weight is None else weight, groups, random_state)

    def _data(
        self,
        X: np.ndarray,
        codes: np.ndarray,
        classes: np.ndarray,
        weight: np.ndarray,
        groups: np.ndarray | None,
        random_state: np.random.RandomState,
        stream: Callable[[np.ndarray], RowSource] | None = None,
    ) -> Data:
        """Checked rows with class numbers (n,); ``stream`` makes all rows of what the sites take for each class."""
        likelihood, bound = resolve(self.likelihood, self.bound, len(classes))
        check_optimizer(self.optimizer, likelihood.name, bound)
        noise = checked_noise(self.label_noise, likelihood.name, bound)
        labels = np.arange(float(len(classes))) if likelihood.multi_class else np.array([-1.0, 1.0])
        source = ArraySource(X, labels[codes], weight)
        queries = Queries(len(codes), groups, self.query_split, codes, random_state)
        everything = None if stream is None else stream(labels)
        return Data(source, classes, likelihood, bound, noise, random_state, queries, stream=everything)

    def _validate_batches(self, source: Any, classes: ArrayLike | None) -> Data:
        check_parameters(self)
        random_state = check_random_state(self.random_state)
        given = None if classes is None else checked_classes(classes)
        found = survey(source, given, random_state, lambda: check_streamed(self))
        X, codes, weight = found.sample
        if found.is_all:
            data = self._validate(X, found.classes[codes], weight if found.has_weights else None)
            set_columns(self, found.columns)
            return data
        factors = found.class_factors(self.class_weight)
        self._report(f"{found.n_rows} rows read, {len(X)} of them to learn from")
        set_columns(self, found.columns)
        if factors is not None:
            weight = factors[codes] * weight
        elif not found.has_weights:
            weight = NONE
        return self._data(
            X, codes, found.classes, weight, None, random_state, lambda labels: streamed(source, found, factors, labels)
        )

    def fit_batches(self, source: Any, classes: ArrayLike | None = None) -> Self:
        """Fit to training rows that need not fit into memory, given in batches that are read several times.

        Of no more than 131 072 rows the fit is that of ``fit``, bit for bit. Of more, kernel and inducing points, and
        how many of these, are learned from so many rows, drawn in the first reading with the classes in proportion;
        the posterior is that of all rows, by a reading for each step: three to six by the exact bounds of two classes,
        some ten to thirty of several, seventy by the Polya-Gamma bound. Nothing depends on the sizes of the batches.
        While a batch is in use a thread reads the next.

        Parameters
        ----------
        source : function, iterable or sequence
            A function without arguments that returns an iterator of batches, or an iterable, not an iterator, of them,
            such as a list; or ``xgpc.rows.from_parquet``, ``from_arrow`` or ``from_npy``. Batches are tuples (X, y) or
            (X, y, sample_weight), as for ``fit``, of any number of rows.
        classes : (C,) array, default=None
            All labels that there are: another one is an error as soon as it is read.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For bad parameters, rows or sources; notes of the error name the batch, counted from 0. Of more than 131 072
            rows also for neighbours (``n_neighbors`` above 0), which would make all rows part of the model,
            ``inducing_points="all"``, and ``batch_size`` unless ``optimizer="adam"``. What the source itself raises is
            passed on. The estimator is then, as after an interrupt, what it was before.

        Warns
        -----
        ConvergenceWarning
            As ``fit`` does.

        Notes
        -----
        Memory beyond the learning's is for two batches and the rows to learn from; it does not grow with the number of
        rows.
        """
        return self._fitted(source, classes, validate=GPClassifier._validate_batches)

    def _start(self, data: Data, executor: Executor) -> Beginning:
        training = Training(data.source, executor, data.likelihood.n_latents(len(data.classes)))
        return start(self, data, training)

    def _learn(self, data: Data, beginning: Beginning) -> Learned:
        """Hyperparameters and inducing points, and whether more of these pay."""
        learned = learn(self, data, beginning)
        if learned.n_iter == 0:
            return learned
        kernels = ", ".join(str(group.spec.kernel) for group in learned.prior.groups)
        self._report(f"hyperparameters: {kernels} after {learned.n_iter} iterations")
        return learned

    def _infer(self, data: Data, learned: Learned) -> Inferred:
        """The posterior of all rows, and what corrects it."""
        beginning, history = learned.beginning, data.history
        training, prior = beginning.training, learned.prior
        history.context.update(n_rows=len(training), n_inducing=prior.n_inducing)
        # What was learned must beat the previous fit; more points than it had are no choice between the two.
        kept = None
        if self.optimizer is not None and not beginning.grow_to and learned.local is None and beginning.previous:
            kept = beginning.previous, beginning.prior
        # Adam has ended on all rows.
        batch_size = None if self.optimizer == "adam" else self.batch_size
        options = PosteriorOptions(
            batch_size, self.learning_rate, float(self.tol), int(self.max_iter), data.random_state, history
        )
        # Mini-batches pass over all rows a few times in all: nothing to cache for.
        training = training if options.batch(len(training)) is None else training.uncached()
        q, site = learned.q, learned.site
        if data.stream is not None:
            training, q, site = from_some(training, data.stream, q, prior, site, options)
            history.context.update(n_rows=len(training))
            decision = f"learned from {data.source.n_rows} of {len(training)} rows; the posterior is of all"
            history.add(decision=decision)
        point, n_steps, converged = fit_posterior_or_keep(training, q, prior, kept, site, options)
        if not np.isfinite(point.elbo):
            raise ValueError(
                f"The bound is {point.elbo}: scale the features and the sample weights to moderate values."
            )
        self._report(f"posterior: bound {point.elbo:.2f} after {n_steps} iterations")
        terms = correction_terms(training, point) if data.likelihood.bounds[data.bound].has_correction else None
        unfinished = list(learned.problems)
        if not converged:
            problem = f"max_iter={self.max_iter} was reached before tol={self.tol:g} by the posterior"
            unfinished.append(more_iterations(problem))
        n_iter, notes, gap = learned.n_iter or n_steps, learned.notes, bound_gap(training, point)
        return Inferred(point, n_iter, unfinished, notes, terms, gap, learned.local, learned.scores)

    def _publish(self, data: Data, inferred: Inferred) -> None:
        point, elbo = inferred.point, inferred.point.elbo
        unfinished, coin = inferred.unfinished, -np.log(len(data.classes)) * data.total_weight
        messages = [*unfinished, *inferred.notes]
        if self.optimizer is not None and not inferred.notes:
            messages += parameters_at_bounds([group.spec for group in point.q.prior.groups])
            if self.kernel is not None and inferred.local is None:
                messages += no_gain(elbo, coin)
        if messages:
            warnings.warn("\n".join(messages), ConvergenceWarning, stacklevel=4)
        self.classes_ = data.classes
        name, delta = data.likelihood.name, point.site.parameter
        self._set_fit(point.q, name, data.bound, delta, inferred.correction, inferred.bound_gap, inferred.local)
        self.query_score_ = None if inferred.scores is None else (inferred.scores.mean, inferred.scores.error)
        self.elbo_ = elbo
        self.n_iter_ = max(1, inferred.n_iter)
        self.converged_ = not unfinished
        self.history_ = data.history.arrays()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags
