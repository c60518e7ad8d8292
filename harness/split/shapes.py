"""Shapes, where the text tells them: a dimension that one change adds and another takes away."""

import ast
from collections.abc import Iterator
from typing import Any

from harness.split.calls import Edge, tied
from harness.split.merged import Swap, key_of, walk
from harness.split.sites import Scope, Sites

SHAPING = ("view", "reshape", "unsqueeze")


def dimensions(tree: Any, sites: Sites) -> Iterator[Edge]:
    """A value is handed on with another number of dimensions, and taken so.

    New lines of the definition that takes it were written for that number, too."""
    adding: dict[int, Swap] = {}
    taking: dict[int, Swap] = {}
    for part in walk(tree):
        if isinstance(part, Swap) and _has_one_more(part.new, part.old):
            adding[part.atom] = part
        elif isinstance(part, Swap) and _has_one_more(part.old, part.new):
            taking[part.atom] = part
    if not adding or not taking:
        return
    yield from tied((*adding, *taking))
    for atom, part in adding.items():
        if isinstance(part.old, ast.Name):
            yield from _takers(part.old.id, atom, sites)


def _has_one_more(part: Any, other: Any) -> bool:
    """Whether a part is the other one with a dimension more: x[None], x.view(B, T)."""
    if isinstance(part, ast.Subscript):
        is_none = isinstance(part.slice, ast.Constant) and part.slice.value is None
        return is_none and key_of(part.value) == key_of(other)
    if not isinstance(part, ast.Call) or not isinstance(part.func, ast.Attribute):
        return False
    return part.func.attr in SHAPING and key_of(part.func.value) == key_of(other)


def _takers(name: str, atom: int, sites: Sites) -> Iterator[Edge]:
    """New lines that take a name which the atom hands on with a dimension more."""
    there = [site for site in sites.asked if site.name == name]
    scopes = [_function(site.scope) for site in there if site.condition == (atom, True)]
    for site in there:
        is_here = any(_function(site.scope) is scope for scope in scopes)
        if is_here and site.condition is not None and site.condition[1]:
            yield site.condition[0], atom


def _function(scope: Scope) -> Scope:
    """The outermost function around a place."""
    while scope.outer is not None and scope.outer.kind == "function":
        scope = scope.outer
    return scope
