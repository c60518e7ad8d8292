"""What an atom needs: (a, b) where a may be on only where b is, too."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from harness.split.calls import Edge, call_edges, signature_edges, tied
from harness.split.diff import MergedScripts
from harness.split.merged import Condition, Only, Swap, atoms_in, conditioned, walk
from harness.split.shapes import dimensions
from harness.split.signatures import called
from harness.split.sites import Site, Sites, atom_of
from harness.split.taken_over import put_by_call, without_library
from harness.split.trained import handed_over, used
from harness.split.values import (
    array_name,
    changed_in_place,
    emptied,
    first_none,
    is_array,
    rewritten,
)

LABEL = re.compile(r"[A-Za-z_][\w.]*")
PIECES = ("chunk", "split", "unbind")  # calls that make a list of pieces
MOST_LABELLED = 8  # atoms that one label ties: a label of more is a word


def edges_of(difference: MergedScripts, sites: Sites) -> dict[Edge, str]:
    """Every need that is seen, and by what; all atoms on, and all off, satisfy them."""
    tree = difference.tree
    reasons: dict[Edge, str] = {}
    for why, edges in (
        ("a name that one gives and another asks for", definitions_and_uses(sites)),
        ("a call and what it calls", call_edges(tree)),
        ("parameters in one place", signature_edges(tree)),
        ("a loop's variable and what it goes over", loops(tree)),
        ("what a function gives back", returns(tree)),
        ("a label in quotes", labels(tree)),
        ("the same exchange in one definition", same_exchanges(tree)),
        ("a value that is changed in place", changed_in_place(tree, sites)),
        ("a list that is emptied", emptied(tree)),
        ("a value that is None at first", first_none(tree)),
        ("a parameter and the optimizer that takes it", handed_over(tree, sites)),
        ("a parameter and where it is used", used(tree, sites)),
        ("places in a packed array", packed(tree)),
        ("what lines put, and a call that puts it", put_by_call(tree)),
        ("a library that NEW does without", without_library(tree, sites)),
        ("a dimension that one adds and another takes away", dimensions(tree, sites)),
    ):
        for one, other in edges:
            if one != other:
                reasons.setdefault((one, other), why)
    return reasons


def likely_edges(difference: MergedScripts) -> set[Edge]:
    """What goes together where nobody says otherwise: a variant is Python without it, too."""
    return {(one, other) for one, other in rewritten(difference.tree) if one != other}


# ---------------------------------------------------------------- definitions and uses


def definitions_and_uses(sites: Sites) -> Iterator[Edge]:
    """So that every name that a variant asks for is given in it."""
    for site, answers in sites.resolved():
        yield from needs(site, answers)


def needs(site: Site, answers: list[Site]) -> Iterator[Edge]:
    """What a place that asks needs of those that may answer."""
    conditions = {answer.condition for answer in answers}
    if None in conditions or site.condition in conditions:
        return
    new = [answer for answer in answers if answer.condition is not None and answer.condition[1]]
    old = [answer for answer in answers if answer not in new]
    of_both = {atom_of(a.condition) for a in new} & {atom_of(a.condition) for a in old}
    if of_both:
        atom = site.condition[0] if site.condition is not None and site.condition[1] else None
        blocks = {atom_of(a.condition) for a in answers if a.in_block} & of_both
        if atom is not None and atom not in of_both and len(of_both) == len(blocks) == 1:
            yield atom, blocks.pop()  # what stands in place of a block is written for it
        return
    if site.condition is None:
        if new and old:
            yield atom_of(nearest(site, old).condition), atom_of(nearest(site, new).condition)
        return
    atom, is_new = site.condition
    if is_new and new:
        yield atom, atom_of(nearest(site, new).condition)
    elif not is_new and old:
        yield atom_of(nearest(site, old).condition), atom


def nearest(site: Site, answers: list[Site]) -> Site:
    """The last one before a place in its own scope, else the first."""
    before = [a for a in answers if a.scope is site.scope and a.order < site.order]
    return before[-1] if before else answers[0]


def loops(tree: Any) -> Iterator[Edge]:
    """A loop whose variable is another one goes over something else: one decision."""
    for part in walk(tree):
        if isinstance(part, ast.For | ast.AsyncFor | ast.comprehension):
            variable = atoms_in(part.target)
            if variable:
                yield from tied(variable | atoms_in(part.iter))
        elif isinstance(part, list):
            yield from _loops_in_parts(part)


def _loops_in_parts(block: list[Any]) -> Iterator[Edge]:
    """A loop that goes over something else, and one that goes over the same only there."""
    changed = [part for part in block if isinstance(part, ast.For) and atoms_in(part.iter)]
    for part in block:
        if not isinstance(part, Only) or not isinstance(part.node, ast.For):
            continue
        over = {ast.dump(piece) for piece in ast.walk(part.node) if is_array(piece)}
        for loop in changed:
            before = loop.iter
            if isinstance(before, Swap):
                before = before.old if part.is_new else before.new
            if isinstance(before, ast.AST) and is_array(before) and ast.dump(before) in over:
                yield from tied({part.atom, *atoms_in(loop.iter)})


def returns(tree: Any) -> Iterator[Edge]:
    """A `return` in a block in place of another: one decision."""
    for part in walk(tree):
        if isinstance(part, list):
            ends = [p for p in part if isinstance(p, Only) and isinstance(p.node, ast.Return)]
            if len({end.is_new for end in ends}) == 2:
                yield from tied(end.atom for end in ends)


# ---------------------------------------------------------------- words in quotes


def labels(tree: Any) -> Iterator[Edge]:
    """Atoms that share a label, which one of the scripts has nowhere else."""
    conditions: dict[str, set[Condition]] = defaultdict(set)
    for part, condition in conditioned(tree):
        is_text = isinstance(part, ast.Constant) and isinstance(part.value, str)
        if is_text and LABEL.fullmatch(part.value):
            conditions[part.value].add(condition)
    for places in conditions.values():
        if None in places:
            continue
        sides = {atom_of(condition): condition for condition in places}
        are_of_one = len({condition[1] for condition in places if condition}) == 1
        if are_of_one and len(sides) == len(places) and 1 < len(places) <= MOST_LABELLED:
            yield from tied(sides)


def same_exchanges(tree: Any) -> Iterator[Edge]:
    """Atoms that exchange the same two forms within a definition: one decision."""
    for definition in walk(tree):
        if not isinstance(definition, ast.FunctionDef | ast.ClassDef):
            continue
        same: dict[str, set[int]] = defaultdict(set)
        for part in walk(definition.body):
            forms = (part.old, part.new) if isinstance(part, Swap) else ()
            if not forms or all(isinstance(form, ast.Constant) for form in forms):
                continue
            if isinstance(part.old, ast.AST) and isinstance(part.new, ast.AST):
                same[f"{ast.dump(part.old)} {ast.dump(part.new)}"].add(part.atom)
        for atoms in same.values():
            yield from tied(atoms)


# ---------------------------------------------------------------- places in a packed array


def packed(tree: Any) -> Iterator[Edge]:
    """Atoms that move the places in an array, with those that say where something stands in it."""
    given: dict[str, list[Any]] = defaultdict(list)
    for part in walk(tree):
        if isinstance(part, ast.Assign) and len(part.targets) == 1:
            name = array_name(part.targets[0])
            if name is not None:
                given[name].append(part.value)
    built = {name: resized(values, given) for name, values in given.items()}
    for part, condition in conditioned(tree):
        if not isinstance(part, ast.Subscript) or not is_place(part.slice):
            continue
        name = array_name(part.value)
        moved = built.get(name, set()) if name is not None else set()
        if not moved:
            continue
        if condition is None:
            changed = atoms_in(part.slice)
            if changed:
                yield from tied(moved | changed)
        elif condition[1]:
            yield from tied(moved)
            yield from ((condition[0], atom) for atom in moved)
        else:
            yield from tied(moved)
            yield from ((atom, condition[0]) for atom in moved)


def resized(values: list[Any], given: dict[str, list[Any]]) -> set[int]:
    """Atoms that put elements into a list of the values, or take them out, or change how many.

    given: the values of every name, for the numbers that the lists are made of."""
    atoms = set()
    for value in values:
        for part in walk(value):
            if isinstance(part, ast.Call) and called(part.func) in PIECES:
                atoms |= atoms_in([part.args, part.keywords])
            if isinstance(part, ast.List | ast.Tuple):
                atoms |= atoms_in(part)
                for piece in walk(part):
                    if isinstance(piece, ast.Name):
                        atoms |= atoms_in(given.get(piece.id, []))
    return atoms


def is_place(index: Any) -> bool:
    """Whether an index is computed from numbers: 5, 2 * n + i, n:2 * n."""
    kinds = (ast.BinOp, ast.Slice, Swap)
    if isinstance(index, ast.Constant):
        return isinstance(index.value, int)
    return isinstance(index, kinds) and any(
        isinstance(part, ast.Constant | ast.BinOp) for part in walk(index)
    )
