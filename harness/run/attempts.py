"""The rows of attempts.jsonl: an attempt at a run begins, and ends."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from harness.run.document import Content, Document
from harness.run.files import append_row
from harness.run.guarded import IN_FOLDER
from harness.run.read import read_lines
from harness.run.typed import typed


@dataclass(frozen=True, kw_only=True)
class AttemptRow:
    """Its beginning, or, with `ended`, its end."""

    attempt: int | None  # None: it ended before it was made
    started: str | None = None
    host: str | None = None
    node: str | None = None  # as a cluster calls it
    pid: int | None = None
    token: str = ""  # by which whoever ordered the attempt knows it
    ended: str | None = None
    status: str | None = None
    reason: str | None = None
    # of one that ran out of memory, where it is known
    peak_allocated_mib: float | None = None
    peak_rss_mib: float | None = None

    @property
    def is_end(self) -> bool:
        return self.ended is not None

    @classmethod
    def from_json(cls, row: Document) -> Self:
        values = {k: row[k] for k in OPTIONAL if k in row}
        return typed(cls(attempt=row.get("attempt"), **values))

    def to_json(self) -> Content:
        values = {name: getattr(self, name) for name in (END if self.is_end else BEGINNING)}
        return {k: v for k, v in values.items() if v is not None or k not in WHERE_KNOWN}


OPTIONAL = tuple(name for name in AttemptRow.__dataclass_fields__ if name != "attempt")
WHERE_KNOWN = ("node", "peak_allocated_mib", "peak_rss_mib")
BEGINNING = ("attempt", "started", "host", "node", "pid", "token")
END = ("attempt", "ended", "status", "reason", *WHERE_KNOWN)


def read_attempts(run: Path) -> list[AttemptRow]:
    """What attempts.jsonl of a run directory holds; rows that are none are left out."""
    rows = []
    for row in read_lines(run / "attempts.jsonl"):
        with suppress(ValueError):
            rows.append(AttemptRow.from_json(row))
    return rows


def note_attempt(run: Path, row: AttemptRow) -> None:
    """Add a row to attempts.jsonl of a run directory."""
    append_row(run / "attempts.jsonl", row.to_json(), below=IN_FOLDER)


def joined(rows: Sequence[AttemptRow]) -> AttemptRow:
    """One attempt's beginning and its last end as one row."""
    whole = rows[0]
    for row in rows[1:]:
        if row.is_end:
            whole = replace(whole, ended=row.ended, status=row.status, reason=row.reason)
        else:
            whole = replace(
                whole,
                started=row.started,
                host=row.host,
                node=row.node,
                pid=row.pid,
                token=row.token,
            )
    return whole


def by_attempt(rows: Sequence[AttemptRow]) -> list[AttemptRow]:
    """Each attempt as one row, in the order in which they began."""
    groups: dict[int | None, list[AttemptRow]] = {}
    for row in rows:
        groups.setdefault(row.attempt, []).append(row)
    return [joined(group) for group in groups.values()]
