"""Values that go with what takes them: changed in place, taken once, written anew together."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from harness.split.calls import Edge, tied
from harness.split.merged import Only, Swap, walk
from harness.split.names import Condition, Site, Sites, atom_of, conditioned


def changed_in_place(tree: Any, sites: Sites) -> Iterator[Edge]:
    """A statement that changes what only another atom gives belongs to it."""
    answers: dict[tuple[str, int], set[int]] = defaultdict(set)
    for site, givers in sites.resolved():
        if site.condition is None or not site.condition[1]:
            continue
        conditions = {answer.condition for answer in givers}
        if conditions and all(c is not None and c[1] for c in conditions):
            answers[site.name, site.condition[0]] |= {atom_of(c) for c in conditions}
    for part in walk(tree):
        if not isinstance(part, Only) or not part.is_new:
            continue
        name = mutated(part.node)
        if name is not None:
            for other in answers.get((name, part.atom), ()):
                yield other, part.atom


def mutated(node: Any) -> str | None:
    """The name whose value a statement changes: x.sort(), x[0] = y, x += y."""
    place: Any = None
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        place = node.value.func
    elif isinstance(node, ast.AugAssign):
        place = node.target
    elif isinstance(node, ast.Assign):
        place = node.targets[0]
        if not isinstance(place, ast.Subscript):
            return None
    else:
        return None
    if isinstance(place, ast.Name) and isinstance(node, ast.AugAssign):
        return place.id
    if isinstance(place, ast.Attribute | ast.Subscript):
        return array_name(place.value)
    return None


def array_name(part: Any) -> str | None:
    """What an array is known by: its own name, or the attribute's."""
    if isinstance(part, ast.Attribute):
        return part.attr
    return part.id if isinstance(part, ast.Name) else None


def is_array(part: Any) -> bool:
    """Whether a part is a name or an attribute."""
    return isinstance(part, ast.Name | ast.Attribute)


def taken_by_one(sites: Sites) -> Iterator[Edge]:
    """What one atom alone gives and one other alone asks for would be there for nothing."""
    givers: dict[tuple[int, str], set[Condition]] = defaultdict(set)
    for site in sites.given:
        givers[id(site.scope), site.name].add(site.condition)
    takers: dict[Site, set[Condition]] = defaultdict(set)
    for site, answers in sites.resolved_names():
        for answer in answers:
            takers[answer].add(site.condition)
    for given, conditions in takers.items():
        is_only_giver = givers[id(given.scope), given.name] == {given.condition}
        if given.condition is None or None in conditions or not is_only_giver:
            continue
        giver, is_new = given.condition
        atoms = {atom_of(condition) for condition in conditions}
        if len(atoms) == 1:
            [taker] = atoms
            yield (giver, taker) if is_new else (taker, giver)


def rewritten(tree: Any) -> Iterator[Edge]:
    """A value that has another form, and the one other change that has all that takes it."""
    for function in walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        takers: dict[str, set[Condition]] = defaultdict(set)
        for part, condition in conditioned(function.body):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
                takers[part.id].add(condition)
        for part in walk(function.body):
            if not isinstance(part, ast.Assign) or not isinstance(part.value, Swap):
                continue
            conditions = takers[array_name(part.targets[0]) or ""]
            atoms = {condition[0] for condition in conditions if condition is not None}
            is_everywhere = None not in conditions and len(conditions) == 2 and len(atoms) == 1
            if is_everywhere and not isinstance(part.value.new, ast.Constant):
                yield from tied({part.value.atom, *atoms})
