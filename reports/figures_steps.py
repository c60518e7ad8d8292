"""How long steps took: the distribution, per arm, of the step times between two validations of a run.

A run's clock is read at every validation, so every stretch between two of them gives one mean step time (ms); they come from
the same curve points that the page carries.
"""

import numpy as np
import pandas as pd

from reports.figures import WIDE, Figure, Palette, Scale, line, mark, shorten, text, x_axis
from reports.page_numbers import show

N_BINS = 48
TAILS = (0.5, 99.5)  # percentiles of all stretches between which the axis runs; the rest is counted in the outermost bins


def stretches(curves: pd.DataFrame, runs: pd.DataFrame, *, skip_first: bool) -> dict[str, np.ndarray]:
    """Arm -> ms per step of every stretch between two validations of its runs that finished.

    skip_first: the first stretch holds steps that the clock did not count (protocol skip10)."""
    shown = curves[curves["run_id"].isin(set(runs.loc[runs["status"] == "finished", "run_id"]))]
    per_run = shown.groupby("run_id", sort=False)
    ms = 1e3 * per_run["train_time_s"].diff() / per_run["step"].diff()
    good = np.isfinite(ms) & (ms > 0) & (per_run.cumcount() > int(skip_first))
    return {str(arm): ms[rows.index].to_numpy(float) for arm, rows in shown[good].groupby("arm", sort=False)}


def step_distribution(curves: pd.DataFrame, runs: pd.DataFrame, palette: Palette, *, skip_first: bool = False) -> Figure | None:
    """One row per arm: a histogram of its stretches, the median as a tick, 5th to 95th percentile as a bar."""
    found = stretches(curves, runs, skip_first=skip_first)
    samples = {a: found[a] for a in palette.arms if len(found.get(a, ())) >= 3}
    if not samples:
        return None
    everything = np.concatenate(list(samples.values()))
    low, high = np.percentile(everything, TAILS)
    edges = np.linspace(low, high if high > low else low * 1.01 + 1e-9, N_BINS + 1)
    counts = {a: np.histogram(np.clip(v, edges[0], edges[-1]), edges)[0] for a, v in samples.items()}
    quantiles = {a: np.percentile(v, (5, 50, 95)) for a, v in samples.items()}

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
            tops = [f"V{foot - tall * v / n.max():.1f}H{x(edges[k + 1]):.1f}" for k, v in enumerate(n)]
            p5, median, p95 = (min(max(float(q), edges[0]), edges[-1]) for q in quantiles[arm])
            tip = f"{arm}: median {show(quantiles[arm][1], 'ms')} ms, 95th percentile {show(quantiles[arm][2], 'ms')} ms"
            parts.append(mark(f'path d="M{x(edges[0]):.1f} {foot}{"".join(tops)}V{foot}Z"', css="hist", tip=tip))
            parts.append(line(x(p5), foot + 2, x(p95), foot + 2, "whisker"))
            parts.append(mark(f'path d="M{x(median):.1f} {foot - tall:.1f}V{foot + 4}"', css="center", tip=tip) + "</g>")
        return "".join(parts), bottom + 44

    words = "; ".join(
        f"{a} median {show(q[1], 'ms')}, 95th percentile {show(q[2], 'ms')}" for a, q in list(quantiles.items())[:12]
    )
    return Figure(
        key="step_distribution",
        title="Distribution of step times",
        caption="Each run's clock is read at every validation; a histogram counts the mean step times of the stretches between. "
        "Ticks are medians, bars run from the 5th to the 95th percentile; what lies beyond the axis is in its outermost bins.",
        alt=f"Histograms of step times in ms, one row per arm: {words}.",
        columns=("arm", "ms_from", "ms_to", "n_stretches"),
        rows=tuple(
            (a, round(float(edges[k]), 5), round(float(edges[k + 1]), 5), int(v))
            for a, n in counts.items()
            for k, v in enumerate(n)
        ),
        draw=draw,
    )
