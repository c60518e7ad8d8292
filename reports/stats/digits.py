"""How far two machines may differ in a computed number, and the digits that are written of it.

The last bits of a matrix product depend on the processor, so a computed number is never compared as
text: a printed one is right where it is the rounding of a value within TOLERANCE of the recomputed
one. Everything computed is therefore written through `settled`, `pixel` or `kept`, and a page
written once more with `moved` to either side shows where a value lies so near the middle between
two printed ones that both are right.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

# Of a value, or of 1 below: processors differ by up to 2e-13 in published pages, p values the most.
TOLERANCE = 1e-11
# Of a coordinate: an axis over a ten thousandth of a value stretches its last bits by as much.
PIXEL_TOLERANCE = 1e-6
# Of a computed value in a page's data: whichever leaves fewer digits.
DECIMALS, SIGNIFICANT = 7, 8
_side: ContextVar[int | None] = ContextVar("side", default=0)


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


TOLERANCE_DECIMALS, PIXEL_DECIMALS = -magnitude(TOLERANCE), -magnitude(PIXEL_TOLERANCE)


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
    decimals = TOLERANCE_DECIMALS
    if value:
        decimals -= max(0, magnitude(value))
    return round(value, decimals) + 0.0  # -0.0 + 0.0 is 0.0


def pixel(coordinate: float) -> str:
    """A coordinate of a drawing, as it is written."""
    at = float(coordinate) + (_side.get() or 0) * PIXEL_TOLERANCE
    at = round(at, PIXEL_DECIMALS)
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


def same_number(page: float | None, recomputed: float | None) -> bool:
    """Whether a value of a page's data is the recomputed one, rounded or in full.

    It is within half a unit of its last digit.
    """
    if page is None or recomputed is None:
        return page is recomputed
    if page == recomputed or (math.isnan(page) and math.isnan(recomputed)):
        return True
    largest = max(abs(page), abs(recomputed))
    return abs(page - recomputed) <= unit(largest) / 2 + room(largest)
