"""How long arms are trained: `budgets`, in training steps, factors of them, or tokens."""

import math
import re
from bisect import bisect_left
from collections.abc import Sequence

from harness.config.presets import to_config, with_budget
from harness.config.run import RunConfig, flat
from harness.config.schedule import tokens_trained
from harness.experiment.arms import Arm
from harness.experiment.file import ExperimentFile, factor_of
from harness.experiment.keys import MAX_BUDGET, is_whole

TOKENS = re.compile(r"(\d+(?:\.\d+)?)([KMB]?) tokens")
ROUNDING = 1.01  # stages begin at whole steps: within it schedules read as many
UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9}


def tokens_of(value: object) -> int | None:
    """100000000 of '100M tokens'; None of what is no number of tokens."""
    match = TOKENS.fullmatch(value) if isinstance(value, str) else None
    return None if match is None else round(float(match[1]) * UNITS[match[2]])


def trained_in(config: RunConfig, steps: int) -> int:
    """Tokens of a run of so many steps, whose stages keep their share of them."""
    before = flat(config)
    at = to_config(with_budget({**before, "schedule.steps": steps}, before))
    return tokens_trained(at, range(steps))


def steps_for(config: RunConfig, tokens: int) -> int:
    """The least number of training steps that read so many tokens, growing batches counted."""
    most = math.ceil(tokens / config.data.batch_tokens)
    counts = range(1, min(most, MAX_BUDGET) + 1)
    return 1 + bisect_left(counts, tokens, key=lambda steps: trained_in(config, steps))


def tokens_at(config: RunConfig, budgets: Sequence[int]) -> int | list[int]:
    """Tokens of a run at each of the budgets; without one those of the arm's own steps."""
    if budgets:
        return [trained_in(config, steps) for steps in budgets]
    return trained_in(config, config.schedule.steps)


def steps_differ(arms: Sequence[Arm], steps: int) -> bool:
    """Whether a step is no common unit: schedules of as many read other numbers of tokens."""
    tokens = [trained_in(arm.config, steps) for arm in arms]
    return max(tokens) > ROUNDING * min(tokens)


def is_told_in_tokens(file: ExperimentFile) -> bool:
    """Whether a budget is."""
    return any(tokens_of(entry) for entry in file.items("budgets", (int, str)))


def read_budgets(file: ExperimentFile, arms: Sequence[Arm]) -> tuple[int, ...]:
    """Training steps: numbers of them, factors such as x0.9, or tokens, all of the baseline's.

    Raises UserError where an arm would read another number of tokens than a budget says.
    """
    given, baseline = file.items("budgets", (int, str)), arms[0].config
    budgets = []
    for entry in given:
        factor, tokens = factor_of(entry), tokens_of(entry)
        if factor:
            entry = round(baseline.schedule.steps * factor)
        elif tokens:
            entry = steps_for(baseline, tokens)
        budgets.append(entry)
    sound = all(is_whole(steps) and 1 <= steps <= MAX_BUDGET for steps in budgets)
    if not sound or len(set(budgets)) != len(budgets):
        raise file.fail(
            f"budgets {given} must be different numbers of training steps, factors such as x0.9, "
            "or tokens such as 100M tokens",
            "budgets",
        )
    for entry, steps in zip(given, budgets, strict=True):
        for arm in arms[1:] if tokens_of(entry) else ():
            read, of_baseline = (trained_in(c, steps) for c in (arm.config, baseline))
            if read != of_baseline:
                raise file.fail(
                    f"budgets: in the {steps} steps of '{entry}' arm '{arm.name}' reads {read} "
                    f"tokens where the baseline reads {of_baseline}: give budgets in steps, by "
                    "which arms of different batches are compared",
                    "budgets",
                )
    return tuple(budgets)
