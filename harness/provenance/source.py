"""The code that a run executes, as a digest that comments and docstrings do not move.

A run is stale when this digest changed; the per-file digests name the file that did it.
"""

import ast
import io
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.run.digests import short_digest, text_digest

HARNESS = Path(__file__).resolve().parents[1]
# What can change a result: the network, the update rules, the training part of the harness. The
# rest of the harness plans, runs and stores; it hands the training part a resolved configuration,
# which is part of the identity by itself.
TRAINING_PART = (
    "model/*.py",
    "optim/*.py",
    "training/*.py",
    "data/*.py",
    "config/run.py",
    "config/plugins.py",
)
# what may begin with a docstring
DOCUMENTED = (
    ast.Module,
    ast.ClassDef,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
)


@dataclass(frozen=True, kw_only=True)
class Source:
    """The code of a run.

    One digest of it all, one per file (relative path, or the plug-in's file name).
    """

    digest: str
    files: Mapping[str, str]


def in_words(node: object) -> str:
    """A syntax tree as text, without docstrings.

    What `ast.dump` of Python 3.11 says, whatever the version (3.12 added type_params, 3.13 leaves
    empty lists out).
    """
    if isinstance(node, list):
        return f"[{', '.join(map(in_words, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = []
    for name in node._fields:
        value: Any = getattr(node, name, None)
        if (value is None and getattr(type(node), name, ...) is None) or (
            name == "type_params" and not value
        ):
            continue
        if (
            name == "body"
            and isinstance(node, DOCUMENTED)
            and ast.get_docstring(node, clean=False) is not None
        ):
            value = value[1:]
        fields.append(f"{name}={in_words(value)}")
    return f"{type(node).__name__}({', '.join(fields)})"


def code_digest(text: str) -> str:
    """16 hex digits that comments, docstrings and layout do not move, nor the version of Python."""
    return text_digest(in_words(ast.parse(text)))


def source_files(plugins: Iterable[Path] = (), root: Path = HARNESS) -> dict[str, Path]:
    """Name -> file of everything that a run executes."""
    files = {}
    for pattern in TRAINING_PART:
        for path in sorted(root.glob(pattern)):
            files[str(path.relative_to(root))] = path
    for path in plugins:
        files[f"plugin/{path.name}"] = path
    return files


@cache
def _digest_of(path: Path, mtime_ns: int) -> str:
    try:
        return code_digest(path.read_text(encoding="utf-8"))
    except SyntaxError as error:
        raise UserError(
            f"{path}:{error.lineno}: {error.msg}: mend the file, a run would not start"
        ) from None


def source_of(plugins: Iterable[Path] = (), root: Path = HARNESS) -> Source:
    """The source as it is on disk now; raises UserError for a file that does not parse."""
    files = {}
    for name, path in source_files(plugins, root).items():
        files[name] = _digest_of(path, path.stat().st_mtime_ns)
    return Source(digest=short_digest(files), files=files)


def changed_files(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Files whose code differs, in order of name."""
    return sorted(name for name in {*old, *new} if old.get(name) != new.get(name))


def zipped(files: Mapping[str, bytes]) -> bytes:
    """A zip of these files by name: the same bytes for the same files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def snapshot(plugins: Iterable[Path] = (), root: Path = HARNESS) -> bytes:
    """A zip of the source as it is."""
    files = source_files(plugins, root)
    return zipped({name: path.read_bytes() for name, path in files.items()})
