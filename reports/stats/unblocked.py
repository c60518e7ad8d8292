"""Two samples without common blocks: Welch's t, widened.

Until it errs no more than it says, whatever the two sds are. Welch's (1947) interval misses more
often than it says where the smaller sample is the noisier one: at 95 % in 7 % with 3 runs against
10, for one of four arms in 13 % instead of 5 %. How often depends on the numbers of runs and on the
ratio of the sds alone, and is an integral over two chi squares. So its half width is multiplied by
`widening`, the least factor at which no ratio misses more often than alpha: 1.1 for 3 against 3
runs, 1.01 for 10 against 10. Where even so the interval is much wider than one who knows the ratio
would make it, the runs are `too_few` and there is none.
"""

from functools import lru_cache

import numpy as np
from scipy import optimize, stats
from scipy.special import expit, ndtr

from reports.stats.simultaneous import Array

NODES = 48  # of each chi square; the factor is then known to 0.0005
# Of the first sample in the variance of the difference: every ratio of sds
SHARES = expit(np.linspace(-6, 6, 33))
# Of alpha, so that neither the integral's nor the simulation study's error takes it beyond alpha
AIM = 0.99
WIDEST = 1.5  # times the width of one who knows the ratio of the sds; at RATIOS of one another
RATIOS = (0.5, 1.0, 2.0)


def welch(a: Array, b: Array) -> tuple[float, float, float]:
    """(difference, standard error, Satterthwaite df) of independent samples.

    The last two are nan where a sample has fewer than two values."""
    delta = float(a.mean() - b.mean())
    if len(a) < 2 or len(b) < 2:
        return delta, np.nan, np.nan
    var_a, var_b = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    if var_a + var_b == 0:
        return delta, 0.0, len(a) + len(b) - 2.0
    df = (var_a + var_b) ** 2 / (var_a**2 / (len(a) - 1) + var_b**2 / (len(b) - 1))
    return delta, float(np.sqrt(var_a + var_b)), float(df)


@lru_cache(maxsize=256)
def widening(n: int, n0: int, alpha: float) -> float:
    """Factor on Welch's half width at level 1 - alpha for n against n0 runs.

    1 where Welch's is never too narrow."""
    half, weight = _halves(n, n0, alpha, SHARES)

    def excess(factor: float) -> float:
        return float((2 * ndtr(-factor * half) * weight).sum((1, 2)).max()) - AIM * alpha

    if excess(1.0) <= 0:
        return 1.0
    return float(optimize.brentq(excess, 1.0, 10.0, xtol=1e-12))


@lru_cache(maxsize=256)
def too_few(n: int, n0: int, alpha: float) -> bool:
    """Whether n against n0 runs leave no interval worth printing at level 1 - alpha."""
    if min(n, n0) < 2:
        return True
    shares = np.array([ratio**2 / n / (ratio**2 / n + 1 / n0) for ratio in RATIOS])
    halves, weight = _halves(n, n0, alpha, shares)
    widest = max(_median(half.ravel(), weight.ravel()) for half in halves)
    known_ratio = stats.t.isf(alpha / 2, n + n0 - 2)
    return bool(widening(n, n0, alpha) * widest > WIDEST * known_ratio)


def more_runs(n: int, n0: int, alpha: float) -> int:
    """Runs to add to both samples until they are not too few."""
    more = 0
    while too_few(n + more, n0 + more, alpha):
        more += 1
    return more


def _halves(n: int, n0: int, alpha: float, shares: Array) -> tuple[Array, Array]:
    """(Welch's half widths (S, NODES, NODES) over drawn variances, their weights).

    Where the difference has variance 1."""
    x, w = np.polynomial.legendre.leggauss(NODES)
    v = stats.chi2.ppf((x + 1) / 2, n - 1) / (n - 1)
    v0 = stats.chi2.ppf((x + 1) / 2, n0 - 1) / (n0 - 1)
    a, b = shares[:, None, None] * v[:, None], (1 - shares[:, None, None]) * v0
    one_over_df = (a**2 / (n - 1) + b**2 / (n0 - 1)) / (a + b) ** 2
    grid = np.linspace(0, 1, 2001)  # in 1 / df t's quantile is smooth
    with np.errstate(divide="ignore"):
        quantile = np.interp(one_over_df, grid, stats.t.isf(alpha / 2, 1 / grid))
    return quantile * np.sqrt(a + b), np.outer(w, w) / 4


def _median(values: Array, weights: Array) -> float:
    order = np.argsort(values)
    return float(values[order][np.searchsorted(weights[order].cumsum(), 0.5)])
