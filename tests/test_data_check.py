"""`check` reads every token and names every file that is wrong."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.data import check as check_module
from harness.data import shards as shards_module
from harness.data.check import check, documents
from harness.data.corpora import prepare_text
from harness.data.shards import MAGIC, header, write_shard
from harness.errors import UserError


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("".join(f"line {n}\n" for n in range(200)))
    return prepare_text([tmp_path / "a.txt"], name="mine", root=tmp_path, documents="line", shard_tokens=600).folder


def test_a_sound_corpus_passes_with_its_statistics(corpus: Path) -> None:
    report = check(corpus)
    assert report["ok"], report["problems"]
    assert (report["vocab_size"], report["separator"]) == (257, 256)
    assert report["overlap"] == {"train": 0}
    facts = json.loads((corpus / "corpus.json").read_text())
    for role, found in report["documents"].items():
        assert found["documents"] == facts["documents"][role]
        assert found["documents"] * (1 + found["mean"]) == pytest.approx(facts["tokens"][role])
        assert 7 <= found["shortest"] <= found["median"] <= found["longest"] <= 9
    assert sum(file["separators"] for file in report["files"]) == 200
    json.dumps(report)


BAD_FILES = {
    "zero length": b"",
    "truncated header": header(2)[:500],
    "truncated": header(9) + bytes(4),
    "too long": header(1) + bytes(4),
    "wrong endian": int.to_bytes(MAGIC, 4, "big") + header(2)[4:] + bytes(4),
    "wrong magic": b"\0\0\0\0" + header(2)[4:] + bytes(4),
    "wrong version": header(2)[:4] + b"\2" + header(2)[5:] + bytes(4),
    "no tokens": header(0),
}


def test_all_bad_files_of_a_folder_are_named(tmp_path: Path) -> None:
    for kind, content in BAD_FILES.items():
        (tmp_path / f"{kind}.bin").write_bytes(content)
    write_shard(tmp_path / "x_val_000000.bin", np.array([50256, 50257]))
    report = check(tmp_path)
    assert not report["ok"]
    for kind in BAD_FILES:
        assert [line for line in report["problems"] if line.startswith(f"{tmp_path / kind}.bin: {kind}: ")]
    assert any("x_val_000000.bin: token 50257 is beyond the vocabulary of 50257" in line for line in report["problems"])
    assert len(report["problems"]) == len(BAD_FILES) + 1
    json.dumps(report)


def test_a_single_shard_can_be_checked(tmp_path: Path) -> None:
    write_shard(tmp_path / "a.bin", np.array([256, 1, 2, 256, 256, 3]))
    report = check(tmp_path / "a.bin", vocab_size=257, separator=256)
    assert report["ok"]
    found = report["documents"]["unknown"]
    assert (found["documents"], found["empty"], found["longest"]) == (3, 1, 2)


def test_nothing_to_check_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no \.bin file in this folder"):
        check(tmp_path)
    with pytest.raises(UserError, match=r"nowhere: no such file or folder"):
        check(tmp_path / "nowhere")


def test_content_that_is_not_the_descriptions_is_named(corpus: Path) -> None:
    path = corpus / "mine_val_000000.bin"
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    problems = check(corpus)["problems"]
    assert problems[0].startswith(f"{path}: its content is not what corpus.json says")
    assert "the fingerprint in corpus.json is not that of its content" in problems[1]
    (corpus / "corpus.json").write_text("{")
    assert "not a corpus description" in check(corpus)["problems"][0]


def test_shared_documents_and_missing_separators_are_warned_of(tmp_path: Path) -> None:
    write_shard(tmp_path / "x_train_000001.bin", np.array([9, 256, 1, 2, 256, 256, 3]))
    write_shard(tmp_path / "x_train_000002.bin", np.array([4, 4]))
    write_shard(tmp_path / "x_val_000000.bin", np.array([256, 1, 2, 256, 256, 3, 4, 4]))
    report = check(tmp_path, vocab_size=257, separator=256)
    assert report["ok"]
    assert report["overlap"] == {"train": 2}  # (1, 2), and (3, 4, 4) across two shards; the empty one does not count
    assert report["warnings"] == [
        f"{tmp_path / 'x_train_000002.bin'}: no separator 256 in it",
        "2 train documents are in validation too, word for word",
        f"{tmp_path / 'x_train_000001.bin'}: does not begin with the separator 256: its first document lacks its beginning",
    ]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2), max_size=9), min_size=1, max_size=12), st.integers(1, 7), st.integers(1, 5))
def test_documents_are_found_across_shards_and_blocks(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[int]], shard_tokens: int, block_tokens: int
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    stream = np.array([token for text in texts for token in [7, *text]])
    paths = []
    for start in range(0, len(stream), shard_tokens):
        paths.append(folder / f"{start}.bin")
        write_shard(paths[-1], stream[start : start + shard_tokens])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards_module, "BLOCK_TOKENS", block_tokens)
        patch.setattr(check_module, "BLOCK_TOKENS", block_tokens)
        found = list(documents(paths, 7))
    assert [length for length, _ in found] == [len(text) for text in texts]
    for a, b in zip(range(len(texts)), range(1, len(texts))):
        assert (found[a][1] == found[b][1]) == (texts[a] == texts[b])
