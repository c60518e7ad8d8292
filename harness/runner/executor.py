"""What every executor shares: interface, options and limits, signals, the summary of a call."""

import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from harness.run.spec import RESULT_STATUSES, PlannedRun, is_exclusive
from harness.runner.limits import RunLimits
from harness.runner.slurm.cluster import Cluster
from harness.runner.trainers import OwnTrainer, RunTrainer
from harness.store.store import FAILED, Store

STOPS = {
    signal.SIGINT: "interrupted",
    signal.SIGHUP: "interrupted",
    signal.SIGTERM: "preempted",
}
# of a run that is not tried again in the same call
ENDED = (*RESULT_STATUSES, *FAILED, "damaged")


@dataclass(frozen=True, kw_only=True)
class RunEnded:
    """A run whose attempt ended in this call, or in another one that had it."""

    run: PlannedRun
    status: str
    reason: str | None = None
    val_loss: float | None = None


@dataclass(frozen=True, kw_only=True)
class RunProgress:
    """A run in progress, and where it is."""

    run: PlannedRun
    step: int = 0
    val_loss: float | None = None  # the latest


@dataclass(kw_only=True)
class Summary:
    """How the matrix stands when the runner stops: run_id -> status, with reasons if any."""

    had_result: dict[str, str] = field(default_factory=dict)  # before this call
    statuses: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    stopped: str | None = None  # "interrupted" or "preempted"

    def note(self, ended: RunEnded) -> None:
        run_id = ended.run.spec.run_id
        self.statuses[run_id] = ended.status
        self.reasons.pop(run_id, None)
        if ended.reason:
            self.reasons[run_id] = ended.reason


def never_cancelled() -> bool:
    return False


def tell_nobody(ended: RunEnded) -> None:
    """What a call does with a run that ended, where nobody watches."""


@dataclass(frozen=True, kw_only=True)
class ExecutorOptions:
    """What a call of the command line asks of its executor; each takes what concerns it."""

    experiment: str = ""  # its name
    command: str = ""  # as the user gave it, for the environment.json of the runs
    trainer: RunTrainer = field(default_factory=OwnTrainer)
    limits: RunLimits = field(default_factory=RunLimits)
    max_parallel: int | None = None  # runs at a time; None: as many as fit
    warm: bool = True  # one process takes run after run; else each has a fresh one
    n_nodes: int = 1  # of one run
    alone: bool = False  # on a cluster every run has its nodes to itself
    cluster: Cluster | None = None  # a site's settings
    address: str | None = None  # of a Ray cluster
    cancelled: Callable[[], bool] = never_cancelled  # whether somebody asked to end the call
    on_end: Callable[[RunEnded], None] = tell_nobody

    def is_alone(self, planned: PlannedRun) -> bool:
        """Whether nothing else may run on a run's nodes meanwhile."""
        return self.alone or is_exclusive(planned.spec)


class Executor(Protocol):
    """Does the runs that are missing of an experiment, here or elsewhere, and loses none."""

    def at_once(self) -> int:
        """How many runs are in progress at a time."""
        ...

    def run(self) -> Summary:
        """Work until nothing is left, the call is cancelled, or a signal stops it."""
        ...

    def progress(self) -> list[RunProgress]:
        """The runs in progress, each with where it is."""
        ...


def progress_of(store: Store, planned: PlannedRun) -> RunProgress | None:
    """Where a run is; None before its first step."""
    shown = store.progress(planned.spec.run_id)
    if shown is None:
        return None
    return RunProgress(run=planned, step=shown.step, val_loss=shown.val_loss)


def progress_of_all(store: Store, runs: Sequence[PlannedRun]) -> list[RunProgress]:
    """Of the runs that made a step, where they are."""
    shown = [progress_of(store, planned) for planned in runs]
    return [progress for progress in shown if progress is not None]


def tell_stops(tell: Callable[[str], None], numbers: Iterable[signal.Signals]) -> None:
    """From now on each of these signals is told as the status that it means."""

    def on_signal(number: int, frame: object) -> None:
        tell(STOPS[signal.Signals(number)])

    for number in numbers:
        signal.signal(number, on_signal)


@contextmanager
def stop_signals(tell: Callable[[str], None]) -> Iterator[None]:
    """Meanwhile a signal that asks this process to stop is told as the status that it means."""
    before = {}
    for number in STOPS:
        handler = signal.getsignal(number)
        if handler is not signal.SIG_IGN:  # nohup stays nohup
            before[number] = handler
    tell_stops(tell, before)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
