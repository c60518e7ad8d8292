"""How high a row is where a drawing has one for every arm or effect, and how its name stands there.

In a narrow drawing the name stands above the marks, in a wide one beside them; a long one on
several lines, and then all rows are so much higher. Many rows stand closer, so that a phone scrolls
less and two figures fill a sheet of paper.
"""

from collections.abc import Iterable, Sequence

from reports.figures.base import text
from reports.figures.palette import Palette

NARROW_ROW, CLOSE_ROW = 44, 32  # px
MANY_ROWS = 12  # beyond which they stand close
LINE = 13  # px from a line of a name to the next
VALUE_LINE = 17  # px from a name to a value that has the next line to itself
BESIDE_PX = 214  # room for a name beside its marks


def narrow_row(n_rows: int) -> int:
    """The height of one of so many rows, px."""
    if n_rows > MANY_ROWS:
        return CLOSE_ROW
    return NARROW_ROW


def most_lines(palette: Palette, arms: Iterable[str], px: float) -> int:
    """Lines of the longest name in so much room."""
    return max((len(palette.lines(arm, px)) for arm in arms), default=1)


def narrow_step(palette: Palette, arms: Sequence[str], px: float) -> int:
    """The height of a row whose name stands above it in so much room."""
    return narrow_row(len(arms)) + LINE * (most_lines(palette, arms, px) - 1)


def wide_step(palette: Palette, arms: Sequence[str], step: int) -> int:
    """The height of a row whose name stands beside it: `step`, or as its lines need."""
    return max(step, LINE * most_lines(palette, arms, BESIDE_PX) + 4)


def name_beside(palette: Palette, arm: str, x: float, y: float) -> str:
    """An arm's name that ends at x, its lines around y."""
    lines = palette.lines(arm, BESIDE_PX)
    top = y + 4 - LINE * (len(lines) - 1) / 2
    return "".join(text_lines(lines, x, top, anchor="end"))


def name_above(palette: Palette, arm: str, y: float, px: float) -> str:
    """An arm's name that begins at the left edge, its last line at y."""
    lines = palette.lines(arm, px)
    return "".join(text_lines(lines, 0, y - LINE * (len(lines) - 1)))


def text_lines(
    lines: Sequence[str], x: float, y: float, *, anchor: str = "start", css: str = "label"
) -> list[str]:
    """A text on several lines, the first at (x, y) in pixels.

    anchor: SVG's text-anchor. css: its class."""
    drawn = []
    for place, part in enumerate(lines):
        drawn.append(text(x, y + LINE * place, part, anchor=anchor, css=css))
    return drawn
