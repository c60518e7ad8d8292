"""The code, the diff and the environment that a run names: files whose names are their digests."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.provenance.code import Code
from harness.run.archive import unpacked
from harness.run.code import CODE_LIMIT, code_digest
from harness.run.digests import short_digest
from harness.run.guarded import KEPT, is_name, read_bytes
from harness.run.parse import parse_json
from harness.run.read import read_config, read_json


@dataclass(frozen=True, kw_only=True)
class Kept:
    """One file that a run names, by its place in a results folder."""

    kind: str  # code or environments
    digest: str
    suffix: str
    script: str | None  # of a foreign trainer

    def path(self, results: Path) -> Path:
        return results / self.kind / f"{self.digest}{self.suffix}"

    def read(self, results: Path) -> bytes | None:
        """Its content, None where it is not what its name says."""
        try:
            content = read_bytes(self.path(results), below=KEPT)
            sound = DIGESTS[self.suffix](content, self.script) == self.digest
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
            return None
        return content if sound else None

    def wrong(self, results: Path) -> str:
        return f"{self.path(results)} is not what its name says"


def _zip_digest(content: bytes, script: str | None) -> str:
    files = unpacked(content)
    if script is not None:
        return Code(script=script, files=files).source.digest
    if sum(map(len, files.values())) > CODE_LIMIT:
        raise ValueError("more code than a run of ours has")
    return short_digest({name: code_digest(text.decode()) for name, text in files.items()})


DIGESTS = {  # suffix of a kept file -> what its name must be; script: of a foreign trainer
    ".zip": _zip_digest,
    ".diff": lambda content, script: hashlib.sha256(content).hexdigest(),
    ".json": lambda content, script: short_digest(parse_json(content)),
}


def kept_of(run: Path) -> Iterator[Kept]:
    """What a run names of it; raises OSError or ValueError where its config.yaml is none."""
    config, environment = read_config(run), read_json(run / "environment.json")
    script = _inside(config, "config", "trainer", "script")
    for kind, digest, suffix in (
        ("code", _inside(config, "source", "digest"), ".zip"),
        ("code", _inside(environment, "git", "diff_sha256"), ".diff"),
        ("environments", _inside(config, "environment", "digest"), ".json"),
    ):
        if digest is not None and is_name(digest):
            yield Kept(kind=kind, digest=digest, suffix=suffix, script=script)


def _inside(content: Any, *keys: str) -> str | None:
    """The text that stands under these keys, None where there is none."""
    for key in keys:
        content = content.get(key) if isinstance(content, Mapping) else None
    return content if isinstance(content, str) else None
