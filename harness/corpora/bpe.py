"""A byte-level BPE trained on a text, by huggingface tokenizers; its file lies with the corpus.

GPT-2's kind: bytes, split by its pattern, merged by count. The same text gives the same file.
"""

import json
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.corpora.corpus import TOKENIZER_FILE, Corpus, corpus_folder, describe
from harness.corpora.tokenizers import (
    GPT2_VOCABULARY,
    TOKENIZERS,
    Tokenizer,
    bytes_of_characters,
    open_tokenizer,
)
from harness.errors import UserError
from harness.run.digests import file_digest

LEAST = 257  # every byte, and the separator
MOST = 1 << 16  # what a shard's 16 bits tell apart
SEEN_TWICE = 2  # a pair that is there once is not worth a token


def library() -> Any:
    """Huggingface tokenizers, an extra; raises UserError where it is missing."""
    try:
        return import_module("tokenizers")
    except ImportError:
        raise UserError(
            "the bpe tokenizer needs huggingface tokenizers: pip install tokenizers, or use the "
            "bytes tokenizer"
        ) from None


def checked_size(vocab: int | None) -> int:
    """The size of a vocabulary that can be trained; raises UserError for another."""
    if vocab is None:
        raise UserError("--tokenizer bpe: say how many tokens: --vocab 4096")
    if not LEAST <= vocab <= MOST:
        raise UserError(
            f"--vocab {vocab}: from {LEAST} (every byte and the separator) to {MOST} (what a "
            "shard's 16 bits hold)"
        )
    return vocab


def train(text: Iterable[str], vocab: int) -> Tokenizer:
    """A tokenizer of `vocab` tokens, the separator among them, of text in blocks.

    Raises UserError for text that has too few pairs.
    """
    hf = library()
    bpe = hf.Tokenizer(hf.models.BPE())
    bpe.pre_tokenizer = hf.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    bpe.decoder = hf.decoders.ByteLevel()
    trainer = hf.trainers.BpeTrainer(
        vocab_size=vocab - 1,
        min_frequency=SEEN_TWICE,
        initial_alphabet=sorted(hf.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(text, trainer)
    made = bpe.get_vocab_size() + 1
    if made < vocab:
        raise UserError(
            f"--vocab {vocab}: the training text has pairs for {made} tokens alone: "
            f"--vocab {made}, or give more text"
        )
    return of_file(bpe.to_str(pretty=True))


def of_file(content: str) -> Tokenizer:
    """The tokenizer that a file's content says; its separator comes after its tokens.

    It raises UnicodeDecodeError for what is not UTF-8, UserError where text does not come back.
    """
    bpe = library().Tokenizer.from_str(content)
    n_tokens = bpe.get_vocab_size()

    def encode(block: bytes) -> NDArray[np.uint16]:
        text = block.decode("utf-8")
        ids = bpe.encode(text).ids
        if bpe.decode(ids) != text:
            raise UserError(
                f"the bpe tokenizer does not give back its text, near {text[:40]!r}: use the "
                "bytes tokenizer"
            )
        return np.array(ids, dtype=np.uint16)

    return Tokenizer(
        name="bpe",
        vocab_size=n_tokens + 1,
        separator=n_tokens,
        unit="nats per token",
        encode=encode,
        content=content,
    )


def of_corpus(name: str, root: Path | str | None = None) -> Tokenizer:
    """The tokenizer that another corpus was made with; raises UserError where it keeps none."""
    folder = corpus_folder(name, root)
    path = folder / TOKENIZER_FILE
    if not (folder / "corpus.json").exists():
        raise UserError(
            f"unknown tokenizer '{name}': there are {', '.join(TOKENIZERS)}, bpe, and every "
            "corpus with a bpe of its own"
        )
    digest = describe(folder).tokenizer
    if digest is None:
        raise UserError(
            f"--tokenizer {name}: that corpus has no tokenizer of its own: name bytes or gpt2"
        )
    if not path.exists() or file_digest(path) != digest:
        raise UserError(
            f"{path}: its content is not what corpus.json says: bring that file back, or prepare "
            "that corpus again"
        )
    return of_file(path.read_text(encoding="utf-8"))


def texts_of(content: str) -> list[bytes]:
    """The bytes of every token of a file's content but the separator, by id."""
    ids = json.loads(content)["model"]["vocab"]
    return [bytes_of_characters(text) for text in sorted(ids, key=ids.__getitem__)]


def token_texts(corpus: Corpus) -> list[bytes | None]:
    """The bytes of every token of a corpus, None of its separator.

    Raises UserError where they are not known, or are single bytes all.
    """
    texts: Sequence[bytes] = ()
    if corpus.tokenizer is not None:
        texts = texts_of((corpus.folder / TOKENIZER_FILE).read_text(encoding="utf-8"))
    elif corpus.vocab_size == GPT2_VOCABULARY:
        texts = open_tokenizer("gpt2").texts
    if len(texts) + 1 != corpus.vocab_size or corpus.separator != len(texts):
        raise UserError(
            f"loss.prefix_weight needs tokens of several bytes that are known, which those of "
            f"corpus '{corpus.name}' are not: prepare it with --tokenizer bpe or gpt2, or leave "
            "loss.prefix_weight at 0.0"
        )
    return [*texts, None]
