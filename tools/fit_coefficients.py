"""Fit the constants of ``src/xgpc/coefficients.inc.h`` and print that file.

    python tools/fit_coefficients.py > src/xgpc/coefficients.inc.h

Seven fits; the errors of the first two are measured here and written into the header, the compiled functions that
use the others are held to their stated accuracy by the tests:

* the logistic function as a normal scale mixture, sigma(f) = sum_k p_k Phi(s_k f) with sum p_k = 1
  (Monahan & Stefanski 1992), in the minimax sense, by sequential linear programming;
* -(log Phi)'', which falls from 1 to 0 as a distribution function with a tail of 1 / x^2 would, as a normal mixture,
  sum_k p_k Phi((mu_k - x) / s_k) with sum p_k = 1, such that its first and second integrals fit too;
* the scaled complementary normal distribution function, exp(x^2 / 2) Phi(-x) for x >= 0, as a polynomial
  in (x - 4) / (x + 4) divided by x + 1 (the change of variable of Shepherd & Laframboise 1981);
* the same function, without the factor x + 1, for x up to 7, with a polynomial of half the degree;
* exp on [-log(2) / 2, log(2) / 2], atanh(s) / s and tanh(c / 2) / (2 c) as polynomials through Chebyshev nodes.

Needs mpmath, NumPy and SciPy.
"""

import mpmath as mp
import numpy as np
from scipy.optimize import least_squares, linprog
from scipy.special import erfcx, expit, log_ndtr, ndtr

MIXTURE_COMPONENTS = 8
PROBIT_POWERS = (2, 4, 8, 16, 32)
# p, mu, s: an earlier fit, itself from scales about a quarter of the locations, both in geometric progression.
PROBIT_START = [
    (0.0696, 1.951, 0.7974),
    (0.1663, 1.565, 0.7288),
    (0.1737, 0.9563, 0.7651),
    (0.0452, 0.324, 0.7767),
    (0.2753, 0.3182, 1.072),
    (0.1493, -0.7361, 1.297),
    (0.06572, -2.164, 1.577),
    (0.03025, -4.014, 1.974),
    (0.01412, -6.677, 2.505),
    (0.005595, -10.7, 3.025),
    (0.002495, -15.94, 3.676),
    (0.00112, -22.75, 4.412),
    (0.0005583, -31.15, 5.632),
    (0.0003567, -41.99, 8.491),
    (0.0002365, -59.6, 14.37),
    (0.0001089, -96.72, 23.51),
    (4.128e-05, -179.0, 41.48),
    (1.241e-05, -439.8, 96.06),
]
TAIL_DEGREE = 23
# Of x up to NEAR_TAIL, in (x - 5) / (x + 5); the degree leaves exp(-x^2 / 2) times the error at 6e-13.
NEAR_TAIL, NEAR_TAIL_CENTRE, NEAR_TAIL_DEGREE = 7, 5, 11
EXP_DEGREE = 11
ATANH_DEGREE = 10
PG_MEAN_DEGREE = 7

mp.mp.dps = 50


def mixture_residual(params, f):
    """Error of the mixture and its Jacobian in (log p, log s); p is normalised inside."""
    log_p, log_s = np.split(params, 2)
    p = np.exp(log_p - np.logaddexp.reduce(log_p))
    s = np.exp(log_s)
    cdf = ndtr(np.outer(f, s))
    value = cdf @ p
    d_log_p = p * (cdf - value[:, None])
    z = np.outer(f, s)
    d_log_s = p * z * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    return value - expit(f), np.hstack([d_log_p, d_log_s])


def fit_mixture(components):
    """Minimax fit: least squares for a start, then linear programmes in a shrinking trust region."""
    f = np.concatenate([np.linspace(0, 12, 1500), np.linspace(12, 45, 500)[1:]])
    start = np.concatenate([np.zeros(components), np.linspace(np.log(0.22), np.log(1.3), components)])
    # A weight growing towards the tail spreads the error evenly before the minimax step sees it.
    start = least_squares(
        lambda q: 1e6 * mixture_residual(q, f)[0],
        start,
        lambda q: 1e6 * mixture_residual(q, f)[1],
        xtol=1e-15,
        ftol=1e-15,
        gtol=1e-15,
        max_nfev=20000,
    ).x
    params, radius = start, 0.1
    error, jacobian = mixture_residual(params, f)
    best = np.abs(error).max()
    while radius > 1e-12:
        unit = best
        ones = np.ones((f.size, 1))
        constraints = np.vstack([np.hstack([jacobian, -unit * ones]), np.hstack([-jacobian, -unit * ones])]) / unit
        limits = np.concatenate([-error, error]) / unit
        bounds = [(-radius, radius)] * params.size + [(0, None)]
        step = linprog(np.eye(params.size + 1)[-1], constraints, limits, bounds=bounds, method="highs")
        if step.x is None:
            radius /= 4
            continue
        trial = params + step.x[:-1]
        trial_error, trial_jacobian = mixture_residual(trial, f)
        trial_best = np.abs(trial_error).max()
        if trial_best < best:
            gain = 1 - trial_best / best
            params, error, jacobian, best = trial, trial_error, trial_jacobian, trial_best
            radius *= 2 if gain > 1e-3 else 0.5
        else:
            radius /= 4
    log_p, log_s = np.split(params, 2)
    order = np.argsort(log_s)
    p = np.exp(log_p - np.logaddexp.reduce(log_p))[order]
    return p / p.sum(), np.exp(log_s)[order]


def mixture_errors(p, s):
    """Largest errors of sigma, of softplus (sigma's integral) and of sigma' over a fine grid."""
    f = np.linspace(0, 60, 600_001)
    z = np.outer(f, s)
    pdf = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    sigma = ndtr(z) @ p - expit(f)
    softplus = f + (pdf / s - f[:, None] * np.exp(log_ndtr(-z))) @ p - np.logaddexp(0, f)
    slope = pdf @ (p * s) - expit(f) * expit(-f)
    return np.abs(sigma).max(), np.abs(softplus).max(), np.abs(slope).max()


def probit_values(x):
    """-log Phi and its first two derivatives, -w and w (w + x) with w = phi / Phi."""
    w = np.sqrt(2 / np.pi) / erfcx(-x / np.sqrt(2))
    return np.array([-log_ndtr(x), -w, w * (w + x)])


def probit_mixture(params, x):
    """Second derivative sum_k p_k Phi((mu_k - x) / s_k) and its integrals, with Jacobians in (log p, mu / s, log s)."""
    log_p, centre, log_s = np.split(params, 3)
    p = np.exp(log_p - np.logaddexp.reduce(log_p))
    s = np.exp(log_s)
    z = centre - x[:, None] / s
    cdf, pdf = ndtr(z), np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    # Of each component the loss, then its derivatives by x up to the fourth.
    orders = [s**2 * ((z**2 + 1) * cdf + z * pdf) / 2, -s * (z * cdf + pdf), cdf, -pdf / s, -z * pdf / s**2]
    values, jacobians = [], []
    for value, slope, curvature in zip(orders, orders[1:], orders[2:], strict=False):
        mean = value @ p
        values.append(mean)
        d_log_s = p * (s**2 * curvature - centre * s * slope)  # the heat equation, and mu = centre * s
        jacobians.append(np.hstack([p * (value - mean[:, None]), -p * s * slope, d_log_s]))
    return np.array(values), np.array(jacobians)


def probit_tolerances(x):
    """What the fit allows the errors of the three functions in proportion to."""
    far = np.maximum(1, -x / 60)
    loss = np.where(x > -10, 1, far * np.maximum(10, -log_ndtr(x) / 10))
    slope = np.where(x > -10, 2, far * np.maximum(10, -x / 2))
    return np.array([loss, slope, np.where(x > -10, 5, 10 * far)])


def fit_probit():
    """Nearly minimax fit: least squares from PROBIT_START, then ever higher powers of the errors."""
    x = np.concatenate([-2 * np.sinh(np.linspace(0, np.arcsinh(500), 451))[:0:-1], np.linspace(0, 12, 151)])
    target, tolerance = probit_values(x), probit_tolerances(x)

    def residual(params, power, unit):
        """Of the given power in the error, over two, for the squares to sum to that power; and its Jacobian."""
        values, jacobians = probit_mixture(params, x)
        error = ((values - target) / (unit * tolerance)).ravel()
        size = np.abs(error) ** (power / 2 - 1)
        jacobian = np.vstack(list(jacobians / (unit * tolerance[..., None])))
        return size * error, power / 2 * size[:, None] * jacobian

    p, mu, s = np.array(PROBIT_START).T
    params = np.concatenate([np.log(p), mu / s, np.log(s)])
    for power in PROBIT_POWERS:
        unit = np.abs(residual(params, 2, 1)[0]).max()
        params = least_squares(
            lambda q, *a: residual(q, *a)[0],
            params,
            lambda q, *a: residual(q, *a)[1],
            args=(power, unit),
            method="lm",
            x_scale="jac",
            xtol=1e-15,
            ftol=1e-15,
            gtol=1e-15,
            max_nfev=1500,
        ).x
    log_p, centre, log_s = np.split(params, 3)
    p = np.exp(log_p - np.logaddexp.reduce(log_p))
    return p / p.sum(), centre * np.exp(log_s), np.exp(log_s)


def probit_errors(p, mu, s, x, relative):
    """Largest errors over x of -log Phi, of its first and of its second derivative."""
    values, _ = probit_mixture(np.concatenate([np.log(p), mu / s, np.log(s)]), x)
    exact = probit_values(x)
    error = np.abs(values - exact)
    return np.max(error / np.abs(exact) if relative else error, axis=1)


def chebyshev_to_monomial(function, degree):
    """Monomial coefficients of the interpolant through ``degree + 1`` Chebyshev nodes on [-1, 1]."""
    size = degree + 1
    nodes = [mp.cos(mp.pi * (k + mp.mpf(1) / 2) / size) for k in range(size)]
    vandermonde = mp.matrix(size, size)
    for i, t in enumerate(nodes):
        for j in range(size):
            vandermonde[i, j] = t**j
    return list(mp.lu_solve(vandermonde, mp.matrix([function(t) for t in nodes])))


def shifted_powers(coefficients, shift):
    """Coefficients of p(t + shift) from those of p."""
    shifted = [mp.mpf(0)] * len(coefficients)
    for k, c in enumerate(coefficients):  # (t + shift)^k expanded
        for j in range(k + 1):
            shifted[j] += c * mp.binomial(k, j) * shift ** (k - j)
    return shifted


def fit_even(function, upper, degree):
    """``function(t)`` for t in [0, upper] in powers of t."""
    half = mp.mpf(upper) / 2
    centred = chebyshev_to_monomial(lambda u: function(half * (1 + u)), degree)
    return [c / half**k for k, c in enumerate(shifted_powers(centred, -1))]


def fit_tail(degree):
    """(x + 1) exp(x^2 / 2) Phi(-x) as a polynomial in t = (x - 4) / (x + 4)."""

    def scaled_tail(t):
        if t >= 1:
            return 1 / mp.sqrt(2 * mp.pi)
        x = 4 * (1 + t) / (1 - t)
        if x > 1000:  # Mills ratio: its asymptotic series has converged far beyond 50 digits there
            series = sum((-1) ** k * mp.fac2(2 * k - 1) / x ** (2 * k) for k in range(12))
            return (x + 1) / x * series / mp.sqrt(2 * mp.pi)
        return (x + 1) * mp.exp(x * x / 2) * mp.erfc(x / mp.sqrt(2)) / 2

    return chebyshev_to_monomial(scaled_tail, degree)


def fit_near_tail(degree):
    """exp(x^2 / 2) Phi(-x) for x in [0, NEAR_TAIL] in powers of (x - NEAR_TAIL_CENTRE) / (x + NEAR_TAIL_CENTRE)."""

    def scaled_tail(t):
        x = NEAR_TAIL_CENTRE * t / (2 - t)  # of t - 1
        return mp.exp(x * x / 2) * mp.erfc(x / mp.sqrt(2)) / 2

    upper = 1 + mp.mpf(NEAR_TAIL - NEAR_TAIL_CENTRE) / (NEAR_TAIL + NEAR_TAIL_CENTRE)
    return shifted_powers(fit_even(scaled_tail, upper, degree), 1)


def fit_exp(degree):
    """exp(r) on |r| <= log(2) / 2, constant and linear coefficients fixed at one."""
    half = mp.log(2) / 2

    def rest(t):
        r = half * t
        if abs(r) < mp.mpf("1e-12"):
            return mp.mpf(1) / 2 + r / 6
        return (mp.exp(r) - 1 - r) / r**2

    inner = chebyshev_to_monomial(rest, degree - 2)
    return [mp.mpf(1), mp.mpf(1)] + [c / half**k for k, c in enumerate(inner)]


def c_polynomial(name, coefficients):
    """A C function in Horner's form, written out so that loops around it vectorise."""
    last, *rest = [repr(float(c)) for c in reversed(coefficients)]
    lines = [f"    double value = {last};"]
    for some in (rest[i : i + 3] for i in range(0, len(rest), 3)):
        value = "value"
        for c in some:
            value = f"{value if value == 'value' else f'({value})'} * x + {c}"
        lines.append(f"    value = {value};")
    return "\n".join([f"XG_INLINE double {name}(double x)", "{", *lines, "    return value;", "}"])


def main():
    p, s = fit_mixture(MIXTURE_COMPONENTS)
    sigma, softplus, slope = mixture_errors(p, s)
    probit = fit_probit()
    near = probit_errors(*probit, np.linspace(-10, 40, 500_001), relative=False)
    middle = probit_errors(*probit, np.linspace(-60, -10, 500_001), relative=True)
    far = probit_errors(*probit, -np.geomspace(60, 1e4, 200_001), relative=True)
    tail = fit_tail(TAIL_DEGREE)
    near_tail = fit_near_tail(NEAR_TAIL_DEGREE)
    series = fit_exp(EXP_DEGREE)
    atanh = fit_even(lambda t: mp.atanh(mp.sqrt(t)) / mp.sqrt(t), mp.mpf(1) / 9, ATANH_DEGREE)
    pg_mean = fit_even(lambda t: mp.tanh(mp.sqrt(t) / 2) / (2 * mp.sqrt(t)), mp.mpf(1) / 4, PG_MEAN_DEGREE)
    print("/* Generated by tools/fit_coefficients.py; do not edit. */")
    print("#pragma once\n")
    print("/* sigma(f) = sum_k p_k Phi(s_k f): TERM(p_k, 1 / s_k^2) for each k. Largest absolute errors over")
    print(f" * all f, measured: sigma {sigma:.1e}, softplus {softplus:.1e}, sigma' {slope:.1e}. */")
    terms = [f"    TERM({float(a)!r}, {float(b)!r})" for a, b in zip(p, 1 / s**2, strict=True)]
    print("#define XG_LOGISTIC_MIXTURE(TERM) \\\n" + " \\\n".join(terms))
    print("\n/* -(log Phi)''(x) = sum_k p_k Phi((mu_k - x) / s_k): TERM(p_k, mu_k, s_k^2) for each k. Largest")
    print(" * errors of -log Phi, of its first and of its second derivative, measured: for x > -10 absolute")
    print(f" * {near[0]:.1e}, {near[1]:.1e}, {near[2]:.1e}; for -60 < x < -10 relative")
    print(f" * {middle[0]:.1e}, {middle[1]:.1e}, {middle[2]:.1e}; for -1e4 < x < -60 relative")
    print(f" * {far[0]:.1e}, {far[1]:.1e}, {far[2]:.1e}. */")
    p, mu, s = probit
    terms = [f"    TERM({float(a)!r}, {float(b)!r}, {float(c)!r})" for a, b, c in zip(p, mu, s**2, strict=True)]
    print("#define XG_PROBIT_MIXTURE(TERM) \\\n" + " \\\n".join(terms))
    print("\n/* (x + 1) exp(x^2 / 2) Phi(-x), x >= 0, argument (x - 4) / (x + 4). */")
    print(c_polynomial("xg_tail_polynomial", tail))
    print("\n/* exp(x^2 / 2) Phi(-x), 0 <= x <= 7, argument (x - 5) / (x + 5). */")
    print(c_polynomial("xg_near_tail_polynomial", near_tail))
    print("\n/* exp, argument in [-log(2) / 2, log(2) / 2]. */")
    print(c_polynomial("xg_exp_polynomial", series))
    print("\n/* atanh(s) / s, argument s^2 <= 1 / 9. */")
    print(c_polynomial("xg_atanh_polynomial", atanh))
    print("\n/* tanh(c / 2) / (2 c), argument c^2 <= 1 / 4. */")
    print(c_polynomial("xg_pg_mean_polynomial", pg_mean))


if __name__ == "__main__":
    main()
