"""One run of a foreign trainer: its command in a clean copy, watched line by line to its end."""

import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO

from harness.errors import UserError
from harness.foreign import guard
from harness.foreign.clean_copy import clean_copy, copy_of
from harness.foreign.command import ForeignTrainer, command_of, placeholders, variables_of
from harness.foreign.failure import FailureReason
from harness.foreign.log_lines import LINE_LIMIT, LogPoint
from harness.foreign.logs import Reading
from harness.foreign.own_lines import OwnReading
from harness.foreign.own_logs import OwnLogs, keep_own_logs, set_aside_own_logs
from harness.node.slots import Slot
from harness.provenance import interpreters
from harness.provenance.code import Code
from harness.provenance.redact import redact
from harness.run.foreign import TrainerLimits
from harness.run.guarded import MIB
from harness.run.measured import ForeignMarks
from harness.run.metrics import TrainingLoss, Validation
from harness.run.spec import Outcome, RunSpec, Status
from harness.runner.limits import POLL_S
from harness.store.attempt import RunWriter
from harness.store.errors import ResultsError

# whoever kills its own children (Ray, at the end of a task's process) kills the shell, and not the
# guard, which then finds its input ended; USR2 tells a cluster's job that its time is up, not us
BEHIND_SHELL = 'trap "" USR2; "$0" "$@"; exit $?'
STOPPED = "stopped by a signal"
TELL_S = 2.0  # so long after a command that SIGTERM ended we may hear of it ourselves
TORCHRUN_TERM = f"got signal: {int(signal.SIGTERM)}"
ENDED_BY_TERM = (-signal.SIGTERM, 128 + signal.SIGTERM)
PRINTED = ""  # the log of what it prints; other names are those of its own files


def train(
    spec: RunSpec,
    *,
    out: RunWriter,
    code: Code,
    slot: Slot,
    stop: Callable[[], str | None],
    limits: TrainerLimits,
    moved: Mapping[str, str] = MappingProxyType({}),
) -> Outcome:
    """Run the command to its end, or end it: at a stop, a limit, or a loss that is none.

    out: takes what it prints. slot: its devices. limits: on its time. code: as it was kept.
    stop: the status that a signal asks for, None while none came. moved: data that lies at another
    path here: path -> place.
    """
    copy = copy_of(out)
    began = time.monotonic()
    trainer = ForeignTrainer.of_run(spec)
    data = {place: moved.get(path, path) for place, path in trainer.data.items()}
    clean_copy(code, data, copy)
    set_aside_own_logs(out)
    values = placeholders(trainer, seed=spec.seed, copy=copy)
    command = command_of(trainer, values)
    out.log(f"$ {redact(shlex.join(command))}")
    process = subprocess.Popen(
        ["sh", "-c", BEHIND_SHELL, sys.executable, "-P", str(guard.__file__), *command],
        cwd=copy,
        env=variables_of(trainer, slot, values),
        stdin=subprocess.PIPE,  # at its end the guard ends everything
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C reaches us alone
    )
    assert process.stdin is not None
    assert process.stdout is not None
    watch = TrainerWatch(trainer, out, limits)
    try:
        ended = watch.follow(process.stdout, stop)
    except ResultsError:
        raise
    except UserError as error:  # it measured more than can be kept
        ended = Outcome(status="failed", reason=str(error))
    finally:
        process.stdin.close()
        ended_with = process.wait()
        process.stdout.close()
        try:
            watch.read_rest(copy)
            keep_own_logs(copy, watch.trainer.log, out)
        finally:
            shutil.rmtree(copy, ignore_errors=True)
    told = None
    if ended is None and ended_with:
        told = _told_to_go(ended_with, watch.failure.last_line, stop)
    if told is not None:
        return Outcome(status=told, reason=STOPPED)  # type: ignore[arg-type]
    return ended or watch.outcome(ended_with, wall={"total_s": time.monotonic() - began})


def _told_to_go(code: int, said: str, stop: Callable[[], str | None]) -> str | None:
    """The status that a signal asks for which ended the command before it reached us.

    A cluster tells every process of a job. code, said: of the command's end.
    """
    if code in ENDED_BY_TERM or TORCHRUN_TERM in said:
        until = time.monotonic() + TELL_S
        while stop() is None and time.monotonic() < until:
            time.sleep(POLL_S)
    return stop()


class TrainerWatch:
    """The lines of a run as they come, and what they say of it."""

    def __init__(self, trainer: ForeignTrainer, out: RunWriter, limits: TrainerLimits) -> None:
        self.trainer = trainer
        self.out = out
        self.limits = limits
        self.readings = {PRINTED: self._new_reading()}  # and of its own files with measurements
        self.source = PRINTED  # whose measurements are the run's
        self.conflict: str | None = None  # why nobody can tell which are
        self.n_dropped = 0
        self.failure = FailureReason()
        self.printed = 0  # bytes
        self.own = OwnLogs(copy_of(out), self.trainer.log) if self.trainer.log else None

    def _new_reading(self) -> Reading:
        """Of a log: the benchmark's lines, and what was asked for beside or instead of them."""
        return OwnReading(self.trainer.readings) if self.trainer.readings else Reading()

    @property
    def reading(self) -> Reading:
        """The log that counts."""
        return self.readings[self.source]

    def follow(self, pipe: IO[bytes], stop: Callable[[], str | None]) -> Outcome | None:
        """Read until the output ends; the outcome if the run has to be ended before."""
        began = heard = time.monotonic()
        for lines in line_batches(pipe):
            now = time.monotonic()
            if lines:
                self.take(lines)
            if self._take_own() or lines:
                heard = now
            if self._is_too_much:
                return self._flooded()
            status = stop()
            if status is not None:
                return Outcome(status=status, reason=STOPPED)  # type: ignore[arg-type]
            if self._is_over:
                return None
            limit = self._limit_met(ran_s=now - began, silent_s=now - heard)
            if limit is not None:
                return Outcome(status="timeout", reason=limit)
        self._take_own(at_end=True)
        return self._flooded() if self._is_too_much else None

    @property
    def _written(self) -> int:
        """Bytes that were read of its own log files."""
        return 0 if self.own is None else self.own.n_bytes

    @property
    def _is_too_much(self) -> bool:
        return self.printed + self._written > self.limits.output_mib * MIB

    def _flooded(self) -> Outcome:
        done = "printed"
        if self._written:
            done = "printed and wrote into its own logs"
        reason = f"it {done} more than its output limit of {self.limits.output_mib:g} MiB"
        return Outcome(status="failed", reason=reason)

    def _take_own(self, *, at_end: bool = False) -> bool:
        """What its own log files say since the last look; whether they said anything."""
        heard = False
        if self.own is not None:
            for name, lines in self.own.fresh(at_end=at_end):
                heard = True
                self._take_file(name, lines)
                if self._is_too_much or self.conflict is not None:
                    break
        return heard

    def _take_file(self, name: str, lines: list[bytes]) -> None:
        reading = self.readings.setdefault(name, self._new_reading())
        for line in lines:
            if self._is_over and self.source == name:  # others are still looked at for conflicts
                break
            point = reading.feed(line)
            if (point is not None or reading.new) and self.source != name:
                if self.source != PRINTED:
                    self.conflict = f"{self.source} and {name} both hold measurements"
                    break
                self.source, self.n_dropped = name, reading.dropped
                self.out.forget_metrics()  # of what it printed
            if self.source == name:
                self._read(point)

    @property
    def _is_over(self) -> bool:
        """Whether nothing counts any more: it diverged, is to be stopped, or nobody can tell."""
        return (self.conflict, self.reading.exploded, self.reading.stopped_at) != (None, None, None)

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
            if self._is_over:
                break
            self.printed += len(line) + 1
            texts.append(line.decode("utf-8", "replace").rstrip("\r\n"))
            self.take_line(line, texts[-1])
        if texts:
            self.out.log("\n".join(texts))

    def take_line(self, line: bytes, text: str) -> None:
        point = self.readings[PRINTED].feed(line)
        if self.source == PRINTED:
            self._read(point)
        else:
            self.readings[PRINTED].new.clear()  # it does not count
        if point is None and any(character.isalpha() for character in text):
            self.failure.feed(text)

    def _read(self, point: LogPoint | None) -> None:
        """What a line of the log that counts came to."""
        if self.reading.dropped > self.n_dropped:  # it had printed its own code
            self.out.forget_metrics()
            self.n_dropped = self.reading.dropped
        self._take_values()
        if point is not None:
            self._measured(point)

    def _take_values(self) -> None:
        """Readings of the script's own metrics, into the metrics."""
        for value in self.reading.new:
            self.out.metric(value)
            self.out.heartbeat(value.step or 0, 0)
        self.reading.new.clear()

    def read_rest(self, copy: Path) -> None:
        """What is read of a script that has ended, before its copy goes."""
        if not self._is_over:
            self.reading.read_rest(copy)
            self._take_values()

    def _measured(self, point: LogPoint) -> None:
        if point.kind == "val":
            measured = Validation(
                step=point.step, val_loss=point.loss, train_time_s=point.train_time_s
            )
            self.out.metric(measured)
        elif point.kind == "train":
            self.out.metric(TrainingLoss(step=point.step, train_loss=point.loss))
        self.out.heartbeat(point.step, point.total or 0)

    # ------------------------------------------------------------ how it ended

    def outcome(self, code: int, *, wall: Mapping[str, float]) -> Outcome:
        """How the run ended, for the guard's exit code and what was printed."""
        if self.conflict is not None:
            reason = f"its own logs: {self.conflict}: name one of them with --log"
            return Outcome(status="failed", reason=reason, wall=wall)
        if self.reading.exploded is not None:
            reason = f"the loss was not finite or exploded at step {self.reading.exploded}"
            return self._result("diverged", reason, wall)
        if self.reading.stopped_at is not None and not self.reading.problem:
            reason = f"stopped at step {self.reading.stopped_at}, as planned"
            return self._result("finished", reason, wall)
        if code:
            status: Status = "oom" if self.failure.no_memory else "failed"
            return Outcome(status=status, reason=self.failure.reason(code), wall=wall)
        lacks = self.reading.lacks()
        if lacks is not None:
            log = f"its log {self.source}".rstrip()
            return Outcome(status="failed", reason=f"{log}: {lacks}", wall=wall)
        return self._result("finished", None, wall)

    def _result(self, status: Status, reason: str | None, wall: Mapping[str, float]) -> Outcome:
        final = self.reading.final()
        return Outcome(
            status=status,
            reason=reason,
            final=final,
            wall={**wall, "train_s": final.train_time_s or 0.0},
            marks=ForeignMarks(
                budget=self.reading.n_steps,
                own=dict(self.reading.values),
                stopped_at=self.reading.stopped_at,
                environment_effect=interpreters.effect(self.trainer.environment),
            ),
        )


def line_batches(pipe: IO[bytes]) -> Iterator[list[bytes]]:
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
