"""Intervals that stay valid however often one looks: the t-mixture, and the runs' stopping rule.

Differences d_1, d_2, ... ~ N(mu, sigma^2), both unknown. Against mu = mu0 the Bayes factor with the
right Haar prior on sigma and mu/sigma ~ N(0, g) under the alternative is a test martingale
(Lai 1976; Perez-Ortiz et al. 2024; Wang and Ramdas 2025):
    e_n = (1 + n g)^(-1/2) [(1 + x) / (1 + x / (1 + n g))]^(n/2)
    x = t^2 / (n - 1),  t = sqrt(n) (mean - mu0) / sd
so P(ever e_n >= 1/alpha) <= alpha under mu0, and {mu0: e_n < 1/alpha} covers at all n at once.
That holds for normal differences. A skewed one moves t the way of its short tail: looked at up to
50 blocks, exponential differences were called different in 12 % of cases. So there is a second
sequence, in which t is freed of the skewness that the differences show (Hall 1992):
    h = sqrt(n) (u + a u^2 + a^2 u^3 / 3 + G / (6 n)),  u = (mean - mu0) / sd,  a = G / 3
with G their adjusted skewness. An interval reaches as far as the wider of the two at either end,
though no more than MOST_REACH times as far as the first, and p is the larger: so what holds for
normal differences goes on holding, and no interval is more than 1.15 times as wide as theirs. From
FIRST blocks on, where G says something; unbounded before.

Two samples without pairs, of n and n0 runs: the same martingale with N = n n0 / (n + n0) for n, and
the degrees of freedom for n - 1 (right Haar priors on the common mean and sigma; runs may come in
any order, all of one sample before the first of the other). By the pooled error, and by both
samples' own with Satterthwaite's df; the wider interval counts. The second is for unequal noise:
there the first errs, where the smaller sample is the noisier (13 % at 5 x the sd against 22 runs).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import optimize
from scipy.special import betaln

from reports.stats.intervals import Interval
from reports.stats.simultaneous import Array
from reports.stats.unblocked import welch

FIRST = 7  # blocks from which there is an interval
MOST_REACH = 1.3  # times as far from the mean as for normal differences, at the end that skew moves
PRIOR_VARIANCE = 1.0  # g: tuned to effects of about one sd of the difference; any value is valid


@dataclass(frozen=True, kw_only=True)
class Stop:
    """No more runs, and why."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Continue:
    """More blocks, and why."""

    n: int  # blocks to add, for all arms alike
    reason: str


def log_e_value(t: float | Array, n: int | Array, g: float = PRIOR_VARIANCE) -> Array:
    """log e_n of a t statistic from n differences; evidence against mu0, 0 at n = 1."""
    return log_e_of(t, n, np.maximum(np.asarray(n, float) - 1, 1e-300), g)


def log_e_of(
    t: float | Array, n: float | Array, df: float | Array, g: float = PRIOR_VARIANCE
) -> Array:
    """The same of an estimate whose error is sd / sqrt(n), n no whole number, at so many df."""
    spread, x = 1 + np.asarray(n, float) * g, np.square(t) / df
    log_e: Array = -0.5 * np.log(spread) + (np.asarray(df) + 1) / 2 * (
        np.log1p(x) - np.log1p(x / spread)
    )
    return log_e


def critical_t(n: int | Array, alpha: float, g: float = PRIOR_VARIANCE) -> Array:
    """|t| from which the sequence at level 1 - alpha excludes mu0; inf while n is too small."""
    ns = np.asarray(n, float)
    critical: Array = np.where(ns >= FIRST, critical_of(ns, ns - 1, alpha, g), np.inf)
    return critical


def critical_of(
    n: float | Array, df: float | Array, alpha: float, g: float = PRIOR_VARIANCE
) -> Array:
    """The same of an estimate whose error is sd / sqrt(n), at so many df, however few."""
    spread, dfs = 1 + np.asarray(n, float) * g, np.asarray(df, float)
    k = np.exp(2 / (dfs + 1) * (0.5 * np.log(spread) - np.log(alpha)))
    with np.errstate(divide="ignore", invalid="ignore"):
        x = np.where(k < spread, (k - 1) / (1 - k / spread), np.inf)
    critical: Array = np.sqrt(dfs * x)
    return critical


def attainable_p(n: int, g: float = PRIOR_VARIANCE) -> float:
    """The smallest p that n differences could give, were they all equal."""
    if n < FIRST:
        return 1.0
    return float((1 + n * g) ** (-(n - 1) / 2))


def skewness(d: Array) -> float:
    """Adjusted skewness of d, (n,): 0 below three values or without spread."""
    n, spread = len(d), float(d.std())
    if n < 3 or not spread > 0:
        return 0.0
    third = float(((d - d.mean()) ** 3).mean()) / spread**3
    return third * math.sqrt(n * (n - 1)) / (n - 2)


def without_skew(u: float, n: int, skew: float) -> float:
    """h of u = (mean - mu0) / sd of n differences; rises with u."""
    a = skew / 3
    return math.sqrt(n) * (u + a * u**2 + a**2 * u**3 / 3 + skew / (6 * n))


def with_skew(h: float, n: int, skew: float) -> float:
    """u whose h this is."""
    a, y = skew / 3, h / math.sqrt(n) - skew / (6 * n)
    if abs(a) < 1e-9:
        return y
    cube = 1 + 3 * a * y
    return (math.copysign(abs(cube) ** (1 / 3), cube) - 1) / a


def t_mixture(d: Array, alpha: float) -> tuple[float, float, float]:
    """(low, high, p) of the mean of d, (n,), at every n; +-inf while unbounded.

    p = 1 / e, at most 1."""
    n = len(d)
    if n < FIRST:
        return -np.inf, np.inf, 1.0
    mean, sd, skew = float(d.mean()), float(d.std(ddof=1)), skewness(d)
    critical = float(critical_t(n, alpha))
    low, high = -math.inf, math.inf
    if math.isfinite(critical):
        half = critical / math.sqrt(n)
        low = mean - sd * min(max(half, with_skew(critical, n, skew)), MOST_REACH * half)
        high = mean + sd * min(max(half, -with_skew(-critical, n, skew)), MOST_REACH * half)
    log_e = 0.0
    if sd > 0:
        t, h = math.sqrt(n) * mean / sd, without_skew(mean / sd, n, skew)
        log_e = float(log_e_value(min(abs(t), max(abs(h), abs(t) / MOST_REACH)), n))
    return low, high, float(min(1.0, np.exp(-log_e)))


def independent_t_mixture(a: Array, b: Array, alpha: float) -> tuple[float, float, float]:
    """(low, high, p) of mean(a) - mean(b) without pairs, by the wider of two errors.

    At every number of runs of either; +-inf while one has fewer than FIRST."""
    if min(len(a), len(b)) < FIRST:
        return -math.inf, math.inf, 1.0
    delta, se, df = welch(a, b)
    n = len(a) * len(b) / (len(a) + len(b))
    half, log_e = 0.0, math.inf
    for error, dfs in ((se, df), (pooled_se(a, b), len(a) + len(b) - 2.0)):
        if not error > 0:
            return -math.inf, math.inf, 1.0
        half = max(half, float(critical_of(n, dfs, alpha)) * error)
        log_e = min(log_e, float(log_e_of(delta / error, n, dfs)))
    return delta - half, delta + half, float(min(1.0, np.exp(-log_e)))


def pooled_se(a: Array, b: Array) -> float:
    """Of mean(a) - mean(b), both of one variance."""
    squares = float(((a - a.mean()) ** 2).sum() + ((b - b.mean()) ** 2).sum())
    return math.sqrt(squares / (len(a) + len(b) - 2) * (1 / len(a) + 1 / len(b)))


def rate_sequence(count: int, n: int, alpha: float) -> Interval:
    """Interval of a rate of `count` in `n`, valid at every n (Robbins 1970).

    The rates against which the mixture of rates drawn from Beta(1/2, 1/2) has not gathered evidence
    of 1 / alpha."""
    mixture = float(betaln(count + 0.5, n - count + 0.5) - betaln(0.5, 0.5)) + math.log(alpha)

    def evidence(rate: float) -> float:
        return mixture - count * math.log(rate) - (n - count) * math.log1p(-rate)

    low, high = 0.0, 1.0
    observed, edge = min(max(count / n, 1e-9), 1 - 1e-9), 1e-12
    if count > 0:
        low = float(optimize.brentq(evidence, edge, observed))
    if count < n:
        high = float(optimize.brentq(evidence, observed, 1 - edge))
    return low, high


def smallest_alpha(interval: Callable[[float], Interval | None], *, floor: float = 1e-9) -> float:
    """p of a sequence without a closed form: the smallest alpha whose interval leaves zero.

    By bisection; `floor` or 1 at the ends."""

    def leaves_zero(alpha: float) -> bool:
        ends = interval(alpha)
        return ends is not None and (ends[0] > 0 or ends[1] < 0)

    low, high = floor, 0.999
    if leaves_zero(low):
        return low
    if not leaves_zero(high):
        return 1.0
    for _ in range(48):  # to 1e-13 of p, so that no processor ends elsewhere
        middle = math.sqrt(low * high)
        if leaves_zero(middle):
            high = middle
        else:
            low = middle
    return high
