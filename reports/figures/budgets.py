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
from reports.stats.digits import kept, pixel, settled

CAPTION = "Each dot is the mean final loss of schedules of that length, each with its own cooldown."
OF_TARGET = (
    " Where a line meets the target is the number of steps that arm needs; the ticks mark the "
    "estimates."
)


@dataclass(frozen=True, kw_only=True)
class Mean:
    """The mean final loss of an arm's schedules of one length."""

    budget: int  # steps
    loss: float
    n_runs: int


PARTS_OF_LINE = 50  # places of a line between two budgets, which no label is to lie on


@dataclass(frozen=True, kw_only=True)
class BudgetCurves:
    """The drawing: a line per arm on a logarithmic axis of steps."""

    of_arms: Mapping[str, Sequence[Mean]]
    budgets: Sequence[int]
    needed: Mapping[str, float]  # arm -> steps to the target, where resolved
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
        for budget in self.budgets:
            at = x(math.log(budget))
            label = tick_text(budget, self.budgets)
            parts.append(line(at, top, at, bottom, "grid"))
            parts.append(text(at, height - 32, label, anchor="middle", css="tick"))
        axis_title = "steps of the whole schedule, logarithmic"
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
                    start, end = math.log(before.budget), math.log(after.budget)
                    loss = before.loss + share * (after.loss - before.loss)
                    yield x(start + share * (end - start)), y(loss)
        for steps in self.needed.values():
            yield x(math.log(steps)), level

    def series(self, arm: str, x: AxisScale, y: AxisScale) -> str:
        """An arm: the line through its means, and a tick on the target where it meets that."""
        spots, mean_dots = [], []
        for mean in self.of_arms[arm]:
            spot = x(math.log(mean.budget)), y(mean.loss)
            loss, n_runs = show(mean.loss, "loss"), plural(mean.n_runs, "run")
            tip = f"{arm}: {loss} after {mean.budget} steps, {n_runs}"
            mean_dots.append(dot(*spot, r=4, tip=tip))
            spots.append(spot)
        dash = self.palette.dash_attribute(arm)
        marks = [mark(f'path d="{path_of(spots)}"{dash}', css="mean", tip=arm), *mean_dots]
        if arm in self.needed and self.target is not None:
            steps = self.needed[arm]
            tick = f"M{pixel(x(math.log(steps)))} {pixel(y(self.target) - 5)}v10"
            tip = f"{arm}: reaches the target with {settled(steps):.0f} steps"
            marks.append(mark(f'path d="{tick}"', css="center", tip=tip))
        return self.palette.series(arm, marks)


def steps_needed(outcome: Comparisons, budgets: Sequence[int]) -> dict[str, float]:
    """Arm -> its steps to the target, where they are resolved and not far from the budgets."""
    needed = {}
    for arm, time in outcome.times.items():
        if time.n_star is not None and budgets[0] / 2 < time.n_star < budgets[-1] * 2:
            needed[arm] = time.n_star
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
        mean = Mean(budget=int(row["budget"]), loss=float(row["mean"]), n_runs=int(row["count"]))
        means.setdefault(row["arm"], []).append(mean)
        rows.append((row["arm"], mean.budget, kept(mean.loss, 6), mean.n_runs))
    of_arms = {arm: means[arm] for arm in palette.arms if arm in means}
    needed = steps_needed(outcome, budgets)
    logarithms = [math.log(v) for v in (*budgets, *needed.values())]
    drawing = BudgetCurves(
        of_arms=of_arms,
        budgets=budgets,
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
        caption=CAPTION + (OF_TARGET if has_target else "") + palette.in_words,
        alt=f"Final loss over budgets of {', '.join(map(str, budgets))} steps."
        + (needed_words(needed) if has_target else ""),
        columns=("arm", "budget", "mean_val_loss", "n_runs"),
        rows=tuple(rows),
        draw=drawing.draw,
        legend=palette.legend(of_arms),
    )


def lengths_in_words(runs: pd.DataFrame) -> str:
    """That a figure shows runs of several budgets, a space in front; '' where they have one."""
    lengths = sorted(int(n) for n in runs["budget"].dropna().unique())
    if len(lengths) < 2:
        return ""
    return f" Runs of every budget: {', '.join(map(str, lengths))} steps."


def needed_words(needed: Mapping[str, float]) -> str:
    """How many steps take which arms to the target."""
    steps = [f"{arm} {settled(n):.0f} steps" for arm, n in needed.items()]
    told = "; ".join(steps[:MAX_NAMED]) or "not resolved for any arm"
    return f" Steps needed for the target: {told}."
