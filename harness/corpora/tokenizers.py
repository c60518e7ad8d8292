"""Text to tokens: a table of tokenizers. A new one (say, trained on the text) is one more entry."""

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.errors import UserError

# Radford et al. 2019: contractions, words, numbers, other runs (each with one leading space), white space
GPT2_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""


@dataclass(frozen=True, kw_only=True)
class Tokenizer:
    """`encode` takes a block of UTF-8 text; `separator` is a token that no text contains."""

    name: str
    vocab_size: int
    separator: int
    unit: str
    encode: Callable[[bytes], NDArray[np.uint16]]


def byte_tokenizer(vocabulary: Path | None = None) -> Tokenizer:
    """Every byte is a token; no vocabulary file."""
    if vocabulary is not None:
        raise UserError(
            f"{vocabulary}: the bytes tokenizer has no vocabulary: leave it out, or choose gpt2"
        )
    return Tokenizer(
        name="bytes",
        vocab_size=257,
        separator=256,
        unit="nats per byte",
        encode=lambda block: np.frombuffer(block, dtype=np.uint8).astype(np.uint16),
    )


def gpt2_tokenizer(vocabulary: Path | None = None) -> Tokenizer:
    """GPT-2's byte-level BPE through tiktoken, its table from `vocabulary` or else from tiktoken's cache or download."""
    try:
        tiktoken = import_module("tiktoken")  # optional, so imported by name where it is used
    except ImportError:
        raise UserError(
            "the gpt2 tokenizer needs tiktoken: pip install tiktoken, or use the bytes tokenizer"
        ) from None
    if vocabulary is None:
        try:
            encoding = tiktoken.get_encoding("gpt2")
        except Exception as error:  # whatever its HTTP library raises
            raise UserError(
                f"tiktoken cannot download GPT-2's table ({type(error).__name__}): give the table "
                "as a file "
                "(GPT-2's vocab.bpe, merges.txt or a .tiktoken file), or use the bytes tokenizer"
            ) from None
        n_ranks = encoding.n_vocab - 1
    else:
        ranks = read_ranks(vocabulary)
        n_ranks = len(ranks)
        if n_ranks > 65535:
            raise UserError(
                f"{vocabulary}: {n_ranks} tokens and a separator do not fit into a shard's 16 "
                "bits: use a smaller table"
            )
        encoding = tiktoken.Encoding(
            vocabulary.name, pat_str=GPT2_PATTERN, mergeable_ranks=ranks, special_tokens={}
        )
    return Tokenizer(
        name="gpt2",
        vocab_size=n_ranks + 1,
        separator=n_ranks,  # GPT-2's <|endoftext|>, 50256; encode_ordinary never makes it from text
        unit="nats per token",
        encode=lambda block: np.array(
            encoding.encode_ordinary(block.decode("utf-8", "replace")), dtype=np.uint16
        ),
    )


def read_ranks(path: Path) -> dict[bytes, int]:
    """A BPE table, token -> rank: a .tiktoken file (base64 and rank on a line) or GPT-2's merges (vocab.bpe, merges.txt)."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path}: cannot be read as a vocabulary ({error}): give vocab.bpe, merges.txt or a "
            ".tiktoken file"
        ) from None
    parse = ranks_from_merges if lines and lines[0].startswith("#version") else ranks_from_base64
    try:
        ranks = parse(lines)
    except (ValueError, KeyError, binascii.Error):
        ranks = {}
    if len(ranks) < 256 or sorted(ranks.values()) != list(range(len(ranks))):
        raise UserError(
            f"{path}: not a BPE table: give GPT-2's vocab.bpe or merges.txt (first line "
            "'#version: ...'), or a .tiktoken file"
        )
    return ranks


def ranks_from_base64(lines: list[str]) -> dict[bytes, int]:
    pairs = (line.split() for line in lines if line)
    return {base64.b64decode(token, validate=True): int(rank) for token, rank in pairs}


def ranks_from_merges(lines: list[str]) -> dict[bytes, int]:
    """GPT-2 writes bytes as printable characters: those of Latin-1 stand for themselves, the others for 256, 257, ..."""
    printable = [b for b in range(256) if chr(b).isprintable() and chr(b) != " "]
    others = [b for b in range(256) if b not in printable]
    byte_of = {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(others)}
    ranks = {bytes([b]): rank for rank, b in enumerate(printable + others)}
    for line in lines[1:]:
        if line:
            first, second = line.split(" ")
            ranks[bytes(byte_of[c] for c in first + second)] = len(ranks)
    return ranks


TOKENIZERS: dict[str, Callable[[Path | None], Tokenizer]] = {
    "bytes": byte_tokenizer,
    "gpt2": gpt2_tokenizer,
}


def open_tokenizer(name: str, vocabulary: Path | None = None) -> Tokenizer:
    if name not in TOKENIZERS:
        raise UserError(f"unknown tokenizer '{name}': there are {', '.join(TOKENIZERS)}")
    return TOKENIZERS[name](vocabulary)
