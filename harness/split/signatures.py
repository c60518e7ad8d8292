"""The signatures of a script's functions, and which of them a call calls."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from harness.split.merged import (
    HOLDERS,
    Condition,
    Only,
    Parameter,
    Parameters,
    Swap,
    inside,
    parameters_of,
    walk,
)
from harness.split.names import FUNCTIONS

BY_POSITION = ("positional", "plain")
TARGETS, NO_CALL = (ast.Name, ast.Attribute), (ast.Name, ast.Constant)
MADE_BY = ("__init__", "__call__", "forward")


@dataclass(frozen=True, kw_only=True)
class Signature:
    """What a function asks for, as far as atoms change it."""

    parameters: list[tuple[Parameter, Condition]] = field(default_factory=list)
    body: Any = None  # of the function
    condition: Condition = None  # that the function itself is there under
    replaces: bool = False  # what its class inherits otherwise

    @cached_property
    def gives(self) -> set[int]:
        """Atoms that change how many values it gives."""
        elements: set[int] = set()
        changed: set[int] = set()
        n_values: dict[bool, set[int]] = {False: set(), True: set()}  # is it NEW's -> how many
        for value, condition in _given_back(self.body, None):
            is_tuple = isinstance(value, ast.Tuple)
            if is_tuple:
                elements |= only_in(value.elts)
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

    @property
    def renamed(self) -> Iterator[tuple[int, set[int]]]:
        """Places of parameters that NEW calls otherwise, with the atoms that do so."""
        sides: dict[bool, list[tuple[str, Condition]]] = {False: [], True: []}
        for parameter, condition in self.parameters:
            if parameter.kind in BY_POSITION:
                for is_new, there in sides.items():
                    if condition is None or condition[1] == is_new:
                        there.append((parameter.name, condition))
        for place, (old, new) in enumerate(zip(sides[False], sides[True], strict=False)):
            if old[0] != new[0]:
                yield place, {there[0] for _, there in (old, new) if there is not None}

    def named(self, name: str) -> list[Condition]:
        """Conditions of the parameters of this name."""
        return [c for parameter, c in self.parameters if parameter.name == name]

    @property
    def is_open(self) -> bool:
        """Whether it takes any keyword."""
        return any(parameter.kind == "double" for parameter, _ in self.parameters)


class Signatures:
    """The signatures of a script by what calls call them."""

    def __init__(self, tree: Any) -> None:
        self.by_name: dict[str, list[Signature]] = defaultdict(list)
        self.classes: dict[str, dict[str, Signature]] = {}
        self.made: dict[str, set[str]] = defaultdict(set)  # a name -> classes it may hold
        self.calls: list[ast.Call] = []
        self.class_conditions: dict[str, Condition] = {}
        loops: list[ast.For] = []
        self._read(tree, None, None)
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

    def _read(self, part: Any, owner: Any, condition: Condition) -> None:
        """Note the functions of a part; owner: the class that they are of."""
        if isinstance(part, Only):
            part, condition = part.node, (part.atom, part.is_new)
        if isinstance(part, Swap):
            self._read(part.old, owner, (part.atom, False))
            self._read(part.new, owner, (part.atom, True))
        elif isinstance(part, ast.ClassDef):
            self.classes.setdefault(part.name, {})
            self.class_conditions.setdefault(part.name, condition)
            for piece in inside(part):
                self._read(piece, part, condition)
        elif isinstance(part, FUNCTIONS):
            signature = _signature(part, condition, is_method=owner is not None)
            if owner is None:
                _add(self.by_name[part.name], signature)
            else:
                self._add_method(owner.name, part.name, signature)
            for piece in inside(part):
                self._read(piece, None, condition)
        elif not isinstance(part, ast.expr):  # which holds no definition
            for piece in inside(part):
                if isinstance(piece, HOLDERS):
                    self._read(piece, owner, condition)

    def _add_method(self, owner: str, name: str, signature: Signature) -> None:
        is_of_both = self.class_conditions[owner] is None
        replaces = is_of_both and signature.condition is not None and name == "__init__"
        there = [self.classes[owner][name]] if name in self.classes[owner] else []
        _add(there, replace(signature, replaces=replaces))
        self.classes[owner][name] = there[-1]

    def _note_made(self, target: Any, value: Any) -> None:
        if not isinstance(target, TARGETS) or isinstance(value, NO_CALL):
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


def _signature(function: Any, condition: Condition, *, is_method: bool) -> Signature:
    given = function.args
    items = given.items if isinstance(given, Parameters) else parameters_of(given)
    parameters = list(listed(items, condition))
    if is_method and parameters and not _is_static(function):
        parameters = parameters[1:]
    return Signature(parameters=parameters, body=function.body, condition=condition)


def _add(there: list[Signature], signature: Signature) -> None:
    """Add a signature; where one of the other script is there, both become one."""
    for n, other in enumerate(there):
        if other.condition is None or signature.condition is None:
            continue
        if other.condition[1] != signature.condition[1]:
            there[n] = _of_both(*sorted((other, signature), key=_is_of_new))
            return
    there.append(signature)


def _is_of_new(signature: Signature) -> bool:
    return signature.condition is not None and signature.condition[1]


def _of_both(old: Signature, new: Signature) -> Signature:
    """One signature of a function that each of the scripts defines as a whole."""
    olds = {parameter.name: parameter for parameter, _ in old.parameters}
    parameters: list[tuple[Parameter, Condition]] = []
    for parameter, condition in new.parameters:
        before = olds.get(parameter.name)
        is_same = before is not None and _way_in(before) == _way_in(parameter)
        if is_same:
            del olds[parameter.name]
        parameters.append((parameter, None if is_same else condition))
    for parameter in olds.values():
        parameters.append((parameter, old.condition))
    assert old.condition is not None
    assert new.condition is not None
    body = [Only(old.condition[0], False, old.body), Only(new.condition[0], True, new.body)]
    return Signature(parameters=parameters, body=body)


def _way_in(parameter: Parameter) -> tuple[str, bool]:
    return parameter.kind, parameter.default is None


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


def _forms(part: Any) -> tuple[Any, ...]:
    """A part in each of the scripts."""
    return (part.old, part.new) if isinstance(part, Swap) else (part,)


def _is_static(function: Any) -> bool:
    return any(
        isinstance(decorator, ast.Name) and decorator.id == "staticmethod"
        for decorator in function.decorator_list
    )


def listed(parts: Any, condition: Condition) -> Iterator[tuple[Any, Condition]]:
    """Keywords or parameters with what each is there under."""
    for part in parts if isinstance(parts, list) else [parts]:
        if isinstance(part, Only):
            yield part.node, (part.atom, part.is_new)
        elif isinstance(part, Swap):
            yield from listed(part.old, (part.atom, False))
            yield from listed(part.new, (part.atom, True))
        else:
            yield part, condition


def only_in(parts: list[Any]) -> set[int]:
    """Atoms that put elements into a list, or take them out."""
    return {part.atom for part in parts if isinstance(part, Only)}


def called(func: Any) -> str | None:
    """The name that a call is by: f(), x.f(), x.blocks[0](), next(f)."""
    if isinstance(func, ast.Subscript):
        return called(func.value)
    if isinstance(func, ast.Attribute):
        return func.attr
    return func.id if isinstance(func, ast.Name) else None
