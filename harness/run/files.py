"""Files of the results folder.

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
from harness.run.guarded import IN_FOLDER, NEW_FILE, folder_of, open_to_append


def now_iso() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def write_whole(path: Path, write: Callable[[IO[bytes]], Any], *, below: int = IN_FOLDER) -> None:
    """Write a file beside its place, flush it to the disk, rename it into place.

    below: how many of the path's names lie in the results folder, where no link is followed.
    """
    with folder_of(path, below) as (handle, name):
        beside = f".{name}.{uuid.uuid4().hex[:8]}"
        try:
            descriptor = os.open(beside, NEW_FILE, 0o666, dir_fd=handle)
            with os.fdopen(descriptor, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, name, src_dir_fd=handle, dst_dir_fd=handle)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(beside, dir_fd=handle)
            raise
    sync_folder(path.parent)


def write_new(path: Path, text: str) -> None:
    """Write a file whole, in a place where there is none: FileExistsError if there is.

    A link never replaces anything; file systems without links are looked at before the rename.
    """
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    write_text(beside, text)
    try:
        try:
            os.link(beside, path)
        except FileExistsError:
            if not os.path.samefile(beside, path):  # else it was made, and the answer was lost
                raise
        except OSError:
            if path.exists():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None
            os.rename(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_text(path: Path, text: str, *, below: int = IN_FOLDER) -> None:
    write_whole(path, lambda file: file.write(text.encode()), below=below)


def write_json(path: Path, value: Any) -> None:
    """A mapping or a list, one entry a line."""

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

    write_text(path, lines(value) + "\n")


def append_row(path: Path, *rows: Document, below: int = IN_FOLDER) -> None:
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
