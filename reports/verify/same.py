"""Whether two readings of a page say the same: numbers as numbers, all else to the letter."""

import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from reports.stats.digits import same_number
from reports.verify.page import Embedded, numbers

NUMBER = re.compile(r"([+−-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)")
COORDINATE = re.compile(r"-?\d+(?:\.\d+)?|[^\s,]")  # a number, else a command of a path
# as a parser spells them
GEOMETRY = {
    "d",
    "x",
    "y",
    "x1",
    "y1",
    "x2",
    "y2",
    "cx",
    "cy",
    "r",
    "rx",
    "width",
    "height",
    "viewbox",
}


def same_text(printed: str, options: Sequence[str]) -> bool:
    """Whether each number, and each piece between, stands at its place in an option."""
    if printed in options:
        return True
    return pieces_in_place(NUMBER.split(printed), [NUMBER.split(option) for option in options])


def same_drawn(name: str, text: str, options: Sequence[str]) -> bool:
    """The same of a piece of a drawing: its coordinates as numbers, anything else as text."""
    if name.rpartition(" ")[2] not in GEOMETRY:
        return same_text(text, options)
    return pieces_in_place(coordinates(text), [coordinates(option) for option in options])


def pieces_in_place(pieces: Sequence[Hashable], options: Sequence[Sequence[Hashable]]) -> bool:
    """Whether each piece stands at its place in one of the options that have as many."""
    as_many = [option for option in options if len(option) == len(pieces)]
    if not as_many:
        return False
    return all(piece in {option[place] for option in as_many} for place, piece in enumerate(pieces))


def coordinates(text: str) -> list[str | float]:
    """The numbers and the commands of a piece of a drawing."""
    parts: list[str | float] = []
    for part in COORDINATE.findall(text):
        if part[-1].isdigit():
            parts.append(float(part))
        else:
            parts.append(part)
    return parts


def numbers_of(carried: str) -> list[float | None] | str:
    """What an element carries: numbers, or else words."""
    try:
        return list(numbers(carried))
    except ValueError:
        return carried


def same_data(printed: Any, options: Sequence[Any]) -> bool:
    """Whether JSON data are those of the options.

    Numbers that were computed as numbers, counts and words exactly.
    """
    if type(printed) is type(options[0]) and printed == options[0]:
        return True
    if isinstance(printed, Mapping):
        return same_mapping(printed, options)
    if isinstance(printed, list):
        return same_list(printed, options)
    if isinstance(printed, float):
        return any(isinstance(option, float) and same_number(printed, option) for option in options)
    return any(type(printed) is type(option) and printed == option for option in options)


def same_mapping(printed: Embedded, options: Sequence[Any]) -> bool:
    """Whether each value is that of an option with the same keys."""
    alike = []
    for option in options:
        if isinstance(option, Mapping) and set(option) == set(printed):
            alike.append(option)
    if not alike:
        return False
    return all(
        same_data(value, [option[key] for option in alike]) for key, value in printed.items()
    )


def same_list(printed: Sequence[Any], options: Sequence[Any]) -> bool:
    """Whether each value is that of an option as long."""
    alike = []
    for option in options:
        if isinstance(option, list) and len(option) == len(printed):
            alike.append(option)
    if not alike:
        return False
    for place, value in enumerate(printed):
        if not same_data(value, [option[place] for option in alike]):
            return False
    return True


def shortened(text: str) -> str:
    """The text, or its first 59 letters and an ellipsis."""
    if len(text) <= 60:
        return text
    return f"{text[:59]}…"
