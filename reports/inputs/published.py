"""Our effect against the public benchmark's: the published side has errors too, often too large to test anything.

Effects are log ratios of times (arm / baseline): times are never compared in seconds across machines. A record's published time
is its
logs' training time; its error is the run-to-run noise of the loss turned into steps by the era's slope (one run 0.004 in loss at
0.0037 per 100 steps is 108 steps), because a record's step count was tuned until its loss just met the target.
"""

import csv
import math
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np

PUBLISHED = Path(str(resources.files("harness"))) / "published"
RUNS = PUBLISHED / "official_runs.csv"
POWER = 0.8  # a published delta that a perfect measurement would confirm less often than this is too uncertain to test
ERA_SD = ((14, 0.004), (18, 0.002))  # up to this record: one run's sd of the final loss, from the public logs
TODAY_SD = 0.0013  # recipes after January 2025: 0.0012 to 0.0015
NATS_PER_LOG_STEP = (
    0.0037 / 100 * 5100
)  # the slope of late 2024 as d loss / d log N: 0.19; recipes of 2026 (0.0145 per 100 at 1300) agree


def era_sd(record: str) -> float:
    """One run's sd of the final loss in the era of a record, or of an ablation named after one; today's for any other name."""
    number = int(record[-2:]) if record[-2:].isdigit() else math.inf
    return next((sd for last, sd in ERA_SD if number <= last), TODAY_SD)


@dataclass(frozen=True, kw_only=True)
class PublishedRecord:
    record: str
    n: int
    loss: float
    time_s: float
    steps: int

    @property
    def log_time_se(self) -> float:
        """Standard error of log(time to target): loss noise over slope; timing noise is several times smaller."""
        return era_sd(self.record) / NATS_PER_LOG_STEP / math.sqrt(self.n)


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a published table; raises ValueError where the file is missing."""
    if not path.is_file():
        raise ValueError(f"{path}: the published runs are missing: restore the file from the repository")
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def final_rows(path: Path = RUNS) -> dict[tuple[str, str, str], dict[str, str]]:
    """(record, arm, run) -> the last validation row of each published run."""
    return {(r["record"], r["arm"], r["run"]): r for r in read_table(path)}


def summaries(path: Path = PUBLISHED / "records.csv") -> dict[str, dict[str, str]]:
    """record -> its row of the table of records, for those that are known as the mean of many logs."""
    return {r["record"]: r for r in read_table(path) if r["source"].startswith("mean of")}


def published_losses(record: str, path: Path = RUNS) -> list[float]:
    """Final losses of a record's official runs."""
    return [float(r["val_loss"]) for (rec, arm, _), r in final_rows(path).items() if rec == record and arm == record]


def published_record(record: str, path: Path = RUNS) -> PublishedRecord:
    """A record's official runs in five numbers; raises ValueError naming the records there are."""
    final, means = final_rows(path), summaries()
    rows = [r for (rec, arm, _), r in final.items() if rec == record and (arm == record or arm.endswith(f"(= {record})"))]
    if not rows and record in means:
        r = means[record]
        return PublishedRecord(
            record=record, n=int(r["n_runs"]), loss=float(r["val_loss"]), time_s=float(r["train_time_s"]), steps=int(r["steps"])
        )
    if not rows:
        known = sorted({rec for rec, _, _ in final if rec.startswith("r")} | set(means))
        raise ValueError(f"no published runs of '{record}': there are {', '.join(known)}")
    return PublishedRecord(
        record=record,
        n=len(rows),
        loss=float(np.mean([float(r["val_loss"]) for r in rows])),
        time_s=float(np.mean([float(r["train_time_ms"]) for r in rows])) / 1e3,
        steps=int(rows[0]["total_steps"]),
    )


def predecessor(record: str, base: str | None = None) -> str:
    """The record a delta is against: the experiment's base, or the record before."""
    return base or f"r{int(record[1:]) - 1:02d}"
