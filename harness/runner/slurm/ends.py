"""How a run ended whose job is over: what the queue's state says, and what the run could tell."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.run.attempts import AttemptRow

LOST_AGAIN = 2  # times that a run is sent again whose job was killed, or lost with its node


@dataclass(frozen=True, kw_only=True)
class JobEnd:
    """How a run ended whose job is over."""

    status: str
    reason: str
    again: float = 0  # times that it is sent again


ENDS = {  # state of a job that is over -> how its run ended, if that could not say so itself
    "CANCELLED": JobEnd(status="interrupted", reason="its job was cancelled"),
    "TIMEOUT": JobEnd(status="timeout", reason="its job reached its time limit"),
    "DEADLINE": JobEnd(status="timeout", reason="its job reached its deadline"),
    "OUT_OF_MEMORY": JobEnd(status="oom", reason="its job was killed: out of memory"),
    "PREEMPTED": JobEnd(status="preempted", reason="its job was preempted", again=math.inf),
    "NODE_FAIL": JobEnd(status="preempted", reason="its node failed", again=LOST_AGAIN),
    "BOOT_FAIL": JobEnd(status="preempted", reason="its node did not start", again=LOST_AGAIN),
}
KILLED = JobEnd(status="failed", reason="its job was killed", again=LOST_AGAIN)
TOLD_TO_GO = JobEnd(status="preempted", reason="it was told to go", again=math.inf)
NOT_BEGUN = JobEnd(
    status="preempted",
    reason="another runner had it, or its job was told to go before it began",
    again=LOST_AGAIN,
)
# after these a failure that the run told may not be its own
LOSSES = ("FAILED", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL")


@dataclass(frozen=True, kw_only=True)
class Attempts:
    """What a run's attempts by one job told."""

    token: str | None = None  # of the last attempt; None: it made none
    told: JobEnd | None = None  # how that ended, where it could say so
    n_preempted: int = 0


def attempts_of_job(rows: Sequence[AttemptRow], job: str) -> Attempts:
    """rows: of attempts.jsonl."""
    tokens: dict[int, str] = {}
    for row in rows:
        if row.attempt is not None and row.token.startswith(f"{job}/"):
            tokens[row.attempt] = row.token
    if not tokens:
        return Attempts()
    last = max(tokens)
    told = None
    n_preempted = 0
    for row in rows:
        if row.attempt not in tokens or not row.is_end:
            continue
        n_preempted += row.status == "preempted"
        if told is None and row.attempt == last:
            told = JobEnd(status=str(row.status), reason=row.reason or "")
    return Attempts(token=tokens[last], told=told, n_preempted=n_preempted)
