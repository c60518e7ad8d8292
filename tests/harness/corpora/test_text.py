"""Your own text: which documents come out, on which side, with which tokenizer, and what an interruption leaves."""

import base64
import hashlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.corpora import text as text_module
from harness.corpora.corpus import Corpus
from harness.corpora.index import open_corpus
from harness.corpora.shard_writer import split_roles
from harness.corpora.text import file_blocks, find_texts, prepare_text, safe_cut
from harness.corpora.tokenizers import TokenizerChoice, open_tokenizer, read_ranks
from harness.data.shards import ShardError, count_tokens, open_shard
from harness.errors import UserError


def documents(corpus: Corpus, role: str) -> list[bytes]:
    tokens = np.concatenate([open_shard(path) for path in corpus.shards[role]])
    pieces = np.split(tokens, np.flatnonzero(tokens == corpus.separator))
    assert len(pieces[0]) == 0
    return [piece[1:].astype(np.uint8).tobytes() for piece in pieces[1:]]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree: 40 text files, and things that are not text of the tree."""
    root = tmp_path / "tree"
    for n in range(40):
        path = root / f"part{n % 3}" / f"f{n}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"# file {n}\n".encode() * 20)
    (root / "empty.py").touch()
    (root / "image.png").write_bytes(b"\x89PNG\0\0")
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("hidden")
    for hidden in (".part/f.py", "part0/__pycache__/f.py", "part0/.f.md"):
        (root / hidden).parent.mkdir(exist_ok=True)
        (root / hidden).write_text("hidden")
    (root / "link.py").symlink_to(root / "part0" / "f0.py")
    return root


def test_a_source_tree_becomes_one_document_per_file(tree: Path, tmp_path: Path) -> None:
    corpus = prepare_text([tree], name="mine", root=tmp_path)
    assert sorted(documents(corpus, "train") + documents(corpus, "val")) == sorted(
        path.read_bytes() for path in tree.glob("part*/*.py")
    )
    assert corpus.documents == {"train": 38, "val": 2}
    assert corpus.source == f"text: {tree}; documents by file; tokenizer bytes"
    assert open_corpus("mine", tmp_path) == corpus


def test_how_far_it_is_is_told_in_bytes_of_all_the_text(tree: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    (tmp_path / "other.txt").write_text("another text, held out\n")
    prepare_text(
        [tree],
        name="mine",
        root=tmp_path,
        heldout=[tmp_path / "other.txt"],
        progress=lambda done, total: told.append((done, total)),
    )
    sizes = [path.stat().st_size for path in (*tree.glob("part*/*.py"), tmp_path / "other.txt")]
    assert {total for _, total in told} == {sum(sizes)}
    assert told[-1] == (sum(sizes), sum(sizes)) and len(told) == len(sizes)
    steps = [after - before for (before, _), (after, _) in itertools.pairwise([(0, 0), *told])]
    assert sorted(steps) == sorted(sizes)


def test_the_same_text_gives_the_same_corpus_wherever_it_lies(tree: Path, tmp_path: Path) -> None:
    first = prepare_text([tree], name="mine", root=tmp_path)
    (tmp_path / "other").mkdir()
    moved = tree.rename(tmp_path / "other" / "tree")
    assert prepare_text([moved], name="yours", root=tmp_path).fingerprint == first.fingerprint


@pytest.mark.parametrize(
    ("documents_by", "expected"),
    [
        ("line", [b"a b\n", b"c\n", b"d\n", b"e"]),
        ("paragraph", [b"a b\nc\n", b"d\n", b"e"]),
    ],
)
def test_documents_by_line_and_by_paragraph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, documents_by: str, expected: list
) -> None:
    monkeypatch.setattr(
        text_module, "side_of", lambda blocks: "val" if blocks == [expected[0]] else "train"
    )
    (tmp_path / "a.txt").write_bytes(b"\na b\nc\n\n  \nd\n\ne")
    corpus = prepare_text([tmp_path / "a.txt"], name="x", root=tmp_path, documents=documents_by)
    assert documents(corpus, "val") + documents(corpus, "train") == expected


def test_json_lines_are_documents_whatever_the_rest(tmp_path: Path) -> None:
    texts = [f"document {n} \u00e9" for n in range(200)]
    lines = [json.dumps({"text": text, "id": 1}) for text in texts]
    (tmp_path / "a.jsonl").write_text(
        "\n".join([*lines, "", json.dumps({"text": ""})]), encoding="utf-8"
    )
    corpus = prepare_text([tmp_path / "a.jsonl"], name="x", root=tmp_path)
    assert sorted(documents(corpus, "train") + documents(corpus, "val")) == sorted(
        text.encode() for text in texts
    )


def test_equal_lines_fall_to_the_same_side(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"line {n % 150}\n" for n in range(600)))
    corpus = prepare_text([tmp_path / "a.txt"], name="x", root=tmp_path, documents="line")
    assert not set(documents(corpus, "train")) & set(documents(corpus, "val"))
    assert sum(corpus.documents.values()) == 600


def test_copies_of_a_file_fall_to_the_same_side(tree: Path, tmp_path: Path) -> None:
    for n in range(12):
        (tree / f"license{n}.txt").write_text("the same words in every one of them\n")
    corpus = prepare_text([tree], name="mine", root=tmp_path)
    assert not set(documents(corpus, "train")) & set(documents(corpus, "val"))
    assert sum(corpus.documents.values()) == 52


def test_heldout_text_is_apart_from_the_fingerprint(tree: Path, tmp_path: Path) -> None:
    plain = prepare_text([tree], name="plain", root=tmp_path)
    (tmp_path / "other.md").write_text("# another text")
    corpus = prepare_text([tree], name="mine", root=tmp_path, heldout=[tmp_path / "other.md"])
    assert documents(corpus, "heldout") == [b"# another text"]
    assert corpus.fingerprint == plain.fingerprint
    assert plain.heldout == ()
    assert corpus.bytes_per_token["heldout"] == 14 / 15


def test_preparing_again_leaves_nothing_of_the_former_text(tree: Path, tmp_path: Path) -> None:
    prepare_text([tree], name="mine", root=tmp_path, shard_tokens=500)
    assert len(list((tmp_path / "mine").glob("*_train_*"))) > 5
    (tmp_path / "a.txt").write_text("".join(f"line {n}\n" for n in range(300)))
    corpus = prepare_text([tmp_path / "a.txt"], name="mine", root=tmp_path, documents="line")
    assert {path.name for path in (tmp_path / "mine").iterdir()} == {
        "mine_train_000001.bin",
        "mine_val_000000.bin",
        "corpus.json",
    }
    assert len(corpus.train) == 1


@settings(max_examples=12, deadline=None)
@given(st.integers(20, 400))
def test_documents_straddle_shards_and_the_last_is_never_short(
    tmp_path_factory: pytest.TempPathFactory, shard_tokens: int
) -> None:
    tmp_path = tmp_path_factory.mktemp("data")
    (tmp_path / "a.txt").write_text("".join(f"line {n}\n" for n in range(100)))
    corpus = prepare_text(
        [tmp_path / "a.txt"], name="x", root=tmp_path, documents="line", shard_tokens=shard_tokens
    )
    lengths = [count_tokens(path) for path in corpus.train]
    assert sum(corpus.documents.values()) == 100
    assert len(documents(corpus, "train")) == corpus.documents["train"]
    assert set(lengths[:-1]) <= {shard_tokens}
    assert len(lengths) == 1 or shard_tokens // 2 <= lengths[-1] < 1.5 * shard_tokens


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=60))
def test_both_sides_get_something_and_validation_its_share_at_most(sizes: list[int]) -> None:
    roles = split_roles(sizes)
    in_val = [size for size, role in zip(sizes, roles) if role == "val"]
    assert in_val
    assert "train" in roles
    assert sum(in_val) <= 0.05 * sum(sizes) or in_val == [min(sizes)]


@pytest.mark.parametrize(
    ("sizes", "in_val"),
    [
        ([5, 95], [0]),
        ([6, 94], [0]),  # nothing fits: the smallest
        ([95, 5], [1]),
        ([3, 94, 2, 1], [0, 2]),  # what still fits, in order
        ([4, 2, 93, 1], [0, 3]),
        ([10, 9, 9], [1]),
        ([], []),
    ],
)
def test_to_validation_goes_what_fits_into_a_twentieth(sizes: list[int], in_val: list[int]) -> None:
    assert [n for n, role in enumerate(split_roles(sizes)) if role == "val"] == in_val


def test_of_lines_a_twentieth_is_for_validation(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"line {n}\n" for n in range(2000)))
    corpus = prepare_text([tmp_path / "a.txt"], name="x", root=tmp_path, documents="line")
    lines = [f"line {n}\n".encode() for n in range(2000)]
    expected = [line for line in lines if hashlib.sha256(line).digest() < b"\x0c\xcc\xcc\xcc"]
    assert documents(corpus, "val") == expected and 80 < len(expected) < 120


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (
            "one text",
            {},
            r"x: too few documents \(1\) to split into training and validation: .*--by line or --by paragraph",
        ),
        ("one line", {"documents": "line"}, r"too few documents \(1\)"),
        ("", {}, r"too few documents \(0\)"),
        ("text", {"documents": "word"}, "--by word: choose file, line or paragraph"),
        ("text", {"documents": "jsonl"}, "--by jsonl: choose file, line or paragraph"),
        (
            "text",
            {"tokenizer": TokenizerChoice(name="gpt3")},
            "unknown tokenizer 'gpt3': there are bytes, gpt2",
        ),
        (
            "text",
            {"tokenizer": TokenizerChoice(vocabulary=Path("v"))},
            "v: the bytes tokenizer has no vocabulary",
        ),
        ("text", {"name": "stdlib"}, "'stdlib' is the name of a built-in corpus"),
        ("text", {"name": "a/b"}, "corpus name 'a/b': use letters"),
        ("a\0b", {}, r"a\.txt: not a text file"),
    ],
)
def test_what_cannot_be_prepared_is_refused(
    tmp_path: Path, content: str, options: dict, message: str, kept_line: Callable[[str], None]
) -> None:
    (tmp_path / "a.txt").write_text(content)
    with pytest.raises(UserError, match=message) as refused:
        prepare_text([tmp_path / "a.txt"], **{"name": "x", "root": tmp_path / "data", **options})
    assert not list(tmp_path.glob("data/*/*"))
    kept_line(str(refused.value))


def test_a_file_is_no_text_where_its_first_bytes_hold_a_zero(tmp_path: Path) -> None:
    for n_before, is_text in ((8191, False), (8192, True)):
        (tmp_path / "a.txt").write_bytes(b"x" * n_before + b"\0")
        assert [text.size for text in find_texts([tmp_path])] == [n_before + 1] * is_text


def test_bad_paths_and_lines_are_named(tmp_path: Path, kept_line: Callable[[str], None]) -> None:
    with pytest.raises(UserError, match=r"nothing\.txt: no such file or folder") as no_file:
        prepare_text([tmp_path / "nothing.txt"], name="x", root=tmp_path)
    (tmp_path / "bare").mkdir()
    with pytest.raises(UserError, match=r"bare: no file below this folder") as no_text:
        prepare_text([tmp_path / "bare"], name="x", root=tmp_path)
    kept_line(f"{no_file.value}\n{no_text.value}")
    for number, line in enumerate(['{"text": 1}', "[1]", "{", '{"body": "a"}']):
        (tmp_path / f"{number}.jsonl").write_text('{"text": "fine"}\n' + line)
        with pytest.raises(
            UserError, match=rf"{number}\.jsonl, line 2: not a JSON object with a string \"text\""
        ):
            prepare_text([tmp_path / f"{number}.jsonl"], name="x", root=tmp_path)


def test_memory_is_bounded_on_a_text_much_larger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_module, "BLOCK_BYTES", 1 << 16)
    (tmp_path / "small.txt").write_text("validation")
    with open(tmp_path / "large.txt", "wb") as file:
        for _ in range(64):
            file.write(b"sixteen letters\n" * 4096)
    tracemalloc.start()
    corpus = prepare_text([tmp_path / "small.txt", tmp_path / "large.txt"], name="x", root=tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert corpus.tokens == {"train": 16 * 4096 * 64 + 1, "val": 11}
    assert peak < 1 << 20  # of 4 MiB of text, 8 MiB of tokens


def test_a_killed_preparation_is_no_corpus_and_starts_again_cleanly(
    tree: Path, tmp_path: Path
) -> None:
    code = (
        "import os, signal, sys\nfrom harness.corpora.text import prepare_text\n"
        "def progress(done, total):\n    if done > total / 2: os.kill(os.getpid(), signal.SIGKILL)\n"
        "prepare_text([sys.argv[1]], name='mine', root=sys.argv[2], shard_tokens=1500, progress=progress)"
    )
    command = [sys.executable, "-c", code, str(tree), str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).resolve().parents[3], check=False)
    assert done.returncode == -signal.SIGKILL
    partial = list((tmp_path / "mine").glob("*.partial"))
    assert partial
    for path in partial:
        with pytest.raises(ShardError):
            count_tokens(path)
    with pytest.raises(UserError, match="no corpus 'mine'"):
        open_corpus("mine", tmp_path)
    whole = prepare_text([tree], name="whole", root=tmp_path, shard_tokens=1500)
    again = prepare_text([tree], name="mine", root=tmp_path, shard_tokens=1500)
    assert again.fingerprint == whole.fingerprint
    assert not list((tmp_path / "mine").glob("*.partial"))


KILLED_AT = """
import os, signal, sys
from pathlib import Path
from harness.corpora.text import prepare_text
from harness.corpora.corpus import read_corpus

def die_at(n):
    calls = iter(range(1_000_000))
    def dying(function):
        def inner(*args, **options):
            if next(calls) == n:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **options)
        return inner
    os.fsync, Path.replace, Path.unlink = dying(os.fsync), dying(Path.replace), dying(Path.unlink)

tree, root, n, whole = sys.argv[1], Path(sys.argv[2]), 0, sys.argv[3]
while True:
    child = os.fork()
    if child == 0:
        die_at(n)
        prepare_text([tree], name="mine", root=root, shard_tokens=4000)
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
    if (root / "mine" / "corpus.json").exists():
        assert read_corpus(root / "mine").fingerprint == whole, f"a half corpus after a kill at call {n}"
    n += 1
assert read_corpus(root / "mine").fingerprint == whole
assert not list((root / "mine").glob("*.partial"))
print(n)
"""


def test_whenever_it_is_killed_there_is_a_whole_corpus_or_none(tree: Path, tmp_path: Path) -> None:
    """Killed before each flush, rename and removal in turn, every time into what the kill before left."""
    whole = prepare_text([tree], name="whole", root=tmp_path, shard_tokens=4000).fingerprint
    command = [sys.executable, "-c", KILLED_AT, str(tree), str(tmp_path), whole]
    done = subprocess.run(
        command,
        cwd=Path(__file__).resolve().parents[3],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10


def peak_kib(tmp_path: Path, n_mib: int) -> int:
    """Peak memory of a process that prepares so much text, by the kernel's count."""
    (tmp_path / "small.txt").write_text("validation")
    with open(tmp_path / "large.txt", "wb") as file:
        for _ in range(n_mib):
            file.write(b"sixteen letters\n" * 65536)
    code = (
        "import sys; from pathlib import Path; from harness.corpora.text import prepare_text\n"
        "prepare_text(sys.argv[2:], name='x', root=sys.argv[1], shard_tokens=1 << 21)\n"
        "print(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])"
    )
    command = [
        sys.executable,
        "-c",
        code,
        str(tmp_path),
        str(tmp_path / "small.txt"),
        str(tmp_path / "large.txt"),
    ]
    done = subprocess.run(
        command, cwd=Path(__file__).resolve().parents[3], check=True, capture_output=True, text=True
    )
    return int(done.stdout)


def test_peak_memory_does_not_grow_with_the_text(tmp_path: Path) -> None:
    """32 MiB of text, 64 MiB of tokens: no more than 8 MiB above what 2 MiB of text take."""
    assert peak_kib(tmp_path, 32) < peak_kib(tmp_path, 2) + 8 * 1024


def test_a_failed_preparation_leaves_no_corpus(tree: Path, tmp_path: Path) -> None:
    prepare_text([tree], name="mine", root=tmp_path)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_text([tree], name="mine", root=tmp_path, progress=stop)
    assert os.listdir(tmp_path / "mine") == []


# --- blocks and tokenizers


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab'1. \n\t\u00a0\u3000\u00e9\u4e2d", max_size=60), st.integers(1, 9))
def test_blocks_are_the_file_cut_where_the_words_end(
    tmp_path_factory: pytest.TempPathFactory, text: str, size: int
) -> None:
    path = tmp_path_factory.mktemp("blocks") / "a.txt"
    path.write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_module, "BLOCK_BYTES", size)
        pieces = list(file_blocks(path))
    assert b"".join(pieces) == text.encode()
    if len(text.encode()) <= 16 * size:
        decoded = [piece.decode() for piece in pieces]
        assert all(piece[0] in " \n" for piece in decoded[1:])
        assert not any(piece[-1].isspace() for piece in decoded[:-1])


def test_text_without_spaces_is_cut_in_the_end() -> None:
    assert safe_cut(b"x" * (1 << 20)) == 0
    assert safe_cut(b"x" * (16 << 20)) == 0
    assert safe_cut(b"x" * (16 << 20) + b"y") == 16 << 20
    assert safe_cut(b"x" * (16 << 20) + b"xy") == (16 << 20) + 1
    assert safe_cut(b"x" * (16 << 20) + "ä€".encode()) == (16 << 20) + 2  # no character is cut


def gpt2_merges(tmp_path: Path) -> Path:
    (tmp_path / "vocab.bpe").write_text(
        "#version: 0.2\n\u0120 t\nh e\n\u0120t he\n", encoding="utf-8"
    )
    return tmp_path / "vocab.bpe"


def test_both_kinds_of_vocabulary_file_give_the_same_table(tmp_path: Path) -> None:
    ranks = read_ranks(gpt2_merges(tmp_path))
    assert (len(ranks), ranks[b"!"], ranks[b" t"], ranks[b"he"], ranks[b" the"]) == (
        259,
        0,
        256,
        257,
        258,
    )
    assert {ranks[bytes([b])] for b in range(256)} == set(range(256))
    lines = [f"{base64.b64encode(token).decode()} {rank}" for token, rank in ranks.items()]
    (tmp_path / "gpt2.tiktoken").write_text("\n".join(lines) + "\n")
    assert read_ranks(tmp_path / "gpt2.tiktoken") == ranks


@pytest.mark.parametrize(
    "content", [b"", b'{"a": 0}', b"\xff\xfe", b"#version: 0.2\na b c\n", b"IQ== 0\nIg== 7\n"]
)
def test_what_is_no_vocabulary_is_named(
    tmp_path: Path, content: bytes, kept_line: Callable[[str], None]
) -> None:
    (tmp_path / "v").write_bytes(content)
    with pytest.raises(UserError, match=r"/v: .*give (GPT-2's )?vocab\.bpe") as bad:
        read_ranks(tmp_path / "v")
    with pytest.raises(UserError, match=r"missing: cannot be read") as missing:
        read_ranks(tmp_path / "missing")
    said = f"{bad.value}\n{missing.value}"
    for error in (bad.value, missing.value):  # where the system's words or Python's are in it
        said = said.replace(f"as a vocabulary ({error.__context__})", "as a vocabulary (...)")
    kept_line(said)


def test_gpt2_without_its_library_or_its_table_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)  # importing it fails
    with pytest.raises(UserError, match="pip install tiktoken, or use the bytes tokenizer"):
        open_tokenizer("gpt2")

    def get_encoding(name: str) -> None:
        raise ConnectionError

    offline = ModuleType("tiktoken")
    offline.get_encoding = get_encoding  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tiktoken", offline)
    with pytest.raises(
        UserError,
        match=r"cannot download GPT-2's table \(ConnectionError\): give the table as a file \(--vocabulary FILE: ",
    ):
        open_tokenizer("gpt2")


class Encoding:
    """Stands for tiktoken's: a token a character, the last one the separator."""

    def __init__(self, name: str, **how: Any) -> None:
        self.name, self.how, self.n_vocab = name, how, 5

    def encode_ordinary(self, text: str) -> list[int]:
        return [ord(letter) % 4 for letter in text]

    def decode_single_token_bytes(self, token: int) -> bytes:
        return b"abcd"[token : token + 1]


def test_gpt2s_table_is_the_librarys_or_that_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library: Any = ModuleType("tiktoken")
    library.get_encoding, library.Encoding = Encoding, Encoding
    monkeypatch.setitem(sys.modules, "tiktoken", library)
    own = open_tokenizer("gpt2")
    assert (own.name, own.vocab_size, own.separator, own.unit) == ("gpt2", 5, 4, "nats per token")
    assert own.texts == (b"a", b"b", b"c", b"d")
    tokens = own.encode("abc\u00e9".encode() + b"\xff")
    assert tokens.dtype == np.uint16 and [*tokens] == [1, 2, 3, 1, 0xFFFD % 4]
    of_file = open_tokenizer("gpt2", gpt2_merges(tmp_path))
    assert (of_file.vocab_size, of_file.separator, len(of_file.texts)) == (260, 259, 259)
    for n in (65535, 65536):
        monkeypatch.setattr("harness.corpora.tokenizers.read_ranks", lambda path, n=n: range(n))
        if n == 65535:
            assert open_tokenizer("gpt2", tmp_path).separator == n
            continue
        with pytest.raises(UserError, match="65536 tokens and a separator do not fit into a shard"):
            open_tokenizer("gpt2", tmp_path)


def test_a_tokenizer_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(UserError, match="unknown tokenizer 'gpt3': there are bytes, gpt2, bpe"):
        open_tokenizer("gpt3")


def test_gpt2_tokens_do_not_depend_on_the_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tiktoken")
    tokenizer = open_tokenizer("gpt2", gpt2_merges(tmp_path))
    assert (tokenizer.vocab_size, tokenizer.separator) == (260, 259)
    text = "the  then\n\n the\u00a0 the\n'the 12 the\t\n the" * 50
    (tmp_path / "a.txt").write_text(text)
    whole = tokenizer.encode(text.encode())
    assert b"".join(tokenizer.texts[token] for token in whole) == text.encode()
    for size in (7, 16, 64):
        monkeypatch.setattr(text_module, "BLOCK_BYTES", size)
        assert np.array_equal(
            np.concatenate([tokenizer.encode(block) for block in file_blocks(tmp_path / "a.txt")]),
            whole,
        )
