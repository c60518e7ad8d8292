"""A corpus is read as it was prepared or not at all: hashed once per node and state of a file, and no change is missed."""

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from harness.corpora import verify as verifying
from harness.corpora.cache import cache_locally
from harness.corpora.corpus import Corpus, read_corpus, write_corpus
from harness.corpora.verify import verify
from harness.data.shards import HEADER_BYTES, write_shard
from harness.errors import UserError
from tests.fake_matrix import wait_for


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Corpus:
    """Three shards that were written long ago, on a node that has hashed none."""
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(verifying, "FRESH_NS", 0)
    (tmp_path / "mine").mkdir()
    return small_corpus(tmp_path / "mine")


def small_corpus(folder: Path) -> Corpus:
    shards: dict[str, list[Path]] = {"train": [], "val": []}
    for name, role in (("train_000001", "train"), ("train_000002", "train"), ("val_000000", "val")):
        path = folder / f"mine_{name}.bin"
        digest = hashlib.sha256(name.encode()).digest()
        write_shard(path, np.frombuffer(digest * 40, np.uint8).astype(np.uint16))
        shards[role].append(path)
    return write_corpus(
        folder, shards, vocab_size=257, separator=256, unit="nats per byte", source="a test"
    )


def wait_for_a_tick(folder: Path) -> None:
    """Until the file system's clock shows more than any of a folder's files was changed at."""
    newest = max(path.stat().st_ctime_ns for path in folder.iterdir())
    mark = folder.parent / "tick"

    def ticked() -> bool:
        mark.write_text("")
        return mark.stat().st_ctime_ns > newest

    wait_for(ticked)


def other_tokens(corpus: Corpus) -> None:
    path = corpus.train[0]
    content = path.read_bytes()
    path.write_bytes(content[:HEADER_BYTES] + content[:HEADER_BYTES:-1] + b"\0")


def rotated(corpus: Corpus) -> None:
    path = corpus.train[1]
    content = path.read_bytes()
    path.write_bytes(
        content[:HEADER_BYTES] + content[HEADER_BYTES + 2 :] + content[HEADER_BYTES:][:2]
    )


def one_token(corpus: Corpus) -> None:
    """With the file's times as they were."""
    path = corpus.val[0]
    stat, content = path.stat(), bytearray(path.read_bytes())
    content[-4] ^= 1
    with open(path, "r+b") as file:
        file.write(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def swapped(corpus: Corpus) -> None:
    """Both are shards of this corpus, of one size."""
    first, second = corpus.train
    first.rename(first.with_suffix(".kept"))
    second.rename(first)
    first.with_suffix(".kept").rename(second)


def fingerprint(corpus: Corpus) -> None:
    path = corpus.folder / "corpus.json"
    facts = json.loads(path.read_text())
    path.write_text(json.dumps(facts | {"fingerprint": "0" * 64}))


HARMS = [other_tokens, rotated, one_token, swapped, fingerprint]


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
@pytest.mark.parametrize("known", [False, True], ids=["unknown", "known to be sound before"])
def test_no_other_content_is_taken_for_the_corpus(
    corpus: Corpus,
    harm: Callable[[Corpus], None],
    known: bool,
    tmp_path: Path,
    kept_line: Callable[[str], None],
) -> None:
    if known:
        verify(corpus)
        wait_for_a_tick(corpus.folder)
    harm(corpus)
    words = "the fingerprint in corpus.json" if harm is fingerprint else "its content is not what"
    for _ in range(2):  # what was seen to be wrong is not remembered as sound
        with pytest.raises(UserError, match=words) as refused:
            verify(read_corpus(corpus.folder))
    kept_line(str(refused.value).replace(str(tmp_path), "FOLDER"))


def test_a_file_is_hashed_once_until_it_changes(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []
    file_digest = verifying.file_digest

    def counted(path: Path) -> str:
        hashed.append(path.name)
        return file_digest(path)

    monkeypatch.setattr(verifying, "file_digest", counted)
    said: list[str] = []
    verify(corpus, say=said.append)
    verify(corpus, say=said.append)
    assert sorted(hashed) == sorted(corpus.files)
    kept = [text.split() for text in verifying.remembered().values()]
    assert sorted(digest for *_, digest in kept) == sorted(corpus.files.values())
    assert said[0] == "hashing 3 shards, 0 MiB"
    assert len(said) == 2
    os.utime(corpus.val[0])
    verify(corpus)
    assert hashed[3:] == [corpus.val[0].name]


def test_what_changed_lately_is_not_remembered(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a tick of the clock another change would look the same."""
    monkeypatch.setattr(verifying, "FRESH_NS", 10**12)
    verify(corpus)
    assert verifying.remembered() == {}


def test_what_changes_while_it_is_hashed_or_is_gone_is_not_remembered(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file_digest, restless = verifying.file_digest, corpus.train[0]

    def digest_of(path: Path) -> str:
        wait_for_a_tick(corpus.folder)
        if path == restless:
            os.utime(path)
        return file_digest(path)

    monkeypatch.setattr(verifying, "file_digest", digest_of)
    (tmp_path / "cache").mkdir()
    known = {str(tmp_path / "gone.bin"): "1 2", str(tmp_path / "cache"): "3 4"}
    (tmp_path / "cache" / verifying.MEMORY).write_text(json.dumps(known))
    verify(corpus)
    remembered = {*verifying.remembered()} - {str(tmp_path / "cache")}
    assert remembered == {str(path.resolve()) for path in (corpus.train[1], corpus.val[0])}
    assert len(verifying.remembered()) == 3


@pytest.mark.parametrize(("seconds", "rate"), [(0.0, 10), (0.0015, 7)])
def test_the_rate_is_told_however_quick_it_was(
    corpus: Corpus, seconds: float, rate: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 10,752 bytes, in a millisecond at least."""
    times = iter([10.0, 10.0 + seconds])
    clock = SimpleNamespace(monotonic=lambda: next(times), time_ns=time.time_ns)
    monkeypatch.setattr(verifying, "time", clock)
    said: list[str] = []
    verify(corpus, say=said.append)
    assert said == ["hashing 3 shards, 0 MiB", f"hashed in 0.0 s, {rate} MiB/s"]


@pytest.mark.parametrize("content", [b"[1]", b"no JSON", b'{"a": 1}'])
def test_what_is_no_memory_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path))
    assert verifying.remembered() == {}
    (tmp_path / verifying.MEMORY).write_bytes(content)
    assert verifying.remembered() == ({"a": "1"} if content[:1] == b"{" else {})


def test_a_shard_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gone\.bin: cannot be read \(No such file or directory\)"):
        verifying.state_of(tmp_path / "gone.bin")


def test_a_node_without_a_place_to_remember_hashes_again(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "file" / "below"))
    verify(corpus)
    one_token(corpus)
    with pytest.raises(UserError, match="its content is not what"):
        verify(corpus)


def test_shards_may_be_large_and_lie_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard of FineWeb has 200 MB, and many keep theirs on another disk, behind links."""
    folder = tmp_path / "mine"
    folder.mkdir()
    shards = {}
    for role in ("train", "val"):
        elsewhere = tmp_path / f"{role}.bin"
        write_shard(elsewhere, np.arange(100, dtype=np.uint16))
        (folder / elsewhere.name).symlink_to(elsewhere)
        shards[role] = [folder / elsewhere.name]
    n_large = 40_000_000
    write_shard(tmp_path / "train.bin", np.zeros(n_large, dtype=np.uint16))
    corpus = write_corpus(
        folder, shards, vocab_size=257, separator=256, unit="nats per byte", source="made here"
    )
    times, said = iter([10.0, 12.0]), list[str]()
    clock = SimpleNamespace(monotonic=lambda: next(times), time_ns=time.time_ns)
    with monkeypatch.context() as patch:
        patch.setattr(verifying, "time", clock)
        verify(corpus, say=said.append)
    assert said == ["hashing 2 shards, 76 MiB", "hashed in 2.0 s, 38 MiB/s"]
    with (tmp_path / "train.bin").open("r+b") as file:
        file.seek(-2, os.SEEK_END)
        file.write(b"\1\0")
    with pytest.raises(UserError, match=r"train\.bin: its content is not what corpus\.json says"):
        verify(corpus)


@pytest.mark.parametrize("up", ["", "../"])
def test_the_users_own_folders_may_be_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, up: str
) -> None:
    """./data, a corpus in it and the cache lie where the user put them, in how few names too."""
    disk = tmp_path / "disk"
    for folder in (disk / "data", disk / "corpus", disk / "cache", tmp_path / "work"):
        folder.mkdir(parents=True)
    (disk / "data" / "mine").symlink_to(disk / "corpus")
    monkeypatch.chdir(tmp_path / "work")
    for name in ("data", "cache"):
        Path(f"{up}{name}").symlink_to(disk / name)
    monkeypatch.setenv("ABLATE_CACHE", f"{up}cache")
    monkeypatch.setattr(verifying, "FRESH_NS", 0)
    corpus = small_corpus(Path(f"{up}data/mine"))
    assert cache_locally(corpus).fingerprint == corpus.fingerprint
    said: list[str] = []
    verify(corpus, say=said.append)
    assert said[0] == "hashing 3 shards, 0 MiB"
    verify(corpus, say=said.append)
    assert len(said) == 2
