"""Tokens of a step, of arms whose steps do not read as many: to them a step is no common unit.

A schedule of other steps reads these times its steps, for stages keep their share of it. Where all
arms read as many, steps and tokens say the same, and steps are told.
"""

from collections.abc import Mapping, Sequence

import pandas as pd

from reports.analysis.types import TimeEstimate
from reports.format import show

ALIKE = 1.01  # stages begin at whole steps, so that two lengths of one schedule differ by less
MOST_ARMS = 4  # arms that the sentence names; the rest is counted


def step_tokens(runs: pd.DataFrame, arms: Sequence[str]) -> dict[str, float]:
    """Arm -> tokens of a step, the mean over its schedule; {} where arms are alike or not known.

    runs: those that count. arms: of which those with runs are told."""
    done = runs[(runs["status"] == "finished") & runs["arm"].isin(arms)]
    if done.empty or "tokens" not in done or done["tokens"].isna().any():
        return {}
    of_step = (done["tokens"] / done["steps"]).astype(float)
    table = of_step.groupby([done["arm"], done["budget"]]).mean().unstack()
    shared = table.dropna(axis="columns")
    means = (table if shared.empty else shared).mean(axis="columns")
    if is_alike(means.max() / means.min()):
        return {}
    return {arm: float(means[arm]) for arm in arms if arm in means.index}


def is_alike(ratio: float) -> bool:
    """Whether two numbers of this ratio differ by no more than the rounding of stages."""
    return 1 / ALIKE <= ratio <= ALIKE


def token_notes(
    of_step: Mapping[str, float], times: Mapping[str, TimeEstimate], *, share_steps: bool
) -> list[str]:
    """That steps are no common unit, and what is told in which; [] where they are one.

    of_step: arm -> tokens of a step. share_steps: whether losses are compared at equal steps."""
    if not of_step:
        return []
    each = [f"{arm} {show(n, 'count')}" for arm, n in of_step.items()]
    note = (
        f"A step is no common unit here: it reads, on average over the schedule, {_few(each)} "
        "tokens. "
    )
    if share_steps:
        note += "Losses are compared at equal steps, not at equal tokens; a step time is that of "
        note += "the arm's own steps. "
    reached = []
    for arm, time in times.items():
        if time.tokens is not None and not time.extrapolated:
            ends = (show(time.tokens, "tokens"), show(time.n_star, "count"))
            reached.append("{} {} ({} steps)".format(arm, *ends))
    if reached:
        note += f"Tokens to the target: {_few(reached)}. "
    return [note + "What learning and systems gain is told in tokens and in seconds a token."]


def _few(told: Sequence[str]) -> str:
    if len(told) > MOST_ARMS:
        return f"{', '.join(told[:MOST_ARMS])} and {len(told) - MOST_ARMS} more"
    return ", ".join(told)
