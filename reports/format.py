"""How a page writes numbers: a format for each kind, U+2212 for minus, an en dash for none.

Which digits of a computed number may be written is told in reports/stats/digits.py.
"""

import re
from collections.abc import Callable
from typing import Any

from reports.stats.digits import DECIMALS, known, magnitude, settled

NONE = "–"
SMALLEST_LOSS = 0.00005  # a difference below it would be written as 0.0000
NO_DIFFERENCE = "0.0000"
SMALL = 0.001  # an interval within it has as many decimals at either end
ZERO = re.compile(r"[+-]0(\.0*)?( %)?")
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """The text with U+FFFD for control characters and those that turn the reading direction."""
    return CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


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


def five_digits(value: float) -> str:
    return significant(value, 5)


def two_digits(value: float) -> str:
    return significant(value, 2)


def signed_difference(value: float) -> str:
    return plus(value) + bare(significant(value, 3))


def fine_difference(value: float) -> str:
    """Four decimals; two digits of a difference that four would write as nothing."""
    return f"{value:+.{loss_decimals(value)}f}"


def loss_decimals(value: float) -> int:
    if 0 < abs(value) < SMALLEST_LOSS:
        return min(DECIMALS, 1 - magnitude(value))
    return 4


def gain(value: float) -> str:
    return plus(value) + significant(value, 2)


def token_count(value: float) -> str:
    """A number of tokens: of many four digits with the unit that a budget is told in."""
    for unit, size in (("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if abs(value) >= 10 * size or (abs(value) >= size and unit != "K"):
            return f"{significant(value / size, 4)}{unit}"
    return f"{value:.0f}"


def percent_change(value: float) -> str:
    """One decimal; none of a change by more than the whole."""
    return f"{100 * value:+.{0 if abs(value) >= 1 else 1}f} %"


def points(value: float) -> str:
    """A change that is a number of percents already."""
    return f"{value:+.1f} %"


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def whole_percent(value: float) -> str:
    return f"{100 * value:.0f} %"


FORMATS: dict[str, Callable[[Any], str]] = {
    "loss": "{:.4f}".format,
    "loss_delta": fine_difference,
    "own": five_digits,
    "own_delta": signed_difference,
    "sd": two_digits,
    "ms": four_digits,
    "ms_delta": signed_difference,
    "s": four_digits,
    "s_delta": signed_difference,
    "percent": percent_change,
    "points": points,
    "s_gain": gain,
    "rate": whole_percent,
    "ratio": "{:.3f}".format,
    "count": "{:.0f}".format,
    "tokens": token_count,
    "p": p_value,
    "mib": "{:.0f}".format,
    "mfu": percent,
}


def show(value: Any, kind: str) -> str:
    """The value as the page prints it; NONE where it is not known."""
    if not known(value):
        return NONE
    text = typeset(FORMATS[kind](settled(value)))
    return NO_DIFFERENCE if kind == "loss_delta" and ZERO.fullmatch("+" + text) else text


def typeset(text: str) -> str:
    """A written number with the sign for minus, and none where it rounds to nothing."""
    if ZERO.fullmatch(text):
        return text.lstrip("+-")
    return text if "e-" in text else text.replace("-", "−")


def interval(low: Any, high: Any, kind: str) -> str:
    """An interval in brackets; an end that is not finite is written as unbounded."""
    if not known(low) and not known(high):
        return ""
    left, right = "−∞", "∞"
    if known(low):
        left = show(low, kind)
    if known(high):
        right = show(high, kind)
    if kind == "loss_delta" and known(low) and known(high) and max(-low, high) < SMALL:
        left, right = of_one_precision(settled(low), settled(high))
    if " %" in left + right:  # one sign for both ends
        return f"[{left.removesuffix(' %')}, {right.removesuffix(' %')}] %"
    return f"[{left}, {right}]"


def of_one_precision(low: float, high: float) -> tuple[str, str]:
    """Both ends of an interval of losses with the decimals that the smaller one needs."""
    decimals = max(loss_decimals(low), loss_decimals(high))
    return typeset(f"{low:+.{decimals}f}"), typeset(f"{high:+.{decimals}f}")


def with_interval(value: Any, low: Any, high: Any, kind: str) -> str:
    """A value and its interval in a sentence, with one unit for all three numbers."""
    text, ends = show(value, kind), interval(low, high, kind)
    if ends.endswith(" %"):
        text = text.removesuffix(" %")
    return f"{text} {ends}".strip()
