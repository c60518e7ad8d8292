"""The verdict table: a row for every arm, a cell for every heading."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from reports.analysis.arm_columns import ArmColumn
from reports.analysis.arm_values import ArmRow
from reports.analysis.headings import Heading
from reports.analysis.own_columns import arm_columns_of, headings_of
from reports.analysis.types import TIME_OF_ONE, Comparisons, effect
from reports.page.cells import VerdictCell, cell_of, metric_words, verdict_cell, words

MANY = 12  # arms beyond which their order is that of their effects


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


def judgement_cell(outcome: Comparisons, arm: str, next_step: str) -> VerdictCell:
    if arm == outcome.baseline:
        return VerdictCell(parts=(words("verdict", "baseline"),), css="words", tone="base")
    c = outcome.judged(arm)
    n_pending = outcome.cells[arm].n_pending
    return verdict_cell(c, n_pending, next_step)


def in_order(outcome: Comparisons) -> list[str]:
    """The arms in the plan's order; where they are many, those first that help most."""
    if len(outcome.arms) <= MANY:
        return [*outcome.arms]
    by_arm = {arm: outcome.judged(arm) for arm in outcome.arms}
    effects = {}
    for arm, c in by_arm.items():
        if c is not None:
            effects[arm] = -effect(c)[0] if c.better == "higher" else effect(c)[0]
    return sorted(outcome.arms, key=lambda arm: effects.get(arm, math.inf))


def printed_below(heading: Heading, outcome: Comparisons) -> list[ArmColumn]:
    """The statistics below a heading, in their order."""
    return [column for column in arm_columns_of(outcome) if column.head == heading.text]


def heads(outcome: Comparisons, unit: str) -> list[Head]:
    """The headings of the verdict table; unit: of a loss."""
    judgement = (
        f"The judgement on {metric_words(outcome.primary)}, the metric declared before the first "
        "run, and what to do next."
    )
    if outcome.increments:
        naming = outcome.own_words
        judgement += f" It is about what the {naming.arm} adds to {naming.briefly}."
    heads = [Head(text="verdict", meaning=judgement)]
    for heading in headings_of(outcome):
        meaning = heading.meaning.format(
            base=outcome.baseline,
            unit=unit,
            own=outcome.own_words,
            length=outcome.length,
            of_one=TIME_OF_ONE[outcome.length],
        )
        css = ""
        if heading.css == "num":
            css = "num"
        heads.append(Head(text=heading.text, css=css, meaning=meaning))
    return heads


def verdict_rows(
    outcome: Comparisons, css: Mapping[str, str], next_steps: Mapping[str, str]
) -> list[VerdictRow]:
    """The baseline's row, then one per arm.

    css: every arm of the plan, in its order, to its colour; next_steps: of arms that ask for runs.
    """
    rows = []
    places = list(css)
    below = [(printed_below(heading, outcome), heading.css) for heading in headings_of(outcome)]
    for arm in (outcome.baseline, *in_order(outcome)):
        row = ArmRow(arm=arm, outcome=outcome)
        cells = [judgement_cell(outcome, arm, next_steps.get(arm, ""))]
        for columns, kind in below:
            cells.append(cell_of(columns, row, kind))
        rows.append(
            VerdictRow(
                arm=arm,
                place=places.index(arm),
                css=css[arm],
                baseline=arm == outcome.baseline,
                cells=cells,
            )
        )
    return rows
