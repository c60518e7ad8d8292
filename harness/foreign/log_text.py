"""The text of a log file as lines: unpacked, without colours, ranks or a byte order mark.

A file's last line may be cut inside a number; what is kept of the lines before tells.
"""

import bz2
import gzip
import lzma
import math
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

from harness.foreign.log_lines import LINE_LIMIT, POINT_STARTS, LogError, shape_of

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UNREADABLE = {  # how a file opens -> what it is
    b"\xff\xfe": "it is UTF-16 text: save it as UTF-8",
    b"\xfe\xff": "it is UTF-16 text: save it as UTF-8",
    b"PK\x03\x04": "it is compressed: unpack it first",
}
PACKED: dict[bytes, Callable[[Path], Any]] = {  # how a file opens -> what unpacks it
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ": lzma.open,
    b"BZh": bz2.open,
}
DAMAGED = (OSError, EOFError, lzma.LZMAError, zlib.error)
MOST_UNPACKED = 1 << 28  # bytes: a packed file of a few kB can hold terabytes
COLOUR = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")
# torchrun and c10d write it before what a process prints
RANK = re.compile(rb"\[(?:rank|default)?(\d{1,5})\]:?[ \t]?")
CUT = "it is cut inside its last line, '{line}': the last number may lack digits"
MAX_SHOWN = 60  # characters of a line


def log_lines(path: Path) -> Iterator[bytes]:
    """The lines of a log, each cut at LINE_LIMIT; those of other ranks than the first left out.

    Raises LogError where the file is no text, or where its last line is cut inside a number."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):  # never wait for a pipe or a device
            raise LogError("it is not a file")
        if not status.st_size:
            raise LogError("it is empty")
        yield from _whole_lines(_unpacked(path))
    except OSError as error:
        raise LogError(f"it cannot be read: {error.strerror}") from None


def _unpacked(path: Path) -> Iterator[bytes]:
    """The lines of a file, packed or not; raises LogError for one that opens as no text does."""
    with path.open("rb") as file:
        head = file.read(6)
    for opening, what in UNREADABLE.items():
        if head.startswith(opening):
            raise LogError(what)
    for opening, unpack in PACKED.items():
        if head.startswith(opening):
            yield from _of_packed(path, unpack)
            return
    with path.open("rb") as file:
        yield from _raw_lines(file)


def _of_packed(path: Path, unpack: Callable[[Path], Any]) -> Iterator[bytes]:
    try:
        with unpack(path) as file:
            yield from _raw_lines(file, MOST_UNPACKED)
    except DAMAGED:
        raise LogError("it is compressed, and damaged: pack it again") from None


def _raw_lines(file: IO[bytes], most: float = math.inf) -> Iterator[bytes]:
    """Lines, cut at LINE_LIMIT; raises LogError where the file is no text, or has more bytes."""
    ended, is_first = True, True  # the last piece ended its line
    n_bytes = 0
    for piece in iter(partial(file.readline, LINE_LIMIT), b""):
        n_bytes += len(piece)
        if n_bytes > most:
            raise LogError("it is compressed, and holds more than 256 MiB: unpack it first")
        if b"\0" in piece:
            raise LogError("it is binary, or damaged: it holds zero bytes")
        begins, ended = ended, piece.endswith(b"\n")
        if begins:
            yield piece.removeprefix(BYTE_ORDER_MARK) if is_first else piece
        is_first = False


def _whole_lines(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Plain lines of the first rank; raises LogError where the last is cut inside a number."""
    written: dict[tuple[bytes, ...], set[int]] = {}  # words of a line -> decimals of its last
    for raw in lines:
        line = plain(raw)
        if line is None:
            continue
        if line.startswith(POINT_STARTS):
            shape = shape_of(line)
            if shape is not None:
                before = written.setdefault(shape.words, set())
                is_whole = raw.endswith(b"\n") or shape.has_unit or before == {shape.n_decimals}
                if not is_whole:
                    raise LogError(CUT.format(line=line.decode("utf-8", "replace")[:MAX_SHOWN]))
                before.add(shape.n_decimals)
        yield line


def plain(line: bytes) -> bytes | None:
    """A line without colours and its rank; None where another rank than the first printed it."""
    if b"\x1b" in line:
        line = COLOUR.sub(b"", line)
    if line.startswith(b"["):
        match = RANK.match(line)
        if match is not None:
            if int(match[1]):
                return None
            line = line[match.end() :]
    if b"\r" in line:  # a progress bar draws over its line
        ended = b"\n" if line.endswith(b"\n") else b""
        line = line.rstrip(b"\r\n").rpartition(b"\r")[2] + ended
    return line
