"""The scikit-learn estimator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

from numpy.typing import ArrayLike
from sklearn.gaussian_process.kernels import Kernel
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import Tags

from . import names
from .approximations.local import Posterior
from .config import FitConfig, is_name
from .data.training import FitInput
from .estimator import all_or_nothing
from .inference.run import FitState, Run
from .learning.fit import Fit
from .learning.pipeline import add_rows, learn_and_infer, with_agreement
from .predict import PosteriorClassifier
from .rows.blas import single_threaded_blas
from .rows.clock import Clock
from .rows.coinciding import NO_AGREEMENT, Agreement
from .rows.executor import Executor
from .steps import new_run, previous_fit, publish, rows_in_batches, rows_in_memory
from .streaming import check_stream, drift_of, further_rows, stream_rows

FIRST_BATCH = "In the first batch there is nothing to forget, and inducing points are chosen as fit chooses them."


class GPClassifier(PosteriorClassifier):
    """Sparse variational Gaussian process classifier.

    ``GPClassifier().fit(X, y)`` needs no settings: X (n, d) is an array of numbers, a sparse matrix or a table, and y
    (n,) has two or more different labels. All else is learned, and every parameter has a default.

    One latent function (with several classes, one per class) has a Gaussian process prior, and a likelihood turns its
    values into class probabilities. A normal distribution of the values at ``m`` inducing points approximates the
    posterior. The fit uses natural gradients: its time is linear in the number of rows, and there is no learning rate
    to choose. The guide's page "How a fit decides" has the rules behind "auto".

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel, "precomputed" or None, default=None
        Covariance of the latent function, with scikit-learn's bounds and fixed parameters. ConstantKernel, RBF, Matern
        (nu 0.5, 1.5, 2.5, inf), RationalQuadratic, ExpSineSquared, DotProduct, WhiteKernel, ``AxisMatern``, their sums,
        products and integer powers are compiled, also in ``xgpc.kernels.ActiveDims``; any other kernel is called, which
        is slower. None: a constant times RBF with one length scale for each feature, or times ``AxisMatern`` or Matern
        where these are better. "precomputed": X has the covariances themselves, see ``xgpc.kernels.Precomputed``.
    likelihood : str, default="logit"
        For two classes: "logit", "probit", "step", "svm" (Bayesian support vector machine [4]_), or "psychometric", the
        logistic function between ``guess_rate`` and 1 - ``lapse_rate``. For any number of classes: "softmax",
        "logistic-softmax", "multinomial-logit", "multinomial-probit" or "multinomial-step". "logit" becomes "softmax"
        when there are more than two classes.
    bound : {"auto", "exact", "polya-gamma", "taylor", "augmented", "additive-noise"}, default="auto"
        Lower bound of the log evidence that the fit maximises; "auto" is the tightest bound of the likelihood. "exact"
        computes the expected log likelihood; "polya-gamma" is the bound of [1]_ and [5]_, "augmented" of [4]_,
        "additive-noise" of [6]_; "taylor" ([3]_, section 4.2) is an approximation, not a bound.
    n_inducing : int or "auto", default="auto"
        Number m of inducing points, at most the number of distinct rows. "auto" takes all of 128 or fewer rows (256
        without an optimizer); else m grows from 32 (64 below 2000 rows) up to 256 while more raise the bound enough.
    n_neighbors : int or "auto", default="auto"
        Number of nearest training rows that correct each prediction, for classes that change over short distances [7]_.
        "auto": with 300 or more rows, 24 if these predict held-out rows better; otherwise 0. Only for the bound "exact"
        of "logit", "probit" and "softmax". The fitted model then contains the training rows.
    max_rows_in_model : int or "auto", default="auto"
        Most training rows that a model with neighbours contains; of more rows it takes a random sample with the classes
        in proportion. "auto": a million, divided by the number of latent functions; fewer from 100 features on; a tenth
        of this in ``partial_fit``.
    held_out_split : splitter of scikit-learn or None, default=None
        How the fit chooses held-out rows, whose predictions decide between models. None: at random, or by ``groups``.
        If the rows are in the order of time, give ``TimeSeriesSplit()``. A splitter that shuffles needs its own
        ``random_state``. Rows before its last held-out ones are divided again: where it cannot divide so few, by the
        parts of its other splits, or at random if it has no others.
    inducing_points : {"kmeans", "random", "greedy", "all"} or array of shape (m, d), default="kmeans"
        Where the inducing points start: cluster centres, random rows, rows chosen one by one where the prior variance
        given the points already chosen is largest, or the given places, in the units of X. "all" fits the full Gaussian
        process, in O(n^3) time and O(n^2) memory.
    optimizer : {"profile", "alternate", "joint", "hybrid", "adam", "stochastic"} or None, default="profile"
        How kernel parameters and inducing points are learned. "profile": L-BFGS on the bound, where each evaluation
        first finds the best posterior. "stochastic": the mini-batches of X-GPC [1]_; "adam": these, then "profile".
        "alternate", "joint" and "hybrid": the methods of [3]_. None: nothing is learned.
    learn_inducing : bool, default=True
        Whether the optimizer also moves the inducing points.
    n_restarts_optimizer : int, default=0
        Number of further starts, with kernel parameters drawn within their bounds. The fit keeps the best start.
    length_scale_prior : "auto", float or None, default="auto"
        Scale of a Student t prior that prevents overfitting to few rows: each length scale is divided by its feature's
        spread, and the prior keeps the logarithms of most of these ratios near their common mean. "auto": 0.6 with
        ``kernel=None``, otherwise no prior.
    subset_sizes : "auto", None or increasing integers, default="auto"
        Sizes of the random subsets of rows from which kernel and inducing points are learned, one after the other.
        "auto" goes from 4000 rows up to 131 072. None: all rows at once. The posterior always uses all rows.
    share : {"auto", "kernel", "none"}, default="auto"
        Whether the latent functions of several classes share one kernel and its inducing points, or have their own.
        "auto": they share; a warm start keeps what the fit before had.
    label_noise : "learn" or float, default="learn"
        Probability that a label is wrong, for "additive-noise" bounds (except that of softmax): a number between 0 and
        1/2, or "learn" for the probability that maximises the bound.
    guess_rate, lapse_rate : float or "learn", default=0.0
        With "psychometric": the probabilities of ``classes_[1]`` far below and of ``classes_[0]`` far above the rise of
        the curve, from 0, with a sum below 1; or the shares of wrong labels among those of ``classes_[0]`` and of
        ``classes_[1]``, which is the same. "learn", with ``optimizer="profile"``, takes the rates that maximise the
        bound.
    mean : float, sequence of C floats or "base-rate", default=0.0
        Prior mean of the latent function, or of each of C latent functions. It determines the predictions far from all
        rows. "base-rate": the mean for which these predictions are the class frequencies.
    batch_size : int or None, default=None
        Number of rows in a mini-batch, at most half of the rows. None: each iteration uses all rows.
    learning_rate : "adaptive", float, or (delay, forgetting), default="adaptive"
        Step size of the posterior with mini-batches: adaptive [2]_; a constant in (0, 1]; or
        (t + delay)^-forgetting at step t.
    max_iter : int, default=200
        Largest number of iterations of the optimizer on the last subset of rows; earlier subsets have limits of their
        own. Also the largest number of passes, or epochs of mini-batches, of the final posterior.
    tol : float, default=1e-4
        Optimizer and posterior stop once the bound rises by less than about ``tol``, relative to its size; mini-batches
        once the posterior's parameters change by less than ``tol``.
    precision : {"double", "mixed"}, default="double"
        "mixed" computes the largest products in single precision, in half the memory; this saves up to half of the
        time. Probabilities change by about 1e-5, and by more if the kernel's variance is above 1000.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes. They act on predictions alone: probabilities are multiplied by them and divided by their
        sum, so that the expected log loss of labels with these weights is least. "balanced": n / (C n_c) as in SVC,
        with n_c rows of class c whose weight is not zero. The fit and its scores, latent functions and
        ``xgpc.acquisition`` are as without; ``sample_weight`` counts in the fit.
    categorical_features : "from_dtype", None, or list, default="from_dtype"
        Columns whose values are levels without an order. "from_dtype": text and categorical columns of data frames. A
        list has names, positions, or True and False for each column. If a column has more than 255 levels, the rare
        ones count as one.
    feature_transform : "auto" or None, default="auto"
        "auto" limits values that a wide gap separates from all others, such as -9999, and warps features with heavy
        tails by arcsinh; a given kernel has length scales in the features' units, so it warps none. Predictions are
        made alike; ``encoding_`` has the ``limits`` and ``warps``. None: no value is changed.
    warm_start : bool, default=False
        Whether to start from the previous fit's inducing points, posterior, label noise, rates and, if kernels are
        learned, its kernel, whatever ``kernel`` is now. If features or classes differ from those of the previous fit,
        the fit starts anew, and ``decisions_`` says so. A fit with a precomputed kernel always starts anew.
    max_time : float or None, default=None
        Seconds after which the fit ends with the best result so far, always with a complete posterior. ``decisions_``
        and a ConvergenceWarning list the parts that were left out.
    keep_on_interrupt : bool, default=False
        With True, the first KeyboardInterrupt ends the fit as if ``max_time`` were over; the second one is raised.
    callback : function or None, default=None
        Function of an ``xgpc.inference.run.FitState``, which is called before each pass over the rows. If it returns
        True, the fit ends as if ``max_time`` were over.
    n_jobs : int or None, default=None
        Number of threads. Results do not depend on it, bit for bit.
    random_state : int, Generator, RandomState or None, default=None
        Seed of all random choices: subsets of rows, inducing points, held-out rows and mini-batches. A Generator gives
        each fit another seed.
    verbose : int, default=0
        1 reports the progress of the fit, to the logger "xgpc" or to standard error.

    Attributes
    ----------
    classes_ : (C,) array
        Class labels.
    class_weight_ : (C,) array
        Weights of the classes in predictions, 1 without ``class_weight``.
    n_features_in_, n_samples_seen_ : int
        Number of features; number of rows of positive weight, in all calls of ``partial_fit``.
    feature_names_in_ : array of str
        Column names, if X had names.
    feature_mean_, feature_spread_ : (d,) arrays
        Means and standard deviations of the features in the training rows, after encoding (``encoding_``). The
        deviation is 0 where values differ by rounding alone: by 1e-12 of their size, 5e-7 in single precision, or by
        less than 1e-292.
    feature_importances_ : (d,) array
        Relevance of each feature, from kernels with one length scale for each feature.
    share_ : "kernel" or "none"
        Whether the latent functions share a kernel.
    kernel_ : Kernel, or list of C kernels where ``share_`` is "none"
        Kernel with the learned parameters.
    encoding_ : Encoding or None
        How a table becomes a matrix (``encode(X)``, columns ``matrix_names``), its ``limits`` and ``warps``.
    inducing_points_ : (m, d) array; (C, m, d) where ``share_`` is "none"
        Inducing points, or the distinct rows of a full Gaussian process, as ``encoding_`` encodes and warps rows.
    label_noise_ : float
        Probability of a wrong label, for bounds that have one.
    guess_rate_, lapse_rate_ : float
        Given or learned rates, for "psychometric".
    mean_ : float, or (C,) array
        Prior mean of the latent functions.
    posterior_ : SparsePosterior, FullPosterior ("all" inducing points) or LocalPosterior (with neighbours)
    n_neighbors_ : int
        Number of neighbours of each prediction.
    held_out_score_ : (float, float) or None
        With neighbours: mean log probability of held-out rows, in nats, and its standard error.
    label_agreement_ : float
        With neighbours: probability that a row given once more has the label it had, beyond what the latent function
        says, estimated from training rows of equal features. ``predict_proba`` counts it for rows that equal one.
    elbo_ : float
        Lower bound of the log evidence of the training data, in nats, with all constants; after ``partial_fit`` without
        neighbours, of the last batch. With neighbours, it is the bound of the posterior without neighbours and is
        computed when it is first read. ``log_marginal_likelihood_value_`` is another name of it.
    drift_ : float
        After ``partial_fit`` of a fitted model: the log probability of the new labels that the model expected before,
        minus the actual one, as a z score. Values above 3 in several batches say that the classes drift: forget
        earlier rows (``forgetting_factor``), or fit anew.
    history_ : dict of arrays
        One row for each evaluation, iteration and decision. ``help("xgpc.inference.history")`` explains the columns.
    decisions_, warnings_ : lists of str
        What the fit decided and why, such as the number of inducing points; messages of its ConvergenceWarning.
    class_count_ : (C,) array
        Total weight of the rows of each class, in all batches so far.
    n_iter_, converged_ : int and bool
        Number of iterations of the optimizer on all subsets of rows (of the posterior, if nothing was learned); and
        whether the iterations ended by ``tol``.
    jitter_ : float
        Number added to the diagonal of the inducing points' covariance matrix, relative to its mean diagonal.

    Notes
    -----
    A pass over n rows takes O(n (m^2 + m d)) time, and O(n (C m^2 + m d)) for C > 2 classes that share a kernel. Memory
    beyond the inputs is O(n + m^2), plus a cache of 8 n m bytes if the cache is smaller than 512 MB. Inputs in float32
    stay in float32.

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
        kernel: Kernel | str | None = None,
        *,
        likelihood: names.LikelihoodName = "logit",
        bound: names.BoundName = "auto",
        n_inducing: int | names.Auto = "auto",
        n_neighbors: int | names.Auto = "auto",
        max_rows_in_model: int | names.Auto = "auto",
        held_out_split: BaseCrossValidator | None = None,
        inducing_points: names.PointsName | names.Points = "kmeans",
        optimizer: names.OptimizerName | None = "profile",
        learn_inducing: bool = True,
        n_restarts_optimizer: int = 0,
        length_scale_prior: float | names.Auto | None = "auto",
        subset_sizes: Sequence[int] | names.Auto | None = "auto",
        share: names.ShareName = "auto",
        label_noise: Literal["learn"] | float = "learn",
        guess_rate: Literal["learn"] | float = 0.0,
        lapse_rate: Literal["learn"] | float = 0.0,
        mean: float | Sequence[float] | Literal["base-rate"] = 0.0,
        batch_size: int | None = None,
        learning_rate: names.LearningRate = "adaptive",
        max_iter: int = 200,
        tol: float = 1e-4,
        precision: names.PrecisionName = "double",
        class_weight: names.ClassWeight | None = None,
        categorical_features: Literal["from_dtype"] | Sequence[str | int] | None = "from_dtype",
        feature_transform: names.Auto | None = "auto",
        warm_start: bool = False,
        max_time: float | None = None,
        keep_on_interrupt: bool = False,
        callback: Callable[[FitState], object] | None = None,
        n_jobs: int | None = None,
        random_state: names.RandomSeed = None,
        verbose: int = 0,
    ) -> None:
        self.kernel, self.likelihood, self.bound = kernel, likelihood, bound
        self.n_inducing, self.n_neighbors, self.max_rows_in_model = n_inducing, n_neighbors, max_rows_in_model
        self.held_out_split, self.inducing_points, self.optimizer = held_out_split, inducing_points, optimizer
        self.learn_inducing, self.n_restarts_optimizer = learn_inducing, n_restarts_optimizer
        self.length_scale_prior, self.subset_sizes, self.share = length_scale_prior, subset_sizes, share
        self.label_noise, self.guess_rate, self.lapse_rate, self.mean = label_noise, guess_rate, lapse_rate, mean
        self.batch_size, self.learning_rate = batch_size, learning_rate
        self.max_iter, self.tol, self.precision = max_iter, tol, precision
        self.class_weight, self.categorical_features = class_weight, categorical_features
        self.feature_transform, self.warm_start = feature_transform, warm_start
        self.max_time, self.keep_on_interrupt, self.callback = max_time, keep_on_interrupt, callback
        self.n_jobs, self.random_state, self.verbose = n_jobs, random_state, verbose

    @all_or_nothing
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        *,
        classes: ArrayLike | None = None,
    ) -> None:
        """Fit kernel, inducing points and posterior.

        Parameters
        ----------
        X : (n, d) array, data frame or sparse matrix
            Training rows. float32 and float64 are kept; a memory map is read in place. Data frames (pandas, polars,
            Arrow) may have categorical columns and missing values; the mean of the column replaces a missing number,
            and an indicator column marks it. Sparse rows become dense block by block, with
            ``inducing_points="all"`` all at once; neighbours need dense rows.
        y : (n,) array, or (n, C) array with ``classes``
            Class labels; or for each row how often it had each of the ``classes``, in their order, such as successes
            and failures. A count k is as k equal rows. Probabilities are counts whose sum is one. The bound has no
            binomial coefficients.
        sample_weight : (n,) array, default=None
            Weights, not negative. A row of weight w counts as w equal rows.
        groups : (n,) array, default=None
            Group labels, none missing. Either all rows of a group are held out or none, unless ``held_out_split``
            splits otherwise. In pipelines and searches, ``set_fit_request(groups=True)`` requests them.
        classes : array, default=None
            All class labels, if some have no rows. If all rows have the same class, the kernel and the inducing points
            keep their starting values.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If data or parameters are not valid. After any error or interrupt, the estimator is what it was before.

        Warns
        -----
        ConvergenceWarning
            If the fit ended by ``max_iter``, ``max_time`` or an interrupt; if kernel parameters have reached their
            bounds; or if the model predicts no better than the class frequencies.
        """
        inputs = FitInput(X, y, sample_weight, groups, classes)
        self._fit(lambda config, run: rows_in_memory(self, config, run, inputs))

    @all_or_nothing
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        forgetting_factor: float = 1.0,
        n_new_inducing: int = 0,
    ) -> None:
        """Update the model with a batch of rows from a stream.

        The first call fits the model to its batch, as ``fit`` does: give it some thousands of rows. Later calls, and
        calls after ``fit``, update the posterior and keep kernel, inducing points and ``mean_``. With ``n_neighbors=0``
        the model keeps no rows [8]_. Otherwise, if its likelihood allows neighbours, it keeps the latest
        ``max_rows_in_model`` rows. When the number of rows seen passes a power of two, such as 4096, or a multiple of
        this limit, it learns everything from the kept rows, as ``fit`` does. The method returns self, and warns as
        ``fit`` does.

        ``n_iter_``, ``converged_`` and ``history_`` describe the latest call. So does ``elbo_`` without neighbours: if
        the call only updated the posterior, it is a bound of the batch's log evidence given earlier rows.

        Parameters
        ----------
        X, y, sample_weight : as for ``fit``
            Later calls may have a single row.
        classes : array, default=None
            All class labels, if the first batch lacks some. Later calls may repeat them.
        forgetting_factor : float in [0, 1], default=1.0
            Factor of the influence of all earlier rows, for classes that drift: a row that came k calls ago counts as
            ``forgetting_factor ** k`` rows.
        n_new_inducing : int, default=0
            At most this many rows of the batch become new inducing points, for streams that reach new places; a model
            has at most 2048 inducing points. The first call ignores it. With neighbours
            it raises ValueError.

        Raises
        ------
        ValueError
            As ``fit`` does; with ``inducing_points="all"`` or ``class_weight="balanced"``; and if likelihood or bound
            were changed since the first call.

        Notes
        -----
        O(n (m^2 + m d) + m^3) time for each iteration, with n rows in the batch, and O(n + m^2) memory; with
        neighbours, some sweeps over all rows of the model, O(k^2 (m + d) + k^3) a row. A stream that continues with a
        saved and loaded model gives exactly the same results, if ``random_state`` is an integer.
        """
        config, inputs = FitConfig.of(self), FitInput(X, y, sample_weight, classes=classes)
        check_stream(config, self, forgetting_factor, n_new_inducing)
        if not hasattr(self, "posterior_"):

            def first_batch(config: FitConfig, run: Run) -> Fit:
                if forgetting_factor != 1.0 or n_new_inducing:
                    run.history.add(decision=FIRST_BATCH)
                return rows_in_memory(self, config, run, inputs)

            self._stream_rows = stream_rows(*self._fit(first_batch))
            return
        counts, n_seen, factor, q = self.class_count_, self.n_samples_seen_, float(forgetting_factor), self.posterior_
        with single_threaded_blas(), Executor(config.n_jobs, self._clock()) as pool, new_run(config, pool) as run:
            further = further_rows(self, config, run, inputs, factor)
            drift = drift_of(self, further.batch)
            result = add_rows(further, q, self._evidence, factor, int(n_new_inducing))
            earlier, kept = Agreement(self.label_agreement_, self._agreement_log), further.kept or further.batch
            # A model without neighbours has not asked how often labels agree.
            result = with_agreement(kept, result, earlier, factor, len(further.stay) if q.n_neighbors else 0)
        publish(self, further.batch, result, stream_rows(further.kept, result.q))
        self.drift_ = drift
        self.class_count_ = factor * counts + self.class_count_
        self.n_samples_seen_ += n_seen

    @all_or_nothing
    def fit_batches(self, source: object, classes: ArrayLike | None = None) -> None:
        """Fit the model to rows that need not fit into memory, in batches that are read several times.

        The first reading keeps ``max_rows_in_model`` rows, and at least 131 072 (with ``n_neighbors=0``, so many). If
        there are no more, the result is that of ``fit``, bit for bit. Of more rows it keeps a random sample with the
        classes in proportion: kernel and inducing points are learned from this, and neighbours are searched in it.
        Without neighbours the posterior uses all rows, with one reading for each step. The sizes of the batches do not
        matter. A thread reads the next batch while one is in use. The method returns self, and warns as ``fit`` does.

        Parameters
        ----------
        source : function, iterable or sequence
            A function without arguments that returns an iterator of batches; an iterable (not an iterator) of batches,
            such as a list; or the result of ``xgpc.rows.from_parquet``, ``from_arrow`` or ``from_npy``. A batch is a
            tuple (X, y) or (X, y, sample_weight) as for ``fit``, of numbers; its memory may be reused for the next one.
        classes : (C,) array, default=None
            All class labels. Another label is an error as soon as it is read.

        Raises
        ------
        ValueError
            As ``fit`` does; the error's notes name the batch, counted from 0. With more than 131 072 rows, these are
            errors, too: ``inducing_points="all"``, and ``batch_size`` with an optimizer that uses no mini-batches.
            Errors of the source itself are passed on.

        Notes
        -----
        Besides what learning needs, the fit keeps two batches and the sample of rows in memory. ``max_time`` and
        ``keep_on_interrupt`` do not shorten the first reading. Later readings must give the same rows; their number,
        columns and labels are checked.
        """
        self._fit(lambda config, run: rows_in_batches(self, config, run, source, classes))

    def _fit(self, checked_rows: Callable[[FitConfig, Run], Fit]) -> tuple[Fit, Posterior]:
        """Learn from rows, which are checked first, and set the fitted attributes."""
        config = FitConfig.of(self)
        with single_threaded_blas(), Executor(config.n_jobs, self._clock()) as pool, new_run(config, pool) as run:
            fit = checked_rows(config, run)
            result = with_agreement(fit, learn_and_infer(fit, previous_fit(self, config)), NO_AGREEMENT)
        publish(self, fit, result)
        return fit, result.q

    def _clock(self) -> Clock:
        """The clock of a fit that starts now."""
        return Clock(math.inf if self.max_time is None else float(self.max_time))

    _shared: tuple[str, ...] = ("callback",)

    def __getstate__(self) -> dict[str, object]:
        # Many callbacks cannot be pickled, and a fitted model no longer needs its callback.
        state = super().__getstate__()
        return {**state, "callback": None} if hasattr(self, "posterior_") else state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse, tags.input_tags.pairwise = True, is_name(self.kernel, ("precomputed",))
        return tags
