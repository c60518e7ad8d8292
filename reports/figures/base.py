"""What every figure is made of: scales, ticks, axes, and the Figure itself, drawn for two widths.

A figure is drawn twice, for a wide and for a narrow column, so that its text has one size on a desk
and on a phone; CSS shows one of them.  Colours are CSS classes (`c0` the baseline, `c1` to `c8` the
arms), so dark mode and print recolour the same drawing.  Units: SVG user units are CSS pixels.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape as html_escape
from typing import Any, NamedTuple

from reports.format import visible
from reports.stats.digits import pixel

WIDE, NARROW = 760, 328  # px: the page's measure, and a 360 px phone less its margins
FLAT = 1e-7  # of the values: a range below it is rounding, which no axis may show
MAX_NAMED = 12  # arms in a text alternative
CHAR_PX = 7.3  # mean advance of a 12 px system sans: of the widest in use, DejaVu Sans
STEPS_OF_TEN = (1, 2, 2.5, 5)  # between ticks, times a power of ten
SERIES_OF_DECADE = (  # ticks of a logarithmic axis, the coarsest first
    (1,),
    (1, 2, 5),
    (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8),
    tuple(k / 2 for k in range(2, 20)),
)

Drawing = tuple[str, float]  # the markup inside an <svg>, and its height


def escape(text: str) -> str:
    return html_escape(visible(text))


class ArmKey(NamedTuple):
    """An arm in a legend: its colour, and its name with its number in the drawing."""

    arm: str
    css: str
    name: str


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure: `draw(width)` gives its markup and height; `columns` and `rows` are its data."""

    key: str
    title: str
    caption: str
    alt: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    draw: Callable[[int], Drawing]
    legend: tuple[ArmKey, ...] = ()
    # where its rows are nothing but rows of the table of runs, which the page has already: those
    runs: tuple[int, ...] = ()

    def svg(self, width: int, index: int) -> str:
        """A whole <svg> element with its text alternative; `index` is the experiment's."""
        inner, height = self.draw(width)
        name = f"{self.key}-{width}-{index}"
        css = "narrow"
        if width == WIDE:
            css = "wide"
        return (
            f'<svg class="{css}" viewBox="0 0 {width} {height:.0f}" width="{width}" '
            f'height="{height:.0f}" role="img" aria-labelledby="{name}-t {name}-d">'
            f'<title id="{name}-t">{escape(self.title)}</title>'
            f'<desc id="{name}-d">{escape(self.alt)}</desc>{inner}</svg>'
        )


@dataclass(frozen=True, kw_only=True)
class AxisScale:
    """A linear map from data [low, high] to pixels [start, end]."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, n: int = 5) -> list[float]:
        """About n round numbers inside [low, high], at least two: one alone tells no scale."""
        while True:
            ticks = self._multiples_inside(self._round_step(n))
            if len(ticks) >= 2:
                return ticks
            n += 1

    def _round_step(self, n: int) -> float:
        """The smallest round number that parts the scale into no more than about n steps."""
        rough = (self.high - self.low) / max(n, 1)
        power = 10.0 ** math.floor(math.log10(rough))
        for multiple in STEPS_OF_TEN:
            if multiple * power >= rough * 0.999:
                return multiple * power
        return 10 * power

    def _multiples_inside(self, step: float) -> list[float]:
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [k * step for k in range(first, last + 1)]


@dataclass(frozen=True, kw_only=True)
class LogScale(AxisScale):
    """The same map of logarithms; low and high above zero; nan for what has no logarithm."""

    def __call__(self, value: float) -> float:
        part = math.nan
        if value > 0:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self, n: int = 5) -> list[float]:
        """Round numbers inside [low, high], of the coarsest of four series that gives 3 or more."""
        ticks: list[float] = []
        for series in SERIES_OF_DECADE:
            ticks = self._inside(series)
            if len(ticks) >= 3:
                break
        return ticks

    def _inside(self, series: Sequence[float]) -> list[float]:
        first = math.floor(math.log10(self.low))
        last = math.ceil(math.log10(self.high))
        inside = []
        for decade in range(first, last + 1):
            for multiple in series:
                value = multiple * 10.0**decade
                if self.low <= value <= self.high:
                    inside.append(value)
        return inside


def extent(
    values: Iterable[float], *, around: Sequence[float] = (), pad: float = 0.06
) -> tuple[float, float]:
    """Lowest and highest finite value, `around` among them, and a margin; (0, 1) of nothing."""
    finite = [v for v in (*values, *around) if v is not None and math.isfinite(v)]
    if not finite:
        return 0.0, 1.0
    low, high = min(finite), max(finite)
    spread = high - low
    if spread <= FLAT * max(abs(low), abs(high)):
        spread = abs(high)
    room = spread * pad or 1.0
    return low - room, high + room


def around_target(target: float | None) -> list[float]:
    """What `extent` is to include so that the line of a target is seen."""
    if target is None:
        return []
    return [target]


def tick_text(value: float, ticks: Sequence[float]) -> str:
    """A tick's label with the decimals in which all of them are exact, U+2212 for minus."""
    gaps = [b - a for a, b in itertools.pairwise(ticks)]
    rounding = 1e-6 * min(gaps, default=abs(value) or 1.0)
    decimals = 0
    while any(abs(round(tick, decimals) - tick) > rounding for tick in ticks):
        decimals += 1
    if not round(value, decimals):
        return f"{0:.{decimals}f}"
    return f"{value:.{decimals}f}".replace("-", "−")


def text(x: float, y: float, content: str, *, anchor: str = "start", css: str = "") -> str:
    """A text at (x, y) in pixels.

    content: escaped here. anchor: SVG's text-anchor. css: its class.
    """
    kind = ""
    if css:
        kind = f' class="{css}"'
    return (
        f'<text x="{pixel(x)}" y="{pixel(y)}" text-anchor="{anchor}"{kind}>{escape(content)}</text>'
    )


def line(x1: float, y1: float, x2: float, y2: float, css: str) -> str:
    """A line from (x1, y1) to (x2, y2) in pixels.

    css: its class.
    """
    return (
        f'<line x1="{pixel(x1)}" y1="{pixel(y1)}" x2="{pixel(x2)}" y2="{pixel(y2)}" class="{css}"/>'
    )


def mark(shape: str, *, arm: str = "", run: str = "", tip: str = "", css: str = "") -> str:
    """A mark that answers hover (arm, tip) and click (run); `shape`: an element without its end.

    css: its class.
    """
    parts = [shape]
    for name, value in (("class", css), ("data-arm", arm), ("data-run", run), ("data-tip", tip)):
        if value:
            parts.append(f'{name}="{escape(value)}"')
    return "<" + " ".join(parts) + "/>"


def dot(x: float, y: float, *, r: float = 3.2, **facts: str) -> str:
    return mark(f'circle cx="{pixel(x)}" cy="{pixel(y)}" r="{r:g}"', **facts)


def dots(spots: Iterable[tuple[float, float, int]], *, r: int) -> str:
    """Runs as dots, (x, y, row in the table of runs) each, in one path; '' for none.

    A browser draws one path many times faster than an element each. The row numbers stand in the
    order of the dots.
    """
    circles, rows = [], []
    for x, y, row in spots:
        circles.append(
            f"M{pixel(x - r)} {pixel(y)}a{r} {r} 0 1 0 {2 * r} 0 {r} {r} 0 1 0-{2 * r} 0"
        )
        rows.append(str(row))
    if not circles:
        return ""
    return f'<path class="dots" d="{"".join(circles)}" data-rows="{" ".join(rows)}"/>'


def path_of(points: Sequence[tuple[float, float]]) -> str:
    """An SVG path through the points; a point that is not finite breaks the line."""
    pieces = []
    command = "M"
    for x, y in points:
        if math.isfinite(x) and math.isfinite(y):
            pieces.append(f"{command}{pixel(x)} {pixel(y)}")
            command = "L"
        else:
            command = "M"
    return "".join(pieces)


def x_axis(scale: AxisScale, y_top: float, y_bottom: float, label: str, *, n: int) -> str:
    """Grid lines from y_top to y_bottom, in pixels, labels of about n ticks, and the axis label."""
    ticks = scale.ticks(n)
    lines, labels = [], []
    for tick in ticks:
        x = scale(tick)
        lines.append(line(x, y_top, x, y_bottom, "grid"))
        labels.append(text(x, y_bottom + 16, tick_text(tick, ticks), anchor="middle", css="tick"))
    middle = (scale.start + scale.end) / 2
    title = text(middle, y_bottom + 35, label, anchor="middle", css="axis")
    return "".join([*lines, *labels, title])


def y_axis(scale: AxisScale, x_left: float, x_right: float, label: str, *, n: int = 5) -> str:
    """Grid lines and labels; the axis label stands above, to be read without turning the head.

    x_left, x_right: of the lines, in pixels. n: about so many ticks.
    """
    ticks = scale.ticks(n)
    lines, labels = [], []
    for tick in ticks:
        y = scale(tick)
        lines.append(line(x_left, y, x_right, y, "grid"))
        labels.append(text(x_left - 7, y + 4, tick_text(tick, ticks), anchor="end", css="tick"))
    title = ""
    if label:
        title = text(0, scale.end - 12, label, css="axis")
    return "".join([*lines, *labels, title])


def shorten(name: str, px: float) -> str:
    """The name cut in the middle to fit px pixels (the ends of arm names tell them apart)."""
    room = max(4, int(px / CHAR_PX))
    if len(name) <= room:
        return name
    head = room // 2
    return name[:head] + "…" + name[len(name) - (room - head - 1) :]


def clipped(x: float, y: float, width: float, height: float, inner: str) -> str:
    """The markup cut to a box, coordinates unchanged: a nested svg needs no id as clipPath does.

    x, y, width, height: of the box, in pixels. inner: the markup.
    """
    box = f"{pixel(x)} {pixel(y)} {pixel(width)} {pixel(height)}"
    place = f'x="{pixel(x)}" y="{pixel(y)}" width="{pixel(width)}" height="{pixel(height)}"'
    return f'<svg class="clip" {place} viewBox="{box}">{inner}</svg>'
