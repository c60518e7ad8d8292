"""One run of a foreign trainer: its command in a clean copy, its printed lines read, its end an outcome like any other."""

import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from harness.foreign import guard
from harness.foreign.command import command_of, variables_of
from harness.foreign.logs import LINE_LIMIT, Point, Reading
from harness.node.slots import Slot
from harness.provenance import interpreters
from harness.provenance.code import unzip
from harness.provenance.machine import describe_environment
from harness.provenance.redact import redact
from harness.run.spec import Outcome, RunSpec
from harness.store.attempt import RunWriter

POLL_S = 0.2
NO_MEMORY = ("CUDA out of memory", "OutOfMemoryError", "can't allocate memory")
RAISED = re.compile(r"(?:\[rank(\d+)\]:? )?(?!.*ChildFailedError)([A-Za-z_.]*(?:Error|Exception|Interrupt|Exit)\b.*)")
RANK_ENDED = re.compile(r".*failed \(exitcode: (-?\d+)\) local_rank: (\d+)")  # torchrun, of the first that did


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a run is allowed: seconds in all, seconds without a line of output, further tries after a failure."""

    wall_s: float | None = None
    silence_s: float = 3600.0  # long enough for the longest compilation
    retries: int = 0


def clean_copy(spec: RunSpec, archive: Path, folder: Path) -> None:
    """The trainer's code alone, data as links."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    unzip(archive, folder)
    for name, path in spec.config["trainer"]["data"].items():
        _link(Path(path), folder / name)


def _link(path: Path, place: Path) -> None:
    """A link to a file or folder; into a folder that holds code too, what lies in it is linked piece by piece."""
    if place.is_dir() and path.is_dir():
        for inner in path.iterdir():
            _link(inner, place / inner.name)
    elif not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(path)


def copy_of(out: RunWriter) -> Path:
    """Where an attempt's clean copy lies while it runs."""
    return out.folder / "copy"


def account(spec: RunSpec, copy: Path) -> dict[str, Any]:
    """environment.json: this machine's, with the versions and the command of the trainer."""
    trainer = spec.config["trainer"]
    machine = describe_environment(shlex.join(command_of(spec, copy)))
    lock = dict(interpreters.lock_of(trainer["environment"]).versions)
    elsewhere: dict[str, Any] = {"packages": [], "python": lock.get("python")} if trainer["environment"] else {}
    return {**machine, **elsewhere, "lock": lock, "torch": lock.get("torch"), "trainer": dict(trainer)}


def train(spec: RunSpec, *, out: RunWriter, archive: Path, slot: Slot, stop: Callable[[], str | None], limits: Limits) -> Outcome:
    """Run the command to its end, or end it: at a stop, a limit, or a loss that is none."""
    copy, began = copy_of(out), time.monotonic()
    clean_copy(spec, archive, copy)
    out.log(f"$ {redact(shlex.join(command_of(spec, copy)))}")
    process = subprocess.Popen(
        [sys.executable, "-P", str(guard.__file__), *command_of(spec, copy)],
        cwd=copy,
        env=variables_of(spec, slot, copy),
        stdin=subprocess.PIPE,  # its end is the guard's order to end everything
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C reaches us alone
    )
    try:
        watch = _Watch(spec, out, limits)
        ended = watch.follow(process, stop)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        code = process.wait()
        process.stdout.close()
        shutil.rmtree(copy, ignore_errors=True)
    return watch.outcome(ended, code, wall={"total_s": time.monotonic() - began})


class _Watch:
    """The lines of a run as they come, and what they say of it."""

    def __init__(self, spec: RunSpec, out: RunWriter, limits: Limits) -> None:
        self.spec, self.out, self.limits = spec, out, limits
        self.reading, self.dropped = Reading(), 0
        self.raised: dict[str | None, str] = {}  # rank, None where it has none -> its last exception
        self.last_words = ""
        self.rank_ended: re.Match[str] | None = None
        self.no_memory = False

    def follow(self, process: "subprocess.Popen[bytes]", stop: Callable[[], str | None]) -> Outcome | None:
        """Read until the output ends; the outcome if the run has to be ended before."""
        assert process.stdout is not None
        began = heard = time.monotonic()
        for lines in _batches(process.stdout):
            now = time.monotonic()
            heard = now if lines else heard
            for line in lines:
                if self.reading.exploded is None:
                    self.take(line)
            if (status := stop()) is not None:
                return Outcome(status=status, reason="stopped by a signal")  # type: ignore[arg-type]
            if self.reading.exploded is not None:
                return None
            if self.limits.wall_s is not None and now - began > self.limits.wall_s:
                return Outcome(status="timeout", reason=f"it ran longer than its wall limit of {self.limits.wall_s:g} s")
            if now - heard > self.limits.silence_s:
                return Outcome(status="timeout", reason=f"it printed nothing for {self.limits.silence_s:g} s")
        return None

    def take(self, line: bytes) -> None:
        """One line: into the log, and into the metrics if it is a measurement."""
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        self.out.log(text)
        point = self.reading.feed(line)
        if self.reading.dropped > self.dropped:  # it had printed its own code
            self.out.forget_metrics()
            self.dropped = self.reading.dropped
        if point is not None:
            self.measured(point)
        elif any(c.isalpha() for c in text):
            self.no_memory = self.no_memory or any(words in text for words in NO_MEMORY)
            self.last_words = text.strip()[:300]
            if match := RAISED.match(text):
                self.raised[match[1]] = match[2].strip()[:300]
            self.rank_ended = self.rank_ended or RANK_ENDED.match(text)

    def measured(self, p: Point) -> None:
        if p.kind == "val":
            self.out.metric({"kind": "val", "step": p.step, "val_loss": p.loss, "train_time_s": p.train_time_s})
        elif p.kind == "train":
            self.out.metric({"kind": "train", "step": p.step, "train_loss": p.loss})
        self.out.heartbeat(p.step, p.total or 0)

    def outcome(self, ended: Outcome | None, code: int, *, wall: Mapping[str, float]) -> Outcome:
        """How the run ended, for its exit code and what it printed."""
        if ended is not None:
            return ended
        if self.reading.exploded is not None:
            reason = f"the loss was not finite or exploded at step {self.reading.exploded}"
            return self.result("diverged", reason, wall)
        if code:
            said = self.raised.get(None) or next(iter(self.raised.values()), self.last_words)
            reason = f"its command {_ended(128 - code if 128 < code < 128 + 65 else code)}"
            if self.rank_ended is not None:
                rank = self.rank_ended[2]
                reason, said = f"rank {rank} {_ended(int(self.rank_ended[1]))}", self.raised.get(rank, "")
            reason += f": {said}" if said else ""
            return Outcome(status="oom" if self.no_memory else "failed", reason=reason, wall=wall)
        if wrong := self.reading.lacks():
            return Outcome(status="failed", reason=f"its log: {wrong}", wall=wall)
        return self.result("finished", None, wall)

    def result(self, status: Any, reason: str | None, wall: Mapping[str, float]) -> Outcome:
        final = self.reading.final()
        changed = interpreters.effect(self.spec.config["trainer"]["environment"])
        marks = {"self_reported": True, "budget": self.reading.n_steps, "environment_effect": changed}
        return Outcome(
            status=status, reason=reason, final=final, wall={**wall, "train_s": final["train_time_s"] or 0.0}, marks=marks
        )


def _ended(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _batches(pipe: IO[bytes]) -> Iterator[list[bytes]]:
    """The lines that came since the last look, at least every POLL_S, until the pipe ends. A line is cut at LINE_LIMIT."""
    fd, rest = pipe.fileno(), b""
    while True:
        if not select.select([fd], [], [], POLL_S)[0]:
            yield []
            continue
        chunk = os.read(fd, LINE_LIMIT)
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > LINE_LIMIT or (not chunk and rest):
            lines, rest = [*lines, rest[:LINE_LIMIT]], b""
        yield lines
        if not chunk:
            return
