"""`check` reads every token and names every file that is wrong."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.__main__ import main
from harness.corpora import check as check_module
from harness.corpora.check import ShardFacts, check, documents
from harness.corpora.corpus import write_corpus
from harness.corpora.text import prepare_text
from harness.data import shards as shards_module
from harness.data.shards import MAGIC, header, write_shard
from harness.errors import UserError


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("".join(f"line {n}\n" for n in range(200)))
    return prepare_text(
        [tmp_path / "a.txt"], name="mine", root=tmp_path, documents="line", shard_tokens=600
    ).folder


def test_a_sound_corpus_passes_with_its_statistics(corpus: Path) -> None:
    report = check(corpus)
    assert report.ok, report.problems
    assert (report.vocab_size, report.separator) == (257, 256)
    assert report.overlap == {"train": 0}
    facts = json.loads((corpus / "corpus.json").read_text())
    for role, found in report.documents.items():
        assert found["documents"] == facts["documents"][role]
        assert found["documents"] * (1 + found["mean"]) == pytest.approx(facts["tokens"][role])
        assert 7 <= found["shortest"] <= found["median"] <= found["longest"] <= 9
    assert sum(file.separators for file in report.files) == 200
    json.dumps(asdict(report))


SOUND = header(4) + np.array([256, 1, 256, 2], dtype="<u2").tobytes()
BAD_FILES = {  # what is wrong, as the manual's table has it -> the file's content
    "`zero length`": b"",
    "`truncated header`": SOUND[:1000],
    "`truncated`": SOUND[:-1],
    "`too long`": SOUND + b"\0",
    "`wrong endian`": int.to_bytes(MAGIC, 4, "big") + SOUND[4:],
    "`wrong magic`": int.to_bytes(MAGIC + 1, 4, "little") + SOUND[4:],
    "`wrong version`": SOUND[:4] + b"\2" + SOUND[5:],
    "`no tokens`": header(0),
    "a token beyond the vocabulary": SOUND[:-2] + b"\x01\x01",
    "content changed since": SOUND[:-2] + b"\x03\x00",
    "fewer tokens than were prepared": header(2) + SOUND[1024:1028],
    "no separator": header(4) + bytes(8),
    "a document cut off in front": header(4) + SOUND[1026:] + bytes(2),
    "a document of the validation set": SOUND[:-6] + b"\x03\x00" + SOUND[-4:],
}
BAD_DESCRIPTIONS: dict[str, Callable[[Path], object]] = {
    "the shard is gone": lambda shard: shard.unlink(),
    "`corpus.json` is damaged": lambda shard: (shard.parent / "corpus.json").write_text("{"),
}


def manual() -> dict[str, str]:
    """What is wrong -> what the manual says that `data check` prints."""
    text = (Path(__file__).resolve().parents[3] / "docs" / "data.md").read_text(encoding="utf-8")
    rows = text.split("\n| what is wrong |", 1)[1].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row[1:-1].split("|")] for row in rows]
    return {what: said.strip("`") for what, said in cells}


@pytest.mark.parametrize("what", [*BAD_FILES, *BAD_DESCRIPTIONS])
def test_every_bad_file_is_named_as_the_manual_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str, kept_line: Callable[[str], None]
) -> None:
    """One training shard of a small corpus is spoilt."""
    folder = tmp_path / "mine"
    folder.mkdir()
    train, val = folder / "mine_train_000001.bin", folder / "mine_val_000000.bin"
    train.write_bytes(SOUND)
    write_shard(val, np.array([256, 3]))
    write_corpus(
        folder,
        {"train": [train], "val": [val]},
        vocab_size=257,
        separator=256,
        unit="nats per byte",
        source="a test",
    )
    assert check(folder).ok
    if what in BAD_FILES:
        train.write_bytes(BAD_FILES[what])
    else:
        BAD_DESCRIPTIONS[what](train)
    with pytest.raises(SystemExit) as ended:
        main(["data", "check", str(folder)])
    assert ended.value.code == 1
    printed = [
        line
        for line in capsys.readouterr().out.splitlines()
        if line.startswith(("problem: ", "warning: "))
    ]
    told = [line.replace(f"{folder}/", "").replace(str(folder), "mine") for line in printed]
    assert manual()[what] in told
    kept_line("\n".join(told))


def test_the_manual_lists_what_is_tried_and_no_more() -> None:
    assert set(manual()) == {*BAD_FILES, *BAD_DESCRIPTIONS}


def test_all_bad_files_of_a_folder_are_named(tmp_path: Path) -> None:
    kinds = [kind.strip("`") for kind in BAD_FILES if kind.startswith("`")]
    for kind in kinds:
        (tmp_path / f"{kind}.bin").write_bytes(BAD_FILES[f"`{kind}`"])
    write_shard(tmp_path / "x_val_000000.bin", np.array([50256, 50257]))
    report = check(tmp_path)
    assert not report.ok
    for kind in kinds:
        assert [
            line for line in report.problems if line.startswith(f"{tmp_path / kind}.bin: {kind}: ")
        ]
    assert any(
        "x_val_000000.bin: token 50257 is beyond the vocabulary of 50257" in line
        for line in report.problems
    )
    assert len(report.problems) == len(kinds) + 1
    json.dumps(asdict(report))


def test_a_single_shard_can_be_checked(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    write_shard(path, np.array([256, 1, 2, 3, 256, 256, 9, 256, 4]))
    report = check(path, vocab_size=257, separator=256)
    assert (report.ok, report.problems, report.warnings, report.overlap) == (True, [], [], {})
    assert (report.path, report.vocab_size, report.separator) == (str(path), 257, 256)
    facts = {"tokens": 9, "lowest": 1, "highest": 256, "separators": 4}
    assert report.files == [ShardFacts(file=str(path), role="unknown", **facts)]
    lengths = {"shortest": 0, "median": 1.0, "mean": 1.25, "longest": 3}
    assert report.documents == {"unknown": {"documents": 4, "empty": 1, **lengths}}


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
    digest = hashlib.sha256(content).hexdigest()
    assert check(corpus).problems == [
        f"{path}: its content is not what corpus.json says (sha256 {digest[:16]}...): prepare the "
        "corpus again",
        f"{corpus}: the fingerprint in corpus.json is not that of its content: prepare the corpus "
        "again",
    ]
    content[-2] ^= 1
    path.write_bytes(content)
    facts = json.loads((corpus / "corpus.json").read_text())
    for digit in "0f":
        (corpus / "corpus.json").write_text(json.dumps(facts | {"fingerprint": digit * 64}))
        (problem,) = check(corpus).problems
        assert "the fingerprint in corpus.json is not that of its content" in problem
    (corpus / "corpus.json").write_text("{")
    assert "not a corpus description" in check(corpus).problems[0]


def test_shared_documents_and_missing_separators_are_warned_of(tmp_path: Path) -> None:
    write_shard(tmp_path / "x_train_000001.bin", np.array([9, 256, 1, 2, 256, 256, 3]))
    write_shard(tmp_path / "x_train_000002.bin", np.array([4, 4]))
    write_shard(tmp_path / "x_val_000000.bin", np.array([256, 1, 2, 256, 256, 3, 4, 4]))
    report = check(tmp_path, vocab_size=257, separator=256)
    assert report.ok
    assert report.overlap == {
        "train": 2
    }  # (1, 2), and (3, 4, 4) across two shards; the empty one does not count
    assert report.warnings == [
        f"{tmp_path / 'x_train_000002.bin'}: no separator 256 in it",
        "2 train documents are in validation too, word for word",
        f"{tmp_path / 'x_train_000001.bin'}: does not begin with the separator 256: its first document lacks its beginning",
    ]


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 2), max_size=9), min_size=1, max_size=12),
    st.integers(1, 7),
    st.integers(1, 5),
)
def test_documents_are_found_across_shards_and_blocks(
    tmp_path_factory: pytest.TempPathFactory,
    texts: list[list[int]],
    shard_tokens: int,
    block_tokens: int,
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
