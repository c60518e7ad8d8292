"""A matrix of fake runs through the real command line, for the tests of the runner."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness.run.parse import parse_yaml
from harness.run.read import read_lines
from harness.run.results import read_result
from tests.warm import DEADLINE_S as DEADLINE_S
from tests.warm import ROOT as ROOT
from tests.warm import Fork, forked

Started = subprocess.Popen[str] | Fork
STARTED: list[Started] = []  # by the test that runs now
EXPERIMENT = """
name: fake
question: Does the runner lose anything?
base: r07
scale: tiny
set: {model.n_layer: 2, data.seq_len: 64, data.micro_tokens: 512, data.batch_tokens: 512, data.ranks: 1, data.val_tokens: 4096,
      data.val_every: 5, schedule.steps: 20, data.first_batch_twice: false, optim.muon_comm: redundant, system.checkpoint: none}
changes:
  untied_head: r08.untied_head
"""


class Matrix:
    """Two arms at some seeds in a results folder of its own. inside: a control group.

    real: trained by the real trainer, which waits where FAKE says so.
    """

    def __init__(
        self,
        folder: Path,
        *,
        n_seeds: int = 2,
        results: Path | None = None,
        root: Path = ROOT,
        real: bool = False,
        inside: Path | None = None,
        **environment: Any,
    ) -> None:
        self.results, self.root = results or folder / "results", root
        faked = not real or environment
        self.script = root / ("tests/fake_trainer.py" if faked else "harness/__main__.py")
        self.program = [str(self.script)] if faked else ["-m", "harness"]
        self.inside = inside
        self.started: list[Started] = []
        self.file = folder / "fake.yaml"
        self.file.write_text(EXPERIMENT + f"seeds: {n_seeds}\n")
        words = {k: v if isinstance(v, str) else json.dumps(v) for k, v in environment.items()}
        paths = os.pathsep.join([str(root), str(root / "tests")])
        trainer = {"FAKE_TRAINER": "train_for_real"} if real else {}
        self.environment = {
            "FAKE_MARKS": str(folder),
            **os.environ,
            "PYTHONPATH": paths,
            **trainer,
            **words,
        }

    def start(self, *options: str) -> Started:
        """A call that goes on beside the test, in a fork where nothing asks for a process of its own."""
        if self.root != ROOT or self.inside is not None:
            return self.spawn(*options)
        fork: Fork = self._in_fork(Fork, "run", str(self.file), "--no-report", *options)
        self.started.append(fork)
        STARTED.append(fork)
        return fork

    def spawn(self, *options: str) -> "subprocess.Popen[str]":
        """The same in a process of its own."""
        command = [sys.executable, *self.program, "run", str(self.file), "--no-report"]
        process = subprocess.Popen(
            [*command, "--results", str(self.results), *options],
            stdout=subprocess.PIPE,
            cwd=self.root,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
            preexec_fn=self._become,
        )
        self.started.append(process)
        STARTED.append(process)
        return process

    def _become(self) -> None:
        """What the runner's process does before it is one."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored in a background job's children
        if self.inside is not None:
            (self.inside / "cgroup.procs").write_text(str(os.getpid()))

    def run(self, *options: str) -> tuple[int, str, str]:
        """(exit code, standard output, standard error) of one call, in a fork where nothing asks for a process of its own."""
        if self.root == ROOT and self.inside is None:
            done = self.forked("run", str(self.file), "--no-report", *options)
            return done.returncode, done.stdout, done.stderr
        process = self.spawn(*options)
        out, err = process.communicate(timeout=DEADLINE_S)
        return process.returncode, out, err

    def forked(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """How a command on these results ended, in a fork of a process that has imported it."""
        assert self.root == ROOT, "forks have imported this tree"
        ended: subprocess.CompletedProcess[str] = self._in_fork(forked, *arguments)
        return ended

    def _in_fork(self, how: Callable[..., Any], *arguments: str) -> Any:
        """how: begins a fork, or waits for its end, too."""
        return how(
            self.script.read_text(),
            *arguments,
            "--results",
            str(self.results),
            cwd=self.root,
            environment=self.environment,
            at=self.script,
        )

    def at(self, kind: str, n: int) -> list[int]:
        """Process ids of those that wait in the way of a kind, once there are so many (see fake_trainer.wait)."""
        marks = Path(self.environment["FAKE_MARKS"])

        def come() -> list[Path]:
            found = list(marks.glob(f"at {kind} *"))
            assert len(found) >= n or any(p.poll() is None for p in self.started), (
                f"it ended before: {self.seen()}"
            )
            return found if len(found) >= n else []

        return [int(mark.name.split()[-1]) for mark in wait_for(come, seen=self.seen)]

    def seen(self) -> str:
        """What there is of runs and marks: for a test that fails."""
        lines = [
            f"runner {p.pid}: {'at work' if p.poll() is None else p.returncode}"
            for p in self.started
        ]
        for run in sorted(self.results.glob("runs/*")):
            rows = read_lines(run / "attempts.jsonl")
            ends = [r.get("status") or "started" for r in rows]
            shown = [p.read_text() for p in run.glob("attempts/*/progress.json")]
            lines.append(f"run {run.name}: {', '.join(ends)}; {' '.join(shown) or 'no progress'}")
        lines += sorted(f"mark {p.name}" for p in Path(self.environment["FAKE_MARKS"]).iterdir())
        return "\n".join(lines)

    def runs(self) -> dict[int, list[Path]]:
        """Run directories by seed."""
        by_seed: dict[int, list[Path]] = {}
        for run in sorted((self.results / "runs").iterdir()):
            config = run / "config.yaml"
            found = [config] if config.exists() else sorted(run.glob("attempts/*/config.yaml"))
            if found:
                by_seed.setdefault(parse_yaml(found[0].read_text())["seed"], []).append(run)
        return by_seed

    def ends(self, seed: int) -> list[list[str]]:
        """How every attempt at every run of a seed ended."""
        return [
            [r["status"] for r in read_lines(run / "attempts.jsonl") if "ended" in r]
            for run in self.runs()[seed]
        ]

    def statuses(self) -> dict[str, str]:
        """run_id -> status of the runs that have a result."""
        return {
            p.name: r.status for p in (self.results / "runs").iterdir() if (r := read_result(p))
        }

    def table(self) -> str:
        """The exported table of runs, without the columns of times, hosts and attempts."""
        from reports.inputs.load import load

        table = load("fake", results=str(self.results)).runs
        return table.drop(columns=[c for c in table if c in ("node", "host", "attempt")]).to_csv(
            index=False
        )

    def trailing(self) -> list[str]:
        """What is left of claims and of half-written files."""
        return [
            str(p)
            for p in self.results.rglob("*")
            if p.name.startswith(".") or p.name == "owner.json"
        ]


def wait_for(
    condition: Callable[[], Any],
    timeout_s: float = DEADLINE_S,
    *,
    every_s: float = 0.01,
    seen: Callable[[], Any] | None = None,
) -> Any:
    """What a condition says, once that is true; fails the test, with what was seen, if it never is."""
    end = time.monotonic() + timeout_s
    while not (said := condition()):
        assert time.monotonic() < end, (
            f"in {timeout_s:g} s it never happened: {said if seen is None else seen()}"
        )
        time.sleep(every_s)
    return said


def clock_from(begins: Callable[[], bool]) -> SimpleNamespace:
    """In place of the module time: it stands still until something holds, so that nothing before that can be too slow."""
    began: list[float] = []

    def monotonic() -> float:
        if not began and begins():
            began.append(time.monotonic())
        return time.monotonic() - began[0] if began else 0.0

    return SimpleNamespace(monotonic=monotonic)


def end_started() -> None:
    """End what a test left, as one that fails does: its runners, whose workers go with them."""
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            process.kill()
            process.communicate()


def workers_of(pid: int) -> list[int]:
    """Process ids of a runner's workers."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            command = (stat.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z" and b"harness.runner.worker" in command:
            found.append(int(stat.parent.name))
    return found


def gone(pid: int) -> bool:
    """Whether a process is no more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class Ran:
    def __init__(self, done: "subprocess.CompletedProcess[str]") -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def ablate(matrix: Matrix, *arguments: str) -> Ran:
    """`ablate ... --results`, with the fake trainer where the matrix has it."""
    done = matrix.forked(*arguments)
    assert "Traceback" not in done.stderr
    return Ran(done)


def processes_of(text: bytes) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if (
                text in path.read_bytes()
                and b"harness.runner.worker" in (path.parent / "cmdline").read_bytes()
            ):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found
