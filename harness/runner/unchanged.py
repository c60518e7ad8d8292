"""What must stay as it is while a run is made: the code and the environment, and its data."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.config import plugins
from harness.corpora.index import open_corpus
from harness.errors import UserError
from harness.provenance.lock import environment_lock
from harness.provenance.source import changed_files, source_of
from harness.run.digests import file_digest
from harness.run.spec import RESULT_STATUSES, Outcome, RunSpec

# a file's size in bytes, its time in ns, its place on the disk, when the system saw its last change
FileFacts = tuple[int, int, int, int]


def check_unchanged(spec: RunSpec) -> None:
    """Raises UserError if code or environment are no longer those that the run was planned with."""
    source = source_of(plugins.paths())
    if source.digest != spec.source_digest:
        names = ", ".join(changed_files(spec.source_files, source.files))
        raise UserError(
            f"the source changed since the run was planned ({names}): run the same command again"
        )
    if environment_lock().digest != spec.environment_digest:
        raise UserError(
            "the environment changed since the run was planned: run the same command again"
        )


def facts_of(path: str) -> FileFacts | None:
    """None where the file is not there."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns, stat.st_ino, stat.st_ctime_ns


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A file that runs read, as it was when a run began."""

    path: Path
    facts: FileFacts | None
    sha256: str | None  # that its corpus says

    def changed(self) -> bool:
        """Whether it has another content, or may have."""
        now = facts_of(str(self.path))
        if now is None or self.facts is None or now[:3] != self.facts[:3]:
            return now != self.facts
        return now != self.facts and file_digest(self.path) != self.sha256


def look_at(corpus: str) -> list[Shard]:
    """Every file that a corpus's runs read.

    Nothing where there is no such corpus, which the run will say.
    """
    try:
        opened = open_corpus(corpus)
    except UserError:
        return []
    shards = []
    for path in (*opened.train, *opened.val):
        sha256 = opened.files.get(path.name)
        shards.append(Shard(path=path, facts=facts_of(str(path)), sha256=sha256))
    return shards


def check_data(before: Sequence[Shard], outcome: Outcome) -> Outcome:
    """The outcome, or a failure: a result made from data that changed meanwhile is none."""
    if outcome.status not in RESULT_STATUSES:
        return outcome
    changed = [shard.path.name for shard in before if shard.changed()]
    if not changed:
        return outcome
    names = ", ".join(changed)
    cure = "prepare the corpus again, then run again"
    return Outcome(status="failed", reason=f"its data changed while it ran ({names}): {cure}")
