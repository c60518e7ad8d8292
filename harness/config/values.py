"""Which values a toggle may take, in words and as a check."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from harness.errors import UserError


def allowed_text(hint: Any) -> str:
    """A type in words: its choices, or its name."""
    args = getattr(hint, "__args__", ())
    if args and all(isinstance(a, str) for a in args):
        return " | ".join(args)
    if args and getattr(hint, "__origin__", None) is not tuple:
        return " | ".join(allowed_text(a) for a in args)
    return {
        "NoneType": "null",
        "int": "an integer",
        "float": "a number",
        "bool": "true or false",
        "tuple": "a list of integers",
    }.get(getattr(hint, "__name__", ""), str(hint))


def _check_range(
    name: str, value: Any, facts: Mapping[str, Any], where: Callable[[str], str]
) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    if not math.isfinite(value):
        raise UserError(f"{where(name)}: {name} is {value!r}, but must be a finite number")
    tests = {
        "ge": lambda v, b: v >= b,
        "gt": lambda v, b: v > b,
        "le": lambda v, b: v <= b,
        "lt": lambda v, b: v < b,
    }
    words = {"ge": "at least", "gt": "greater than", "le": "at most", "lt": "less than"}
    for key, holds in tests.items():
        if key in facts and not holds(value, facts[key]):
            raise UserError(
                f"{where(name)}: {name} is {value!r}, but must be {words[key]} {facts[key]}"
            )
