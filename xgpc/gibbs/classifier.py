"""The exact posterior of the logit Gaussian process, by Gibbs sampling with Polya-Gamma variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from threading import Event
from typing import Any, Literal

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .. import _sites
from ..approximations.base import KernelPosterior
from ..approximations.local import LocalPosterior
from ..classifier import GPClassifier
from ..config import check_allowed, integer_from
from ..data.training import checked_rows, training_data
from ..estimator import LatentClassifier
from ..inference.run import Run
from ..kernels.spec import KernelSpec
from ..likelihoods import LIKELIHOODS
from ..likelihoods.binary import logit_log_probabilities
from ..names import Points
from ..ranges import check_latent
from ..rows.blas import single_threaded_blas
from ..rows.executor import Executor, Pool
from ..status import warn_user
from .chain import Model, Proposals, Whitening
from .diagnostics import effective_sample_size, split_r_hat

# Proposals are made and weighed in one matrix product: at 1000 rows fifty take two thirds of a sweep's time. Nine of
# ten states of sweeps alone are effective draws there (both bench/studies/gibbs.py): where chains mix so, a warm-up of
# twenty sweeps is ample, and R-hat tells where they do not.
N_PROPOSALS = 50
# Starts have so many times the standard deviation of the normal approximation: R-hat asks whether chains that began
# apart have come together.
DISPERSION = 1.5
# Latent values that are watched by the diagnostics, besides the log likelihood.
WATCHED = 100
# Above it chains disagree (Vehtari et al. 2021, section 4).
LARGEST_R_HAT = 1.01
# Rows to predict, and draws that become probabilities, at a time.
ROWS, DRAWS = 1024, 64


class Chain:
    """One chain: its kept draws and sums over all its states."""

    def __init__(self, n_samples: int, size: int, n_watched: int) -> None:
        self.draws = np.empty((n_samples, size))
        self.watched = np.empty((n_samples, n_watched + 1))
        self.count, self.accepted, self.sum, self.squares = 0, 0, np.zeros(size), np.zeros((size, size))


def _polya_gamma_sampler() -> Callable[[np.ndarray, np.random.Generator], np.ndarray]:
    """Draws of PG(1, c) for c (n,), exact."""
    try:
        from polyagamma import random_polyagamma
    except ImportError:
        raise ImportError(
            "GibbsClassifier needs the polyagamma package, of xgpc's extra 'gibbs': pip install polyagamma tqdm."
        ) from None
    return lambda c, rng: random_polyagamma(1.0, c, method="devroye", random_state=rng)


@contextmanager
def _progress(total: int, verbose: int) -> Iterator[Callable[[], object]]:
    """A function to call after each sweep."""
    if not verbose:
        yield lambda: None
        return
    from tqdm import tqdm

    with tqdm(total=total, desc="xgpc: sweeps") as bar:
        yield bar.update


PolyaGamma = Callable[[np.ndarray, np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class Data:
    """What a fit is of, checked: rows (n, d), labels -1 or +1, classes, and the sampler of Polya-Gamma variables."""

    rows: np.ndarray
    labels: np.ndarray
    classes: np.ndarray
    polya_gamma: PolyaGamma
    random_state: np.random.RandomState


@dataclass(frozen=True)
class Beginning:
    """What the chains are told: kernel and inducing points, model and proposals, rows to watch, and their seeds."""

    spec: KernelSpec
    Z: np.ndarray
    model: Model
    proposals: Proposals
    watched: np.ndarray
    seeds: list[np.random.SeedSequence]


class _Proposing(GPClassifier):
    """A fit for proposals, which need no converged posterior."""

    def _warn(self, message: str) -> None:
        pass


class GibbsClassifier(LatentClassifier):
    """Samples of the exact posterior of the logit Gaussian process: what approximations are to be compared with.

    Polya-Gamma variables make the latent values normal given the labels, so that both can be drawn in turn [1]_: a
    sweep. Between sweeps the chain takes Metropolis steps whose proposals come from the variational posterior of the
    exact bound. These are cheap, O(n m), and each is nearly an independent draw where that approximation is good; where
    it is not, the sweeps move the chain. Two classes; the kernel's parameters are not sampled. Needs
    ``pip install 'xgpc[gibbs]'``.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel, default=None
        Fixed, as given; as for ``GPClassifier``. None: learned by a ``GPClassifier`` with the same inducing points.
    inducing_points : {"all"} or array of shape (m, d), default="all"
        "all": the full Gaussian process, O(n^3) a sweep. Else the latent function follows from its values at these
        points but for an independent residual at each row (FITC), O(n m^2) a sweep: another model than that of a
        ``GPClassifier`` with these points, which both approximate the full one.
    n_samples : int, default=1000
        Draws kept of each chain, 4 or more.
    thin : int, default=10
        States of a chain for each draw that is kept. Latent means and variances are taken from all states.
    n_warmup : int, default=20
        Sweeps at the start of each chain, with their Metropolis steps, that are thrown away.
    n_chains : int, default=4
    n_proposals : int, default=50
        Metropolis steps after each sweep; 0: sweeps alone.
    n_jobs : int or None, default=None
        Chains that run at a time. Results do not depend on it.
    random_state : int, RandomState or None, default=None
    verbose : int, default=0
        1 shows progress.

    Attributes
    ----------
    classes_ : (2,) array
    n_features_in_ : int
    kernel_ : Kernel
    inducing_points_ : (m, d)
    samples_ : (n_chains, n_samples, r)
        Kept draws in r independent coordinates, at most as many as inducing points; ``sample_latent`` makes latent
        values of them.
    r_hat_ : float
        Largest split R-hat of the log likelihood and of the latent values at 100 rows (all, if there are fewer), from
        the draws kept.
    ess_ : float
        Smallest effective sample size of the same.
    acceptance_rate_ : float
        Share of the proposals that were accepted; NaN without any.

    Notes
    -----
    Time O(n_chains n_samples thin (S / (n_proposals + 1) + n m + m^2)), S the time of a sweep; memory
    O(n (n + m) + n_chains (n_samples m + m^2)), about 20 n^2 doubles for a full Gaussian process. Polya-Gamma variables
    are drawn by the polyagamma package, exactly (method of Devroye): a maintained library, and a hundredth of a sweep's
    time.

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
        n_proposals: int = N_PROPOSALS,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.inducing_points = inducing_points
        self.n_samples = n_samples
        self.thin = thin
        self.n_warmup = n_warmup
        self.n_chains = n_chains
        self.n_proposals = n_proposals
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike) -> GibbsClassifier:
        """Run the chains.

        Parameters
        ----------
        X : (n, d) array
        y : (n,) array of two labels

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For bad data or parameters.
        ImportError
            Without the polyagamma package.

        Warns
        -----
        ConvergenceWarning
            If R-hat is above 1.01.
        """
        return self._fitted(X, y, None)

    def _validate(self, run: Run, X: Any, y: Any, sample_weight: Any, groups: Any = None) -> Data:
        polya_gamma = _polya_gamma_sampler()
        rows, codes, classes, *_ = training_data(self, X, y, None)
        if len(classes) != 2:
            raise ValueError(
                f"Only binary classification is supported. GibbsClassifier is for two classes; got {len(classes)}: "
                f"{classes.tolist()}."
            )
        rows = np.ascontiguousarray(rows, dtype=np.float64)
        labels = np.where(codes == 1, 1.0, -1.0)
        return Data(rows, labels, classes, polya_gamma, check_random_state(self.random_state))

    def _start(self, data: Data, run: Run, executor: Executor) -> Beginning:
        """The model, with proposals from the variational posterior, and seeds of the chains."""
        q, random_state = self._approximation(data.rows, data.labels, data.random_state), data.random_state
        seeds = np.random.SeedSequence(random_state.randint(2**31, size=4).tolist()).spawn(self.n_chains)
        spec, Z = q.prior.groups[0].spec, np.array(q.prior.Z)
        model = Model(Whitening(spec, Z, isinstance(self.inducing_points, str)), data.rows, data.labels)
        proposals = Proposals(model, *self._sites(q, data.rows, data.labels))
        watched = np.sort(random_state.permutation(len(data.rows))[:WATCHED])
        return Beginning(spec, Z, model, proposals, watched, seeds)

    def _infer(self, data: Data, run: Run, learned: Beginning) -> tuple[Beginning, list[Chain]]:
        """The chains."""
        # An interrupt comes to the calling thread alone, and what fails in one chain need not wait for the others.
        stop = Event()
        total = self.n_chains * (self.n_warmup + self._sweeps)
        with _progress(total, self.verbose) as advance:

            def chain(seed: np.random.SeedSequence) -> Chain:
                rng = np.random.default_rng(seed)
                model, proposals, watched = learned.model, learned.proposals, learned.watched
                try:
                    return self._run(model, proposals, watched, data.polya_gamma, rng, advance, stop)
                except BaseException:
                    stop.set()
                    raise

            with Pool(min(effective_n_jobs(self.n_jobs), self.n_chains)) as pool:
                try:
                    return learned, list(pool.map(chain, learned.seeds))
                finally:
                    stop.set()

    def _publish(self, data: Data, run: Run, inferred: tuple[Beginning, list[Chain]]) -> None:
        beginning, chains = inferred
        self._set_fit(chains, beginning.model.whitening, data.classes)
        self.kernel_, self.inducing_points_ = beginning.spec.kernel, beginning.Z
        if self.r_hat_ > LARGEST_R_HAT:
            warn_user(
                f"R-hat is {self.r_hat_:.4g}, above {LARGEST_R_HAT}: chains that disagree, or draws too few to tell. "
                f"Raise n_samples={self.n_samples} or thin={self.thin}; n_warmup where it stays.",
                ConvergenceWarning,
            )

    def _check_parameters(self) -> None:
        least = {"n_samples": 4, "thin": 1, "n_warmup": 0, "n_chains": 1, "n_proposals": 0}
        points = (
            lambda value: value == "all" if isinstance(value, str) else np.ndim(value) == 2,
            "'all' or a numeric array (m, d)",
        )
        check_allowed(self, {"inducing_points": points, **{name: integer_from(low) for name, low in least.items()}})
        if self.verbose and find_spec("tqdm") is None:
            raise ImportError(f"verbose={self.verbose!r} shows progress by the tqdm package: pip install tqdm.")

    def _approximation(self, X: np.ndarray, y: np.ndarray, random_state: np.random.RandomState) -> KernelPosterior:
        """The variational posterior of the exact bound, with the kernel given or learned."""
        # Who gives a kernel answers for it.
        model = (GPClassifier if self.kernel is None else _Proposing)(
            self.kernel,
            inducing_points=self.inducing_points,
            optimizer="profile" if self.kernel is None else None,
            learn_inducing=False,
            n_neighbors=0,
            feature_transform=None,
            n_jobs=self.n_jobs,
            random_state=random_state,
        )
        q = model.fit(X, y).posterior_
        assert not isinstance(q, LocalPosterior)
        return q

    def _sites(self, q: KernelPosterior, X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Precisions and linear terms (n,) of the rows' factors in q."""
        mean, variance = q.marginals(X, self.n_jobs)
        ell, precision, linear = np.empty((3, len(X)))
        _sites.sites(LIKELIHOODS["logit"].site("exact"), mean, variance, y, np.empty(0), ell, precision, linear)
        return precision, linear

    @property
    def _sweeps(self) -> int:
        """Sweeps of a chain after its warm-up."""
        return -(-self.n_samples * self.thin // (self.n_proposals + 1))

    def _run(
        self,
        model: Model,
        proposals: Proposals,
        watched: np.ndarray,
        polya_gamma: Callable[[np.ndarray, np.random.Generator], np.ndarray],
        rng: np.random.Generator,
        advance: Callable[[], object],
        stop: Event,
    ) -> Chain:
        chain = Chain(self.n_samples, model.A.shape[1], len(watched))
        states, kept = self.n_samples * self.thin, 0
        Z, E = proposals.normal.draw(1, rng, DISPERSION)
        for sweep in range(self.n_warmup + self._sweeps):
            if stop.is_set():
                break
            z, e = model.draw(polya_gamma(model.A @ Z[:, -1] + E[:, -1], rng), rng)
            Z, E = z[:, None], e[:, None]
            F = model.A @ Z + E
            accepted = 0
            if self.n_proposals:
                *later, accepted = proposals.steps(z, e, self.n_proposals, rng)
                Z, E, F = (np.hstack(pair) for pair in zip((Z, E, F), later, strict=True))
            advance()
            if sweep < self.n_warmup:
                continue
            chain.accepted += accepted
            used = Z[:, : states - chain.count]
            chain.sum += np.sum(used, axis=1)
            chain.squares += used @ used.T
            # States are numbered from 1; those that thin divides are kept.
            picked = np.arange(self.thin - 1 - chain.count % self.thin, used.shape[1], self.thin)
            chain.draws[kept : kept + len(picked)] = used[:, picked].T
            chain.watched[kept : kept + len(picked), 0] = model.log_likelihood(F[:, picked])
            chain.watched[kept : kept + len(picked), 1:] = F[np.ix_(watched, picked)].T
            kept += len(picked)
            chain.count += used.shape[1]
        return chain

    def _set_fit(self, chains: list[Chain], whitening: Whitening, classes: np.ndarray) -> None:
        count = sum(chain.count for chain in chains)
        self._mean = sum(chain.sum for chain in chains) / count
        self._covariance = sum(chain.squares for chain in chains) / count - np.outer(self._mean, self._mean)
        self.samples_ = np.stack([chain.draws for chain in chains])
        watched = np.stack([chain.watched for chain in chains])
        # What does not vary has no R-hat.
        r_hats, sizes = split_r_hat(watched), effective_sample_size(watched)
        self.r_hat_ = float(np.max(r_hats, where=np.isfinite(r_hats), initial=1.0))
        self.ess_ = float(np.min(sizes, where=np.isfinite(sizes), initial=watched.shape[0] * watched.shape[1]))
        proposals = len(chains) * self._sweeps * self.n_proposals
        self.acceptance_rate_ = sum(chain.accepted for chain in chains) / proposals if proposals else np.nan
        self._whitening, self.classes_ = whitening, classes

    def _blocks(self, X: Any) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Whitened rows and residual variances of X, some rows at a time."""
        for start in range(0, len(X), ROWS):
            part = slice(start, start + ROWS)
            with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
                A, residual = self._whitening.rows(X[part])
                # The variance under the prior, and as large a mean as a draw of A z can have.
                variance = residual + np.einsum("ij,ij->i", A, A)
                size = np.sqrt(variance)
            check_latent(size, variance, X[part], start)
            yield part, A, residual

    def _checked(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return np.asarray(checked_rows(self, X, reset=False), dtype=np.float64)

    def predict_latent(self, X: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and variance (n,) of the latent function at the rows of X.

        Rao-Blackwellised: the means over all states of the chains of what they are given z, with the variance of the
        former added.
        """
        X = self._checked(X)
        mean, variance = np.empty((2, len(X)))
        for part, A, residual in self._blocks(X):
            mean[part] = A @ self._mean
            variance[part] = residual + np.einsum("ij,ij->i", A @ self._covariance, A)
        return mean, np.maximum(variance, 0.0)

    def predict_log_proba(self, X: ArrayLike) -> np.ndarray:
        """Logarithms (n, 2) of the probabilities.

        Far from the training rows few draws decide a small probability: its Monte Carlo error is then large.
        """
        X = self._checked(X)
        log_proba = np.full((len(X), 2), -np.inf)
        draws = self.samples_.reshape(-1, self.samples_.shape[-1])
        for part, A, residual in self._blocks(X):
            for first in range(0, len(draws), DRAWS):
                means = A @ draws[first : first + DRAWS].T
                each = logit_log_probabilities(means.ravel(), np.repeat(residual, means.shape[1]))
                each = logsumexp(each.reshape(*means.shape, 2), axis=1)
                log_proba[part] = np.logaddexp(log_proba[part], each)
        return log_proba - logsumexp(log_proba, axis=1, keepdims=True)

    def sample_latent(self, X: ArrayLike) -> np.ndarray:
        """Draws (n_chains, n_samples, n) of the latent function's part that ``samples_`` fix.

        The residual variance, which is in ``predict_latent``, is left out: at rows that are not among the inducing
        points.
        """
        X = self._checked(X)
        latent = np.empty((*self.samples_.shape[:2], len(X)))
        for part, A, _ in self._blocks(X):
            latent[..., part] = self.samples_ @ A.T
        return latent

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = False
        return tags
