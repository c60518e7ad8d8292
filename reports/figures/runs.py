"""Figures in which every run is a mark: step time, memory, nodes and drift."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.run.plural import plural
from harness.run.results import Result
from reports.figures.base import (
    MAX_NAMED,
    WIDE,
    AxisScale,
    Drawing,
    Figure,
    dots,
    extent,
    line,
    mark,
    shorten,
    text,
    x_axis,
    y_axis,
)
from reports.figures.budgets import lengths_in_words
from reports.figures.palette import Palette
from reports.figures.rows import (
    MANY_ROWS,
    name_above,
    name_beside,
    narrow_row,
    narrow_step,
    wide_step,
)
from reports.figures.scatter import scatter
from reports.figures.wall import wall
from reports.stats.digits import kept, pixel, settled

MAX_WHISKERS = 200  # beyond, single runs' spreads are a blur that hides the dots
MAX_NODES = 8  # nodes with a lane of their own
LANE = 120  # px of a node's lane in the figure of drift
GOLDEN = 0.618  # part of a turn: successive dots of a row are spread without meeting


@dataclass(frozen=True, kw_only=True)
class Strip:
    """What a strip plot shows: its words, and the columns of runs that it is drawn from."""

    key: str
    title: str
    caption: str
    axis: str
    column: str  # the dot
    low: str | None = None  # column where the bar through the dot begins
    high: str | None = None
    from_zero: bool = False

    @property
    def columns(self) -> list[str]:
        return [c for c in (self.low, self.column, self.high) if c]


STEP_TIME = Strip(
    key="step_ms",
    title="Step time",
    caption="Dots are runs' means, ticks the arms'.",
    axis="step time, ms",
    column="step_ms",
    low="step_ms_median",
    high="step_ms_p95",
)
MEMORY = Strip(
    key="memory",
    title="Peak memory",
    caption="Highest allocated memory of each run.",
    axis="peak allocated, MiB",
    column="peak_allocated_mib",
    from_zero=True,
)


@dataclass(frozen=True, kw_only=True)
class StripRows:
    """The drawing of a strip plot: one row per arm, one dot per run, a tick at the arm's mean."""

    of: Strip
    runs: pd.DataFrame
    palette: Palette
    means: Mapping[str, float]
    x_range: tuple[float, float]

    def draw(self, width: int) -> Drawing:
        above = width != WIDE  # narrow: the arm's name goes above its row
        arms = [*self.means]
        height = 26 if len(arms) <= MANY_ROWS else 20  # of the dots alone
        left, step = 232, wide_step(self.palette, arms, height)
        if above:
            left, step = 12, narrow_step(self.palette, arms, width - 24)
            height = narrow_row(len(arms)) - 16
        bottom = 16 + step * len(self.means)
        low, high = self.x_range
        if self.of.from_zero:
            low = 0.0
        x = AxisScale(low=low, high=high, start=left, end=width - 14)
        parts = [x_axis(x, 8, bottom, self.of.axis, n=width // 110)]
        for place, arm in enumerate(self.means):
            y = 12 + step * (place + 1) - (height if above else step) / 2
            name = name_beside(self.palette, arm, left - 12, y)
            if above:
                name = name_above(self.palette, arm, y - 12, width - 24)
            parts.append(self.palette.series(arm, [name, *self.row(arm, x, y, height)]))
        return "".join(parts), bottom + 44

    def row(self, arm: str, x: AxisScale, y: float, height: float) -> list[str]:
        """The marks of an arm around y: bars of single runs, their dots, the mean.

        height: over which the dots are spread, px."""
        bars = []
        spots: list[tuple[float, float, int]] = []
        of_arm = self.runs[self.runs["arm"] == arm]
        for place, (row, run) in enumerate(zip(of_arm.index, of_arm.to_dict("records"))):
            shift = ((place * GOLDEN) % 1.0 - 0.5) * height * 0.5
            if self.has_bar(run):
                bars.append(
                    line(x(run[self.of.low]), y + shift, x(run[self.of.high]), y + shift, "whisker")
                )
            spots.append((x(run[self.of.column]), y + shift, row))
        mean = self.means[arm]
        tick = f'path d="M{pixel(x(mean))} {pixel(y - 9)}v18"'
        return [
            *bars,
            dots(spots, r=3),
            mark(tick, css="center", tip=f"{arm}: mean {settled(mean):.4g}"),
        ]

    @property
    def words_of_bars(self) -> str:
        """What the bars are, a space in front; '' where none is drawn."""
        if not any(map(self.has_bar, self.runs.to_dict("records"))):
            return ""
        return " Bars run from a run's median to its 95th percentile."

    def has_bar(self, run: Mapping[Hashable, Any]) -> bool:
        if not self.of.low or not self.of.high or len(self.runs) > MAX_WHISKERS:
            return False
        return bool(pd.notna(run[self.of.low]) and pd.notna(run[self.of.high]))


def strip(of: Strip, runs: pd.DataFrame, palette: Palette) -> Figure | None:
    """One row per arm, one dot per run, a tick at the mean; None where no run has the number."""
    shown = runs[runs[of.column].notna()]
    budgets = lengths_in_words(shown)
    if not len(shown) or (of.from_zero and shown[of.column].nunique() == 1):
        return None  # a number that is the same for all runs is no figure
    shown = shown[["arm", "seed", "run_id", *of.columns]]
    values: list[float] = []
    for column in of.columns:
        values += shown[column].dropna().astype(float).tolist()
    around = [0.0] if of.from_zero else []
    means = {}
    for arm in palette.arms:
        of_arm = shown[shown["arm"] == arm]
        if len(of_arm):
            means[arm] = float(of_arm[of.column].mean())
    drawing = StripRows(
        of=of, runs=shown, palette=palette, means=means, x_range=extent(values, around=around)
    )
    arm_means = [f"{arm} {settled(mean):.4g}" for arm, mean in means.items()]
    return Figure(
        key=of.key,
        title=of.title,
        caption=of.caption + drawing.words_of_bars + budgets,
        alt=f"{of.title}: one dot per run, one row per arm. "
        f"Means, {of.axis}: {'; '.join(arm_means[:MAX_NAMED])}.",
        columns=tuple(shown.columns),
        rows=tuple(shown.itertuples(index=False, name=None)),
        runs=tuple(shown.index),
        draw=drawing.draw,
    )


@dataclass(frozen=True, kw_only=True)
class Drift:
    """The drawing of step times in the order of starting, a lane for every node."""

    runs: pd.DataFrame
    palette: Palette
    lanes: Mapping[str, pd.DataFrame]  # node -> its runs

    def draw(self, width: int) -> Drawing:
        left, right = 52, width - 12
        low, high = extent(self.runs["percent"], around=[-0.5, 0.5])
        x = AxisScale(low=0, high=len(self.runs) + 1, start=left, end=right)
        parts = [text(0, 12, "step time against the arm's mean, %", css="axis")]
        for place, (node, runs) in enumerate(self.lanes.items()):
            top = 34 + place * (LANE + 24)
            y = AxisScale(low=low, high=high, start=top + LANE, end=top + 10)
            parts.append(text(left, top + 2, shorten(node, width - 60), css="label"))
            parts.append(y_axis(y, left, right, "", n=4))
            parts.append(line(left, y(0), right, y(0), "zero"))
            parts += self.lane_marks(runs, x, y)
        bottom = 34 + len(self.lanes) * (LANE + 24) - 24
        axis_title = "runs in the order they were started"
        parts.append(text(width / 2, bottom + 22, axis_title, anchor="middle", css="axis"))
        return "".join(parts), bottom + 32

    def lane_marks(self, runs: pd.DataFrame, x: AxisScale, y: AxisScale) -> list[str]:
        groups = []
        for arm, of_arm in runs.groupby("arm", sort=False):
            spots = []
            for row, order, percent in zip(of_arm.index, of_arm["order"], of_arm["percent"]):
                spots.append((x(order), y(percent), row))
            groups.append(self.palette.series(str(arm), [dots(spots, r=3)]))
        return groups


def drift(runs: pd.DataFrame, palette: Palette, started: Mapping[str, str]) -> Figure | None:
    """Step time relative to the arm's own mean, by node: a slope or a step is drift.

    started: run_id -> when it began, in ISO 8601.
    """
    shown = runs[runs["step_ms"].notna() & runs["run_id"].isin(started)]
    if len(shown) < 3:
        return None
    arm_means = shown.groupby("arm")["step_ms"].transform("mean")
    percent = (shown["step_ms"] / arm_means - 1.0) * 100.0
    shown = shown.assign(started=shown["run_id"].map(started), percent=percent)
    shown = shown.sort_values("started")
    shown = shown.assign(order=range(1, len(shown) + 1))
    nodes = sorted(str(n) for n in shown["node"].dropna().unique())
    lanes = {"unknown": shown}
    if nodes and nodes != ["unknown"]:
        lanes = {node: shown[shown["node"].astype(str) == node] for node in nodes[:MAX_NODES]}
    on_nodes, left_out = plural(len(lanes), "node"), ""
    if len(nodes) > len(lanes):
        on_nodes = f"the first {len(lanes)} of {len(nodes)} nodes"
        left_out = f" Of {len(nodes)} nodes the first {len(lanes)} by name are drawn."
    drawing = Drift(runs=shown, palette=palette, lanes=lanes)
    columns = ["order", "started", "node", "arm", "seed", "run_id", "step_ms"]
    rounded = {c: shown[c].map(kept) for c in ("step_ms", "percent")}
    table = shown.assign(**rounded)[[*columns, "percent"]]
    least, most = settled(shown["percent"].min()), settled(shown["percent"].max())
    return Figure(
        key="drift",
        title="Nodes and drift",
        caption="Each run's step time against its arm's mean, by node, in the order of starting; "
        f"level and flat is good.{left_out}",
        alt=f"Dots of relative step time in starting order on {on_nodes}; "
        f"from {least:+.2f} % to {most:+.2f} %.",
        columns=(*columns, "percent_of_arm_mean"),
        rows=tuple(table.itertuples(index=False, name=None)),
        draw=drawing.draw,
    )


def run_figures(
    runs: pd.DataFrame,
    results: Mapping[str, Result],
    palette: Palette,
    *,
    unit: str,
    target: float | None,
    steps: Figure | None = None,
) -> list[Figure]:
    """Every figure of single runs that the data can fill.

    results: run_id -> result.json; unit: of a loss, in words; target: a loss; steps: the
    distribution of step times, which stands among them.
    """
    started = {}
    for run_id, result in results.items():
        if result.started:
            started[run_id] = result.started
    candidates: Sequence[Figure | None] = (
        scatter(runs, palette, unit=unit, target=target),
        strip(STEP_TIME, runs, palette),
        steps,
        strip(MEMORY, runs, palette),
        wall(runs, results, palette),
        drift(runs, palette, started),  # the last: low beside those of an arm a row, on paper too
    )
    return [figure for figure in candidates if figure is not None]
