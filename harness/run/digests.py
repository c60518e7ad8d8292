"""Digests: canonical JSON, short names, and the digest of a file."""

import hashlib
import json
from pathlib import Path
from typing import Any

from harness.run.document import Document

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode
_digests: dict[int, tuple[Document, str]] = {}


def canonical(value: Any) -> bytes:
    """JSON with sorted keys and no spaces: what digests are made of."""
    return _encode(value).encode()


def short_digest(value: Any) -> str:
    """16 hex digits of the sha256 of a value's canonical JSON."""
    return hashlib.sha256(canonical(value)).hexdigest()[:16]


def digest_of_config(config: Document) -> str:
    """short_digest of a configuration, which many runs share.

    Remembered for as long as the very object lives.
    """
    known = _digests.get(id(config))
    if known is None or known[0] is not config:
        if len(_digests) >= 1000:
            _digests.clear()
        known = _digests[id(config)] = (config, short_digest(config))
    return known[1]


def run_id_of(intent_id: str, *, source_digest: str, environment_digest: str) -> str:
    """The name of a run: an intent done by this code in this environment.

    All are hexadecimal digits.
    """
    # canonical JSON, written at once: a matrix has thousands of runs
    text = (
        f'{{"environment":"{environment_digest}","intent":"{intent_id}",'
        f'"source":"{source_digest}"}}'
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_digest(path: Path | str) -> str:
    """sha256 of a file, as 64 hex digits."""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()
