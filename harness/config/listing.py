"""The toggles as rows: what the listing, docs/toggles.md and the JSON Schema are made of."""

from dataclasses import Field
from typing import Any, get_args, get_type_hints

from harness.config import plugins
from harness.config.run import RunConfig, toggles


def choices(name: str, f: Field) -> list[dict[str, Any]]:
    """Every value a toggle may take, where they can be listed, with the record each belongs to."""
    records = dict(f.metadata.get("choices", {}))
    hint = get_type_hints(type(getattr(RunConfig(), name.partition(".")[0])))[
        name.partition(".")[2]
    ]
    listed: list[Any] = [f.default]
    if hint is bool:
        listed = [False, True]
    for part in (hint, *get_args(hint)):
        listed += [v for v in get_args(part) if isinstance(v, str)]
    values = list(dict.fromkeys([*listed, *records]))
    return [{"value": v, "record": records.get(v, f.metadata["record"])} for v in values]


def toggle_rows() -> list[dict[str, Any]]:
    """One mapping per toggle, plug-ins' included: name, record, doc, default, choices, requires, conflicts."""
    rows = [
        {
            "name": name,
            "record": f.metadata["record"],
            "doc": f.metadata["doc"],
            "default": f.default,
            "choices": choices(name, f),
            "requires": _readable(f.metadata.get("requires", {})),
            "conflicts": _readable(f.metadata.get("conflicts", {})),
        }
        for name, f in toggles()
    ]
    return rows + [
        {
            "name": name,
            "record": f.metadata.get("record", "own"),
            "doc": f.metadata.get("doc", ""),
            "default": f.default,
            "choices": [{"value": f.default, "record": f.metadata.get("record", "own")}],
            "requires": [],
            "conflicts": [],
        }
        for name, f in plugins.declared().items()
    ]


def _readable(conditions: dict[Any, Any]) -> list[dict[str, Any]]:
    return [
        {
            "value": when,
            "field": field,
            "values": list(values) if isinstance(values, tuple) else values,
        }
        for when, fields in conditions.items()
        for field, values in fields.items()
    ]
