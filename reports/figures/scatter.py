"""The figure of final loss against training time, a dot a run."""

from dataclasses import dataclass
from statistics import fmean

import pandas as pd

from reports.figures.base import (
    MAX_NAMED,
    WIDE,
    AxisScale,
    Drawing,
    Figure,
    around_target,
    dots,
    extent,
    line,
    x_axis,
    y_axis,
)
from reports.figures.budgets import lengths_in_words
from reports.figures.palette import Palette
from reports.figures.tags import TAG_GAP, WIDE_TAG, tags
from reports.figures.target import target_label
from reports.stats.digits import settled


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """The drawing of final loss against training time."""

    runs: pd.DataFrame
    palette: Palette
    unit: str
    target: float | None

    def draw(self, width: int) -> Drawing:
        height = 300
        if width == WIDE:
            height = 400
        margin = 12 + (WIDE_TAG + TAG_GAP) * self.palette.has_numbers
        left, right, top, bottom = 60, width - margin, 30, height - 48
        x_low, x_high = extent(self.runs["train_time_s"])
        y_low, y_high = extent(self.runs["val_loss"], around=around_target(self.target))
        x = AxisScale(low=x_low, high=x_high, start=left, end=right)
        y = AxisScale(low=y_low, high=y_high, start=bottom, end=top)
        parts = [y_axis(y, left, right, f"final validation loss, {self.unit}")]
        parts.append(x_axis(x, top, bottom, "training time, s", n=width // 110))
        if self.target is not None:
            level = y(self.target)
            parts.append(line(left, level, right, level, "target"))
        drawn: list[tuple[float, float]] = []
        means: dict[str, tuple[float, float]] = {}
        for arm in self.palette.arms:
            spots = []
            of_arm = self.runs[self.runs["arm"] == arm]
            for row, time, loss in zip(of_arm.index, of_arm["train_time_s"], of_arm["val_loss"]):
                spots.append((x(time), y(loss), row))
            parts.append(self.palette.series(arm, [dots(spots, r=4)]))
            if spots:
                means[arm] = (fmean(x for x, _, _ in spots), fmean(y for _, y, _ in spots))
            drawn += [(across, down) for across, down, _ in spots]
        parts += tags(self.palette, means, top, bottom)
        if self.target is not None:  # above the dots, whose halo keeps it readable
            parts.append(target_label(self.target, level, (left, right), drawn))
        return "".join(parts), height


def scatter(
    runs: pd.DataFrame, palette: Palette, *, unit: str, target: float | None
) -> Figure | None:
    """Final loss against training time, a dot per run; the target is a line."""
    columns = ["arm", "seed", "run_id", "train_time_s", "val_loss"]
    measured = runs["val_loss"].notna() & runs["train_time_s"].notna()
    shown = runs.loc[measured, columns]
    if not len(shown):
        return None
    drawing = Scatter(runs=shown, palette=palette, unit=unit, target=target)
    means = shown.groupby("arm", sort=False)[["train_time_s", "val_loss"]].mean()
    arm_means = []
    for arm, mean in means.iterrows():
        loss, time = settled(mean["val_loss"]), settled(mean["train_time_s"])
        arm_means.append(f"{arm} {loss:.4f} after {time:.4g} s")
    drawn = [arm for arm in palette.arms if (shown["arm"] == arm).any()]
    caption = "One dot per run. Left and low is better." + lengths_in_words(runs[measured])
    if palette.has_numbers:
        caption += " A number stands at its arm's mean."
    return Figure(
        key="scatter",
        title="Loss against training time",
        caption=caption + palette.in_words,
        alt="Scatter of final validation loss against training time, one dot per run. "
        f"Means: {'; '.join(arm_means[:MAX_NAMED])}.",
        columns=tuple(columns),
        rows=tuple(shown.itertuples(index=False, name=None)),
        runs=tuple(shown.index),
        draw=drawing.draw,
        legend=palette.legend(drawn),
    )
