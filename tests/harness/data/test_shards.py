"""Shards: what is written is read back, nothing half-written bears a shard's name, every corruption has its own name."""

import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from harness.data.shards import (
    MAGIC,
    MAX_TOKENS,
    ShardError,
    ShardWriter,
    count_tokens,
    header,
    open_shard,
    write_shard,
)
from harness.errors import UserError


def test_tokens_come_back_as_written(tmp_path: Path) -> None:
    tokens = np.arange(65536)
    write_shard(tmp_path / "a.bin", tokens)
    assert np.array_equal(open_shard(tmp_path / "a.bin"), tokens)


def test_the_format_is_the_benchmarks(tmp_path: Path) -> None:
    write_shard(tmp_path / "a.bin", np.array([1, 258, 65535]))
    content = (tmp_path / "a.bin").read_bytes()
    assert struct.unpack("<256i", content[:1024]) == (20240520, 1, 3, *[0] * 253)
    assert content[1024:] == b"\x01\x00\x02\x01\xff\xff"


def test_pieces_make_the_same_file_as_the_whole(tmp_path: Path) -> None:
    tokens = np.random.default_rng(0).integers(0, 257, 10_000).astype(np.uint16)
    write_shard(tmp_path / "whole.bin", tokens)
    with ShardWriter(tmp_path / "pieces.bin") as writer:
        for piece in np.split(tokens, [1, 1, 500, 9999]):
            writer.append(piece)
            writer.append(np.array([], dtype=np.int64))
    assert (tmp_path / "pieces.bin").read_bytes() == (tmp_path / "whole.bin").read_bytes()


def test_an_open_shard_cannot_be_written_to(tmp_path: Path) -> None:
    write_shard(tmp_path / "a.bin", np.arange(10))
    with pytest.raises(ValueError, match="read-only"):
        open_shard(tmp_path / "a.bin")[0] = 1


SOUND = header(4) + bytes(8)
CORRUPTIONS = {
    "zero length": b"",
    "truncated header": SOUND[:1000],
    "truncated": SOUND[:-1],
    "too long": SOUND + b"\0",
    "wrong endian": struct.pack(">3i", MAGIC, 1, 4) + SOUND[12:],
    "wrong magic": struct.pack("<i", MAGIC + 1) + SOUND[4:],
    "wrong version": struct.pack("<2i", MAGIC, 2) + SOUND[8:],
    "no tokens": header(-4) + bytes(8),
}


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_every_corruption_is_named(
    tmp_path: Path, kind: str, kept_line: Callable[[str], None]
) -> None:
    path = tmp_path / "bad.bin"
    path.write_bytes(CORRUPTIONS[kind])
    with pytest.raises(ShardError) as caught:
        open_shard(path)
    assert caught.value.kind == kind
    assert str(caught.value).startswith(f"{path}: {kind}: ")
    assert "\n" not in str(caught.value)
    kept_line(str(caught.value))


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        *((SOUND[:1], "truncated header"), (SOUND[:1023], "truncated header")),
        *((SOUND[:1024], "truncated"), (header(0), "no tokens"), (header(0) + SOUND, "no tokens")),
    ],
)
def test_a_header_alone_is_a_whole_header(tmp_path: Path, content: bytes, kind: str) -> None:
    (tmp_path / "bad.bin").write_bytes(content)
    with pytest.raises(ShardError) as caught:
        count_tokens(tmp_path / "bad.bin")
    assert caught.value.kind == kind


def test_every_corruption_is_in_the_manual() -> None:
    manual = (Path(__file__).resolve().parents[3] / "docs" / "data.md").read_text(encoding="utf-8")
    assert [kind for kind in CORRUPTIONS if f"`{kind}`" not in manual] == []


def test_a_missing_shard_is_the_users_to_mend(
    tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    with pytest.raises(UserError, match=r"missing\.bin: cannot be read \(No such file") as refused:
        count_tokens(tmp_path / "missing.bin")
    kept_line(str(refused.value))


@pytest.mark.parametrize("tokens", [[-1], [65536]])
def test_tokens_that_do_not_fit_are_refused(
    tmp_path: Path, tokens: list[int], kept_line: Callable[[str], None]
) -> None:
    with pytest.raises(ValueError, match=r"0\.\.65535") as refused:
        write_shard(tmp_path / "a.bin", np.array([7, *tokens, 9]))
    assert list(tmp_path.iterdir()) == []
    kept_line(str(refused.value))


def test_more_tokens_than_a_header_can_count_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_line: Callable[[str], None]
) -> None:
    assert struct.unpack_from("<3i", header(MAX_TOKENS))[2] == MAX_TOKENS
    with pytest.raises(struct.error):
        header(MAX_TOKENS + 1)
    monkeypatch.setattr("harness.data.shards.MAX_TOKENS", 5)
    writer = ShardWriter(tmp_path / "a.bin")
    writer.append(np.arange(3, dtype=np.uint16))
    writer.append(np.arange(2, dtype=np.uint16))
    with pytest.raises(UserError, match=r"a\.bin: more than 5 tokens in one shard") as refused:
        writer.append(np.arange(1, dtype=np.uint16))
    kept_line(str(refused.value))
    writer.close()
    assert count_tokens(tmp_path / "a.bin") == 5


def test_an_empty_shard_is_refused(tmp_path: Path, kept_line: Callable[[str], None]) -> None:
    with pytest.raises(UserError, match="no tokens to write") as refused:
        write_shard(tmp_path / "a.bin", np.array([], dtype=np.uint16))
    assert list(tmp_path.iterdir()) == []
    kept_line(str(refused.value))


def test_a_shard_is_on_the_disk_before_it_bears_its_name_and_its_name_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, bytes]] = []

    def fsync(file: int) -> None:
        (there,) = tmp_path.iterdir()
        seen.append((there.name, there.read_bytes()))

    monkeypatch.setattr(os, "fsync", fsync)
    write_shard(tmp_path / "a.bin", np.arange(5))
    whole = (tmp_path / "a.bin").read_bytes()
    assert seen == [("a.bin.partial", whole), ("a.bin", whole)]


def test_an_interrupted_write_leaves_the_old_shard(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    write_shard(path, np.arange(5))
    with suppress(KeyboardInterrupt), ShardWriter(path) as writer:
        writer.append(np.arange(100))
        raise KeyboardInterrupt
    assert len(open_shard(path)) == 5
    assert list(tmp_path.iterdir()) == [path]


def test_a_killed_write_leaves_nothing_that_passes_for_a_shard(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys, numpy as np; from pathlib import Path; from harness.data.shards import ShardWriter\n"
        "writer = ShardWriter(Path(sys.argv[1])); writer.append(np.arange(60000)); writer._file.flush()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.bin")],
        cwd=Path(__file__).resolve().parents[3],
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert os.listdir(tmp_path) == ["a.bin.partial"]
    with pytest.raises(ShardError):
        count_tokens(tmp_path / "a.bin.partial")
