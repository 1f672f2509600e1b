"""The tables of softmax's expectations.

    python tools/softmax_tables.py

writes ``xgpc/likelihoods/softmax_tables.npz``. Made in each process, they took .2 s of the first fit and .25 s of the
first prediction of several classes.
"""

from pathlib import Path

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from scipy.ndimage import spline_filter, spline_filter1d
from scipy.special import log_ndtr, wrightomega

from xgpc._sites import HAZARD_DEGREE
from xgpc.likelihoods.softmax import GUMBEL_VARIANCE, RHO_NODES, X_HIGH, X_LOW, X_NODES

# The table of the compiled sites has rows as that of the predictions. Each is a polynomial on a range of x; left of
# this range H < exp(-14). The polynomial's variable bends so that the zeros of H in the complex plane, which slow the
# convergence, are far away.
HAZARD_ROWS = 91
BENDS = 0.25, 0.6


def gumbel_normal_row(ratio, x):
    """psi = log(-log H) and -d psi / dx at the standardised x of normal plus Gumbel, ratio = sd g / sd (f + g).

    H = E[exp(-exp(f - t))] by the trapezoidal rule in z = f / sqrt(v), left of the mean about the integrand's mode;
    right of it 1 - H is summed. Both have a relative error near round-off.
    """
    if ratio == 0.0:
        log_cdf = log_ndtr(x)
        return np.log(-log_cdf), np.exp(-0.5 * x * x - 0.5 * np.log(2.0 * np.pi) - log_cdf) / -log_cdf
    sd_sum = np.sqrt(GUMBEL_VARIANCE) / ratio
    t = np.euler_gamma + sd_sum * x
    sd = np.sqrt(max(sd_sum**2 - GUMBEL_VARIANCE, 1e-12))
    step = min(0.1, 0.4 / sd)
    left = x < 0.0
    t_left = t[left, None]
    z = -wrightomega(2.0 * np.log(sd) - t_left) / sd + step * np.arange(-np.ceil(10.0 / step), np.ceil(10.0 / step))
    y = np.exp(np.minimum(sd * z - t_left, 700.0))
    exponent = -y - 0.5 * z * z
    top = exponent.max(axis=1)
    mass = np.exp(exponent - top[:, None])
    total = mass.sum(axis=1)
    minus_log = -(np.log(total * step / np.sqrt(2.0 * np.pi)) + top)
    slope = sd_sum * (mass * y).sum(axis=1) / (total * minus_log)
    z = step * np.arange(-np.ceil(10.0 / step), np.ceil(24.0 / step))
    y = np.exp(np.minimum(sd * z - t[~left, None], 700.0))
    mass = np.exp(-0.5 * z * z) * step / np.sqrt(2.0 * np.pi)
    upper = -np.expm1(-y) @ mass
    minus_log_right = -np.log1p(-upper)
    slope_right = sd_sum * ((y * np.exp(-y)) @ mass) / ((1.0 - upper) * minus_log_right)
    return np.log(np.append(minus_log, minus_log_right)), np.append(slope, slope_right)


def gumbel_normal_tables():
    """Spline coefficients (2, RHO_NODES + 2, X_NODES + 2) of psi and slope, mirrored by one row and column."""
    x = np.linspace(X_LOW, X_HIGH, X_NODES)
    ratios = 1.0 - (1.0 - np.linspace(0.0, 1.0, RHO_NODES)) ** 2
    psi, slope = np.array([gumbel_normal_row(ratio, x) for ratio in ratios]).transpose(1, 0, 2)
    # Mirroring suits rho: the derivatives by it vanish at either end.
    return np.stack([np.pad(spline_filter(values, mode="mirror"), 1, mode="reflect") for values in (psi, slope)])


def bent(y):
    return y * (1.0 + BENDS[0] * y * y) / (1.0 + BENDS[1] * y * y)


def hazard_row(ratio):
    """Coefficients of psi as a polynomial of w, and centre / width, 1 / width, least and largest y."""
    least, largest = -5.8 + 3.0 * ratio - 3.4 * ratio * (1.0 - ratio), 5.8 + 7.0 * ratio
    centre, width = 2.4 - ratio**2, 4.4 + 2.0 * ratio**2
    ends = (np.array([least, largest]) - centre) / width
    # A dense grid stands for the inverse of the increasing function.
    y = np.linspace(ends[0], ends[1], 400)
    fit = Chebyshev.fit(bent(y), gumbel_normal_row(ratio, centre + width * y)[0], HAZARD_DEGREE)
    return np.concatenate([fit.convert(kind=Polynomial).coef, [centre / width, 1.0 / width], ends])


def hazard_table():
    """Table (HAZARD_ROWS + 2, HAZARD_DEGREE + 5) of the compiled sites, see softmax.h."""
    ratios = 1.0 - (1.0 - np.linspace(0.0, 1.0, HAZARD_ROWS)) ** 2
    rows = np.array([hazard_row(ratio) for ratio in ratios])
    return np.pad(spline_filter1d(rows, axis=0, mode="mirror"), ((1, 1), (0, 0)), mode="reflect")


if __name__ == "__main__":
    np.savez(
        Path(__file__).parent.parent / "xgpc" / "likelihoods" / "softmax_tables.npz",
        gumbel_normal=gumbel_normal_tables(),
        hazard=hazard_table(),
    )
