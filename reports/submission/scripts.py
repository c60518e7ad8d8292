"""What the kept code of foreign runs says: validation tokens, how data is read, what changed.

The code is read, never executed; what is longer than CODE_LIMIT is not parsed.
"""

import ast
import difflib
import io
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from harness.run.archive import unpacked
from harness.run.code import CODE_LIMIT
from harness.run.guarded import KEPT, is_file, is_name, read_bytes

Scripts = Mapping[str, str]  # name of a file -> its text
READERS = ("from_file", "fromfile", "memmap", "readinto", "numpy.load", "load_data_shard")
DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
TOP_LEVEL = "the top level"  # of a file: what stands in no function and no class
COUNT = "val_tokens"
OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
UNPARSED = (SyntaxError, ValueError, RecursionError, MemoryError)
NEAR_DIFF = 3  # lines of context


def kept_scripts(results: Path, digest: str | None) -> Scripts | None:
    """The files of code that a run executed, patched; None where they are not kept."""
    if not is_name(digest):
        return None
    archive = results / "code" / f"{digest}.zip"
    try:
        if not is_file(archive, below=KEPT):
            return None
        files = unpacked(read_bytes(archive, below=KEPT))
    except (OSError, ValueError):
        return None
    return {name: content.decode("utf-8", "replace") for name, content in files.items()}


def parsed(scripts: Scripts) -> dict[str, ast.Module]:
    """The files that are Python of a bounded size, as trees."""
    trees = {}
    for name, text in scripts.items():
        if len(text) > CODE_LIMIT:
            continue
        try:
            trees[name] = ast.parse(text)
        except UNPARSED:
            continue
    return trees


def unread(scripts: Scripts) -> dict[str, str]:
    """The files named as Python that `parsed` leaves out -> why."""
    reasons = {}
    for name in scripts.keys() - parsed(scripts).keys():
        if len(scripts[name]) > CODE_LIMIT:
            reasons[name] = f"it is longer than {CODE_LIMIT >> 10} KiB"
        else:
            reasons[name] = "it cannot be parsed"
    return {name: reasons[name] for name in sorted(reasons) if name.endswith(".py")}


def aliases_of(tree: ast.Module) -> dict[str, str]:
    """A name in the file -> what it was imported as."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    names[alias.asname] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def dotted(node: ast.AST, aliases: Mapping[str, str]) -> str:
    """torch._inductor.config.x of an attribute, through what was imported under another name."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value, aliases)}.{node.attr}"
    if isinstance(node, ast.Name):
        return aliases.get(node.id, node.id)
    return ""


# ---------------------------------------------------------------- data


def validation_counts(scripts: Scripts) -> set[int]:
    """The numbers that the code gives val_tokens."""
    counts = set()
    for tree in parsed(scripts).values():
        for node in ast.walk(tree):
            count = _count_at(node)
            if count is not None:
                counts.add(count)
    return counts


def _count_at(node: ast.AST) -> int | None:
    if isinstance(node, ast.AnnAssign) and _is_count(node.target):
        return _whole(node.value)
    if isinstance(node, ast.Assign) and any(map(_is_count, node.targets)):
        return _whole(node.value)
    if isinstance(node, ast.keyword) and node.arg == COUNT:
        return _whole(node.value)
    return None


def _is_count(target: ast.expr) -> bool:
    return _name_of(target) == COUNT


def _name_of(node: ast.AST | None) -> str:
    """The last name of a variable or a field; empty of anything else."""
    return getattr(node, "id", getattr(node, "attr", ""))


def _whole(node: ast.expr | None) -> int | None:
    """10485760 of itself, or of 20 * 524288; None of anything else."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left, right = _whole(node.left), _whole(node.right)
        if left is not None and right:
            return OPERATORS[type(node.op)](left, right)
    return None


@dataclass(frozen=True)
class _Piece:
    """A function, a class, or a statement that stands in none."""

    node: ast.AST
    aliases: Mapping[str, str]

    def calls_of(self, names: Set[str]) -> list[ast.Call]:
        calls = []
        for inner in ast.walk(self.node):
            if isinstance(inner, ast.Call):
                name = dotted(inner.func, self.aliases)
                if name in names or name.rpartition(".")[2] in names:
                    calls.append(inner)
        return calls


def data_readers(scripts: Scripts) -> dict[str, str]:
    """The code that reads data: what it is called -> its text without comments.

    Functions that read, those that call them, the statements outside that do, and the texts, such
    as paths, that the variables they are given are set to."""
    functions: dict[str, list[_Piece]] = {}
    outside: list[_Piece] = []
    trees = parsed(scripts).values()
    for tree in trees:
        aliases = aliases_of(tree)
        outside += [_Piece(node, aliases) for node in _outside(tree)]
        for node in ast.walk(tree):
            if isinstance(node, DEFINED):
                functions.setdefault(node.name, []).append(_Piece(node, aliases))
    names: set[str] = set(READERS)
    readers: dict[str, list[_Piece]] = {}
    grown = True
    while grown:
        grown = False
        for name, pieces in functions.items():
            if name not in readers and any(piece.calls_of(names) for piece in pieces):
                readers[name] = pieces
                names.add(name)
                grown = True
    readers[TOP_LEVEL] = [piece for piece in outside if piece.calls_of(names)]
    texts: dict[str, list[str]] = {}
    given: set[str] = set()
    for name, pieces in readers.items():
        for piece in pieces:
            texts.setdefault(name, []).append(ast.unparse(piece.node))
            given |= _given_to(piece.calls_of(names))
    for name, text in _texts_set(trees, given - readers.keys()):
        texts.setdefault(name, []).append(text)
    return {name: "\n".join(lines) for name, lines in texts.items()}


def _outside(node: ast.AST) -> Iterator[ast.AST]:
    """Statements outside of functions and classes; of loops and the like head and body apart."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, DEFINED):
            continue
        if hasattr(child, "body"):
            yield from _outside(child)
        else:
            yield child


def _given_to(calls: Sequence[ast.Call]) -> set[str]:
    """The variables and fields that stand among the arguments of calls."""
    given = set()
    for call in calls:
        for argument in (*call.args, *call.keywords):
            for inner in ast.walk(argument):
                given.add(_name_of(inner))
    return given


def _texts_set(trees: Iterable[ast.AST], names: Set[str]) -> Iterator[tuple[str, str]]:
    """(name, statement) where one of these is set to what a text is part of."""
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign | ast.AnnAssign) and _holds_text(node.value):
                for target in getattr(node, "targets", [getattr(node, "target", None)]):
                    if _name_of(target) in names:
                        yield _name_of(target), ast.unparse(node)


def _holds_text(value: ast.expr | None) -> bool:
    if value is None:
        return False
    return any(isinstance(getattr(inner, "value", None), str) for inner in ast.walk(value))


# ---------------------------------------------------------------- what changed


def diff_of(old: Scripts, new: Scripts) -> str:
    """What changed from one program to the other, as `diff -u` writes it.

    A script of each that the other has not is the same one under two names."""
    pairs = [(name, name) for name in old if name in new]
    only_old = [name for name in old if name not in new]
    only_new = [name for name in new if name not in old]
    if len(only_old) == len(only_new) == 1:
        pairs.append((only_old[0], only_new[0]))
    else:
        pairs += [(name, "/dev/null") for name in only_old]
        pairs += [("/dev/null", name) for name in only_new]
    lines: list[str] = []
    for before, after in sorted(pairs):
        gone, come = lines_of(old.get(before, "")), lines_of(new.get(after, ""))
        lines += difflib.unified_diff(gone, come, before, after, n=NEAR_DIFF, lineterm="")
    return "".join(f"{line}\n" for line in lines)


def lines_of(text: str) -> list[str]:
    """As editors and `diff` count them: str.splitlines cuts at a form feed and others too."""
    return [line.removesuffix("\n") for line in io.StringIO(text)]
