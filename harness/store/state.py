"""How a run stands, and where one in progress is."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Self

from harness.run.attempts import AttemptRow, joined
from harness.run.disturbed import Disturbance
from harness.run.document import Content, Document
from harness.run.results import Result
from harness.run.spec import RESULT_STATUSES
from harness.run.typed import typed


@dataclass(frozen=True, kw_only=True)
class Progress:
    """progress.json of an attempt: where it is."""

    step: int = 0
    steps: int | None = None  # in all
    val_loss: float | None = None  # the last

    @classmethod
    def from_json(cls, content: Document) -> Self:
        """Raises ValueError where the content is none."""
        progress = cls(
            step=content.get("step", 0),
            steps=content.get("steps"),
            val_loss=content.get("val_loss"),
        )
        return typed(progress)

    def to_json(self) -> Content:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class RunState:
    """How a run stands, with what else is known of it.

    status: finished, diverged, running, pending, damaged, or how the last attempt ended.
    """

    status: str
    reason: str | None = None
    attempt: int | None = None  # the last
    host: str | None = None
    step: int | None = None  # of a run in progress
    steps: int | None = None
    val_loss: float | None = None
    train_time_s: float | None = None
    wall: Mapping[str, float] | None = None  # of a run with a result
    disturbed: tuple[Disturbance, ...] = ()  # what disturbed its time

    @classmethod
    def of_result(cls, result: Result) -> Self:
        return cls(
            status=result.status,
            reason=result.reason,
            attempt=result.attempt,
            host=result.host,
            steps=result.steps,
            val_loss=result.val_loss,
            train_time_s=result.train_time_s,
            wall=result.wall,
            disturbed=result.disturbed,
        )

    @classmethod
    def running(cls, attempt: int, host: str | None, progress: Progress | None) -> Self:
        if progress is None:
            return cls(status="running", attempt=attempt, host=host)
        return cls(status="running", attempt=attempt, host=host, **asdict(progress))

    @classmethod
    def of_attempts(cls, rows: Sequence[AttemptRow]) -> Self:
        """Of a run without a result, on which nobody works."""
        if not rows:
            return cls(status="pending")
        last = joined([row for row in rows if row.attempt == rows[-1].attempt])
        status, reason = last.status or "interrupted", last.reason
        if status in RESULT_STATUSES:
            status, reason = (
                "interrupted",
                f"it had {status}, and its result.json is gone or damaged",
            )
        return cls(
            status=status,
            reason=reason,
            attempt=last.attempt,
            host=last.host,
        )
