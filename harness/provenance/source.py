"""The code that a run executes, as a digest that comments and docstrings do not move.

A run is stale when this digest changed; the per-file digests name the file that did it.
"""

import io
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.errors import UserError
from harness.provenance.redact import line_with_secret
from harness.run.code import code_digest
from harness.run.digests import short_digest
from harness.run.versions import ARCHIVE

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
    "config/schedule.py",
    "config/schedule_config.py",
    "config/plugins.py",
)


@dataclass(frozen=True, kw_only=True)
class Source:
    """The code of a run.

    One digest of it all, one per file (relative path, or the plug-in's file name).
    """

    digest: str
    files: Mapping[str, str]


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
        archive.comment = f"schema {ARCHIVE}".encode()
    return buffer.getvalue()


def refuse_secrets_in(plugins: Iterable[Path]) -> None:
    """Raises UserError where a plug-in, whose code results keep, holds a secret."""
    for path in plugins:
        line = None
        if path.is_file():
            line = line_with_secret(path.read_text(encoding="utf-8", errors="replace"))
        if line is not None:
            raise UserError(
                f"plug-in {path}, line {line} holds a secret, and the code of a run is kept with "
                "its results: let it read an environment variable, a run inherits them"
            )


def snapshot(plugins: Iterable[Path] = (), root: Path = HARNESS) -> bytes:
    """A zip of the source as it is; raises UserError where a plug-in holds a secret."""
    refuse_secrets_in(plugins)
    files = source_files(plugins, root)
    return zipped({name: path.read_bytes() for name, path in files.items()})
