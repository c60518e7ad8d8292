"""Results that were found sound, remembered by the facts of their files.

results/cache/sound.json, run_id -> its status, `whole` where every file of it was read, and the
facts. It is never the truth: without it, or where it cannot be written, every result is read. The
facts hold the time at which the system itself noted a file's last change, which nobody can set
back; a result that was taken for sound by its files' sizes and times is not `whole`.
"""

import json
import time
from contextlib import suppress
from pathlib import Path

from harness.run.files import FRESH_NS, write_text
from harness.run.guarded import KEPT
from harness.run.read import read_json
from harness.run.results import FileStats, Result, examine, read_known, stats_of
from harness.run.spec import RESULT_STATUSES

WORTH_WRITING = 100  # new entries: fewer results are read in no time
WHOLE = "whole "  # before the facts of a result of which every file was read


class Remembered:
    """What a results folder's cache knows, and what was learned since."""

    def __init__(self, results: Path, *, forget: bool = False) -> None:
        """forget: begin with nothing."""
        self.path = results / "cache" / "sound.json"
        content = {} if forget else read_json(self.path, below=KEPT)
        self.remembered: dict[str, str] = content if isinstance(content, dict) else {}
        self.learned: dict[str, str] = {}

    def status(self, run_id: str, stats: FileStats, *, whole: bool) -> str | None:
        """The status of a result whose files are what they were when it was found sound.

        whole: only of one whose files were all read then.
        """
        status, _, then = str(self.remembered.get(run_id)).partition(" ")
        facts_then = then.removeprefix(WHOLE)
        if whole and facts_then == then:
            return None
        if status in RESULT_STATUSES and facts_then == _words(stats):
            return status
        return None

    def learn(self, run_id: str, status: str, stats: FileStats, *, whole: bool) -> None:
        """A result was found sound. stats: taken before its files were read, whole: all of them."""
        if max([s.st_ctime_ns for s in stats.values()]) < time.time_ns() - FRESH_NS:
            self.learned[run_id] = f"{status} {WHOLE if whole else ''}{_words(stats)}"

    def save(self) -> None:
        """Write down what was learned, if it is worth it and the folder can be written."""
        if len(self.learned) >= WORTH_WRITING:
            with suppress(OSError):
                self.path.parent.mkdir(exist_ok=True)
                write_text(self.path, json.dumps({**self.remembered, **self.learned}), below=KEPT)


def _words(stats: FileStats) -> str:
    return " ".join(
        [f"{s.st_size} {s.st_mtime_ns} {s.st_ctime_ns} {s.st_ino}" for s in stats.values()]
    )


def examine_known(
    folder: Path, run_id: str, memory: Remembered
) -> tuple[Result | None, str | None]:
    """`examine`, every file looked at but where the result was found sound before.

    Raises NewerError.
    """
    try:
        stats = stats_of(str(folder))
    except OSError:  # without all its files: which one it lacks, if it has a result at all
        return examine(folder, run_id)
    if memory.status(run_id, stats, whole=True) is not None:
        return read_known(folder, run_id)
    result, wrong = examine(folder, run_id)
    if result is not None and wrong is None:
        memory.learn(run_id, result.status, stats, whole=True)
    return result, wrong
