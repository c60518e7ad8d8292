"""Digests: canonical JSON, short names, and the digest of a file."""

import hashlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from harness.run.document import Document
from harness.run.guarded import chunks_of

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def canonical(value: Any) -> bytes:
    """JSON with sorted keys and no spaces: what digests are made of."""
    return _encode(value).encode()


def text_digest(text: str) -> str:
    """16 hex digits of the sha256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def spaced_digest(value: Document) -> str:
    """sha256 of a mapping's JSON with sorted keys and spaces, as 64 hex digits.

    Corpora and locked plans have been named by it from the first.
    """
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def short_digest(value: Any) -> str:
    """16 hex digits of the sha256 of a value's canonical JSON."""
    return text_digest(_encode(value))


def digests_by(key: str, rest: Document) -> Callable[[int], str]:
    """short_digest of {**rest, key: number} as a function of the number: the rest is encoded once.

    It joins the entries as `canonical` does, those before and after the key apart.
    """
    before = [f"{_encode(k)}:{_encode(rest[k])}," for k in sorted(rest) if k < key]
    after = [f",{_encode(k)}:{_encode(rest[k])}" for k in sorted(rest) if k > key]
    head = "".join(["{", *before, _encode(key), ":"])
    tail = "".join([*after, "}"])
    return partial(_digest_between, head, tail)


def _digest_between(head: str, tail: str, number: int) -> str:
    return text_digest(f"{head}{number}{tail}")


def run_id_of(intent_id: str, *, source_digest: str, environment_digest: str) -> str:
    """The name of a run: an intent done by this code in this environment.

    All are hexadecimal digits.
    """
    # canonical JSON, written at once: a matrix has thousands of runs
    text = (
        f'{{"environment":"{environment_digest}","intent":"{intent_id}",'
        f'"source":"{source_digest}"}}'
    )
    return text_digest(text)


def file_digest(path: Path | str) -> str:
    """sha256 of a file of the user's own, data or code, as 64 hex digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def result_digest(path: Path | str) -> str:
    """sha256 of a file of a results folder, opened as harness/run/guarded.py allows."""
    digest = hashlib.sha256()
    for piece in chunks_of(path):
        digest.update(piece)
    return digest.hexdigest()
