"""Values that go with what takes them: changed in place, written anew together."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from harness.split.calls import Edge, tied
from harness.split.merged import Condition, Only, Swap, conditioned, walk
from harness.split.sites import Sites, atom_of


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


def emptied(tree: Any) -> Iterator[Edge]:
    """A `pop` in place of another one of the same list: else too many are taken, or too few."""
    for function in walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        popped: dict[str, set[Condition]] = defaultdict(set)
        for part, condition in conditioned(function.body):
            is_call = isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute)
            if is_call and part.func.attr == "pop" and condition is not None:
                popped[array_name(part.func.value) or ""].add(condition)
        for conditions in popped.values():
            if len({is_new for _, is_new in filter(None, conditions)}) == 2:
                yield from tied(map(atom_of, conditions))


def first_none(tree: Any) -> Iterator[Edge]:
    """What is None at first needs what gives it its value."""
    nothing: dict[tuple[str, bool], set[int]] = defaultdict(set)
    something: dict[tuple[str, bool], set[int]] = defaultdict(set)
    always: set[str] = set()
    for part, condition in conditioned(tree):
        if not isinstance(part, ast.Assign) or array_name(part.targets[0]) is None:
            continue
        name = str(array_name(part.targets[0]))
        forms: list[tuple[Any, Condition]] = [(part.value, condition)]
        if isinstance(part.value, Swap):
            atom = part.value.atom
            forms = [(part.value.old, (atom, False)), (part.value.new, (atom, True))]
        for value, there in forms:
            is_none = isinstance(value, ast.Constant) and value.value is None
            if there is None and not is_none:
                always.add(name)
            elif there is not None:
                (nothing if is_none else something)[name, there[1]].add(there[0])
    for (name, is_new), atoms in nothing.items():
        for giver in something[name, is_new] - atoms if name not in always else ():
            for atom in atoms:
                yield (atom, giver) if is_new else (giver, atom)
