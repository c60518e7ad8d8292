"""What exists: toggles, records, and what differs between two records."""

from typing import Annotated, Any

import typer

from harness.cli import app
from harness.cli.options import Json
from harness.cli.table import print_json, print_table, text
from harness.errors import UserError


@app.command()
def toggles(json: Json = False) -> None:
    """Every toggle: its choices, the record that introduced it, what it needs and what it conflicts with."""
    from harness.config.listing import toggle_rows

    rows = toggle_rows()
    if json:
        print_json(rows)
    else:
        print_table(
            [{**r, "choices": " | ".join(text(c["value"]) for c in r["choices"])} for r in rows],
            ["name", "record", "default", "choices", "doc"],
        )


@app.command()
def records(
    name: Annotated[str | None, typer.Argument(help="one record, fully resolved")] = None,
    scale: Annotated[str, typer.Option(help="tiny, small or gpt2")] = "gpt2",
    json: Json = False,
) -> None:
    """The record presets; with a NAME, the resolved preset with the origin of every value."""
    from harness.config.presets import load_preset, load_scale, names, preset_values

    if name is None:
        rows: list[dict[str, Any]] = [
            {"name": p.name, "base": p.base, "title": p.title, "changes": list(p.changes)}
            for p in map(load_preset, names("records"))
        ]
        if json:
            print_json(rows)
        else:
            print_table(rows)
        return
    values, origin = preset_values(name)
    scaled = load_scale(scale).apply(values)
    rows = [
        {
            "field": k,
            "value": scaled[k],
            "origin": origin[k] if scaled[k] == values[k] else f"{origin[k]}, scale {scale}",
        }
        for k in values
    ]
    if json:
        print_json(
            {
                "name": name,
                "scale": scale,
                "values": {r["field"]: r["value"] for r in rows},
                "origins": {r["field"]: r["origin"] for r in rows},
            }
        )
    else:
        print_table([{**r, "value": text(r["value"])} for r in rows])


@app.command()
def diff(a: str, b: str, json: Json = False) -> None:
    """What differs between two records, field by field."""
    from harness.config.presets import preset_values

    (va, _), (vb, origin) = preset_values(a), preset_values(b)
    rows = [{"field": k, a: va[k], b: vb[k], "change": origin[k]} for k in va if va[k] != vb[k]]
    if a == b:
        raise UserError(f"{a} and {b} are the same record: name two")
    if json:
        print_json(
            [{"field": r["field"], "a": r[a], "b": r[b], "change": r["change"]} for r in rows]
        )
    elif rows:
        print_table([{**r, a: text(r[a]), b: text(r[b])} for r in rows])
    else:
        print(
            f"{a} and {b} have the same configuration (record 7 is a change of the torch version)"
        )
