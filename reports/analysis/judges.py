"""Judges of contrasts of arm means: a contrast of complete blocks, with its interval."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from reports.stats.sequential import t_mixture
from reports.stats.simultaneous import Array
from reports.stats.two_way import two_way


@dataclass(frozen=True, kw_only=True)
class Share:
    """One contribution in the metric's unit, below zero where the change helps."""

    value: float
    low: float | None  # no interval where the runs allow none
    high: float | None
    is_extrapolated: bool = False  # it lies beyond what was measured


Judge = Callable[[Mapping[str, float], float], Share]  # contrast of arms, alpha -> its estimate


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A metric with what judges contrasts of its arms; None where the runs do not."""

    metric: str
    unit: str
    judge: Judge | None
    note: str = ""
    title: str = ""  # what it is called, where that is not the metric's own


def share(value: float, low: float = -math.inf, high: float = math.inf) -> Share:
    """Without an interval where there is no error, or none yet."""
    if low < high and math.isfinite(high - low):
        return Share(value=value, low=low, high=high)
    return Share(value=value, low=None, high=None)


def blocked(runs: pd.DataFrame, metric: str, arms: list[str], *, anytime: bool) -> Judge | None:
    """Contrasts of arm means over the blocks in which every arm has finished.

    None where there is no such block."""
    of_arms = runs[runs["arm"].isin(arms)]
    has_value = of_arms[metric].notna() & of_arms["block"].notna()
    done = of_arms[(of_arms["status"] == "finished") & has_value]
    if set(done["arm"]) != set(arms) or (of_arms["status"] == "diverged").any():
        return None
    table = done.pivot_table(index="block", columns="arm", values=metric, aggfunc="mean")
    y = table[arms].dropna().to_numpy(float)
    if not len(y):
        return None

    def judge(contrast: Mapping[str, float], alpha: float) -> Share:
        weights = np.array([contrast.get(arm, 0.0) for arm in arms])
        return contrast_of(y, weights, alpha, anytime=anytime)

    return judge


def contrast_of(y: Array, c: Array, alpha: float, *, anytime: bool = False) -> Share:
    """The contrast c (k,) of the arm means of complete blocks y (n, k), with its interval.

    At 1 - alpha."""
    n, k = y.shape
    d = y @ c
    value, half = float(d.mean()), math.nan
    if anytime:
        low, high, _ = t_mixture(d, alpha)
        return share(value, low, high)
    if n > 1 and k > 1:
        arm, block = [*range(k)] * n, np.repeat(np.arange(n), k).tolist()
        halves = []
        for error in two_way(y.ravel(), arm, block, c[None, :]).errors:
            halves.append(float(stats.t.isf(alpha / 2, error.df[0]) * error.se[0]))
        half = max(halves, default=math.nan)
    return share(value, value - half, value + half)
