"""Anytime-valid times of an experiment: its complete blocks, and the sequence over them."""

import itertools
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
    """Blocks in which every arm has every budget of `runs`, and their losses (n, A, B).

    In order of first use; replicates are averaged."""
    budgets = sorted(set(runs["budget"]))
    blocked = runs[runs["arm"].isin(arms) & runs["block"].notna()]
    means = blocked.groupby(["block", "arm", "budget"])["val_loss"].mean().to_dict()
    blocks: list[object] = []
    losses: list[float] = []
    for block in dict.fromkeys(blocked["block"]):
        cells = list(itertools.product([block], arms, budgets))
        if all(cell in means for cell in cells):
            blocks.append(block)
            losses += [means[cell] for cell in cells]
    return blocks, np.array(losses, float).reshape(len(blocks), len(arms), len(budgets))


def sequence(
    runs: pd.DataFrame,
    model: LossModel,
    arms: Sequence[str],
    alpha: float,
    step: Sequence[Mapping[object, float]] | None,
) -> tuple[Interval | None, int]:
    """(interval, blocks it rests on) of log time to target, or of log N* (step None).

    arms: one, or the first over the second; step: per arm log(time per step) of every block it was
    timed in. Blocks timed apart from the losses get their own sequence, and half of alpha.
    runs: those that count. alpha: of the interval.
    """
    blocks, loss = complete_blocks(runs, arms)
    if len(blocks) < 2:
        return None, len(blocks)
    x = np.log(sorted(set(runs["budget"])))
    if step is None:
        return log_time_interval(loss, x, model, alpha, None), len(blocks)
    if _shared_blocks(step, blocks) == blocks:
        steps = np.array([[of_arm[block] for of_arm in step] for block in blocks])
        return log_time_interval(loss, x, model, alpha, steps), len(blocks)
    log_steps = log_time_interval(loss, x, model, alpha / 2, None)
    differences = []
    for block in _shared_blocks(step, list(step[0])):
        of_baseline = step[1][block] if len(step) > 1 else 0.0
        differences.append(step[0][block] - of_baseline)
    low, high, _ = t_mixture(np.array(differences, float), alpha / 2)
    if log_steps is None or not math.isfinite(low):
        return None, len(blocks)
    return (log_steps[0] + low, log_steps[1] + high), len(blocks)


def _shared_blocks(
    step: Sequence[Mapping[object, float]], blocks: Sequence[object]
) -> list[object]:
    """Those of the blocks in which every arm was timed."""
    return [block for block in blocks if all(block in of_arm for of_arm in step)]
