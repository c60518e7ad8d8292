"""The interaction matrix: main effects on the diagonal, two-way interactions beside it; a list of rows where it is narrow."""

import itertools
from collections.abc import Mapping, Sequence

from reports.analysis.interactions import Interplay
from reports.figures.base import WIDE, Figure, Scale, dot, extent, line, mark, shorten, text, x_axis
from reports.format import interval, kept, pixel, show

LABEL = 190  # px for the names of changes beside the matrix


def words_of(e: Interplay) -> str:
    return f"{show(e.estimate, 'loss_delta')} {interval(e.low, e.high, 'loss_delta')}".strip()


def name_of(e: Interplay) -> str:
    return " × ".join(e.changes)


def tone(e: Interplay) -> str:
    """helps, hurts, or open: an effect counts as told apart from zero when its interval is."""
    if e.low is None or e.high is None or e.low <= 0 <= e.high:
        return "open"
    return "good" if e.high < 0 else "bad"


def interaction_figure(effects: Sequence[Interplay], unit: str) -> Figure | None:
    """None without effects."""
    if not effects:
        return None
    changes = list(dict.fromkeys(c for e in effects for c in e.changes))
    cells: Mapping[frozenset[str], Interplay] = {frozenset(e.changes): e for e in effects}
    pairs = [e for e in effects if len(e.changes) == 2]
    ends = [v for e in effects for v in (e.estimate, e.low, e.high) if v is not None]
    x_range = extent(ends, around=[0.0])

    def matrix(width: int) -> tuple[str, float]:
        side, tall = (width - LABEL) / len(changes), 52
        room = side > 118  # for the interval below the estimate
        parts = [
            text(LABEL + side * (i + 0.5), 12, shorten(c, side), anchor="middle", css="label") for i, c in enumerate(changes)
        ]
        parts += [
            text(LABEL - 12, 24 + tall * (i + 0.5) + 4, shorten(c, LABEL - 14), anchor="end", css="label")
            for i, c in enumerate(changes)
        ]
        for (i, a), (j, b) in itertools.product(enumerate(changes), repeat=2):
            e = cells.get(frozenset((a, b)))
            if e is None or j > i:
                continue
            x, y = LABEL + side * j, 24 + tall * i
            shape = f'rect x="{pixel(x + 1)}" y="{pixel(y + 1)}" width="{pixel(side - 2)}" height="{tall - 2}" rx="3"'
            parts.append(mark(shape, css=f"cell {tone(e)}{' main' if a == b else ''}", tip=f"{name_of(e)}: {words_of(e)} {unit}"))
            middle = y + tall / 2 + (-2 if room else 4)
            parts.append(text(x + side / 2, middle, show(e.estimate, "loss_delta"), anchor="middle", css="value plain"))
            if room:
                parts.append(
                    text(x + side / 2, middle + 16, interval(e.low, e.high, "loss_delta"), anchor="middle", css="tick plain")
                )
        return "".join(parts), 24 + tall * len(changes) + 6

    def rows(width: int) -> tuple[str, float]:
        x = Scale(low=x_range[0], high=x_range[1], start=8, end=width - 8)
        bottom = 8 + 44 * len(effects)
        parts = [x_axis(x, 4, bottom, f"loss, {unit}", n=4), line(x(0), 4, x(0), bottom, "zero")]
        for i, e in enumerate(effects):
            y = 8 + 44 * i + 30
            parts += [
                text(0, y - 15, shorten(name_of(e), width - 190), css="label"),
                text(width, y - 15, words_of(e), anchor="end", css="tick"),
            ]
            if e.low is not None and e.high is not None:
                parts.append(mark(f'path d="M{pixel(x(e.low))} {y}H{pixel(x(e.high))}"', css="interval"))
            parts.append(dot(x(e.estimate), y, r=4, css="center", tip=f"{name_of(e)}: {words_of(e)}"))
        return "".join(parts), bottom + 44

    return Figure(
        key="interactions",
        title="Do the changes add up?",
        caption="Diagonal: what a change adds on average over the sets of other changes it was run with. Beside it: how much "
        f"more than their sum two changes add together, in {unit}: zero if they add up. Intervals are simultaneous; a cell is "
        "coloured where its interval leaves zero.",
        alt="Matrix of main effects and two-way interactions. Interactions: "
        + "; ".join(f"{name_of(e)} {words_of(e)}" for e in pairs[:20]),
        columns=("first", "second", "estimate", "low", "high", "n_blocks", "n_contexts"),
        rows=tuple(
            (e.changes[0], e.changes[-1], *map(kept, (e.estimate, e.low, e.high)), e.n_blocks, e.n_contexts) for e in effects
        ),
        draw=lambda width: matrix(width) if width == WIDE else rows(width),
    )
