"""Are a corpus's shards what corpus.json says? Hashed once per node and state of each file.

What was hashed is remembered beside the copies of corpora on this node (cache.py), by the facts of
the file; the time of its last change among them is the system's own, which nobody can set back.
Without that memory, or where it cannot be written, everything is hashed.
"""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from harness.corpora.cache import cache_root
from harness.corpora.corpus import Corpus, fingerprint_of
from harness.corpora.lock import lock
from harness.errors import UserError
from harness.run.digests import file_digest
from harness.run.files import FRESH_NS, write_text

AT_ONCE = 8  # files that are read at a time: more make no disk quicker
MEMORY = "shards.json"
TellOfCorpus = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class FileState:
    """What must be as it was for a file's digest to be known still."""

    path: str
    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, path: Path) -> "FileState":
        real = os.path.realpath(path)
        stat = os.stat(real)
        return cls(
            path=real,
            device=stat.st_dev,
            inode=stat.st_ino,
            size=stat.st_size,
            modified_ns=stat.st_mtime_ns,
            changed_ns=stat.st_ctime_ns,
        )

    @property
    def facts(self) -> str:
        return f"{self.device} {self.inode} {self.size} {self.modified_ns} {self.changed_ns}"


def tell_nobody(progress: str) -> None:
    """What is said of the work, where nobody watches."""


def verify(corpus: Corpus, *, say: TellOfCorpus = tell_nobody) -> None:
    """Raises UserError unless every shard has the content that the fingerprint stands for.

    Who comes while another process of this node hashes waits for it. say: told what is hashed,
    where that is anything.
    """
    paths = [path for shards in corpus.shards.values() for path in shards]
    with ExitStack() as stack:
        with suppress(OSError):  # a node without a place for it
            stack.enter_context(lock(cache_root() / MEMORY))
        digests = digests_of(paths, say=say)
    for path in paths:
        if digests[path] != corpus.files.get(path.name):
            raise UserError(
                f"{path}: its content is not what corpus.json says (sha256 "
                f"{digests[path][:16]}...): prepare the corpus again, or bring that file back"
            )
    by_role = {role: [digests[path] for path in shards] for role, shards in corpus.shards.items()}
    if fingerprint_of(corpus.vocab_size, corpus.separator, by_role) != corpus.fingerprint:
        raise UserError(
            f"{corpus.folder}: the fingerprint in corpus.json is not that of its content: prepare "
            "the corpus again"
        )


def digests_of(paths: Sequence[Path], *, say: TellOfCorpus) -> dict[Path, str]:
    """The sha256 of each file, read where it is not remembered."""
    memory = remembered()
    states: dict[Path, FileState] = {}
    digests: dict[Path, str] = {}
    for path in paths:
        states[path] = state_of(path)
        facts, _, digest = memory.get(states[path].path, "").rpartition(" ")
        if facts == states[path].facts:
            digests[path] = digest
    unknown = [path for path in paths if path not in digests]
    if not unknown:
        return digests
    mib = sum(states[path].size for path in unknown) / 2**20
    say(f"hashing {len(unknown)} shards, {mib:.0f} MiB")
    began = time.monotonic()
    with ThreadPoolExecutor(min(AT_ONCE, len(unknown))) as pool:
        digests |= dict(zip(unknown, pool.map(file_digest, unknown), strict=True))
    seconds = time.monotonic() - began
    say(f"hashed in {seconds:.1f} s, {mib / max(seconds, 1e-3):.0f} MiB/s")
    remember(memory, [states[path] for path in unknown], [digests[path] for path in unknown])
    return digests


def state_of(path: Path) -> FileState:
    try:
        return FileState.of(path)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}): prepare the corpus again"
        ) from None


def remembered() -> dict[str, str]:
    """Path -> the facts of the file and its digest."""
    try:
        content = json.loads((cache_root() / MEMORY).read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {str(path): str(facts) for path, facts in content.items()}


def remember(
    memory: Mapping[str, str], states: Sequence[FileState], digests: Sequence[str]
) -> None:
    """Add what was hashed, of files that did not change just now or meanwhile."""
    kept = {path: text for path, text in memory.items() if os.path.exists(path)}
    for state, digest in zip(states, digests, strict=True):
        old = max(state.modified_ns, state.changed_ns) < time.time_ns() - FRESH_NS
        if old and state_of(Path(state.path)) == state:
            kept[state.path] = f"{state.facts} {digest}"
    if kept == memory:
        return
    with suppress(OSError):
        cache_root().mkdir(parents=True, exist_ok=True)
        write_text(cache_root() / MEMORY, json.dumps(kept))
