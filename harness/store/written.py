"""What an attempt wrote into the files that its result vouches for."""

import hashlib
from pathlib import Path

from harness.errors import UserError
from harness.run.digests import result_digest
from harness.run.guarded import MIB, MOST, is_file
from harness.run.results import DIGESTED, GROWING
from harness.run.spec import RESULT_STATUSES, Outcome


class WrittenFiles:
    """Digests of files of a run directory, as this process wrote them."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self._whole: dict[str, str] = {}  # file that is written at once -> digest
        self.forget_metrics()

    def note(self, name: str) -> None:
        """This file was written just now."""
        self._whole[name] = result_digest(self.run / name)

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

        Of those that others may write into too, only that they are there is looked at.
        """
        if outcome.status not in RESULT_STATUSES:
            return outcome
        digests = {**self._whole, "metrics.jsonl": self._metrics.hexdigest()}
        names = dict.fromkeys((*DIGESTED, *digests))
        changed = [name for name in names if self._digest(name) != digests.get(name)]
        changed += [name for name in GROWING if not is_file(self.run / name)]
        if not changed:
            return outcome
        listed = ", ".join(changed)
        return Outcome(status="failed", reason=f"its files changed while it ran ({listed})")

    def _digest(self, name: str) -> str:
        try:
            return result_digest(self.run / name)
        except OSError:
            return "gone"
