"""Words of files and of --set that were other words in the release before: one table, old -> new.

Each is still read, with a line on standard error that says so. A row goes with the next release.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

from harness.errors import UserError
from harness.run.document import Content, Document

Lines = Mapping[tuple[str, ...], int]  # path of keys -> line of a file


@dataclass(frozen=True, kw_only=True)
class Renamed:
    """What was renamed, old -> new."""

    keys: Mapping[str, str] = field(default_factory=dict)  # of an experiment file
    fields: Mapping[str, str] = field(default_factory=dict)  # dotted, of the configuration
    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of a key
    columns: Mapping[str, str] = field(default_factory=dict)  # of a run in experiment.json


RENAMED = Renamed(
    values={"primary": {"step_time": "step_ms"}},
    columns={"order": "place"},
)


class Where(Protocol):
    def __call__(self, *keys: str) -> str:
        """The place of a key, for a message."""
        ...


@cache
def say(place: str, old: str, new: str) -> None:
    """Once for each place."""
    print(f"{place}: {old} is now {new}; this release still reads the old word", file=sys.stderr)


def in_todays_words(data: Document, where: Where, table: Renamed | None = None) -> Content:
    """The mapping of a file or of --set with nothing in it under an old name.

    where: of its keys. table: other than RENAMED. Raises UserError for a key under both names.
    """
    return _renamed(data, where, table or RENAMED, ())


def _renamed(data: Document, where: Where, table: Renamed, path: tuple[str, ...]) -> Content:
    names = dict(table.fields)
    of_keys = not path or path[0] == "at_scale"
    if of_keys:
        names.update(table.keys)
    current: Content = {}
    for key, value in data.items():
        new = names.get(key, key)
        if new != key:
            if new in data:
                raise UserError(
                    f"{where(*path, key)}: {key} is now {new}, which is given too: "
                    "leave the old one out"
                )
            say(where(*path, key), key, new)
        if isinstance(value, Mapping):
            value = _renamed(value, where, table, (*path, key))
        elif of_keys and isinstance(value, str) and value in table.values.get(new, {}):
            today = table.values[new][value]
            say(where(*path, key), f"{new} {value}", today)
            value = today
        current[new] = value
    return current


def lines_in_todays_words(lines: Lines, table: Renamed | None = None) -> dict[tuple[str, ...], int]:
    """Where the keys of a file stand, under their present names too."""
    table = table or RENAMED
    names = {**table.keys, **table.fields}
    renamed = {tuple(names.get(key, key) for key in path): line for path, line in lines.items()}
    return {**renamed, **lines}


def value_today(key: str, value: Any) -> Any:
    """The value that a file of ours holds of a key, in today's word."""
    return RENAMED.values.get(key, {}).get(value, value)


def columns_today(row: Document) -> Content:
    """A row that a file of ours holds, under today's names."""
    return {RENAMED.columns.get(name, name): value for name, value in row.items()}
