"""What exists: toggles, records, and what differs between two records."""

from typing import Annotated, Any

import typer

from harness.cli import app
from harness.cli.options import Json
from harness.cli.table import print_json, print_table
from harness.errors import UserError


@app.command()
def toggles(json: Json = False) -> None:
    """Every toggle: its choices, its record, what it needs and what it conflicts with."""
    from harness.config.listing import toggle_rows
    from harness.config.requires import value_text

    rows = toggle_rows()
    if json:
        print_json(rows)
        return
    shown = []
    for row in rows:
        choices = [value_text(short(choice["value"])) for choice in row["choices"]]
        default = value_text(row["default"])
        shown.append({**row, "default": default, "choices": " | ".join(choices)})
    print_table(shown, ["name", "record", "default", "choices", "doc"])


def short(value: Any) -> Any:
    """A value for a narrow column: numbers to four digits."""
    if isinstance(value, list | tuple):
        return [short(entry) for entry in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


@app.command()
def records(
    name: Annotated[str | None, typer.Argument(help="one record, fully resolved")] = None,
    scale: Annotated[str, typer.Option(help="tiny, small or gpt2")] = "gpt2",
    json: Json = False,
) -> None:
    """The record presets; with a NAME, the resolved preset with the origin of every value."""
    if name is None:
        print_records(json=json)
    else:
        print_record(name, scale, json=json)


def print_records(*, json: bool) -> None:
    """All presets with their changes."""
    from harness.config.presets import load_preset, names

    rows = []
    for record in names("records"):
        preset = load_preset(record)
        row = {
            "name": preset.name,
            "base": preset.base,
            "title": preset.title,
            "changes": list(preset.changes),
        }
        rows.append(row)
    if json:
        print_json(rows)
    else:
        print_table(rows)


def print_record(name: str, scale: str, *, json: bool) -> None:
    """One preset, resolved at a scale, with the origin of every value."""
    from harness.config.presets import preset_values
    from harness.config.requires import value_text
    from harness.config.scales import load_scale

    values, origins = preset_values(name)
    scaled = load_scale(scale, name).apply(values)
    shown = {}
    for field in values:
        shown[field] = scaled[field]
        if scaled[field] != values[field]:
            origins[field] += f", scale {scale}"
    if json:
        print_json({"name": name, "scale": scale, "values": shown, "origins": origins})
        return
    rows = []
    for field, value in shown.items():
        rows.append({"field": field, "value": value_text(value), "origin": origins[field]})
    print_table(rows)


@app.command()
def diff(a: str, b: str, json: Json = False) -> None:
    """What differs between two records, field by field."""
    from harness.config.presets import preset_values
    from harness.config.requires import value_text

    (of_a, _), (of_b, origins) = preset_values(a), preset_values(b)
    if a == b:
        raise UserError(f"{a} and {b} are the same record: name two")
    different = [field for field in of_a if of_a[field] != of_b[field]]
    if json:
        rows = []
        for field in different:
            row = {"field": field, "a": of_a[field], "b": of_b[field], "change": origins[field]}
            rows.append(row)
        print_json(rows)
        return
    shown = []
    for field in different:
        row = {"field": field, a: value_text(of_a[field]), b: value_text(of_b[field])}
        shown.append({**row, "change": origins[field]})
    print_table(shown)
    if not different:
        print(
            f"{a} and {b} have the same configuration (record 7 is a change of the torch version)"
        )
