"""What a toggle requires of others and what it conflicts with, as its declaration says."""

from collections.abc import Iterator, Mapping
from dataclasses import Field
from functools import cache
from typing import Any

from harness.config.run import RunConfig, Values, flat, toggles
from harness.errors import UserError
from harness.model.config import ON

YAML_WORDS = {None: "null", True: "true", False: "false"}
OFF = (None, (), False)


def value_text(value: Any) -> str:
    """A value as YAML would write it."""
    if isinstance(value, tuple):
        return str(list(value))
    return YAML_WORDS.get(value, str(value))


def _applies(f: Field, condition: Any, value: Any) -> bool:
    """Whether a toggle's value is the one that a condition of its declaration is about."""
    if condition == "*":
        return bool(value != f.default)
    return bool(value == condition) and type(value) is type(condition)


def _fits(value: Any, accepted: Any, default: Any) -> bool:
    if accepted == ON:  # 0 is the number of a layer, where it is not what is off
        return value not in OFF or (type(value) is int and value != default)
    return value in accepted


def _in_force(f: Field, kind: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What a toggle's value requires ("requires") or excludes ("conflicts"): fields, values."""
    conditions: Mapping[Any, Values] = f.metadata.get(kind, {})
    for condition, fields in conditions.items():
        if _applies(f, condition, value):
            yield from fields.items()


@cache
def _declared() -> tuple[Values, tuple[tuple[str, Field], ...]]:
    """Every toggle's default, and the toggles that require something or exclude it."""
    conditional = [
        (name, f)
        for name, f in toggles()
        if f.metadata.get("requires") or f.metadata.get("conflicts")
    ]
    return {name: f.default for name, f in toggles()}, tuple(conditional)


def refusals(config: RunConfig) -> Iterator[str]:
    """Every combination that a toggle's declaration excludes: both fields and the way out."""
    defaults, conditional = _declared()
    values = flat(config)
    for name, f in conditional:
        value = values[name]
        for other, accepted in _in_force(f, "requires", value):
            present = values[other]
            if _fits(present, accepted, defaults[other]):
                continue
            wanted = "switched on"
            if accepted != ON:
                wanted = " or ".join(map(value_text, accepted))
            yield (
                f"{name}={value_text(value)} requires {other} to be {wanted}, "
                f"but it is {value_text(present)}: "
                f"set {other}, or leave {name} at {value_text(f.default)}"
            )
        for other, excluded in _in_force(f, "conflicts", value):
            present = values[other]
            if _fits(present, excluded, defaults[other]):
                yield (
                    f"{name}={value_text(value)} conflicts with {other}={value_text(present)}: "
                    f"leave {name} at {value_text(f.default)} or switch {other} off"
                )


def check_requirements(config: RunConfig) -> None:
    """Refuse the first such combination."""
    for message in refusals(config):
        raise UserError(message)
