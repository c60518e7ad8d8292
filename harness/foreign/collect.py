"""A foreign trainer's code: the script and what it imports, read where it lies."""

import ast
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from harness.errors import UserError
from harness.provenance.code import Code
from harness.provenance.data import files_under

MAX_FILE = 20_000_000  # bytes of one file of code: more is data, and data is linked


# ---------------------------------------------------------------- where files come from


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A folder as it is on disk; names are relative to the root, with slashes."""

    root: Path

    def read(self, name: str) -> bytes | None:
        """A file's content, None where there is no such file."""
        path = self.root / name
        if not path.is_file() or path.stat().st_size > MAX_FILE:
            return None
        return path.read_bytes()

    def names(self, name: str) -> list[str]:
        """The files under a folder, or the file itself; none where there is neither."""
        files = [f for f in files_under(self.root / name) if "__pycache__" not in f.parts]
        return [os.path.relpath(file, self.root) for file in files]


# ---------------------------------------------------------------- which files belong to a script


def collect(script: str, tree: Tree, *, where: str, extra: Iterable[str] = ()) -> Code:
    """The script, every module of the tree that it imports, directly or not, and what is named.

    where: the place that errors name; extra: names of files and folders."""
    files: dict[str, bytes] = {}
    for name in (script, *extra):
        named = _contents(tree, tree.names(name))
        outside = [n for n in named if n.startswith("..")]
        if not named or outside:
            raise UserError(
                f"{where}: no file {name} in {tree.root}: "
                "name a file or folder beside the script; data is linked"
            )
        files |= named
    waiting = [name for name in files if name.endswith(".py") or name == script]
    while waiting:
        name = waiting.pop()
        candidates = dict.fromkeys(_imported(files[name], name, script))
        modules = _contents(tree, [path for path in candidates if path not in files])
        files |= modules
        waiting += modules
    return Code(script=script, files=files)


def _contents(tree: Tree, names: Iterable[str]) -> dict[str, bytes]:
    """The files of these names that are there."""
    contents = {}
    for name in names:
        content = tree.read(name)
        if content is not None:
            contents[name] = content
    return contents


def _imported(content: bytes, name: str, script: str) -> Iterator[str]:
    """Paths of the files that a file may import: modules, packages, all packages on the way.

    name: of the file; script: imports are found in its folder."""
    folder = PurePosixPath(script).parent
    inside = PurePosixPath(name)
    if inside.is_relative_to(folder):
        inside = inside.relative_to(folder)
    for module in _modules(content, inside):
        parts = [part for part in module.split(".") if part]
        for n_parts in range(1, len(parts) + 1):
            path = folder.joinpath(*parts[:n_parts])
            yield f"{path}.py"
            yield f"{path}/__init__.py"


def _modules(content: bytes, name: PurePosixPath) -> Iterator[str]:
    """Dotted names of what a file imports; a name that it takes may be a module too."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            above: tuple[str, ...] = ()
            if node.level:
                above = name.parts[: len(name.parts) - node.level]
            base = ".".join((*above, node.module or ""))
            yield base
            for alias in node.names:
                if alias.name != "*":
                    yield f"{base}.{alias.name}"
