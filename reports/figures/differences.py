"""Loss minus the baseline's by step: a small chart for every arm; of many arms one for all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from harness.run.plural import plural
from reports.figures.base import (
    MAX_NAMED,
    WIDE,
    ArmKey,
    AxisScale,
    Drawing,
    Figure,
    clipped,
    extent,
    line,
    mark,
    path_of,
    text,
    tick_text,
    x_axis,
    y_axis,
)
from reports.figures.bundles import Bundle, Course, band, is_late, points_of, thin
from reports.figures.palette import Palette
from reports.figures.rows import LINE, most_lines, text_lines
from reports.figures.tags import TAG_GAP, WIDE_TAG, tags
from reports.stats.digits import kept, settled

MAX_PANELS = 12  # arms beyond which a chart for each is too small to read
GAP_X, GAP_Y = 20, 46  # px between panels
PANELS_TOP = 34  # of the first panel
LABELS = 46  # px of a panel for its tick labels


@dataclass(frozen=True, kw_only=True)
class ArmDifference:
    """An arm's differences to the baseline: one row per block both finished, else one of means."""

    steps: np.ndarray
    rows: np.ndarray
    in_blocks: bool

    @property
    def mean(self) -> np.ndarray:
        return np.asarray(self.rows.mean(axis=0))

    @property
    def low(self) -> np.ndarray:
        return np.asarray(self.rows.min(axis=0))

    @property
    def high(self) -> np.ndarray:
        return np.asarray(self.rows.max(axis=0))


def by_step(run: Course) -> dict[float, float]:
    return dict(zip(run.steps, run.losses))


def differences(
    data: Mapping[str, Bundle], runs: pd.DataFrame, baseline: str
) -> dict[str, ArmDifference]:
    """Arm -> its difference to the baseline at the steps that they share."""
    blocked = runs[runs["block"].notna() & runs["seed"].notna()]  # the rest is never paired
    block_of = dict(zip(blocked["run_id"], blocked["block"]))
    base = data[baseline]
    base_losses = {}
    for run_id, run in base.runs.items():
        if run_id in block_of:
            base_losses[block_of[run_id]] = by_step(run)
    out = {}
    for arm, bundle in data.items():
        if arm == baseline:
            continue
        steps = np.intersect1d(bundle.steps, base.steps)
        rows = []
        for run_id, run in bundle.runs.items():
            other = base_losses.get(block_of.get(run_id))
            if other:
                losses = by_step(run)
                rows.append([losses.get(t, np.nan) - other.get(t, np.nan) for t in steps])
        in_blocks = bool(rows)
        if not in_blocks:
            mean = bundle.mean[np.isin(bundle.steps, steps)]
            rows.append(list(mean - base.mean[np.isin(base.steps, steps)]))
        out[arm] = ArmDifference(steps=steps, rows=np.array(rows), in_blocks=in_blocks)
    return out


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Where the panels stand."""

    n_columns: int
    panel_width: float
    panel_height: float
    names_height: float  # of the lines of a name beyond the first

    @classmethod
    def of(cls, width: int, palette: Palette, arms: Sequence[str]) -> "Grid":
        n_panels = len(arms)
        n_columns = columns_for(n_panels, is_wide=width == WIDE)
        gaps = GAP_X * (n_columns - 1)
        panel_width = (width - 14 - gaps) / n_columns  # 14: half of the last tick's label
        panel_height = 104
        if n_panels <= 9:
            panel_height = 150
        return cls(
            n_columns=n_columns,
            panel_width=panel_width,
            panel_height=panel_height,
            names_height=LINE * (most_lines(palette, arms, panel_width - GAP_X) - 1),
        )

    def left(self, panel: int) -> float:
        return (self.panel_width + GAP_X) * (panel % self.n_columns)

    def top(self, panel: int) -> float:
        return PANELS_TOP + self.names_height + self.row_height * (panel // self.n_columns)

    def height(self, n_panels: int) -> float:
        n_rows = -(-n_panels // self.n_columns)
        return PANELS_TOP + self.row_height * n_rows

    @property
    def row_height(self) -> float:
        return self.panel_height + self.names_height + GAP_Y


def columns_for(n_panels: int, *, is_wide: bool) -> int:
    if not is_wide:
        return 1 if n_panels <= 4 else 2
    if n_panels == 1:
        return 1
    if n_panels <= 4:
        return 2
    if n_panels <= 9:
        return 3
    return 4


@dataclass(frozen=True, kw_only=True)
class Panels:
    """The drawing: a panel for every arm, or one for all of them."""

    deltas: Mapping[str, ArmDifference]
    palette: Palette
    unit: str
    y_range: tuple[float, float]
    last: float  # step

    def draw(self, width: int) -> Drawing:
        axis_title = f"difference in {self.unit}"
        if width == WIDE:
            axis_title = f"difference in validation loss, {self.unit}; below zero is better"
        if len(self.deltas) > MAX_PANELS:
            return self.draw_together(width, axis_title)
        grid = Grid.of(width, self.palette, [*self.deltas])
        parts = [text(0, 12, axis_title, css="axis")]
        for place, arm in enumerate(self.deltas):
            parts.append(self.panel(arm, grid, grid.left(place), grid.top(place)))
        return "".join(parts), grid.height(len(self.deltas))

    def draw_together(self, width: int, axis_title: str) -> Drawing:
        """A line an arm, without bands, which would hide one another."""
        height = 300
        if width == WIDE:
            height = 400
        margin = 12 + (WIDE_TAG + TAG_GAP) * self.palette.has_numbers
        left, right, top, bottom = 52, width - margin, 30, height - 48
        low, high = self.y_range
        x = AxisScale(low=0, high=self.last, start=left, end=right)
        y = AxisScale(low=low, high=high, start=bottom, end=top)
        lines = [self.palette.series(arm, [self.mean_line(arm, x, y)]) for arm in self.deltas]
        parts = [
            y_axis(y, left, right, axis_title),
            x_axis(x, top, bottom, "step", n=width // 110),
            line(left, y(0), right, y(0), "zero"),
            clipped(left, top, right - left, bottom - top, "".join(lines)),
            *tags(self.palette, self.ends(x, y), top, bottom),
        ]
        return "".join(parts), height

    def ends(self, x: AxisScale, y: AxisScale) -> dict[str, tuple[float, float]]:
        """Where each arm's line ends."""
        ends = {}
        for arm, delta in self.deltas.items():
            [ends[arm]] = points_of(delta.steps[-1:], delta.mean[-1:], x, y)
        return ends

    def panel(self, arm: str, grid: Grid, left: float, top: float) -> str:
        """One arm: its name, its axes, and inside them its mean over its band."""
        start, end = left + LABELS, left + grid.panel_width
        bottom = top + grid.panel_height
        low, high = self.y_range
        x = AxisScale(low=0, high=self.last, start=start, end=end)
        y = AxisScale(low=low, high=high, start=bottom, end=top + 12)
        name = self.palette.lines(arm, grid.panel_width - GAP_X)
        marks = [
            *text_lines(name, left, top - LINE * (len(name) - 1), css="label own"),
            y_axis(y, start, end, "", n=3),
            line(start, y(0), end, y(0), "zero"),
        ]
        ticks = x.ticks(3)
        for tick in ticks:
            label = tick_text(tick, ticks)
            marks.append(text(x(tick), bottom + 15, label, anchor="middle", css="tick"))
        inside = self.inside(arm, x, y)
        height = grid.panel_height - 12
        marks.append(clipped(start, top + 12, grid.panel_width - LABELS, height, inside))
        return self.palette.series(arm, marks)

    def inside(self, arm: str, x: AxisScale, y: AxisScale) -> str:
        """The mean, over the band of the blocks where there are several."""
        delta = self.deltas[arm]
        drawn = self.mean_line(arm, x, y)
        if len(delta.rows) == 1:
            return drawn
        at = thin(len(delta.steps))
        return band(delta.steps[at], delta.low[at], delta.high[at], x, y) + drawn

    def mean_line(self, arm: str, x: AxisScale, y: AxisScale) -> str:
        delta = self.deltas[arm]
        at = thin(len(delta.steps))
        mean = delta.mean
        tip = f"{arm}: {settled(mean[-1]):+.4f} at the last step"
        if delta.in_blocks:
            tip += f", {plural(len(delta.rows), 'block')}"
        path = path_of(points_of(delta.steps[at], mean[at], x, y))
        return mark(f'path d="{path}"', css="mean", tip=tip)


def caption_of(deltas: Sequence[ArmDifference]) -> str:
    """What is subtracted from what; runs that share no block have their means compared."""
    blocked = [delta for delta in deltas if delta.in_blocks]
    if not blocked:
        return "An arm's mean less the baseline's: no runs share a block. Below zero is better."
    caption = "Mean over blocks of the difference to the baseline run of the same block"
    caption += "." if len(deltas) > MAX_PANELS else "; the band spans the blocks."
    if len(blocked) < len(deltas):
        caption += " An arm that shares no block with the baseline: its mean less the baseline's."
    return f"{caption} Below zero is better."


def difference_figure(
    data: Mapping[str, Bundle], runs: pd.DataFrame, palette: Palette, unit: str
) -> Figure | None:
    """Loss minus the baseline's in the same block; below zero is better.

    None where no arm was validated at steps of the baseline's.
    """
    deltas = {}
    late: list[float] = []
    last_differences = []
    rows: list[tuple[Any, ...]] = []
    for arm, delta in differences(data, runs, palette.baseline).items():
        if len(delta.steps) <= 1:
            continue
        deltas[arm] = delta
        late += list(delta.rows[:, is_late(delta.steps)].ravel())
        last_differences.append(f"{arm} {settled(delta.mean[-1]):+.4f}")
        for step, *losses in zip(delta.steps, delta.mean, delta.low, delta.high):
            rounded = [kept(v, 6) for v in losses]
            rows.append((arm, int(step), *rounded, len(delta.rows) * delta.in_blocks))
    if not deltas:
        return None
    low, high = extent(late, around=[0.0])
    drawing = Panels(
        deltas=deltas,
        palette=palette,
        unit=unit,
        y_range=(low, high),
        last=max(float(delta.steps[-1]) for delta in deltas.values()),
    )
    caption, charts = caption_of(list(deltas.values())), "Small charts, one per arm,"
    legend: tuple[ArmKey, ...] = ()
    if len(deltas) > MAX_PANELS:
        caption, charts, legend = caption + palette.in_words, "Lines", palette.legend(deltas)
    if any(mean.min() < low or mean.max() > high for mean in (d.mean for d in deltas.values())):
        caption += " The first part runs off."
    return Figure(
        key="difference",
        title="Difference to the baseline by step",
        caption=caption,
        alt=f"{charts} of the loss difference to the baseline over steps. At the "
        f"last step: {'; '.join(last_differences[:MAX_NAMED])}.",
        columns=("arm", "step", "mean_difference", "lowest", "highest", "n_blocks"),
        rows=tuple(rows),
        draw=drawing.draw,
        legend=legend,
    )
