"""A tokenizer trained on your own text: on its training part alone, the same each time, and every byte comes back."""

import hashlib
import json
import random
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from harness.corpora import bpe as bpe_module
from harness.corpora.bpe import token_texts
from harness.corpora.check import check
from harness.corpora.corpus import TOKENIZER_FILE, Corpus
from harness.corpora.index import open_heldout
from harness.corpora.text import prepare_text
from harness.corpora.tokenizers import TokenizerChoice
from harness.data.shards import open_shard
from harness.errors import UserError

tokenizers = pytest.importorskip("tokenizers")
WORDS = ["the", "cat", "sat", "on", "a", "mat", "naïve", "Ω–words", "12", "345\tso", "it"]


def bpe(vocab: int) -> TokenizerChoice:
    return TokenizerChoice(name="bpe", vocab=vocab)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """text/ of 40 files of drawn words, other/ of another's."""
    root, draw = tmp_path_factory.mktemp("bpe"), random.Random(7)
    for place, ending in (("text", "!\n"), ("other", "?\n")):
        (root / place).mkdir()
        for n in range(40):
            words = " ".join(draw.choice(WORDS) for _ in range(120))
            (root / place / f"{n}.txt").write_text(words + ending, encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def mine(folder: Path) -> Corpus:
    return prepare_text([folder / "text"], name="mine", root=folder, tokenizer=bpe(280))


def decoded(corpus: Corpus, role: str, *, by: Path) -> list[str]:
    """The documents of a role, by a tokenizer's file."""
    opened = tokenizers.Tokenizer.from_file(str(by))
    tokens = np.concatenate([open_shard(path) for path in corpus.shards[role]])
    pieces = np.split(tokens, np.flatnonzero(tokens == corpus.separator))
    return [opened.decode(piece[1:].tolist()) for piece in pieces[1:]]


def test_every_document_comes_back_from_the_file_that_lies_with_the_corpus(
    folder: Path, mine: Corpus
) -> None:
    kept = mine.folder / TOKENIZER_FILE
    found = decoded(mine, "train", by=kept) + decoded(mine, "val", by=kept)
    assert sorted(found) == sorted(p.read_text("utf-8") for p in folder.glob("text/*.txt"))
    assert (mine.vocab_size, mine.separator, mine.unit) == (280, 279, "nats per token")
    assert mine.tokenizer == hashlib.sha256(kept.read_bytes()).hexdigest()
    assert json.loads((mine.folder / "corpus.json").read_text())["files"][TOKENIZER_FILE]


def test_a_document_is_the_bytes_of_its_tokens(folder: Path, mine: Corpus) -> None:
    texts = token_texts(mine)
    assert texts[mine.separator] is None
    tokens = np.concatenate([open_shard(path) for path in mine.train])
    read = b"".join(texts[token] or b"\0" for token in tokens)
    written = {path.read_bytes() for path in folder.glob("text/*.txt")}
    documents = read.split(b"\0")[1:]
    assert len(documents) > 20 and set(documents) <= written
    assert max(len(text or b"") for text in texts) > 2


def test_tokens_whose_bytes_are_not_known_have_no_prefixes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text").mkdir()
    for n in range(20):
        (tmp_path / "text" / f"{n}.txt").write_text(f"{n} lines of text\n" * 20)
    corpus = prepare_text([tmp_path / "text"], name="plain", root=tmp_path)
    with pytest.raises(UserError, match=r"loss\.prefix_weight needs tokens .* corpus 'plain'"):
        token_texts(corpus)
    monkeypatch.setattr(
        bpe_module, "open_tokenizer", lambda name: SimpleNamespace(texts=[name] * 50256)
    )
    of_gpt2 = replace(corpus, vocab_size=50257, separator=50256)
    texts = token_texts(of_gpt2)
    assert texts[0] == "gpt2" and texts[50256] is None and len(texts) == 50257
    with pytest.raises(UserError, match=r"loss\.prefix_weight needs tokens"):
        token_texts(replace(of_gpt2, separator=0))


def test_it_knows_its_bytes_per_token(folder: Path, mine: Corpus) -> None:
    assert mine.bytes_per_token
    n_bytes = sum(mine.tokens[role] * mine.bytes_per_token[role] for role in ("train", "val"))
    assert round(n_bytes) == sum(p.stat().st_size for p in folder.glob("text/*.txt"))
    assert mine.bytes_per_token["val"] > 1.5


def test_it_is_the_same_each_time_and_of_the_training_text_alone(
    folder: Path, mine: Corpus
) -> None:
    again = prepare_text([folder / "text"], name="again", root=folder, tokenizer=bpe(280))
    assert again.files[TOKENIZER_FILE] == mine.files[TOKENIZER_FILE]
    assert again.fingerprint == mine.fingerprint
    training = tokenizers.Tokenizer(tokenizers.models.BPE())
    training.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=279,
        min_frequency=2,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    documents = decoded(mine, "train", by=mine.folder / TOKENIZER_FILE)
    training.train_from_iterator(documents, trainer)
    kept = tokenizers.Tokenizer.from_file(str(mine.folder / TOKENIZER_FILE))
    assert training.get_vocab() == kept.get_vocab()


def test_another_text_with_the_same_tokenizer_can_be_its_held_out_text(
    folder: Path, mine: Corpus
) -> None:
    same = TokenizerChoice(name="mine")
    other = prepare_text([folder / "other"], name="other", root=folder, tokenizer=same)
    assert other.tokenizer == mine.tokenizer
    assert open_heldout("other", mine, folder).n_tokens == other.tokens["val"]
    prepare_text([folder / "other"], name="own", root=folder, tokenizer=bpe(280))
    with pytest.raises(UserError, match=r"has other tokens than 'mine'.*--tokenizer mine"):
        open_heldout("own", mine, folder)


def test_a_tokenizer_that_was_edited_is_refused_and_found(folder: Path) -> None:
    edited = prepare_text([folder / "text"], name="edited", root=folder, tokenizer=bpe(270))
    with open(edited.folder / TOKENIZER_FILE, "a") as file:
        file.write("\n")
    report = check(edited.folder)
    assert not report.ok and TOKENIZER_FILE in report.problems[0]
    with pytest.raises(UserError, match=r"not what corpus\.json says"):
        prepare_text(
            [folder / "other"], name="x", root=folder, tokenizer=TokenizerChoice(name="edited")
        )
    assert prepare_text([folder / "text"], name="edited", root=folder).tokenizer is None
    assert not (edited.folder / TOKENIZER_FILE).exists()


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        (bpe(256), "--vocab 256: from 257"),
        (bpe(65537), "--vocab 65537: from 257.*to 65536"),
        (TokenizerChoice(name="bpe"), "say how many tokens: --vocab 4096"),
        (bpe(4096), r"--vocab 4096: the training text has pairs for \d+ tokens alone"),
        (TokenizerChoice(name="bytes", vocab=280), "--vocab is for --tokenizer bpe"),
        (TokenizerChoice(name="bep"), "unknown tokenizer 'bep': there are bytes, gpt2, bpe"),
        (
            TokenizerChoice(name="mine", vocabulary=Path("x")),
            "--vocabulary is for --tokenizer gpt2",
        ),
        (TokenizerChoice(name="plain"), "no tokenizer of its own: name bytes or gpt2"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_and_loses_nothing(
    folder: Path,
    mine: Corpus,
    choice: TokenizerChoice,
    says: str,
    kept_line: Callable[[str], None],
) -> None:
    prepare_text([folder / "other"], name="plain", root=folder)
    with pytest.raises(UserError, match=says) as refused:
        prepare_text([folder / "text"], name="mine", root=folder, tokenizer=choice)
    assert check(mine.folder).ok
    said = str(refused.value)
    found = re.search(r"pairs for (\d+) tokens", said)  # how many is the library's affair
    kept_line(said.replace(found[1], "N") if found else said)


def test_a_tokenizer_that_does_not_give_its_text_back_is_refused(
    monkeypatch: pytest.MonkeyPatch, kept_line: Callable[[str], None]
) -> None:
    """As one that somebody else made may do: it puts a letter in the place of another."""
    ours = SimpleNamespace(
        get_vocab_size=lambda: 3,
        encode=lambda text: SimpleNamespace(ids=[1] * len(text)),
        decode=lambda ids: "a" * len(ids),
    )
    library = SimpleNamespace(Tokenizer=SimpleNamespace(from_str=lambda content: ours))
    monkeypatch.setattr(bpe_module, "library", lambda: library)
    tokenizer = bpe_module.of_file("{}")
    assert list(tokenizer.encode(b"aaa")) == [1, 1, 1]
    with pytest.raises(UserError, match="does not give back its text, near 'abc") as refused:
        tokenizer.encode(b"abc" * 20)
    kept_line(str(refused.value))


def test_text_that_is_not_utf8_is_named(
    folder: Path, tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    (tmp_path / "latin.txt").write_bytes("naïve ".encode("latin-1") * 100)
    paths = [folder / "text", tmp_path / "latin.txt"]
    with pytest.raises(UserError, match=r"latin.txt: not UTF-8 \(byte 0xef\)") as refused:
        prepare_text(paths, name="bad", root=tmp_path, tokenizer=bpe(280))
    kept_line(str(refused.value))


def test_where_the_library_is_missing_one_line_says_how_to_get_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kept_line: Callable[[str], None]
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UserError, match="pip install tokenizers") as refused:
        prepare_text([folder / "text"], name="none", root=folder, tokenizer=bpe(280))
    kept_line(str(refused.value))
