"""Fit the constants of ``src/xgpc/coefficients.h`` and print that file.

    python tools/fit_coefficients.py > src/xgpc/coefficients.h

Five fits; the error of the first is measured here and written into the header, the compiled functions that
use the others are held to their stated accuracy by the tests:

* the logistic function as a normal scale mixture, sigma(f) = sum_k p_k Phi(s_k f) with sum p_k = 1
  (Monahan & Stefanski 1992), in the minimax sense, by sequential linear programming;
* the scaled complementary normal distribution function, exp(x^2 / 2) Phi(-x) for x >= 0, as a polynomial
  in (x - 4) / (x + 4) divided by x + 1 (the change of variable of Shepherd & Laframboise 1981);
* exp on [-log(2) / 2, log(2) / 2], atanh(s) / s and tanh(c / 2) / (2 c) as polynomials through Chebyshev nodes.

Needs mpmath, NumPy and SciPy.
"""

import mpmath as mp
import numpy as np
from scipy.optimize import least_squares, linprog
from scipy.special import expit, log_ndtr, ndtr

MIXTURE_COMPONENTS = 8
TAIL_DEGREE = 23
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


def chebyshev_to_monomial(function, degree):
    """Monomial coefficients of the interpolant through ``degree + 1`` Chebyshev nodes on [-1, 1]."""
    size = degree + 1
    nodes = [mp.cos(mp.pi * (k + mp.mpf(1) / 2) / size) for k in range(size)]
    vandermonde = mp.matrix(size, size)
    for i, t in enumerate(nodes):
        for j in range(size):
            vandermonde[i, j] = t**j
    return list(mp.lu_solve(vandermonde, mp.matrix([function(t) for t in nodes])))


def fit_even(function, upper, degree):
    """``function(t)`` for t in [0, upper] in powers of t."""
    half = mp.mpf(upper) / 2
    centred = chebyshev_to_monomial(lambda u: function(half * (1 + u)), degree)
    shifted = [mp.mpf(0)] * (degree + 1)
    for k, c in enumerate(centred):  # (t / half - 1)^k expanded
        for j in range(k + 1):
            shifted[j] += c * mp.binomial(k, j) * (-1) ** (k - j) / half**j
    return shifted


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
    *rest, last = [repr(float(c)) for c in coefficients]
    lines = [f"    double value = {last};"] + [f"    value = value * x + {c};" for c in reversed(rest)]
    return "\n".join([f"XG_INLINE double {name}(double x)", "{", *lines, "    return value;", "}"])


def main():
    p, s = fit_mixture(MIXTURE_COMPONENTS)
    sigma, softplus, slope = mixture_errors(p, s)
    tail = fit_tail(TAIL_DEGREE)
    series = fit_exp(EXP_DEGREE)
    atanh = fit_even(lambda t: mp.atanh(mp.sqrt(t)) / mp.sqrt(t), mp.mpf(1) / 9, ATANH_DEGREE)
    pg_mean = fit_even(lambda t: mp.tanh(mp.sqrt(t) / 2) / (2 * mp.sqrt(t)), mp.mpf(1) / 4, PG_MEAN_DEGREE)
    print("/* Generated by tools/fit_coefficients.py; do not edit. */")
    print("#ifndef XGPC_COEFFICIENTS_H\n#define XGPC_COEFFICIENTS_H\n")
    print("/* sigma(f) = sum_k p_k Phi(s_k f): TERM(p_k, 1 / s_k^2) for each k. Largest absolute errors over")
    print(f" * all f, measured: sigma {sigma:.1e}, softplus {softplus:.1e}, sigma' {slope:.1e}. */")
    terms = [f"    TERM({float(a)!r}, {float(b)!r})" for a, b in zip(p, 1 / s**2, strict=True)]
    print("#define XG_LOGISTIC_MIXTURE(TERM) \\\n" + " \\\n".join(terms))
    print("\n/* (x + 1) exp(x^2 / 2) Phi(-x), x >= 0, argument (x - 4) / (x + 4). */")
    print(c_polynomial("xg_tail_polynomial", tail))
    print("\n/* exp, argument in [-log(2) / 2, log(2) / 2]. */")
    print(c_polynomial("xg_exp_polynomial", series))
    print("\n/* atanh(s) / s, argument s^2 <= 1 / 9. */")
    print(c_polynomial("xg_atanh_polynomial", atanh))
    print("\n/* tanh(c / 2) / (2 c), argument c^2 <= 1 / 4. */")
    print(c_polynomial("xg_pg_mean_polynomial", pg_mean))
    print("\n#endif")


if __name__ == "__main__":
    main()
