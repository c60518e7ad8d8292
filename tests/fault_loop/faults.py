"""The faults: each is made while runs are made, at a moment that is drawn; the call is repeated until everything is finished."""

import os
import random
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from harness.run.results import SEALED
from tests.assassin import VICTIMS, Assassin, below, of_kind
from tests.fake_matrix import DEADLINE_S, Matrix, Started, kill, workers_of
from tests.fault_loop.folder import HARMS, Disk, Seen, cut, remove, runs_of

N_KILLS = 4  # in a round of them
MOST_CALLS = 40
SILENCE_S = 3  # after which an owner elsewhere counts as dead
STUCK_S = 30  # a runner beside a paused one may wait for what that holds
CODES = {0, 1, 2, 129, 130, 143, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP}


@dataclass(frozen=True, kw_only=True)
class Way:
    """How runs are made, and who is there beside the runner."""

    options: tuple[str, ...] = ()
    calm: tuple[str, ...] = ()  # the options of the undisturbed matrix
    fake: dict[str, str] = field(default_factory=dict)
    span_s: float = 1.5  # the longest wait for the moment of a fault
    there: tuple[str, ...] = ("worker",)


IN_PASSES = ("--set", "data.ranks=2", "--set", "data.micro_tokens=256")
REAL = {"FAKE_TRAINER": "train_for_real"}
FORKS = ("--worker", "fresh")
WAYS = {
    "warm": Way(),
    "fresh": Way(options=FORKS, there=("parent", "fork")),
    "real": Way(fake=REAL, span_s=4.0),
    "real fresh": Way(options=FORKS, fake=REAL, span_s=4.0, there=("parent", "fork")),
    "group": Way(
        options=("--gpus-per-run", "2", *IN_PASSES),
        calm=IN_PASSES,
        fake={"FAKE_STEP_S": "0.1"},  # a run takes about as long as its group's start
        span_s=6.0,
        there=("worker", "rank"),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Round:
    """A matrix that is to be made with a fault in it."""

    matrix: Matrix
    way: Way
    results: Path
    disk: Disk
    seen: Seen
    assassin: Assassin
    name: str  # of the experiment
    said: list[str] = field(default_factory=list)  # what no call may say

    @property
    def rng(self) -> random.Random:
        return self.assassin.rng

    def through(self, during: Callable[[Started], int], *, n: int = 1) -> int:
        """Calls until one has done everything, n faults made in them; how many were made."""
        hits = 0
        for _ in range(MOST_CALLS):
            process = self.matrix.start(*self.way.options)
            while hits < n and self.assassin.running_after(process, self.moment_s()):
                hits += during(process)
            self.ended(process)
            if process.returncode == 0:
                return hits
        self.said.append(f"not finished after {MOST_CALLS} calls")
        return hits

    def runs(self) -> dict[tuple[str, int], str]:
        """By arm and seed: its runs; none before there is a plan."""
        return runs_of(self.results, self.name)

    def moment_s(self) -> float:
        return self.rng.uniform(0.0, self.way.span_s)

    def ended(self, process: Started) -> None:
        """A call ended, in time and as the contract says."""
        try:
            _, err = process.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.said.append(f"a call hung: {self.matrix.seen()}")
            process.kill()
            _, err = process.communicate()
        if process.returncode not in CODES or "Traceback" in err or "a fault of its own" in err:
            self.said.append(f"a call ended with {process.returncode}: {err[-2000:]}")

    def unfinished(self) -> list[Path]:
        """Files of this round's attempts in progress."""
        found: list[Path] = []
        for run_id in sorted(self.runs().values()):
            run = self.results / "runs" / run_id
            with suppress(FileNotFoundError):
                if not (run / "result.json").exists():
                    found += [p for p in run.rglob("*") if p.is_file()]
        return found

    def finished(self) -> list[Path]:
        return [
            run
            for run_id in sorted(self.runs().values())
            if (run := self.results / "runs" / run_id).joinpath("result.json").exists()
        ]


def kills(victim: str) -> Callable[[Round], int]:
    def fault(now: Round) -> int:
        before = now.assassin.kills.total()
        victims = deque([victim] * N_KILLS)
        now.assassin.hunt(
            victim, now.matrix, victims, now.way.options, now.way.span_s, ended=now.ended
        )
        return now.assassin.kills.total() - before

    return fault


def a_host_stands_still(now: Round) -> int:
    """Its runs are made by another one meanwhile."""
    now.matrix.environment |= {"FAKE_NODE": "elsewhere", "ABLATE_DEAD_AFTER_S": str(SILENCE_S)}
    process = now.matrix.start(*now.way.options)
    stopped: set[int] = set()
    if now.assassin.running_after(process, 1.0 + now.moment_s()):
        with suppress(psutil.NoSuchProcess):
            while new := set(everybody(process.pid)) - stopped:
                send(signal.SIGSTOP, new)
                stopped |= new
    now.matrix.environment.pop("FAKE_NODE")
    other = now.matrix.start(*now.way.options)
    with suppress(subprocess.TimeoutExpired):
        other.wait(STUCK_S)
    now.seen.look()
    send(signal.SIGCONT, stopped)
    now.ended(other)
    now.ended(process)
    now.through(lambda _: 0)
    return int(bool(stopped))


def everybody(runner: int) -> list[int]:
    return [runner, *(p.pid for p in psutil.Process(runner).children(recursive=True))]


def send(number: int, pids: "set[int] | list[int]") -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def a_process_stands_still(now: Round) -> int:
    def during(process: Started) -> int:
        there = [*workers_of(process.pid), *below(process.pid)]
        chosen = now.rng.sample(there, min(1, len(there)))
        send(signal.SIGSTOP, chosen)
        time.sleep(now.rng.uniform(0.1, 2.0))  # the fault itself
        send(signal.SIGCONT, chosen)
        return len(chosen)

    return now.through(during, n=2)


def the_runner_is_told_to_end(now: Round) -> int:
    def during(process: Started) -> int:
        process.send_signal(now.rng.choice((signal.SIGTERM, signal.SIGINT, signal.SIGHUP)))
        return 1

    return now.through(during, n=2)


def a_process_is_told_to_end(now: Round) -> int:
    def during(process: Started) -> int:
        there = of_kind(now.rng.choice(now.way.there), process.pid)
        chosen = now.rng.sample(sorted(there), min(1, len(there)))
        send(signal.SIGTERM, chosen)
        return len(chosen)

    return now.through(during, n=2)


def the_disk_is_full(now: Round) -> int:
    now.matrix.environment["FAKE_LOG_BYTES"] = "20000"

    def during(process: Started) -> int:
        now.disk.leave(now.rng.randrange(100_000))
        try:
            now.assassin.running_after(process, 3.0)
        finally:
            now.disk.empty()
        return 1

    return now.through(during, n=2)


def the_folder_is_read_only(now: Round) -> int:
    def during(process: Started) -> int:
        with now.disk.read_only():
            now.assassin.running_after(process, 3.0)
        return 1

    return now.through(during, n=2)


def a_file_of_an_attempt(harm: Callable[[Path, random.Random], None]) -> Callable[[Round], int]:
    """While it is made, something happens to one of its files."""

    def fault(now: Round) -> int:
        def during(process: Started) -> int:
            found = now.unfinished()
            with suppress(FileNotFoundError):
                if found:
                    harm(now.rng.choice(found), now.rng)
                    return 1
            return 0

        return now.through(during, n=3)

    return fault


def a_file_of_a_finished_run(now: Round) -> int:
    def during(process: Started) -> int:
        found = now.finished()
        if not found:
            return 0
        run = now.rng.choice(found)
        now.seen.harm(run)
        with suppress(FileNotFoundError):  # it was set aside, or is harmed already
            now.rng.choice(HARMS)(run / now.rng.choice(("result.json", *SEALED)), now.rng)
        return 1

    return now.through(during, n=2)


def two_runners(**node: str) -> Callable[[Round], int]:
    """At once; now and then one of them is killed."""

    def fault(now: Round) -> int:
        other = now.matrix.start(*now.way.options)
        now.matrix.environment |= node

        def during(process: Started) -> int:
            if now.rng.random() < 0.5:
                kill(now.rng.choice((process, other)).pid)
            return 1

        hits = now.through(during)
        now.ended(other)
        for name in node:
            now.matrix.environment.pop(name)
        now.through(lambda _: 0)
        return hits

    return fault


def a_cache_is_damaged(now: Round) -> int:
    """What was found sound is told in another way, or not at all."""

    def during(process: Started) -> int:
        found = [p for p in (now.results / "cache").rglob("*") if p.is_file()]
        with suppress(FileNotFoundError):
            now.rng.choice((cut, remove))(now.rng.choice(found), now.rng) if found else None
        return 1

    return now.through(during, n=2)


ANY = ("warm", "warm", "warm", "fresh", "fresh", "real", "real fresh", "group")
QUICK = ("warm", "fresh", "real")
FAULTS: dict[str, tuple[Callable[[Round], int], tuple[str, ...]]] = {  # how, and in which ways
    **{
        f"SIGKILL of a {victim}": (
            kills(victim),
            tuple(w for w in WAYS if victim == "runner" or victim in WAYS[w].there),
        )
        for victim in VICTIMS
    },
    "SIGSTOP of a host, its runs taken over": (a_host_stands_still, QUICK),
    "SIGSTOP of a process": (a_process_stands_still, ANY),
    "SIGTERM, SIGINT, SIGHUP of a runner": (the_runner_is_told_to_end, ANY),
    "SIGTERM of another process": (a_process_is_told_to_end, ANY),
    "disk full": (the_disk_is_full, QUICK),
    "read-only folder": (the_folder_is_read_only, QUICK),
    "file of an attempt deleted": (a_file_of_an_attempt(remove), QUICK),
    "file of an attempt cut": (a_file_of_an_attempt(cut), QUICK),
    "file of a finished run cut, changed, deleted": (a_file_of_a_finished_run, QUICK),
    "two runners": (two_runners(), QUICK),
    "two runners, a clock that jumps": (two_runners(FAKE_NODE="jumping clock"), QUICK),
    "two runners, no locks or links": (two_runners(FAKE_NODE="no locks"), QUICK),
    "cache cut, deleted": (a_cache_is_damaged, QUICK),
}
OF_A_DISK = ("disk full", "read-only folder")
