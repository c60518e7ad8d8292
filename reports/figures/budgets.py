"""The budget curve: final loss over the steps trained for; where it meets the target is N*."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.run.plural import plural
from reports.analysis.types import Comparisons
from reports.figures.base import (
    MAX_NAMED,
    WIDE,
    AxisScale,
    Drawing,
    Figure,
    around_target,
    dot,
    extent,
    line,
    mark,
    path_of,
    text,
    tick_text,
    y_axis,
)
from reports.figures.palette import Palette
from reports.figures.target import target_label
from reports.format import show
from reports.stats.digits import kept, pixel

CAPTION = "Each dot is the mean final loss of schedules of that length, each with its own cooldown."
LENGTH_IN_TOKENS = (
    " Their length is told in tokens, for the arms' steps read different numbers of them."
)
OF_TARGET = (
    " Where a line meets the target is the number of {} that arm needs; the ticks mark the "
    "estimates."
)


@dataclass(frozen=True, kw_only=True)
class Mean:
    """The mean final loss of an arm's schedules of one length."""

    budget: int  # steps
    tokens: float | None  # of them, where lengths are told in these
    loss: float
    n_runs: int

    @property
    def length(self) -> float:
        """Where it lies across."""
        return self.budget if self.tokens is None else self.tokens

    @property
    def in_words(self) -> str:
        """How long its schedules are."""
        tokens = "" if self.tokens is None else f", {show(self.tokens, 'tokens')} tokens"
        return f"{self.budget} steps{tokens}"


PARTS_OF_LINE = 50  # places of a line between two budgets, which no label is to lie on


@dataclass(frozen=True, kw_only=True)
class BudgetCurves:
    """The drawing: a line per arm on a logarithmic axis of steps, or of tokens."""

    of_arms: Mapping[str, Sequence[Mean]]
    marked: Mapping[float, str]  # lengths on the axis, as they are written
    length: str  # what it is of
    needed: Mapping[str, float]  # arm -> its length to the target, where resolved
    palette: Palette
    unit: str
    target: float | None
    x_range: tuple[float, float]
    y_range: tuple[float, float]

    def draw(self, width: int) -> Drawing:
        height = 300
        if width == WIDE:
            height = 380
        left, right, top, bottom = 60, width - 14, 30, height - 48
        x = AxisScale(low=self.x_range[0], high=self.x_range[1], start=left, end=right)
        y = AxisScale(low=self.y_range[0], high=self.y_range[1], start=bottom, end=top)
        parts = [y_axis(y, left, right, f"final validation loss, {self.unit}")]
        for length, label in self.marked.items():
            at = x(math.log(length))
            parts.append(line(at, top, at, bottom, "grid"))
            parts.append(text(at, height - 32, label, anchor="middle", css="tick"))
        axis_title = f"{self.length} of the whole schedule, logarithmic"
        parts.append(text((left + right) / 2, height - 13, axis_title, anchor="middle", css="axis"))
        if self.target is not None:
            level = y(self.target)
            parts.append(line(left, level, right, level, "target"))
            marks = [*self.marks(x, y, level)]
            parts.append(target_label(self.target, level, (left, right), marks))
        parts += [self.series(arm, x, y) for arm in self.of_arms]
        return "".join(parts), height

    def marks(self, x: AxisScale, y: AxisScale, level: float) -> Iterator[tuple[float, float]]:
        """Where the lines and the ticks on the target are, in pixels; level: of the target."""
        for means in self.of_arms.values():
            for before, after in itertools.pairwise(means):
                for part in range(PARTS_OF_LINE + 1):
                    share = part / PARTS_OF_LINE
                    start, end = math.log(before.length), math.log(after.length)
                    loss = before.loss + share * (after.loss - before.loss)
                    yield x(start + share * (end - start)), y(loss)
        for length in self.needed.values():
            yield x(math.log(length)), level

    def series(self, arm: str, x: AxisScale, y: AxisScale) -> str:
        """An arm: the line through its means, and a tick on the target where it meets that."""
        spots, mean_dots = [], []
        for mean in self.of_arms[arm]:
            spot = x(math.log(mean.length)), y(mean.loss)
            loss, n_runs = show(mean.loss, "loss"), plural(mean.n_runs, "run")
            tip = f"{arm}: {loss} after {mean.in_words}, {n_runs}"
            mean_dots.append(dot(*spot, r=4, tip=tip))
            spots.append(spot)
        dash = self.palette.dash_attribute(arm)
        marks = [mark(f'path d="{path_of(spots)}"{dash}', css="mean", tip=arm), *mean_dots]
        if arm in self.needed and self.target is not None:
            needed = self.needed[arm]
            tick = f"M{pixel(x(math.log(needed)))} {pixel(y(self.target) - 5)}v10"
            tip = f"{arm}: reaches the target with {length_words(needed, self.length)}"
            marks.append(mark(f'path d="{tick}"', css="center", tip=tip))
        return self.palette.series(arm, marks)


def length_words(length: float, unit: str) -> str:
    """A length in steps or tokens."""
    return f"{show(length, 'tokens' if unit == 'tokens' else 'count')} {unit}"


def length_needed(outcome: Comparisons, budgets: Sequence[int]) -> dict[str, float]:
    """Arm -> its steps or tokens to the target, where resolved and not far from the budgets."""
    needed = {}
    for arm, time in outcome.times.items():
        if time.n_star is not None and budgets[0] / 2 < time.n_star < budgets[-1] * 2:
            needed[arm] = time.n_star if time.tokens is None else time.tokens
    return needed


def budget_figure(
    runs: pd.DataFrame, outcome: Comparisons, palette: Palette, *, unit: str, target: float | None
) -> Figure | None:
    """Mean final losses over budgets, N* marked where it is resolved; None with a single budget.

    runs: those that count. unit: of a loss, in words. target: a loss.
    """
    finished = runs[(runs["status"] == "finished") & runs["val_loss"].notna()]
    groups = finished.groupby(["arm", "budget"], sort=True)["val_loss"]
    table = groups.agg(["mean", "count"]).reset_index()
    budgets = sorted(int(b) for b in table["budget"].unique())
    if len(budgets) < 2:
        return None
    means: dict[str, list[Mean]] = {}
    rows: list[tuple[Any, ...]] = []
    for row in table.to_dict("records"):
        budget, of_step = int(row["budget"]), outcome.step_tokens.get(row["arm"])
        mean = Mean(
            budget=budget,
            tokens=None if of_step is None else budget * of_step,
            loss=float(row["mean"]),
            n_runs=int(row["count"]),
        )
        means.setdefault(row["arm"], []).append(mean)
        tokens = () if mean.tokens is None else (kept(mean.tokens, 0),)
        rows.append((row["arm"], mean.budget, kept(mean.loss, 6), mean.n_runs, *tokens))
    of_arms = {arm: means[arm] for arm in palette.arms if arm in means}
    needed, unit_of_length = length_needed(outcome, budgets), outcome.length
    lengths = [mean.length for of_arm in of_arms.values() for mean in of_arm]
    logarithms = [math.log(length) for length in (*lengths, *needed.values())]
    drawing = BudgetCurves(
        of_arms=of_arms,
        marked=lengths_marked(outcome, budgets, of_arms),
        length=unit_of_length,
        needed=needed,
        palette=palette,
        unit=unit,
        target=target,
        x_range=extent(logarithms),
        y_range=extent(table["mean"], around=around_target(target)),
    )
    has_target = target is not None
    return Figure(
        key="budgets",
        title="Loss by budget",
        caption=CAPTION
        + (LENGTH_IN_TOKENS if outcome.step_tokens else "")
        + (OF_TARGET.format(unit_of_length) if has_target else "")
        + palette.in_words,
        alt=f"Final loss over budgets of {', '.join(map(str, budgets))} steps."
        + (needed_words(needed, unit_of_length) if has_target else ""),
        columns=(
            *("arm", "budget", "mean_val_loss", "n_runs"),
            *(("tokens",) if outcome.step_tokens else ()),
        ),
        rows=tuple(rows),
        draw=drawing.draw,
        legend=palette.legend(of_arms),
    )


def lengths_marked(
    outcome: Comparisons, budgets: Sequence[int], of_arms: Mapping[str, Sequence[Mean]]
) -> dict[float, str]:
    """Length -> what is written at it: steps, or the baseline's tokens where a step is no unit."""
    if not outcome.step_tokens:
        return {budget: tick_text(budget, budgets) for budget in budgets}
    of_baseline = of_arms.get(outcome.baseline, [])
    return {mean.length: show(mean.length, "tokens") for mean in of_baseline}


def lengths_in_words(runs: pd.DataFrame) -> str:
    """That a figure shows runs of several budgets, a space in front; '' where they have one."""
    lengths = sorted(int(n) for n in runs["budget"].dropna().unique())
    if len(lengths) < 2:
        return ""
    return f" Runs of every budget: {', '.join(map(str, lengths))} steps."


def needed_words(needed: Mapping[str, float], unit: str) -> str:
    """How many steps or tokens take which arms to the target."""
    lengths = [f"{arm} {length_words(length, unit)}" for arm, length in needed.items()]
    told = "; ".join(lengths[:MAX_NAMED]) or "not resolved for any arm"
    return f" {unit.capitalize()} needed for the target: {told}."
