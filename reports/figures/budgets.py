"""The budget curve: final loss over the number of steps it was trained for, one line per arm; where it meets the target is N*."""

import math

import pandas as pd

from reports.analysis.types import Comparisons
from reports.figures.base import (
    WIDE,
    Figure,
    Palette,
    Scale,
    dot,
    extent,
    line,
    mark,
    path_of,
    text,
    tick_text,
    y_axis,
)
from reports.format import kept, pixel, plural, settled, show


def budget_figure(
    runs: pd.DataFrame, outcome: Comparisons, palette: Palette, *, unit: str, target: float | None
) -> Figure | None:
    """Mean final losses over budgets on a logarithmic axis, N* marked where it is resolved; None with a single budget."""
    finished = runs[(runs["status"] == "finished") & runs["val_loss"].notna()]
    table = finished.groupby(["arm", "budget"], sort=True)["val_loss"].agg(["mean", "count"]).reset_index()
    budgets = sorted(int(b) for b in table["budget"].unique())
    if len(budgets) < 2:
        return None
    stars = {
        a: t.n_star for a, t in outcome.times.items() if t.n_star is not None and budgets[0] / 2 < t.n_star < budgets[-1] * 2
    }
    x_range = extent([math.log(v) for v in (*budgets, *stars.values())])
    y_range = extent(table["mean"], around=[] if target is None else [target])
    by_arm = {arm: table[table["arm"] == arm] for arm in palette.arms if (table["arm"] == arm).any()}

    def draw(width: int) -> tuple[str, float]:
        height = 380 if width == WIDE else 300
        x = Scale(low=x_range[0], high=x_range[1], start=60, end=width - 14)
        y = Scale(low=y_range[0], high=y_range[1], start=height - 48, end=30)
        parts = [y_axis(y, 60, width - 14, f"final validation loss, {unit}")]
        for budget in budgets:
            at = x(math.log(budget))
            parts += [
                line(at, 30, at, height - 48, "grid"),
                text(at, height - 32, tick_text(budget, budgets), anchor="middle", css="tick"),
            ]
        parts.append(
            text((60 + width - 14) / 2, height - 13, "steps of the whole schedule, logarithmic", anchor="middle", css="axis")
        )
        if target is not None:
            parts.append(line(60, y(target), width - 14, y(target), "target"))
            parts.append(text(width - 16, y(target) - 6, f"target {target:g}", anchor="end", css="note"))
        for arm, rows in by_arm.items():
            spots = [(x(math.log(r["budget"])), y(r["mean"])) for r in rows.to_dict("records")]
            dash = f' stroke-dasharray="{palette.dash(arm)}"' if palette.dash(arm) else ""
            group = [f'<g class="series {palette.css(arm)}" data-arm-group="{palette.arms.index(arm)}">']
            group.append(mark(f'path d="{path_of(spots)}"{dash}', css="mean", tip=arm))
            for (px, py), r in zip(spots, rows.to_dict("records")):
                tip = f"{arm}: {show(r['mean'], 'loss')} after {r['budget']} steps, {plural(r['count'], 'run')}"
                group.append(dot(px, py, r=4, tip=tip))
            if arm in stars and target is not None:
                cross = f"M{pixel(x(math.log(stars[arm])))} {pixel(y(target) - 5)}v10"
                group.append(
                    mark(f'path d="{cross}"', css="center", tip=f"{arm}: reaches the target with {settled(stars[arm]):.0f} steps")
                )
            parts.append("".join(group) + "</g>")
        return "".join(parts), height

    lengths = ", ".join(map(str, budgets))
    words = "; ".join(f"{a} {settled(n):.0f} steps" for a, n in list(stars.items())[:12]) or "not resolved for any arm"
    return Figure(
        key="budgets",
        title="Loss by budget",
        caption="Each dot is the mean final loss of schedules of that length, each with its own cooldown. Where a line meets "
        "the target is the number of steps that arm needs; the ticks mark the estimates.",
        alt=f"Final loss over budgets of {lengths} steps. Steps needed for the target: {words}.",
        columns=("arm", "budget", "mean_val_loss", "n_runs"),
        rows=tuple((r["arm"], int(r["budget"]), kept(r["mean"], 6), int(r["count"])) for r in table.to_dict("records")),
        draw=draw,
        legend=tuple((arm, palette.css(arm)) for arm in by_arm),
    )
