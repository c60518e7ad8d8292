"""How numbers are written on a page: a table from the kind of a quantity to its format; U+2212 for minus, an en dash for none.

And how far two machines may differ in one.  The last bits of a matrix product depend on the processor, so a computed number
is never compared as text: a printed one is right where it is the rounding of a value within TOLERANCE of the recomputed one.
Everything computed is therefore written through `settled`, `pixel` or `kept`, and a page written once more with `moved` to
either side shows where a value lies so near the middle between two printed ones that both are right.
"""

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

NONE = "–"
TOLERANCE = 1e-11  # of a value, or of 1 below: processors differ by up to 2e-13 in published pages, p values the most
PIXEL_TOLERANCE = 1e-6  # of a coordinate: an axis over a ten thousandth of a value stretches its last bits by as much
DECIMALS, SIGNIFICANT = 7, 8  # of a computed value in a page's data: whichever leaves fewer digits
_side: ContextVar[int | None] = ContextVar("side", default=0)
ZERO = re.compile(r"[+-]0(\.0*)?( %)?")
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """The text with control characters and those that turn the reading direction of their neighbours shown as U+FFFD."""
    return CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def known(value: Any) -> bool:
    """Whether the value is a number that can be printed (not None, not NaN, not infinite)."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


@contextmanager
def moved(side: int | None) -> Iterator[None]:
    """What is written meanwhile is written as if it lay one tolerance higher (side 1) or lower (-1); None: data unrounded."""
    token = _side.set(side)
    try:
        yield
    finally:
        _side.reset(token)


def magnitude(value: float) -> int:
    """The power of ten of the first digit."""
    return math.floor(math.log10(abs(value)))


def room(value: float) -> float:
    """How far two machines may be apart in a value."""
    return TOLERANCE * max(1.0, abs(value))


def settled(value: float) -> float:
    """The value on a grid as fine as the tolerance, to be formatted: where it should lie in the middle between two printed
    numbers, processors would else round it by its last bits."""
    value = float(value)
    if not math.isfinite(value):
        return value
    value += (_side.get() or 0) * room(value)
    finest = -magnitude(TOLERANCE)
    return round(value, finest - max(0, magnitude(value)) if value else finest) + 0.0  # -0.0 + 0.0 is 0.0


def pixel(coordinate: float) -> str:
    """A coordinate of a drawing, as it is written."""
    at = round(float(coordinate) + (_side.get() or 0) * PIXEL_TOLERANCE, -magnitude(PIXEL_TOLERANCE))
    return f"{at + 0.0:.1f}"


def unit(value: float, decimals: int = DECIMALS) -> float:
    """The last digit of a computed value in a page's data."""
    return 10.0 ** -(min(decimals, SIGNIFICANT - 1 - magnitude(value)) if value else decimals)


def kept(value: Any, decimals: int = DECIMALS) -> Any:
    """A computed value as a page's data hold it: the digits that mean something, so that two machines write the same page."""
    side = _side.get()
    if side is None or not known(value):
        return value
    value = settled(value)
    return round(value, min(decimals, SIGNIFICANT - 1 - magnitude(value)) if value else decimals) + 0.0


def kept_p(p: float | None) -> float | None:
    """A p value: never zero, however small."""
    return kept(p) or (p and float(f"{p:.1e}"))


def same_number(page: float | None, own: float | None) -> bool:
    """Whether a value of a page's data is the recomputed one, rounded or in full: within half a unit of its last digit."""
    if page is None or own is None:
        return page is own
    if page == own or (math.isnan(page) and math.isnan(own)):
        return True
    largest = max(abs(page), abs(own))
    return abs(page - own) <= unit(largest) / 2 + room(largest)


def plural(n: int, thing: str) -> str:
    """How many of a thing, in words: `1 run`, `2 runs`."""
    return f"{n} {thing}" + ("" if n == 1 else "s")


def significant(value: float, digits: int) -> str:
    """The value with this many significant digits, never in exponent form between 1e-4 and 1e7."""
    if value == 0:
        return "0"
    power = magnitude(value)
    if power < -4 or power > 7:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{max(0, digits - 1 - power)}f}"


def bare(number: str) -> str:
    """A number below one without zeros at its end: what is that small is a difference of few digits."""
    return number.rstrip("0").rstrip(".") if number.lstrip("-").startswith("0.") else number


def p_value(p: float) -> str:
    return "< 0.0001" if p < 1e-4 else f"{p:.4f}" if p < 0.01 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


FORMATS: dict[str, Callable[[Any], str]] = {
    "loss": lambda v: f"{v:.4f}",
    "loss_delta": lambda v: f"{v:+.4f}",
    "sd": lambda v: significant(v, 2),
    "ms": lambda v: significant(v, 4),
    "ms_delta": lambda v: ("+" if v > 0 else "") + bare(significant(v, 3)),
    "s": lambda v: significant(v, 4),
    "s_delta": lambda v: ("+" if v > 0 else "") + bare(significant(v, 3)),
    "percent": lambda v: f"{100 * v:+.1f} %",
    "s_gain": lambda v: ("+" if v > 0 else "") + significant(v, 2),
    "rate": lambda v: f"{100 * v:.0f} %",
    "ratio": lambda v: f"{v:.3f}",
    "count": lambda v: f"{v:.0f}",
    "p": p_value,
    "mib": lambda v: f"{v:.0f}",
    "mfu": lambda v: f"{100 * v:.1f} %",
}


def show(value: Any, kind: str) -> str:
    """The value as the page prints it; NONE where it is not known."""
    if not known(value):
        return NONE
    text = FORMATS[kind](settled(value))
    if ZERO.fullmatch(text):  # a difference that rounds to nothing has no sign
        text = text.lstrip("+-")
    return text.replace("-", "−") if "e-" not in text else text


def interval(low: Any, high: Any, kind: str) -> str:
    """An interval in brackets; an end that is not finite is written as unbounded."""
    if not known(low) and not known(high):
        return ""
    left = show(low, kind) if known(low) else "−∞"
    right = show(high, kind) if known(high) else "∞"
    if left.endswith(" %"):  # one sign for both ends
        return f"[{left.removesuffix(' %')}, {right.removesuffix(' %')}] %"
    return f"[{left}, {right}]"
