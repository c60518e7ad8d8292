"""Figures in which every run is a mark: step time, loss against time, memory, nodes and drift, where the wall time went."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from harness.run.results import PHASES, where_time_went
from reports.figures.base import (
    WIDE,
    Figure,
    Palette,
    Scale,
    dots,
    extent,
    line,
    mark,
    shorten,
    text,
    x_axis,
    y_axis,
)
from reports.format import kept, pixel, plural, settled

STAGES = (*PHASES.values(), "rest", "idle")
MAX_WHISKERS = 200  # beyond, single runs' spreads are a blur that hides the dots


def strip(
    key: str, title: str, caption: str, axis: str, column: str, runs: pd.DataFrame, palette: Palette,
    *, low: str | None = None, high: str | None = None, from_zero: bool = False,
) -> Figure | None:  # fmt: skip
    """One row per arm, one dot per run at runs[column], a tick at the arm's mean, a thin bar from columns low to high."""
    shown = runs[runs[column].notna()]
    if not len(shown):
        return None
    names = [c for c in (low, column, high) if c]
    shown = shown[["arm", "seed", "run_id", *names]]
    spread = [float(v) for c in names for v in shown[c].dropna()]
    x_range = extent(spread, around=[0.0] if from_zero else [])
    arms = [a for a in palette.arms if (shown["arm"] == a).any()]
    grouped = {arm: shown[shown["arm"] == arm] for arm in arms}
    records = {arm: list(zip(rows.index, rows.to_dict("records"))) for arm, rows in grouped.items()}
    means = {arm: float(rows[column].mean()) for arm, rows in grouped.items()}
    beside = 26 if len(arms) <= 12 else 20

    def draw(width: int) -> tuple[str, float]:
        above = width != WIDE  # narrow: the arm's name goes above its row
        left = 12 if above else 232
        step = beside + (16 if above else 0)
        bottom = 16 + step * len(arms)
        x = Scale(low=0.0 if from_zero else x_range[0], high=x_range[1], start=left, end=width - 14)
        parts = [x_axis(x, 8, bottom, axis, n=width // 110)]
        for i, arm in enumerate(arms):
            y = 12 + step * (i + 1) - beside / 2
            name = text(left if above else left - 12, y - 12 if above else y + 4, shorten(arm, width - 24 if above else 216),
                        anchor="start" if above else "end", css="label")  # fmt: skip
            group = [f'<g class="series {palette.css(arm)}" data-arm-group="{palette.arms.index(arm)}">', name]
            spots = []
            for place, (row, run) in enumerate(records[arm]):
                shift = ((place * 0.618) % 1.0 - 0.5) * beside * 0.5
                if low and high and len(shown) <= MAX_WHISKERS and pd.notna(run[low]) and pd.notna(run[high]):
                    group.append(line(x(run[low]), y + shift, x(run[high]), y + shift, "whisker"))
                spots.append((x(run[column]), y + shift, row))
            group.append(dots(spots, r=3))
            tip = f"{arm}: mean {settled(means[arm]):.4g}"
            group.append(mark(f'path d="M{pixel(x(means[arm]))} {pixel(y - 9)}v18"', css="center", tip=tip))
            parts.append("".join(group) + "</g>")
        return "".join(parts), bottom + 44

    words = "; ".join(f"{arm} {settled(mean):.4g}" for arm, mean in list(means.items())[:12])
    return Figure(
        key=key,
        title=title,
        caption=caption,
        alt=f"{title}: one dot per run, one row per arm. Means, {axis}: {words}.",
        columns=("arm", "seed", "run_id", *names),
        rows=tuple(shown.itertuples(index=False, name=None)),
        runs=tuple(shown.index),
        draw=draw,
    )


def scatter(runs: pd.DataFrame, palette: Palette, *, unit: str, target: float | None) -> Figure | None:
    """Final loss against training time, a dot per run; the target is a line."""
    shown = runs.loc[
        runs["val_loss"].notna() & runs["train_time_s"].notna(), ["arm", "seed", "run_id", "train_time_s", "val_loss"]
    ]
    if not len(shown):
        return None
    places = {
        str(arm): list(zip(own["train_time_s"], own["val_loss"], own.index)) for arm, own in shown.groupby("arm", sort=False)
    }
    x_range = extent(shown["train_time_s"])
    y_range = extent(shown["val_loss"], around=[] if target is None else [target])

    def draw(width: int) -> tuple[str, float]:
        height = 400 if width == WIDE else 300
        x = Scale(low=x_range[0], high=x_range[1], start=60, end=width - 12)
        y = Scale(low=y_range[0], high=y_range[1], start=height - 48, end=30)
        parts = [y_axis(y, 60, width - 12, f"final validation loss, {unit}")]
        parts.append(x_axis(x, 30, height - 48, "training time, s", n=width // 110))
        if target is not None:
            parts.append(line(60, y(target), width - 12, y(target), "target"))
            parts.append(text(width - 14, y(target) - 6, f"target {target:g}", anchor="end", css="note"))
        for arm in palette.arms:
            marks = dots(((x(t), y(loss), row) for t, loss, row in places.get(arm, ())), r=4)
            parts.append(f'<g class="series {palette.css(arm)}" data-arm-group="{palette.arms.index(arm)}">{marks}</g>')
        return "".join(parts), height

    means = shown.groupby("arm", sort=False)[["train_time_s", "val_loss"]].mean()
    words = "; ".join(
        f"{arm} {settled(m['val_loss']):.4f} after {settled(m['train_time_s']):.4g} s" for arm, m in list(means.iterrows())[:12]
    )
    return Figure(
        key="scatter",
        title="Loss against training time",
        caption="One dot per run. Left and low is better.",
        alt=f"Scatter of final validation loss against training time, one dot per run. Means: {words}.",
        columns=("arm", "seed", "run_id", "train_time_s", "val_loss"),
        rows=tuple(shown.itertuples(index=False, name=None)),
        runs=tuple(shown.index),
        draw=draw,
        legend=tuple((arm, palette.css(arm)) for arm in palette.arms if (shown["arm"] == arm).any()),
    )


def drift(runs: pd.DataFrame, palette: Palette, started: Mapping[str, str]) -> Figure | None:
    """Step time relative to the arm's own mean, in the order of starting, one lane per node: a slope or a step is drift."""
    shown = runs[runs["step_ms"].notna() & runs["run_id"].isin(started)]
    if len(shown) < 3:
        return None
    shown = shown.assign(
        started=shown["run_id"].map(started),
        percent=(shown["step_ms"] / shown.groupby("arm")["step_ms"].transform("mean") - 1.0) * 100.0,
    ).sort_values("started")
    shown = shown.assign(order=range(1, len(shown) + 1))
    nodes = sorted(str(n) for n in shown["node"].dropna().unique())[:8] or ["unknown"]
    y_range = extent(shown["percent"], around=[-0.5, 0.5])

    def draw(width: int) -> tuple[str, float]:
        lane = 120
        x = Scale(low=0, high=len(shown) + 1, start=52, end=width - 12)
        parts = [text(0, 12, "step time against the arm's mean, %", css="axis")]
        for i, node in enumerate(nodes):
            top = 34 + i * (lane + 24)
            y = Scale(low=y_range[0], high=y_range[1], start=top + lane, end=top + 10)
            parts += [text(52, top + 2, shorten(node, width - 60), css="label"), y_axis(y, 52, width - 12, "", n=4)]
            parts.append(line(52, y(0), width - 12, y(0), "zero"))
            lane_runs = shown[shown["node"].astype(str) == node] if nodes != ["unknown"] else shown
            for arm, own in lane_runs.groupby("arm", sort=False):
                marks = dots(
                    ((x(order), y(percent), row) for order, percent, row in zip(own["order"], own["percent"], own.index)), r=3
                )
                parts.append(
                    f'<g class="series {palette.css(str(arm))}" data-arm-group="{palette.arms.index(str(arm))}">{marks}</g>'
                )
        bottom = 34 + len(nodes) * (lane + 24) - 24
        parts.append(text(width / 2, bottom + 22, "runs in the order they were started", anchor="middle", css="axis"))
        return "".join(parts), bottom + 32

    return Figure(
        key="drift",
        title="Nodes and drift",
        caption="Each run's step time against its arm's mean, by node, in the order of starting; level and flat is good.",
        alt=f"Dots of relative step time in starting order on {plural(len(nodes), 'node')}; "
        f"from {settled(shown['percent'].min()):+.2f} % to {settled(shown['percent'].max()):+.2f} %.",
        columns=("order", "started", "node", "arm", "seed", "run_id", "step_ms", "percent_of_arm_mean"),
        rows=tuple(
            shown.assign(step_ms=shown["step_ms"].map(kept), percent=shown["percent"].map(kept))[
                ["order", "started", "node", "arm", "seed", "run_id", "step_ms", "percent"]
            ].itertuples(index=False, name=None)
        ),
        draw=draw,
    )


def wall(runs: pd.DataFrame, results: Mapping[str, Mapping[str, Any]], palette: Palette) -> Figure | None:
    """Mean seconds per run and arm of each stage, stacked: how much of the machine's time trained anything."""
    of_arm = {
        arm: [results[r]["wall"] for r in runs.loc[runs["arm"] == arm, "run_id"] if results.get(r, {}).get("wall")]
        for arm in palette.arms
    }
    rows = [(a, w, s / len(walls)) for a, walls in of_arm.items() for w, s in where_time_went(walls)[0].items() if s > 0]
    if not rows:
        return None
    share = where_time_went([w for walls in of_arm.values() for w in walls])[1]
    arms = [a for a in palette.arms if any(r[0] == a for r in rows)]
    totals = {arm: math.fsum(s for a, _, s in rows if a == arm) for arm in arms}
    parts_seen = [w for w in STAGES if any(r[1] == w for r in rows)]

    def draw(width: int) -> tuple[str, float]:
        above = width != WIDE
        left, step = (0, 40) if above else (232, 26)
        top = 12 + 18 * -(-len(parts_seen) // (7 if not above else 3))
        bottom = top + step * len(arms)
        x = Scale(low=0, high=max(totals.values()) * 1.02, start=left, end=width - 14)
        out = key_row(parts_seen, width)
        out.append(x_axis(x, top, bottom, "seconds per run (mean)", n=width // 110))
        for i, arm in enumerate(arms):
            y = top + step * (i + 1) - 20
            at = text(0, y - 5, shorten(arm, width - 20), css="label") if above else ""
            out.append(at or text(left - 12, y + 12, shorten(arm, 216), anchor="end", css="label"))
            begin = 0.0
            for words, s in ((w, s) for a, w, s in rows if a == arm):
                wide = pixel(max(0.5, x(begin + s) - x(begin)))
                shape = f'rect x="{pixel(x(begin))}" y="{pixel(y)}" width="{wide}" height="16"'
                out.append(mark(shape, css=f"wall w{STAGES.index(words)}", tip=f"{arm}: {words} {settled(s):.3g} s"))
                begin += s
        return "".join(out), bottom + 44

    return Figure(
        key="wall",
        title="Where the wall time went",
        caption=f"{settled(share):.1%} of the workers' time was training or validation; idle: the wait of a worker for its next "
        "run.",
        alt=f"Stacked bars of mean seconds per run by stage. {settled(share):.1%} was training or validation.",
        columns=("arm", "stage", "mean_seconds"),
        rows=tuple((a, w, kept(s, 4)) for a, w, s in rows),
        draw=draw,
    )


def key_row(words: Sequence[str], width: int) -> list[str]:
    """A row (or rows) of colour keys for stages."""
    per_row, out = (7 if width == WIDE else 3), []
    for i, word in enumerate(words):
        x, y = (i % per_row) * (width / per_row), 10 + 18 * (i // per_row)
        out.append(
            f'<rect x="{x:.0f}" y="{y - 9:.0f}" width="10" height="10" class="wall w{STAGES.index(word)}"/>'
            + text(x + 15, y, word, css="tick")
        )
    return out


def run_figures(
    runs: pd.DataFrame, results: Mapping[str, Mapping[str, Any]], palette: Palette,
    *, unit: str, target: float | None, steps: Figure | None = None,
) -> list[Figure]:  # fmt: skip
    """Every figure of single runs that the data can fill; `steps`, the distribution of step times, among them."""
    started = {run_id: str(r["started"]) for run_id, r in results.items() if r.get("started")}
    candidates = [
        scatter(runs, palette, unit=unit, target=target),
        strip("step_time", "Step time", "Dots are runs' means, ticks the arms'; bars run from median to 95th percentile.",
              "step time, ms", "step_ms", runs, palette, low="step_ms_median", high="step_ms_p95"),
        steps,
        drift(runs, palette, started),
        strip("memory", "Peak memory", "Highest allocated memory of each run.", "peak allocated, MiB", "peak_allocated_mib",
              runs, palette, from_zero=True),
        wall(runs, results, palette),
    ]  # fmt: skip
    return [f for f in candidates if f is not None]
