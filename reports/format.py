"""How numbers are written on a page: a table from the kind of a quantity to its format; U+2212 for minus, an en dash for none."""

import math
import re
from collections.abc import Callable
from typing import Any

NONE = "–"
ZERO = re.compile(r"[+-]0(\.0*)?( %)?")
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """The text with control characters and those that turn the reading direction of their neighbours shown as U+FFFD."""
    return CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def known(value: Any) -> bool:
    """Whether the value is a number that can be printed (not None, not NaN, not infinite)."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def plural(n: int, thing: str) -> str:
    """How many of a thing, in words: `1 run`, `2 runs`."""
    return f"{n} {thing}" + ("" if n == 1 else "s")


def significant(value: float, digits: int) -> str:
    """The value with this many significant digits, never in exponent form between 1e-4 and 1e7."""
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    if magnitude < -4 or magnitude > 7:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{max(0, digits - 1 - magnitude)}f}"


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
    text = FORMATS[kind](value)
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
