"""Files that are written: in a results folder, or one of the user's own.

Written whole or not at all (beside, flush, rename), rows added at the end.
"""

import errno
import json
import os
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from harness.run.document import Document
from harness.run.guarded import IN_ROOT, NEW_FILE, folder_of, open_to_append

# a file that changed so lately is not remembered: file systems' clocks are coarse, and may differ
FRESH_NS = 5_000_000_000


def now_iso() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def write_whole(path: Path, write: Callable[[IO[bytes]], Any], *, below: int = IN_ROOT) -> None:
    """Write a file beside its place, flush it to the disk, rename it into place.

    below: how many of the path's names lie in a results folder, where no link is followed; of a
    user's own folders it is the file's name alone.
    """
    _write(path, write, _replace, below=below)


def write_new(path: Path, content: str | bytes, *, below: int = IN_ROOT, mode: int = 0o666) -> None:
    """Write a file whole, in a place where there is none: FileExistsError if there is.

    A link never replaces anything; file systems without links are looked at before the rename.
    """
    raw = content.encode() if isinstance(content, str) else content
    _write(path, lambda file: file.write(raw), _place_new, below=below, mode=mode)


def write_text(path: Path, text: str, *, below: int = IN_ROOT) -> None:
    write_whole(path, lambda file: file.write(text.encode()), below=below)


def _write(
    path: Path,
    write: Callable[[IO[bytes]], Any],
    place: Callable[[int, str, Path], None],
    *,
    below: int,
    mode: int = 0o666,
) -> None:
    """Write a file beside its place, then place it: by its folder's handle."""
    with folder_of(path, below) as (handle, name):
        beside = f".{name}.{uuid.uuid4().hex[:8]}"
        try:
            descriptor = os.open(beside, NEW_FILE, mode, dir_fd=handle)
            with os.fdopen(descriptor, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            place(handle, beside, path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(beside, dir_fd=handle)
    sync_folder(path.parent)


def _replace(folder: int, beside: str, path: Path) -> None:
    os.replace(beside, path.name, src_dir_fd=folder, dst_dir_fd=folder)


def _place_new(folder: int, beside: str, path: Path) -> None:
    try:
        os.link(path.with_name(beside), path)
    except FileExistsError:
        ours = os.lstat(beside, dir_fd=folder)
        if not os.path.samestat(ours, os.lstat(path.name, dir_fd=folder)):
            raise  # else it was made, and the answer was lost
    except OSError:
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None
        os.rename(beside, path.name, src_dir_fd=folder, dst_dir_fd=folder)


def write_json(path: Path, value: Any, *, below: int = IN_ROOT) -> None:
    """A mapping or a list, one entry a line."""
    write_text(path, json_text(value), below=below)


def json_text(value: Any) -> str:
    """A mapping or a list as text, one entry a line."""

    def lines(v: Any) -> str:
        if isinstance(v, Mapping) and v:
            return (
                "{\n" + ",\n".join(f" {json.dumps(k)}: {entries(x)}" for k, x in v.items()) + "\n}"
            )
        return entries(v)

    def entries(v: Any) -> str:
        if isinstance(v, list) and any(isinstance(x, Mapping) for x in v):
            return "[\n" + ",\n".join(f"  {json.dumps(x, ensure_ascii=False)}" for x in v) + "\n ]"
        return json.dumps(v, ensure_ascii=False)

    return lines(value) + "\n"


def append_row(path: Path, *rows: Document, below: int = IN_ROOT) -> None:
    """Add rows to a .jsonl file and flush them to the disk.

    A torn line before them stays a line of its own.
    """
    with os.fdopen(open_to_append(path, below=below), "ab+") as file:
        torn = file.tell() > 0 and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n"
        file.write(
            (b"\n" if torn else b"") + b"".join([json.dumps(row).encode() + b"\n" for row in rows])
        )
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Bring a folder's entries to disk, so that a rename survives a power cut."""
    fd = os.open(folder, os.O_RDONLY)
    # some network file systems cannot flush a folder; the rename is still atomic there
    with suppress(OSError):
        os.fsync(fd)
    os.close(fd)
