"""An experiment's runs, told to a tracker as they grow.

Reads the results folder alone, in a process of its own: no run knows of it, none can fail by it.
"""

import fcntl
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Protocol

from harness.errors import UserError
from harness.run.attempts import AttemptRow, read_attempts
from harness.run.document import Content, Document
from harness.run.files import write_json
from harness.run.guarded import IN_FOLDER, open_file, open_to_append, read_text
from harness.run.metrics import OWN
from harness.run.parse import parse_json
from harness.run.plan import PlanRun
from harness.run.plan_file import read_plan_file
from harness.run.read import parse_config, read_json
from harness.run.results import Result, result_in
from harness.run.spec import RESULT_STATUSES
from harness.run.typed import typed

Numbers = Mapping[str, float]
AT_ONCE = 1 << 22  # bytes of a log that are told in one go


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """An attempt at a run, as a tracker knows it."""

    key: str  # its name in the tracker, where it is found again
    label: str  # for people: arm, seed, steps
    arm: str
    config: Mapping[str, str | float]  # dotted field -> value
    facts: Mapping[str, str]  # experiment, run_id, role ...


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How an attempt ended, in the words and numbers of its result where it has one."""

    status: str
    reason: str | None = None
    numbers: Numbers = field(default_factory=dict)

    @property
    def counts(self) -> bool:
        """Whether the run has a result."""
        return self.status in RESULT_STATUSES


class Tracker(Protocol):
    """What a tracker is told. Whatever it raises ends the telling, no run."""

    where: str  # in words: where a person sees it

    def begin(self, run: TrackedRun) -> None:
        """A run begins, or goes on being told."""

    def log(self, run: TrackedRun, step: int, numbers: Numbers) -> None:
        """Numbers of a step (updates before them)."""

    def end(self, run: TrackedRun, outcome: Ending) -> None:
        """No more comes of this attempt."""

    def flush(self) -> None:
        """What it was told is kept, or sent."""

    def close(self) -> None:
        """Nothing more comes."""


@dataclass(frozen=True, kw_only=True)
class Reached:
    """How far a run has been told."""

    attempt: int = 1
    n_bytes: int = 0  # of its metrics.jsonl
    step: int = 0  # of the last row that has one
    ended: bool = False  # the attempt's outcome, too


@contextmanager
def telling_alone(folder: Path, name: str) -> Iterator[None]:
    """Wait until no other process tells this tracker of the experiment in the folder."""
    with os.fdopen(open_to_append(folder / f"tracked-{name}.log", below=IN_FOLDER), "ab") as log:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(log, fcntl.LOCK_EX)
        yield


class Follower:
    """Tells a tracker what is new of an experiment, and remembers what was told."""

    def __init__(self, results: Path, experiment: str, tracker: Tracker, name: str) -> None:
        """name: of the tracker. What was told to it is nothing where that cannot be read."""
        self.folder = results / "experiments" / experiment
        self.runs = results / "runs"
        self.tracker = tracker
        self.memory = self.folder / f"tracked-{name}.json"
        self.told = _read_told(self.memory)
        self.begun: set[str] = set()  # keys of the runs that the tracker knows in this process
        self.n_rows = 0

    def look(self) -> bool:
        """Tell what is new; whether every planned run has its result."""
        try:
            plan = read_plan_file(self.folder / "experiment.json")
        except FileNotFoundError:
            return False  # it is planned in a moment
        except (OSError, ValueError) as error:
            raise UserError(f"{self.folder}: {error}: run the experiment again") from None
        before = dict(self.told)
        try:
            complete = [self._look_at(planned, plan.name) for planned in plan.runs]
        finally:
            self.tracker.flush()  # where that fails it is told again, rather than lost
            if self.told != before:
                rows = {run_id: asdict(told) for run_id, told in self.told.items()}
                write_json(self.memory, rows, below=IN_FOLDER)
        return all(complete)

    def _look_at(self, planned: PlanRun, experiment: str) -> bool:
        """Tell what is new of a run; whether it has its result."""
        run_id, folder = planned.run_id, self.runs / planned.run_id
        attempts = read_attempts(folder)
        numbers = [row.attempt for row in attempts if row.attempt is not None]
        if not numbers:
            return False
        told = self.told.get(run_id, Reached(attempt=numbers[-1]))
        if told.attempt != numbers[-1]:  # it began anew, its metrics too
            if not told.ended:
                run = _tracked(planned, experiment, told.attempt, folder)
                self._end(run, Ending(status="interrupted"))
            told = Reached(attempt=numbers[-1])
        if told.ended:
            return result_in(str(folder), run_id) is not None
        result = result_in(str(folder), run_id)  # before the rows: then these are all
        run = _tracked(planned, experiment, told.attempt, folder)
        for step, values, n_bytes in _rows_after(folder / "metrics.jsonl", told):
            self._begin(run)
            self.tracker.log(run, step, values)
            told = Reached(attempt=told.attempt, n_bytes=n_bytes, step=step)
            self.told[run_id] = told
            self.n_rows += 1
        outcome = _outcome(result, attempts, told.attempt)
        if outcome is not None:
            self._end(run, outcome)
            self.told[run_id] = replace(told, ended=True)
        return result is not None

    def _begin(self, run: TrackedRun) -> None:
        if run.key not in self.begun:
            self.tracker.begin(run)
            self.begun.add(run.key)

    def _end(self, run: TrackedRun, outcome: Ending) -> None:
        self._begin(run)
        self.tracker.end(run, outcome)
        self.begun.remove(run.key)


def _outcome(result: Result | None, attempts: Sequence[AttemptRow], attempt: int) -> Ending | None:
    """How the run's attempt ended; None where it goes on."""
    if result is not None:
        numbers = _finite(result.content)
        return Ending(status=result.status, reason=result.reason, numbers=numbers)
    for row in attempts:
        if row.is_end and row.attempt == attempt:
            return Ending(status=row.status or "failed", reason=row.reason)
    return None


def _read_told(path: Path) -> dict[str, Reached]:
    content = read_json(path)
    told = {}
    for run_id, row in (content if isinstance(content, dict) else {}).items():
        with suppress(TypeError, ValueError):
            told[run_id] = typed(Reached(**row))
    return told


def _tracked(planned: PlanRun, experiment: str, attempt: int, folder: Path) -> TrackedRun:
    which = f"seed {planned.seed}" if planned.seed is not None else f"run {planned.replicate}"
    label = f"{planned.arm}, {which}, {planned.budget} steps"
    key = planned.run_id
    if attempt > 1:
        key, label = f"{key}-{attempt}", f"{label}, attempt {attempt}"
    config: Content = {}
    with suppress(OSError, ValueError):
        config = parse_config(read_text(folder / "config.yaml"))
    return TrackedRun(
        key=key,
        label=label,
        arm=planned.arm,
        config=dict(_leaves(config)),
        facts={
            "experiment": experiment,
            "run_id": planned.run_id,
            "role": planned.role,
            "seed": str(planned.seed),
            "budget": str(planned.budget),
        },
    )


def _leaves(content: Document, above: str = "") -> Iterator[tuple[str, str | float]]:
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value if isinstance(value, (int, float)) else str(value)


def _rows_after(path: Path, told: Reached) -> Iterator[tuple[int, Numbers, int]]:
    """(step, its numbers, bytes up to its end) of every whole line beyond what was told."""
    try:
        file = os.fdopen(open_file(path), "rb")
    except OSError:
        return
    step, n_bytes = told.step, told.n_bytes
    with file:
        file.seek(n_bytes)
        while lines := file.readlines(AT_ONCE):
            for line in lines:
                if not line.endswith(b"\n"):
                    return  # it is being written
                n_bytes += len(line)
                row: object = None
                with suppress(ValueError):
                    row = parse_json(line)
                if isinstance(row, dict) and (values := _values(row)):
                    if isinstance(row.get("step"), int):
                        step = row["step"]
                    yield step, values, n_bytes


def _values(row: Document) -> Numbers:
    """The numbers of a row of metrics.jsonl; those of a GPU's state stay in the result."""
    if row.get("kind") == OWN:
        return _finite({str(row.get("name")): row.get("value")})
    if row.get("kind") == "gpu":
        return {}
    values = _finite({key: value for key, value in row.items() if key != "step"})
    times = row.get("step_times_ms")
    if isinstance(times, Sequence):
        timed = [ms for ms in times if isinstance(ms, (int, float))]
        if timed:
            values["step_ms"] = sum(timed) / len(timed)
    return values


def _finite(content: Document) -> dict[str, float]:
    """The numbers of a mapping."""
    numbers = {}
    for key, value in content.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            numbers[key] = float(value)
    return numbers
