"""The figure of seeds: a dot for every run's loss, those of one block joined across the arms."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from reports.figures.base import (
    MAX_NAMED,
    WIDE,
    AxisScale,
    Drawing,
    Figure,
    dots,
    extent,
    mark,
    path_of,
    x_axis,
)
from reports.figures.palette import Palette
from reports.figures.rows import name_above, name_beside, narrow_step, wide_step
from reports.stats.digits import pixel, settled

MAX_JOINED = (12, 12)  # arms and blocks beyond which lines between them are a tangle


@dataclass(frozen=True, kw_only=True)
class Seeds:
    """The drawing: a row an arm, a dot a run, a thin line a block."""

    runs: pd.DataFrame
    arms: Sequence[str]
    palette: Palette
    unit: str

    @property
    def blocks(self) -> list[object]:
        """Those that are joined: none where they are too many to follow."""
        blocks = list(self.runs.loc[self.runs["seed"].notna(), "block"].dropna().unique())
        if len(self.arms) > MAX_JOINED[0] or len(blocks) > MAX_JOINED[1]:
            return []
        return blocks

    def draw(self, width: int) -> Drawing:
        above = width != WIDE  # narrow: the arm's name goes above its row
        least = 30 if len(self.arms) <= MAX_JOINED[0] else 20
        left, step = 232, wide_step(self.palette, self.arms, least)
        if above:
            left, step = 12, narrow_step(self.palette, self.arms, width - 20)
        bottom = 16 + step * len(self.arms)
        low, high = extent(self.runs["val_loss"].astype(float))
        x = AxisScale(low=low, high=high, start=left, end=width - 14)
        heights = {arm: 12 + step * (place + 1) - 13 for place, arm in enumerate(self.arms)}
        parts = [x_axis(x, 8, bottom, f"final validation loss, {self.unit}", n=width // 130)]
        for block in self.blocks:
            parts.append(self.joined(block, x, heights))
        for arm, y in heights.items():
            name = name_beside(self.palette, arm, left - 12, y)
            if above:
                name = name_above(self.palette, arm, y - 13, width - 20)
            parts.append(self.palette.series(arm, [name, *self.row(arm, x, y)]))
        return "".join(parts), bottom + 44

    def joined(self, block: object, x: AxisScale, heights: dict[str, int]) -> str:
        """The line through a block's runs, from arm to arm; broken where one is missing."""
        of_block = self.runs[self.runs["block"] == block]
        losses = of_block.groupby("arm")["val_loss"].mean()
        nowhere = float("nan")
        points = [
            (x(float(losses[arm])) if arm in losses else nowhere, y) for arm, y in heights.items()
        ]
        return f'<path class="block" d="{path_of(points)}"/>'

    def row(self, arm: str, x: AxisScale, y: float) -> list[str]:
        """An arm's dots, and a tick at their mean."""
        of_arm = self.runs[self.runs["arm"] == arm]
        spots = [(x(float(v)), y, row) for row, v in zip(of_arm.index, of_arm["val_loss"])]
        mean = float(of_arm["val_loss"].mean())
        tick = f'path d="M{pixel(x(mean))} {pixel(y - 9)}v18"'
        return [
            dots(spots, r=3),
            mark(tick, css="center", tip=f"{arm}: mean {settled(mean):.4f}"),
        ]


def seeds(
    runs: pd.DataFrame, palette: Palette, *, unit: str, budget: int | None = None
) -> Figure | None:
    """The losses of the compared runs; None below two of them in any arm.

    unit: of a loss, in words; budget: the runs' steps, None where they are not of one length."""
    columns = ["arm", "seed", "run_id", "block", "val_loss"]
    shown = runs.loc[(runs["status"] == "finished") & runs["val_loss"].notna(), columns]
    if not len(shown) or shown["arm"].value_counts().max() < 2:
        return None
    arms = [arm for arm in palette.arms if (shown["arm"] == arm).any()]
    of_steps = f" of {budget} steps" if budget else ""
    drawing = Seeds(runs=shown, arms=arms, palette=palette, unit=unit)
    caption = f"One dot a run{of_steps}, the tick an arm's mean."
    if drawing.blocks:
        caption += (
            " A line joins the runs of one block: where the lines are parallel, the difference is "
            "the same at every seed."
        )
    means = shown.groupby("arm")["val_loss"].mean()
    said = [f"{arm} {settled(float(means[arm])):.4f}" for arm in arms[:MAX_NAMED]]
    return Figure(
        key="seeds",
        title="Every seed",
        caption=caption,
        alt=f"One dot per run and a row per arm, final validation loss. Means: {'; '.join(said)}.",
        columns=tuple(columns),
        rows=tuple(shown.itertuples(index=False, name=None)),
        runs=tuple(shown.index),
        draw=drawing.draw,
    )
