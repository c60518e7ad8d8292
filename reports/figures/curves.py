"""Loss curves: by step, by training time, and as a difference to the baseline, with the spread over seeds as a band.

Lines are means over an arm's finished runs, bands run from the lowest to the highest of them, thin lines are single runs
(drawn while there are few).  Losses in the corpus's unit, times in seconds of the training clock.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from reports.figures.base import (
    WIDE,
    Figure,
    LogScale,
    Palette,
    Scale,
    clipped,
    extent,
    line,
    mark,
    path_of,
    shorten,
    text,
    x_axis,
    y_axis,
)
from reports.format import kept, plural, settled

MAX_POINTS = 60  # per drawn line: what 700 px can show; the table behind the figure keeps every point of the means
MAX_RUN_LINES = 60
BURN_IN = 0.25  # of the steps: the vertical axis is fitted to what comes after, the first drop would flatten all else


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """One arm's curves on common steps: mean, lowest and highest loss per step, mean time per step, and the single runs."""

    arm: str
    steps: np.ndarray
    time_s: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    runs: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]  # run_id -> steps, times, losses


def bundles(curves: pd.DataFrame, runs: pd.DataFrame, arms: Sequence[str], budget: int | None = None) -> dict[str, Bundle]:
    """The curves of finished runs by arm, at the budget (None: each arm's longest), in role `loss` where there is such a run."""
    finished = runs[runs["status"] == "finished"]
    if len(finished) and (finished["role"] == "loss").any():
        finished = finished[finished["role"] == "loss"]
    if len(finished):
        finished = finished[finished["budget"] == (budget or finished.groupby("arm")["budget"].transform("max"))]
    singles: dict[str, dict[str, tuple[np.ndarray, ...]]] = {}
    arm_of, counted = dict(zip(curves["run_id"], curves["arm"])), set(finished["run_id"])
    columns = [curves[c].to_numpy(float) for c in ("step", "train_time_s", "val_loss")]
    for run_id, at in curves.groupby("run_id", sort=False).indices.items():
        if run_id in counted:
            singles.setdefault(str(arm_of[run_id]), {})[str(run_id)] = tuple(c[at] for c in columns)
    return {arm: bundle(arm, singles[arm]) for arm in arms if arm in singles}


def bundle(arm: str, runs: dict[str, tuple[np.ndarray, ...]]) -> Bundle:
    """The runs of an arm on the steps at which any of them has a loss; a run without one there is left out of that step."""
    steps = np.unique(np.concatenate([s[np.isfinite(loss)] for s, _, loss in runs.values()]))
    times, losses = np.full((2, len(runs), len(steps)), np.nan)
    for i, (s, t, loss) in enumerate(runs.values()):
        there = np.isin(s, steps)
        times[i, np.searchsorted(steps, s[there])], losses[i, np.searchsorted(steps, s[there])] = t[there], loss[there]
    return Bundle(
        arm=arm,
        steps=steps,
        time_s=column_means(times),
        mean=column_means(losses),
        low=np.nanmin(losses, axis=0),
        high=np.nanmax(losses, axis=0),
        runs={run_id: (s, t, loss) for run_id, (s, t, loss) in runs.items()},
    )


def column_means(table: np.ndarray) -> np.ndarray:
    """Means over what is known in each column, nan where nothing is."""
    known = np.isfinite(table)
    n = known.sum(axis=0)
    return np.where(n > 0, np.where(known, table, 0.0).sum(axis=0) / np.maximum(n, 1), np.nan)


def thin(n: int) -> np.ndarray:
    """At most MAX_POINTS indices of n, the first and the last among them."""
    return np.unique(np.linspace(0, n - 1, min(n, MAX_POINTS)).round().astype(int)) if n else np.array([], int)


def band(xs: np.ndarray, low: np.ndarray, high: np.ndarray, x: Scale, y: Scale) -> str:
    there = np.isfinite(low) & np.isfinite(high)
    forth = [(x(a), y(b)) for a, b in zip(xs[there], high[there])]
    back = [(x(a), y(b)) for a, b in zip(xs[there][::-1], low[there][::-1])]
    return f'<path class="band" d="{path_of(forth + back)}Z"/>' if forth else ""


def curve_figure(key: str, data: dict[str, Bundle], palette: Palette, unit: str, target: float | None) -> Figure:
    """Loss over steps (`key` loss_by_step, loss_whole on logarithmic axes) or over seconds (loss_by_time)."""
    by_time, whole = key == "loss_by_time", key == "loss_whole"
    across = {arm: b.time_s if by_time else b.steps for arm, b in data.items()}
    drawn = {arm: b.steps > 0 if whole else b.steps >= BURN_IN * b.steps[-1] for arm, b in data.items()}
    shown = [v for arm, b in data.items() for side in (b.low, b.high) for v in side[drawn[arm]]]
    y_range = extent(shown, around=[] if target is None else [target], pad=0.03)
    x_range = (0.0, max((float(xs[-1]) for xs in across.values() if len(xs)), default=1.0) or 1.0)
    if whole:
        x_range = (min(float(s[s > 0][0]) for s in across.values() if (s > 0).any()), x_range[1])
        lowest = min(v for v in (*shown, target or shown[0]) if math.isfinite(v))
        y_range = (0.97 * lowest, 1.03 * max(v for v in shown if math.isfinite(v)))
    scale = LogScale if whole else Scale
    n_runs = sum(len(b.runs) for b in data.values())

    def draw(width: int) -> tuple[str, float]:
        height = 400 if width == WIDE else 300
        x = scale(low=x_range[0], high=x_range[1], start=52, end=width - 12)
        y = scale(low=y_range[0], high=y_range[1], start=height - 48, end=30)
        label = "training time, s" if by_time else "step, logarithmic" if whole else "step"
        parts = [y_axis(y, 52, width - 12, f"validation loss, {unit}"), x_axis(x, 30, height - 48, label, n=width // 110)]
        inside = []
        for arm, b in data.items():
            at = thin(len(b.steps))
            shape = [f'<g class="series {palette.css(arm)}" data-arm-group="{palette.arms.index(arm)}">']
            if len(b.runs) > 1 and len(data) <= 8:
                shape.append(band(across[arm][at], b.low[at], b.high[at], x, y))
            if n_runs <= MAX_RUN_LINES and not whole:
                for run_id, (steps, times, losses) in b.runs.items():
                    some = thin(len(steps))
                    points = [(x(a), y(v)) for a, v in zip((times if by_time else steps)[some], losses[some])]
                    shape.append(mark(f'path d="{path_of(points)}"', css="run", run=run_id))
            points = [(x(a), y(v)) for a, v in zip(across[arm][at], b.mean[at])]
            dash = f' stroke-dasharray="{palette.dash(arm)}"' if palette.dash(arm) else ""
            tip = f"{arm}: mean of {plural(len(b.runs), 'run')}, last {settled(b.mean[-1]):.4f}"
            shape.append(mark(f'path d="{path_of(points)}"{dash}', css="mean", tip=tip))
            inside.append("".join(shape) + "</g>")
        parts.append(clipped(52, 30, width - 64, height - 78, "".join(inside)))
        if target is not None:
            parts.append(line(52, y(target), width - 12, y(target), "target"))
            parts.append(text(56, y(target) - 6, f"target {target:g}", css="note"))
        return "".join(parts), height

    ends = "; ".join(f"{arm} ends at {settled(b.mean[-1]):.4f}" for arm, b in list(data.items())[:12])
    return Figure(
        key=key,
        title="Loss by training time" if by_time else "Loss by step, the whole course" if whole else "Loss by step",
        caption=(
            "Mean over finished runs"
            + (", band from the lowest to the highest run" if len(data) <= 8 else "")
            + ("; thin lines are single runs" if n_runs <= MAX_RUN_LINES and not whole else "")
            + (". Both axes are logarithmic." if whole else ". The first steep part runs off the top.")
        ),
        alt=f"Line chart of validation loss over {'seconds of training' if by_time else 'steps'}. {ends}.",
        columns=("arm", "step", "mean_train_time_s", "mean_val_loss", "lowest", "highest", "n_runs"),
        rows=tuple(
            (arm, int(s), kept(t, 4), *(kept(v, 6) for v in (m, lo, hi)), len(b.runs))
            for arm, b in data.items()
            for s, t, m, lo, hi in zip(b.steps, b.time_s, b.mean, b.low, b.high)
        ),
        draw=draw,
        legend=tuple((arm, palette.css(arm)) for arm in data),
    )


def differences(data: dict[str, Bundle], runs: pd.DataFrame, baseline: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Arm -> (steps, one row of differences to the baseline per block both finished; else one row of mean differences)."""
    blocked = runs[runs["block"].notna()]  # runs of no block (imported ones) are never paired
    block_of = dict(zip(blocked["run_id"], blocked["block"]))
    base = data[baseline]
    base_of = {block_of[r]: dict(zip(s, loss)) for r, (s, _, loss) in base.runs.items() if r in block_of}
    out = {}
    for arm, b in data.items():
        if arm == baseline:
            continue
        steps = np.intersect1d(b.steps, base.steps)
        pairs = [(dict(zip(s, loss)), base_of.get(block_of.get(r))) for r, (s, _, loss) in b.runs.items()]
        rows = [[own.get(t, np.nan) - other.get(t, np.nan) for t in steps] for own, other in pairs if other]
        if not rows:
            rows = [list(b.mean[np.isin(b.steps, steps)] - base.mean[np.isin(base.steps, steps)])]
        out[arm] = (steps, np.array(rows))
    return out


def difference_figure(data: dict[str, Bundle], runs: pd.DataFrame, palette: Palette, unit: str) -> Figure | None:
    """Small multiples, one panel per arm on common axes: loss minus the baseline's in the same block, below zero is better.

    None where no arm was validated at steps of the baseline's."""
    deltas = {a: (s, rows) for a, (s, rows) in differences(data, runs, palette.baseline).items() if len(s) > 1}
    if not deltas:
        return None
    means = {arm: rows.mean(axis=0) for arm, (_, rows) in deltas.items()}
    late = [v for arm, (s, rows) in deltas.items() for v in rows[:, s >= BURN_IN * s[-1]].ravel()]
    y_range = extent(late, around=[0.0])
    last = max((s[-1] for s, _ in deltas.values()), default=1.0)

    def draw(width: int) -> tuple[str, float]:
        n = len(deltas)
        n_columns = (1 if n == 1 else 2 if n <= 4 else 3 if n <= 9 else 4) if width == WIDE else (1 if n <= 4 else 2)
        panel_w = (width - 14 - 20 * (n_columns - 1)) / n_columns  # 14: half of the last tick's label
        panel_h = 150 if n <= 9 else 104
        words = f"difference in validation loss, {unit}; below zero is better" if width == WIDE else f"difference in {unit}"
        parts = [text(0, 12, words, css="axis")]
        for i, (arm, (steps, rows)) in enumerate(deltas.items()):
            left, top = (panel_w + 20) * (i % n_columns), 34 + (panel_h + 46) * (i // n_columns)
            x = Scale(low=0, high=float(last), start=left + 46, end=left + panel_w)
            y = Scale(low=y_range[0], high=y_range[1], start=top + panel_h, end=top + 12)
            parts.append(f'<g class="series {palette.css(arm)}" data-arm-group="{palette.arms.index(arm)}">')
            parts.append(text(left, top, shorten(arm, panel_w), css="label own"))
            parts.append(y_axis(y, left + 46, left + panel_w, "", n=3))
            parts.append(line(left + 46, y(0), left + panel_w, y(0), "zero"))
            parts += [text(x(t), top + panel_h + 15, f"{t:.0f}", anchor="middle", css="tick") for t in x.ticks(3)]
            at, inside = thin(len(steps)), []
            if len(rows) > 1:
                inside.append(band(steps[at], rows.min(axis=0)[at], rows.max(axis=0)[at], x, y))
            points = [(x(a), y(v)) for a, v in zip(steps[at], means[arm][at])]
            tip = f"{arm}: {settled(means[arm][-1]):+.4f} at the last step, {plural(len(rows), 'block')}"
            inside.append(mark(f'path d="{path_of(points)}"', css="mean", tip=tip))
            parts.append(clipped(left + 46, top + 12, panel_w - 46, panel_h - 12, "".join(inside)) + "</g>")
        n_rows = -(-n // n_columns)
        return "".join(parts), 34 + (panel_h + 46) * n_rows

    words = "; ".join(f"{arm} {settled(m[-1]):+.4f}" for arm, m in list(means.items())[:12])
    return Figure(
        key="difference",
        title="Difference to the baseline by step",
        caption="Mean over blocks of the difference to the baseline run of the same block; the band spans the blocks.",
        alt=f"Small charts, one per arm, of the loss difference to the baseline over steps. At the last step: {words}.",
        columns=("arm", "step", "mean_difference", "lowest", "highest", "n_blocks"),
        rows=tuple(
            (arm, int(s), *(kept(v, 6) for v in (m, lo, hi)), len(rows))
            for arm, (steps, rows) in deltas.items()
            for s, m, lo, hi in zip(steps, means[arm], rows.min(axis=0), rows.max(axis=0))
        ),
        draw=draw,
    )


def positive(data: dict[str, Bundle]) -> bool:
    """Whether logarithmic axes can show the curves: losses above zero, and more than one step after the first."""
    return all((b.low > 0).all() and (b.steps > 0).sum() > 1 for b in data.values())


def curve_figures(
    curves: pd.DataFrame, runs: pd.DataFrame, palette: Palette,
    *, unit: str, target: float | None, budget: int | None = None,
) -> list[Figure]:  # fmt: skip
    """Every figure that shows curves; none where no run has finished."""
    data = bundles(curves, runs, palette.arms, budget)
    if not data:
        return []
    timed = {arm: b for arm, b in data.items() if all(np.isfinite(times).all() for _, times, _ in b.runs.values())}
    shown = {"loss_by_step": data, "loss_by_time": timed, "loss_whole": data if positive(data) else {}}  # old logs have no times
    figures = [curve_figure(key, drawn, palette, unit, target) for key, drawn in shown.items() if drawn]
    if palette.baseline in data and (difference := difference_figure(data, runs, palette, unit)) is not None:
        figures.append(difference)
    return figures
