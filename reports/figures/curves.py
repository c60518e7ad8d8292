"""Loss curves: by step and by training time, with the spread over seeds as a band.

Lines are means over an arm's finished runs, bands run from the lowest to the highest of them, thin
lines are single runs (drawn while there are few).  Losses in the corpus's unit, times in seconds of
the training clock.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from harness.run.plural import plural
from reports.figures.base import (
    MAX_NAMED,
    WIDE,
    AxisScale,
    Drawing,
    Figure,
    LogScale,
    around_target,
    clipped,
    extent,
    line,
    mark,
    path_of,
    text,
    x_axis,
    y_axis,
)
from reports.figures.bundles import Bundle, Course, band, bundles, is_late, points_of, thin
from reports.figures.differences import difference_figure
from reports.figures.palette import Palette
from reports.figures.tags import TAG_GAP, WIDE_TAG, tags
from reports.stats.digits import settled

MAX_RUN_LINES = 60  # beyond which no run has a line of its own
COURSE = 6  # points after the first below which there is no whole course to see
MAX_BANDS = 8  # arms beyond which bands hide each other


@dataclass(frozen=True, kw_only=True)
class CurveView:
    """One way to look at the curves: what goes across, in which scale, and in which words."""

    key: str
    title: str
    x_label: str
    over: str  # in words, for the text alternative
    last_words: str  # of the caption
    by_time: bool = False
    by_tokens: bool = False
    whole: bool = False  # logarithmic axes, which show the first steep part too

    @property
    def scale(self) -> type[AxisScale]:
        if self.whole:
            return LogScale
        return AxisScale

    def across(self, bundle: Bundle) -> np.ndarray:
        if self.by_time:
            return bundle.time_s
        return bundle.tokens if self.by_tokens and bundle.tokens is not None else bundle.steps

    def across_run(self, run: Course) -> np.ndarray:
        if self.by_time:
            return run.times
        return run.tokens if self.by_tokens and run.tokens is not None else run.steps

    def fitted(self, bundle: Bundle) -> np.ndarray:
        """The points that the vertical axis is fitted to."""
        if self.whole:
            return bundle.steps > 0
        return is_late(bundle.steps)


BY_STEP = CurveView(
    key="loss_by_step",
    title="Loss by step",
    x_label="step",
    over="steps",
    last_words=". The first steep part runs off the top.",
)
BY_TIME = CurveView(
    key="loss_by_time",
    title="Loss by training time",
    x_label="training time, s",
    over="seconds of training",
    last_words=". The first steep part runs off the top.",
    by_time=True,
)
WHOLE_COURSE = CurveView(
    key="loss_whole",
    title="Loss by step, the whole course",
    x_label="step, logarithmic",
    over="steps",
    last_words=". Both axes are logarithmic.",
    whole=True,
)


STEPS_DIFFER = " The arms' steps read different numbers of tokens."


def in_tokens(view: CurveView) -> CurveView:
    """The same over the tokens that were trained on, of arms to whom a step is no unit."""
    return replace(
        view,
        title=view.title.replace("step", "tokens"),
        x_label=view.x_label.replace("step", "tokens"),
        over="tokens",
        last_words=view.last_words + STEPS_DIFFER,
        by_tokens=True,
    )


@dataclass(frozen=True, kw_only=True)
class Ranges:
    """The ends of both axes, in data."""

    x: tuple[float, float]
    y: tuple[float, float]


def ranges_of(view: CurveView, data: Mapping[str, Bundle], target: float | None) -> Ranges:
    shown: list[float] = []
    for bundle in data.values():
        fitted = view.fitted(bundle)
        shown += [*bundle.low[fitted], *bundle.high[fitted]]
    ends = [float(view.across_run(run)[-1]) for b in data.values() for run in b.runs.values()]
    last = max(ends, default=1.0) or 1.0
    if not view.whole:
        y_range = extent(shown, around=around_target(target), pad=0.03)
        return Ranges(x=(0.0, last), y=y_range)
    firsts = []
    for bundle in data.values():
        steps = view.across(bundle)
        if (steps > 0).any():
            firsts.append(float(steps[steps > 0][0]))
    finite = [v for v in shown if math.isfinite(v)]
    lowest = min(finite)
    if target:
        lowest = min(lowest, target)
    return Ranges(x=(min(firsts), last), y=(0.97 * lowest, 1.03 * max(finite)))


@dataclass(frozen=True, kw_only=True)
class Curves:
    """The drawing of one view."""

    view: CurveView
    data: Mapping[str, Bundle]
    palette: Palette
    unit: str
    target: float | None
    ranges: Ranges

    @property
    def has_bands(self) -> bool:
        return len(self.data) <= MAX_BANDS

    @property
    def has_runs(self) -> bool:
        """Whether single runs are drawn: there are few, and room to tell them apart."""
        n_runs = sum(len(b.runs) for b in self.data.values())
        return n_runs <= MAX_RUN_LINES and not self.view.whole

    def draw(self, width: int) -> Drawing:
        height = 300
        if width == WIDE:
            height = 400
        margin = 12 + (WIDE_TAG + TAG_GAP) * self.palette.has_numbers
        left, right, top, bottom = 52, width - margin, 30, height - 48
        (x_low, x_high), (y_low, y_high) = self.ranges.x, self.ranges.y
        x = self.view.scale(low=x_low, high=x_high, start=left, end=right)
        y = self.view.scale(low=y_low, high=y_high, start=bottom, end=top)
        inside = [self.series(arm, x, y) for arm in self.data]
        parts = [
            y_axis(y, left, right, f"validation loss, {self.unit}"),
            x_axis(x, top, bottom, self.view.x_label, n=width // 110),
            clipped(left, top, right - left, height - 78, "".join(inside)),
            *tags(self.palette, self.ends(x, y), top, bottom),
        ]
        if self.target is not None:
            parts.append(line(left, y(self.target), right, y(self.target), "target"))
            parts.append(text(56, y(self.target) - 6, f"target {self.target:g}", css="note"))
        return "".join(parts), height

    def ends(self, x: AxisScale, y: AxisScale) -> dict[str, tuple[float, float]]:
        """Where each arm's mean ends."""
        ends = {}
        for arm, bundle in self.data.items():
            [end] = points_of(self.view.across(bundle)[-1:], bundle.mean[-1:], x, y)
            if all(map(math.isfinite, end)):
                ends[arm] = end
        return ends

    def series(self, arm: str, x: AxisScale, y: AxisScale) -> str:
        """An arm: its band, its runs, its mean."""
        bundle = self.data[arm]
        across = self.view.across(bundle)
        at = thin(len(bundle.steps))
        marks = []
        if len(bundle.runs) > 1 and self.has_bands:
            marks.append(band(across[at], bundle.low[at], bundle.high[at], x, y))
        if self.has_runs:
            marks += [self.run_line(run_id, run, x, y) for run_id, run in bundle.runs.items()]
        path = path_of(points_of(across[at], bundle.mean[at], x, y))
        n_runs = plural(len(bundle.runs), "run")
        tip = f"{arm}: mean of {n_runs}, last {settled(bundle.mean[-1]):.4f}"
        dash = self.palette.dash_attribute(arm)
        marks.append(mark(f'path d="{path}"{dash}', css="mean", tip=tip))
        return self.palette.series(arm, marks)

    def run_line(self, run_id: str, run: Course, x: AxisScale, y: AxisScale) -> str:
        at = thin(len(run.steps))
        path = path_of(points_of(self.view.across_run(run)[at], run.losses[at], x, y))
        return mark(f'path d="{path}"', css="run", run=run_id)

    def caption(self) -> str:
        if all(len(bundle.runs) == 1 for bundle in self.data.values()):
            return "One finished run an arm" + self.view.last_words
        what_is_drawn = "Mean over finished runs"
        if self.has_bands:
            what_is_drawn += ", band from the lowest to the highest run"
            what_is_drawn += " at the mean time of a step" if self.view.by_time else ""
        if self.has_runs:
            what_is_drawn += "; thin lines are single runs"
        return what_is_drawn + self.view.last_words


def curve_figure(
    view: CurveView, data: dict[str, Bundle], palette: Palette, unit: str, target: float | None
) -> Figure:
    """Loss over steps or over seconds of training, one line an arm.

    data: arm -> its bundle of lines. unit: of a loss, in words. target: a loss.
    """
    drawing = Curves(
        view=view,
        data=data,
        palette=palette,
        unit=unit,
        target=target,
        ranges=ranges_of(view, data, target),
    )
    ends = [f"{arm} ends at {settled(b.mean[-1]):.4f}" for arm, b in list(data.items())[:MAX_NAMED]]
    return Figure(
        key=view.key,
        title=view.title,
        caption=drawing.caption() + palette.in_words,
        alt=f"Line chart of validation loss over {view.over}. {'; '.join(ends)}.",
        columns=(
            "arm",
            "step",
            "mean_train_time_s",
            "mean_val_loss",
            "lowest",
            "highest",
            "n_runs",
            *(("tokens",) if all(b.tokens is not None for b in data.values()) else ()),
        ),
        rows=tuple(row for bundle in data.values() for row in bundle.rows),
        draw=drawing.draw,
        legend=palette.legend(data),
    )


def is_timed(bundle: Bundle) -> bool:
    """Whether every run's times are known; old logs have none."""
    return all(np.isfinite(run.times).all() for run in bundle.runs.values())


def is_curve(bundle: Bundle) -> bool:
    """Whether there is more to see than where it began and where it ended."""
    return int((bundle.steps > 0).sum()) > 1


def fits_logarithms(bundle: Bundle) -> bool:
    """Whether logarithmic axes can show it: losses above zero, a course of several points."""
    return bool((bundle.low > 0).all()) and int((bundle.steps > 0).sum()) >= COURSE


def curve_figures(
    curves: pd.DataFrame,
    runs: pd.DataFrame,
    palette: Palette,
    *,
    unit: str,
    target: float | None,
    budget: int | None = None,
    step_tokens: Mapping[str, float] | None = None,
) -> list[Figure]:
    """Every figure that shows curves; none where no run has finished.

    unit: of a loss, in words; target: a loss; budget: steps, None for each arm's longest.
    curves, runs: the experiment's tables; step_tokens: of each arm, where a step is no unit.
    """
    data = bundles(curves, runs, palette.arms, budget, step_tokens)
    data = {arm: b for arm, b in data.items() if is_curve(b)}
    if not data:
        return []
    timed = {arm: b for arm, b in data.items() if is_timed(b)}
    by_step, whole = BY_STEP, WHOLE_COURSE
    if step_tokens:
        by_step, whole = in_tokens(BY_STEP), in_tokens(WHOLE_COURSE)
    figures = [curve_figure(by_step, data, palette, unit, target)]
    if timed:
        figures.append(curve_figure(BY_TIME, timed, palette, unit, target))
    if all(fits_logarithms(b) for b in data.values()):
        figures.append(curve_figure(whole, data, palette, unit, target))
    if palette.baseline in data:
        difference = difference_figure(data, runs, palette, unit)
        if difference is not None and step_tokens:
            at_steps = f"{difference.caption} At equal steps, not at equal tokens.{STEPS_DIFFER}"
            difference = replace(difference, caption=at_steps)
        if difference is not None:
            figures.append(difference)
    return figures
