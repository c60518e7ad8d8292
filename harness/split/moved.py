"""Parts of the difference that are one choice though they stand in two places."""

import ast
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from harness.split.align import DEFINITIONS
from harness.split.merged import Condition, Only, Swap, atoms_in, inside, key_of, walk
from harness.split.told import as_it_runs, is_telling

MOVED = (*DEFINITIONS, ast.Import, ast.ImportFrom)
PUTTING = (ast.Assign, ast.AnnAssign)


def moved_code(tree: Any) -> dict[int, int]:
    """Atoms that are the same code in another place -> the atom that takes it from its place."""
    taken: dict[str, int] = {}
    put: dict[str, int] = {}
    for part in walk(tree):
        if isinstance(part, Only) and (isinstance(part.node, MOVED) or _is_constant(part.node)):
            there = put if part.is_new else taken
            is_definition = isinstance(part.node, DEFINITIONS)
            there[key_of(as_it_runs(part.node) if is_definition else part.node)] = part.atom
    taker = {}
    for key, atom in put.items():
        if key in taken:
            taker[atom] = taken[key]
            taker[taken[key]] = taken[key]
    return taker


def _is_constant(node: Any) -> bool:
    """Whether a statement gives a name a literal: wherever it stands, it does the same."""
    if not isinstance(node, PUTTING) or node.value is None:
        return False
    return not any(isinstance(part, ast.Call) for part in ast.walk(node.value)) and not any(
        isinstance(part, ast.Name) for part in ast.walk(node.value)
    )


def one_choice(tree: Any, *, without: Collection[int]) -> dict[int, int]:
    """Atoms that are one choice -> the first of them: a name put elsewhere, a line that moved."""
    leader: dict[int, int] = {}

    def first_of(atom: int) -> int:
        while atom in leader and leader[atom] != atom:
            atom = leader[atom]
        return atom

    for removed, added in (*_put_elsewhere(tree), *_moved_lines(tree)):
        first, second = sorted((first_of(removed), first_of(added)))
        if not {removed, added} & set(without):
            leader |= {first: first, second: first}
    return {atom: first_of(atom) for atom in leader}


def _put_elsewhere(tree: Any) -> Iterator[tuple[int, int]]:
    """What one statement of a block put, and another one puts now; no third one does."""
    for block in _blocks(tree):
        givers: dict[str, list[Condition]] = defaultdict(list)
        for part in block:
            node, condition = part, None
            if isinstance(part, Only):
                node, condition = part.node, (part.atom, part.is_new)
            is_alone = isinstance(node, (*PUTTING, *DEFINITIONS))
            for name in _stored(node):
                givers[name].append(condition if is_alone else None)  # None: not that alone
        yield from _exchanges(givers.values())


def _moved_lines(tree: Any) -> Iterator[tuple[int, int]]:
    """A call that removed lines of a block make, and added ones of it in another place.

    Of something that takes nothing, loss.backward(): made twice or never it is another thing."""
    for block in _blocks(tree):
        makers: dict[str, set[Condition]] = defaultdict(set)
        for statement, condition in _lines(block, None):
            makers[key_of(statement)].add(condition)
        yield from _exchanges(makers.values())


def _blocks(tree: Any) -> Iterator[list[Any]]:
    """The lists of which an element is in one of the scripts alone."""
    for block in walk(tree):
        if isinstance(block, list) and any(isinstance(part, Only) for part in block):
            yield block


def _exchanges(places: Iterable[Collection[Condition]]) -> Iterator[tuple[int, int]]:
    """The atoms of what stands in two places, in OLD in the one and in NEW in the other."""
    for conditions in places:
        if len(conditions) == 2 and None not in conditions:
            (one, is_new), (other, other_is_new) = filter(None, conditions)
            if one != other and is_new != other_is_new:
                yield one, other


def _lines(part: Any, condition: Condition) -> Iterator[tuple[Any, Condition]]:
    """The lines of a block that make such a call, with what each is there under."""
    if isinstance(part, Only):
        part, condition = part.node, (part.atom, part.is_new)
    if isinstance(part, Swap):
        yield from _lines(part.old, (part.atom, False))
        yield from _lines(part.new, (part.atom, True))
    elif isinstance(part, ast.Assign | ast.Expr):
        call = part.value
        takes_nothing = isinstance(call, ast.Call) and not call.args and not call.keywords
        if takes_nothing and not is_telling(part) and not atoms_in(part):
            yield part, condition
    elif not isinstance(part, (*DEFINITIONS, ast.expr)):
        for piece in inside(part):
            yield from _lines(piece, condition)


def _stored(node: Any) -> list[str]:
    """The names and attributes of names that a part puts, but for those inside definitions."""
    if isinstance(node, DEFINITIONS):
        return [node.name]
    names = []
    for part in walk(node):
        if isinstance(getattr(part, "ctx", None), ast.Store):
            if isinstance(part, ast.Name):
                names.append(part.id)
            elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
                names.append(f"{part.value.id}.{part.attr}")
    return names


def in_place(part: Any) -> Any:
    """The tree with what stands in place of a line right after it: what follows, follows both."""
    if isinstance(part, list):
        pieces: list[Any] = []
        run: list[Only] = []
        for piece in part:
            if isinstance(piece, Only) and isinstance(piece.node, ast.stmt):
                run.append(piece)
            else:
                pieces += [*_interleaved(run), in_place(piece)]
                run = []
        return [*pieces, *_interleaved(run)]
    if isinstance(part, ast.stmt | ast.Module | ast.ExceptHandler):
        for name, value in ast.iter_fields(part):
            if isinstance(value, list):
                setattr(part, name, in_place(value))
    return part


def _interleaved(run: list[Only]) -> Iterator[Only]:
    """Lines of OLD and of NEW, each in its order, those of one choice together."""
    news = [piece for piece in run if piece.is_new]
    atoms = [piece.atom for piece in news]
    taken = 0
    for piece in run:
        if piece.is_new:
            continue
        yield piece
        if piece.atom in atoms[taken:]:
            until = len(atoms) - atoms[::-1].index(piece.atom)
            yield from news[taken:until]
            taken = until
    yield from news[taken:]
