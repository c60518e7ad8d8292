"""What a toggle requires of others and what it conflicts with, as its declaration says."""

import math
from collections.abc import Collection, Iterator
from dataclasses import Field, dataclass
from functools import cache
from typing import Any

import yaml

from harness.config.run import NewValues, RunConfig, Values, flat, plain_value, toggles
from harness.errors import UserError
from harness.model.config import ON

OFF = (None, (), False)


def value_text(value: Any) -> str:
    """A value as YAML writes it, and reads it."""
    text: str = yaml.safe_dump(plain_value(value), default_flow_style=True, width=math.inf)
    return text.partition("\n")[0]


def _applies(f: Field, condition: Any, value: Any) -> bool:
    """Whether a toggle's value is the one that a condition of its declaration is about."""
    if condition == "*":
        return bool(value != f.default)
    return bool(value == condition) and type(value) is type(condition)


def _fits(value: Any, accepted: Any, default: Any) -> bool:
    if accepted == ON:  # 0 is the number of a layer, where it is not what is off
        return value not in OFF or (type(value) is int and value != default)
    return value in accepted


@dataclass(frozen=True, kw_only=True)
class _Restriction:
    """What a toggle requires of others, or excludes, at a value."""

    name: str
    f: Field
    condition: Any
    excludes: bool
    others: Values  # field -> the values that it has to have, or must not

    def refusal(self, value: Any, other: str, present: Any) -> str:
        """That these two do not go together, and the way out."""
        said, default = f"{self.name}={value_text(value)}", value_text(self.f.default)
        if self.excludes:
            of_other = _defaults()[other]
            way_out = f"{other} at {value_text(of_other)}"
            if of_other in OFF:
                way_out = f"switch {other} off"
            return (
                f"{said} conflicts with {other}={value_text(present)}: "
                f"leave {self.name} at {default} or {way_out}"
            )
        accepted, wanted = self.others[other], "switched on"
        if accepted != ON:
            wanted = " or ".join(map(value_text, accepted))
        return (
            f"{said} requires {other} to be {wanted}, but it is {value_text(present)}: "
            f"set {other}, or leave {self.name} at {default}"
        )


@cache
def _restrictions() -> tuple[_Restriction, ...]:
    restrictions = []
    for name, f in toggles():
        for kind in ("requires", "conflicts"):
            for condition, others in f.metadata.get(kind, {}).items():
                excludes = kind == "conflicts"
                restrictions.append(
                    _Restriction(
                        name=name, f=f, condition=condition, excludes=excludes, others=others
                    )
                )
    return tuple(restrictions)


@cache
def _defaults() -> Values:
    return {name: f.default for name, f in toggles()}


def refusals(config: RunConfig) -> Iterator[str]:
    """Every combination that a toggle's declaration excludes: both fields and the way out."""
    defaults, values = _defaults(), flat(config)
    for restriction in _restrictions():
        value = values[restriction.name]
        if not _applies(restriction.f, restriction.condition, value):
            continue
        for other, stated in restriction.others.items():
            present = values[other]
            if _fits(present, stated, defaults[other]) == restriction.excludes:
                yield restriction.refusal(value, other, present)


def resting_on(config: RunConfig, taken_out: Collection[str], chosen: Collection[str]) -> Values:
    """What requires a field that is taken out, or what goes with it: dotted field -> its default.

    taken_out: fields that are switched off. chosen: fields that stay as they are, to be refused
    where they do not fit.
    """
    defaults, values = _defaults(), flat(config)
    gone: NewValues = {}
    out = {*taken_out}
    while out:
        at_default: NewValues = {}
        for restriction in _restrictions():
            name = restriction.name
            if restriction.excludes or name in chosen or name in gone:
                continue
            if not _applies(restriction.f, restriction.condition, values[name]):
                continue
            for other in out & restriction.others.keys():
                if not _fits(values[other], restriction.others[other], defaults[other]):
                    at_default[name] = defaults[name]
        gone |= at_default
        values |= at_default
        out = {*at_default}
    return gone


def check_requirements(config: RunConfig) -> None:
    """Refuse the first such combination."""
    for message in refusals(config):
        raise UserError(message)
