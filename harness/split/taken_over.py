"""What one part of a script did, and another part does now."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from harness.split.calls import Edge, tied
from harness.split.merged import Only, walk
from harness.split.sites import Site, Sites, atom_of


def put_by_call(tree: Any) -> Iterator[Edge]:
    """Lines that put attributes, and a call of a method in their place that puts them now."""
    puts: dict[str, set[str]] = defaultdict(set)  # a method -> attributes of self
    for part in walk(tree):
        if isinstance(part, ast.FunctionDef):
            puts[part.name] |= set(own_attributes(part.body))
    for block in walk(tree):
        if not isinstance(block, list):
            continue
        lines = [part for part in block if isinstance(part, Only)]
        for line in lines:
            method = _own_method(line.node)
            for other in lines if method is not None else ():
                given = (
                    set(own_attributes(other.node)) if isinstance(other.node, ast.Assign) else set()
                )
                if given & puts[method or ""] and other.is_new != line.is_new:
                    yield from tied({line.atom, other.atom})


def own_attributes(part: Any) -> Iterator[str]:
    """The attributes of self that a part puts."""
    for piece in walk(part):
        is_own = isinstance(piece, ast.Attribute) and isinstance(piece.value, ast.Name)
        if is_own and piece.value.id == "self" and isinstance(piece.ctx, ast.Store):
            yield piece.attr


def _own_method(statement: Any) -> str | None:
    """The method that a line calls and does no more: self.reset()."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    of = call.func.value
    return call.func.attr if isinstance(of, ast.Name) and of.id == "self" else None


def converted(tree: Any, sites: Sites) -> Iterator[Edge]:
    """A line that makes a value anew of itself, and goes, or comes: who takes it later goes along.

    Only where none of those who take it later stayed as it was."""
    asked: dict[str, list[Site]] = defaultdict(list)
    for site in sites.asked:
        asked[site.name].append(site)
    for given in sites.given:
        if given.condition is None or given.in_block:
            continue
        there = [site for site in asked[given.name] if site.scope is given.scope]
        of_itself = [s for s in there if s.condition == given.condition and s.order < given.order]
        later = [site for site in there if site.order > given.order]
        if of_itself and later and None not in {site.condition for site in later}:
            for site in later:
                atom, other = given.condition[0], atom_of(site.condition)
                yield (other, atom) if given.condition[1] else (atom, other)


def without_library(tree: Any, sites: Sites) -> Iterator[Edge]:
    """A library that NEW does without: its values and what takes them go at once."""
    gone = set()
    for part in walk(tree):
        if isinstance(part, Only) and not part.is_new and isinstance(part.node, ast.Import):
            gone |= {alias.asname or alias.name for alias in part.node.names}
    gone -= {site.name for site in sites.given if site.condition is None or site.condition[1]}
    for name in sorted(gone):
        asking = [site.condition for site in sites.asked if site.name == name]
        yield from tied(atom for atom, is_new in filter(None, asking) if not is_new)
