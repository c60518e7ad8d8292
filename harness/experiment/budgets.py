"""How long arms are trained: `budgets`, in training steps, factors of them, or tokens."""

import math
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from harness.config.presets import to_config
from harness.config.run import RunConfig, flat
from harness.config.scales import with_budget
from harness.config.schedule import tokens_trained
from harness.config.validate import check_config
from harness.experiment.arms import Arm, differences
from harness.experiment.file import ExperimentFile, factor_of
from harness.experiment.keys import MAX_BUDGET, is_whole

TOKENS = re.compile(r"(\d+(?:\.\d+)?)([KMB]?) tokens")
ROUNDING = 1.01  # stages begin at whole steps: within it schedules read as many
UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9}


def tokens_of(value: object) -> int | None:
    """100000000 of '100M tokens'; None of what is no number of tokens."""
    match = TOKENS.fullmatch(value) if isinstance(value, str) else None
    return None if match is None else round(float(match[1]) * UNITS[match[2]])


def of_length(config: RunConfig, steps: int) -> RunConfig:
    """The configuration trained for so many updates, of which whatever it counts keeps its share.

    What it then says may not be sound: at_budget checks it."""
    before = flat(config)
    return to_config(with_budget({**before, "schedule.steps": steps}, before))


def at_budget(config: RunConfig, steps: int) -> RunConfig:
    """The configuration trained for `steps` updates.

    Warm-up and cooldown keep their fraction of them.
    """
    at = of_length(config, steps)
    check_config(at)
    return at


def trained_in(config: RunConfig, steps: int) -> int:
    """Tokens of a run of so many steps, whose stages keep their share of them."""
    return tokens_trained(of_length(config, steps), range(steps))


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


def read_lengths(
    file: ExperimentFile, arms: Sequence[Arm]
) -> tuple[tuple[Arm, ...], tuple[int, ...]]:
    """The arms, and the training steps that each is given; none where each has its own.

    A single number of tokens is read by every arm in so many steps as it needs, whichever arms
    there are beside it. Raises UserError where these are too many.
    """
    given, budgets = file.items("budgets", (int, str)), read_budgets(file, arms)
    tokens = tokens_of(given[0]) if len(given) == 1 else None
    if tokens is None:
        return tuple(arms), budgets
    lengthened: list[Arm] = []
    for arm in arms:
        config = at_budget(arm.config, steps_for(arm.config, tokens))
        if trained_in(config, config.schedule.steps) < tokens:
            raise file.fail(
                f"budgets: arm '{arm.name}' reads '{given[0]}' in more than {MAX_BUDGET} steps",
                "budgets",
            )
        base = lengthened[0].config if lengthened else config
        lengthened.append(replace(arm, config=config, fields=differences(config, base)))
    return tuple(lengthened), ()


def read_budgets(file: ExperimentFile, arms: Sequence[Arm]) -> tuple[int, ...]:
    """Training steps: numbers of them, factors such as x0.9, or tokens, all of the baseline's.

    Raises UserError where arms would read other numbers of tokens than one of several says.
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
        for arm in arms[1:] if tokens_of(entry) and len(given) > 1 else ():
            read, of_baseline = (trained_in(c, steps) for c in (arm.config, baseline))
            if read != of_baseline:
                instead = "give budgets in steps"
                is_of_grid = file.data.get("estimand") == "retuned" and arm.of != arm.name
                if "halving" not in file.data and not is_of_grid:  # these refuse a single one
                    instead += ", or a single number of tokens, which each arm reads in steps"
                    instead += " of its own"
                raise file.fail(
                    f"budgets: in the {steps} steps of '{entry}' arm '{arm.name}' reads {read} "
                    f"tokens where the baseline reads {of_baseline}: {instead}",
                    "budgets",
                )
    return tuple(budgets)
