"""How a page writes numbers: a format for each kind, U+2212 for minus, an en dash for none.

And how far two machines may differ in one.  The last bits of a matrix product depend on the
processor, so a computed number is never compared as text: a printed one is right where it is the
rounding of a value within TOLERANCE of the recomputed one. Everything computed is therefore written
through `settled`, `pixel` or `kept`, and a page written once more with `moved` to either side shows
where a value lies so near the middle between two printed ones that both are right.
"""

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

NONE = "–"
# Of a value, or of 1 below: processors differ by up to 2e-13 in published pages, p values the most.
TOLERANCE = 1e-11
# Of a coordinate: an axis over a ten thousandth of a value stretches its last bits by as much.
PIXEL_TOLERANCE = 1e-6
# Of a computed value in a page's data: whichever leaves fewer digits.
DECIMALS, SIGNIFICANT = 7, 8
_side: ContextVar[int | None] = ContextVar("side", default=0)
ZERO = re.compile(r"[+-]0(\.0*)?( %)?")
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """The text with U+FFFD for control characters and those that turn the reading direction."""
    return CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def known(value: Any) -> bool:
    """Whether the value is a number that can be printed (not None, not NaN, not infinite)."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and math.isfinite(value)


@contextmanager
def moved(side: int | None) -> Iterator[None]:
    """What is written meanwhile is written as if it lay one tolerance higher or lower.

    side: 1 or -1; None: the data of a page unrounded.
    """
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
    """The value on a grid as fine as the tolerance, to be formatted.

    Where it should lie in the middle between two printed numbers, processors would else round it by
    its last bits.
    """
    value = float(value)
    if not math.isfinite(value):
        return value
    value += (_side.get() or 0) * room(value)
    decimals = -magnitude(TOLERANCE)
    if value:
        decimals -= max(0, magnitude(value))
    return round(value, decimals) + 0.0  # -0.0 + 0.0 is 0.0


def pixel(coordinate: float) -> str:
    """A coordinate of a drawing, as it is written."""
    at = float(coordinate) + (_side.get() or 0) * PIXEL_TOLERANCE
    at = round(at, -magnitude(PIXEL_TOLERANCE))
    return f"{at + 0.0:.1f}"


def last_decimal(value: float, decimals: int = DECIMALS) -> int:
    """Decimals of a computed value in a page's data: `decimals`, or those of SIGNIFICANT digits."""
    if not value:
        return decimals
    return min(decimals, SIGNIFICANT - 1 - magnitude(value))


def unit(value: float, decimals: int = DECIMALS) -> float:
    """The last digit of a computed value in a page's data."""
    return 10.0 ** -last_decimal(value, decimals)


def kept(value: Any, decimals: int = DECIMALS) -> Any:
    """A computed value as a page's data hold it: two machines write the same digits."""
    if _side.get() is None or not known(value):
        return value
    value = settled(value)
    return round(value, last_decimal(value, decimals)) + 0.0


def kept_p(p: float | None) -> float | None:
    """A p value: never zero, however small."""
    return kept(p) or (p and float(f"{p:.1e}"))


def same_number(page: float | None, own: float | None) -> bool:
    """Whether a value of a page's data is the recomputed one, rounded or in full.

    It is within half a unit of its last digit.
    """
    if page is None or own is None:
        return page is own
    if page == own or (math.isnan(page) and math.isnan(own)):
        return True
    largest = max(abs(page), abs(own))
    return abs(page - own) <= unit(largest) / 2 + room(largest)


def plural(n: int, thing: str) -> str:
    """How many of a thing, in words: `1 run`, `2 runs`."""
    if n == 1:
        return f"{n} {thing}"
    return f"{n} {thing}s"


def effect_kind(ratio: float | None) -> str:
    """What kind of number a comparison's effect is: a percent, or without a ratio a loss."""
    if ratio is None:
        return "loss_delta"
    return "percent"


def significant(value: float, digits: int) -> str:
    """The value with so many significant digits; exponents only below 1e-4 and above 1e7."""
    if value == 0:
        return "0"
    power = magnitude(value)
    if power < -4 or power > 7:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{max(0, digits - 1 - power)}f}"


def bare(number: str) -> str:
    """A number below one without zeros at its end: a difference that small has few digits."""
    if not number.lstrip("-").startswith("0."):
        return number
    return number.rstrip("0").rstrip(".")


def p_value(p: float) -> str:
    if p < 1e-4:
        return "< 0.0001"
    if p < 0.01:
        return f"{p:.4f}"
    if p < 0.1:
        return f"{p:.3f}"
    return f"{p:.2f}"


def plus(value: float) -> str:
    """The sign in front of a difference that is above zero."""
    if value > 0:
        return "+"
    return ""


def four_digits(value: float) -> str:
    return significant(value, 4)


def two_digits(value: float) -> str:
    return significant(value, 2)


def signed_difference(value: float) -> str:
    return plus(value) + bare(significant(value, 3))


def gain(value: float) -> str:
    return plus(value) + significant(value, 2)


def percent_change(value: float) -> str:
    return f"{100 * value:+.1f} %"


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def whole_percent(value: float) -> str:
    return f"{100 * value:.0f} %"


FORMATS: dict[str, Callable[[Any], str]] = {
    "loss": "{:.4f}".format,
    "loss_delta": "{:+.4f}".format,
    "sd": two_digits,
    "ms": four_digits,
    "ms_delta": signed_difference,
    "s": four_digits,
    "s_delta": signed_difference,
    "percent": percent_change,
    "s_gain": gain,
    "rate": whole_percent,
    "ratio": "{:.3f}".format,
    "count": "{:.0f}".format,
    "p": p_value,
    "mib": "{:.0f}".format,
    "mfu": percent,
}


def show(value: Any, kind: str) -> str:
    """The value as the page prints it; NONE where it is not known."""
    if not known(value):
        return NONE
    text = FORMATS[kind](settled(value))
    if ZERO.fullmatch(text):  # a difference that rounds to nothing has no sign
        text = text.lstrip("+-")
    if "e-" in text:
        return text
    return text.replace("-", "−")


def interval(low: Any, high: Any, kind: str) -> str:
    """An interval in brackets; an end that is not finite is written as unbounded."""
    if not known(low) and not known(high):
        return ""
    left, right = "−∞", "∞"
    if known(low):
        left = show(low, kind)
    if known(high):
        right = show(high, kind)
    if left.endswith(" %"):  # one sign for both ends
        return f"[{left.removesuffix(' %')}, {right.removesuffix(' %')}] %"
    return f"[{left}, {right}]"
