"""What the kept code of foreign runs says: compiler flags, validation tokens, how data is read.

The code is read, never executed; what is longer than CODE_LIMIT is not parsed.
"""

import ast
import difflib
import operator
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from harness.run.archive import unpacked
from harness.run.code import CODE_LIMIT
from harness.run.guarded import KEPT, is_file, read_bytes

Scripts = Mapping[str, str]  # name of a file -> its text
CONFIGS = ("torch._inductor.config.",)  # what of the compiler the rules speak of
COMPILE = ("torch.compile", "torch._dynamo.optimize")
READERS = ("from_file", "fromfile", "memmap", "readinto", "np.load", "load_data_shard")
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


# ---------------------------------------------------------------- compiler flags


def compiler_flags(scripts: Scripts) -> dict[str, str]:
    """Every flag that the code gives the compiler -> the file and line where it stands first."""
    flags: dict[str, str] = {}
    for file, tree in parsed(scripts).items():
        aliases = _aliases(tree)
        for node in ast.walk(tree):
            for flag in _flags_at(node, aliases):
                flags.setdefault(flag, f"{file}:{getattr(node, 'lineno', 0)}")
    return flags


def _aliases(tree: ast.Module) -> dict[str, str]:
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


def _flags_at(node: ast.AST, aliases: Mapping[str, str]) -> Iterator[str]:
    if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            name = dotted(target, aliases)
            if name.startswith(CONFIGS) and node.value is not None:
                yield f"{name} = {ast.unparse(node.value)}"
    if isinstance(node, ast.Call) and dotted(node.func, aliases) in COMPILE:
        for keyword in node.keywords:
            yield f"torch.compile({keyword.arg}={ast.unparse(keyword.value)})"


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
    return getattr(target, "id", getattr(target, "attr", None)) == COUNT


def _whole(node: ast.expr | None) -> int | None:
    """10485760 of itself, or of 20 * 524288; None of anything else."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left, right = _whole(node.left), _whole(node.right)
        if left is not None and right:
            return OPERATORS[type(node.op)](left, right)
    return None


def data_readers(scripts: Scripts) -> dict[str, str]:
    """The functions that read data, and those that call them: name -> code without comments."""
    functions: dict[str, list[ast.AST]] = {}
    for tree in parsed(scripts).values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                functions.setdefault(node.name, []).append(node)
    names: set[str] = set(READERS)
    found: dict[str, str] = {}
    grown = True
    while grown:
        grown = False
        for name, nodes in functions.items():
            if name not in found and any(_calls(node, names) for node in nodes):
                found[name] = "\n".join(ast.unparse(node) for node in nodes)
                names.add(name)
                grown = True
    return found


def _calls(node: ast.AST, names: set[str]) -> bool:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
            name = getattr(inner.func, "attr", getattr(inner.func, "id", ""))
            if name in names:
                return True
    return False


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
        gone, come = old.get(before, "").splitlines(), new.get(after, "").splitlines()
        lines += difflib.unified_diff(gone, come, before, after, n=NEAR_DIFF, lineterm="")
    return "".join(f"{line}\n" for line in lines)
