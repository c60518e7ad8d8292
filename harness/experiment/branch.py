"""`branch_at`: arms that go on from one trunk, and the changes that may."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from harness.config.run import RunConfig, flat
from harness.config.schedule import SCHEDULED, ScheduleValues, schedule_at
from harness.experiment.arms import Arm
from harness.experiment.file import ExperimentFile, factor_of
from harness.experiment.keys import MAX_BUDGET, is_whole

IN_WORDS = {
    "lr_factor": "multiplies its learning rates by",
    "momentum": "has a momentum of",
    "windows": "has windows of",
    "growth": "has batches that are larger by",
    "max_doc_len": "has documents of at most",
    "next_tokens": "has weights on next tokens of",
    "followed": "lets YaRN follow windows of",
    "prefix_weight": "has a weight on prefixes of",
    "adam_acts": "lets Adam act (1) or wait (0):",
    "scalars_rest": "lets scalars rest (1) or move (0):",
    "tied": "has token table and head as one (1) or two (0):",
}
ALONE = {  # keys that a branch does not go with, and why
    "budgets": "each has a trunk of its own length: write one experiment for each",
    "axes": "rates act from the first update on: leave one of them out",
    "plugins": "what they keep beside weights and optimizers is not known: leave one of them out",
}


def read_branch_at(file: ExperimentFile, arms: Sequence[Arm]) -> int | None:
    """The update at which the arms part; raises UserError where one of them acts before it."""
    at = file.data.get("branch_at")
    if at is None:
        return None
    factor = factor_of(at)
    at = round(arms[0].config.schedule.steps * factor) if factor else at
    if not is_whole(at) or not 1 <= at <= MAX_BUDGET:
        raise file.fail(
            f"branch_at is {file.data['branch_at']!r}, but must be a number of training steps, or "
            "a factor such as x0.7",
            "branch_at",
        )
    for key, why in ALONE.items():
        if file.data.get(key):
            raise file.fail(f"branch_at and {key} do not go together: {why}", "branch_at")
    if file.data.get("estimand") == "retuned":
        raise file.fail(
            "branch_at and estimand: retuned do not go together: rates act from the first update "
            "on: leave one of them out",
            "branch_at",
        )
    if "timing" in (file.data.get("phases") or {}):
        raise file.fail(
            "branch_at and a timing phase do not go together: most of a run's time is its trunk's: "
            "leave the phase out",
            "branch_at",
        )
    for arm in arms:
        early = acts_before(at, arm, arms[0])
        if early is not None:
            raise file.fail(f"branch_at: {at}: arm '{arm.name}' {early}", "branch_at")
    return int(at)


def acts_before(at: int, arm: Arm, baseline: Arm) -> str | None:
    """Why an arm is not the baseline before update `at`, None where it is.

    All toggles are compared, and of those that act by schedules alone the values of each update.
    """
    steps = arm.config.schedule.steps
    if at >= steps:
        return f"ends after {steps} steps: branch earlier"
    if arm.runs_in != baseline.runs_in:
        return "runs in another environment from the first update on: leave branch_at out"
    of_arm, base = flat(arm.config), flat(baseline.config)
    for name in dict.fromkeys([*of_arm, *base]):
        if name not in SCHEDULED and of_arm.get(name) != base.get(name):
            return (
                f"sets {name}, which acts from the first update on: "
                "leave the change or branch_at out"
            )
    if arm is not baseline:
        return differs_in_schedule(at, arm.config, baseline.config)
    return None


def differs_in_schedule(at: int, config: RunConfig, base: RunConfig) -> str | None:
    """The first update before `at` whose schedules differ, in words; None where none does."""
    for step in range(at):
        of_arm, of_base = schedule_at(config, step), schedule_at(base, step)
        if of_arm != of_base:
            difference = _difference(of_arm, of_base)
            return f"{difference} at update {step} already: branch at {step}, or before"
    return None


def _difference(arm: ScheduleValues, base: ScheduleValues) -> str:
    for field in fields(arm):
        value, of_base = getattr(arm, field.name), getattr(base, field.name)
        if value != of_base:
            break
    shown = [", ".join(f"{v:.4g}" for v in _listed(each)) for each in (value, of_base)]
    return f"{IN_WORDS[field.name]} {shown[0]} where the baseline's is {shown[1]}"


def _listed(value: Any) -> Sequence[float]:
    return value if isinstance(value, tuple) else (value,)
