"""Diverged runs are outcomes: an exact rate, and a loss effect that counts them as the worst.

Worst-rank adaptive trimmed means (Permutt and Li 2017): trim the same share of the worst runs from
both arms, at least all that diverged in either, and compare the means of the rest: "the typical
run, where as many fail as failed here". Tested by relabelling runs, with the trimming redone for
every relabelling; the interval is what no shift of the arm's finished losses rejects.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from reports.stats.simultaneous import Array

Labels = NDArray[np.bool_]

# All of them up to 7 against 7; beyond, this many at random with a fixed seed, the observed one
# among them
MAX_RELABELLINGS = 4000


@dataclass(frozen=True, kw_only=True)
class Permuted:
    """The difference of trimmed means, arm minus baseline, as relabelling runs judges it."""

    delta: float  # nan where an arm has no finished run left
    low: float | None
    high: float | None
    p: float
    p_attainable: float


def exact_rate(count: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's (1934) interval of a rate of `count` in `n`."""
    if not 0 <= count <= n or n < 1:
        raise ValueError(
            f"a rate of {count} in {n} is impossible: give 0 <= count <= n with n >= 1"
        )
    tail = (1 - level) / 2
    low, high = 0.0, 1.0
    if count > 0:
        low = float(stats.beta.ppf(tail, count, n - count + 1))
    if count < n:
        high = float(stats.beta.ppf(1 - tail, count + 1, n - count))
    return low, high


@lru_cache(maxsize=8)
def labels(n_arm: int, n: int) -> Labels:
    """(R, n) bool: which runs are called arm, the observed labelling first."""
    total = math.comb(n, n_arm)
    if total <= MAX_RELABELLINGS:
        rows = np.zeros((total, n), bool)
        for row, chosen in zip(rows, itertools.combinations(range(n), n_arm), strict=True):
            row[list(chosen)] = True
        return rows
    rng = np.random.default_rng(20170401)
    rows = rng.permuted(np.tile(np.arange(n) < n_arm, (MAX_RELABELLINGS, 1)), axis=1)
    rows[0] = np.arange(n) < n_arm
    return rows


def trimmed_differences(values: Array, labels: Labels) -> Array:
    """Difference of trimmed means per labelling, (R,); inf in `values` marks a diverged run.

    It is inf where all of an arm diverged."""
    order = np.argsort(values, kind="stable")
    sorted_values, is_arm = values[order], labels[:, order]
    bad = ~np.isfinite(sorted_values)
    diverged_arm = (is_arm & bad).sum(1) / is_arm.sum(1)
    diverged_baseline = (~is_arm & bad).sum(1) / (~is_arm).sum(1)
    share = np.maximum(diverged_arm, diverged_baseline)
    mean_arm = _trimmed_means(sorted_values, is_arm, bad, share)
    mean_baseline = _trimmed_means(sorted_values, ~is_arm, bad, share)
    none_left = np.isnan(mean_arm) | np.isnan(mean_baseline)
    more = diverged_arm - diverged_baseline
    of_none = np.select([more > 0, more < 0], [np.inf, -np.inf], 0.0)
    return np.where(none_left, of_none, mean_arm - mean_baseline)


def _trimmed_means(sorted_values: Array, members: Labels, bad: Labels, share: Array) -> Array:
    """Mean of the members' best values per labelling, (R,), without the worst `share`."""
    n = members.sum(1)
    keep_n = n - np.ceil(share * n - 1e-9).astype(int)
    kept = members & (np.cumsum(members, axis=1) <= keep_n[:, None]) & ~bad
    n_kept = kept.sum(1)
    total = np.where(kept, sorted_values, 0.0).sum(1)
    means = np.full(len(total), np.nan)
    np.divide(total, n_kept, out=means, where=n_kept > 0)
    return means


def permuted_effect(
    arm: Array, arm_diverged: int, baseline: Array, baseline_diverged: int, *, alpha: float
) -> Permuted:
    """Trimmed mean difference of finished losses with diverged runs ranked worst.

    arm, baseline: finished losses; arm_diverged, baseline_diverged: how many runs diverged. With
    its permutation p and the interval of the shifts that are not rejected at alpha."""
    worst_of_arm = np.full(arm_diverged, np.inf)
    worst_of_baseline = np.full(baseline_diverged, np.inf)
    values = np.concatenate([arm, worst_of_arm, baseline, worst_of_baseline])
    n_arm = len(arm) + arm_diverged
    called = labels(n_arm, len(values))

    def p_of(shift: float) -> float:
        shifted = np.concatenate([values[:n_arm] - shift, values[n_arm:]])
        d = np.abs(trimmed_differences(shifted, called))
        return float((d >= d[0] - 1e-12 * max(1.0, abs(shift))).mean())

    attainable = _attainable_p(n_arm, len(values))
    delta = float(trimmed_differences(values, called[:1])[0])
    p = p_of(0.0)
    if not np.isfinite(delta):
        return Permuted(delta=math.nan, low=None, high=None, p=p, p_attainable=attainable)
    if attainable > alpha:
        return Permuted(delta=delta, low=None, high=None, p=p, p_attainable=attainable)
    step = max(float(np.ptp(values[np.isfinite(values)])), 1e-9)
    low = _end(p_of, delta, side=-1, step=step, alpha=alpha)
    high = _end(p_of, delta, side=1, step=step, alpha=alpha)
    return Permuted(delta=delta, low=low, high=high, p=p, p_attainable=attainable)


def _end(
    p_of: Callable[[float], float], delta: float, *, side: int, step: float, alpha: float
) -> float:
    """The end of the interval on one side (-1 below, 1 above) of delta, at steps from `step` on."""
    while p_of(delta + side * step) > alpha and step < 1e6 * max(1.0, abs(delta)):
        step *= 2
    inside, outside = 0.0, step
    if p_of(delta + side * step) > alpha:
        return side * math.inf
    for _ in range(26):  # to 1e-8 of the first step
        middle = (inside + outside) / 2
        if p_of(delta + side * middle) > alpha:
            inside = middle
        else:
            outside = middle
    return delta + side * outside


def _attainable_p(n_arm: int, n: int) -> float:
    """Smallest two-sided p of relabelling n runs.

    Both extremes count where the arms are of equal size, and one where relabellings are drawn."""
    total = math.comb(n, n_arm)
    if total > MAX_RELABELLINGS:
        return 1 / MAX_RELABELLINGS
    extremes = 2 if 2 * n_arm == n else 1
    return extremes / total
