"""Anytime-valid intervals of N* and time to target, for pages before or beyond the planned seeds.

Within a block, at a given slope beta < 0, an arm's log time to target is linear in what was
measured:
    log N* = mean log budget + (mean loss - target) * g,  g = -1 / beta
    log T = log N* + log(time per step)
so for a fixed slope the blocks are independent draws with the wanted mean, and the t-mixture holds
at every n. The slope has its own sequence, from every block's own slope; half of alpha pays for
each. The interval is the union over all slopes that the first one admits: its ends are convex in g,
so the corners of the slopes' box are enough.
Arrays: n blocks, A arms (one, or arm and baseline), B budgets.
"""

import itertools
import math

import numpy as np
from scipy import stats

from reports.stats.intervals import Interval
from reports.stats.loss_model import LossModel
from reports.stats.sequential import attainable_p, t_mixture
from reports.stats.simultaneous import Array

SHARE = 0.5  # of alpha, to the slope


def slope_interval(loss_nAB: Array, x_B: Array, alpha: float) -> Interval:
    """Of d loss / d log N: the mean over blocks and arms."""
    x = x_B - x_B.mean()
    return t_mixture((loss_nAB @ x / float(x @ x)).mean(axis=1), alpha)[:2]


def log_time_interval(
    loss_nAB: Array, x_B: Array, model: LossModel, alpha: float, log_step_nA: Array | None
) -> Interval | None:
    """Of log N* or log T of the first arm, minus the second's if there are two.

    x_B: log budgets; log_step_nA: log(time per step), without which it is N*. None while
    unbounded.
    alpha: of the interval.
    """
    n_arms = loss_nAB.shape[1]
    slopes = _slope_intervals(loss_nAB, x_B, model, alpha * SHARE)
    for low, high in slopes:
        if low == -math.inf or high >= 0:
            return None
    excess, rest = loss_nAB.mean(axis=2) - model.target, alpha * (1 - SHARE)
    steps = np.zeros_like(excess) if log_step_nA is None else log_step_nA
    sign = np.array([1.0, -1.0][:n_arms])
    ends = []
    for beta in itertools.product(*slopes):
        ends.append(t_mixture((excess / -np.array(beta) + steps) @ sign, rest)[:2])
    lowest, highest = min(low for low, _ in ends), max(high for _, high in ends)
    if not math.isfinite(lowest):
        return None
    offset = float(x_B.mean()) if n_arms == 1 else 0.0
    return lowest + offset, highest + offset


def _slope_intervals(loss_nAB: Array, x_B: Array, model: LossModel, alpha: float) -> list[Interval]:
    """One of the slope that the arms share, or one per arm."""
    if model.given:
        slope = float(model.beta[0])
        half = float(stats.norm.isf(alpha / 2)) * model.slope_se(0)
        return [(slope - half, slope + half)]
    if model.common:
        return [slope_interval(loss_nAB, x_B, alpha)]
    n_arms = loss_nAB.shape[1]
    return [slope_interval(loss_nAB[:, [i]], x_B, alpha / n_arms) for i in range(n_arms)]


def attainable(n: int) -> float:
    """The smallest p that n blocks could give to a time to target."""
    if n < 2:
        return 1.0
    return min(1.0, attainable_p(n) / min(SHARE, 1 - SHARE))
