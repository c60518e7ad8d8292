"""SIGKILL at random moments loses nothing, repeats nothing, leaves nothing half-written: the exported table is the same."""

import random
import subprocess
import sys
from collections import deque
from pathlib import Path

import pytest

from tests.fake_matrix import DEADLINE_S, Matrix, gone, kill, wait_for, workers_of

SEED = 20261121
GROUPED = ("--gpus-per-run", "2", "--set", "data.ranks=2", "--set", "data.micro_tokens=256")


class Assassin:
    """Kills runners, workers (of one process, or the torchrun of a group) and ranks, a third of them in a write of theirs."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.rng = folder, random.Random(seed)
        self.log: list[str] = [f"seed {seed}"]

    def matrices(
        self, name: str, victims: "deque[str]", options: tuple[str, ...], span_s: float, **fake: str
    ) -> list[Matrix]:
        """Matrices run to their end while these are killed, each within span_s of the one before or of the runner's start."""
        made = []
        while victims:
            place = self.folder / f"{name}{len(made)}"
            place.mkdir()
            matrix = Matrix(place, n_seeds=6, KILL_IN_WRITE=str(place / "kill_in_write"), **fake)
            made.append(matrix)
            for _ in range(200):
                process = matrix.start(*options)
                while victims and self.running_after(
                    process, delay_s := self.rng.uniform(0.0, span_s)
                ):
                    in_write = self.n_in_write() <= self.n_kills() / 3
                    who = (
                        self.in_write(matrix, process)
                        if in_write
                        else self.at_once(process, victims[0])
                    )
                    if who is not None:
                        self.log.append(
                            f"{name} {who}{' in a write' if in_write else ''} after {delay_s:.3f} s"
                        )
                        victims.popleft()
                process.communicate(timeout=DEADLINE_S)
                if process.returncode == 0:
                    break
            assert process.returncode == 0, self.log
        return made

    def n_kills(self) -> int:
        return len(self.log) - 1

    def n_in_write(self) -> int:
        return sum("in a write" in line for line in self.log)

    def running_after(self, process: "subprocess.Popen[str]", delay_s: float) -> bool:
        """Whether it still runs at a moment that was drawn: time is what this test is about, and any moment must do."""
        try:
            process.wait(delay_s)
        except subprocess.TimeoutExpired:
            return True
        return False

    def in_write(self, matrix: Matrix, process: "subprocess.Popen[str]") -> str | None:
        """Who of this matrix wrote next, and died of it; None if nobody did to its end."""
        mark = Path(matrix.environment["KILL_IN_WRITE"])
        mark.touch()
        wait_for(lambda: not mark.exists() or process.poll() is not None, seen=matrix.seen)
        mark.unlink(missing_ok=True)
        for found in mark.parent.glob(f"{mark.name}.*"):
            found.unlink()
            return found.suffix[1:]
        return None

    def at_once(self, process: "subprocess.Popen[str]", victim: str) -> str | None:
        """The victim, killed now; None if there is none of its kind in this moment."""
        workers = workers_of(process.pid)
        if victim == "runner":
            ranks = [rank for worker in workers for rank in workers_of(worker)]
            kill(process.pid)
            process.wait()
            wait_for(lambda: all(map(gone, [*workers, *ranks])))  # nobody outlives the runner
            return victim
        found = (
            workers
            if victim == "worker"
            else [rank for worker in workers for rank in workers_of(worker)]
        )
        if not found:
            return None
        kill(self.rng.choice(sorted(found)))
        return victim


def check_kills(folder: Path, n_kills: int, kinds: tuple[str, ...], seed: int) -> None:
    """The victims are drawn evenly; ranks, and some of the others, in matrices of groups of two processes."""
    assassin = Assassin(folder, seed)
    single: deque[str] = deque()
    grouped: deque[str] = deque()
    for kind in (assassin.rng.choice(kinds) for _ in range(n_kills)):
        in_group = kind == "rank" or ("rank" in kinds and assassin.rng.random() < 0.1)
        (grouped if in_group else single).append(kind)
    for name, victims, options, span_s, fake in (
        ("single", single, (), 0.4, {}),
        ("group", grouped, GROUPED, 6.0, {"FAKE_STEP_S": "0.02"}),
    ):
        if not victims:
            continue
        (folder / name).mkdir()
        calm = Matrix(folder / name, n_seeds=6)
        assert calm.run(*options)[0] == 0
        for matrix in assassin.matrices(name, victims, options, span_s, **fake):
            assert matrix.table() == calm.table(), assassin.log
            assert set(matrix.statuses().values()) == {"finished"}
            code, out, _ = matrix.run(*options)
            assert (code, "everything is finished" in out) == (0, True)
            assert matrix.table() == calm.table()
            subprocess.run(
                cleaning(matrix), env=matrix.environment, check=True, capture_output=True
            )
            assert matrix.trailing() == []
            assert matrix.table() == calm.table()
    print("\n".join(assassin.log))  # shown by pytest when the test fails
    assert assassin.n_kills() == n_kills
    assert assassin.n_in_write() >= n_kills / 3, assassin.log
    assert all(any(f" {kind}" in line for line in assassin.log) for kind in kinds), assassin.log


def cleaning(matrix: Matrix) -> list[str]:
    """The command that removes what dead attempts and half-written files are left."""
    return [sys.executable, "-m", "harness", "clean", "attempts", "--results", str(matrix.results)]


def test_twenty_kills_change_nothing(tmp_path: Path) -> None:
    check_kills(tmp_path, 20, ("runner", "worker"), SEED)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_hundred_kills_change_nothing(tmp_path: Path) -> None:
    check_kills(tmp_path, 100, ("runner", "worker", "rank"), SEED + 1)
