"""What users write, checked: every value's type and range, plug-ins' fields included.

It needs pydantic, which a bare GPU image lacks: there configurations come from presets alone,
and only the fits of harness/config/validate.py are checked.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from functools import cache
from operator import ge, gt, le, lt
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from harness.config import plugins
from harness.config.requires import value_text
from harness.config.run import hint_of, toggles
from harness.config.values import allowed_text
from harness.errors import UserError
from harness.run.document import Content, Fields

RANGE_CHECKS = {  # key of a field's metadata -> how a value stands to it, in words
    "ge": (ge, "at least"),
    "gt": (gt, "greater than"),
    "le": (le, "at most"),
    "lt": (lt, "less than"),
}


def holds_number(field: str) -> bool:
    """Whether a dotted field, a plug-in's too, holds a number, or is off."""
    hint = _hint(field)
    if hint is None:
        return False
    allowed = allowed_text(hint)
    return "a number" in allowed or "an integer" in allowed


def holds_whole(field: str) -> bool:
    """Whether a dotted field takes whole numbers alone."""
    hint = _hint(field)
    return hint is not None and "an integer" in allowed_text(hint)


def _hint(field: str) -> Any:
    """The type of a dotted field; None of what no toggle and no plug-in in force declares."""
    if field in _declared():
        return hint_of(field)
    for module in plugins.modules():
        prefix = f"plugin.{module.NAME}."
        if field.startswith(prefix):
            return get_type_hints(module.Toggles).get(field.removeprefix(prefix))
    return None


def off_value(field: str) -> Any:
    """What a plug-in's field is where no arm sets it; None of what is none."""
    declared = plugins.declared().get(field)
    if declared is None or not isinstance(declared.default, int) or holds_whole(field):
        return None if declared is None else declared.default
    return float(declared.default)


def multiplied(value: float, factor: float) -> float:
    """A number by a factor; a whole one is rounded, and stays above zero where it is."""
    if isinstance(value, int):
        return max(min(value, 1), round(value * factor))
    return value * factor


@cache
def _declared() -> Mapping[str, Field[Any]]:
    return dict(toggles())


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(hint_of(name))


def check_values(values: Fields, where: Callable[[str], str]) -> Content:
    """Values in their fields' types (an integer becomes a number where one is due).

    Raises UserError for the first that does not fit; where(name) stands in front.
    """
    declared = _declared()
    checked = dict(values)
    for name, value in values.items():
        if name not in declared:
            checked[name] = check_plugin_value(name, value, where(name))
            continue
        try:
            checked[name] = _adapter(name).validate_python(value, strict=True)
        except ValidationError:
            raise _wrong_type(name, value, hint_of(name), where(name)) from None
        _check_range(name, checked[name], declared[name], where(name))
    return checked


def check_plugin_value(name: str, value: Any, where: str) -> Any:
    """A value in the type of its plug-in field; one that no plug-in in force declares passes.

    Raises UserError with `where` in front if type or range does not fit.
    """
    for module in plugins.modules():
        for f in fields(module.Toggles):
            if name == f"plugin.{module.NAME}.{f.name}":
                return _checked_by(get_type_hints(module.Toggles)[f.name], f, name, value, where)
    return value


def _checked_by(hint: Any, f: Field, name: str, value: Any, where: str) -> Any:
    try:
        typed = TypeAdapter(hint).validate_python(value, strict=True)
    except ValidationError:
        raise _wrong_type(name, value, hint, where) from None
    _check_range(name, typed, f, where)
    return typed


def _wrong_type(name: str, value: Any, hint: Any, where: str) -> UserError:
    shown = value_text(value) if value is None or isinstance(value, bool) else repr(value)
    said = f"{where}: {name} is {shown}, but must be {allowed_text(hint)}"
    if isinstance(value, list | tuple) and value and holds_number(name):
        said = f"{where}: {name} is one number in an arm: several are an axis, "
        said += f"axes: {{{name}: {[*value]!r}}}"
    return UserError(said)


def _check_range(name: str, value: Any, f: Field, where: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    if not math.isfinite(value):
        raise UserError(f"{where}: {name} is {value!r}, but must be a finite number")
    for key, (holds, must_be) in RANGE_CHECKS.items():
        if key in f.metadata and not holds(value, f.metadata[key]):
            raise UserError(
                f"{where}: {name} is {value!r}, but must be {must_be} {f.metadata[key]}"
            )
