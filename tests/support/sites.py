"""Values of sites, and expectations under normal distributions by quadrature."""

from functools import cache

import numpy as np
from scipy.special import log_expit, log_ndtr, log_softmax, logsumexp, ndtr, ndtri
from scipy.stats import qmc

from xgpc import _sites
from xgpc.likelihoods import record_of

DELTA = 0.02
# Points and weights on [-1, 1] of each panel of the quadrature over one latent value.
PANEL_NODES, PANEL_WEIGHTS = np.polynomial.legendre.leggauss(20)

# With additive noise the likelihood is the robust step of the noisy latent values, whose noise has these variances:
# 1 - delta if the label's is the largest (of two classes: has the label's sign), else delta / (C - 1).
NOISE = {"step": 0.0, "probit": 1.0, "logit": 1.702**2}
NOISE |= {f"multinomial-{name}": variance for name, variance in NOISE.items()}
# log p(y | f) of other likelihoods, f (n,) and y = +-1, or f (C, n) and y = 0 .. C - 1.
LOG_LIKELIHOODS = {
    "logit": lambda f, y: log_expit(y * f),
    "probit": lambda f, y: log_ndtr(y * f),
    "softmax": lambda f, y: log_softmax(f, axis=0)[y],
    "logistic-softmax": lambda f, y: log_expit(f[y]) - logsumexp(log_expit(f), axis=0),
}


@cache
def build(name, bound, n_classes):
    return record_of(name, bound).at(DELTA).site(n_classes)


def evaluate(site, m, v, y, weight=()):
    """ell (n,), lambda (L, n) and r (L, n), for m and v that broadcast to (L, n)."""
    m, v = (np.array(a, dtype=np.float64, order="C") for a in np.broadcast_arrays(m, v))
    return _sites.sites(site, m, v, np.array(np.broadcast_to(y, m.shape[1:])), weight)[:3]


def evaluate_one(site, m, v, y):
    """The site of one latent function as (3, n), m, v and y broadcast."""
    m, v, y = np.broadcast_arrays(*np.atleast_1d(m, v, y))
    return np.vstack(evaluate(site, m[None], v[None], y))


def problem(n_latents, seed, n=25, spread=3.0, least=0.3, most=10.0):
    """Means from N(0, spread^2) and log-uniform variances (L, n), and labels of n points."""
    random = np.random.default_rng(seed)
    m = spread * random.normal(size=(n_latents, n))
    v = np.exp(random.uniform(np.log(least), np.log(most), size=m.shape))
    return m, v, random.choice([-1.0, 1.0], size=n) if n_latents == 1 else random.integers(n_latents, size=n)


def panels(centre, sd):
    """Nodes and weights in units of sd around ``centre``, split for a function that bends or jumps at whole numbers."""
    bends = np.clip((np.arange(-60.0, 61.0) - centre) / sd, -14.0, 14.0)
    edges = np.unique(np.concatenate([np.linspace(-14.0, 14.0, 57), bends]))
    half = 0.5 * np.diff(edges)[:, None]
    return 0.5 * (edges[1:] + edges[:-1])[:, None] + half * PANEL_NODES, half * PANEL_WEIGHTS


def expectation(function, m, v):
    """E[function(f)], f ~ N(m, v)."""
    if v == 0.0:
        return function(np.array([m]))[0]
    z, weights = panels(m, np.sqrt(v))
    return np.sum(weights * function(m + np.sqrt(v) * z) * np.exp(-0.5 * z**2)) / np.sqrt(2.0 * np.pi)


@cache
def normal_points(n_classes):
    """Sixteen scramblings of Sobol's sequence, 2048 points each, as standard normal values (C, 16 * 2048)."""
    return np.hstack([ndtri(qmc.Sobol(n_classes, seed=k).random_base2(11)).T for k in range(16)])


GRID_STEPS = {2: 0.1, 3: 0.3}


@cache
def normal_grid(n_classes):
    """Points (C, N) and weights of the trapezoidal rule in a ball, and those of twice its step.

    Of three variables 1.3e-10 are beyond the ball's seven standard deviations, and as much beyond a cube of 6.6.
    """
    half = round(7.0 / GRID_STEPS[n_classes])
    index = np.stack(np.meshgrid(*[np.arange(-half, half + 1)] * n_classes)).reshape(n_classes, -1)
    index = index[:, np.sum((index * GRID_STEPS[n_classes]) ** 2, axis=0) < 49.0]
    z = index * GRID_STEPS[n_classes]
    weights = np.exp(-0.5 * np.sum(z**2, axis=0))
    coarse = weights * np.all(index % 2 == 0, axis=0)
    return z, weights / weights.sum(), coarse / coarse.sum()


def expectation_over_classes(function, m, v, most_in_grid=3):
    """E[function(f)], f (C, N) independent N(m, v), and a bound of its error.

    Of functions smooth over distances about two, in few dimensions, by a tensor rule, whose error is below its
    difference from that of twice the step and 1e-9 for the tails; else by quasi-Monte Carlo, to six standard errors,
    beside which events of probability 1e-4 may be missed.
    """
    if len(m) <= most_in_grid and np.sqrt(v.max()) * GRID_STEPS[len(m)] < 1.5:
        z, fine, coarse = normal_grid(len(m))
        values = function(m[:, None] + np.sqrt(v)[:, None] * z)
        return values @ fine, abs(values @ (fine - coarse)) + 1e-9
    values = function(m[:, None] + np.sqrt(v)[:, None] * normal_points(len(m)))
    means = values.reshape(16, -1).mean(axis=1)
    return means.mean(), 6.0 * means.std(ddof=1) / 4.0 + 1e-4


def probability_of_largest(label, m, v):
    """P(f_y is the largest), f independent N(m, v), and its error: of f_y given the others, which bends for three."""
    return expectation_over_classes(
        lambda f: ndtr((m[label] - np.delete(f, label, axis=0).max(axis=0)) / np.sqrt(v[label])), m, v, most_in_grid=2
    )


def expectation_of_likelihood(name, bound, delta, m, v, y, function, log_likelihoods=LOG_LIKELIHOODS):
    """E[function(log p(y | f))] of one point, m and v (L,), and the error of this reference.

    A likelihood without an entry is what its link predicts without uncertainty.
    """
    record = record_of(name, bound)
    if record.has_label_noise and name in NOISE:
        v = v + NOISE[name]
        p, error = probability_of_largest(y, m, v) if record.is_multi_class else (ndtr(y * m[0] / np.sqrt(v[0])), 0.0)
        with np.errstate(divide="ignore"):
            wrong, right = function(np.log([delta / max(len(m) - 1, 1), 1.0 - delta]))
        return wrong + (right - wrong) * p, (right - wrong) * error

    def by_link(f, y):
        f = f.T if record.is_multi_class else f
        return record.at(delta).log_probabilities(f, np.zeros_like(f))[:, y if record.is_multi_class else int(y > 0)]

    log_likelihood = log_likelihoods.get(name, by_link)
    if record.is_multi_class:
        return expectation_over_classes(lambda f: function(log_likelihood(f, y)), m, v)
    return expectation(lambda f: function(log_likelihood(f.ravel(), y)).reshape(f.shape), m[0], v[0]), 0.0


GUMBEL_VARIANCE = np.pi**2 / 6.0


def normal_plus_gumbel(u, sd):
    """log H and h / H (n,) of N(0, sd^2) plus a standard Gumbel variable at u (n,), without the library's table.

    Given the normal variable by the trapezoidal rule, or given the Gumbel variable where the normal one is the wider.
    """
    if sd < 3.0:
        z = np.arange(-9.0, 9.0, 0.12)
        weight = np.exp(-0.5 * z * z) / np.sum(np.exp(-0.5 * z * z))
        y = np.exp(np.minimum(sd * z - u[:, None], 700.0))
        above, density, below = -np.expm1(-y) @ weight, (y * np.exp(-y)) @ weight, np.exp(-y) @ weight
    else:
        g = np.arange(-4.5, 36.0, 0.25)
        weight = np.exp(-g - np.exp(-g)) / np.sum(np.exp(-g - np.exp(-g)))
        x = (u[:, None] - g) / sd
        above, below = ndtr(-x) @ weight, ndtr(x) @ weight
        density = np.exp(-0.5 * x * x) @ weight / (sd * np.sqrt(2.0 * np.pi))
    log_cdf = np.where(above < 0.5, np.log1p(-np.minimum(above, 0.6)), np.log(np.maximum(below, 1e-300)))
    return log_cdf, density / np.exp(log_cdf)
