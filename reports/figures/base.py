"""What every figure is made of: scales, ticks, axes, and the Figure itself (a drawing for two widths beside its data).

A figure is drawn twice, for a wide and for a narrow column, so that its text has one size on a desk and on a phone; CSS
shows one of them.  Colours are CSS classes (`c0` the baseline, `c1` to `c8` the arms), so dark mode and print recolour the
same drawing.  Units: SVG user units are CSS pixels.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape as html_escape
from typing import Any

from reports.format import pixel, visible

WIDE, NARROW = 760, 328  # px: the page's measure, and a 360 px phone less its margins
N_HUES = 8
DASHES = ("", "7 3", "2 3", "9 3 2 3", "1 2")  # the ninth arm is the first hue again, dashed
FLAT = 1e-7  # of the values: a range below it is rounding, which no axis may show
CHAR_PX = 7.3  # mean advance of a 12 px system sans: of the widest in use, DejaVu Sans


def escape(text: str) -> str:
    return html_escape(visible(text))


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure: `draw(width)` gives the SVG's inner markup and its height; `columns` and `rows` are the data behind it."""

    key: str
    title: str
    caption: str
    alt: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    draw: Callable[[int], tuple[str, float]]
    legend: tuple[tuple[str, str], ...] = ()  # (arm, css class)
    runs: tuple[int, ...] = ()  # where its rows are nothing but these rows of the table of runs: the page has that already

    def svg(self, width: int, index: int) -> str:
        """A whole <svg> element with its text alternative; `index` keeps the ids of several experiments apart."""
        inner, height = self.draw(width)
        name = f"{self.key}-{width}-{index}"
        return (
            f'<svg class="{"wide" if width == WIDE else "narrow"}" viewBox="0 0 {width} {height:.0f}" width="{width}" '
            f'height="{height:.0f}" role="img" aria-labelledby="{name}-t {name}-d">'
            f'<title id="{name}-t">{escape(self.title)}</title><desc id="{name}-d">{escape(self.alt)}</desc>{inner}</svg>'
        )


@dataclass(frozen=True, kw_only=True)
class Palette:
    """The colour class of each arm, the same in every figure and table of a page: baseline c0, then eight hues in turn."""

    arms: tuple[str, ...]
    baseline: str

    def css(self, arm: str) -> str:
        if arm == self.baseline:
            return "c0"
        return f"c{1 + self._place(arm) % N_HUES}"

    def dash(self, arm: str) -> str:
        if arm == self.baseline:
            return ""
        return DASHES[self._place(arm) // N_HUES % len(DASHES)]

    def _place(self, arm: str) -> int:
        return [a for a in self.arms if a != self.baseline].index(arm)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """A linear map from data [low, high] to pixels [start, end]."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, n: int = 5) -> list[float]:
        """About n round numbers inside [low, high], two of them at least: one alone tells no scale."""
        found: list[float] = []
        while len(found) < 2:
            rough = (self.high - self.low) / max(n, 1)
            power = 10.0 ** math.floor(math.log10(rough))
            step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
            found = [k * step for k in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)]
            n += 1
        return found


@dataclass(frozen=True, kw_only=True)
class LogScale(Scale):
    """The same map of logarithms; low and high above zero; nan for what has no logarithm."""

    def __call__(self, value: float) -> float:
        part = math.log(value / self.low) / math.log(self.high / self.low) if value > 0 else math.nan
        return self.start + part * (self.end - self.start)

    def ticks(self, n: int = 5) -> list[float]:
        """Round numbers inside [low, high]: those of the coarsest of four series that gives at least 3, else the finest."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        found: list[float] = []
        for series in ((1,), (1, 2, 5), (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8), tuple(k / 2 for k in range(2, 20))):
            found = [m * 10.0**d for d in decades for m in series if self.low <= m * 10.0**d <= self.high]
            if len(found) >= 3:
                break
        return found


def extent(values: Iterable[float], *, around: Sequence[float] = (), pad: float = 0.06) -> tuple[float, float]:
    """Lowest and highest finite value, with `around` included and a margin; (0, 1) when there is nothing to show."""
    finite = [v for v in (*values, *around) if v is not None and math.isfinite(v)]
    if not finite:
        return 0.0, 1.0
    low, high = min(finite), max(finite)
    flat = high - low <= FLAT * max(abs(low), abs(high))
    room = (abs(high) if flat else high - low) * pad or 1.0
    return low - room, high + room


def tick_text(value: float, ticks: Sequence[float]) -> str:
    """A tick's label with the decimals that tell its neighbours apart, U+2212 for minus."""
    step = min((b - a for a, b in itertools.pairwise(ticks)), default=abs(value) or 1.0)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 0
    if decimals and abs(step * 10**decimals - round(step * 10**decimals)) > 1e-6:
        decimals += 1
    return f"{value:.{decimals}f}".replace("-", "−") if round(value, decimals) else f"{0:.{decimals}f}"


def text(x: float, y: float, content: str, *, anchor: str = "start", css: str = "") -> str:
    kind = f' class="{css}"' if css else ""
    return f'<text x="{pixel(x)}" y="{pixel(y)}" text-anchor="{anchor}"{kind}>{escape(content)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, css: str) -> str:
    return f'<line x1="{pixel(x1)}" y1="{pixel(y1)}" x2="{pixel(x2)}" y2="{pixel(y2)}" class="{css}"/>'


def mark(shape: str, *, arm: str = "", run: str = "", tip: str = "", css: str = "") -> str:
    """A mark that answers hover (arm, tip) and click (run): `shape` is an element's markup without its closing."""
    parts = [shape]
    for name, value in (("class", css), ("data-arm", arm), ("data-run", run), ("data-tip", tip)):
        if value:
            parts.append(f'{name}="{escape(value)}"')
    return "<" + " ".join(parts) + "/>"


def dot(x: float, y: float, *, r: float = 3.2, **facts: str) -> str:
    return mark(f'circle cx="{pixel(x)}" cy="{pixel(y)}" r="{r:g}"', **facts)


def dots(spots: Iterable[tuple[float, float, int]], *, r: int) -> str:
    """Runs as dots, (x, y, row in the table of runs) each: one path, which a browser draws many times faster than an element
    each. The row numbers stand in the order of the dots."""
    drawn = [(f"M{pixel(x - r)} {pixel(y)}a{r} {r} 0 1 0 {2 * r} 0 {r} {r} 0 1 0-{2 * r} 0", row) for x, y, row in spots]
    rows = " ".join(str(row) for _, row in drawn)
    return f'<path class="dots" d="{"".join(d for d, _ in drawn)}" data-rows="{rows}"/>' if drawn else ""


def path_of(points: Sequence[tuple[float, float]]) -> str:
    """An SVG path through the points; a point that is not finite breaks the line."""
    pieces, drawing = [], False
    for x, y in points:
        if math.isfinite(x) and math.isfinite(y):
            pieces.append(f"{'L' if drawing else 'M'}{pixel(x)} {pixel(y)}")
            drawing = True
        else:
            drawing = False
    return "".join(pieces)


def x_axis(scale: Scale, y_top: float, y_bottom: float, label: str, *, n: int) -> str:
    ticks = scale.ticks(n)
    lines = "".join(line(scale(t), y_top, scale(t), y_bottom, "grid") for t in ticks)
    labels = "".join(text(scale(t), y_bottom + 16, tick_text(t, ticks), anchor="middle", css="tick") for t in ticks)
    return lines + labels + text((scale.start + scale.end) / 2, y_bottom + 35, label, anchor="middle", css="axis")


def y_axis(scale: Scale, x_left: float, x_right: float, label: str, *, n: int = 5) -> str:
    """Grid lines and labels; the axis label sits above the axis, horizontal, where it is read without turning the head."""
    ticks = scale.ticks(n)
    lines = "".join(line(x_left, scale(t), x_right, scale(t), "grid") for t in ticks)
    labels = "".join(text(x_left - 7, scale(t) + 4, tick_text(t, ticks), anchor="end", css="tick") for t in ticks)
    return lines + labels + (text(0, scale.end - 12, label, css="axis") if label else "")


def shorten(name: str, px: float) -> str:
    """The name cut in the middle to fit px pixels (the ends of arm names tell them apart)."""
    room = max(4, int(px / CHAR_PX))
    if len(name) <= room:
        return name
    head = room // 2
    return name[:head] + "…" + name[len(name) - (room - head - 1) :]


def clipped(x: float, y: float, width: float, height: float, inner: str) -> str:
    """The markup cut to a box, its coordinates unchanged: a nested svg needs no id, unlike a clipPath."""
    box = f"{pixel(x)} {pixel(y)} {pixel(width)} {pixel(height)}"
    place = f'x="{pixel(x)}" y="{pixel(y)}" width="{pixel(width)}" height="{pixel(height)}"'
    return f'<svg class="clip" {place} viewBox="{box}">{inner}</svg>'
