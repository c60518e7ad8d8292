"""Results that were found sound, remembered by the facts of their files.

What did not change since is not read again.

results/cache/sound.json, run_id -> its status and the facts. It is never the truth: without it, or
where it cannot be written, every result is read. The facts hold the time at which the system
itself noted a file's last change, which nobody can set back.
"""

import json
import time
from contextlib import suppress

from harness.run.files import write_text
from harness.run.guarded import KEPT
from harness.run.read import read_json
from harness.run.results import examine, stats_of
from harness.run.spec import RESULT_STATUSES
from harness.store.store import Store

WORTH_WRITING = 100  # new entries: fewer results are read in no time
# a file that changed so lately is not remembered: file systems' clocks are coarse, and may differ
FRESH_NS = 5_000_000_000


class VerifiedResults:
    """What a results folder's cache knows; `status` asks it, `save` keeps what was learned."""

    def __init__(self, store: Store) -> None:
        self.store, self.path = store, store.root / "cache" / "sound.json"
        content = read_json(self.path, below=KEPT)
        self.remembered: dict[str, str] = content if isinstance(content, dict) else {}
        self.learned: dict[str, str] = {}

    def status(self, run_id: str) -> tuple[str | None, str | None]:
        """A run's status if its result is sound, and what was wrong with it (see `Store.repair`).

        None where it has none.
        """
        run = f"{self.store.runs}/{run_id}"
        try:
            stats = stats_of(run)  # before the files are read: a change meanwhile makes them others
        except OSError:
            return self._repaired(run_id)
        facts = " ".join([f"{s.st_size} {s.st_mtime_ns} {s.st_ctime_ns} {s.st_ino}" for s in stats])
        status, _, facts_then = str(self.remembered.get(run_id)).partition(" ")
        if facts_then == facts and status in RESULT_STATUSES:
            return status, None
        result, wrong = examine(run, run_id, stats=stats)
        if result is None or wrong:
            return self._repaired(run_id)
        if max([s.st_ctime_ns for s in stats]) < time.time_ns() - FRESH_NS:
            self.learned[run_id] = f"{result.status} {facts}"
        return result.status, None

    def _repaired(self, run_id: str) -> tuple[str | None, str | None]:
        result, wrong = self.store.repair(run_id)
        return None if result is None else result.status, wrong

    def save(self) -> None:
        """Write down what was learned, if it is worth it and the folder can be written."""
        if len(self.learned) >= WORTH_WRITING:
            with suppress(OSError):
                self.path.parent.mkdir(exist_ok=True)
                write_text(self.path, json.dumps({**self.remembered, **self.learned}), below=KEPT)
