"""Places that a call retired because they failed runs that did well elsewhere, as kept on disk.

results/experiments/NAME/retired.jsonl, a row each.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from harness.run.document import Document
from harness.run.files import append_row
from harness.run.guarded import IN_FOLDER
from harness.run.read import read_lines

FILE = "retired.jsonl"


@dataclass(frozen=True, kw_only=True)
class Retired:
    """One place that was given no more runs."""

    at: str  # ISO 8601
    place: str  # in words
    n_failed: int  # runs that failed there at once, and did well elsewhere
    reason: str  # of the last one

    @classmethod
    def from_mapping(cls, row: Document) -> Self:
        return cls(
            at=str(row["at"]),
            place=str(row["place"]),
            n_failed=int(row["n_failed"]),
            reason=str(row["reason"]),
        )

    @property
    def words(self) -> str:
        return (
            f"{self.place} was retired at {self.at[:16]}: {self.n_failed} runs in a row failed "
            f"there at once and did well elsewhere ({self.reason})"
        )


def note_retired(experiment: Path, retired: Retired) -> None:
    """experiment: its folder in the results folder."""
    append_row(experiment / FILE, asdict(retired), below=IN_FOLDER)


def read_retired(experiment: Path) -> list[Retired]:
    """What was retired, oldest first; rows that are none are left out."""
    retired = []
    for row in read_lines(experiment / FILE):
        try:
            retired.append(Retired.from_mapping(row))
        except (KeyError, TypeError, ValueError):
            continue
    return retired
