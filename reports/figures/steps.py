"""The figure of how long steps took: a histogram per arm of its runs' single steps."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from reports.figures.base import WIDE, Figure, Palette, Scale, line, mark, shorten, text, x_axis
from reports.format import kept, pixel, show
from reports.inputs.step_times import StepTimes, of_stretches, percentiles, shares_below

N_BINS = 48
FEWEST = 3  # steps of an arm from which on its distribution is drawn
TAILS = (0.5, 99.5)  # percentiles of all steps between which the axis runs; the rest is counted in the outermost bins


def by_arm(
    curves: pd.DataFrame, runs: pd.DataFrame, step_times: Mapping[str, StepTimes], palette: Palette, *, skip_first: bool
) -> dict[str, list[StepTimes]]:
    """Arm -> the step times of its finished runs: of single steps where they were recorded, else between validations."""
    finished = runs[runs["status"] == "finished"]
    without = set(finished["run_id"]) - set(step_times)
    known = {**step_times, **of_stretches(curves[curves["run_id"].isin(without)], skip_first=skip_first)}
    found: dict[str, list[StepTimes]] = {a: [] for a in palette.arms}
    for arm, run in zip(finished["arm"], finished["run_id"]):
        found[arm] += [known[run]] if run in known else []
    return {arm: times for arm, times in found.items() if sum(t.n for t in times) >= FEWEST}


def source_of(samples: Mapping[str, list[StepTimes]]) -> str:
    """What was timed, in words."""
    single = [t.single for times in samples.values() for t in times]
    if all(single):
        return "Every step was timed by itself."
    means = "the mean times between two validations, which scatter less than steps"
    if not any(single):
        return f"Single steps were not recorded: these are {means}."
    return f"Single steps are known for {sum(single)} of {len(single)} runs; for the others these are {means}."


def step_distribution(
    curves: pd.DataFrame, runs: pd.DataFrame, step_times: Mapping[str, StepTimes], palette: Palette, *, skip_first: bool = False
) -> Figure | None:
    """One row per arm: a histogram of its steps, the median as a tick, 5th to 95th percentile as a bar."""
    samples = by_arm(curves, runs, step_times, palette, skip_first=skip_first)
    if not samples:
        return None
    low, high = percentiles([t for times in samples.values() for t in times], TAILS)
    edges = np.linspace(low, high if high > low else low * 1.01 + 1e-9, N_BINS + 1)
    counts = {}
    for arm, times in samples.items():
        inner = shares_below(times, edges[1:-1])
        counts[arm] = np.diff([0.0, *inner, 1.0]) * sum(t.n for t in times)
    quantiles = {arm: percentiles(times, (5, 50, 95)) for arm, times in samples.items()}

    def draw(width: int) -> tuple[str, float]:
        above = width != WIDE
        left, step, tall = (8, 52, 30) if above else (232, 38, 28) if len(samples) <= 14 else (232, 26, 20)
        bottom = 14 + step * len(samples)
        x = Scale(low=float(edges[0]), high=float(edges[-1]), start=left, end=width - 14)
        parts = [x_axis(x, 8, bottom, "ms per step", n=width // 110)]
        for i, (arm, n) in enumerate(counts.items()):
            foot = 12 + step * (i + 1) - 6
            name = text(0, foot - tall - 4, shorten(arm, width - 20), css="label")
            parts.append(f'<g class="series {palette.css(arm)}" data-arm-group="{palette.arms.index(arm)}">')
            parts.append(name if above else text(left - 12, foot - 4, shorten(arm, 216), anchor="end", css="label"))
            tops = [f"V{pixel(foot - tall * v / n.max())}H{pixel(x(edges[k + 1]))}" for k, v in enumerate(n)]
            p5, median, p95 = (min(max(q, edges[0]), edges[-1]) for q in quantiles[arm])
            tip = f"{arm}: median {show(quantiles[arm][1], 'ms')} ms, 95th percentile {show(quantiles[arm][2], 'ms')} ms"
            parts.append(mark(f'path d="M{pixel(x(edges[0]))} {foot}{"".join(tops)}V{foot}Z"', css="hist", tip=tip))
            parts.append(line(x(p5), foot + 2, x(p95), foot + 2, "whisker"))
            parts.append(mark(f'path d="M{pixel(x(median))} {pixel(foot - tall)}V{foot + 4}"', css="center", tip=tip) + "</g>")
        return "".join(parts), bottom + 44

    words = "; ".join(
        f"{a} median {show(q[1], 'ms')}, 95th percentile {show(q[2], 'ms')}" for a, q in list(quantiles.items())[:12]
    )
    return Figure(
        key="step_distribution",
        title="Distribution of step times",
        caption=source_of(samples)
        + " Ticks are medians, bars run from the 5th to the 95th percentile; what lies beyond the axis "
        "is in its outermost bins.",
        alt=f"Histograms of step times in ms, one row per arm: {words}.",
        columns=("arm", "ms_from", "ms_to", "n_steps", "median_ms", "p95_ms"),
        rows=tuple(
            (a, *(kept(float(ms), 4) for ms in (edges[k], edges[k + 1], v, *quantiles[a][1:])))
            for a, n in counts.items()
            for k, v in enumerate(n)
        ),
        draw=draw,
    )
