"""The exact posterior of the logit Gaussian process, by Gibbs sampling with Polya-Gamma variables."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Literal

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils import Tags

from .. import _sites
from .._threads import Pool
from ..classifier import GPClassifier
from ..config import Rule, check_allowed, integer, one_of
from ..data.checks import random_state_of
from ..estimator import LatentClassifier, all_or_nothing
from ..likelihoods import record_of
from ..likelihoods.binary import logit_log_probabilities
from ..names import Points, RandomSeed
from ..ranges import check_latent
from ..rows.blas import single_threaded_blas
from ..status import warn_user
from .chain import Chain, Conditional, Model, PolyaGamma, Whitening
from .diagnostics import effective_sample_size, split_r_hat

# The diagnostics watch the latent values at this many rows, and the log likelihood.
WATCHED = 100
# Chains with a larger R-hat disagree (Vehtari et al. 2021, section 4).
LARGEST_R_HAT = 1.01
# Predictions take so many rows at a time that these times the draws are about this many values.
BLOCK_VALUES = 2**16


def _polya_gamma_sampler() -> PolyaGamma:
    """A function that draws exactly from PG(1, c) for c (n,); ImportError without the polyagamma package."""
    try:
        from polyagamma import random_polyagamma
    except ImportError:
        raise ImportError(
            "GibbsClassifier needs the polyagamma package, of xgpc's extra 'gibbs': pip install polyagamma tqdm."
        ) from None
    return lambda c, rng: random_polyagamma(1.0, c, method="devroye", random_state=rng)


class GibbsClassifier(LatentClassifier):
    """Draws from the exact posterior of the logit Gaussian process, as a reference for approximations.

    Polya-Gamma variables make the latent values normal given the labels. A Gibbs sweep draws both in turn [1]_. Then
    the chain takes Metropolis steps whose proposals come from the variational posterior of the exact bound: nearly
    independent draws, in O(n m), if that approximation is good. If it is not, the sweeps move the chain. Two classes;
    the kernel's parameters are not sampled. Needs ``pip install 'xgpc[gibbs]'``.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel, default=None
        A fixed kernel, as for ``GPClassifier``. None: a ``GPClassifier`` with the same inducing points learns it.
    inducing_points : {"all"} or array of shape (m, d), default="all"
        "all" samples the full Gaussian process; a sweep takes O(n^3). With points, the latent function follows from its
        values at the points plus an independent residual at each row (FITC), and a sweep takes O(n m^2). This model
        differs from that of a ``GPClassifier`` with the same points; both approximate the full process.
    n_samples : int, default=1000
        Number of draws to keep per chain, at least 4.
    thin : int, default=10
        Every ``thin``-th state of a chain is kept as a draw. Latent means and variances average over all states.
    n_warmup : int, default=20
        Number of sweeps at the start of each chain to discard, with their Metropolis steps. Twenty are ample if chains
        mix well, which ``r_hat_`` shows.
    n_chains, n_proposals : int, default=4 and 50
        Number of independent chains, and of Metropolis steps after each sweep; 0 means sweeps alone. Fifty proposals
        take two thirds of the time of a sweep at 1000 rows.
    n_jobs, random_state, verbose : as for ``GPClassifier``
        ``n_jobs`` chains run at the same time. ``verbose=1`` shows a progress bar.

    Attributes
    ----------
    classes_, n_features_in_, kernel_, inducing_points_ : as in ``GPClassifier``
    samples_ : (n_chains, n_samples, r)
        Kept draws in r independent coordinates, at most m; ``sample_latent`` turns them into latent values.
    r_hat_, ess_ : float
        Largest split R-hat, and smallest effective sample size, of the kept draws: of the log likelihood and of the
        latent values at 100 training rows.
    acceptance_rate_ : float
        Share of proposals that were accepted; NaN without proposals.

    Notes
    -----
    A fit takes O(n_chains n_samples thin (S / (n_proposals + 1) + n m + m^2)) time, where S is the time of a sweep, and
    O(n (n + m) + n_chains (n_samples m + m^2)) memory, about 20 n^2 doubles for a full Gaussian process. The polyagamma
    package draws the Polya-Gamma variables exactly (Devroye's method).

    References
    ----------
    .. [1] Polson, Scott, Windle. Bayesian inference for logistic models using Polya-Gamma latent variables. JASA 2013.
    .. [2] Wenzel et al. Efficient Gaussian process classification using Polya-Gamma data augmentation. AAAI 2019.
       Section 5.1.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from xgpc.gibbs import GibbsClassifier
    >>> X, y = make_moons(100, noise=0.3, random_state=0)
    >>> sampler = GibbsClassifier(4.0 * RBF(0.7), n_samples=500, random_state=0).fit(X, y)
    >>> mean, variance = sampler.predict_latent(X)
    >>> mean.shape
    (100,)
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        inducing_points: Literal["all"] | Points = "all",
        n_samples: int = 1000,
        thin: int = 10,
        n_warmup: int = 20,
        n_chains: int = 4,
        n_proposals: int = 50,
        n_jobs: int | None = None,
        random_state: RandomSeed = None,
        verbose: int = 0,
    ) -> None:
        self.kernel, self.inducing_points = kernel, inducing_points
        self.n_samples, self.thin, self.n_warmup, self.n_chains = n_samples, thin, n_warmup, n_chains
        self.n_proposals, self.n_jobs, self.random_state, self.verbose = n_proposals, n_jobs, random_state, verbose

    @all_or_nothing
    def fit(self, X: ArrayLike, y: ArrayLike) -> None:
        """Run the chains for rows X (n, d) and labels y (n,) of two classes.

        Raises ValueError for bad data or parameters, and ImportError without the polyagamma package; a
        ConvergenceWarning says if R-hat is above 1.01.
        """
        least = {"n_samples": 4, "thin": 1, "n_warmup": 0, "n_chains": 1, "n_proposals": 0}
        array = Rule(lambda value: not isinstance(value, str) and np.ndim(value) == 2, "a numeric array (m, d)")
        rules = {"inducing_points": one_of("all", array), **{name: integer(low) for name, low in least.items()}}
        check_allowed(self, rules)
        polya_gamma = _polya_gamma_sampler()
        data = self._two_classes(X, y)
        with single_threaded_blas():
            rows, labels = np.ascontiguousarray(data.rows.X, dtype=np.float64), 2.0 * data.rows.y - 1.0
            self._set_fit(self._run(self._start(rows, labels), polya_gamma))

    def _start(self, rows: np.ndarray, labels: np.ndarray) -> list[Chain]:
        """The chains before their first sweep."""
        random_state = random_state_of(self.random_state)
        # The variational posterior of the exact bound, under the given kernel or a learned one.
        approximation = GPClassifier(
            self.kernel,
            inducing_points=self.inducing_points,
            optimizer="profile" if self.kernel is None else None,
            learn_inducing=False,
            n_neighbors=0,
            feature_transform=None,
            n_jobs=self.n_jobs,
            random_state=random_state,
        )
        with warnings.catch_warnings():
            # Proposals under a given kernel do not need a converged posterior.
            if self.kernel is not None:
                warnings.simplefilter("ignore", ConvergenceWarning)
            q = approximation.fit(rows, labels).posterior_
        seeds = np.random.SeedSequence(random_state.randint(2**31, size=4).tolist()).spawn(self.n_chains)
        whitening = Whitening(q.prior.groups[0].spec, np.array(q.prior.Z), isinstance(self.inducing_points, str))
        # The sites of the approximation, one normal factor per row, are all that a proposal needs.
        mean, variance = q.marginals(rows, self.n_jobs)
        _, precision, linear, _ = _sites.sites(record_of("logit", "exact").site(), mean, variance, labels)
        proposals = Conditional(Model(whitening, rows, labels), precision, linear)
        watched_rows = np.sort(random_state.permutation(len(rows))[:WATCHED])
        return [Chain(proposals, watched_rows, seed, self.n_samples, self.thin) for seed in seeds]

    def _run(self, chains: list[Chain], polya_gamma: PolyaGamma) -> list[Chain]:
        """Run the chains, each in a thread."""
        n_sweeps = self.n_warmup - (-self.n_samples * self.thin // (self.n_proposals + 1))
        bar = None
        if self.verbose:
            from tqdm import tqdm

            bar = tqdm(total=self.n_chains * n_sweeps, desc="xgpc: sweeps")

        # An interrupt reaches the calling thread alone, and an error in one chain should end the others.
        failed: list[Chain] = []

        def advance() -> bool:
            if bar is not None:
                bar.update()
            return not (pool.is_ending or failed)

        def run_chain(chain: Chain) -> Chain:
            try:
                return chain.run(self.n_warmup, self.n_proposals, polya_gamma, advance)
            except BaseException:
                failed.append(chain)
                raise

        with bar or nullcontext(), Pool(min(effective_n_jobs(self.n_jobs), self.n_chains)) as pool:
            tasks = [pool.submit(run_chain, chain) for chain in chains]
            return [task.result() for task in tasks]

    def _set_fit(self, chains: list[Chain]) -> None:
        """Set the attributes that follow from the chains, and warn if these disagree."""
        self._whitening = chains[0].whitening
        self.kernel_, self.inducing_points_ = self._whitening.kernel, self._whitening.Z
        count = sum(chain.count for chain in chains)
        self._mean = sum(chain.sum for chain in chains) / count
        self._covariance = sum(chain.squares for chain in chains) / count - np.outer(self._mean, self._mean)
        self.samples_ = np.stack([chain.draws for chain in chains])
        watched = np.stack([chain.watched for chain in chains])
        # R-hat and effective sample size of a quantity that does not vary are not finite.
        r_hats, sizes = split_r_hat(watched), effective_sample_size(watched)
        self.r_hat_ = float(np.max(r_hats, where=np.isfinite(r_hats), initial=1.0))
        self.ess_ = float(np.min(sizes, where=np.isfinite(sizes), initial=watched.shape[0] * watched.shape[1]))
        n_proposed = sum(chain.n_proposed for chain in chains)
        self.acceptance_rate_ = sum(chain.n_accepted for chain in chains) / n_proposed if n_proposed else np.nan
        if self.r_hat_ > LARGEST_R_HAT:
            warn_user(
                f"R-hat is {self.r_hat_:.4g}, above {LARGEST_R_HAT}: the chains disagree, or they have too few draws. "
                f"Raise n_samples={self.n_samples} or thin={self.thin}; if R-hat does not fall, raise n_warmup.",
                ConvergenceWarning,
            )

    def _blocks(self, X: ArrayLike) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Whitened rows and residual variances of blocks of the rows of X, of one block at least."""
        rows = np.asarray(self._rows(X), dtype=np.float64)
        n_rows = max(1, BLOCK_VALUES // self.samples_[..., 0].size)
        for start in range(0, max(1, len(rows)), n_rows):
            part = rows[start : start + n_rows]
            with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
                A, residual = self._whitening.rows(part)
                # The variance under the prior; its root is about the largest mean that a draw of A z can have.
                variance = residual + np.einsum("ij,ij->i", A, A)
                size = np.sqrt(variance)
            check_latent(size, variance, part, start)
            yield A, residual

    def predict_latent(self, X: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and variance (n,) of the latent function at the rows of X.

        They are Rao-Blackwellised: averages of the conditional moments given z over all states of the chains.
        """
        means, variances = [], []
        for A, residual in self._blocks(X):
            means.append(A @ self._mean)
            variances.append(residual + np.einsum("ij,ij->i", A @ self._covariance, A))
        return np.concatenate(means), np.maximum(np.concatenate(variances), 0.0)

    def predict_log_proba(self, X: ArrayLike) -> np.ndarray:
        """Log probabilities (n, 2) of the classes.

        Far from the training rows few draws determine a small probability, so that its Monte Carlo error is large.
        """
        sums = []
        for A, residual in self._blocks(X):
            draws = self.samples_.reshape(-1, A.shape[1])
            means = A @ draws.T
            log_p = logit_log_probabilities(means.ravel(), np.repeat(residual, len(draws)))
            sums.append(logsumexp(log_p.reshape(*means.shape, 2), axis=1))
        log_proba = np.concatenate(sums)
        return log_proba - logsumexp(log_proba, axis=1, keepdims=True)

    def sample_latent(self, X: ArrayLike) -> np.ndarray:
        """Draws (n_chains, n_samples, n) of the latent function, from ``samples_``.

        At rows that are not inducing points, the draws leave out the residual variance, which ``predict_latent``
        includes.
        """
        return np.concatenate([self.samples_ @ A.T for A, _ in self._blocks(X)], axis=2)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
