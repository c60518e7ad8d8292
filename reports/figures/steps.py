"""The figure of how long steps took: a histogram per arm of its runs' single steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from reports.figures.base import (
    MAX_NAMED,
    WIDE,
    AxisScale,
    Drawing,
    Figure,
    line,
    mark,
    x_axis,
)
from reports.figures.budgets import lengths_in_words
from reports.figures.palette import Palette
from reports.figures.rows import name_above, name_beside, narrow_row, narrow_step, wide_step
from reports.format import show
from reports.inputs.step_times import StepTimes, of_stretches, percentiles, shares_below
from reports.stats.digits import kept, pixel

N_BINS = 48  # of a distribution of step times
FEWEST = 3  # steps of an arm from which on its distribution is drawn
# Percentiles of all steps between which the axis runs; the rest is counted in the outermost bins.
TAILS = (0.5, 99.5)


def by_arm(
    curves: pd.DataFrame,
    runs: pd.DataFrame,
    step_times: Mapping[str, StepTimes],
    palette: Palette,
    *,
    skip_first: bool,
) -> dict[str, list[StepTimes]]:
    """Arm -> the step times of its finished runs: single steps, or means between validations.

    step_times: run_id -> single steps, where they were recorded; skip_first: the first stretch
    between validations holds steps that the clock did not count.
    curves, runs: the experiment's tables.
    """
    finished = runs[runs["status"] == "finished"]
    without = set(finished["run_id"]) - set(step_times)
    stretches = of_stretches(curves[curves["run_id"].isin(without)], skip_first=skip_first)
    of_run = {**step_times, **stretches}
    of_arm: dict[str, list[StepTimes]] = {arm: [] for arm in palette.arms}
    for arm, run_id in zip(finished["arm"], finished["run_id"]):
        if run_id in of_run:
            of_arm[arm].append(of_run[run_id])
    return {arm: times for arm, times in of_arm.items() if n_steps(times) >= FEWEST}


def n_steps(times: Sequence[StepTimes]) -> int:
    return sum(t.n for t in times)


def source_of(samples: Mapping[str, Sequence[StepTimes]]) -> str:
    """What was timed, in words."""
    single = [t.single for times in samples.values() for t in times]
    if all(single):
        return "Every step was timed by itself."
    means = "the mean times between two validations, which scatter less than steps"
    if not any(single):
        return f"Single steps were not recorded: these are {means}."
    return (
        f"Single steps are known for {sum(single)} of {len(single)} runs; for the others these are "
        f"{means}."
    )


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """An arm's steps: how many in each bin, and three percentiles in ms."""

    counts: np.ndarray
    p5: float
    median: float
    p95: float

    @classmethod
    def of(cls, times: Sequence[StepTimes], edges: np.ndarray) -> "Histogram":
        inner = shares_below(times, edges[1:-1])
        shares = np.diff([0.0, *inner, 1.0])
        p5, median, p95 = percentiles(times, (5, 50, 95))
        return cls(counts=shares * n_steps(times), p5=p5, median=median, p95=p95)


@dataclass(frozen=True, kw_only=True)
class Histograms:
    """The drawing: a row for every arm."""

    of_arms: Mapping[str, Histogram]
    edges: np.ndarray
    palette: Palette

    def draw(self, width: int) -> Drawing:
        above = width != WIDE
        arms = [*self.of_arms]
        left, tall = 232, 28 if len(arms) <= 14 else 20
        step = wide_step(self.palette, arms, 38 if len(arms) <= 14 else 26)
        if above:
            left, step = 8, narrow_step(self.palette, arms, width - 20)
            tall = narrow_row(len(arms)) - 16
        bottom = 14 + step * len(self.of_arms)
        low, high = float(self.edges[0]), float(self.edges[-1])
        x = AxisScale(low=low, high=high, start=left, end=width - 14)
        parts = [x_axis(x, 8, bottom, "step time, ms", n=width // 110)]
        for place, arm in enumerate(self.of_arms):
            foot = 12 + step * (place + 1) - 6
            name = name_beside(self.palette, arm, left - 12, foot - 8)
            if above:
                name = name_above(self.palette, arm, foot - tall - 4, width - 20)
            marks = self.histogram(arm, x, foot, tall)
            parts.append(self.palette.series(arm, [name, *marks]))
        return "".join(parts), bottom + 44

    def histogram(self, arm: str, x: AxisScale, foot: int, tall: int) -> list[str]:
        """The bins, the bar from the 5th to the 95th percentile, the tick at the median."""
        shown = self.of_arms[arm]
        median, p95 = show(shown.median, "ms"), show(shown.p95, "ms")
        tip = f"{arm}: median {median} ms, 95th percentile {p95} ms"
        tops = []
        for count, edge in zip(shown.counts, self.edges[1:]):
            tops.append(f"V{pixel(foot - tall * count / shown.counts.max())}H{pixel(x(edge))}")
        outline = f"M{pixel(x(self.edges[0]))} {foot}{''.join(tops)}V{foot}Z"
        bar = line(
            x(self.inside(shown.p5)), foot + 2, x(self.inside(shown.p95)), foot + 2, "whisker"
        )
        tick = f"M{pixel(x(self.inside(shown.median)))} {pixel(foot - tall)}V{foot + 4}"
        return [
            mark(f'path d="{outline}"', css="hist", tip=tip),
            bar,
            mark(f'path d="{tick}"', css="center", tip=tip),
        ]

    def inside(self, ms: float) -> float:
        """The time, or the end of the axis that it lies beyond."""
        return float(min(max(ms, self.edges[0]), self.edges[-1]))


def edges_of(samples: Mapping[str, Sequence[StepTimes]]) -> np.ndarray:
    """The edges of the bins that all arms share, ms."""
    everything = [t for times in samples.values() for t in times]
    low, high = percentiles(everything, TAILS)
    if high <= low:
        high = low * 1.01 + 1e-9
    return np.linspace(low, high, N_BINS + 1)


def step_distribution(
    curves: pd.DataFrame,
    runs: pd.DataFrame,
    step_times: Mapping[str, StepTimes],
    palette: Palette,
    *,
    skip_first: bool = False,
) -> Figure | None:
    """One row per arm: a histogram of its steps, the median as a tick, 5th to 95th as a bar.

    None where no arm has enough steps. curves, runs, step_times, skip_first: as of `by_arm`.
    """
    samples = by_arm(curves, runs, step_times, palette, skip_first=skip_first)
    if not samples:
        return None
    edges = edges_of(samples)
    of_arms = {arm: Histogram.of(times, edges) for arm, times in samples.items()}
    quantiles = []
    rows: list[tuple[Any, ...]] = []
    for arm, shown in of_arms.items():
        median, p95 = show(shown.median, "ms"), show(shown.p95, "ms")
        quantiles.append(f"{arm} median {median}, 95th percentile {p95}")
        for start, end, count in zip(edges, edges[1:], shown.counts):
            numbers = (start, end, count, shown.median, shown.p95)
            rows.append((arm, *(kept(float(v), 4) for v in numbers)))
    drawing = Histograms(of_arms=of_arms, edges=edges, palette=palette)
    return Figure(
        key="step_distribution",
        title="Distribution of step times",
        caption=f"{source_of(samples)} Ticks are medians, bars run from the 5th to the 95th "
        "percentile; what lies beyond the axis is in its outermost bins." + lengths_in_words(runs),
        alt=f"Histograms of step times in ms, one row per arm: {'; '.join(quantiles[:MAX_NAMED])}.",
        columns=("arm", "ms_from", "ms_to", "n_steps", "median_ms", "p95_ms"),
        rows=tuple(rows),
        draw=drawing.draw,
    )
