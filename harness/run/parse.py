"""JSON and YAML of files that anybody may have written: in bounded time and memory.

A short text can ask for a great deal: brackets in brackets until the stack is full, aliases of
aliases until the memory is. Both raise ValueError, as whatever else is no JSON or YAML does.
"""

import json
import math
import re
from typing import Any

import yaml

try:  # libyaml's, five times as fast
    from yaml import CSafeLoader as SafeLoader
except ImportError:
    from yaml import SafeLoader  # type: ignore[assignment]

__all__ = ["SafeLoader", "check_yaml", "parse_json", "parse_yaml"]

MOST_DEPTH = 64  # of lists and mappings in each other
MOST_NODES = 200_000  # of a YAML file with its aliases written out
MOST_DIGITS = 400  # of a number in a YAML file
_ALL_BUT_BRACKETS = bytes(sorted(set(range(256)) - set(b'{}[]"')))
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_STRING = re.compile(rb'"[^"]*"')


def parse_json(text: bytes | str) -> Any:
    """The value of a JSON text; raises ValueError."""
    if isinstance(text, str):
        text = text.encode()
    if text.count(b"[") + text.count(b"{") > MOST_DEPTH:
        _check_depth(text)
    return json.loads(text, parse_constant=_no_number)


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")


def _check_depth(text: bytes) -> None:
    """Take away what is innermost as often as JSON may be deep: nothing may be left of brackets."""
    if b"\\" in text:
        text = _ESCAPED.sub(b"", text)
    left = _STRING.sub(b"", text.translate(None, _ALL_BUT_BRACKETS))
    for _ in range(MOST_DEPTH):
        if not left:
            return
        left = left.replace(b"[]", b"").replace(b"{}", b"")
    if left:
        raise ValueError(f"brackets that do not match, or more than {MOST_DEPTH} in each other")


def parse_yaml(text: str) -> Any:
    """The value of a YAML text of plain values; raises ValueError."""
    try:
        check_yaml(text, most_digits=MOST_DIGITS)
        return yaml.load(text, Loader=SafeLoader)
    except (yaml.YAMLError, RecursionError, OverflowError) as error:
        raise ValueError(f"not valid YAML: {str(error).splitlines()[0]}") from None


def check_yaml(text: str, *, most_digits: float = math.inf) -> None:
    """Raise ValueError for too deep or too many nodes, its aliases written out; YAMLError for none.

    To be called before a text is loaded: of deep ones libyaml would use up the stack.
    most_digits: numbers that are longer are refused, too.
    """
    sizes: dict[str, int] = {}  # anchor -> nodes of what it names
    opened: list[tuple[str | None, int]] = []  # anchor of a list or mapping, nodes before it
    n_nodes = 0
    for event in yaml.parse(text, Loader=SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            named = sizes.get(event.anchor or "")
            if named is None:
                raise yaml.MarkedYAMLError(
                    problem=f"an alias of nothing, or of what holds it: '{event.anchor}'",
                    problem_mark=event.start_mark,  # type: ignore[arg-type]
                )
            n_nodes += named
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, n_nodes))
            n_nodes += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            if anchor is not None:
                sizes[anchor] = n_nodes - before
        elif isinstance(event, yaml.ScalarEvent):
            n_nodes += 1
            _check_number(event.value, most_digits)
            if event.anchor is not None:
                sizes[event.anchor] = 1
        if len(opened) > MOST_DEPTH:
            raise ValueError(f"more than {MOST_DEPTH} lists and mappings in each other")
        if n_nodes > MOST_NODES:
            raise ValueError(f"more than {MOST_NODES} values with its aliases written out")


def _check_number(text: str, most_digits: float) -> None:
    if len(text) > most_digits and text[:1] in "+-0123456789." and text[1:].isalnum():
        raise ValueError(f"a number of {len(text)} digits")
