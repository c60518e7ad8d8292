"""The toggles as rows: what the listing, docs/toggles.md and the JSON Schema are made of."""

from collections.abc import Mapping
from dataclasses import Field
from typing import Any, get_args

from harness.config import plugins
from harness.config.run import Values, hint_of, toggles
from harness.run.document import Cells


def choices(name: str, f: Field) -> list[Cells]:
    """Every value a toggle may take, where they can be listed, with the record each belongs to."""
    records = dict(f.metadata.get("choices", {}))
    hint = hint_of(name)
    values: list[Any] = [f.default]
    if hint is bool:
        values = [False, True]
    for part in (hint, *get_args(hint)):
        for value in get_args(part):
            if isinstance(value, str):
                values.append(value)
    rows = []
    for value in dict.fromkeys([*values, *records]):
        rows.append({"value": value, "record": records.get(value, f.metadata["record"])})
    return rows


def toggle_rows() -> list[Cells]:
    """One mapping per toggle, plug-ins' included.

    Name, record, doc, default, choices, requires, conflicts.
    """
    rows = []
    for name, f in toggles():
        row = {
            "name": name,
            "record": f.metadata["record"],
            "doc": f.metadata["doc"],
            "default": f.default,
            "choices": choices(name, f),
            "requires": _readable(f.metadata.get("requires", {})),
            "conflicts": _readable(f.metadata.get("conflicts", {})),
        }
        rows.append(row)
    for name, f in plugins.declared().items():
        record = f.metadata.get("record", "own")
        row = {
            "name": name,
            "record": record,
            "doc": f.metadata.get("doc", ""),
            "default": f.default,
            "choices": [{"value": f.default, "record": record}],
            "requires": [],
            "conflicts": [],
        }
        rows.append(row)
    return rows


def _readable(conditions: Mapping[Any, Values]) -> list[Cells]:
    rows = []
    for when, fields in conditions.items():
        for field, values in fields.items():
            listed = list(values) if isinstance(values, tuple) else values
            rows.append({"value": when, "field": field, "values": listed})
    return rows
