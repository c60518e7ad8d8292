"""docs/output.schema.json: what `--json` prints. Written by `python -m harness.cli.json_schema`."""

import json
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import get_type_hints

import typer

from harness.cli import app
from harness.cli.ab_table import AB_SCHEMA, BENCHMARK_RULES, AbVerdict, HintRow, RuleRow
from harness.cli.ab_until import EXIT, Decision, Spent
from harness.cli.compare import COMPARE_SCHEMA, RULE_KEYS
from harness.cli.said import SAID_SCHEMA
from harness.cli.split import SPLIT_SCHEMA
from harness.run.document import Schema

PAGE = Path(__file__).resolve().parents[2] / "docs" / "output.schema.json"
TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
YES_NO: Schema = {"type": "boolean"}
LIST: Schema = {"type": "array"}
LINES: Schema = {"type": "array", "items": TEXT}
NUMBER: Schema = {"type": ["number", "null"]}
TEXT_OR_NONE: Schema = {"type": ["string", "null"]}
MAPPING_OR_NONE: Schema = {"type": ["object", "null"]}
PLAIN: dict[object, Schema] = {  # of a field by its type
    **{str: TEXT, int: WHOLE, bool: YES_NO, float: NUMBER},
    **{str | None: TEXT_OR_NONE, float | None: NUMBER},
}
ANY: Schema = {"type": ["object", "array"]}
OF_COMPARISON: Schema = {  # of json names; what is not here is a number or null
    **dict.fromkeys(("arm", "baseline", "metric", "unit", "estimand", "method", "verdict"), TEXT),
    **{"better": {"enum": ["lower", "higher"]}, "exploratory": YES_NO, "next_action": TEXT},
    **{"interval": {"type": ["array", "null"]}, "next_cost": {"type": "object"}},
    "warnings": LINES,
}


def mapping(schema: int | None = None, **properties: Schema) -> Schema:
    """A mapping with these keys, all there; more may come. schema: the number that it bears."""
    numbered = {} if schema is None else {"schema": {"const": schema}}
    properties = {**numbered, **properties}
    return {"type": "object", "required": [*properties], "properties": properties}


def listed(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def of_dataclass(kind: type, **schemas: Schema) -> Schema:
    """The mapping of a dataclass; schemas: of the keys that are told."""
    hints = get_type_hints(kind)
    properties = {f.name: schemas.get(f.name, PLAIN.get(hints[f.name], {})) for f in fields(kind)}
    needed = [f.name for f in fields(kind) if f.default is MISSING]
    return {"type": "object", "required": needed, "properties": properties}


def comparison_schema() -> Schema:
    """A row of `comparisons`."""
    from reports.analysis.comparison_columns import COMPARISON_COLUMNS

    names = [column.json_name for column in COMPARISON_COLUMNS if column.json_name]
    return mapping(None, **{name: OF_COMPARISON.get(name, NUMBER) for name in names})


def run_schema() -> Schema:
    """A row of `status`."""
    return mapping(
        None,
        **{"arm": TEXT, "run": TEXT, "status": TEXT, "role": TEXT, "val_loss": NUMBER},
        **{"train_time_s": NUMBER, "host": TEXT_OR_NONE, "reason": TEXT_OR_NONE},
    )


def decision_schema() -> Schema:
    """How `ab --until decided` ended."""
    spent = of_dataclass(Spent)
    decision = of_dataclass(
        Decision,
        **{"outcome": {"enum": [*EXIT]}, "stream": {"type": ["object", "null"]}},
        **{"spent": spent, "rest": {**spent, "type": ["object", "null"]}},
    )
    decision["properties"]["exit"] = {"enum": [*EXIT.values()]}
    return decision


def own_schemas() -> dict[str, Schema]:
    """Of the commands whose data programs read most."""
    comparison = {"$ref": "#/$defs/comparison"}
    rule = {"enum": [*BENCHMARK_RULES]}
    ab = of_dataclass(
        AbVerdict,
        **{"arms": listed({"type": "object"}), "comparisons": listed(comparison)},
        **{
            "rules": listed(of_dataclass(RuleRow, rule=rule)),
            "hints": listed(of_dataclass(HintRow)),
        },
        **{"judged": LINES, "notes": LINES, "report": TEXT_OR_NONE},
    )
    ab["properties"] |= {"schema": {"const": AB_SCHEMA}, "decision": decision_schema()}
    compare = mapping(
        COMPARE_SCHEMA,
        **{"experiment": TEXT, "baseline": TEXT, "primary": TEXT, "looks": WHOLE},
        **{"anytime": YES_NO, "budget": NUMBER, "notes": LINES, "warnings": LINES},
        **{"comparisons": listed(comparison), "increments": listed(comparison)},
        **{"lowest": listed({"type": "object"}), "asked_again": LINES},
    )
    compare["properties"]["in_tokens"] = listed({"type": "object"})  # where a step is no unit
    experiment: dict[str, Schema] = {"rates": LINES, "shared": {"type": "object"}, "own": LINES}
    return {
        "error": mapping(error=TEXT, where=TEXT_OR_NONE, mend=TEXT_OR_NONE),
        "said": mapping(SAID_SCHEMA, command=TEXT, exit=WHOLE, said=LINES),
        "comparison": comparison_schema(),
        "ab": {**ab, "required": ["schema", *ab["required"]]},
        "compare": compare,
        "status": listed(run_schema()),
        "plan": mapping(name=TEXT, question=TEXT, arms=LIST, runs=WHOLE, done=WHOLE),
        "significance": {"type": "object", "required": [*RULE_KEYS]},
        "split": mapping(
            SPLIT_SCHEMA,
            **{"folder": TEXT, "groups": LIST, "parents": MAPPING_OR_NONE},
            **{"smoke": MAPPING_OR_NONE, "prune": MAPPING_OR_NONE},
        ),
        "delete": mapping(1, experiment=TEXT, removed=YES_NO, runs_removed=YES_NO, **experiment),
        "rename": mapping(1, experiment=TEXT, name=TEXT, **experiment),
    }


def commands(of: typer.Typer, before: str = "") -> Iterator[tuple[str, bool]]:
    """Every command by its name, and whether what it says is its data."""
    for info in of.registered_commands:
        assert info.callback is not None
        name = info.name or info.callback.__name__.replace("_", "-")
        yield f"{before}{name}", hasattr(info.callback, "says")
    for group in of.registered_groups:
        if group.typer_instance is not None:
            inner = group.name or group.typer_instance.info.name
            yield from commands(group.typer_instance, f"{before}{inner} ")


def output_schema() -> Schema:
    """The JSON Schema of every command's output, by its name."""
    schemas = own_schemas()
    for name, is_said in sorted(commands(app)):
        schemas.setdefault(name, {"$ref": "#/$defs/said"} if is_said else ANY)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What ablate prints with --json; an error where it is refused or stopped",
        "$defs": schemas,
    }


if __name__ == "__main__":
    PAGE.write_text(json.dumps(output_schema(), indent=1) + "\n", encoding="utf-8")
    print(PAGE)
