"""Data that a script reads where it lies: which files, and whether they are the same elsewhere."""

import os
from collections.abc import Iterable
from pathlib import Path

from harness.run.digests import file_digest, short_digest

MAX_HASHED = 1 << 20  # bytes of a file of data: of a larger one only the size is looked at


def files_under(path: Path) -> list[Path]:
    """The files under a folder, sorted, or the file itself; none where there is neither."""
    paths = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [p for p in paths if p.is_file()]


def data_fingerprint(paths: Iterable[Path]) -> str:
    """64 hex digits of the data that is linked.

    Every file's name and size, and the content of small ones."""
    described = []
    for path in paths:
        for file in files_under(path):
            size = file.stat().st_size
            content = file_digest(file) if size <= MAX_HASHED else None
            described.append([os.path.relpath(file, path), size, content])
    return short_digest(described) * 4
