"""Kept code, unpacked in bounded memory: a small archive can ask for a great deal."""

import io
import lzma
import re
import struct
import zipfile
import zlib

from harness.run.versions import ARCHIVE, check_version

MAX_FILES = 20_000  # in an archive of code
MAX_BYTES = 1 << 28  # that they may unpack to
_VERSION = re.compile(rb"schema ([1-9][0-9]{0,8})")  # the comment of an archive
DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError),
    *(NotImplementedError, RuntimeError, OverflowError),
)


def unpacked(content: bytes) -> dict[str, bytes]:
    """The files of an archive by name, in bounded memory; raises ValueError where it is none.

    No name leads out of the folder that it is unpacked in. Raises NewerError.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as zipped:
            version = _VERSION.fullmatch(zipped.comment)
            if version is not None:
                check_version({"schema": int(version[1])}, ARCHIVE, "an archive of code")
            listed = zipped.infolist()
            check_size(len(listed), sum(entry.file_size for entry in listed))
            files = {}
            for entry in listed:
                _check_name(entry.filename)
                files[entry.filename] = zipped.read(entry)
            return files
    except DAMAGED as error:
        raise ValueError(f"no archive: {error}") from None


def check_size(n_files: int, n_bytes: int) -> None:
    """Raises ValueError for more than the code of a run may have."""
    if n_files > MAX_FILES or n_bytes > MAX_BYTES:
        raise ValueError(
            f"{n_files} files of {n_bytes / 2**20:.0f} MiB are more than code may have"
            f" ({MAX_FILES} files, {MAX_BYTES >> 20} MiB)"
        )


def _check_name(name: str) -> None:
    parts = name.split("/")
    if not name or "\\" in name or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"it holds a file named {name!r}")
