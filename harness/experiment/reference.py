"""The generated documentation: docs/toggles.md and docs/experiment.schema.json, from the toggles' declarations.

`python -m harness.experiment.reference` rewrites both in a checkout; a test holds them up to date. What the texts about the records
claimed is data, docs/text_claims.yaml.
"""

import json
from collections.abc import Mapping
from dataclasses import Field
from pathlib import Path
from typing import Any, get_type_hints

from harness.config.listing import choices
from harness.config.run import SECTIONS, RunConfig, toggles
from harness.config.values import allowed_text
from harness.experiment.designs import DESIGNS
from harness.experiment.file import FACTOR, SCALED
from harness.experiment.keys import ESTIMANDS, NAME, PHASE_KEYS, PRIMARY, ROLES
from harness.model.config import ON
from harness.yamlfile import YamlFile

DOCS = Path(__file__).resolve().parents[2] / "docs"
NOT_TOGGLES = {"value": "a value, not a toggle", "documentation": "documentation"}
VERDICTS = (
    "accurate",
    "already there",
    "misleading",
    "wrong",
    "unsupported",
    "opinion",
    "not mentioned",
)
LIMITS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
SECTION_TITLES = {
    "model": "the network",
    "optim": "the update rules",
    "schedule": "what moves with the step",
    "data": "the tokens",
    "precision": "dtypes",
    "system": "the machine",
    "timing": "the clock",
}

TABLE_HEAD = "| toggle | record | default | values | meaning | needs, excludes |\n|---|---|---|---|---|---|\n"
CLAIMS_TABLE_HEAD = "| it says | toggles | verdict | |\n|---|---|---|---|\n"
HEAD = """\
# Toggles

Generated from the declarations by `python -m harness.experiment.reference`; do not edit. `ablate toggles` prints the same list,
`ablate toggles --json` gives it to scripts.

A toggle is one field of the configuration. Its record is the first that had it; a choice's record is the first that took
that value. Defaults are the plain values, those of record 2. "Needs" and "excludes" are checked before anything is allocated.
"""

CLAIMS_HEAD = """\
## What the texts said

This list began with five texts that described records 4, 8, 17 and 18. The presets reproduce the records' scripts, not the
texts; where the two differ this is the place that says so. *Already there* is true of the script but not new in that record;
*not mentioned* is what the text left out.
"""


def hint_of(name: str) -> Any:
    """The type of a dotted field."""
    section, _, key = name.partition(".")
    return get_type_hints(type(getattr(RunConfig(), section)))[key]


def shown(value: Any) -> str:
    """A value as YAML would write it."""
    return f"`{json.dumps(value)}`".replace('"', "")


def escaped(text: str) -> str:
    """Text that Markdown leaves as it is in a table's cell."""
    for character in "\\|*<":
        text = text.replace(character, "\\" + character)
    return text


def values_text(name: str, f: Field) -> str:
    """What a toggle may be: its type and range where it is a number or a list, its choices with their records."""
    free = [
        part for part in allowed_text(hint_of(name)).split(" | ") if part.startswith(("a ", "an "))
    ]
    limits = " and ".join(
        f"{words} {f.metadata[key]}" for key, words in LIMITS.items() if key in f.metadata
    )
    listed = [
        f"{shown(c['value'])} {c['record']}" for c in choices(name, f) if c["value"] != f.default
    ]
    return "; ".join(
        filter(None, [", ".join(filter(None, [" or ".join(free), limits])), ", ".join(listed)])
    )


def conditions_text(facts: Mapping[str, Any]) -> str:
    """Requirements and conflicts in words."""
    lines = []
    for kind, words in (("requires", "needs"), ("conflicts", "excludes")):
        for when, others in facts.get(kind, {}).items():
            for other, accepted in others.items():
                state = "" if accepted == ON else " = " + " or ".join(shown(a) for a in accepted)
                lines.append(
                    ("" if when == "*" else f"{shown(when)} ") + f"{words} {link(other)}{state}"
                )
    return "; ".join(lines)


def link(name: str) -> str:
    return NOT_TOGGLES.get(name) or f"[{name}](#{name})"


def toggles_page() -> str:
    """docs/toggles.md."""
    parts = [HEAD]
    for section in SECTIONS:
        parts.append(f"\n## {section}: {SECTION_TITLES[section]}\n\n{TABLE_HEAD}")
        for name, f in toggles():
            if name.startswith(f"{section}."):
                unit = f" ({f.metadata['unit']})" if "unit" in f.metadata else ""
                cells = [
                    f'<a id="{name}"></a>{name}',
                    f.metadata["record"],
                    shown(f.default),
                    values_text(name, f),
                    escaped(f.metadata["doc"]) + unit,
                    conditions_text(f.metadata),
                ]
                parts.append(f"| {' | '.join(cells)} |\n")
    return "".join([*parts, "\n", CLAIMS_HEAD, *map(text_section, load_claims().items())])


def load_claims() -> Mapping[str, Any]:
    return YamlFile(DOCS / "text_claims.yaml").data


def text_section(item: tuple[str, Mapping[str, Any]]) -> str:
    """The claims of one text, in its order."""
    letter, text = item
    out = f"\n### Source text {letter}: {text['change']} ({text['about']})\n\n{CLAIMS_TABLE_HEAD}"
    for claim, names, verdict, why in text["claims"]:
        assert verdict in VERDICTS, verdict
        out += f"| {escaped(str(claim))} | {', '.join(map(link, names))} | {verdict} | {escaped(str(why or ''))} |\n"
    return out


# ---------------------------------------------------------------- JSON Schema of an experiment file


def field_schemas() -> dict[str, Any]:
    """Dotted field -> JSON Schema, as pydantic makes it of the field's type, with its meaning and range."""
    from pydantic import TypeAdapter

    words = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
    out = {}
    for name, f in toggles():
        limits = {words[k]: f.metadata[k] for k in words if k in f.metadata}
        out[name] = {
            **TypeAdapter(hint_of(name)).json_schema(),
            "description": f"{f.metadata['record']}: {f.metadata['doc']}",
            **limits,
        }
    return out


def experiment_schema() -> dict[str, Any]:
    """JSON Schema of an experiment file, for editors; `ablate plan` checks more than a schema can."""
    text, flag, count = {"type": "string"}, {"type": "boolean"}, {"type": "integer", "minimum": 1}
    names = {"type": "array", "items": text}
    fields = {"$ref": "#/$defs/fields"}
    factor = {"type": "string", "pattern": f"^{FACTOR.pattern}$"}
    phase = {
        "type": "object",
        "additionalProperties": False,
        "properties": {key: count for key in PHASE_KEYS},
    }
    environments = {
        "type": "object",
        "properties": {"python": text, "container": text},
        "maxProperties": 1,
        "minProperties": 1,
    }
    elsewhere = {
        "type": "object",
        "required": ["environment"],
        "properties": {"environment": environments},
    }
    seeds_rule = {
        "type": "object",
        "required": ["min", "max", "stop"],
        "properties": {"min": count, "max": count, "stop": {"type": "object"}},
    }
    properties: dict[str, Any] = {
        "name": {"type": "string", "pattern": f"^{NAME.pattern}$"},
        "question": text,
        "base": {"type": "string", "description": "a record: ablate records"},
        "scale": {"type": "string", "description": "tiny, small or gpt2"},
        "set": {**fields, "description": "fields of every arm"},
        "changes": {
            "type": "object",
            "additionalProperties": {
                "anyOf": [
                    {"type": "string", "description": "RECORD.CHANGE"},
                    names,
                    fields,
                    elsewhere,
                ]
            },
        },
        "design": {"enum": [*DESIGNS, "explicit"]},
        "arms": {
            "anyOf": [
                {"type": "array", "items": names},
                {"type": "object", "additionalProperties": names},
            ]
        },
        "seeds": {
            "anyOf": [
                count,
                {"type": "array", "items": {"type": "integer", "minimum": 0}},
                seeds_rule,
            ]
        },
        "budgets": {"type": "array", "items": {"anyOf": [count, factor]}},
        "target": {
            "type": "object",
            "required": ["val_loss"],
            "properties": {"val_loss": {"type": "number"}, "reason": text},
        },
        "primary": {"enum": list(PRIMARY)},
        "margin": {"type": "number", "exclusiveMinimum": 0},
        "confirm": flag,
        "published": text,
        "plugins": names,
        "axes": {
            "type": "object",
            "additionalProperties": {
                "type": "array",
                "items": {"anyOf": [{"type": "number"}, factor]},
            },
        },
        "estimand": {"enum": list(ESTIMANDS)},
        "alters_noise": names,
        "slope": {
            "type": "object",
            "required": ["per_step", "se"],
            "additionalProperties": False,
            "properties": {
                "per_step": {"type": "number", "exclusiveMinimum": 0},
                "se": {"type": "number", "minimum": 0},
                "source": text,
            },
        },
        "phases": {
            "type": "object",
            "properties": {role: phase for role in ROLES},
            "required": ["loss"],
            "additionalProperties": False,
            "description": "how the runs that give losses, and those that give times, are made",
        },
        "gpu_only": {**names, "description": "changes that a machine without CUDA leaves out"},
    }
    scaled = {
        "type": "object",
        "additionalProperties": False,
        "properties": {key: properties[key] for key in SCALED},
    }
    properties["at_scale"] = {"type": "object", "additionalProperties": scaled}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "an experiment",
        "type": "object",
        "required": ["name", "base"],
        "additionalProperties": False,
        "properties": properties,
        "$defs": {
            "fields": {
                "type": "object",
                "additionalProperties": False,
                "patternProperties": {r"^plugin\.": {}},
                "properties": field_schemas(),
            }
        },
    }


def pages() -> dict[Path, str]:
    """Generated file -> its content."""
    schema = json.dumps(experiment_schema(), indent=1, ensure_ascii=False) + "\n"
    return {DOCS / "toggles.md": toggles_page(), DOCS / "experiment.schema.json": schema}


if __name__ == "__main__":
    for path, content in pages().items():
        path.write_text(content, encoding="utf-8")
        print(path)
