"""Diverged runs are outcomes: an exact rate, and a loss effect that counts them as worse than any finished run.

Worst-rank adaptive trimmed means (Permutt and Li 2017): trim the same share of the worst runs from both arms, at least all that
diverged
in either, and compare the means of the rest: "the typical run, where as many fail as failed here". Tested by relabelling runs,
with the
trimming redone for every relabelling; the interval is what no shift of the arm's finished losses rejects.
"""

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import stats

from reports.stats.simultaneous import Array

MAX_RELABELLINGS = (
    4000  # all of them up to 7 against 7; beyond, this many at random with a fixed seed, the observed one among them
)


@dataclass(frozen=True, kw_only=True)
class Permuted:
    delta: float  # difference of trimmed means, arm minus baseline; nan where an arm has no finished run left
    low: float | None
    high: float | None
    p: float
    p_attainable: float


def exact_rate(count: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's (1934) interval of a rate of `count` in `n`."""
    if not 0 <= count <= n or n < 1:
        raise ValueError(f"a rate of {count} in {n} is impossible: give 0 <= count <= n with n >= 1")
    a = (1 - level) / 2
    low = 0.0 if count == 0 else float(stats.beta.ppf(a, count, n - count + 1))
    high = 1.0 if count == n else float(stats.beta.ppf(1 - a, count + 1, n - count))
    return low, high


@lru_cache(maxsize=8)
def labels(n_arm: int, n: int) -> np.ndarray:
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


def trimmed_differences(values: Array, labels: np.ndarray) -> Array:
    """Difference of trimmed means per labelling, (R,); inf in `values` marks a diverged run. An arm all diverged is inf."""
    order = np.argsort(values, kind="stable")
    sorted_values, is_arm = values[order], labels[:, order]
    bad = ~np.isfinite(sorted_values)
    share = np.maximum((is_arm & bad).sum(1) / is_arm.sum(1), (~is_arm & bad).sum(1) / (~is_arm).sum(1))
    means = []
    for mine in (is_arm, ~is_arm):
        keep_n = mine.sum(1) - np.ceil(share * mine.sum(1) - 1e-9).astype(int)
        kept = mine & (np.cumsum(mine, axis=1) <= keep_n[:, None]) & ~bad
        n_kept = kept.sum(1)
        total = np.where(kept, sorted_values, 0.0).sum(1)
        means.append(np.divide(total, n_kept, out=np.full(len(total), np.nan), where=n_kept > 0))
    none_left = np.isnan(means[0]) | np.isnan(means[1])
    more = (is_arm & bad).sum(1) / is_arm.sum(1) - (~is_arm & bad).sum(1) / (~is_arm).sum(1)
    return np.where(none_left, np.select([more > 0, more < 0], [np.inf, -np.inf], 0.0), means[0] - means[1])


def permuted_effect(arm: Array, arm_diverged: int, baseline: Array, baseline_diverged: int, *, alpha: float) -> Permuted:
    """Trimmed mean difference of finished losses with diverged runs ranked worst, its permutation p and inverted interval."""
    values = np.concatenate([arm, np.full(arm_diverged, np.inf), baseline, np.full(baseline_diverged, np.inf)])
    n_arm = len(arm) + arm_diverged
    called = labels(n_arm, len(values))

    def p_of(shift: float) -> float:
        shifted = np.concatenate([values[:n_arm] - shift, values[n_arm:]])
        d = np.abs(trimmed_differences(shifted, called))
        return float((d >= d[0] - 1e-12 * max(1.0, abs(shift))).mean())

    attainable = 1 / len(called) if math.comb(len(values), n_arm) > len(called) else _floor(n_arm, len(values))
    delta = float(trimmed_differences(values, called[:1])[0])
    p = p_of(0.0)
    if not np.isfinite(delta) or attainable > alpha:
        return Permuted(delta=delta if np.isfinite(delta) else math.nan, low=None, high=None, p=p, p_attainable=attainable)
    ends = []
    for side in (-1, 1):
        step = max(float(np.ptp(values[np.isfinite(values)])), 1e-9)
        while p_of(delta + side * step) > alpha and step < 1e6 * max(1.0, abs(delta)):
            step *= 2
        inside, outside = 0.0, step
        if p_of(delta + side * step) > alpha:
            ends.append(side * math.inf)
            continue
        for _ in range(26):  # to 1e-8 of the first step
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if p_of(delta + side * middle) > alpha else (inside, middle)
        ends.append(delta + side * outside)
    return Permuted(delta=delta, low=ends[0], high=ends[1], p=p, p_attainable=attainable)


def _floor(n_arm: int, n: int) -> float:
    """Smallest two-sided p of a relabelling test: both extremes count where the arms are of equal size."""
    return (2 if 2 * n_arm == n else 1) / math.comb(n, n_arm)
