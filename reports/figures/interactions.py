"""What two changes add beyond their sum, a row for every pair of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from reports.analysis.interactions import Interplay
from reports.figures.base import (
    CHAR_PX,
    AxisScale,
    Drawing,
    Figure,
    dot,
    extent,
    line,
    mark,
    shorten,
    text,
    x_axis,
)
from reports.figures.rows import VALUE_LINE, narrow_row
from reports.format import interval, show
from reports.stats.digits import kept, pixel


def interplay_interval(e: Interplay) -> str:
    return interval(e.low, e.high, "loss_delta")


def interplay_words(e: Interplay) -> str:
    return f"{show(e.estimate, 'loss_delta')} {interplay_interval(e)}".strip()


def changes_in_words(e: Interplay) -> str:
    return " × ".join(e.changes)


@dataclass(frozen=True, kw_only=True)
class PairsOfChanges:
    """The drawing: a row for every pair of changes."""

    effects: Sequence[Interplay]
    unit: str
    x_range: tuple[float, float]

    def draw(self, width: int) -> Drawing:
        x = AxisScale(low=self.x_range[0], high=self.x_range[1], start=8, end=width - 8)
        longest = max(len(interplay_words(e)) for e in self.effects)
        room = width - CHAR_PX * (longest + 2)
        is_long = any(len(changes_in_words(e)) * CHAR_PX > room for e in self.effects)
        step = narrow_row(len(self.effects)) + VALUE_LINE * is_long
        bottom = 8 + step * len(self.effects)
        parts = [x_axis(x, 4, bottom, f"beyond their sum, {self.unit}", n=4)]
        parts.append(line(x(0), 4, x(0), bottom, "zero"))
        for place, e in enumerate(self.effects):
            y = 8 + step * (place + 1) - 14
            label, name_y = interplay_words(e), y - 15 - VALUE_LINE * is_long
            name = shorten(changes_in_words(e), width if is_long else room)
            parts.append(text(0, name_y, name, css="label"))
            parts.append(text(width, y - 15, label, anchor="end", css="tick"))
            if e.low is not None and e.high is not None:
                path = f"M{pixel(x(e.low))} {y}H{pixel(x(e.high))}"
                parts.append(mark(f'path d="{path}"', css="interval"))
            parts.append(
                dot(x(e.estimate), y, r=4, css="center", tip=f"{changes_in_words(e)}: {label}")
            )
        return "".join(parts), bottom + 44


def interaction_figure(effects: Sequence[Interplay], unit: str) -> Figure | None:
    """None without a pair of changes that arms tell apart; main effects are in its data alone."""
    pairs = [e for e in effects if len(e.changes) == 2]
    if not pairs:
        return None
    rows = []
    for e in effects:
        numbers = [kept(v) for v in (e.estimate, e.low, e.high)]
        rows.append((e.changes[0], e.changes[-1], *numbers, e.n_blocks, e.n_contexts))
    labels = [f"{changes_in_words(e)} {interplay_words(e)}" for e in pairs]
    ends = [v for e in pairs for v in (e.estimate, e.low, e.high) if v is not None]
    drawing = PairsOfChanges(effects=pairs, unit=unit, x_range=extent(ends, around=[0.0]))
    return Figure(
        key="interactions",
        title="Do the changes add up?",
        caption=f"How much more than their sum two changes add together, in {unit}: zero if they "
        "add up, below zero is better. Pairs that no arms tell apart are left out. Intervals are "
        "simultaneous (Bonferroni); the data have what each change adds on average beside the "
        "others, too.",
        alt="Two-way interactions: " + "; ".join(labels[:20]),
        columns=("first", "second", "estimate", "low", "high", "n_blocks", "n_contexts"),
        rows=tuple(rows),
        draw=drawing.draw,
    )
