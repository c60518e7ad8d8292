"""What one part of a script did, and another part does now."""

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any

from harness.split.calls import Edge, tied
from harness.split.merged import Only, walk
from harness.split.sites import Sites, atom_of


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


def without_library(tree: Any, sites: Sites) -> Iterator[Edge]:
    """A library that NEW does without: its values and what takes them go at once."""
    gone = set()
    for part in walk(tree):
        if isinstance(part, Only) and not part.is_new and isinstance(part.node, ast.Import):
            gone |= {alias.asname or alias.name for alias in part.node.names}
    gone -= {site.name for site in sites.given if site.condition is None or site.condition[1]}
    for name in sorted(gone):
        asking = [site.condition for site in sites.asked if site.name == name]
        atoms = {atom for atom, is_new in filter(None, asking) if not is_new}
        yield from tied(atoms)
        yield from _converted(sites, atoms)


def _converted(sites: Sites, atoms: Collection[int]) -> Iterator[Edge]:
    """A line that makes a value anew of itself, and goes: who takes it later goes along.

    Only where none of those who take it stayed as it was. atoms: what such a line may be."""
    for given in sites.given:
        if given.condition is None or given.condition[1] or given.condition[0] not in atoms:
            continue
        there = [s for s in sites.asked if s.name == given.name and s.scope is given.scope]
        is_of_itself = any(s.condition == given.condition and s.order < given.order for s in there)
        later = {site.condition for site in there if site.order > given.order}
        if is_of_itself and not given.in_block and None not in later:
            yield from ((given.condition[0], atom_of(condition)) for condition in later)
