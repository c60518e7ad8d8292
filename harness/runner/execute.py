"""One run on one worker, to its end: a new worker if one died, smaller passes if memory ran out."""

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.errors import UserError
from harness.provenance.redact import redact
from harness.run.code import digests_among
from harness.run.guarded import OF_ATTEMPT
from harness.run.read import read_json
from harness.run.spec import RESULT_STATUSES, RunSpec
from harness.runner.limits import POLL_S, RunLimits
from harness.runner.messages import WorkerEvent, WorkerRequest
from harness.runner.process import Worker, WorkerProcess
from harness.store.claims import attempt_with, told_by_ranks
from harness.store.store import Store

START_S = 600.0  # a worker may take this long to import, to find its GPUs and its peers
STILL_S = 30.0  # between two looks beyond this the runner itself stood still
LOST_PEER = "a process on another of its nodes ended"


def go_on() -> str | None:
    return None


def nothing() -> None:
    """What is done at a run's first step, where nobody waits for it."""


@dataclass(frozen=True, kw_only=True)
class Execution:
    """A run that is to be done on a worker, and what the runner does meanwhile."""

    spec: RunSpec
    store: Store
    command: str  # as the user gave it
    limits: RunLimits
    cache: Path | None = None  # the configuration's mark among the compiled kernels
    stop: Callable[[], str | None] = go_on  # the status that it is to end with at once
    first_step: Callable[[], None] = nothing  # called when it makes one
    job: str = ""  # that does it, if one does
    # where data lies on this node, if not at the path that the run names: path -> place
    moved: Mapping[str, str] = field(default_factory=dict)


def split_finer(spec: RunSpec) -> RunSpec | None:
    """The run with half the tokens in a pass, twice the passes in an update: the same mathematics.

    None where it would be another: passes that are summed instead of averaged, rows that cannot be
    halved, validation tokens that would no longer be the same ones.
    """
    data = spec.config["data"]
    micro_tokens = data["micro_tokens"]
    averaged = spec.config["system"]["accumulate"] == "mean"
    whole_rows = micro_tokens % (2 * data["seq_len"]) == 0
    same_validation = data["val_tokens"] % micro_tokens == 0
    if not (averaged and whole_rows and same_validation):
        return None
    finer = {**data, "micro_tokens": micro_tokens // 2}
    return replace(spec, config={**spec.config, "data": finer})


def execute(worker: Worker, run: Execution) -> WorkerEvent:
    """How the run ended; "taken" if somebody else has it. Raises UserError if nothing can go on."""
    deaths = 0
    oom_retries = 0
    trained = run.spec
    while True:
        token = f"{run.job}/{uuid.uuid4().hex}"
        process = worker.send(request_of(run, trained, token))
        event = _answer(worker, process, run, token)
        if event.status == "died":
            event = _failure_of_dead(event, run, token)
        event = redacted(event)
        if event.status == "broken":
            raise UserError(event.reason)
        again = False
        if event.died:
            deaths += 1
            again = deaths <= run.limits.deaths
        if event.status == "oom" and oom_retries < run.limits.oom_retries:
            finer = split_finer(trained)
            if finer is not None:
                oom_retries += 1
                trained = finer
                again = True
        if event.unnoted:
            reason = event.reason or ""
            run.store.note_end(run.spec.run_id, token=token, status=event.status, reason=reason)
        if not again:
            return event


def request_of(run: Execution, trained: RunSpec, token: str) -> WorkerRequest:
    """What the worker is told. trained: the run as it is to be trained, perhaps in finer passes."""
    return WorkerRequest(
        results=run.store.root.resolve(),
        spec=run.spec,
        command=run.command,
        token=token,
        cache=None if run.cache is None else run.cache.resolve(),
        micro_tokens=None if trained is run.spec else trained.config["data"]["micro_tokens"],
        digests=digests_among({*run.spec.source_files.values()}),
    )


def redacted(event: WorkerEvent) -> WorkerEvent:
    """The event without what is secret: its reason may be anything that a process last said.

    A job's output shows it.
    """
    if not event.reason:
        return event
    return replace(event, reason=redact(event.reason))


def _failure_of_dead(event: WorkerEvent, run: Execution, token: str) -> WorkerEvent:
    """How a run ended whose worker died: as a rank of it told, if one could."""
    told = _told_by_rank(run, token)
    if told is None:
        return WorkerEvent(status="failed", reason=event.reason, unnoted=True, died=True)
    if told.status == "oom":
        return replace(told, unnoted=True)
    # a rank's exception may only be the echo of another rank's death
    return WorkerEvent(status="failed", reason=told.reason, unnoted=True, died=True)


def _told_by_rank(run: Execution, token: str) -> WorkerEvent | None:
    """What a further rank of a group left of its end; None if nothing."""
    attempt = _attempt(run, token)
    if attempt is None:
        return None
    for path in told_by_ranks(attempt):
        left = read_json(path, below=OF_ATTEMPT)
        if left:
            return WorkerEvent.from_message(left)
    return None


def _attempt(run: Execution, token: str) -> Path | None:
    return attempt_with(token, run.store.directory(run.spec.run_id))


class _Watch:
    """How long a run has been at work, and when it last moved."""

    def __init__(self, run: Execution, token: str) -> None:
        self.run = run
        self.token = token
        self.began = time.monotonic()
        self.moved = self.began
        self.looked = self.began
        self.at_work = False  # the worker's start is no part of the run
        self.seen: object = None  # the progress that was shown last

    def end(self) -> WorkerEvent | None:
        """The end that the runner gives the run now: stopped, too long, silent; None to go on."""
        run, now = self.run, time.monotonic()
        self._leave_out_stall(now)
        if not self.at_work and _attempt(run, self.token) is not None:
            self.at_work = True
            self.began = now
            self.moved = now
        silence_s = run.limits.silence_s
        if not self.at_work:
            silence_s = max(silence_s, START_S)
        if now - self.moved > min(1.0, silence_s / 4):
            self._look(now)
        status = run.stop()
        wall_s = run.limits.wall_s
        if status is not None:
            reason = LOST_PEER if status == "failed" else "stopped by a signal"
            return WorkerEvent(status=status, reason=reason, unnoted=True)
        if self.at_work and wall_s is not None and now - self.began > wall_s:
            reason = f"it ran longer than its wall limit of {wall_s:g} s"
            return WorkerEvent(status="timeout", reason=reason, unnoted=True)
        if now - self.moved > silence_s:
            reason = f"it made no step for {silence_s:g} s"
            return WorkerEvent(status="timeout", reason=reason, unnoted=True)
        return None

    def _leave_out_stall(self, now: float) -> None:
        """A time in which this whole host stood still counts for none of the limits."""
        away_s = now - self.looked
        self.looked = now
        if away_s > STILL_S:
            self.began += away_s
            self.moved += away_s

    def _look(self, now: float) -> None:
        """Whether it moved since the last look."""
        shown = self.run.store.progress(self.run.spec.run_id)
        if shown == self.seen:
            return
        if self.seen is None:
            self.run.first_step()
        self.seen = shown
        self.moved = now


def _answer(worker: Worker, process: WorkerProcess, run: Execution, token: str) -> WorkerEvent:
    """The worker's answer, its death, or the end that the runner gives it."""
    watch = _Watch(run, token)
    while True:
        event = process.event(POLL_S)
        if event is not None:
            return event
        end = watch.end()
        if end is not None:
            worker.kill()
            return _result_meanwhile(run) or end


def _result_meanwhile(run: Execution) -> WorkerEvent | None:
    """How a run ended whose result was there before the runner ended it; None without one."""
    state = run.store.state(run.spec.run_id)
    if state.status not in RESULT_STATUSES:
        return None
    return WorkerEvent(
        status=state.status, reason=state.reason, val_loss=state.val_loss, unnoted=True
    )
