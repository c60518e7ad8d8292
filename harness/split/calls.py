"""Calls and the signatures that they are of: parameters, arguments, what is given back."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any

from harness.split.merged import (
    Condition,
    Only,
    Parameter,
    Parameters,
    Swap,
    inside,
    parameters_of,
    walk,
)

Edge = tuple[int, int]
BY_POSITION = ("positional", "plain")
MADE_BY = ("__init__", "__call__", "forward")


@dataclass(frozen=True, kw_only=True)
class Signature:
    """What a function asks for, as far as atoms change it."""

    parameters: list[tuple[Parameter, Condition]] = field(default_factory=list)
    body: Any = None  # of the function

    @cached_property
    def gives(self) -> set[int]:
        """Atoms that change how many values it gives."""
        elements: set[int] = set()
        changed: set[int] = set()
        n_values: dict[bool, set[int]] = {False: set(), True: set()}  # is it NEW's -> how many
        for value, condition in _given_back(self.body, None):
            is_tuple = isinstance(value, ast.Tuple)
            if is_tuple:
                elements |= _only_in(value.elts)
            if condition is not None:
                changed.add(condition[0])
                n_values[condition[1]].add(len(value.elts) if is_tuple else 1)
        is_other = all(n_values.values()) and n_values[False] != n_values[True]
        return elements | (changed if is_other else set())

    @property
    def hard(self) -> set[int]:
        """Atoms with a parameter that every call must give, or by whose place others stand."""
        atoms = set()
        for n, (parameter, condition) in enumerate(self.parameters):
            if condition is None:
                continue
            last = n == len(self.parameters) - 1
            is_asked = parameter.default is None and parameter.kind in (*BY_POSITION, "keyword")
            if is_asked or (parameter.kind in BY_POSITION and not last):
                atoms.add(condition[0])
        return atoms

    def named(self, name: str) -> list[Condition]:
        """Conditions of the parameters of this name."""
        return [c for parameter, c in self.parameters if parameter.name == name]

    @property
    def is_open(self) -> bool:
        """Whether it takes any keyword."""
        return any(parameter.kind == "double" for parameter, _ in self.parameters)


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
            for (one, there), (other, after) in combinations(_listed(part.items, None), 2):
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
    for keyword, given in _listed(call.keywords, condition):
        if keyword.arg is None:
            continue
        conditions = signature.named(keyword.arg)
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
            gives = parameter.name in {k.arg for k, _ in _listed(call.keywords, condition)}
            if there[0] not in hard and not gives:
                continue
            if condition[1]:
                yield condition[0], there[0]
            else:
                yield there[0], condition[0]
    if condition is not None or not isinstance(call.args, list):
        return
    moved = _only_in(call.args)
    soft = {c[0] for p, c in signature.parameters if c is not None and p.kind in BY_POSITION}
    by_place = {c[0] for p, c in signature.parameters if c is not None and c[0] in hard}
    if moved and by_place:
        yield from tied(moved | (by_place - _by_keyword(call, signature)))
    elif moved and soft:
        yield from ((atom, other) for atom in moved for other in soft)


def _by_keyword(call: ast.Call, signature: Signature) -> set[int]:
    """Atoms with a parameter that a call gives by its name."""
    names = {keyword.arg for keyword, _ in _listed(call.keywords, None)}
    atoms = set()
    for parameter, condition in signature.parameters:
        if condition is not None and parameter.name in names:
            atoms.add(condition[0])
    return atoms


def _listed(parts: Any, condition: Condition) -> Iterator[tuple[Any, Condition]]:
    """Keywords or parameters with what each is there under."""
    for part in parts if isinstance(parts, list) else [parts]:
        if isinstance(part, Only):
            yield part.node, (part.atom, part.is_new)
        elif isinstance(part, Swap):
            yield from _listed(part.old, (part.atom, False))
            yield from _listed(part.new, (part.atom, True))
        else:
            yield part, condition


def tied(atoms: Iterable[int]) -> Iterator[Edge]:
    """Needs in a circle: all of them or none."""
    for one, next_one in pairwise(sorted(set(atoms))):
        yield one, next_one
        yield next_one, one


# ---------------------------------------------------------------- which function a call calls


class Signatures:
    """The signatures of a script by what calls call them."""

    def __init__(self, tree: Any) -> None:
        self.by_name: dict[str, list[Signature]] = defaultdict(list)
        self.classes: dict[str, dict[str, Signature]] = {}
        self.made: dict[str, set[str]] = defaultdict(set)  # a name -> classes it may hold
        self.calls: list[ast.Call] = []
        loops: list[ast.For] = []
        self._read(tree, None)
        for part in walk(tree):
            if isinstance(part, ast.Call):
                self.calls.append(part)
            elif isinstance(part, ast.Assign) and len(part.targets) == 1:
                self._note_made(part.targets[0], part.value)
            elif isinstance(part, ast.keyword) and part.arg is not None:
                self._note_made(ast.Name(id=part.arg), part.value)
            elif isinstance(part, ast.For):
                loops.append(part)
        for loop in loops:
            self._note_held(loop.target, loop.iter)

    def _read(self, part: Any, owner: str | None) -> None:
        if isinstance(part, ast.ClassDef):
            self.classes.setdefault(part.name, {})
            for piece in inside(part):
                self._read(piece, part.name)
        elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            signature = _signature(part, is_method=owner is not None)
            if owner is None:
                self.by_name[part.name].append(signature)
            else:
                self.classes[owner][part.name] = signature
            for piece in inside(part):
                self._read(piece, None)
        elif not isinstance(part, ast.expr):  # which holds no definition
            for piece in inside(part):
                self._read(piece, owner)

    def _note_made(self, target: Any, value: Any) -> None:
        if not isinstance(target, ast.Name | ast.Attribute):
            return
        name = target.id if isinstance(target, ast.Name) else target.attr
        for part in walk(value):
            is_call = isinstance(part, ast.Call) and isinstance(part.func, ast.Name)
            if is_call and part.func.id in self.classes:
                self.made[name].add(part.func.id)

    def _note_held(self, target: Any, value: Any) -> None:
        """What a loop goes over holds what its variable is: `for block in self.blocks`."""
        names = [form for form in _forms(target) if isinstance(form, ast.Name)]
        for form in _forms(value):
            holder = called(form)
            for name in names:
                self.made[name.id] |= self.made.get(holder or "", set())

    def of(self, name: str | None) -> list[Signature]:
        """The signatures of what a call by this name may call."""
        if name is None:
            return []
        signatures = list(self.by_name.get(name, []))
        if name in self.classes and "__init__" in self.classes[name]:
            signatures.append(self.classes[name]["__init__"])
        for held in sorted(self.made.get(name, ())):
            for method in MADE_BY[1:]:
                if method in self.classes[held]:
                    signatures.append(self.classes[held][method])
        owners = [methods for methods in self.classes.values() if name in methods]
        if len(owners) == 1 and not signatures and name not in ("forward", "step", "__init__"):
            signatures.append(owners[0][name])
        return signatures


def _signature(function: Any, *, is_method: bool) -> Signature:
    given = function.args
    items = given.items if isinstance(given, Parameters) else parameters_of(given)
    listed = list(_listed(items, None))
    if is_method and listed and not _is_static(function):
        listed = listed[1:]
    return Signature(parameters=listed, body=function.body)


def _given_back(part: Any, condition: Condition) -> Iterator[tuple[Any, Condition]]:
    """What a function returns or yields, with what that is there under."""
    if isinstance(part, Swap):
        yield from _given_back(part.old, (part.atom, False))
        yield from _given_back(part.new, (part.atom, True))
    elif isinstance(part, Only):
        yield from _given_back(part.node, (part.atom, part.is_new))
    elif isinstance(part, ast.Return | ast.Yield):
        value = part.value
        if isinstance(value, Swap):
            yield value.old, (value.atom, False)
            yield value.new, (value.atom, True)
        else:
            yield value, condition
    elif not isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
        for piece in inside(part):
            yield from _given_back(piece, condition)


def _only_in(parts: list[Any]) -> set[int]:
    """Atoms that put elements into a list, or take them out."""
    return {part.atom for part in parts if isinstance(part, Only)}


def _forms(part: Any) -> tuple[Any, ...]:
    """A part in each of the scripts."""
    return (part.old, part.new) if isinstance(part, Swap) else (part,)


def _is_static(function: Any) -> bool:
    return any(
        isinstance(decorator, ast.Name) and decorator.id == "staticmethod"
        for decorator in function.decorator_list
    )


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


def called(func: Any) -> str | None:
    """The name that a call is by: f(), x.f(), x.blocks[0](), next(f)."""
    if isinstance(func, ast.Subscript):
        return called(func.value)
    if isinstance(func, ast.Attribute):
        return func.attr
    return func.id if isinstance(func, ast.Name) else None
