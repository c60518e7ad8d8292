"""The finished runs of a results folder sent to a place as they come.

Reads the results folder alone, in a process of its own: no run knows of it, none waits for it.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from harness.push.alone import alone
from harness.push.errors import PushError
from harness.push.place import Destination
from harness.run.guarded import IN_ROOT, folders_in
from harness.store.store import Store

AT_ONCE = 20  # runs of one message
LONGEST_WAIT_S = 60.0  # between two tries
LAST_TRIES = 3  # once the runs are over

Stats = dict[Path, tuple[int, int]]  # file -> size, time of its last change


class Sender:
    """Sends what has a result here and none there, and remembers what arrived."""

    def __init__(
        self,
        results: Path,
        place: Destination,
        name: str,
        say: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """What was sent before is known once somebody has looked there.

        results: whose runs are sent. name: of the place. say: is told of what goes wrong, each
        line once. clock: in s.
        """
        self.store, self.place, self.name = Store(results), place, name
        self.say, self.clock = say, clock
        self.there: set[str] | None = None  # None: nobody has looked
        self.refused: set[str] = set()  # not sound, or in somebody's hands there
        self.told: set[str] = set()
        self.plans: Stats = {}
        self.n_sent = 0
        self.n_failures = 0  # in a row
        self.error = ""  # the last one
        self.next_try = 0.0

    def look(self) -> None:
        """Send what is new, unless a try that failed was a moment ago."""
        if self.clock() < self.next_try:
            return
        try:
            with alone(self.store, self.name):
                self._send()
        except (PushError, OSError) as error:
            self.n_failures += 1
            self.error = str(error)
            wait_s = min(2.0**self.n_failures, LONGEST_WAIT_S)
            self.next_try = self.clock() + wait_s
            self._say_once(f"{self.name}: {error}: runs go on, sending is tried again")
        else:
            self.n_failures = 0

    def finish(self, sleep: Callable[[float], None] = time.sleep) -> int:
        """Send what is left in a few tries; how many finished runs are not there."""
        for n in range(LAST_TRIES):
            self.next_try = 0.0
            self.plans = {}  # another box may have written over them
            self.look()
            if not self.n_failures:
                break
            if n < LAST_TRIES - 1:
                sleep(2.0**n)
        return len(self._waiting()) + len(self.refused)

    def _send(self) -> None:
        if self.there is None:
            self.there = self.place.runs()
        waiting = self._waiting()
        for start in range(0, len(waiting), AT_ONCE):
            batch = waiting[start : start + AT_ONCE]
            sent = self.place.send(self.store, batch)
            arrived = {*sent.copied, *sent.here}
            self.n_sent += len(sent.copied)
            self.there |= arrived
            self.refused |= set(batch) - arrived
            self._tell(sent.problems)
        plans = self._plans()
        if plans != self.plans:
            self._tell(self.place.send_plans(self.store).problems)
            self.plans = plans

    def _waiting(self) -> list[str]:
        """The finished runs that are not there."""
        waiting = []
        for run_id in folders_in(self.store.runs, below=IN_ROOT):
            is_there = self.there is not None and run_id in self.there
            if not is_there and run_id not in self.refused and self.store.is_done(run_id):
                waiting.append(run_id)
        return waiting

    def _plans(self) -> Stats:
        """What the plans and the ledger are by their sizes and times."""
        root = self.store.root
        stats = {}
        for path in (*root.glob("experiments/*/experiment.json"), root / "ledger.jsonl"):
            with suppress(OSError):
                facts = path.lstat()
                stats[path] = (facts.st_size, facts.st_mtime_ns)
        return stats

    def _tell(self, problems: list[str]) -> None:
        for problem in problems:
            self._say_once(f"left where it is: {problem}")

    def _say_once(self, line: str) -> None:
        if line not in self.told:
            self.told.add(line)
            self.say(line)
