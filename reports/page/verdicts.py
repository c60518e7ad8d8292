"""The verdict table: its columns, each declared once, and a row for every arm."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from reports.analysis.types import Comparisons
from reports.page.cells import (
    METRIC_WORDS,
    VerdictCell,
    effect_cell,
    gain_cell,
    loss_cell,
    measured_cell,
    runs_cell,
    step_cell,
    target_cell,
    verdict_cell,
    words,
)


@dataclass(frozen=True, kw_only=True)
class Head:
    """A column's heading, and what it means in plain words."""

    text: str
    meaning: str
    css: str = ""


@dataclass(frozen=True, kw_only=True)
class VerdictRow:
    """One arm's row of the table."""

    arm: str
    place: int  # in the plan's arms
    css: str
    baseline: bool
    cells: list[VerdictCell] = field(default_factory=list)


def always(outcome: Comparisons) -> bool:
    return True


def has_heldout(outcome: Comparisons) -> bool:
    return any("heldout_loss" in cell.mean for cell in outcome.cells.values())


def has_time_to_target(outcome: Comparisons) -> bool:
    return any(time.seconds is not None for time in outcome.times.values())


def compares_time_to_target(outcome: Comparisons) -> bool:
    return any(outcome.of(arm, "time_to_target") for arm in outcome.arms)


def has_gain(outcome: Comparisons) -> bool:
    gains = outcome.decompositions.values()
    return any(gain.learning_percent is not None for gain in gains)


def judgement_cell(outcome: Comparisons, arm: str, *, final: bool) -> VerdictCell:
    if arm == outcome.baseline:
        return VerdictCell(parts=(words("verdict", "baseline"),), css="words", tone="base")
    c = outcome.of(arm, outcome.primary)
    return verdict_cell(c, outcome.cells[arm].n_pending, final=final)


@dataclass(frozen=True, kw_only=True)
class VerdictColumn:
    """A column after the verdict: its heading, what it means, its cell of an arm, when it is there.

    In `meaning` {base} stands for the baseline's name, {unit} for that of a loss.
    """

    text: str
    meaning: str
    cell: Callable[[Comparisons, str], VerdictCell]
    is_filled: Callable[[Comparisons], bool] = always
    css: str = "num"

    def head(self, outcome: Comparisons, unit: str) -> Head:
        meaning = self.meaning.format(base=outcome.baseline, unit=unit)
        return Head(text=self.text, css=self.css, meaning=meaning)


VERDICT_COLUMNS = (
    VerdictColumn(
        text="loss",
        meaning=(
            "Mean validation loss of the arm's finished runs in {unit}, and the standard "
            "deviation over its runs."
        ),
        cell=loss_cell,
    ),
    VerdictColumn(
        text="Δ loss",
        meaning=(
            "Arm minus {base}, so below zero is better; the interval holds for all arms at "
            "once, p is adjusted for their number."
        ),
        cell=partial(effect_cell, metric="val_loss"),
    ),
    VerdictColumn(
        text="held-out loss",
        meaning="The same on the held-out text, {unit}: is the gain real on text of another kind?",
        cell=partial(measured_cell, metric="heldout_loss", kind="loss"),
        is_filled=has_heldout,
    ),
    VerdictColumn(
        text="Δ held-out loss",
        meaning=(
            "Held-out loss, arm minus {base}; interval and p as for the loss, over its own "
            "comparisons."
        ),
        cell=partial(effect_cell, metric="heldout_loss"),
        is_filled=has_heldout,
    ),
    VerdictColumn(
        text="step, ms",
        meaning=(
            "Mean time of one training step in milliseconds, its standard deviation over runs, "
            "and the steps per run."
        ),
        cell=step_cell,
    ),
    VerdictColumn(
        text="Δ step time",
        meaning=(
            "Step time against {base} in percent; below zero is faster. Interval and p as for "
            "the loss."
        ),
        cell=partial(effect_cell, metric="step_ms"),
    ),
    VerdictColumn(
        text="time to target",
        meaning=(
            "Seconds to the target loss: the steps a schedule would need to end at the target, "
            "times the step time; not the first crossing of one curve."
        ),
        cell=target_cell,
        is_filled=has_time_to_target,
    ),
    VerdictColumn(
        text="Δ time to target",
        meaning="Time to target against {base} in percent.",
        cell=partial(effect_cell, metric="time_to_target"),
        is_filled=compares_time_to_target,
    ),
    VerdictColumn(
        text="gain",
        meaning=(
            "Time is steps times step time. The learning part of the change in time comes from "
            "needing fewer steps, the systems part from faster steps; below zero is time saved, in "
            "percent of the baseline and in seconds."
        ),
        cell=gain_cell,
        is_filled=has_gain,
        css="",
    ),
    VerdictColumn(
        text="runs",
        meaning=(
            "Finished runs that the comparison of losses counts, and what became of the others."
        ),
        cell=runs_cell,
        css="",
    ),
)


def columns_of(outcome: Comparisons) -> list[VerdictColumn]:
    """The columns after the verdict, but for those that this experiment cannot fill."""
    return [column for column in VERDICT_COLUMNS if column.is_filled(outcome)]


def heads(outcome: Comparisons, unit: str) -> list[Head]:
    """The headings of the verdict table; unit: of a loss."""
    judgement = (
        f"The judgement on {METRIC_WORDS[outcome.primary]}, the metric declared before the first "
        "run, and what to do next."
    )
    columns = [column.head(outcome, unit) for column in columns_of(outcome)]
    return [Head(text="verdict", meaning=judgement), *columns]


def verdict_rows(
    outcome: Comparisons, css: Mapping[str, str], *, final: bool = False
) -> list[VerdictRow]:
    """The baseline's row, then one per arm in the plan's order.

    css: every arm of the plan, in its order, to its colour; final: the runs are all there will ever
    be (imported logs), so that no more of them are asked for.
    """
    rows = []
    places = list(css)
    columns = columns_of(outcome)
    for arm in (outcome.baseline, *outcome.arms):
        cells = [column.cell(outcome, arm) for column in columns]
        rows.append(
            VerdictRow(
                arm=arm,
                place=places.index(arm),
                css=css[arm],
                baseline=arm == outcome.baseline,
                cells=[judgement_cell(outcome, arm, final=final), *cells],
            )
        )
    return rows
