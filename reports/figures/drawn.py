"""Points drawn along two axes, the darker the lower their loss, and where a surface is lowest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from harness.run.plan import Plan
from reports.analysis.optimum import GridAxis, Optimum, number_of
from reports.analysis.samples import arms_on_the_axes
from reports.figures.base import (
    MAX_NAMED,
    AxisScale,
    Drawing,
    Figure,
    LogScale,
    clipped,
    extent,
    mark,
    path_of,
    shorten,
    text,
    x_axis,
    y_axis,
)
from reports.figures.heat import HeatCell, cell_of_arm, lowest_words
from reports.format import show
from reports.stats.digits import kept, pixel

PANEL, PANEL_TOP, PANEL_FOOT = 300, 44, 52  # px: of the plane, above it, below it
POINT_RADIUS = 8  # px of a point's radius
CROSS = 7  # px of the lowest place's arms
Point = tuple[str, str]  # its words on the first axis and on the second


@dataclass(frozen=True, kw_only=True)
class DrawnPoints:
    """The drawing: a panel an arm, the first axis across, the second up."""

    axes: tuple[GridAxis, GridAxis]
    arms: Mapping[str, Mapping[Point, HeatCell]]
    lowest: Mapping[str, Sequence[Optimum]]  # of an arm, one for each axis

    def draw(self, width: int) -> Drawing:
        height = PANEL_TOP + PANEL + PANEL_FOOT
        parts = []
        for place, arm in enumerate(self.arms):
            parts += self.panel(arm, place * height, width)
        return "".join(parts), height * len(self.arms)

    def panel(self, arm: str, top: float, width: int) -> list[str]:
        left, right, bottom = 52, width - 12, top + PANEL_TOP + PANEL
        x = scale_of(self.axes[0], left, right)
        y = scale_of(self.axes[1], bottom, top + PANEL_TOP)
        parts = [text(0, top + 12, shorten(arm, width), css="label value")]
        parts.append(y_axis(y, left, right, self.axes[1].name))
        parts.append(x_axis(x, top + PANEL_TOP, bottom, self.axes[0].name, n=width // 90))
        parts += self.place(arm, (x, y))
        losses = [cell.loss for cell in self.arms[arm].values() if cell.loss is not None]
        for point, cell in self.arms[arm].items():
            at = x(number_of(point[0])), y(number_of(point[1]))
            parts.append(spot(cell, losses, at))
            if cell.loss is not None and cell.loss == min(losses):
                anchor, aside = ("start", 14) if at[0] < (left + right) / 2 else ("end", -14)
                number = show(cell.loss, "loss")
                parts.append(text(at[0] + aside, at[1] + 4, number, anchor=anchor, css="value"))
        return parts

    def place(self, arm: str, scales: tuple[AxisScale, AxisScale]) -> list[str]:
        """The region of an arm's lowest place, cut to the panel, and a cross at that place."""
        x, y = scales
        parts = []
        for lowest_place in self.lowest.get(arm, ())[:1]:
            if lowest_place.region is not None:
                edge = []
                for across, up in lowest_place.region[::3]:
                    spot_x = x(self.axes[0].value_at(across))
                    edge.append((spot_x, y(self.axes[1].value_at(up))))
                shape = f'<path class="band" d="{path_of(edge)}"/>'
                size = x.end - x.start, y.start - y.end
                parts.append(clipped(x.start, y.end, *size, shape))
        values = [o.value for o in self.lowest.get(arm, ())]
        if len(values) == 2 and values[0] is not None and values[1] is not None:
            across, down = x(values[0]), y(values[1])
            level = [(across - CROSS, down), (across + CROSS, down)]
            upright = [(across, down - CROSS), (across, down + CROSS)]
            parts.append(f'<path class="interval" d="{path_of(level)}{path_of(upright)}"/>')
        return parts


def scale_of(axis: GridAxis, start: float, end: float) -> AxisScale:
    """A scale over the points of an axis, with a margin; start, end: in pixels."""
    low, high = extent(axis.places)
    kind = LogScale if axis.is_logarithmic else AxisScale
    return kind(low=axis.value_at(low), high=axis.value_at(high), start=start, end=end)


def spot(cell: HeatCell, losses: Sequence[float], at: tuple[float, float]) -> str:
    """A point with its colour among the losses of its arm; at: in pixels."""
    shade = 0.0
    if cell.loss is not None and max(losses) > min(losses):
        shade = (max(losses) - cell.loss) / (max(losses) - min(losses))
    r = POINT_RADIUS
    ring = f"M{pixel(at[0] - r)} {pixel(at[1])}a{r} {r} 0 1 0 {2 * r} 0 {r} {r} 0 1 0-{2 * r} 0"
    outline = f'<path class="block" d="{ring}"/>'
    shape = f'path d="{ring}" fill-opacity="{shade:.3f}"'
    return outline + mark(shape, tip=f"{show(cell.loss, 'loss')}, {cell.below}", css="heat")


def drawn_points(
    runs: pd.DataFrame, plan: Plan, lowest: Sequence[Optimum], *, unit: str
) -> Figure | None:
    """None but of points drawn along two axes.

    runs: those that count, at one budget. lowest: of every arm and axis. unit: of a loss.
    """
    if len(plan.axes) != 2 or not plan.draw:
        return None
    first, second = plan.axes
    arms: dict[str, dict[Point, HeatCell]] = {}
    rows = []
    for arm in arms_on_the_axes(plan):
        cell = cell_of_arm(runs[runs["arm"] == arm.name])
        point = arm.point[first], arm.point[second]
        arms.setdefault(arm.of, {})[point] = cell
        rows.append((arm.of, *point, kept(cell.loss, 6), cell.n_finished, cell.n_diverged))
    if not any(row[3] is not None for row in rows):
        return None
    axes = []
    for name in plan.axes:
        on_axis = sorted({arm.point[name] for arm in arms_on_the_axes(plan)}, key=number_of)
        axes.append(GridAxis(name=name, words=tuple(on_axis)))
    places: dict[str, list[Optimum]] = {}
    for lowest_place in lowest:
        places.setdefault(lowest_place.arm, []).append(lowest_place)
    drawing = DrawnPoints(axes=(axes[0], axes[1]), arms=arms, lowest=places)
    return Figure(
        key="drawn",
        title="Loss at the drawn points",
        caption="A point's colour is the mean final validation loss of its finished runs, in "
        f"{unit}, the darker the lower among those of its arm; the lowest has its number. The cross"
        " is where the quadratic surface through them is lowest, the shape around it the region in"
        " which that place lies with 95 % confidence; without a shape none is told.",
        alt=f"Scatter of points, {first} across and {second} up, coloured by mean loss. "
        + "; ".join(lowest_words(arm, points) for arm, points in [*arms.items()][:MAX_NAMED]),
        columns=("arm", first, second, "mean_val_loss", "n_finished", "n_diverged"),
        rows=tuple(rows),
        draw=drawing.draw,
    )
