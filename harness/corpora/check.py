"""Is this data sound? Headers, sizes, token ranges, separators, digests, shared documents."""

import hashlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from harness.corpora.corpus import TOKENIZER_FILE, Corpus, describe, fingerprint_of
from harness.data.shards import BLOCK_TOKENS, Tokens, blocks, open_shard
from harness.errors import UserError
from harness.run.digests import file_digest

# validation first: its documents are looked for in the others
ROLES_TO_READ = ("val", "train", "heldout", "unknown")


@dataclass(frozen=True, kw_only=True)
class ShardFacts:
    """What is in one shard; no numbers of one that cannot be opened."""

    file: str
    role: str
    problem: str | None = None  # what is wrong with it
    tokens: int | None = None
    lowest: int | None = None
    highest: int | None = None
    separators: int | None = None


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """What was seen of a shard, a folder of shards or a prepared corpus."""

    path: str
    ok: bool
    problems: list[str]  # a line each, the file named
    warnings: list[str]
    vocab_size: int
    separator: int
    files: list[ShardFacts]
    # role -> number of documents and their lengths in tokens; only where every file is sound
    documents: dict[str, dict[str, float]]
    overlap: dict[str, int]  # role -> documents that validation holds too


def check(path: Path | str, *, vocab_size: int = 50257, separator: int = 50256) -> CheckReport:
    """Look at every token of a shard, a folder of shards or a prepared corpus.

    A corpus's own vocabulary and separator then hold. Raises UserError only where there is nothing
    to look at.
    """
    path, corpus = Path(path), None
    problems: list[str] = []
    if (path / "corpus.json").exists():
        try:
            corpus = describe(path)
            vocab_size, separator = corpus.vocab_size, corpus.separator
        except UserError as error:
            problems.append(str(error))
    roles: Mapping[str, Sequence[Path]] = corpus.shards if corpus else shards_below(path)
    files = []
    for role, paths in roles.items():
        for file in paths:
            files.append(look_at(file, role, vocab_size, separator))
    for facts in files:
        if facts.problem:
            problems.append(facts.problem)
    sound = all(facts.tokens for facts in files)
    if corpus and sound:
        problems.extend(against_description(corpus, files))
    lengths: dict[str, dict[str, float]] = {}
    overlap: dict[str, int] = {}
    if sound:
        lengths, overlap = read_documents(roles, separator)
    warnings = list(unusual(files, overlap, separator))
    if sound:
        warnings.extend(beginnings_lost(roles, separator))
    return CheckReport(
        path=str(path),
        ok=not problems,
        problems=problems,
        warnings=warnings,
        vocab_size=vocab_size,
        separator=separator,
        files=files,
        documents=lengths,
        overlap=overlap,
    )


def unusual(
    files: Sequence[ShardFacts], overlap: Mapping[str, int], separator: int
) -> Iterator[str]:
    """What may be as it should, but seldom is."""
    for facts in files:
        if facts.separators == 0:
            yield f"{facts.file}: no separator {separator} in it"
    for role, n in overlap.items():
        if n:
            yield f"{n} {role} documents are in validation too, word for word"


def beginnings_lost(roles: Mapping[str, Sequence[Path]], separator: int) -> Iterator[str]:
    """The roles whose first document was cut."""
    for paths in roles.values():
        if paths and open_shard(paths[0])[0] != separator:
            yield (
                f"{paths[0]}: does not begin with the separator {separator}: "
                "its first document lacks its beginning"
            )


def shards_below(path: Path) -> dict[str, list[Path]]:
    """Role -> shards, of a single file or of a folder.

    The role is read from the benchmark's file names.
    """
    if not path.exists():
        raise UserError(f"{path}: no such file or folder: check the path")
    files = sorted(path.glob("*.bin")) if path.is_dir() else [path]
    if not files:
        raise UserError(f"{path}: no .bin file in this folder: check the path")
    roles: dict[str, list[Path]] = {}
    for file in files:
        roles.setdefault(role_of(file), []).append(file)
    return roles


def role_of(file: Path) -> str:
    """The role that the benchmark's file name says."""
    for role in ROLES_TO_READ:
        if f"_{role}_" in file.name:
            return role
    return "unknown"


def look_at(file: Path, role: str, vocab_size: int, separator: int) -> ShardFacts:
    """One shard's facts, every token looked at."""
    try:
        tokens = open_shard(file)
    except UserError as error:
        return ShardFacts(file=str(file), role=role, problem=str(error))
    lowest = highest = int(tokens[0])
    separators = 0
    for block in blocks(tokens):
        lowest = min(lowest, int(block.min()))
        highest = max(highest, int(block.max()))
        separators += int(np.count_nonzero(block == separator))
    problem = None
    if highest >= vocab_size:
        problem = (
            f"{file}: token {highest} is beyond the vocabulary of {vocab_size}: "
            "prepare the corpus again"
        )
    return ShardFacts(
        file=str(file),
        role=role,
        problem=problem,
        tokens=len(tokens),
        lowest=lowest,
        highest=highest,
        separators=separators,
    )


def against_description(corpus: Corpus, files: Sequence[ShardFacts]) -> Iterator[str]:
    """What differs between sound shards and what corpus.json says of them."""
    digests: dict[str, list[str]] = {}
    for role, paths in corpus.shards.items():
        digests[role] = list(map(file_digest, paths))
        for path, digest in zip(paths, digests[role], strict=True):
            if corpus.files.get(path.name) != digest:
                yield (
                    f"{path}: its content is not what corpus.json says "
                    f"(sha256 {digest[:16]}...): prepare the corpus again"
                )
    if corpus.tokenizer and file_digest(corpus.folder / TOKENIZER_FILE) != corpus.tokenizer:
        yield (
            f"{corpus.folder / TOKENIZER_FILE}: its content is not what corpus.json says: "
            "prepare the corpus again"
        )
    for role, n_tokens in corpus.tokens.items():
        held = sum(facts.tokens or 0 for facts in files if facts.role == role)
        if n_tokens != held:
            yield (
                f"{corpus.folder}: its {role} shards hold {held} tokens, corpus.json says "
                f"{n_tokens}: prepare the corpus again"
            )
    if fingerprint_of(corpus.vocab_size, corpus.separator, digests) != corpus.fingerprint:
        yield (
            f"{corpus.folder}: the fingerprint in corpus.json is not that of its content: "
            "prepare the corpus again"
        )


def read_documents(
    roles: Mapping[str, Sequence[Path]], separator: int
) -> tuple[dict[str, dict[str, float]], dict[str, int]]:
    """Statistics of each role's documents, and how many of them are in validation word for word.

    One pass over everything.
    """
    in_val: set[bytes] = set()
    lengths_of, overlap = {}, {}
    for role in ROLES_TO_READ:
        if not roles.get(role):
            continue
        lengths, shared = array("q"), 0
        for length, digest in documents(roles[role], separator):
            lengths.append(length)
            if role == "val":
                in_val.add(digest)
            elif length and digest in in_val:
                shared += 1
        lengths_of[role] = statistics(np.frombuffer(lengths, dtype=np.int64))
        if in_val and role != "val":
            overlap[role] = shared
    return lengths_of, overlap


def documents(shards: Sequence[Path], separator: int) -> Iterator[tuple[int, bytes]]:
    """(tokens without the separator, digest) of every document of the shards put end to end.

    Wherever it crosses from one into the next.
    """
    digest, length, inside = hashlib.blake2b(digest_size=16), 0, False
    for path in shards:
        tokens = open_shard(path)
        for start, end in pairwise([0, *separators_of(tokens, separator), len(tokens)]):
            if start == end:
                continue
            opens = int(tokens[start] == separator)
            if opens and inside:
                yield length, digest.digest()
                digest, length = hashlib.blake2b(digest_size=16), 0
            inside = True
            digest.update(tokens[start + opens : end].data)
            length += end - start - opens
    yield length, digest.digest()


def separators_of(tokens: Tokens, separator: int) -> list[int]:
    """The positions of the separator."""
    positions: list[int] = []
    for n, block in enumerate(blocks(tokens)):
        in_block = n * BLOCK_TOKENS + np.flatnonzero(block == separator)
        positions.extend(in_block.tolist())
    return positions


def statistics(lengths: np.ndarray) -> dict[str, float]:
    """Number of documents, and their lengths in tokens."""
    return {
        "documents": len(lengths),
        "empty": int(np.count_nonzero(lengths == 0)),
        "shortest": int(lengths.min()),
        "median": float(np.median(lengths)),
        "mean": float(lengths.mean()),
        "longest": int(lengths.max()),
    }
