"""A shard: the benchmark's binary format, written whole or not at all, read through a memory map.

1024 bytes of header (256 int32: magic, version, number of tokens, zeros), then the tokens as
uint16, all little-endian.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from harness.errors import UserError
from harness.run.files import sync_folder

MAGIC, VERSION = 20240520, 1  # how the benchmark's shards begin
HEADER_BYTES = 1024
MAX_TOKENS = 2**31 - 1  # the header counts in int32
# tokens looked at in one go, so that memory stays bounded on shards of any size
BLOCK_TOKENS = 1 << 20

Tokens = NDArray[np.uint16]


class ShardError(UserError):
    """A file that is not a sound shard; `kind` says in two words what is wrong with it."""

    def __init__(self, path: Path, kind: str, detail: str) -> None:
        super().__init__(f"{path}: {kind}: {detail}: delete it and prepare the corpus again")
        self.kind = kind


def header(n_tokens: int) -> bytes:
    """The 1024 bytes in front of `n_tokens` tokens."""
    return struct.pack("<3i", MAGIC, VERSION, n_tokens).ljust(HEADER_BYTES, b"\0")


def count_tokens(path: Path) -> int:
    """Tokens of the shard at `path`.

    Raises ShardError unless the header is right and agrees with the file's size.
    """
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            head = file.read(HEADER_BYTES)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}): prepare the corpus again"
        ) from None
    if size == 0:
        raise ShardError(path, "zero length", "the file is empty")
    if size < HEADER_BYTES:
        raise ShardError(
            path, "truncated header", f"{size} bytes where the header alone takes {HEADER_BYTES}"
        )
    n_tokens: int
    magic, version, n_tokens = struct.unpack_from("<3i", head)
    if magic == struct.unpack("<i", struct.pack(">i", MAGIC))[0]:
        raise ShardError(path, "wrong endian", "written big-endian, shards are little-endian")
    if magic != MAGIC:
        raise ShardError(path, "wrong magic", f"the first int32 is {magic}, a shard's is {MAGIC}")
    if version != VERSION:
        raise ShardError(path, "wrong version", f"version {version}, this reads version {VERSION}")
    if n_tokens <= 0:
        raise ShardError(path, "no tokens", f"the header says {n_tokens} tokens")
    expected = HEADER_BYTES + 2 * n_tokens
    if size < expected:
        raise ShardError(
            path, "truncated", f"{size} bytes, but the header's {n_tokens} tokens take {expected}"
        )
    if size > expected:
        raise ShardError(
            path,
            "too long",
            f"{size} bytes, but the header's {n_tokens} tokens take only {expected}",
        )
    return n_tokens


def open_shard(path: Path) -> Tokens:
    """(n_tokens,) uint16, read-only and memory-mapped: processes of one node share its pages.

    Raises as count_tokens.
    """
    n_tokens = count_tokens(path)
    return np.memmap(path, dtype="<u2", mode="r", offset=HEADER_BYTES, shape=(n_tokens,))


def blocks(tokens: Tokens) -> Iterator[Tokens]:
    """The tokens in consecutive pieces of at most BLOCK_TOKENS."""
    return (tokens[start : start + BLOCK_TOKENS] for start in range(0, len(tokens), BLOCK_TOKENS))


def write_shard(path: Path, tokens: NDArray[Any]) -> None:
    """Write all `tokens` (integers 0..65535) as one shard.

    It appears at `path` whole or not at all.
    """
    with ShardWriter(path) as writer:
        writer.append(tokens)


class ShardWriter:
    """Streams tokens into a shard.

    The file bears its own name only after everything is on disk; an exception removes it.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.n_tokens = path, 0
        self._partial = path.with_name(f"{path.name}.partial")
        # closed by close() or abort()
        self._file: BinaryIO = open(self._partial, "wb")  # noqa: SIM115
        # no magic until the end: a leftover never passes for a shard
        self._file.write(bytes(HEADER_BYTES))

    def append(self, tokens: NDArray[Any]) -> None:
        """Add tokens; they are buffered by the file alone, so memory does not grow."""
        if tokens.dtype != np.uint16 and len(tokens):
            lowest, highest = int(tokens.min()), int(tokens.max())
            if not 0 <= lowest <= highest <= 65535:
                raise ValueError(
                    f"tokens of {self.path.name} range over {lowest}..{highest}, "
                    "a shard holds 0..65535"
                )
        if self.n_tokens + len(tokens) > MAX_TOKENS:
            raise UserError(
                f"{self.path}: more than {MAX_TOKENS} tokens in one shard: split the text into "
                "several corpora"
            )
        self._file.write(np.ascontiguousarray(tokens, dtype="<u2").data)
        self.n_tokens += len(tokens)

    def close(self) -> None:
        """Write the header, bring everything to disk, give the file its name."""
        if self.n_tokens == 0:
            self.abort()
            raise UserError(f"{self.path}: no tokens to write: a shard holds at least one")
        self._file.seek(0)
        self._file.write(header(self.n_tokens))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._partial.replace(self.path)
        sync_folder(self.path.parent)

    def abort(self) -> None:
        """Forget what was written."""
        self._file.close()
        self._partial.unlink(missing_ok=True)

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()
