"""The scikit-learn estimator."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

from numpy.typing import ArrayLike
from sklearn.gaussian_process.kernels import Kernel

from .config import FitConfig, check_parameters, check_stream
from .inference.run import FitState
from .names import (
    BoundName,
    ClassWeight,
    LearningRate,
    LikelihoodName,
    OptimizerName,
    Points,
    PointsName,
    PrecisionName,
    ShareName,
)
from .partitions import OverPartitions
from .steps import FittedInSteps


class GPClassifier(FittedInSteps):
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
        at sqrt(d / 2) times the feature's standard deviation (half the difference, if it has two values). With
        neighbours a Matern kernel takes its place where that predicts better. White noise is each row's own and keeps
        its prior, so that a noise level that is learned falls.
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
        Number m of inducing points, at most the number of distinct rows. "auto" starts with 32, or 64 of fewer than
        2000 rows, and doubles them to 2048 at most, while the bound of some rows gains 0.05 nats or more by each added
        point. Beyond 256 points, kernel parameters alone are learned. Of several classes, rows times classes times
        points are 2.5e7 at most.
    n_neighbors : int or "auto", default="auto"
        With k > 0 a prediction also takes what the k nearest training rows, by the learned length scales, know of the
        residual that inducing points leave: for classes that change over short distances ([7]_; bound "exact" of
        "logit", "probit" and, with a shared kernel, "softmax"). The kernel is then learned by the log probability of
        rows predicted from others, and the model holds the training rows. A fit makes tens of sweeps of O(n k^3), a
        prediction takes O(k^3) a row; k is at most the number of distinct rows, and usually some tens. 0: none. "auto",
        for 2000 rows or more: 24, if they raise the mean log probability of held-out rows by more than its standard
        error and .002 nats; of several classes if rows times classes are a million at most.
    query_split : splitter of scikit-learn or None, default=None
        How held-out rows, and query rows with neighbours, are chosen: as the model will be used. None: at random, or
        by ``groups``; ``TimeSeriesSplit()`` for rows in order of time. Its ``split`` gets zeros (n, 1) as X, class
        numbers as y, and ``groups``: once for all rows, and once for those that it did not hold out. One that shuffles
        needs a ``random_state`` of its own for fits to repeat.
    inducing_points : {"kmeans", "random", "greedy", "all"} or array of shape (m, d), default="kmeans"
        Where the inducing points start. "greedy": rows of largest variance given those before, under the start kernel.
        "all": no inducing points, but a full Gaussian process with a latent value at each distinct row, in O(n^3) time
        and O(n^2) memory, learned by "profile" in full batches: what inducing points at all rows would give. More
        points ("auto") are rows drawn in proportion to their variance given the points so far.
    optimizer : {"profile", "alternate", "joint", "hybrid", "adam", "stochastic"} or None, default="profile"
        "profile": L-BFGS on the bound maximised over the posterior. "alternate": vi-JJ of [3]_, with the Taylor bound
        vi-Taylor; "joint" and "hybrid": vi-JJ-full and vi-JJ-hybrid, for the Polya-Gamma bound. "stochastic": X-GPC's
        way [1]_, a step of Adam after each natural-gradient step on a mini-batch, or on all rows; averaged over steps.
        "adam": "stochastic", then "profile" from there. None: kernel and inducing points stay as given.
    learn_inducing : bool, default=True
        Whether the optimizer also moves the inducing points, those given included; a full Gaussian process has none.
    n_restarts_optimizer : int, default=0
        Further starts of the kernel parameters, drawn within their bounds; the highest bound with the log prior counts.
    length_scale_prior : "auto", float or None, default="auto"
        Of kernels with a length scale for each feature: standard deviation of their logarithms, in units of the
        features' spreads, about their mean. It is that of a normal prior, whose logarithm every optimizer adds to the
        bound, as length scales that are free overfit few rows. "auto": 1 with ``kernel=None``, no prior with a kernel
        that is given. With ``kernel=None`` the mean has a weak prior, too, about where it starts. None: no prior.
    subset_sizes : "auto", None or increasing integers, default="auto"
        Rows that kernel parameters and inducing points are learned from, stage by stage, in random subsets with the
        classes in proportion. "auto": from 4000, or 40 for each inducing point, fourfold to all rows, 131 072 at most;
        None: all rows at once. The posterior is fitted to all rows in any case.
    share : {"auto", "kernel", "none"}, default="auto"
        Whether the latent functions of several classes share one kernel and its inducing points, or have their own.
        "auto", from three classes and 1000 rows on: their own, if these raise the mean log probability of up to 4000
        held-out rows by over .002 nats and a standard error; one with a kernel or neighbours given, mini-batches,
        another optimizer than "profile" or ``inducing_points="all"``. Warm starts keep theirs.
    label_noise : "learn" or float, default="learn"
        Of the bounds "additive-noise" but softmax's: probability delta that a label is another than the likelihood
        says, 0 < delta < 1/2 if it is given. "learn": the one that gives the highest bound, below that of guessing,
        1 - 1/C with C classes.
    mean : float, sequence of C floats or "base-rate", default=0.0
        What the latent function is before any row is seen, and far away from all rows; of several classes, in the order
        of ``classes_``, a number for each. "base-rate": the value, in ``mean_``, at which the weighted frequencies of
        the training rows' classes are predicted there (half a row more of each, if one has none); not with label noise.
    batch_size : int or None, default=None
        Rows of a mini-batch, at most half of all; None, or all rows and more: every iteration passes over all rows.
    learning_rate : "adaptive", float, or (delay, forgetting), default="adaptive"
        Rate of the posterior's steps on mini-batches, with learning and without: that of Ranganath et al. [2]_, kept
        above t^-0.6; a constant in (0, 1]; or (t + delay)^-forgetting. The estimate is an average of the iterates.
    max_iter : int, default=200
        Most iterations: of the posterior (passes over the data, or epochs of mini-batches), and of the optimizer in its
        last stage. One of "profile" can take 30 passes and more; one of "stochastic" and "adam" is an epoch, of 100 to
        1000 mini-batches, or 20 steps on all rows. Rounds with neighbours have 15.
    tol : float, default=1e-4
        Optimizer: stop when five iterations raise the bound of n rows by less than ``tol * max(|bound|, 500, n / 20)``
        nats on average. Posterior, full batch: when a step raises it by less than ``tol * max(1, |bound| / 1000)``
        nats, a hundred times that after "stochastic". Mini-batch: when the relative change of the averaged natural
        parameters, on average over five steps, is below ``tol``, after two epochs or more; of "stochastic" below
        ``tol * max(1, 1e4 / n)**0.5 * max(1, b / 100)`` with b rows in a step. Rounds with neighbours have their own.
    precision : {"double", "mixed"}, default="double"
        "mixed" keeps whitened rows in single precision, and so are their products with the posterior's factors and the
        sums of outer products of a few hundred rows; all else is double. Kept rows take half the memory; an iteration
        takes half the time or less, learning half to all of it. Latent values have an error relative to the kernel's
        standard deviation: on 17 data sets probabilities moved by some 1e-5 at most with variances of some hundreds, by
        1e-4 at 4000 and by .01 at 1e5. Full processes, steps on mini-batches and sites with neighbours are always
        double.
    class_weight : dict, "balanced" or None, default=None
        Multiplies the sample weights. "balanced": n / (C n_c) by numbers of rows, whatever their weights, as in SVC.
    categorical_features : "from_dtype", None, or list, default="from_dtype"
        Columns whose values are levels, any two of which are at a distance of one before length scales, of which each
        level has its own if ``kernel`` is None. "from_dtype": columns of data frames (pandas, polars) and tables
        (Arrow) that are text or of a type for categories; of arrays none. None: none. A list, for arrays too: names of
        the columns, positions, or True and False for each. A column has 255 levels at most; missing values are a level,
        and levels that the training rows did not have are as different from all others. See ``encoding_``.
    feature_transform : "auto" or None, default="auto"
        "auto": values of a feature that are far from all others, such as -9999 for what is missing, count as missing in
        training rows, rows to predict, and inducing points that are given: a linear regression on the other features
        predicts them; of fewer than four features, or a thousand, a limit near the others stands for them. They lie
        beyond a gap five times as wide as the range of all nearer values; other values stay, heavy tails included, and
        so do sparse rows and memory maps. See ``encoding_.limits``. None: no value is changed.
    warm_start : bool, default=False
        Start from the previous fit's kernel (if it is learned), inducing points, posterior and label noise, whatever
        ``kernel``, ``n_inducing`` and ``inducing_points`` say now. What is then learned is kept if it raises the bound
        of all rows with the log prior. Between a full Gaussian process and inducing points, kernel and sites go over.
        With other features, classes, or numbers of latent functions or kernels a fit begins anew, and says so.
    max_time : float or None, default=None
        Seconds after which a fit is to end, by a tenth or one pass over the data more at most: with the best that was
        learned by then, and the posterior of all rows, for which time is kept back. A ConvergenceWarning and
        ``decisions_`` say what there was no time for. Neighbours and more inducing points are left out where
        they could not end in time. Choosing hundreds of points by "kmeans", before learning, is not cut short.
    keep_on_interrupt : bool, default=False
        With True the first KeyboardInterrupt (SIGINT) ends the fit as if ``max_time`` were over, a second one is
        raised and leaves the estimator as it was. Of fits in the main thread: signals reach no other.
    checkpoint : path or None, default=None
        File for what is learned, written twice a minute at most, and removed once a fit has ended by itself. A fit with
        the same data and parameters that was killed, or out of time, goes on from there to the same optimum within
        ``tol``; rounds with neighbours begin anew. With subsets of rows ``random_state`` must be an integer for that.
    callback : function or None, default=None
        Called in the calling thread with an ``xgpc.inference.run.FitState``: as a fit begins, after each pass over
        rows, at each row of ``history_``, and at the end. If it returns True the fit ends as if ``max_time`` were over.
        What it raises is passed on, and leaves the estimator as it was. Pickles of fitted models have None.
    n_jobs : int or None, default=None
        Threads over blocks of rows; the steps of mini-batches take one. Results do not depend on it, bit for bit.
    random_state : int, RandomState or None, default=None
        Sampling of rows for start values, inducing points and mini-batches.
    verbose : int, default=0
        1 tells how a fit goes: to the logger "xgpc" where it is shown at level INFO, or else on standard error.

    Attributes
    ----------
    classes_ : (C,) array
    n_features_in_, n_samples_seen_ : int, features; and rows of positive weight, by all calls of ``partial_fit``
    feature_names_in_ : array of str, if X had names
    feature_mean_, feature_spread_ : (d,) arrays
        Means and standard deviations of the training rows' features, of a table as they are encoded.
    feature_importances_ : (d,) array, relevance of the features by kernels with a length scale for each
    share_ : "kernel" or "none", what the latent functions share; "kernel" of a single one
    kernel_ : Kernel, with the learned parameters; a list of one for each class where ``share_`` is "none"
    encoding_ : Encoding or None
        How tables with levels or missing numbers become matrices, and what stands for values beyond ``limits``:
        ``encode(X)`` does it. Of tables ``matrix_names`` names the columns of these, which have a length scale each by
        default, and ``length_scale_names`` what those of a kernel with one for each column of the table belong to.
    inducing_points_ : (m, d) array; (C, m, d) where ``share_`` is "none"; of a full process the distinct rows
    label_noise_ : float, delta, where there is one
    mean_ : float, or (C,) array of C latent functions, their mean under the prior
    posterior_ : SparsePosterior; FullPosterior with ``inducing_points="all"``; LocalPosterior with neighbours
    n_neighbors_ : int, neighbours that predictions take; 0 without
    query_score_ : (float, float) or None
        Mean log probability, in nats, of held-out rows, predicted with the neighbours of all the others before they
        are given back, and its standard error, of independent rows (of one row: NaN): of a tenth of the rows, or of
        those that the last split of ``query_split`` asks, and of 4000 at most. Of fewer than ten rows, or of two
        groups, none are held out: then of the queries of a round, before it.
    elbo_ : float
        Lower bound of the log evidence of the training data, in nats, all constants included, without the length
        scales' log prior (``history_["log_prior"]``), which is climbed with it; of the last batch by ``partial_fit``.
        With neighbours it is that of the sparse posterior at the learned kernel, which knows nothing of them: it is
        found when it is first asked for, and an AttributeError of a loaded model that was saved before that. Also
        ``log_marginal_likelihood_value_``, as scikit-learn has it.
    history_ : dict of arrays
        A row for each evaluation of the optimizer (``theta`` as scikit-learn has it), each ``decision``, each
        iteration of the posterior and each round with neighbours. All rows have ``seconds`` since the start and most
        ``elbo``, the bound on the ``n_rows`` rows in use, with ``n_inducing`` points: compare it at the same ``n_rows``
        only. Columns that no row has are missing; NaN where a row has no value, an empty string in ``decision``. All
        columns, and what the rows of a round are: ``help("xgpc.inference.history")``.
    decisions_ : list of str
        What the fit decided and why, a sentence each, such as how many inducing points and neighbours it has.
    warnings_ : list of str
        What the fit's ConvergenceWarning said.
    class_count_ : (C,) array, sums of the weights of each class's rows, or their numbers; of all batches so far
    n_iter_ : int, iterations of the optimizer in all stages, or of the posterior without one
    converged_ : bool
        Whether optimizer and posterior ended by ``tol``: not by ``max_iter``, ``max_time`` or an interrupt, nor where
        the optimizer could not go on.
    jitter_ : float
        Added to the diagonal of the inducing points' covariance matrix, relative to its mean diagonal; 0 of a full
        Gaussian process.

    Notes
    -----
    A pass over n rows costs O(n (m^2 + m d)) time, and memory O(n + m^2) beyond the inputs, plus 8 n m bytes (4 with
    ``precision="mixed"``) while that is below 512 MB; O(n (C m^2 + m d)) and C (80 n + 200 m^2) bytes for C > 2 classes
    that share a kernel, C (80 n + 300 m^2) with their own; beyond 4 GB there is a warning. Inputs in float32 stay in
    float32. Features of size up to 1e140 are accepted, in ``fit`` and to predict; where a kernel that grows with them
    (DotProduct) takes the latent mean beyond 1e150, an error names the row.

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
    .. [8] Broderick, Boyd, Wibisono, Wilson, Jordan. Streaming variational Bayes. NIPS 2013. Equation (4).

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
        likelihood: LikelihoodName = "logit",
        bound: BoundName = "auto",
        n_inducing: int | Literal["auto"] = "auto",
        n_neighbors: int | Literal["auto"] = "auto",
        query_split: Any = None,
        inducing_points: PointsName | Points = "kmeans",
        optimizer: OptimizerName | None = "profile",
        learn_inducing: bool = True,
        n_restarts_optimizer: int = 0,
        length_scale_prior: Literal["auto"] | float | None = "auto",
        subset_sizes: Literal["auto"] | Sequence[int] | None = "auto",
        share: ShareName = "auto",
        label_noise: Literal["learn"] | float = "learn",
        mean: float | Sequence[float] | Literal["base-rate"] = 0.0,
        batch_size: int | None = None,
        learning_rate: LearningRate = "adaptive",
        max_iter: int = 200,
        tol: float = 1e-4,
        precision: PrecisionName = "double",
        class_weight: ClassWeight | None = None,
        categorical_features: Literal["from_dtype"] | Sequence[Any] | None = "from_dtype",
        feature_transform: Literal["auto"] | None = "auto",
        warm_start: bool = False,
        max_time: float | None = None,
        keep_on_interrupt: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        callback: Callable[[FitState], Any] | None = None,
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
        self.length_scale_prior = length_scale_prior
        self.subset_sizes = subset_sizes
        self.share = share
        self.label_noise = label_noise
        self.mean = mean
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.tol = tol
        self.precision = precision
        self.class_weight = class_weight
        self.categorical_features = categorical_features
        self.feature_transform = feature_transform
        self.warm_start = warm_start
        self.max_time = max_time
        self.keep_on_interrupt = keep_on_interrupt
        self.checkpoint = checkpoint
        self.callback = callback
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: Any = None, groups: Any = None, *, classes: Any = None
    ) -> Self:
        """Fit kernel, inducing points and posterior.

        Parameters
        ----------
        X : (n, d) array, float32 or float64 as given, other numbers converted to float64
            A memory map is read where it is; with rows of weight 0, and for neighbours, rows are copied. Or a table
            (pandas, polars, Arrow) with columns of numbers and levels, of which values may be missing: a missing number
            is the training rows' mean next to an indicator with its own length scale, or, if the training rows missed
            none of the column, the mean alone, with a warning. The index that pandas writes into tables of Arrow is no
            feature. Or a sparse matrix, of which blocks of rows are dense at a time; neighbours, and "all" as inducing
            points, need dense rows.
        y : (n,) array of labels
        sample_weight : (n,) array, default=None
            Not negative. A row of weight w counts as w rows, and rows of equal features and label as one neighbour.
        groups : (n,) array, default=None
            Rows of a group are never predicted from each other where held-out rows decide, or while a kernel with
            neighbours is learned, unless ``query_split`` does so. None may be missing.
        classes : array, default=None
            All labels that there may be, if the rows lack some. A class without rows is as improbable as the others'
            rows tell. Rows of one class tell nothing of the kernel: its parameters and the inducing points then stay
            where learning would start, and no neighbours are taken.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For bad data or parameters, and for a ``checkpoint`` of another fit. The estimator is then, as after an
            interrupt without ``keep_on_interrupt``, what it was before.
        OSError
            If no ``checkpoint`` can be written at its path; later failures are warned of once.

        Warns
        -----
        ConvergenceWarning
            If ``max_iter`` was reached, time or an interrupt ended the fit, kernel parameters have run to their bounds,
            or query rows tell of no kernel.
        """
        return self._fitted(X, y, sample_weight, groups=groups, classes=classes)

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        forgetting_factor: float = 1.0,
        n_new_inducing: int = 0,
    ) -> Self:
        """Learn from a batch of a stream of rows, none of which is kept.

        The first call learns kernel, inducing points and posterior from its batch as ``fit`` does with
        ``n_neighbors=0``: some thousands of rows are better than few. Later calls, and calls after ``fit``, keep
        likelihood, kernel, inducing points, ``mean_`` and label noise, and add the sites of the new rows to
        ``posterior_``, iterated to convergence given those of all rows before, which stay as they were when their batch
        came [8]_.
        The result depends, a little, on how the rows are divided into batches and on their order.

        Afterwards ``elbo_``, ``bound_gap()``, ``n_iter_``, ``converged_`` and ``history_`` are those of this batch:
        ``elbo_`` is a lower bound of its log evidence given the posterior before it, sum E_q[log p(y | f)] -
        KL(q || q before). ``elbo(X, y)`` is for any rows, and measures KL from the prior, as after ``fit``.

        Parameters
        ----------
        X : (n, d) array
            As for ``fit``; one row is enough for later calls.
        y : (n,) array of labels
        classes : array, default=None
            All labels that are to come, if the first batch lacks some. A class is predicted from the first call on, as
            improbable where rows of others are. Of rows of one class no kernel is learned, then or later; see ``fit``.
            Later calls may repeat them.
        sample_weight : (n,) array, default=None
            As for ``fit``.
        forgetting_factor : float in [0, 1], default=1.0
            Multiplies the sites of all rows before, for streams whose classes drift: a row that came k calls ago counts
            as ``forgetting_factor ** k`` rows. The first call has nothing to forget.
        n_new_inducing : int, default=0
            At most so many rows of the batch become further inducing points, up to 2048 in all, drawn in proportion to
            their variance given the points so far: for streams that come to new places. The first call chooses its
            points as ``fit`` does, and ``decisions_`` says so. Earlier rows count as independent of the new points'
            values given the old ones'.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For bad data or parameters; with ``n_neighbors`` above 0, after a fit that took neighbours, and for
            ``inducing_points="all"``, which need all rows; for ``class_weight="balanced"``; for a likelihood or bound
            that was set since the first call. The estimator is then, as after an interrupt, what it was before.

        Warns
        -----
        ConvergenceWarning
            As ``fit``.

        Notes
        -----
        O(n (m^2 + m d) + m^3) an iteration, as a fit of the batch's rows; memory O(n + m^2). ``batch_size`` and
        ``checkpoint`` are for the first call; later ones take all rows of the batch in each iteration. A saved and
        loaded model goes on with the same bits, if ``random_state`` is an integer or there are no new points.
        """
        check_parameters(self)
        check_stream(self, forgetting_factor, n_new_inducing)
        config, later = FitConfig.of(self), copy.copy(self)
        if hasattr(self, "posterior_"):
            # Nothing is learned, and all rows are in each iteration.
            config = replace(config, optimizer=None, batch_size=None)
            later._continued(config, X, y, sample_weight, classes, float(forgetting_factor), int(n_new_inducing))
        else:
            is_asked = forgetting_factor != 1.0 or n_new_inducing
            said = "In the first batch there is nothing to forget, and inducing points are chosen as fit chooses them."
            note, config = said if is_asked else "", replace(config, n_neighbors=0)
            later._fitted(X, y, sample_weight, classes=classes, note=note, config=config)
        self.__dict__ = later.__dict__
        return self

    def fit_batches(self, source: Any, classes: ArrayLike | None = None) -> Self:
        """Fit to training rows that need not fit into memory, given in batches that are read several times.

        Of no more than 131 072 rows the fit is that of ``fit``, bit for bit. Of more, kernel and inducing points, and
        how many of these, are learned from so many rows, drawn in the first reading with the classes in proportion;
        the posterior is that of all rows, by a reading for each step: few by the exact bounds of two classes, more with
        several classes, and most by the Polya-Gamma bound, whose steps are short. Nothing depends on the sizes of the
        batches. While a batch is in use a thread reads the next.

        Parameters
        ----------
        source : function, iterable or sequence
            A function without arguments that returns an iterator of batches, or an iterable, not an iterator, of them,
            such as a list; or ``xgpc.rows.from_parquet``, ``from_arrow`` or ``from_npy``. Batches are tuples (X, y) or
            (X, y, sample_weight), as for ``fit``, of any number of rows, in memory that the next may fill again; a
            sparse X becomes dense when it is read. Or
            ``xgpc.partitions.Partitions``: batches on a cluster, which works on them where they are; how rows are
            divided then changes the fit by rounding.
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
            ``inducing_points="all"``, and ``batch_size`` unless an optimizer takes mini-batches. What the source itself
            raises is passed on. The estimator is then, as after an interrupt, what it was before.

        Warns
        -----
        ConvergenceWarning
            As ``fit`` does.

        Notes
        -----
        Memory beyond the learning's is for two batches and the rows to learn from; it does not grow with the number of
        rows. The first reading is not cut short by ``max_time`` or ``keep_on_interrupt``: an interrupt there is raised.
        Later readings must give the same rows, of which their number, columns and labels are checked.
        """
        return self._fitted(source, classes, validate=GPClassifier._validate_batches, threads=OverPartitions)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
