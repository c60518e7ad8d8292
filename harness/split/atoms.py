"""What each atom of a difference is: where, in words, on which lines, and whether it is neutral."""

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from harness.split.align import DEFINITIONS
from harness.split.diff import MergedScripts, stored
from harness.split.merged import Only, Parameter, Swap, inside
from harness.split.renames import name_in
from harness.split.told import LOGGING, tells

WIDTH = 100  # characters of what an atom is said to be
ANNOTATIONS = ("annotation", "returns")


@dataclass(frozen=True, kw_only=True)
class Atom:
    """One change that is whole or not there."""

    number: int
    place: str  # the class and function, and what the statement puts
    what: str  # in a line
    is_neutral: bool
    names: frozenset[str]  # that it touches
    puts: tuple[str, ...] = ()  # names that it gives, or that a literal is the value of
    asserts: bool = False
    old_lines: frozenset[int] = frozenset()
    new_lines: frozenset[int] = frozenset()

    @property
    def n_lines(self) -> int:
        return max(1, len(self.old_lines) + len(self.new_lines))


@dataclass
class _Context:
    """Where in the tree a part stands."""

    place: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # of the statement: what it puts, which keyword
    old_line: int | None = None
    new_line: int | None = None
    in_annotation: bool = False


@dataclass
class _AtomFinder:
    difference: MergedScripts
    found: dict[int, Atom] = field(default_factory=dict)

    def visit(self, part: Any, context: _Context) -> None:
        """Note the atoms of a part."""
        if isinstance(part, Swap | Only):
            self._note(part, context)
            return
        if isinstance(part, ast.AST | Parameter):
            context = _inside(part, context)
        if not isinstance(part, ast.AST):
            for piece in inside(part):
                self.visit(piece, context)
            return
        for name, value in ast.iter_fields(part):
            within = context
            if name in ANNOTATIONS or _only_tells(part):
                within = replace(context, in_annotation=True)
            self.visit(value, within)

    def _note(self, part: Swap | Only, context: _Context) -> None:
        if isinstance(part, Swap):
            old, new = part.old, part.new
        else:
            old, new = (None, part.node) if part.is_new else (part.node, None)
        is_moved = part.atom in self.difference.moved
        names = {*context.names, *_names(old), *_names(new)}
        atom = Atom(
            number=part.atom,
            place=".".join((*context.place, *context.names[:1])),
            what=f"moved: {_short(new or old)}" if is_moved else _in_words(old, new),
            is_neutral=context.in_annotation or is_moved or (_is_log(old) and _is_log(new)),
            names=frozenset(names),
            puts=tuple(_puts(new) or _puts(old) or context.names[:1]),
            asserts=isinstance(new if old is None else old, ast.Assert),
            old_lines=_lines(old, context.old_line),
            new_lines=_lines(new, context.new_line),
        )
        before = self.found.get(part.atom)
        self.found[part.atom] = atom if before is None else _joined(before, atom)


def atoms_of(difference: MergedScripts) -> list[Atom]:
    """Every atom, by its number."""
    reader = _AtomFinder(difference)
    reader.visit(difference.tree, _Context())
    for atom, (old, new) in difference.renames.items():
        reader.found[atom] = Atom(
            number=atom,
            place="",
            what=f"{old} is called {new}",
            is_neutral=True,
            names=frozenset((old, new)),
        )
    return [reader.found[number] for number in sorted(reader.found)]


def _joined(one: Atom, other: Atom) -> Atom:
    """An atom of several parts."""
    what = one.what
    if what != other.what and len(what) + len(other.what) < WIDTH:
        what = f"{what}; {other.what}"
    return replace(
        one,
        what=what,
        is_neutral=one.is_neutral and other.is_neutral,
        names=one.names | other.names,
        puts=one.puts or other.puts,
        asserts=one.asserts and other.asserts,
        old_lines=one.old_lines | other.old_lines,
        new_lines=one.new_lines | other.new_lines,
    )


def _inside(part: Any, context: _Context) -> _Context:
    """The context of what a part holds."""
    if isinstance(part, DEFINITIONS):
        context = replace(context, place=(*context.place, part.name), names=())
    elif isinstance(part, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = part.targets if isinstance(part, ast.Assign) else [part.target]
        context = replace(context, names=tuple(n for t in targets for n in _last_names(t)))
    elif isinstance(part, ast.keyword) and part.arg is not None:
        context = replace(context, names=(part.arg, *context.names))
    elif isinstance(part, Parameter):
        context = replace(context, names=(part.name,))
    elif isinstance(part, ast.Dict):
        return context
    line = getattr(part, "lineno", None)
    if line is None:
        return context
    old_line = getattr(part, "old_lineno", None)
    return replace(context, old_line=old_line or context.old_line, new_line=line)


def _last_names(target: Any) -> list[str]:
    names = []
    for piece in ast.walk(target) if isinstance(target, ast.AST) else ():
        if isinstance(piece, ast.Attribute):
            names.append(piece.attr)
        elif isinstance(piece, ast.Name) and isinstance(piece.ctx, ast.Store):
            names.append(piece.id)
    return names


def _pieces(part: Any) -> Iterable[Any]:
    if isinstance(part, Parameter):
        return [*ast.walk(part.arg), *_pieces(part.default)]
    return ast.walk(part) if isinstance(part, ast.AST) else ()


def _names(part: Any) -> set[str]:
    """The names in a part."""
    names = set()
    for piece in _pieces(part):
        name = name_in(piece)
        if name is not None:
            names.add(name)
        elif isinstance(piece, ast.alias):
            names.add((piece.asname or piece.name).partition(".")[0])
    return names


def _lines(part: Any, default: int | None) -> frozenset[int]:
    """The lines of a part; default: where it has no line of its own."""
    if part is None:
        return frozenset()
    node = part.arg if isinstance(part, Parameter) else part
    first = getattr(node, "lineno", None)
    if first is None:
        return frozenset() if default is None else frozenset((default,))
    decorators = [d.lineno for d in getattr(node, "decorator_list", ())]
    last = getattr(node, "end_lineno", None) or first
    return frozenset(range(min([first, *decorators]), last + 1))


def _is_log(part: Any) -> bool:
    """Whether a part only tells: imports, prints, docstrings; nothing counts too."""
    if part is None or isinstance(part, ast.Import | ast.ImportFrom | ast.alias | ast.Assert):
        return True
    if isinstance(part, ast.Expr):
        if isinstance(part.value, ast.Constant):
            return True
        return isinstance(part.value, ast.Call) and tells(part.value.func)
    if isinstance(part, ast.If | ast.With):
        rest = part.orelse if isinstance(part, ast.If) else []
        return all(_is_log(piece) for piece in (*part.body, *rest))
    if isinstance(part, ast.FunctionDef):
        return LOGGING.fullmatch(part.name) is not None
    return False


def _only_tells(part: Any) -> bool:
    """Whether a statement that both scripts have prints, or is a text."""
    if not isinstance(part, ast.Expr):
        return False
    if isinstance(part.value, ast.Call):
        return tells(part.value.func)
    if not isinstance(part.value, Swap):
        return False
    forms = (part.value.old, part.value.new)
    return all(isinstance(f, ast.Constant) and isinstance(f.value, str) for f in forms)


def _puts(part: Any) -> list[str]:
    if isinstance(part, Parameter):
        return [part.name]
    if isinstance(part, ast.keyword):
        return [part.arg or ""]
    return puts_only(part)


def _in_words(old: Any, new: Any) -> str:
    """A change in a line."""
    before, after = _short(old), _short(new)
    if old is None:
        return f"added: {after}"
    if new is None:
        return f"removed: {before}"
    return f"{before} → {after}"


def _short(part: Any) -> str:
    if part is None:
        return "nothing"
    node = part.arg if isinstance(part, Parameter) else part
    if isinstance(node, DEFINITIONS):
        kind = "class" if isinstance(node, ast.ClassDef) else "def"
        return f"{kind} {node.name}"
    if isinstance(node, ast.operator | ast.unaryop | ast.cmpop | ast.boolop):
        return type(node).__name__
    text = ast.unparse(node) if isinstance(node, ast.AST) else str(node)
    line = text.splitlines()[0] if text else ""
    return line if len(line) <= WIDTH // 2 else f"{line[: WIDTH // 2 - 1]}…"


def puts_only(part: Any) -> list[str]:
    """The names that a statement gives and does nothing else with; none where it does more."""
    if isinstance(part, DEFINITIONS):
        return [part.name]
    if isinstance(part, ast.Assign | ast.AnnAssign):
        targets = part.targets if isinstance(part, ast.Assign) else [part.target]
        kinds = (ast.Name, ast.Attribute, ast.Tuple)
        if all(isinstance(target, kinds) for target in targets):
            return [name.rpartition(".")[2] for name in stored(part)]
    if isinstance(part, ast.If) and not part.orelse:
        inner = [puts_only(piece) for piece in part.body]
        if all(inner):
            return [name for names in inner for name in names]
    return []
