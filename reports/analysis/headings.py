"""The headings of the table of verdicts, in the order of printing.

What stands below each is declared in reports/analysis/arm_columns.py.
"""

from collections.abc import Callable
from dataclasses import dataclass

from reports.analysis.types import Comparisons


@dataclass(frozen=True, kw_only=True)
class Heading:
    """A heading of the table of verdicts; there where the experiment can fill it.

    In `meaning` {base} stands for the baseline's name, {unit} for that of a loss, {length} and
    {of_one} for what time is made of.
    """

    text: str
    meaning: str
    is_filled: Callable[[Comparisons], bool] | None = None  # None: always
    css: str = "num"  # of the cells below it


def has_loss(outcome: Comparisons) -> bool:
    return measures(outcome, "val_loss")


def has_step_time(outcome: Comparisons) -> bool:
    return measures(outcome, "step_ms")


def measures(outcome: Comparisons, metric: str) -> bool:
    """Whether runs have it; always where scripts have no metrics of their own."""
    return not outcome.own or any(metric in cell.mean for cell in outcome.cells.values())


def has_heldout(outcome: Comparisons) -> bool:
    return any("heldout_loss" in cell.mean for cell in outcome.cells.values())


def has_time_to_target(outcome: Comparisons) -> bool:
    return any(time.seconds is not None for time in outcome.times.values())


def compares_time_to_target(outcome: Comparisons) -> bool:
    return any(outcome.of(arm, "time_to_target") for arm in outcome.arms)


def has_gain(outcome: Comparisons) -> bool:
    gains = outcome.decompositions.values()
    return any(gain.learning_percent is not None for gain in gains)


def has_increments(outcome: Comparisons) -> bool:
    return bool(outcome.increments)


HEADINGS = (
    Heading(
        text="own part",
        meaning=(
            "What the {own.arm} adds: it minus {own.before}, in the metric that decides. The "
            "interval holds for all {own.arm}s at once, p is adjusted for their number."
        ),
        is_filled=has_increments,
    ),
    Heading(
        text="loss",
        meaning=(
            "Mean validation loss of the arm's finished runs in {unit}, and the standard "
            "deviation over its runs."
        ),
        is_filled=has_loss,
    ),
    Heading(
        text="Δ loss",
        meaning=(
            "Arm minus {base}, so below zero is better; the interval holds for all arms at "
            "once, p is adjusted for their number."
        ),
        is_filled=has_loss,
    ),
    Heading(
        text="held-out loss",
        meaning="The same on the held-out text, {unit}: is the gain real on text of another kind?",
        is_filled=has_heldout,
    ),
    Heading(
        text="Δ held-out loss",
        meaning=(
            "Held-out loss, arm minus {base}; interval and p as for the loss, over its own "
            "comparisons."
        ),
        is_filled=has_heldout,
    ),
    Heading(
        text="step time, ms",
        meaning=(
            "Mean time of one training step in milliseconds, its standard deviation over runs, "
            "and the steps per run."
        ),
        is_filled=has_step_time,
    ),
    Heading(
        text="Δ step time",
        meaning=(
            "Step time against {base} in percent; below zero is faster. It is the mean of the "
            "ratios within blocks (of their logarithms), which one slow run moves less than the "
            "mean in ms. Interval and p as for the loss."
        ),
        is_filled=has_step_time,
    ),
    Heading(
        text="time to target",
        meaning=(
            "Seconds to the target loss: the steps a schedule would need to end at the target, "
            "times the geometric mean of the runs' step times; not the first crossing of one curve."
        ),
        is_filled=has_time_to_target,
    ),
    Heading(
        text="Δ time to target",
        meaning="Time to target against {base} in percent.",
        is_filled=compares_time_to_target,
    ),
    Heading(
        text="gain",
        meaning=(
            "Time is {length} times {of_one}. The learning part of the change in time comes from "
            "needing fewer {length}, the systems part from faster {length}; below zero is time "
            "saved, in percent of the baseline and in seconds."
        ),
        is_filled=has_gain,
        css="gain",
    ),
    Heading(
        text="runs",
        meaning=(
            "Finished runs that the comparison of losses counts, and what became of the others."
        ),
        css="count",
    ),
)
