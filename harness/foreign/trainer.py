"""One run of a foreign trainer: its command in a clean copy, watched line by line to its end."""

import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO

from harness.errors import UserError
from harness.foreign import guard
from harness.foreign.command import ForeignTrainer, command_of, variables_of
from harness.foreign.log_lines import LINE_LIMIT, LogPoint
from harness.foreign.logs import Reading
from harness.node.slots import Slot
from harness.provenance import interpreters
from harness.provenance.code import unzip
from harness.provenance.machine import describe_environment
from harness.provenance.redact import redact
from harness.run.document import Content
from harness.run.foreign import TrainerLimits
from harness.run.measured import ForeignMarks
from harness.run.metrics import TrainingLoss, Validation
from harness.run.spec import Outcome, RunSpec, Status
from harness.runner.executor import POLL_S
from harness.store.attempt import RunWriter
from harness.store.errors import ResultsError

MAX_REASON = 300  # characters of a line that becomes part of a reason
MAX_RANKS = 4096  # whose last exception is kept
MIB = 2**20
MAX_SIGNAL = 64  # a guard's exit code is 128 and the signal that killed its command
OUT_OF_MEMORY = ("CUDA out of memory", "OutOfMemoryError", "can't allocate memory")
RAISED = re.compile(
    r"(?:\[rank(\d+)\]:? )?(?!.*ChildFailedError)"
    r"([A-Za-z_.]*(?:Error|Exception|Interrupt|Exit)\b.*)"
)
# torchrun's words on the rank that failed first
RANK_ENDED = re.compile(r".*failed \(exitcode: (-?\d+)\) local_rank: (\d+)")


# ---------------------------------------------------------------- its clean copy


def clean_copy(spec: RunSpec, archive: Path, folder: Path) -> None:
    """The trainer's code alone, data as links."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    unzip(archive, folder)
    for name, path in ForeignTrainer.of_run(spec).data.items():
        _link(Path(path), folder / name)


def _link(path: Path, place: Path) -> None:
    """A link to a file or folder; into a folder that holds code too, piece by piece."""
    if place.is_dir() and path.is_dir():
        for inner in path.iterdir():
            _link(inner, place / inner.name)
    elif not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(path)


def copy_of(out: RunWriter) -> Path:
    """Where an attempt's clean copy lies while it runs."""
    return out.folder / "copy"


def environment_of(spec: RunSpec, copy: Path) -> Content:
    """environment.json: this machine's, with the versions and the command of the trainer."""
    trainer = ForeignTrainer.of_run(spec)
    described = describe_environment(shlex.join(command_of(spec, copy))).to_json()
    versions = dict(interpreters.lock_of(trainer.environment).versions)
    if trainer.environment:
        described["packages"] = []
        described["python"] = versions.get("python")
    described["lock"] = versions
    described["torch"] = versions.get("torch")
    described["trainer"] = trainer.to_mapping()
    return described


# ---------------------------------------------------------------- its command


def train(
    spec: RunSpec,
    *,
    out: RunWriter,
    archive: Path,
    slot: Slot,
    stop: Callable[[], str | None],
    limits: TrainerLimits,
) -> Outcome:
    """Run the command to its end, or end it: at a stop, a limit, or a loss that is none.

    out: takes what it prints. slot: its devices. limits: on its time.
    archive: the code as it was kept; stop: the status that a signal asks for, None while none came.
    """
    copy = copy_of(out)
    began = time.monotonic()
    clean_copy(spec, archive, copy)
    command = command_of(spec, copy)
    out.log(f"$ {redact(shlex.join(command))}")
    process = subprocess.Popen(
        [sys.executable, "-P", str(guard.__file__), *command],
        cwd=copy,
        env=variables_of(spec, slot, copy),
        stdin=subprocess.PIPE,  # its end is the guard's order to end everything
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C reaches us alone
    )
    assert process.stdin is not None
    assert process.stdout is not None
    watch = _TrainerWatch(spec, out, limits)
    try:
        ended = watch.follow(process.stdout, stop)
    except ResultsError:
        raise
    except UserError as error:  # it measured more than can be kept
        ended = Outcome(status="failed", reason=str(error))
    finally:
        process.stdin.close()
        code = process.wait()
        process.stdout.close()
        shutil.rmtree(copy, ignore_errors=True)
    if ended is not None:
        return ended
    return watch.outcome(code, wall={"total_s": time.monotonic() - began})


class _TrainerWatch:
    """The lines of a run as they come, and what they say of it."""

    def __init__(self, spec: RunSpec, out: RunWriter, limits: TrainerLimits) -> None:
        self.spec = spec
        self.out = out
        self.limits = limits
        self.reading = Reading()
        self.n_dropped = 0
        self.raised: dict[str | None, str] = {}  # rank, None where it has none -> last exception
        self.last_line = ""  # that says something
        self.rank_ended: re.Match[str] | None = None
        self.no_memory = False
        self.printed = 0  # bytes

    def follow(self, pipe: IO[bytes], stop: Callable[[], str | None]) -> Outcome | None:
        """Read until the output ends; the outcome if the run has to be ended before."""
        began = heard = time.monotonic()
        for lines in _batches(pipe):
            now = time.monotonic()
            if lines:
                heard = now
                self.take(lines)
            if self.printed > self.limits.output_mib * MIB:
                limit_mib = self.limits.output_mib
                reason = f"it printed more than its output limit of {limit_mib:g} MiB"
                return Outcome(status="failed", reason=reason)
            status = stop()
            if status is not None:
                reason = "stopped by a signal"
                return Outcome(status=status, reason=reason)  # type: ignore[arg-type]
            if self.reading.exploded is not None:
                return None
            limit = self._limit_met(ran_s=now - began, silent_s=now - heard)
            if limit is not None:
                return Outcome(status="timeout", reason=limit)
        return None

    def _limit_met(self, *, ran_s: float, silent_s: float) -> str | None:
        """Why a run has had its time, None if it has not."""
        wall_s, silence_s = self.limits.wall_s, self.limits.silence_s
        if wall_s is not None and ran_s > wall_s:
            return f"it ran longer than its wall limit of {wall_s:g} s"
        if silent_s > silence_s:
            return f"it printed nothing for {silence_s:g} s"
        return None

    def take(self, lines: list[bytes]) -> None:
        """Lines: into the log, at once, and into the metrics if they are measurements."""
        texts: list[str] = []
        for line in lines:
            if self.reading.exploded is not None:
                break
            self.printed += len(line) + 1
            texts.append(line.decode("utf-8", "replace").rstrip("\r\n"))
            self._take_line(line, texts[-1])
        if texts:
            self.out.log("\n".join(texts))

    def _take_line(self, line: bytes, text: str) -> None:
        point = self.reading.feed(line)
        if self.reading.dropped > self.n_dropped:  # it had printed its own code
            self.out.forget_metrics()
            self.n_dropped = self.reading.dropped
        if point is not None:
            self._measured(point)
        elif any(character.isalpha() for character in text):
            self._said(text)

    def _measured(self, point: LogPoint) -> None:
        if point.kind == "val":
            measured = Validation(
                step=point.step, val_loss=point.loss, train_time_s=point.train_time_s
            )
            self.out.metric(measured)
        elif point.kind == "train":
            self.out.metric(TrainingLoss(step=point.step, train_loss=point.loss))
        self.out.heartbeat(point.step, point.total or 0)

    def _said(self, text: str) -> None:
        """Keep what a line may tell of why the run fails."""
        if any(phrase in text for phrase in OUT_OF_MEMORY):
            self.no_memory = True
        self.last_line = text.strip()[:MAX_REASON]
        exception = RAISED.match(text)
        if exception is not None and len(self.raised) < MAX_RANKS:
            self.raised[exception[1]] = exception[2].strip()[:MAX_REASON]
        if self.rank_ended is None:
            self.rank_ended = RANK_ENDED.match(text)

    # ------------------------------------------------------------ how it ended

    def outcome(self, code: int, *, wall: Mapping[str, float]) -> Outcome:
        """How the run ended, for the guard's exit code and what was printed."""
        if self.reading.exploded is not None:
            reason = f"the loss was not finite or exploded at step {self.reading.exploded}"
            return self._result("diverged", reason, wall)
        if code:
            status: Status = "oom" if self.no_memory else "failed"
            return Outcome(status=status, reason=self._failure(code), wall=wall)
        lacks = self.reading.lacks()
        if lacks is not None:
            return Outcome(status="failed", reason=f"its log: {lacks}", wall=wall)
        return self._result("finished", None, wall)

    def _failure(self, code: int) -> str:
        """What ended with which code, and the exception that tells most."""
        if self.rank_ended is not None:
            rank = self.rank_ended[2]
            reason = f"rank {rank} {_ended(int(self.rank_ended[1]))}"
            said = self.raised.get(rank, "")
        else:
            if 128 < code <= 128 + MAX_SIGNAL:
                code = 128 - code
            reason = f"its command {_ended(code)}"
            exceptions = [*self.raised.values(), self.last_line]
            said = self.raised.get(None) or exceptions[0]
        if said:
            reason += f": {said}"
        return reason

    def _result(self, status: Status, reason: str | None, wall: Mapping[str, float]) -> Outcome:
        final = self.reading.final()
        environment = ForeignTrainer.of_run(self.spec).environment
        return Outcome(
            status=status,
            reason=reason,
            final=final,
            wall={**wall, "train_s": final.train_time_s or 0.0},
            marks=ForeignMarks(
                budget=self.reading.n_steps, environment_effect=interpreters.effect(environment)
            ),
        )


def _ended(code: int) -> str:
    if code < 0:
        return f"was killed by signal {-code}"
    return f"ended with exit code {code}"


def _batches(pipe: IO[bytes]) -> Iterator[list[bytes]]:
    """The lines that came since the last look, at least every POLL_S, until the pipe ends.

    A line is cut at LINE_LIMIT."""
    descriptor = pipe.fileno()
    rest = b""
    while True:
        readable, _, _ = select.select([descriptor], [], [], POLL_S)
        if not readable:
            yield []
            continue
        chunk = os.read(descriptor, LINE_LIMIT)
        *lines, rest = (rest + chunk).split(b"\n")
        at_end = not chunk and rest
        if len(rest) > LINE_LIMIT or at_end:
            lines.append(rest[:LINE_LIMIT])
            rest = b""
        yield lines
        if not chunk:
            return
