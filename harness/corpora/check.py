"""Is this data sound? Headers, sizes, token ranges, separators, digests, documents shared by training and validation."""

import hashlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from harness.corpora.corpus import Corpus, describe, fingerprint_of
from harness.data.shards import BLOCK_TOKENS, blocks, open_shard, sha256_of
from harness.errors import UserError

ROLES_TO_READ = (
    "val",
    "train",
    "heldout",
    "unknown",
)  # validation first: its documents are looked for in the others


def check(path: Path | str, *, vocab_size: int = 50257, separator: int = 50256) -> dict[str, Any]:
    """Look at every token of a shard, a folder of shards or a prepared corpus (whose own vocabulary and separator then hold).

    The report, plain values: ok; problems and warnings (a line each, the file named); files (file, role, tokens, lowest,
    highest, separators, problem); documents (role -> number and lengths in tokens; only where every file is sound);
    overlap (role -> documents that validation holds too). Raises UserError only where there is nothing to look at.
    """
    path, corpus, problems = Path(path), None, []
    if (path / "corpus.json").exists():
        try:
            corpus = describe(path)
            vocab_size, separator = corpus.vocab_size, corpus.separator
        except UserError as error:
            problems.append(str(error))
    roles = corpus.shards if corpus else shards_below(path)
    files = [
        look_at(file, role, vocab_size, separator)
        for role, paths in roles.items()
        for file in paths
    ]
    problems += [file["problem"] for file in files if file["problem"]]
    sound = all(file["tokens"] for file in files)
    if corpus and sound:
        problems += against_description(corpus, files)
    documents, overlap = read_documents(roles, separator) if sound else ({}, {})
    warnings = [
        f"{file['file']}: no separator {separator} in it"
        for file in files
        if file["separators"] == 0
    ]
    warnings += [
        f"{n} {role} documents are in validation too, word for word"
        for role, n in overlap.items()
        if n
    ]
    if sound:
        warnings += [
            f"{paths[0]}: does not begin with the separator {separator}: its first document lacks "
            "its beginning"
            for paths in roles.values()
            if paths and open_shard(paths[0])[0] != separator
        ]
    return {
        "path": str(path),
        "ok": not problems,
        "problems": problems,
        "warnings": warnings,
        "vocab_size": vocab_size,
        "separator": separator,
        "files": files,
        "documents": documents,
        "overlap": overlap,
    }


def shards_below(path: Path) -> dict[str, list[Path]]:
    """Role -> shards, of a single file or of a folder.

    The role is read from the benchmark's file names.
    """
    files = sorted(path.glob("*.bin")) if path.is_dir() else [path]
    if not files or not path.exists():
        raise UserError(
            f"{path}: "
            f"{'no .bin file in this folder' if path.exists() else 'no such file or folder'}: "
            "check the path"
        )
    roles: dict[str, list[Path]] = {}
    for file in files:
        roles.setdefault(
            next((role for role in ROLES_TO_READ if f"_{role}_" in file.name), "unknown"), []
        ).append(file)
    return roles


def look_at(file: Path, role: str, vocab_size: int, separator: int) -> dict[str, Any]:
    """One shard's facts; `problem` names what is wrong with it, None if nothing."""
    facts: dict[str, Any] = {"file": str(file), "role": role, "problem": None}
    facts |= dict.fromkeys(("tokens", "lowest", "highest", "separators"))
    try:
        tokens = open_shard(file)
    except UserError as error:
        return facts | {"problem": str(error)}
    lowest, highest = (
        min(int(block.min()) for block in blocks(tokens)),
        max(int(block.max()) for block in blocks(tokens)),
    )
    separators = sum(int(np.count_nonzero(block == separator)) for block in blocks(tokens))
    facts |= {"tokens": len(tokens), "lowest": lowest, "highest": highest, "separators": separators}
    if highest >= vocab_size:
        facts["problem"] = (
            f"{file}: token {highest} is beyond the vocabulary of {vocab_size}: prepare the "
            "corpus again"
        )
    return facts


def against_description(corpus: Corpus, files: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What differs between sound shards and what corpus.json says of them."""
    digests = {path: sha256_of(path) for paths in corpus.shards.values() for path in paths}
    for path, digest in digests.items():
        if corpus.files.get(path.name) != digest:
            yield (
                f"{path}: its content is not what corpus.json says (sha256 {digest[:16]}...): "
                "prepare the corpus again"
            )
    for role, n_tokens in corpus.tokens.items():
        if n_tokens != (found := sum(file["tokens"] for file in files if file["role"] == role)):
            yield (
                f"{corpus.folder}: its {role} shards hold {found} tokens, corpus.json says "
                f"{n_tokens}: prepare the corpus again"
            )
    content = {role: [digests[path] for path in paths] for role, paths in corpus.shards.items()}
    if fingerprint_of(corpus.vocab_size, corpus.separator, content) != corpus.fingerprint:
        yield (
            f"{corpus.folder}: the fingerprint in corpus.json is not that of its content: prepare "
            "the corpus again"
        )


def read_documents(
    roles: Mapping[str, Sequence[Path]], separator: int
) -> tuple[dict[str, dict[str, float]], dict[str, int]]:
    """Statistics of each role's documents, and how many of them are in validation word for word.

    One pass over everything.
    """
    in_val: set[bytes] = set()
    found, overlap = {}, {}
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
        found[role] = statistics(np.frombuffer(lengths, dtype=np.int64))
        if in_val and role != "val":
            overlap[role] = shared
    return found, overlap


def documents(shards: Sequence[Path], separator: int) -> Iterator[tuple[int, bytes]]:
    """(tokens without the separator, digest) of every document of the shards put end to end, wherever it crosses them."""
    digest, length, inside = hashlib.blake2b(digest_size=16), 0, False
    for path in shards:
        tokens = open_shard(path)
        cuts = [
            n * BLOCK_TOKENS + np.flatnonzero(block == separator)
            for n, block in enumerate(blocks(tokens))
        ]
        for start, end in pairwise([0, *np.concatenate(cuts).tolist(), len(tokens)]):
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
