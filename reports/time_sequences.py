"""Anytime-valid intervals of N* and time to target, for pages before or beyond the planned seeds.

Within a block, at a given slope beta < 0, an arm's log time to target is linear in what was measured:
    log N* = mean log budget + (mean loss - target) * g,  g = -1 / beta,     log T = log N* + log(time per step)
so for a fixed slope the blocks are independent draws with the wanted mean, and the t-mixture holds at every n. The slope has its
own sequence, from every block's own slope; half of alpha pays for each. The interval is the union over all slopes that the
first one admits: its ends are convex in g, so the corners of the slopes' box are enough.
Arrays: n blocks, A arms (one, or arm and baseline), B budgets.
"""

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from reports.intervals import Interval
from reports.loss_model import LossModel
from reports.sequential import attainable_p, t_mixture
from reports.simultaneous import Array

SHARE = 0.5  # of alpha, to the slope


def complete_blocks(runs: pd.DataFrame, arms: Sequence[str]) -> tuple[list[object], Array]:
    """Blocks in which every arm has every budget of `runs`, in order of first use, and their losses (n, A, B), replicates
    averaged."""
    budgets = sorted(set(runs["budget"]))
    own = runs[runs["arm"].isin(arms) & runs["block"].notna()]
    means = own.groupby(["block", "arm", "budget"])["val_loss"].mean().to_dict()
    blocks = [b for b in dict.fromkeys(own["block"]) if all((b, a, s) in means for a in arms for s in budgets)]
    cells = [[[means[b, a, s] for s in budgets] for a in arms] for b in blocks]
    return blocks, np.array(cells, float).reshape(len(blocks), len(arms), len(budgets))


def slope_interval(loss_nAB: Array, x_B: Array, alpha: float) -> Interval:
    """Of d loss / d log N: the mean over blocks and arms."""
    x = x_B - x_B.mean()
    return t_mixture((loss_nAB @ x / float(x @ x)).mean(axis=1), alpha)[:2]


def log_time_interval(loss_nAB: Array, x_B: Array, model: LossModel, alpha: float, log_step_nA: Array | None) -> Interval | None:
    """Of log N* (without step times) or log T of the first arm, minus the second's if there are two; None while unbounded.

    x: log budgets."""
    n_arms, slope_alpha = loss_nAB.shape[1], alpha * SHARE
    if model.given:
        half = float(stats.norm.isf(slope_alpha / 2)) * model.slope_se(0)
        slopes = [(float(model.beta[0]) - half, float(model.beta[0]) + half)]
    elif model.common:
        slopes = [slope_interval(loss_nAB, x_B, slope_alpha)]
    else:
        slopes = [slope_interval(loss_nAB[:, [i]], x_B, slope_alpha / n_arms) for i in range(n_arms)]
    if any(low == -math.inf or high >= 0 for low, high in slopes):
        return None
    excess, rest = loss_nAB.mean(axis=2) - model.target, alpha * (1 - SHARE)
    sign, offset = np.array([1.0, -1.0][:n_arms]), float(x_B.mean()) if n_arms == 1 else 0.0
    steps = np.zeros_like(excess) if log_step_nA is None else log_step_nA
    ends = [t_mixture((excess / -np.array(beta) + steps) @ sign, rest)[:2] for beta in itertools.product(*slopes)]
    low, high = min(e[0] for e in ends), max(e[1] for e in ends)
    return (low + offset, high + offset) if math.isfinite(low) else None


def sequence(
    runs: pd.DataFrame, model: LossModel, arms: Sequence[str], alpha: float, step: Sequence[Mapping[object, float]] | None
) -> tuple[Interval | None, int]:
    """(interval, blocks it rests on) of log N* (step None) or of log time to target, of one arm or of the first over the second.

    step: per arm log(time per step) of every block it was timed in; blocks timed apart from the losses get their own sequence,
    and half of alpha."""
    blocks, loss = complete_blocks(runs, arms)
    if len(blocks) < 2:
        return None, len(blocks)
    x = np.log(sorted(set(runs["budget"])))
    if step is None or all(b in own for own in step for b in blocks):
        steps = None if step is None else np.array([[own[b] for own in step] for b in blocks])
        return log_time_interval(loss, x, model, alpha, steps), len(blocks)
    ends = log_time_interval(loss, x, model, alpha / 2, None)
    timed = [step[0][b] - (step[1][b] if len(step) > 1 else 0.0) for b in step[0] if all(b in own for own in step)]
    low, high, _ = t_mixture(np.array(timed, float), alpha / 2)
    return ((ends[0] + low, ends[1] + high) if ends is not None and math.isfinite(low) else None), len(blocks)


def attainable(n: int) -> float:
    """The smallest p that n blocks could give to a time to target."""
    return min(1.0, attainable_p(n) / min(SHARE, 1 - SHARE)) if n >= 2 else 1.0
