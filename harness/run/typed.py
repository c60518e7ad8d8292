"""Whether what was read from a file has the types that its dataclass declares.

A file may hold anything in any place: a list for a loss, a text for a process number. It is looked
at once, where it is read, so that nothing further on has to.
"""

import types
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from operator import attrgetter
from types import NoneType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
TypeCheck = Callable[[Any], bool]
FieldCheck = tuple[str, Callable[[Any], Any], frozenset[type], TypeCheck]
_TEXT = frozenset({str})
LARGEST = 2**63  # of a whole number
FARTHEST = 1e100  # of a real one: its square is a number too


def typed(value: T) -> T:
    """The dataclass as it is; raises ValueError where a field is not what it declares."""
    for name, get, plain, check in _checks_of(type(value)):  # type: ignore[arg-type]
        given = get(value)
        if type(given) not in plain and not check(given):
            raise ValueError(f"{name} is {str(given)[:60]!r}, of type {type(given).__name__}")
    return value


@cache
def _checks_of(
    kind: Hashable,
) -> Sequence[FieldCheck]:
    """Per field: its name, how to get it, the types that need no further look, the look."""
    hints = get_type_hints(kind)
    checks = []
    for field in fields(kind):  # type: ignore[arg-type]
        hint = hints[field.name]
        checks.append((field.name, attrgetter(field.name), _plain(hint), _check_of(hint)))
    return checks


def _plain(hint: Any) -> frozenset[type]:
    """Types of which every value fits."""
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return frozenset(option for option in options if option in (str, bool, type(None)))


@cache
def _check_of(hint: Any) -> TypeCheck:
    """What looks at a value that is to be of a type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any or isinstance(hint, TypeVar):
        return _anything
    if origin in (Union, types.UnionType):
        given = [argument for argument in arguments if argument is not NoneType]
        if given == [float]:  # every value of every curve
            return _is_number_or_none
        if len(given) == 1:  # the most, and ten thousand results are looked at in a second
            inner = _check_of(given[0])
            return lambda value: value is None or inner(value)
        checks = [_check_of(argument) for argument in arguments]
        return lambda value: any(check(value) for check in checks)
    if origin is Literal:
        return lambda value: isinstance(value, str) and value in arguments
    if origin is tuple or origin is Sequence:
        inner = _check_of(arguments[0])
        return lambda value: isinstance(value, list | tuple) and all(map(inner, value))
    if origin is not None and issubclass(origin, Mapping):
        inner = _check_of(arguments[1])
        return lambda value: _is_mapping(value, inner)
    if hint is float:
        return is_number
    if hint is int:
        return _is_whole
    return lambda value: isinstance(value, hint)


def _anything(value: Any) -> bool:
    return True


def is_number(value: Any) -> bool:
    """Whether it is a number that can be reckoned with: no truth value, not too far, not nan."""
    return (type(value) is float and abs(value) <= FARTHEST) or _is_whole(value)


def _is_number_or_none(value: Any) -> bool:
    if type(value) is float:
        return abs(value) <= FARTHEST
    return value is None or _is_whole(value)


def _is_whole(value: Any) -> bool:
    return type(value) is int and -LARGEST <= value < LARGEST


def _is_mapping(value: Any, inner: TypeCheck) -> bool:
    if not isinstance(value, Mapping) or not _TEXT.issuperset(map(type, value)):
        return False
    return inner is _anything or all(map(inner, value.values()))
