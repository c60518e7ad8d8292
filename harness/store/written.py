"""What an attempt wrote into the files that its result vouches for."""

import hashlib
from pathlib import Path

from harness.errors import UserError
from harness.run.digests import result_digest
from harness.run.guarded import MIB, MOST, read_bytes
from harness.run.results import DIGESTED, part_digest
from harness.run.spec import RESULT_STATUSES, Outcome
from harness.store.log_file import HeadAndTail


class WrittenFiles:
    """Digests of files of a run directory, as this process wrote them."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.log: HeadAndTail | None = None  # log.txt
        self._whole: dict[str, str] = {}  # file that is written at once -> digest
        self._begun: dict[str, tuple[int, str]] = {}  # file that grows -> bytes then, their digest
        self.forget_metrics()

    def note(self, name: str) -> None:
        """This file was written just now."""
        self._whole[name] = result_digest(self.run / name)

    def note_beginning(self, name: str) -> None:
        """Rows come into this file from elsewhere too: behind what it holds now."""
        size = (self.run / name).stat().st_size
        self._begun[name] = size, part_digest(self.run / name, size)

    def add_metrics(self, line: str) -> None:
        """A line that comes next in metrics.jsonl; raises UserError beyond what is read again."""
        content = line.encode()
        if self._n_bytes + len(content) > MOST["metrics.jsonl"]:
            raise UserError(
                f"it measured more than the {MOST['metrics.jsonl'] // MIB} MiB that a"
                " metrics.jsonl may have: let it print or validate less often"
            )
        self._metrics.update(content)
        self._n_bytes += len(content)

    def forget_metrics(self) -> None:
        self._metrics, self._n_bytes = hashlib.sha256(), 0

    def checked(self, outcome: Outcome) -> Outcome:
        """The outcome, or a failure: a result is not made of files that somebody else changed.

        Those that others write into too hold what this process wrote, and perhaps more.
        """
        if outcome.status not in RESULT_STATUSES:
            return outcome
        digests = {**self._whole, "metrics.jsonl": self._metrics.hexdigest()}
        names = dict.fromkeys((*DIGESTED, *digests))
        changed = [name for name in names if self._digest(name) != digests.get(name)]
        if not self._holds_log():
            changed.append("log.txt")
        for name, (size, digest) in self._begun.items():
            if self._digest(name, size) != digest:
                changed.append(name)
        if not changed:
            return outcome
        listed = ", ".join(changed)
        return Outcome(status="failed", reason=f"its files changed while it ran ({listed})")

    def _holds_log(self) -> bool:
        try:
            return self.log is not None and self.log.is_in(read_bytes(self.run / "log.txt"))
        except OSError:
            return False

    def _digest(self, name: str, size: int | None = None) -> str:
        try:
            return part_digest(self.run / name, size)
        except OSError:
            return "gone"
