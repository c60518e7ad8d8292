"""What must stay as it is while a run is made: the code and the environment, and its data."""

import os
from collections.abc import Mapping
from pathlib import Path

from harness.config import plugins
from harness.corpora.index import open_corpus
from harness.errors import UserError
from harness.provenance.lock import environment_lock
from harness.provenance.source import changed_files, source_of
from harness.run.spec import RESULT_STATUSES, Outcome, RunSpec

Facts = tuple[int, int, int]  # a file's size in bytes, its time in ns, its place on the disk


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


def facts_of(path: str) -> Facts | None:
    """None where the file is not there."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


def look_at(corpus: str) -> dict[str, Facts | None]:
    """Path -> the facts of every file that a corpus's runs read.

    Nothing where there is no such corpus, which the run will say.
    """
    try:
        shards = open_corpus(corpus).shards
    except UserError:
        return {}
    paths = [str(path) for role in ("train", "val") for path in shards[role]]
    return {path: facts_of(path) for path in paths}


def check_data(before: Mapping[str, Facts | None], outcome: Outcome) -> Outcome:
    """The outcome, or a failure: a result made from data that changed meanwhile is none."""
    changed = [Path(path).name for path, facts in before.items() if facts_of(path) != facts]
    if outcome.status not in RESULT_STATUSES or not changed:
        return outcome
    names = ", ".join(changed)
    cure = "prepare the corpus again, then run again"
    return Outcome(status="failed", reason=f"its data changed while it ran ({names}): {cure}")
