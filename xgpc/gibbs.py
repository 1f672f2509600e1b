"""The exact posterior of the logit Gaussian process, by Gibbs sampling with Polya-Gamma variables."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike
from scipy.linalg import cho_solve, solve_triangular
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from . import _engine
from .blocks import single_threaded_blas
from .classifier import GPClassifier
from .diagnostics import effective_sample_size, split_r_hat
from .inference import History, coordinate_ascent
from .kernels import KernelSpec
from .passes import Passes
from .posterior import Prior, SparsePosterior
from .validation import is_integer, training_data

# Proposals are made and weighed in one matrix product. Fifty cost less than a sweep from about 500 rows on.
N_PROPOSALS = 50
# Starts have so many times the standard deviation of the normal approximation: R-hat asks whether chains that began
# apart have come together.
DISPERSION = 1.5
# Latent values that are watched by the diagnostics, besides the log likelihood.
WATCHED = 100
# Above it chains disagree (Vehtari et al. 2021, section 4).
LARGEST_R_HAT = 1.01
# The proposals' normal approximation, in nats: a small share of what makes a proposal fail.
PROPOSAL_TOL = 1e-3
PROPOSAL_MAX_ITER = 100
# Draws that become probabilities at a time.
DRAWS = 64


class Model:
    """f_i = a_i . z + e_i, z ~ N(0, I), e_i ~ N(0, k_i): the prior at n rows in whitened coordinates (m,).

    With an inducing point at every row, k is a white kernel's noise, or 0: the jitter counts to the kernel. With fewer
    it is what the inducing points leave of the variance, and its correlations are dropped: the prior is that of the
    fully independent training conditional (Snelson & Ghahramani 2006, equation (7)).

    Attributes
    ----------
    prior : Prior
    A : (n, m)
    residual : (n,) k
    y : (n,) -1 or +1
    """

    def __init__(self, prior: Prior, X: np.ndarray, y: np.ndarray):
        self.prior, self.y = prior, y
        self.A, self.residual = self.rows(prior, X)
        n, m = self.A.shape
        # Multiply-adds of a draw of z given omega, from n pseudo-observations or from m natural parameters.
        self._from_rows = n**3 / 6 < n * m**2 + m**3 / 6
        self._gram = self.A @ self.A.T if self._from_rows else None

    @staticmethod
    def rows(prior: Prior, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Whitened rows (r, m) and what they leave of the variance (r,)."""
        A = prior.core.cross(X) @ prior.Linv.T
        residual = prior.core.diagonals(X) - np.einsum("ij,ij->i", A, A)
        # The mean diagonal of the inducing points' matrix, which the jitter is relative to, is a sum of squares of L.
        residual[residual <= 2.0 * prior.jitter * np.sum(prior.L**2) / len(prior.L)] = 0.0
        return A, residual

    def draw(self, omega: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """z (m,) and e (n,) given Polya-Gamma variables.

        omega makes f_i a normal observation of y_i / (2 omega_i) with variance 1 / omega_i. From the rows by Matheron's
        rule, z = z_0 + A^T (A A^T + D)^{-1} (y / (2 omega) - A z_0 - eps), eps ~ N(0, D), D = diag(k + 1 / omega), in
        O(n^3), or as ``Conditional`` in O(n m^2).
        """
        if self._gram is None:
            Z, E = Conditional(self, omega, 0.5 * self.y).draw(1, rng)
            return Z[:, 0], E[:, 0]
        n, m = self.A.shape
        noise = self.residual + 1.0 / omega
        start = rng.standard_normal(m)
        S = self._gram.copy()
        S.ravel()[:: n + 1] += noise
        difference = 0.5 * self.y / omega - self.A @ start - np.sqrt(noise) * rng.standard_normal(n)
        z = start + self.A.T @ cho_solve((np.linalg.cholesky(S), True), difference, check_finite=False)
        return z, self.draw_residual((self.A @ z)[:, None], omega, 0.5 * self.y, rng)[:, 0]

    def draw_residual(
        self, g: np.ndarray, precision: np.ndarray, linear: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """e (n, count) given g = A z (n, count) and the rows' factors exp(-precision f^2 / 2 + linear f)."""
        if not np.any(self.residual):
            return np.zeros_like(g)
        variance = (self.residual / (1.0 + precision * self.residual))[:, None]
        mean = variance * (linear[:, None] - precision[:, None] * g)
        return mean + np.sqrt(variance) * rng.standard_normal(g.shape)

    def log_likelihood(self, f: np.ndarray) -> np.ndarray:
        """log p(y | f), (...) for f (n, ...)."""
        return -np.sum(np.logaddexp(0.0, -(f.T * self.y).T), axis=0)


class Conditional:
    """The prior times a factor exp(-precision f_i^2 / 2 + linear f_i) for each row: a normal distribution of z and e.

    With e integrated out, z ~ N(P^{-1} h, P^{-1}), P = I + sum_i precision_i / (1 + precision_i k_i) a_i a_i^T and
    h = sum_i linear_i / (1 + precision_i k_i) a_i. O(n m^2).
    """

    def __init__(self, model: Model, precision: np.ndarray, linear: np.ndarray):
        self.model, self.precision, self.linear = model, precision, linear
        shrink = 1.0 / (1.0 + precision * model.residual)
        P = model.A.T @ ((precision * shrink)[:, None] * model.A)
        P.ravel()[:: len(P) + 1] += 1.0
        self._root = np.linalg.cholesky(P)
        self._mean = cho_solve((self._root, True), model.A.T @ (linear * shrink), check_finite=False)

    def draw(self, count: int, rng: np.random.Generator, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """z (m, count), of ``scale`` times the standard deviation, and e (n, count) given it; O(n m) each."""
        noise = rng.standard_normal((len(self._mean), count))
        Z = self._mean[:, None] + scale * solve_triangular(self._root, noise, lower=True, trans=1, check_finite=False)
        return Z, self.model.draw_residual(self.model.A @ Z, self.precision, self.linear, rng)


class Proposals:
    """Metropolis steps whose proposals are independent draws from the variational posterior of the exact bound.

    Its sites make it the prior times a normal factor for each row: the ratio of posterior and proposal density is that
    of the likelihood and the factors, O(n) beyond f.
    """

    def __init__(self, model: Model, X: np.ndarray, n_jobs: int | None):
        site = _engine.SITES["logit", "exact"]
        with Passes(X, model.y, None, model.prior.n_inducing, n_jobs) as passes:
            q = SparsePosterior.at_prior(model.prior)
            coordinate_ascent(passes, q, site, tol=PROPOSAL_TOL, max_iter=PROPOSAL_MAX_ITER, history=History())
            self.model, self.normal = model, Conditional(model, passes.precision.copy(), passes.linear.copy())

    def log_weight(self, f: np.ndarray) -> np.ndarray:
        """log p(y | f) less the logarithms of the factors, (count,) for f (n, count)."""
        q = self.normal
        return self.model.log_likelihood(f) - q.linear @ f + 0.5 * q.precision @ f**2

    def steps(
        self, z: np.ndarray, e: np.ndarray, count: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        """States z (m, count), e and f (n, count) after each step from z and e, and how many were accepted."""
        proposed, residuals = self.normal.draw(count, rng)
        Z, E = np.column_stack([z, proposed]), np.column_stack([e, residuals])
        F = self.model.A @ Z + E
        log_weight = self.log_weight(F)
        log_uniform = np.log(rng.uniform(size=count))
        path = np.zeros(count + 1, dtype=np.intp)
        for step in range(1, count + 1):
            here = path[step - 1]
            path[step] = step if log_uniform[step - 1] < log_weight[step] - log_weight[here] else here
        accepted = int(np.count_nonzero(np.diff(path)))
        return Z[:, path[1:]], E[:, path[1:]], F[:, path[1:]], accepted


class Chain:
    """One chain: its kept draws and sums over all its states."""

    def __init__(self, n_samples: int, m: int, n_watched: int):
        self.draws = np.empty((n_samples, m))
        self.watched = np.empty((n_samples, n_watched + 1))
        self.count, self.accepted, self.sum, self.squares = 0, 0, np.zeros(m), np.zeros((m, m))


def _polya_gamma_sampler() -> Callable[[np.ndarray, np.random.Generator], np.ndarray]:
    """Draws of PG(1, c) for c (n,), exact."""
    try:
        from polyagamma import random_polyagamma
    except ImportError:
        raise ImportError("GibbsClassifier needs the polyagamma package: pip install 'xgpc[gibbs]'.") from None
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


class GibbsClassifier(ClassifierMixin, BaseEstimator):
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
        points but for an independent residual at each row (FITC), O(n m^2) a sweep.
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
    samples_ : (n_chains, n_samples, m)
        Kept draws of the whitened latent values z: the latent function at the inducing points is L z, with L the
        Cholesky factor of their covariance matrix, ``prior_.L``.
    prior_ : xgpc.posterior.Prior
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
    O(n (n + m) + n_chains (n_samples m + m^2)). Polya-Gamma variables are drawn by the polyagamma package, exactly
    (method of Devroye): a maintained library, and a hundredth of a sweep's time.

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
    >>> sampler = GibbsClassifier(4.0 * RBF(0.7), n_samples=100, random_state=0).fit(X, y)
    >>> mean, variance = sampler.predict_latent(X)
    >>> mean.shape
    (100,)
    """

    def __init__(
        self,
        kernel=None,
        *,
        inducing_points="all",
        n_samples=1000,
        thin=10,
        n_warmup=20,
        n_chains=4,
        n_proposals=N_PROPOSALS,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
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
        fitted = copy.copy(self)
        fitted._fit(X, y)
        self.__dict__ = fitted.__dict__
        return self

    def _fit(self, X: Any, y: Any) -> None:
        polya_gamma = _polya_gamma_sampler()
        self._check()
        rows, codes, classes, _ = training_data(self, X, y, None)
        if len(classes) != 2:
            raise ValueError(
                f"Only binary classification is supported. GibbsClassifier is for two classes; got {len(classes)}: "
                f"{classes.tolist()}."
            )
        rows = np.ascontiguousarray(rows, dtype=np.float64)
        random_state = check_random_state(self.random_state)
        prior = self._prior(rows, classes[codes], random_state)
        seeds = np.random.SeedSequence(random_state.randint(2**31, size=4).tolist()).spawn(self.n_chains)
        total = self.n_chains * (self.n_warmup + self._sweeps)
        with single_threaded_blas, _progress(total, self.verbose) as advance:
            model = Model(prior, rows, np.where(codes == 1, 1.0, -1.0))
            proposals = Proposals(model, rows, self.n_jobs)
            watched = np.sort(random_state.permutation(len(rows))[:WATCHED])

            # An interrupt comes to the calling thread alone, and what fails in one chain need not wait for the others.
            stop = Event()

            def run(seed: np.random.SeedSequence) -> Chain:
                try:
                    return self._run(model, proposals, watched, polya_gamma, np.random.default_rng(seed), advance, stop)
                except BaseException:
                    stop.set()
                    raise

            with ThreadPoolExecutor(min(effective_n_jobs(self.n_jobs), self.n_chains)) as pool:
                try:
                    chains = list(pool.map(run, seeds))
                finally:
                    stop.set()
        self._set_fit(chains, prior, classes)
        if not self.r_hat_ <= LARGEST_R_HAT:
            warnings.warn(
                f"R-hat is {self.r_hat_:.3f}, above {LARGEST_R_HAT}: the chains disagree. Raise n_samples or n_warmup.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _check(self) -> None:
        least = {"n_samples": 4, "thin": 1, "n_warmup": 0, "n_chains": 1, "n_proposals": 0}
        for name, low in least.items():
            value = getattr(self, name)
            if not is_integer(value) or value < low:
                raise ValueError(f"{name} must be an integer of at least {low}; got {value!r}.")
        if isinstance(self.inducing_points, str) and self.inducing_points != "all":
            raise ValueError(f"inducing_points must be 'all' or an array (m, d); got {self.inducing_points!r}.")

    def _prior(self, X: np.ndarray, y: np.ndarray, random_state: np.random.RandomState) -> Prior:
        """Kernel, learned if none is given, and inducing points."""
        model = GPClassifier(
            self.kernel,
            inducing_points=self.inducing_points,
            optimizer="profile" if self.kernel is None else None,
            learn_inducing=False,
            n_jobs=self.n_jobs,
            random_state=random_state,
        ).fit(X, y)
        return Prior.build(KernelSpec(model.kernel_, X.shape[1]), model.inducing_points_)

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

    def _set_fit(self, chains: list[Chain], prior: Prior, classes: np.ndarray) -> None:
        count = sum(chain.count for chain in chains)
        self._mean = sum(chain.sum for chain in chains) / count
        self._covariance = sum(chain.squares for chain in chains) / count - np.outer(self._mean, self._mean)
        self.samples_ = np.stack([chain.draws for chain in chains])
        watched = np.stack([chain.watched for chain in chains])
        self.r_hat_ = float(np.max(split_r_hat(watched)))
        self.ess_ = float(np.min(effective_sample_size(watched)))
        proposals = len(chains) * self._sweeps * self.n_proposals
        self.acceptance_rate_ = sum(chain.accepted for chain in chains) / proposals if proposals else np.nan
        self.prior_, self.classes_ = prior, classes
        self.kernel_, self.inducing_points_ = prior.spec.kernel, np.array(prior.Z)

    def _whitened(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        with single_threaded_blas:
            return Model.rows(self.prior_, X)

    def predict_latent(self, X: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and variance (n,) of the latent function at the rows of X.

        Rao-Blackwellised: the means over all states of the chains of what they are given z, with the variance of the
        former added.
        """
        A, residual = self._whitened(X)
        return A @ self._mean, residual + np.einsum("ij,ij->i", A @ self._covariance, A)

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Probabilities (n, 2), the means over the kept draws of those given z."""
        A, residual = self._whitened(X)
        draws = self.samples_.reshape(-1, A.shape[1])
        positive = np.zeros(len(A))
        for first in range(0, len(draws), DRAWS):
            means = A @ draws[first : first + DRAWS].T
            variance = np.repeat(residual, means.shape[1])
            positive += _engine.logistic_normal_mean(means.ravel(), variance).reshape(means.shape).sum(axis=1)
        positive /= len(draws)
        return np.column_stack([1.0 - positive, positive])

    def predict_log_proba(self, X: ArrayLike) -> np.ndarray:
        """Logarithms (n, 2) of the probabilities."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The more probable class of each row of X: (n,) array."""
        probabilities = self.predict_proba(X)
        return self.classes_[np.argmax(probabilities, axis=1)]

    def sample_latent(self, X: ArrayLike) -> np.ndarray:
        """Draws (n_chains, n_samples, n) of the latent function's part that its values at the inducing points fix.

        At other rows than those its residual variance, which is in ``predict_latent``, is left out.
        """
        A, _ = self._whitened(X)
        return self.samples_ @ A.T

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = False
        return tags
