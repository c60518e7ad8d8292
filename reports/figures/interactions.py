"""The interaction matrix: main effects on the diagonal, two-way interactions beside it."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reports.analysis.interactions import Interplay
from reports.figures.base import (
    CHAR_PX,
    WIDE,
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
from reports.figures.rows import LINE, narrow_row
from reports.format import interval, show
from reports.stats.digits import kept, pixel

LABEL = 190  # px for the names of changes beside the matrix
MATRIX_TOP = 24  # px above its first row
TALL = 52  # px of a cell


def interplay_interval(e: Interplay) -> str:
    return interval(e.low, e.high, "loss_delta")


def interplay_words(e: Interplay) -> str:
    return f"{show(e.estimate, 'loss_delta')} {interplay_interval(e)}".strip()


def changes_in_words(e: Interplay) -> str:
    return " × ".join(e.changes)


def cell_css(e: Interplay) -> str:
    """The class of its cell: an effect counts as told apart from zero when its interval is."""
    tone = "bad"
    if e.low is None or e.high is None or e.low <= 0 <= e.high:
        tone = "open"
    elif e.high < 0:
        tone = "good"
    if len(e.changes) == 1:
        return f"cell {tone} main"
    return f"cell {tone}"


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """The drawing: a matrix where it is wide, a list of effects where it is narrow."""

    effects: Sequence[Interplay]
    changes: Sequence[str]
    unit: str
    x_range: tuple[float, float]

    def draw(self, width: int) -> Drawing:
        if width == WIDE:
            return self.draw_matrix(width)
        return self.draw_list(width)

    @property
    def cells(self) -> Mapping[frozenset[str], Interplay]:
        return {frozenset(e.changes): e for e in self.effects}

    def draw_matrix(self, width: int) -> Drawing:
        side = (width - LABEL) / len(self.changes)
        heads, names = [], []
        for place, change in enumerate(self.changes):
            middle = LABEL + side * (place + 0.5)
            heads.append(text(middle, 12, shorten(change, side), anchor="middle", css="label"))
            y = MATRIX_TOP + TALL * (place + 0.5) + 4
            name = shorten(change, LABEL - 14)
            names.append(text(LABEL - 12, y, name, anchor="end", css="label"))
        parts = [*heads, *names]
        cells = self.cells
        for (row, first), (column, second) in itertools.product(enumerate(self.changes), repeat=2):
            e = cells.get(frozenset((first, second)))
            if e is not None and column <= row:
                parts += self.cell(e, LABEL + side * column, MATRIX_TOP + TALL * row, side)
        return "".join(parts), MATRIX_TOP + TALL * len(self.changes) + 6

    def cell(self, e: Interplay, x: float, y: float, side: float) -> list[str]:
        """One effect; its interval below the estimate where there is room."""
        place = f'x="{pixel(x + 1)}" y="{pixel(y + 1)}"'
        shape = f'rect {place} width="{pixel(side - 2)}" height="{TALL - 2}" rx="3"'
        tip = f"{changes_in_words(e)}: {interplay_words(e)} {self.unit}"
        box = mark(shape, css=cell_css(e), tip=tip)
        estimate = show(e.estimate, "loss_delta")
        middle, centre = x + side / 2, y + TALL / 2
        if side <= 118:
            return [box, text(middle, centre + 4, estimate, anchor="middle", css="value plain")]
        return [
            box,
            text(middle, centre - 2, estimate, anchor="middle", css="value plain"),
            text(middle, centre - 2 + 16, interplay_interval(e), anchor="middle", css="tick plain"),
        ]

    def draw_list(self, width: int) -> Drawing:
        x = AxisScale(low=self.x_range[0], high=self.x_range[1], start=8, end=width - 8)
        room = width - 190
        is_long = any(len(changes_in_words(e)) * CHAR_PX > room for e in self.effects)
        step = narrow_row(len(self.effects)) + LINE * is_long
        bottom = 8 + step * len(self.effects)
        parts = [x_axis(x, 4, bottom, f"loss, {self.unit}", n=4)]
        parts.append(line(x(0), 4, x(0), bottom, "zero"))
        for place, e in enumerate(self.effects):
            y = 8 + step * (place + 1) - 14
            label, name_y = interplay_words(e), y - 15 - LINE * is_long
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
    """None without effects."""
    if not effects:
        return None
    changes: dict[str, None] = {}
    ends, rows, labels = [], [], []
    for e in effects:
        changes |= dict.fromkeys(e.changes)
        ends += [v for v in (e.estimate, e.low, e.high) if v is not None]
        first, last = e.changes[0], e.changes[-1]
        numbers = [kept(v) for v in (e.estimate, e.low, e.high)]
        rows.append((first, last, *numbers, e.n_blocks, e.n_contexts))
        if len(e.changes) == 2:
            labels.append(f"{changes_in_words(e)} {interplay_words(e)}")
    drawing = Matrix(
        effects=effects, changes=list(changes), unit=unit, x_range=extent(ends, around=[0.0])
    )
    return Figure(
        key="interactions",
        title="Do the changes add up?",
        caption="Of one change what it adds on average over the sets of other changes it was run "
        "with, each set weighing the same (a Shapley share weighs every order the same). Of two "
        f"how much more than their sum they add together, in {unit}: zero if they add up. Pairs "
        "that no arms tell apart are left out. Intervals are simultaneous; in a matrix a cell is "
        "coloured where its interval leaves zero.",
        alt="Matrix of main effects and two-way interactions. Interactions: "
        + "; ".join(labels[:20]),
        columns=("first", "second", "estimate", "low", "high", "n_blocks", "n_contexts"),
        rows=tuple(rows),
        draw=drawing.draw,
    )
