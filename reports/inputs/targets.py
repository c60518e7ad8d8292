"""The target that the baseline's first block sets, on a corpus that has none of its own.

Declared with the plan, before any run: midway between the final losses of that block's baseline
after the shortest and the longest budget, to three digits. That block takes no part in times to it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from harness.run.plan import Plan
from reports.inputs.recorded import RecordedRun

TARGET_DIGITS = 3  # of the loss: a number that one can quote


def decided(plan: Plan, runs: Sequence[RecordedRun], *, accept_stale: bool) -> Plan:
    """The plan with its target as the runs set it; as it is where it names one, or has none yet.

    runs: those of the plan.
    """
    if plan.target is None or not plan.target.from_baseline:
        return plan
    losses: dict[int, list[float]] = {}
    for run in runs:
        of_block = run.planned.arm == plan.baseline and run.planned.seed == plan.seeds[0]
        if not of_block or run.planned.role != "loss":
            continue
        loss = run.measured.val_loss
        if run.status != "finished" or (run.stale and not accept_stale) or loss is None:
            return plan
        losses.setdefault(run.planned.budget, []).append(loss)
    if not losses:
        return plan
    ends = [losses[budget] for budget in (min(losses), max(losses))]
    means = [sum(of_budget) / len(of_budget) for of_budget in ends]
    return replace(plan, target=replace(plan.target, val_loss=round(sum(means) / 2, TARGET_DIGITS)))


def without_its_block(plan: Plan, table: pd.DataFrame) -> Any:
    """The runs that times to target rest on: not those that the target itself rests on."""
    if plan.target is None or not plan.target.from_baseline:
        return table
    return table[table["seed"] != plan.seeds[0]]
