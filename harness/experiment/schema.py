"""JSON Schema of an experiment file, for editors; `ablate plan` checks more than a schema can."""

from collections.abc import Iterable

from pydantic import TypeAdapter

from harness.config.run import hint_of, toggles
from harness.experiment.budgets import TOKENS
from harness.experiment.designs import DESIGNS
from harness.experiment.draws import WAYS
from harness.experiment.file import FACTOR, SCALED
from harness.experiment.halving import MOST_IN
from harness.experiment.keys import (
    ESTIMANDS,
    FROM_BASELINE,
    MOST_PRIOR_DF,
    PHASE_KEYS,
    PRIMARY,
    ROLES,
)
from harness.experiment.values import holds_number
from harness.run.document import Schema
from harness.run.guarded import NAME

SCHEMA_BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
}
TEXT = {"type": "string"}
FLAG = {"type": "boolean"}
COUNT = {"type": "integer", "minimum": 1}
NUMBER = {"type": "number"}
POSITIVE = {"type": "number", "exclusiveMinimum": 0}
NAMES = {"type": "array", "items": TEXT}
FIELDS = {"$ref": "#/$defs/fields"}
FACTOR_OF = {"$ref": "#/$defs/factor"}
FACTORS = {"type": "string", "pattern": f"^{FACTOR.pattern}$"}
TOKEN_BUDGETS = {"type": "string", "pattern": f"^{TOKENS.pattern}$"}


def described(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


def any_of(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def list_of(*schemas: Schema) -> Schema:
    items = schemas[0] if len(schemas) == 1 else any_of(*schemas)
    return {"type": "array", "items": items}


def one_of(choices: Iterable[str]) -> Schema:
    return {"enum": list(choices)}


def mapping_to(values: Schema) -> Schema:
    """A mapping of any names to values of one kind."""
    return {"type": "object", "additionalProperties": values}


def field_schemas() -> dict[str, Schema]:
    """Dotted field -> JSON Schema, as pydantic makes it of its type, with meaning and range."""
    schemas = {}
    for name, f in toggles():
        schema = TypeAdapter(hint_of(name)).json_schema()
        for key, word in SCHEMA_BOUNDS.items():
            if key in f.metadata:
                schema[word] = f.metadata[key]
        if holds_number(name):
            schema = any_of(schema, FACTOR_OF)
        schemas[name] = described(schema, f"{f.metadata['record']}: {f.metadata['doc']}")
    return schemas


def changes_schema() -> Schema:
    """`changes`: of a record, of several, fields, or another environment."""
    environments = {
        "type": "object",
        "properties": {"python": TEXT, "container": TEXT},
        "maxProperties": 1,
        "minProperties": 1,
    }
    elsewhere = {
        "type": "object",
        "required": ["environment"],
        "properties": {"environment": environments},
    }
    return mapping_to(any_of(described(TEXT, "RECORD.CHANGE"), NAMES, FIELDS, elsewhere))


def seeds_schema() -> Schema:
    rule = {
        "type": "object",
        "required": ["min", "max", "stop"],
        "properties": {"min": COUNT, "max": COUNT, "stop": {"type": "object"}},
    }
    return any_of(COUNT, list_of({"type": "integer", "minimum": 0}), rule)


def slope_schema() -> Schema:
    return {
        "type": "object",
        "required": ["per_step", "se"],
        "additionalProperties": False,
        "properties": {
            "per_step": POSITIVE,
            "se": {"type": "number", "minimum": 0},
            "source": TEXT,
        },
    }


def prior_noise_schema() -> Schema:
    return {
        "type": "object",
        "required": ["sd", "source"],
        "additionalProperties": False,
        "properties": {
            "sd": POSITIVE,
            "df": {"type": "number", "minimum": 1, "maximum": MOST_PRIOR_DF},
            "source": TEXT,
        },
    }


def phases_schema() -> Schema:
    phase = {
        "type": "object",
        "additionalProperties": False,
        "properties": dict.fromkeys(PHASE_KEYS, COUNT),
    }
    return {
        "type": "object",
        "properties": dict.fromkeys(ROLES, phase),
        "required": ["loss"],
        "additionalProperties": False,
        "description": "how the runs that give losses, and those that give times, are made",
    }


def target_schema() -> Schema:
    named = {
        "type": "object",
        "required": ["val_loss"],
        "properties": {"val_loss": NUMBER, "reason": TEXT},
    }
    return any_of(named, one_of([FROM_BASELINE]))


def key_schemas() -> dict[str, Schema]:
    """Every key of the file."""
    keys: dict[str, Schema] = {
        "name": {"type": "string", "pattern": f"^{NAME.pattern}$"},
        "question": TEXT,
        "base": described(TEXT, "a record: ablate records"),
        "scale": described(TEXT, "tiny, small or gpt2"),
        "set": described(FIELDS, "fields of every arm"),
        "changes": changes_schema(),
        "design": one_of([*DESIGNS, "explicit"]),
        "arms": any_of(list_of(NAMES), mapping_to(NAMES)),
        "parents": described(mapping_to(TEXT), "of a chain: arm -> the arm it is held against"),
        "seeds": seeds_schema(),
        "budgets": list_of(COUNT, FACTORS, TOKEN_BUDGETS),
        "target": target_schema(),
        "primary": one_of(PRIMARY),
        "margin": POSITIVE,
        "confirm": FLAG,
        "published": TEXT,
        "plugins": NAMES,
        "axes": mapping_to(list_of(NUMBER, FACTORS)),
        "draw": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": False,
            "properties": {**dict.fromkeys(WAYS, COUNT), "seed": {"type": "integer", "minimum": 0}},
        },
        "halving": described(
            {"type": "integer", "minimum": 2, "maximum": MOST_IN},
            "of so many points one goes on to the next of `budgets`",
        ),
        "estimand": one_of(ESTIMANDS),
        "alters_noise": NAMES,
        "slope": slope_schema(),
        "prior_noise": prior_noise_schema(),
        "branch_at": any_of(COUNT, FACTORS),
        "phases": phases_schema(),
        "gpu_only": described(NAMES, "changes that a machine without CUDA leaves out"),
    }
    scaled = {
        "type": "object",
        "additionalProperties": False,
        "properties": {key: keys[key] for key in SCALED},
    }
    keys["at_scale"] = mapping_to(scaled)
    return keys


def experiment_schema() -> Schema:
    """The whole of it."""
    fields = {
        "type": "object",
        "additionalProperties": False,
        "patternProperties": {r"^plugin\.": {}},
        "properties": field_schemas(),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "an experiment",
        "type": "object",
        "required": ["name", "base"],
        "additionalProperties": False,
        "properties": key_schemas(),
        "$defs": {"fields": fields, "factor": FACTORS},
    }
