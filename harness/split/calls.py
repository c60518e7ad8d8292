"""Calls and the signatures that they are of: parameters, arguments, what is given back."""

import ast
from collections.abc import Iterable, Iterator
from itertools import combinations, pairwise
from typing import Any

from harness.split.merged import (
    Condition,
    Only,
    Parameter,
    Parameters,
    Swap,
    atoms_in,
    inside,
    walk,
)
from harness.split.signatures import BY_POSITION, Signature, Signatures, called, listed, only_in

Edge = tuple[int, int]


def call_edges(tree: Any) -> Iterator[Edge]:
    """So that every call of a variant fits the function that it calls."""
    table = Signatures(tree)
    for call, condition, target in _calls(tree, None, None):
        name = called(call.func)
        for signature in table.of(name):
            yield from _keyword_edges(call, condition, signature)
            yield from _place_edges(call, condition, signature)
            if target is not None:
                yield from tied(signature.gives | {target})
            elif condition is not None:
                atom, is_new = condition
                for other in signature.gives:
                    yield (atom, other) if is_new else (other, atom)


def signature_edges(tree: Any) -> Iterator[Edge]:
    """So that the parameters of a variant stand together: the new one needs the old one gone."""
    for part in walk(tree):
        if isinstance(part, Parameters):
            for _, atoms in Signature(parameters=list(listed(part.items, None))).renamed:
                yield from tied(atoms)
            for (one, there), (other, after) in combinations(listed(part.items, None), 2):
                if there is None or after is None or there[1] == after[1]:
                    continue
                if _clash(one, other):
                    new, old = (there, after) if there[1] else (after, there)
                    yield new[0], old[0]


def _clash(one: Parameter, later: Parameter) -> bool:
    """Whether both in one signature would be no Python."""
    if one.name == later.name or (one.kind == later.kind and one.kind in ("star", "double")):
        return True
    are_by_position = one.kind in BY_POSITION and later.kind in BY_POSITION
    return are_by_position and one.default is not None and later.default is None


def _keyword_edges(call: ast.Call, condition: Condition, signature: Signature) -> Iterator[Edge]:
    """A keyword needs its parameter; a parameter that must be given needs its keyword."""
    for keyword, given in listed(call.keywords, condition):
        if keyword.arg is None:
            continue
        conditions = signature.named(keyword.arg)
        goes = condition is None and given is not None and not given[1]
        if goes and not conditions and signature.replaces and not signature.is_open:
            assert given is not None
            assert signature.condition is not None
            yield from tied((given[0], signature.condition[0]))  # what was inherited took it
        if None in conditions or given in conditions or signature.is_open:
            continue
        for there in conditions:
            assert there is not None
            if given is not None and given[1] and there[1]:
                yield given[0], there[0]
                if there[0] in signature.hard and condition is None:
                    yield there[0], given[0]
            elif given is not None and not given[1] and not there[1]:
                yield there[0], given[0]
                if there[0] in signature.hard and condition is None:
                    yield given[0], there[0]


def _place_edges(call: ast.Call, condition: Condition, signature: Signature) -> Iterator[Edge]:
    """Arguments by place move with the parameters; a call that is new needs the new ones."""
    hard = signature.hard
    for parameter, there in signature.parameters:
        if there is not None and condition is not None:
            gives = parameter.name in {k.arg for k, _ in listed(call.keywords, condition)}
            if there[0] not in hard and not gives:
                continue
            if condition[1]:
                yield condition[0], there[0]
            else:
                yield there[0], condition[0]
    if condition is not None or not isinstance(call.args, list):
        return
    moved = only_in(call.args)
    if not moved:
        for place, atoms in signature.renamed:
            changed = atoms_in(call.args[place]) if place < len(call.args) else set()
            if changed:
                yield from tied(changed | atoms)
    soft = {c[0] for p, c in signature.parameters if c is not None and p.kind in BY_POSITION}
    by_place = {c[0] for p, c in signature.parameters if c is not None and c[0] in hard}
    if moved and by_place:
        yield from tied(moved | (by_place - _by_keyword(call, signature)))
    elif moved and soft:
        yield from ((atom, other) for atom in moved for other in soft)


def _by_keyword(call: ast.Call, signature: Signature) -> set[int]:
    """Atoms with a parameter that a call gives by its name."""
    names = {keyword.arg for keyword, _ in listed(call.keywords, None)}
    atoms = set()
    for parameter, condition in signature.parameters:
        if condition is not None and parameter.name in names:
            atoms.add(condition[0])
    return atoms


def tied(atoms: Iterable[int]) -> Iterator[Edge]:
    """Needs in a circle: all of them or none."""
    for one, next_one in pairwise(sorted(set(atoms))):
        yield one, next_one
        yield next_one, one


def _calls(
    part: Any, condition: Condition, target: int | None
) -> Iterator[tuple[ast.Call, Condition, int | None]]:
    """Calls, what each is there under, and the atom that changes what takes its values."""
    if isinstance(part, Swap):
        changed = None
        if isinstance(part.new, ast.Assign) and isinstance(part.old, ast.Assign):
            changed = part.atom
        yield from _calls(part.old, (part.atom, False), changed)
        yield from _calls(part.new, (part.atom, True), changed)
        return
    if isinstance(part, Only):
        yield from _calls(part.node, (part.atom, part.is_new), None)
        return
    if isinstance(part, ast.Call):
        yield part, condition, target
    for piece in inside(part):
        yield from _calls(piece, condition, target)
