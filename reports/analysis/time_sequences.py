"""Anytime-valid times of an experiment: its complete blocks, and the sequence over them."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from reports.stats.intervals import Interval
from reports.stats.loss_model import LossModel
from reports.stats.sequential import t_mixture
from reports.stats.simultaneous import Array
from reports.stats.time_sequences import log_time_interval


def complete_blocks(runs: pd.DataFrame, arms: Sequence[str]) -> tuple[list[object], Array]:
    """Blocks in which every arm has every budget of `runs`, in order of first use, and their losses (n, A, B), replicates
    averaged."""
    budgets = sorted(set(runs["budget"]))
    own = runs[runs["arm"].isin(arms) & runs["block"].notna()]
    means = own.groupby(["block", "arm", "budget"])["val_loss"].mean().to_dict()
    blocks = [b for b in dict.fromkeys(own["block"]) if all((b, a, s) in means for a in arms for s in budgets)]
    cells = [[[means[b, a, s] for s in budgets] for a in arms] for b in blocks]
    return blocks, np.array(cells, float).reshape(len(blocks), len(arms), len(budgets))


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
