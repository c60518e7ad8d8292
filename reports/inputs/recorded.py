"""A planned run and what its folder holds.

Raises ValueError in one line for what cannot be read.
"""

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from harness.run.attempts import read_attempts
from harness.run.disturbed import disturbed_words
from harness.run.document import Document
from harness.run.environment import read_environment
from harness.run.guarded import MIB, facts_of, is_file, open_file, read_text
from harness.run.metrics import VALIDATION, Validation
from harness.run.parse import parse_json
from harness.run.plan import Plan, PlanRun
from harness.run.read import parse_config
from harness.run.remembered import Remembered
from harness.run.results import Result
from reports.inputs.experiment import target_loss
from reports.inputs.verified import verified_result

NO_RESULT = Result(status="none")  # every number of it unknown
POINT = ("step", "val_loss", "train_time_s")
TOKENS = "tokens"  # of a point too, where batches grow
LINES_AT_ONCE = 10_000  # of a log, so that memory stays bounded


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """A planned run and what its folder holds; a file that is not there is empty."""

    plan: Plan
    planned: PlanRun
    run_id: str  # of the run that stands for it, which may be an older one
    stale: bool
    status: str
    reason: str | None
    result: Result | None
    config: Document
    environment: Document
    validations: Sequence[Validation]
    session: str | None = None  # of a foreign trainer: the call that made it

    def points(self, key: str) -> list[float]:
        """One of POINT or TOKENS at every validation, nan where unknown."""
        return [float_or_nan(getattr(point, key)) for point in self.validations]

    @property
    def measured(self) -> Result:
        """The result, or one of which nothing is known."""
        return self.result or NO_RESULT

    @cached_property
    def stood_still(self) -> bool:
        """Whether the clock ran while nothing else did: the run's times are then none."""
        return self.measured.stood_still

    @property
    def disturbed(self) -> str:
        """What disturbed the run's time, '' for nothing."""
        return disturbed_words(self.measured.disturbed) or ""

    @cached_property
    def crossing(self) -> float | None:
        """Training seconds at the target loss; None without one, or where it was never reached."""
        target = target_loss(self.plan)
        if target is None or not self.result or self.stood_still:
            return None
        return first_crossing(self.points("train_time_s"), self.points("val_loss"), target)

    @property
    def first_crossing_s(self) -> float:
        """The crossing, nan for none."""
        return float_or_nan(self.crossing)

    @property
    def censored(self) -> bool:
        """Whether the run never reached the target."""
        if not self.result or self.stood_still or target_loss(self.plan) is None:
            return False
        return self.crossing is None

    @property
    def bits_per_byte(self) -> float:
        """The final loss, nan where the corpus does not know its bytes."""
        bytes_per_token = self.plan.corpus.bytes_per_token or math.nan
        return float_or_nan(self.measured.val_loss) / math.log(2) / bytes_per_token

    @property
    def node(self) -> str | None:
        """The machine's name."""
        return self.environment.get("host")

    @property
    def device(self) -> str | None:
        """The kind of device."""
        return self.config.get("device")

    @property
    def gpu(self) -> str | None:
        """The first GPU's name, or the processor's where there is none."""
        gpus = self.environment.get("gpus")
        if not gpus:
            return self.environment.get("cpu")
        if isinstance(gpus[0], Mapping):
            return str(gpus[0].get("name"))
        return str(gpus[0])

    @property
    def n_gpus(self) -> int | None:
        """How many GPUs it ran on; None where that is not known."""
        if self.imported:
            return len(self.environment.get("gpus") or ()) or None
        if self.device != "cuda":
            return None
        return self.config.get("world_size")

    @property
    def gpu_memory_gb(self) -> int | None:
        """Memory of one GPU, None where that is not known."""
        mib = self._of_first_gpu("memory_mib")
        return None if mib is None else round(mib * MIB / 1e9)

    @property
    def driver(self) -> str | None:
        """Version of the GPUs' driver."""
        version = self._of_first_gpu("driver_version")
        return None if version is None else str(version)

    @property
    def cuda(self) -> str | None:
        """Version of CUDA that torch was built for."""
        return self._version("cuda")

    @property
    def torch(self) -> str | None:
        """Version of torch."""
        return self._version("torch")

    def _of_first_gpu(self, key: str) -> Any:
        gpus = self.environment.get("gpus")
        if not gpus or not isinstance(gpus[0], Mapping):
            return None
        return gpus[0].get(key)

    def _version(self, name: str) -> str | None:
        lock = self.environment.get("lock") or {}
        return self.environment.get(name) or lock.get(name)

    @property
    def fingerprint(self) -> str | None:
        """Of the corpus."""
        return (self.config.get("data") or {}).get("fingerprint")

    @property
    def stale_files(self) -> str:
        """Named where all runs are read: reports/inputs/load.py."""
        return ""

    @property
    def imported(self) -> bool:
        """Whether it was brought in from a log."""
        return bool(self.planned.imported or self.measured.imported)

    @property
    def self_reported(self) -> bool:
        """Whether its clock is the script's own."""
        return bool(self.planned.self_reported or self.measured.self_reported)

    @property
    def metrics_digest(self) -> str | None:
        """What result.json says of metrics.jsonl."""
        return self.measured.digests.get("metrics.jsonl")


def read_run(
    root: Path, plan: Plan, planned: PlanRun, verified: Remembered | None = None
) -> RecordedRun:
    """One of the plan's runs; root: the folder of all runs.

    known: which results were found sound before. What is not sound says that alone.
    """
    run_id, stale = existing_run(root, planned)
    folder = root / run_id
    result, wrong = verified_result(folder, plan, planned, verified)
    config: Document = {}
    environment: Document = {}
    if not wrong:
        try:
            config = read_config_if_any(folder / "config.yaml")
            environment = read_environment(folder / "environment.json")
        except ValueError as error:  # what an attempt without a result left may be anything
            wrong = str(error) if result is not None else None
    if wrong:
        return RecordedRun(
            plan=plan,
            planned=planned,
            run_id=run_id,
            stale=stale,
            status="damaged",
            reason=wrong,
            result=None,
            config={},
            environment={},
            validations=(),
        )
    if result is not None:
        status, reason = result.status, result.reason
    else:
        status, reason = last_attempt(folder)
    return RecordedRun(
        plan=plan,
        planned=planned,
        run_id=run_id,
        stale=stale,
        status=status,
        reason=reason,
        result=result,
        config=config,
        environment=environment,
        validations=read_validations(folder / "metrics.jsonl"),
        session=session_of(folder, planned, result),
    )


def session_of(folder: Path, planned: PlanRun, result: Result | None) -> str | None:
    """The call that made the run of a foreign trainer; None where that is not known.

    By the end of the name that the call gave its attempts, in older releases by its process.
    """
    if result is None or not planned.self_reported or planned.imported:
        return None
    for row in read_attempts(folder):
        if row.attempt == result.attempt and not row.is_end:
            return row.token.rpartition("/")[2] or f"{row.host} {row.pid}"
    return None


def first_crossing(times: Any, losses: Any, target: float) -> float | None:
    """Training seconds at the first validation point at or below the target; None if never.

    Interpolated from the point before.
    """
    t, y = np.asarray(times, float), np.asarray(losses, float)
    below = np.flatnonzero(y <= target)
    if not len(below):
        return None
    i = int(below[0])
    if i == 0 or not np.isfinite(y[i - 1]) or y[i - 1] == y[i]:
        return float(t[i])
    return float(t[i - 1] + (t[i] - t[i - 1]) * (y[i - 1] - target) / (y[i - 1] - y[i]))


def read_config_if_any(path: Path) -> Document:
    if not is_file(path):
        return {}
    return parse_config(read_text(path))


def existing_run(root: Path, planned: PlanRun) -> tuple[str, bool]:
    """(run_id that has a result, whether it is stale), the current one where none has.

    The current run comes first; an older one, the newest, where nothing current was begun.
    """
    current = planned.run_id
    if is_file(root / current / "result.json"):
        return current, False
    if is_file(root / current / "attempts.jsonl"):
        return current, False
    made_at = {}
    for run_id in planned.older:
        with suppress(OSError):
            made_at[run_id] = facts_of(root / run_id, ["result.json"])[0].st_mtime
    if not made_at:
        return current, False
    return max(made_at, key=made_at.__getitem__), True


def last_attempt(folder: Path) -> tuple[str, str | None]:
    """(status, reason) of a run without a result: its last attempt's, else pending.

    An attempt without an end is still running.
    """
    attempts = read_attempts(folder)
    if not attempts:
        return "pending", None
    last = attempts[-1]
    return last.status or "running", last.reason


def read_validations(path: Path) -> list[Validation]:
    """Every validation row of a log; the others, one per step, are passed over unread.

    Lines cut short by a kill are left out.
    """
    points: list[Validation] = []
    lines: list[bytes] = []
    try:
        content = os.fdopen(open_file(path), "rb")
    except OSError:
        return []
    with content:
        for line in content:
            if b'"val"' in line:
                lines.append(line)
            if len(lines) == LINES_AT_ONCE:
                points += validations_in(lines)
                lines = []
    return points + validations_in(lines)


def validations_in(lines: Sequence[bytes]) -> list[Validation]:
    """Parsed at once, which is five times as fast as one by one."""
    try:
        rows = parse_json(b"[%s]" % b",".join(lines))
    except ValueError:
        rows = sound_rows(lines)
    points = []
    for row in rows:
        if isinstance(row, dict) and row.get("kind") == VALIDATION:
            with suppress(KeyError, ValueError):
                points.append(Validation.from_json(row))
    return points


def sound_rows(lines: Sequence[bytes]) -> list[Any]:
    """Without those that a kill has cut short."""
    rows = []
    for line in lines:
        with suppress(ValueError):
            rows.append(parse_json(line))
    return rows


def float_or_nan(value: Any) -> float:
    if value is None:
        return math.nan
    return float(value)
