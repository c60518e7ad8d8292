"""Prepared corpora: what is in them, when they count as prepared, what the fingerprint depends on, and who may copy them."""

import hashlib
import json
import logging
import os
import platform
import shutil
import socket
import sys
import sysconfig
import threading
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.corpora import lock as lock_module
from harness.corpora.cache import cache_locally
from harness.corpora.corpus import Corpus, data_root, read_corpus, write_corpus
from harness.corpora.index import list_corpora, open_corpus, prepare
from harness.corpora.lock import lock
from harness.corpora.stdlib import source_files
from harness.data.shards import open_shard, write_shard
from harness.errors import UserError
from tests.fake_matrix import wait_for

SEPARATOR = 256


@pytest.fixture(scope="module")
def stdlib(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return prepare("stdlib", tmp_path_factory.mktemp("data"))


def small_corpus(
    root: Path,
    name: str = "small",
    train: tuple[int, ...] = (256, 1, 2, 256, 3),
    val: tuple[int, ...] = (256, 4),
) -> Corpus:
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    shards = {
        "train": [folder / f"{name}_train_000001.bin"],
        "val": [folder / f"{name}_val_000000.bin"],
    }
    write_shard(shards["train"][0], np.array(train))
    write_shard(shards["val"][0], np.array(val))
    return write_corpus(
        folder, shards, vocab_size=257, separator=SEPARATOR, unit="nats per byte", source="a test"
    )


def test_stdlib_is_the_librarys_source_by_whole_files(stdlib: Corpus) -> None:
    library = Path(json.__file__).parents[1]
    texts = {}
    for role in ("train", "val"):
        tokens = np.concatenate([open_shard(path) for path in stdlib.shards[role]])
        assert tokens[0] == SEPARATOR
        pieces = np.split(tokens, np.flatnonzero(tokens == SEPARATOR))[1:]
        texts[role] = [piece[1:].astype(np.uint8).tobytes() for piece in pieces]
        assert len(texts[role]) == stdlib.documents[role]
        assert len(tokens) == stdlib.tokens[role]
    everything = texts["train"] + texts["val"]
    assert len(set(everything)) == len(everything) > 200
    for module in ("json/decoder.py", "argparse.py", "asyncio/base_events.py"):
        assert (library / module).read_bytes() in everything
    for module in ("encodings/cp1252.py", "encodings/__init__.py"):
        assert (library / module).read_bytes() not in everything
    share = stdlib.tokens["val"] / sum(stdlib.tokens.values())
    assert 0.045 < share < 0.0501


def test_stdlib_knows_its_facts(stdlib: Corpus) -> None:
    assert (stdlib.vocab_size, stdlib.separator, stdlib.unit) == (257, 256, "nats per byte")
    n_bytes = stdlib.tokens["val"] - stdlib.documents["val"]
    assert stdlib.bytes_per_token["val"] == n_bytes / stdlib.tokens["val"]
    assert stdlib.bits_per_byte(np.log(2)) == pytest.approx(1, rel=1e-3)
    assert stdlib.bits_per_byte(3.0, "train") == 3.0 / np.log(2) / stdlib.bytes_per_token["train"]
    python = f"{platform.python_implementation()} {platform.python_version()}"
    assert stdlib.source == f"standard library of {python}"


def test_each_preparation_gives_the_same_fingerprint(stdlib: Corpus, tmp_path: Path) -> None:
    again = prepare("stdlib", tmp_path, force=True)
    assert (again.fingerprint, again.files) == (stdlib.fingerprint, stdlib.files)


def test_a_prepared_corpus_is_not_made_again(tmp_path: Path) -> None:
    corpus = small_corpus(tmp_path, "stdlib")
    assert prepare("stdlib", tmp_path) == corpus


def test_a_damaged_corpus_is_made_again(stdlib: Corpus, tmp_path: Path) -> None:
    small_corpus(tmp_path, "stdlib").train[0].unlink()
    assert prepare("stdlib", tmp_path).fingerprint == stdlib.fingerprint


def test_the_fingerprint_depends_on_content_alone(tmp_path: Path) -> None:
    original = small_corpus(tmp_path)
    assert small_corpus(tmp_path, name="renamed").fingerprint == original.fingerprint
    assert (
        small_corpus(tmp_path, name="train", train=(256, 1, 2, 256, 4)).fingerprint
        != original.fingerprint
    )
    assert small_corpus(tmp_path, name="val", val=(256, 5)).fingerprint != original.fingerprint
    assert (
        small_corpus(tmp_path, name="swapped", train=(256, 4), val=(256, 1, 2, 256, 3)).fingerprint
        != original.fingerprint
    )


def test_open_gives_what_prepare_gave(stdlib: Corpus) -> None:
    assert open_corpus("stdlib", stdlib.folder.parent) == stdlib


def test_the_data_root_is_argument_then_environment_then_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ABLATE_DATA", raising=False)
    assert data_root() == Path("data")
    monkeypatch.setenv("ABLATE_DATA", "/elsewhere")
    assert data_root() == Path("/elsewhere")
    assert data_root("here") == Path("here")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("stdlib", "corpus 'stdlib' is not prepared in .*: run `ablate data prepare stdlib`"),
        (
            "smal",
            "no corpus 'smal' in .* .did you mean 'small'..: .*prepare text PATH... --name smal`",
        ),
        ("../small", "corpus name '../small': use letters"),
        (".small", "corpus name '.small': use letters"),
    ],
)
def test_opening_what_is_not_there_says_what_to_run(
    tmp_path: Path, name: str, message: str, kept_line: Callable[[str], None]
) -> None:
    small_corpus(tmp_path)
    with pytest.raises(UserError, match=message) as refused:
        open_corpus(name, tmp_path)
    kept_line(str(refused.value))


def test_what_was_begun_is_told_how_to_prepare_it(tmp_path: Path) -> None:
    for name, what in (("stdlib", "stdlib"), ("mine", "text PATH... --name mine")):
        (tmp_path / name).mkdir()
        why = f"its preparation was interrupted: run `ablate data prepare {what}`"
        (listed,) = [entry for entry in list_corpora(tmp_path) if entry.name == name]
        assert listed.missing == why
    gone = "not prepared: run `ablate data prepare fineweb10B`"
    assert {entry.missing for entry in list_corpora(tmp_path) if entry.name == "fineweb10B"} == {
        gone
    }


def test_a_python_without_its_sources_has_no_corpus_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lib").mkdir()
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / "lib"))
    with pytest.raises(UserError, match="lib: no source files of the standard library here: use"):
        prepare("stdlib", tmp_path / "data")


def test_the_librarys_source_is_its_own_plain_files_that_hold_something(tmp_path: Path) -> None:
    taken = ("a.py", "package/b.py", "package/deep/c.py", "configs/d.py")
    left = ("a.txt", "_sysconfigdata_x.py", "test/e.py", "package/tests/f.py", "encodings/g.py")
    for name in (*taken, *left, "config-3/h.py", "site-packages/i.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "empty.py").touch()
    (tmp_path / "link.py").symlink_to(tmp_path / "a.py")
    found = {text.key: (text.path, text.size) for text in source_files(tmp_path)}
    assert found == {name: (tmp_path / name, len(name)) for name in taken}


def test_how_far_the_librarys_corpus_is_is_told_by_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lib").mkdir()
    for n in range(3):
        (tmp_path / "lib" / f"{n}.py").write_text("# lines\n" * (n + 1))
    (tmp_path / "lib" / "copy.py").write_text("# lines\n")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / "lib"))
    told: list[tuple[int, int]] = []
    made = prepare("stdlib", tmp_path, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert made.documents == {"train": 2, "val": 1}


def test_a_description_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    corpus = small_corpus(tmp_path)
    (corpus.folder / "corpus.json").unlink()
    (corpus.folder / "corpus.json").mkdir()
    with pytest.raises(
        UserError, match=r"corpus\.json: cannot be read \(Is a directory\): prepare"
    ):
        read_corpus(corpus.folder)


def test_unknown_names_cannot_be_prepared(tmp_path: Path, kept_line: Callable[[str], None]) -> None:
    with pytest.raises(
        UserError,
        match=r"unknown corpus 'stdlb' .did you mean 'stdlib'..: prepare stdlib or fineweb10B",
    ) as unknown:
        prepare("stdlb", tmp_path)
    with pytest.raises(UserError, match="'stdlib' has no choice of shards") as one_kind:
        prepare("stdlib", tmp_path, n_shards=3)
    kept_line(f"{unknown.value}\n{one_kind.value}")


def test_a_folder_without_its_description_is_not_prepared(tmp_path: Path) -> None:
    (small_corpus(tmp_path, "stdlib").folder / "corpus.json").unlink()
    with pytest.raises(UserError, match="not prepared"):
        open_corpus("stdlib", tmp_path)
    assert "was interrupted: run `ablate data prepare stdlib`" in list_corpora(tmp_path)[0].missing


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a corpus description"),
        (b"[]", "not a corpus description"),
        (b'{"schema": 1}', "not a corpus description"),
        (b"\xff", "not a corpus description"),
    ],
)
def test_a_broken_description_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    corpus = small_corpus(tmp_path)
    (corpus.folder / "corpus.json").write_bytes(content)
    with pytest.raises(UserError, match=rf"corpus\.json: {message}"):
        open_corpus("small", tmp_path)


def test_another_schema_is_refused(tmp_path: Path, kept_line: Callable[[str], None]) -> None:
    path = small_corpus(tmp_path).folder / "corpus.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 2}))
    with pytest.raises(UserError, match="schema 2, this program reads schema 1") as refused:
        open_corpus("small", tmp_path)
    kept_line(str(refused.value))


def test_damaged_and_replaced_shards_are_noticed_on_opening(
    tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    corpus = small_corpus(tmp_path)
    write_shard(corpus.train[0], np.arange(3))
    with pytest.raises(
        UserError, match=r"train shards hold 3 tokens, corpus.json says 5"
    ) as refused:
        open_corpus("small", tmp_path)
    kept_line(str(refused.value))
    corpus.train[0].write_bytes(b"")
    with pytest.raises(UserError, match="zero length"):
        open_corpus("small", tmp_path)


def test_the_list_shows_every_corpus(stdlib: Corpus, tmp_path: Path) -> None:
    small_corpus(tmp_path, "mine")
    (small_corpus(tmp_path, "bad").train[0]).write_bytes(b"")
    rows = {row.name: row for row in list_corpora(tmp_path)}
    assert list(rows) == ["stdlib", "fineweb10B", "bad", "mine"]
    assert rows["stdlib"].missing == "not prepared: run `ablate data prepare stdlib`"
    assert rows["mine"].missing is None
    assert rows["mine"].tokens == {"train": 5, "val": 2}
    assert rows["mine"].bytes == 2 * 1024 + 2 * 7
    assert "zero length" in rows["bad"].missing
    assert list_corpora(stdlib.folder.parent)[0].fingerprint == stdlib.fingerprint
    assert [row.name for row in list_corpora(tmp_path / "nowhere")] == ["stdlib", "fineweb10B"]
    json.dumps([asdict(row) for row in rows.values()])


# --- the benchmark's tokens


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A hub that hands out small shards; gives the list of files that were fetched from it."""
    fetched: list[str] = []

    def hf_hub_download(*, repo_id: str, filename: str, repo_type: str, local_dir: Path) -> None:
        assert (repo_id, repo_type) == ("kjj0/fineweb10B-gpt2", "dataset")
        fetched.append(filename)
        write_shard(local_dir / filename, np.array([50256, len(filename), int(filename[-10:-4])]))

    module = ModuleType("huggingface_hub")
    module.hf_hub_download = hf_hub_download  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return fetched


def test_fineweb_fetches_only_what_is_missing(tmp_path: Path, hub: list[str]) -> None:
    two = prepare("fineweb10B", tmp_path, n_shards=2)
    assert hub == ["fineweb_val_000000.bin", "fineweb_train_000001.bin", "fineweb_train_000002.bin"]
    assert (two.vocab_size, two.separator, two.unit, two.bytes_per_token) == (
        50257,
        50256,
        "nats per token",
        None,
    )
    assert [path.name for path in two.train] == hub[1:]
    assert prepare("fineweb10B", tmp_path) == two
    three = prepare("fineweb10B", tmp_path, n_shards=3)
    assert hub[3:] == ["fineweb_train_000003.bin"]
    assert three.fingerprint != two.fingerprint
    assert prepare("fineweb10B", tmp_path, n_shards=2).fingerprint == two.fingerprint
    assert two.bits_per_byte(3.28) is None
    place = "https://huggingface.co/datasets/kjj0/fineweb10B-gpt2"
    assert three.source == f"{place}, first 3 training shards"


def test_fineweb_is_nine_shards_unless_more_are_asked_for(tmp_path: Path, hub: list[str]) -> None:
    told: list[tuple[int, int]] = []
    made = prepare("fineweb10B", tmp_path, progress=lambda done, total: told.append((done, total)))
    assert len(made.train) == 9 and len(hub) == 10
    assert told == [(done, 10) for done in range(1, 11)]
    assert logging.getLogger("huggingface_hub").level == logging.ERROR


@pytest.mark.parametrize("n_shards", [0, -1, 104])
def test_fineweb_has_so_many_shards_and_no_more(
    n_shards: int, tmp_path: Path, hub: list[str]
) -> None:
    with pytest.raises(UserError, match=f"^{n_shards} shards of fineweb10B: choose 1 to 103$"):
        prepare("fineweb10B", tmp_path, n_shards=n_shards)
    assert hub == []


def test_fineweb_takes_files_put_there_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_line: Callable[[str], None]
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # importing it fails
    with pytest.raises(
        UserError,
        match=r"fineweb_val_000000.bin: downloading needs huggingface_hub: pip .*fineweb10B/ yourself",
    ) as refused:
        prepare("fineweb10B", tmp_path, n_shards=1)
    kept_line(str(refused.value))
    for name in ("fineweb_val_000000.bin", "fineweb_train_000001.bin"):
        write_shard(tmp_path / "fineweb10B" / name, np.array([50256, 7]))
    assert prepare("fineweb10B", tmp_path, n_shards=1).tokens == {"train": 2, "val": 2}


def test_fineweb_without_network_says_the_manual_way(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hub: list[str],
    kept_line: Callable[[str], None],
) -> None:
    def unreachable(**_: Any) -> None:
        raise ConnectionError("no route to host\nand a long story")

    monkeypatch.setattr(sys.modules["huggingface_hub"], "hf_hub_download", unreachable)
    with pytest.raises(
        UserError,
        match=r"download failed \(ConnectionError: no route to host\): try again, or put the file",
    ) as caught:
        prepare("fineweb10B", tmp_path, n_shards=1)
    assert "\n" not in str(caught.value)
    kept_line(str(caught.value))
    assert list_corpora(tmp_path)[1].missing
    for said, told in (("", ""), ("x" * 300, "x" * 200)):

        def refused(said: str = said, **_: Any) -> None:
            raise ConnectionError(said)

        monkeypatch.setattr(sys.modules["huggingface_hub"], "hf_hub_download", refused)
        with pytest.raises(UserError, match=rf"failed \(ConnectionError: {told}\): try again"):
            prepare("fineweb10B", tmp_path, n_shards=1)


def test_fineweb_names_a_damaged_file(tmp_path: Path, hub: list[str]) -> None:
    prepare("fineweb10B", tmp_path, n_shards=1)
    path = tmp_path / "fineweb10B" / "fineweb_train_000001.bin"
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(UserError, match=r"fineweb_train_000001.bin: truncated"):
        prepare("fineweb10B", tmp_path, n_shards=2)
    with pytest.raises(UserError, match="choose 1 to 103"):
        prepare("fineweb10B", tmp_path, n_shards=104)


# --- the node's own copy, locks


def test_the_local_copy_is_the_same_corpus(tmp_path: Path) -> None:
    corpus = small_corpus(tmp_path / "shared")
    copy = cache_locally(corpus, tmp_path / "local")
    assert copy.fingerprint == corpus.fingerprint
    digest = hashlib.sha256((corpus.folder / "corpus.json").read_bytes()).hexdigest()
    assert copy.folder == copy.train[0].parent == tmp_path / "local" / f"small-{digest[:16]}"
    assert np.array_equal(open_shard(copy.train[0]), open_shard(corpus.train[0]))
    assert read_corpus(copy.folder) == copy


def test_what_a_killed_process_left_half_copied_is_copied_anew(tmp_path: Path) -> None:
    corpus = small_corpus(tmp_path / "shared")
    copy = cache_locally(corpus, tmp_path / "local")
    (copy.folder / "corpus.json").unlink()
    os.truncate(copy.train[0], 1030)
    (copy.folder / ".small_val_000000.bin.half").write_bytes(b"half")
    assert cache_locally(corpus, tmp_path / "local") == copy
    names = [path.name for path in (*corpus.train, *corpus.val)]
    assert sorted(path.name for path in copy.folder.iterdir()) == sorted([*names, "corpus.json"])


def test_a_node_copies_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.corpora import cache

    corpus, copied, original = small_corpus(tmp_path / "shared"), [], cache.copy_verified

    def counted(source: Path, target: Path, sha256: str) -> None:
        copied.append(source.name)
        original(source, target, sha256)

    monkeypatch.setattr(cache, "copy_verified", counted)
    threads = [
        threading.Thread(target=cache_locally, args=(corpus, tmp_path / "local")) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(copied) == ["small_train_000001.bin", "small_val_000000.bin"]


def test_a_node_without_room_for_a_copy_is_told_by_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = small_corpus(tmp_path / "shared")
    needed = sum(path.stat().st_size for path in (*corpus.train, *corpus.val))

    def room(free: int) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))

    room(needed - 1)
    with pytest.raises(UserError, match=r": 0 MiB free, small takes 0: make room, or "):
        cache_locally(corpus, tmp_path / "local")
    room(needed)
    copy = cache_locally(corpus, tmp_path / "local")
    assert copy.fingerprint == corpus.fingerprint
    os.truncate(corpus.train[0], 9 << 20)
    room(5 << 20)
    with pytest.raises(UserError) as refused:
        cache_locally(corpus, tmp_path / "other")
    place = tmp_path / "other" / copy.folder.name
    said = f"{place}: 5 MiB free, small takes 9: make room, or set data.cache to none"
    assert str(refused.value) == said


def test_a_damaged_source_is_not_cached(tmp_path: Path, kept_line: Callable[[str], None]) -> None:
    corpus = small_corpus(tmp_path / "shared")
    write_shard(corpus.val[0], np.array([256, 9]))
    with pytest.raises(
        UserError, match=r"small_val_000000.bin: its content is not what corpus.json says"
    ) as refused:
        cache_locally(corpus, tmp_path / "local")
    kept_line(str(refused.value))
    assert not list(tmp_path.glob("local/*/corpus.json"))


@pytest.mark.parametrize("has_flock", [True, False])
def test_a_lock_admits_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_flock: bool
) -> None:
    if not has_flock:
        monkeypatch.setattr(lock_module, "flock", lambda file: False)
    inside, most = 0, 0
    left, asking = set(range(4)), set[int]()

    def others_are_in_or_want_to(me: int) -> bool:
        return most > 1 or asking == left - {me}

    def work(me: int) -> None:
        nonlocal inside, most
        for turn in range(3):
            asking.add(me)
            with lock(tmp_path / "x"):
                asking.discard(me)
                inside += 1
                most = max(most, inside)
                wait_for(partial(others_are_in_or_want_to, me), seen=lambda: (asking, left))
                inside -= 1
                if turn == 2:
                    left.discard(me)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_a_system_or_a_disk_without_locks_of_files_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: Any, how: int) -> None:
        raise OSError("no locks here")

    with open(tmp_path / "x", "w") as file:
        assert lock_module.flock(file) is True
        monkeypatch.setattr(lock_module, "fcntl", SimpleNamespace(flock=refuse, LOCK_EX=2))
        assert lock_module.flock(file) is False
        monkeypatch.setattr(lock_module, "fcntl", None)
        assert lock_module.flock(file) is False
    with lock(tmp_path / "x"):
        assert (tmp_path / ".x.lock.d").is_dir()
    assert not (tmp_path / ".x.lock.d").exists()


def test_only_the_lock_of_a_process_of_this_machine_that_is_dead_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []

    def kill(pid: int, signal: int) -> None:
        asked.append((pid, signal))
        raise {1: PermissionError, 2: ProcessLookupError}[pid]

    monkeypatch.setattr(lock_module.os, "kill", kill)
    held = tmp_path / "x.lock.d"
    lock_module.release_if_dead(held)  # it was let go meanwhile
    here = socket.gethostname()
    for names, is_left in (
        *(([f"{here}.1"], True), (["elsewhere.2"], True), ([f"{here}.2"], False)),
        ([f"{here}.2", "elsewhere.2"], True),  # another waiter was faster
    ):
        held.mkdir(exist_ok=True)
        for name in names:
            (held / name).touch()
        lock_module.release_if_dead(held)
        assert held.exists() is is_left
        for left in held.glob("*"):
            left.unlink()
    assert set(asked) == {(1, 0), (2, 0)}


def test_a_lock_is_freed_by_an_error_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_module, "flock", lambda file: False)
    for _ in range(2):
        with pytest.raises(OSError, match="disk"), lock(tmp_path / "x"):
            raise OSError("disk")


def test_the_lock_of_a_dead_process_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket
    import subprocess

    monkeypatch.setattr(lock_module, "flock", lambda file: False)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    held = tmp_path / ".x.lock.d"
    held.mkdir()
    (held / f"{socket.gethostname()}.{dead.pid}").touch()
    with lock(tmp_path / "x"):
        assert held.exists()
    assert not held.exists()


def test_a_lock_held_elsewhere_is_named_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_module, "flock", lambda file: False)
    monkeypatch.setattr(lock_module, "WAIT_S", 0.0)
    held = tmp_path / ".x.lock.d"
    held.mkdir()
    (held / "another-host.1").touch()
    with (
        pytest.raises(UserError, match=r"\.x\.lock\.d: locked for more than 0 s: .* remove it"),
        lock(tmp_path / "x"),
    ):
        pass
