"""Both scripts as one tree with choices, from which any subset of atoms is written out.

An atom is a number. `Swap` stands where a part of the tree has two forms, `Only` where a list has
an element in one of the scripts alone; `Parameters` stands for `ast.arguments`, so that a single
parameter can be one of its elements. Everything else is the syntax tree of both.
"""

import ast
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple


class Swap(NamedTuple):
    """A part that is `old` where the atom is off and `new` where it is on."""

    atom: int
    old: Any
    new: Any


class Only(NamedTuple):
    """An element of a list that only one of the scripts has."""

    atom: int
    is_new: bool
    node: Any


class Parameter(NamedTuple):
    """One parameter of a function."""

    kind: str  # positional, plain, star, keyword, double
    arg: Any  # ast.arg
    default: Any = None

    @property
    def name(self) -> str:
        return str(self.arg.arg)


class Parameters(NamedTuple):
    """The parameters of a function: `Parameter`, or `Only` or `Swap` of them."""

    items: list[Any]


Atoms = Collection[int]
Condition = tuple[int, bool] | None  # an atom that must be on, or off; None: always
HOLDERS = (ast.AST, list, Swap, Only, Parameters, Parameter)  # what parts can be in
BODIES = ("body", "orelse", "finalbody")


def compose(part: Any, on: Atoms, changing: Collection[int]) -> Any:
    """The tree with these atoms on and the others off; what has no atom is the same node.

    changing: identities of the parts with an atom inside (`changing_in`)."""
    if isinstance(part, Swap):
        return part.new if part.atom in on else part.old
    if id(part) not in changing:
        return part
    if isinstance(part, list):
        return elements(part, on, changing)
    if isinstance(part, Parameters):
        return arguments_of(elements(part.items, on, changing))
    if isinstance(part, Parameter):
        arg, default = (compose(piece, on, changing) for piece in (part.arg, part.default))
        return Parameter(part.kind, arg, default)
    values = {name: compose(value, on, changing) for name, value in ast.iter_fields(part)}
    if isinstance(part, ast.stmt | ast.ExceptHandler) and values.get("body") == []:
        values["body"] = [ast.Pass()]
    node = type(part)(**values)
    node.lineno = 0  # which statements are asked for as they are written out
    return node


def elements(parts: list[Any], on: Atoms, changing: Collection[int]) -> list[Any]:
    """Those of a list that are there with these atoms on, each composed."""
    kept = []
    for part in parts:
        if not isinstance(part, Only):
            element = compose(part, on, changing)
        elif (part.atom in on) == part.is_new:
            element = part.node
        else:
            continue
        if not (isinstance(element, ast.Import | ast.ImportFrom) and not element.names):
            kept.append(element)
    return kept


def changing_in(part: Any) -> set[int]:
    """Identities of the parts that `compose` writes anew: choices, and what holds one.

    Parameters are among them, which stand for what the syntax tree writes otherwise."""
    changing: set[int] = set()
    if not isinstance(part, Swap | Only):
        for piece in inside(part):
            changing |= changing_in(piece)
    if changing or isinstance(part, Swap | Only | Parameters):
        changing.add(id(part))
    return changing


def text_of(tree: ast.Module, *, is_first: bool) -> str:
    """Composed statements as text.

    is_first: of the script's; else the line's end and the blank lines before them come first."""
    if is_first:
        return ast.unparse(tree)
    return ast.unparse(ast.Module([ast.Pass(), *tree.body], [])).removeprefix("pass")


# ---------------------------------------------------------------- parameters


def parameters_of(given: ast.arguments) -> list[Parameter]:
    """The parameters in order, each with its default."""
    plain = [*given.posonlyargs, *given.args]
    missing = len(plain) - len(given.defaults)
    listed = []
    for n, arg in enumerate(plain):
        kind = "positional" if n < len(given.posonlyargs) else "plain"
        default = given.defaults[n - missing] if n >= missing else None
        listed.append(Parameter(kind, arg, default))
    if given.vararg is not None:
        listed.append(Parameter("star", given.vararg))
    for arg, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        listed.append(Parameter("keyword", arg, default))
    if given.kwarg is not None:
        listed.append(Parameter("double", given.kwarg))
    return listed


def arguments_of(listed: list[Parameter]) -> ast.arguments:
    """The syntax tree of parameters."""
    by_kind: dict[str, list[Parameter]] = {}
    for parameter in listed:
        by_kind.setdefault(parameter.kind, []).append(parameter)
    positional, plain = by_kind.get("positional", []), by_kind.get("plain", [])
    keyword = by_kind.get("keyword", [])
    star, double = by_kind.get("star"), by_kind.get("double")
    defaults = [p.default for p in (*positional, *plain)]
    while defaults and defaults[0] is None:
        del defaults[0]  # one that is missing later stays a gap: then the text is not Python
    return ast.arguments(
        posonlyargs=[p.arg for p in positional],
        args=[p.arg for p in plain],
        vararg=star[0].arg if star else None,
        kwonlyargs=[p.arg for p in keyword],
        kw_defaults=[p.default for p in keyword],
        kwarg=double[0].arg if double else None,
        defaults=defaults,
    )


# ---------------------------------------------------------------- looking through it


def inside(part: Any) -> Iterator[Any]:
    """The parts of a part, in the order of the text."""
    if isinstance(part, ast.AST):
        for name in part._fields:
            if name != "ctx":  # whether it is read or put stands in what it is part of
                yield getattr(part, name, None)
    elif isinstance(part, list):
        yield from part
    elif isinstance(part, Swap):
        yield from (part.old, part.new)
    elif isinstance(part, Only):
        yield part.node
    elif isinstance(part, Parameters):
        yield from part.items
    elif isinstance(part, Parameter):
        yield from (part.arg, part.default)


def walk(part: Any) -> Iterator[Any]:
    """A part and every one in it that may hold further ones, in the order of the text."""
    waiting = [part]
    while waiting:
        piece = waiting.pop()
        yield piece
        waiting += [p for p in inside(piece) if isinstance(p, HOLDERS)][::-1]


def conditioned(part: Any, condition: Condition = None) -> Iterator[tuple[Any, Condition]]:
    """Every part of a tree with what it is there under."""
    if isinstance(part, Swap):
        yield from conditioned(part.old, (part.atom, False))
        yield from conditioned(part.new, (part.atom, True))
        return
    if isinstance(part, Only):
        yield from conditioned(part.node, (part.atom, part.is_new))
        return
    if isinstance(part, ast.AST | Parameter):
        yield part, condition
    for piece in inside(part):
        yield from conditioned(piece, condition)


def atoms_in(part: Any) -> set[int]:
    """The atoms of a part."""
    return {piece.atom for piece in walk(part) if isinstance(piece, Swap | Only)}


def key_of(part: Any) -> str:
    """Equal for equal parts without choices."""
    if isinstance(part, ast.AST):
        return ast.dump(part)
    if isinstance(part, list):
        return " ".join(key_of(piece) for piece in part)
    if isinstance(part, Parameter):
        return f"{part.kind} {key_of(part.arg)} {key_of(part.default)}"
    return repr(part)
