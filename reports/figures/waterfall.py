"""The waterfall of a ladder: from the baseline to all changes, what each one more added."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from reports.analysis.types import Comparisons
from reports.figures.base import (
    CHAR_PX,
    WIDE,
    AxisScale,
    Drawing,
    Figure,
    extent,
    line,
    mark,
    shorten,
    text,
    x_axis,
    y_axis,
)
from reports.figures.palette import Palette
from reports.figures.rows import name_above, narrow_row, narrow_step
from reports.format import show
from reports.stats.digits import kept, known, pixel

HEIGHT = 340  # px of the wide drawing
FOOT = HEIGHT - 66  # where its bars stand; names below
NAME_PX = 230  # room for a name beside its number
HALF = 0.5  # of the highest level: an axis that reaches below it starts at zero


@dataclass(frozen=True, kw_only=True)
class DrawnAxis:
    """What a waterfall's numbers are: their unit, how levels and steps are written, their name."""

    unit: str
    level: str  # kind of number
    step: str
    name: str


AXES = {
    "time_to_target": DrawnAxis(unit="s", level="s", step="s_delta", name="time to target"),
    "train_time_s": DrawnAxis(unit="s", level="s", step="s_delta", name="training time"),
    "step_ms": DrawnAxis(unit="ms", level="ms", step="ms_delta", name="step time"),
    "val_loss": DrawnAxis(unit="nats", level="loss", step="loss_delta", name="validation loss"),
}


def levels_of(metric: str, arms: Sequence[str], outcome: Comparisons) -> dict[str, float]:
    """Arm -> its level of a metric: the mean of its runs; the time to target is the estimate."""
    levels = {}
    for arm in arms:
        if metric == "time_to_target":
            level = resolved_seconds(arm, outcome)
        else:
            level = mean_of(metric, arm, outcome)
        if level is not None:
            levels[arm] = level
    return levels


def resolved_seconds(arm: str, outcome: Comparisons) -> float | None:
    time = outcome.times.get(arm)
    if time is None or time.extrapolated:
        return None
    return time.seconds


def mean_of(metric: str, arm: str, outcome: Comparisons) -> float | None:
    if arm not in outcome.cells:
        return None
    mean = outcome.cells[arm].mean.get(metric)
    if not known(mean):
        return None
    return mean


@dataclass(frozen=True, kw_only=True)
class Bar:
    """An arm of the waterfall: from the level of the arm before to its own."""

    arm: str
    level: float
    before: float | None  # None for the first, which stands on the ground
    low: float | None  # interval of the whole difference to the baseline up to here, as levels
    high: float | None

    @property
    def added(self) -> float | None:
        if self.before is None:
            return None
        return self.level - self.before

    @property
    def css(self) -> str:
        if self.before is None:
            return "bar"
        return "bar light"

    def label_of_number(self, axis: DrawnAxis) -> str:
        if self.added is None:
            return show(self.level, axis.level)
        return show(self.added, axis.step)


def interval_of(
    metric: str, arm: str, outcome: Comparisons, base: float
) -> tuple[float | None, float | None]:
    """The interval of an arm's difference to the baseline, as levels; none if unbounded."""
    c = outcome.of(arm, metric)
    if c is None or c.low is None or c.high is None or not math.isfinite(c.high - c.low):
        return None, None
    return base + c.low, base + c.high


def bars_of(
    metric: str, levels: Mapping[str, float], outcome: Comparisons, base: float
) -> list[Bar]:
    bars: list[Bar] = []
    before = None
    for arm, level in levels.items():
        low, high = None, None
        if before is not None:
            low, high = interval_of(metric, arm, outcome, base)
        bars.append(Bar(arm=arm, level=level, before=before, low=low, high=high))
        before = level
    return bars


@dataclass(frozen=True, kw_only=True)
class Waterfall:
    """The drawing: columns where it is wide, rows where it is narrow."""

    bars: Sequence[Bar]
    axis: DrawnAxis
    base: float  # level of the baseline
    value_range: tuple[float, float]
    palette: Palette

    def draw(self, width: int) -> Drawing:
        if width == WIDE:
            return self.draw_columns(width)
        return self.draw_rows(width)

    @property
    def label(self) -> str:
        return f"{self.axis.name}, {self.axis.unit}"

    def draw_columns(self, width: int) -> Drawing:
        low, high = self.value_range
        y = AxisScale(low=low, high=high, start=FOOT, end=34)
        slot = (width - 56) / len(self.bars)
        parts = [y_axis(y, 52, width - 4, self.label)]
        for place, bar in enumerate(self.bars):
            is_last = place + 1 == len(self.bars)
            parts.append(self.column(bar, place, y, slot, is_last=is_last))
        return "".join(parts), HEIGHT

    def column(self, bar: Bar, place: int, y: AxisScale, slot: float, *, is_last: bool) -> str:
        """One arm: bar, whisker, the line to the next bar, the number above, the name below.

        place: of the bar, from 0. slot: its width in pixels. is_last: no line follows.
        """
        left, wide = 56 + slot * place + slot * 0.14, slot * 0.72
        middle = left + wide / 2
        top, foot = column_ends(bar, y)
        tall = max(1.0, foot - top)
        shape = (
            f'rect x="{pixel(left)}" y="{pixel(top)}" width="{pixel(wide)}" height="{pixel(tall)}"'
        )
        label = bar.label_of_number(self.axis)
        now = show(bar.level, self.axis.level)
        tip = f"{bar.arm}: {label} {self.axis.unit}, now {now}"
        marks = [mark(shape, css=bar.css, tip=tip)]
        peak = top
        if bar.low is not None and bar.high is not None:
            path = f"M{pixel(middle)} {pixel(y(bar.low))}V{pixel(y(bar.high))}"
            marks.append(f'<path class="interval" d="{path}"/>')
            peak = min(top, y(bar.high))
        if not is_last:
            level = y(bar.level)
            marks.append(line(left + wide, level, left + slot + slot * 0.02, level, "zero"))
        marks.append(self.number(label, middle, peak - 7, place, slot))
        for row, part in enumerate(wrapped(bar.arm, slot)):
            marks.append(text(middle, HEIGHT - 48 + 14 * row, part, anchor="middle", css="tick"))
        return self.palette.series(bar.arm, marks)

    def number(self, label: str, x: float, y: float, place: int, slot: float) -> str:
        """What the bar adds, above it; where crowded smaller, and every other one higher.

        label: the text. x, y: the bar's middle and upper end in pixels. place: of the bar, from 0.
        slot: its width in pixels.
        """
        longest = CHAR_PX * max(len(show(b.level - self.base, self.axis.step)) for b in self.bars)
        if place % 2 and 0.8 * longest > slot:
            y -= 13
        css = "value"
        if longest > slot:
            css = "value tight"
        return text(x, y, label, anchor="middle", css=css)

    def draw_rows(self, width: int) -> Drawing:
        low, high = self.value_range
        x = AxisScale(low=low, high=high, start=4, end=width - 4)
        step = narrow_step(self.palette, [bar.arm for bar in self.bars], NAME_PX)
        bottom = 8 + step * len(self.bars)
        parts = [x_axis(x, 4, bottom, self.label, n=3)]
        for place, bar in enumerate(self.bars):
            top = 8 + step * (place + 1) - narrow_row(len(self.bars))
            parts.append(self.row(bar, top, x, width))
        return "".join(parts), bottom + 44

    def row(self, bar: Bar, top: float, x: AxisScale, width: int) -> str:
        """One arm: its name and number, below them its bar and the whisker."""
        label = bar.label_of_number(self.axis)
        begin, end = row_ends(bar, x)
        wide = max(1.0, end - begin)
        shape = f'rect x="{pixel(begin)}" y="{top + 18}" width="{pixel(wide)}" height="15"'
        marks = [
            name_above(self.palette, bar.arm, top + 13, NAME_PX),
            text(width, top + 13, label, anchor="end", css="value"),
            mark(shape, css=bar.css, tip=label),
        ]
        if bar.low is not None and bar.high is not None:
            path = f"M{pixel(x(bar.low))} {top + 25.5}H{pixel(x(bar.high))}"
            marks.append(f'<path class="interval" d="{path}"/>')
        return f'<g class="series {self.palette.css(bar.arm)}">{"".join(marks)}</g>'


def column_ends(bar: Bar, y: AxisScale) -> tuple[float, float]:
    """Upper and lower end of a bar in a column; the first stands on the ground."""
    if bar.before is None:
        return y(bar.level), FOOT
    top, foot = sorted((y(bar.level), y(bar.before)))
    return top, foot


def row_ends(bar: Bar, x: AxisScale) -> tuple[float, float]:
    """Left and right end of a bar in a row; the first begins at the edge."""
    if bar.before is None:
        return 4, x(bar.level)
    left, right = sorted((x(bar.level), x(bar.before)))
    return left, right


def waterfall(
    metric: str, arms: Sequence[str], outcome: Comparisons, palette: Palette, unit: str
) -> Figure | None:
    """A bar is what one more change added to the mean; None below three levels.

    Whiskers are the interval of the whole difference to the baseline up to there. metric: a level;
    arms: in the ladder's order; unit: of a loss.
    """
    levels = levels_of(metric, arms, outcome)
    if len(levels) < 3 or palette.baseline not in levels:
        return None
    axis = AXES[metric]
    if metric == "val_loss":
        axis = replace(axis, unit=unit)
    base = levels[palette.baseline]
    bars = bars_of(metric, levels, outcome, base)
    shown = list(levels.values())
    rows, labels = [], []
    whiskers = ""
    for bar in bars:
        shown += [end for end in (bar.low, bar.high) if end is not None]
        numbers = (bar.level, bar.added, bar.low, bar.high)
        rows.append((bar.arm, *map(kept, numbers)))
        labels.append(f"{bar.arm} {show(bar.level, axis.level)}")
        if bar.low is not None:
            whiskers = (
                "; the line through it is the interval of the whole difference to the baseline "
                "up to there"
            )
    value_range, ground = extent(shown, pad=0.12), "The axis does not start at zero."
    if min(shown) < HALF * max(shown):  # else the small last bars would look smaller than they are
        value_range, ground = (0.0, value_range[1]), "The axis starts at zero."
    drawing = Waterfall(bars=bars, axis=axis, base=base, value_range=value_range, palette=palette)
    return Figure(
        key=f"waterfall_{metric}",
        title=f"From baseline to full: {axis.name}",
        caption=f"Each bar is what one more change added to the mean{whiskers}. {ground}",
        alt=f"Waterfall of the ladder's means in {axis.unit}: {'; '.join(labels)}.",
        columns=("arm", "mean", "added", "low_of_total", "high_of_total"),
        rows=tuple(rows),
        draw=drawing.draw,
    )


def wrapped(name: str, px: float) -> list[str]:
    """A bar's label on up to three lines; of a long name only the last change, which it shows."""
    last = name.split(" + ")[-1]
    if last != name:
        last = f"+ {last}"
    room = max(6, int(px / CHAR_PX))
    breakable = last.replace("_", "_\u200b")
    lines = textwrap.wrap(breakable, room, break_on_hyphens=False, break_long_words=False)
    pieces = []
    for whole in lines or [last]:
        pieces += broken(whole, room)
    three = [*pieces[:2], " ".join(pieces[2:])]
    return [shorten(part, px) for part in three[: len(pieces)]]


def broken(line: str, room: int) -> list[str]:
    """A line that is too long, cut after underscores where there are any."""
    out = [""]
    for piece in line.split("\u200b"):
        if out[-1] and len(out[-1]) + len(piece) > room:
            out.append("")
        out[-1] += piece
    return out
