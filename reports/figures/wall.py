"""Where the wall time went: seconds of every stage of a run, stacked, one bar an arm."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from harness.run.results import PHASES, Result, where_time_went
from reports.figures.base import WIDE, AxisScale, Drawing, Figure, mark, text, x_axis
from reports.figures.budgets import lengths_in_words
from reports.figures.palette import Palette
from reports.figures.rows import name_above, name_beside, narrow_step, wide_step
from reports.stats.digits import kept, pixel, settled

STAGES = (*PHASES.values(), "rest", "idle")
Seconds = Mapping[str, float]  # stage -> seconds, of those that took any


def keys_per_row(width: int) -> int:
    if width == WIDE:
        return 7
    return 3


def stage_css(stage: str) -> str:
    return f"wall w{STAGES.index(stage)}"


EDGE = 5  # px left of a narrow axis, for half of the tick at zero


@dataclass(frozen=True, kw_only=True)
class Wall:
    """The drawing."""

    of_arms: Mapping[str, Seconds]  # mean seconds per run
    stages: Sequence[str]
    palette: Palette

    def draw(self, width: int) -> Drawing:
        above = width != WIDE
        arms = [*self.of_arms]
        left, step = 232, wide_step(self.palette, arms, 26)
        if above:
            left, step = EDGE, narrow_step(self.palette, arms, width - 20)
        n_key_rows = -(-len(self.stages) // keys_per_row(width))
        top = 12 + 18 * n_key_rows
        bottom = top + step * len(self.of_arms)
        longest = max(math.fsum(seconds.values()) for seconds in self.of_arms.values())
        x = AxisScale(low=0, high=longest * 1.02, start=left, end=width - 14)
        parts = key_rows(self.stages, width)
        parts.append(x_axis(x, top, bottom, "seconds per run (mean)", n=width // 110))
        for place, (arm, seconds) in enumerate(self.of_arms.items()):
            y = top + step * (place + 1) - (20 if above else step / 2 + 8)
            name = name_beside(self.palette, arm, left - 12, y + 8)
            if above:
                name = name_above(self.palette, arm, y - 5, width - 20)
            parts.append(name)
            parts += bar_pieces(arm, seconds, x, y)
        return "".join(parts), bottom + 44


def bar_pieces(arm: str, seconds: Seconds, x: AxisScale, y: float) -> list[str]:
    """One arm's bar, a piece for each stage."""
    pieces = []
    begin = 0.0
    for stage, taken in seconds.items():
        width = max(0.5, x(begin + taken) - x(begin))
        shape = f'rect x="{pixel(x(begin))}" y="{pixel(y)}" width="{pixel(width)}" height="16"'
        pieces.append(
            mark(shape, css=stage_css(stage), tip=f"{arm}: {stage} {settled(taken):.3g} s")
        )
        begin += taken
    return pieces


def key_rows(stages: Sequence[str], width: int) -> list[str]:
    """The colour keys of the stages, in as many rows as they need."""
    per_row = keys_per_row(width)
    keys = []
    for place, stage in enumerate(stages):
        x = (place % per_row) * (width / per_row)
        y = 10 + 18 * (place // per_row)
        square = f'<rect x="{x:.0f}" y="{y - 9:.0f}" width="10" height="10"'
        label = text(x + 15, y, stage, css="tick")
        keys.append(f'{square} class="{stage_css(stage)}"/>{label}')
    return keys


def walls_of(
    arm: str, runs: pd.DataFrame, results: Mapping[str, Result]
) -> list[Mapping[str, float]]:
    """What each run of an arm recorded of its wall time."""
    walls = []
    for run_id in runs.loc[runs["arm"] == arm, "run_id"]:
        result = results.get(run_id)
        if result is not None and result.wall:
            walls.append(result.wall)
    return walls


def wall(runs: pd.DataFrame, results: Mapping[str, Result], palette: Palette) -> Figure | None:
    """Mean seconds per run and arm of each stage: how much of the time trained anything."""
    of_arms: dict[str, dict[str, float]] = {}
    all_walls = []
    rows = []
    for arm in palette.arms:
        walls = walls_of(arm, runs, results)
        all_walls += walls
        for stage, total in where_time_went(walls)[0].items():
            if total > 0:
                seconds = total / len(walls)
                of_arms.setdefault(arm, {})[stage] = seconds
                rows.append((arm, stage, kept(seconds, 4)))
    if not rows:
        return None
    useful = settled(where_time_went(all_walls)[1])
    seen = {stage for _, stage, _ in rows}
    stages = [stage for stage in STAGES if stage in seen]
    drawing = Wall(of_arms=of_arms, stages=stages, palette=palette)
    return Figure(
        key="wall",
        title="Where the wall time went",
        caption=f"{useful:.1%} of the workers' time was training or validation; "
        "idle: the wait of a worker for its next run." + lengths_in_words(runs),
        alt=f"Stacked bars of mean seconds per run by stage. {useful:.1%} was training or "
        "validation.",
        columns=("arm", "stage", "mean_seconds"),
        rows=tuple(rows),
        draw=drawing.draw,
    )
