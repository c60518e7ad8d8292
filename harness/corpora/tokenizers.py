"""Text to tokens: a table of tokenizers. Those that are trained on text: bpe.py."""

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.errors import UserError

GPT2_VOCABULARY = 50257  # its tokens, and <|endoftext|>
# Radford et al. 2019: contractions, words, numbers, other runs (each with one leading space),
# white space
GPT2_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""


@dataclass(frozen=True, kw_only=True)
class Tokenizer:
    """`encode` takes a block of UTF-8 text; `separator` is a token that no text contains."""

    name: str
    vocab_size: int
    separator: int
    unit: str
    encode: Callable[[bytes], NDArray[np.uint16]]
    content: str = ""  # of the file that is kept with the corpus, of one trained on text
    texts: tuple[bytes, ...] = ()  # of every token but the separator, where one has several bytes


@dataclass(frozen=True, kw_only=True)
class TokenizerChoice:
    """A tokenizer by its name, or by that of a corpus that was made with one of its own.

    vocabulary: the file of gpt2's table; vocab: how many tokens bpe is to have.
    """

    name: str = "bytes"
    vocabulary: Path | None = None
    vocab: int | None = None


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
        encode=bytes_of,
    )


def bytes_of(block: bytes) -> NDArray[np.uint16]:
    return np.frombuffer(block, dtype=np.uint8).astype(np.uint16)


def gpt2_tokenizer(vocabulary: Path | None = None) -> Tokenizer:
    """GPT-2's byte-level BPE through tiktoken.

    Its table is from `vocabulary`, or else from tiktoken's cache or download.
    """
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
                "as a file (--vocabulary FILE: GPT-2's vocab.bpe, merges.txt or a .tiktoken file), "
                "or use the bytes tokenizer"
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

    def encode(block: bytes) -> NDArray[np.uint16]:
        text = block.decode("utf-8", "replace")
        return np.array(encoding.encode_ordinary(text), dtype=np.uint16)

    return Tokenizer(
        name="gpt2",
        vocab_size=n_ranks + 1,
        separator=n_ranks,  # GPT-2's <|endoftext|>, 50256; encode_ordinary never makes it from text
        unit="nats per token",
        encode=encode,
        texts=tuple(map(encoding.decode_single_token_bytes, range(n_ranks))),
    )


def read_ranks(path: Path) -> dict[bytes, int]:
    """A BPE table, token -> rank.

    A .tiktoken file (base64 and rank on a line) or GPT-2's merges (vocab.bpe, merges.txt).
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path}: cannot be read as a vocabulary ({error}): give vocab.bpe, merges.txt or a "
            ".tiktoken file"
        ) from None
    parse = ranks_from_base64
    if lines and lines[0].startswith("#version"):
        parse = ranks_from_merges
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
    ranks = {}
    for line in filter(None, lines):
        token, rank = line.split()
        ranks[base64.b64decode(token, validate=True)] = int(rank)
    return ranks


@cache
def byte_of_character() -> Mapping[str, int]:
    """Printable character -> byte, as GPT-2's merges write bytes.

    Those of Latin-1 stand for themselves, the others for 256, 257, ...; in the order of the ranks.
    """
    printable = [byte for byte in range(256) if chr(byte).isprintable() and chr(byte) != " "]
    others = [byte for byte in range(256) if byte not in printable]
    byte_of = {chr(byte): byte for byte in printable}
    for n, byte in enumerate(others):
        byte_of[chr(256 + n)] = byte
    return byte_of


def bytes_of_characters(text: str) -> bytes:
    """Raises KeyError for a character that stands for no byte."""
    return bytes(byte_of_character()[character] for character in text)


def ranks_from_merges(lines: list[str]) -> dict[bytes, int]:
    """Ranks of GPT-2's merges."""
    ranks = {bytes([byte]): rank for rank, byte in enumerate(byte_of_character().values())}
    for line in filter(None, lines[1:]):
        first, second = line.split(" ")
        merged = bytes_of_characters(first + second)
        ranks[merged] = len(ranks)
    return ranks


TOKENIZERS: dict[str, Callable[[Path | None], Tokenizer]] = {
    "bytes": byte_tokenizer,
    "gpt2": gpt2_tokenizer,
}


def open_tokenizer(name: str, vocabulary: Path | None = None) -> Tokenizer:
    """One of the table; raises UserError for an unknown name or a table that cannot be read."""
    if name not in TOKENIZERS:
        raise UserError(f"unknown tokenizer '{name}': there are {', '.join(TOKENIZERS)}, bpe")
    return TOKENIZERS[name](vocabulary)
