"""The difference of two scripts as atoms: statements, and literals, arguments, entries in them."""

import ast
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from harness.split.align import DEFINITIONS, Aligner
from harness.split.merged import (
    BODIES,
    Atoms,
    Only,
    Parameter,
    Parameters,
    Swap,
    atoms_in,
    changing_in,
    elements,
    inside,
    key_of,
    parameters_of,
    text_of,
    walk,
)
from harness.split.moved import in_place, moved_code, one_choice
from harness.split.renames import FIELDS, accepted, name_in, renamed
from harness.split.told import is_telling

# Expressions whose elements are atoms of their own; another one with two changes is changed whole
LISTS = (
    *(ast.Call, ast.Dict, ast.List, ast.Tuple, ast.Set, ast.keyword, ast.Starred),
    *(ast.Attribute, ast.Subscript),
)
OPAQUE = (ast.JoinedStr, ast.Lambda, ast.pattern)
ONE_FOR_ONE = (ast.Assert, ast.Return, ast.Raise, ast.Expr)
NodeFields = dict[str, Any]  # of a syntax node, by name


@dataclass(frozen=True, kw_only=True)
class MergedScripts:
    """Two scripts as one tree, and the names that the second calls otherwise."""

    tree: Any
    n_atoms: int
    renames: dict[int, tuple[str, str]]  # atom -> a name of OLD and what NEW calls it
    moved: frozenset[int]  # atoms that are code in another place

    @cached_property
    def _changing(self) -> set[int]:
        return changing_in(self.tree)

    @cached_property
    def _statements(self) -> list[tuple[Any, set[int]]]:
        """The script's statements, each with the atoms in it."""
        return [(part, atoms_in(part)) for part in self.tree.body]

    @cached_property
    def _written(self) -> dict[Hashable, str]:
        """Statements with some of their atoms on, kept by `text`: most choices have most alike."""
        return {}

    def text(self, on: Atoms) -> str:
        """The script with these atoms on and the others off."""
        on, text = frozenset(on), ""
        back = {new: old for atom, (old, new) in self.renames.items() if atom not in on}
        for n, (part, atoms) in enumerate(self._statements):
            key = (n, on & atoms, *back.items(), not text)
            if key not in self._written:
                kept = ast.Module(elements([part], on, self._changing), [])
                self._written[key] = text_of(renamed(kept, back), is_first=not text)
            text += self._written[key]
        return text + "\n"


def difference(old: str, new: str) -> MergedScripts:
    """Take two scripts in normal form apart."""
    before, after = ast.parse(old), ast.parse(new)
    first = _Merger(any_name=True)
    first.statement(before, after)
    for pair in [*first.aligner.moved.values()]:
        first.statement(*pair)  # names in what moved count, too
    names = accepted(first.pairs, before, after)
    merger = _Merger(any_name=False)
    tree = merger.statement(renamed(before, names), after)
    moved = moved_code(tree)
    same = one_choice(tree, without=moved) | moved
    numbers: dict[int, int] = {}
    for part in walk(tree):
        if isinstance(part, Swap | Only):
            numbers.setdefault(same.get(part.atom, part.atom), len(numbers))
    for atom, first_of_them in same.items():
        numbers[atom] = numbers[first_of_them]
    renames = {}
    for n, pair in enumerate(sorted(names.items()), start=len(set(numbers.values()))):
        renames[n] = pair
    return MergedScripts(
        tree=in_place(_renumbered(tree, numbers)),
        n_atoms=len(set(numbers.values())) + len(renames),
        renames=renames,
        moved=frozenset(numbers[atom] for atom in moved),
    )


def _renumbered(part: Any, numbers: dict[int, int]) -> Any:
    """The same tree with other numbers of its atoms."""
    if isinstance(part, Swap):
        return Swap(numbers[part.atom], part.old, part.new)
    if isinstance(part, Only):
        return Only(numbers[part.atom], part.is_new, part.node)
    if isinstance(part, list):
        return [_renumbered(piece, numbers) for piece in part]
    if isinstance(part, Parameters):
        return Parameters(_renumbered(part.items, numbers))
    if isinstance(part, Parameter):
        arg, default = (_renumbered(piece, numbers) for piece in inside(part))
        return Parameter(part.kind, arg, default)
    if isinstance(part, ast.AST):
        for name, value in ast.iter_fields(part):
            setattr(part, name, _renumbered(value, numbers))
    return part


class _Merger:
    """Puts two trees into one."""

    def __init__(self, *, any_name: bool) -> None:
        self.any_name = any_name  # only to see which names stand where others stood
        self.aligner = Aligner(any_name=any_name)
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.n_atoms = 0

    def atom(self) -> int:
        """A new one."""
        self.n_atoms += 1
        return self.n_atoms

    def swap(self, old: Any, new: Any) -> Swap:
        """Two forms of a part, as one atom."""
        return Swap(self.atom(), old, new)

    # ------------------------------------------------------------ lists

    def sequence(self, olds: list[Any], news: list[Any], *, is_by_place: bool = False) -> list[Any]:
        """Two lists of statements, arguments, entries or parameters as one.

        is_by_place: what stands in place of others keeps their number, or is one atom."""
        merged: list[Any] = []
        for old, new in self.aligner.gaps(olds, news):
            if isinstance(old, list) and is_by_place and old and new:
                merged += self._in_place(old, new)
            elif isinstance(old, list):
                merged += self._apart(old, new)
            elif isinstance(old, ast.stmt):
                merged.append(self.statement(old, new))
            else:
                merged.append(self.expression(old, new))
        return merged

    def _in_place(self, olds: list[Any], news: list[Any]) -> list[Any]:
        """Arguments by place that stand where others stood."""
        if len(olds) == len(news):
            return [self.expression(old, new) for old, new in zip(olds, news, strict=True)]
        atom = self.atom()
        return [*(Only(atom, False, p) for p in olds), *(Only(atom, True, p) for p in news)]

    def _apart(self, olds: list[Any], news: list[Any]) -> list[Any]:
        """What the scripts do not share; what puts the same name is one atom."""
        merged: list[Any] = []
        if len(olds) == len(news) == 1 and isinstance(olds[0], ast.expr):
            return [self.expression(olds[0], news[0])]
        before, after = [set(stored(old)) for old in olds], [set(stored(new)) for new in news]
        is_one = len(olds) == len(news) == 1 and type(olds[0]) is type(news[0])
        if is_one and isinstance(olds[0], ONE_FOR_ONE):
            before, after = [{""}], [{""}]
        given_by_both = set().union(*before) & set().union(*after)
        tied: list[tuple[set[str], int]] = []
        for part, names in zip((*olds, *news), (*before, *after), strict=True):
            atom, shared = self.atom(), names & given_by_both
            rest = []
            for others, other in tied:
                if others & shared:
                    shared, atom = shared | others, other
                else:
                    rest.append((others, other))
            tied = [*rest, (shared, atom)] if shared else tied
            merged.append((shared, part))
        numbers = {name: atom for names, atom in tied for name in names}
        pieces: list[Any] = []
        for n, (shared, part) in enumerate(merged):
            atom = numbers[min(shared)] if shared else self.atom()
            pieces.append(Only(atom, n >= len(olds), part))
        return pieces

    def _entries(self, old: ast.Dict, new: ast.Dict) -> Any:
        """Two dictionaries as one, entry by entry."""
        by_key = {key_of(k): v for k, v in zip(old.keys, old.values, strict=True)}
        new_by_key = {key_of(k): v for k, v in zip(new.keys, new.values, strict=True)}
        if len(by_key) != len(old.keys) or len(new_by_key) != len(new.keys):
            return self.swap(old, new)  # a key twice, or two mappings in it
        keys = self._keys(list(old.keys), list(new.keys))
        values: list[Any] = []
        for key in keys:
            node = key.node if isinstance(key, Only) else key
            if isinstance(key, Only):
                source = new_by_key if key.is_new else by_key
                values.append(Only(key.atom, key.is_new, source[key_of(node)]))
            else:
                values.append(self.expression(by_key[key_of(node)], new_by_key[key_of(node)]))
        return ast.Dict(keys=keys, values=values)

    def _keys(self, olds: list[Any], news: list[Any]) -> list[Any]:
        """Keys as one list; those at the same place are never one key, changed."""
        merged: list[Any] = []
        for old, new in self.aligner.gaps(olds, news):
            if not isinstance(old, list) and key_of(old) == key_of(new):
                merged.append(new)
                continue
            ours, theirs = (old, new) if isinstance(old, list) else ([old], [new])
            merged += [Only(self.atom(), False, key) for key in ours]
            merged += [Only(self.atom(), True, key) for key in theirs]
        return merged

    # ------------------------------------------------------------ one node

    def statement(self, old: Any, new: Any) -> Any:
        """Two statements, or two scripts, as one."""
        if key_of(old) == key_of(new) or (self.any_name and is_telling(old) and is_telling(new)):
            return new  # what lines that only tell call something is no sign
        is_assignment = isinstance(new, ast.Assign) and not self.any_name
        if is_assignment and key_of(old.targets) != key_of(new.targets):
            return self.swap(old, new)
        return self._fields(old, new)

    def _fields(self, old: Any, new: Any) -> Any:
        """Two nodes of a type as one, field by field; as two where a field cannot be merged."""
        merged: NodeFields = {}
        for name in new._fields:
            before: Any = getattr(old, name, None)
            after: Any = getattr(new, name, None)
            if name in BODIES and isinstance(after, list):
                merged[name] = self.sequence(before, after)
            elif isinstance(after, ast.arguments):
                listed = self.sequence(parameters_of(before), parameters_of(after))
                merged[name] = Parameters(listed)
            elif isinstance(after, list) and isinstance(before, list):
                same = len(before) == len(after)
                if same and not isinstance(new, ast.Call | ast.List | ast.Set):
                    pairs = zip(before, after, strict=True)
                    merged[name] = [self.expression(o, n) for o, n in pairs]
                elif isinstance(new, ast.Compare | ast.comprehension | ast.Try | ast.With):
                    return self.swap(old, new)
                else:
                    is_by_place = isinstance(new, ast.Call) and name == "args"
                    merged[name] = self.sequence(before, after, is_by_place=is_by_place)
            elif isinstance(after, ast.AST) or isinstance(before, ast.AST):
                merged[name] = self.expression(before, after)
            elif key_of(before) != key_of(after) and not (
                self.any_name and FIELDS.get(type(new)) == name
            ):
                return self.swap(old, new)
            else:
                merged[name] = after
        self._note_names(old, new)
        node = ast.copy_location(type(new)(**merged), new)
        node.old_lineno = getattr(old, "lineno", None)
        return node

    def _note_names(self, old: Any, new: Any) -> None:
        before, after = name_in(old), name_in(new)
        if before is not None and after is not None and before != after:
            self.pairs[before, after] += 1

    def expression(self, old: Any, new: Any) -> Any:
        """Two expressions, or smaller parts of code, as one."""
        if key_of(old) == key_of(new):
            return new
        if type(old) is not type(new) or isinstance(new, OPAQUE):
            return self.swap(old, new)
        if isinstance(new, Parameter):
            arg = self.expression(old.arg, new.arg)
            if old.kind != new.kind or (old.default is None) != (new.default is None):
                return self.swap(old, new)
            return Parameter(new.kind, arg, self.expression(old.default, new.default))
        if not isinstance(new, ast.AST):
            return self.swap(old, new)
        if isinstance(new, ast.Dict):
            return self._entries(old, new)
        if isinstance(new, ast.Call) and not self.any_name and _called(old) != _called(new):
            return self.swap(old, new)
        before = self.n_atoms
        merged = self._fields(old, new)
        n_atoms = self.n_atoms - before
        if n_atoms > 1 and isinstance(new, ast.expr) and not isinstance(new, LISTS):
            return merged if self.any_name else self.swap(old, new)
        return merged


def _called(call: ast.Call) -> str:
    """What a call calls, without what stands before the last dot."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return key_of(call.func)


def stored(node: Any) -> list[str]:
    """The names and attributes that a statement puts."""
    if not isinstance(node, ast.stmt) or isinstance(node, ast.Import | ast.ImportFrom):
        return []
    if isinstance(node, DEFINITIONS):
        return [node.name]
    names = []
    for part in ast.walk(node):
        if isinstance(getattr(part, "ctx", None), ast.Store) and not isinstance(part, ast.Tuple):
            names.append(ast.unparse(part))
    return names
