"""Kills of the processes of a call, at moments that are drawn: who is there, who died, how often of each kind."""

import random
import subprocess
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path

from tests.fake_matrix import DEADLINE_S, Matrix, Started, gone, kill, wait_for, workers_of

VICTIMS = ("runner", "worker", "parent", "fork", "rank")


def below(runner: int) -> list[int]:
    """Forks of a runner's parents, ranks of its groups."""
    return [process for worker in workers_of(runner) for process in workers_of(worker)]


def of_kind(victim: str, runner: int) -> list[int]:
    """Process ids of those who may be this victim; a worker is the launcher of a group as well."""
    if victim == "runner":
        return [runner]
    return workers_of(runner) if victim in ("worker", "parent") else below(runner)


def communicate(process: Started) -> None:
    _, err = process.communicate(timeout=DEADLINE_S)
    assert "Traceback" not in err, err


def trains(matrix: Matrix) -> bool:
    """Whether a run of this matrix has made a step and is not over."""
    return any(matrix.results.glob("runs/*/attempts/*/progress.json"))


class Assassin:
    """Kills runners, workers (of one process, or the torchrun of a group), parents and their forks, ranks.

    A third of them in a write of theirs; of the ranks that are not, every second one while its group trains.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.n_in_write = self.n_training = 0
        self.log: list[str] = [f"seed {seed}"]

    def hunt(
        self,
        name: str,
        matrix: Matrix,
        victims: "deque[str]",
        options: tuple[str, ...],
        span_s: float,
        *,
        ended: Callable[[Started], None] = communicate,
    ) -> None:
        """A matrix run to its end while victims are killed, each within span_s of the one before or of the runner's start.

        ended: waits for the end of a call.
        """
        for _ in range(200):
            process = matrix.start(*options)
            while victims and self.running_after(process, delay_s := self.rng.uniform(0.0, span_s)):
                in_write = self.n_in_write <= self.kills.total() / 3
                who = (
                    self.in_write(matrix, process)
                    if in_write
                    else self.at_once(matrix, process, victims[0])
                )
                if who is not None:
                    if who in victims:  # a writer may be another than who was drawn
                        victims.remove(who)
                    self.kills[who] += 1
                    self.n_in_write += in_write
                    how = " in a write" if in_write else ""
                    self.log.append(f"{name} {who}{how} after {delay_s:.3f} s")
            ended(process)
            if process.returncode == 0:
                return
        raise AssertionError(self.log)

    def by_kind(self) -> str:
        """How many of each kind were killed."""
        return ", ".join(f"{victim} {self.kills[victim]}" for victim in VICTIMS)

    def running_after(self, process: Started, delay_s: float) -> bool:
        """Whether it still runs at a moment that was drawn: time is what this test is about, and any moment must do."""
        try:
            process.wait(delay_s)
        except subprocess.TimeoutExpired:
            return True
        return False

    def in_write(self, matrix: Matrix, process: Started) -> str | None:
        """Who of this matrix wrote next, and died of it; None if nobody did to its end."""
        mark = Path(matrix.environment["KILL_IN_WRITE"])
        mark.touch()
        wait_for(lambda: not mark.exists() or process.poll() is not None, seen=matrix.seen)
        mark.unlink(missing_ok=True)
        for found in mark.parent.glob(f"{mark.name}.*"):
            found.unlink()
            return found.suffix[1:]
        return None

    def at_once(self, matrix: Matrix, process: Started, victim: str) -> str | None:
        """The victim, killed now; None if there is none of its kind in this moment."""
        in_training = victim == "rank" and self.n_training <= self.kills["rank"] / 2
        if in_training:
            wait_for(lambda: trains(matrix) or process.poll() is not None, seen=matrix.seen)
        found = of_kind(victim, process.pid)
        if not found:
            return None
        if victim == "runner":
            others = [*workers_of(process.pid), *below(process.pid)]
            kill(process.pid)
            process.wait()
            wait_for(lambda: all(map(gone, others)))  # nobody outlives the runner
            return victim
        self.n_training += in_training and trains(matrix)
        kill(self.rng.choice(sorted(found)))
        return victim
