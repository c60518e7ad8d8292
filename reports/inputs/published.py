"""The public benchmark's numbers: its side has errors too, often too large to test anything.

Effects are log ratios of times (arm / baseline): times are never compared in seconds across
machines. A record's published time is its logs' training time; its error is the run-to-run noise of
the loss turned into steps by the era's slope (one run 0.004 in loss at 0.0037 per 100 steps is 108
steps), because a record's step count was tuned until its loss just met the target.
"""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from reports.inputs.noise import PUBLISHED, TRACK, benchmark_noise

RUNS = PUBLISHED / "official_runs.csv"


def nats_per_log_step() -> float:
    """Loss that a longer schedule gains, d loss / d log N, in the time of the early records."""
    return benchmark_noise().slope_of_records.nats_per_log_step


def era_sd(record: str) -> float:
    """One run's sd of the final loss in the era of a record; today's for any other name.

    An ablation that is named after a record has that record's.
    """
    noise = benchmark_noise()
    if record[-2:].isdigit():
        for of_records in noise.of_records:
            if int(record[-2:]) <= of_records.until:
                return of_records.sd
        for link in links_of_record(record):
            return noise.era_of(TRACK, link["date"]).sd
    return noise.latest.sd


@dataclass(frozen=True, kw_only=True)
class PublishedRecord:
    """A record's official runs in five numbers."""

    record: str
    n: int  # runs
    loss: float
    time_s: float
    steps: int

    @property
    def log_time_se(self) -> float:
        """Standard error of log(time to target): loss noise over slope.

        The noise of timing is several times smaller.
        """
        return era_sd(self.record) / nats_per_log_step() / math.sqrt(self.n)


PublishedRow = Mapping[str, str]  # column -> what stands there


def read_table(path: Path) -> Sequence[PublishedRow]:
    """The rows of a published table; raises ValueError where the file is missing."""
    if not path.is_file():
        raise ValueError(
            f"{path}: the published runs are missing: restore the file from the repository"
        )
    stat = path.stat()
    return _rows(path, stat.st_mtime_ns, stat.st_size)


@cache
def _rows(path: Path, modified_ns: int, n_bytes: int) -> Sequence[PublishedRow]:
    """The rows of a table as of a time: pages of many arms ask for them at each."""
    with path.open(newline="", encoding="utf-8") as file:
        return tuple(csv.DictReader(file))


def final_rows(path: Path = RUNS) -> dict[tuple[str, str, str], PublishedRow]:
    """(record, arm, run) -> the last validation row of each published run."""
    last = {}
    for row in read_table(path):
        last[row["record"], row["arm"], row["run"]] = row
    return last


def summaries(path: Path = PUBLISHED / "records.csv") -> dict[str, PublishedRow]:
    """record -> its row of the table of records, of those known as the mean of many logs."""
    means = [row for row in read_table(path) if row["source"].startswith("mean of")]
    return {row["record"]: row for row in means}


def short_track_subjects() -> dict[int, str]:
    """Number of a record of the short track -> what it changed, in our words."""
    rows = read_table(PUBLISHED / "history" / "subjects.csv")
    return {int(row["record"]): row["subject"] for row in rows if row["track"] == "short"}


def links_of_record(record: str) -> list[PublishedRow]:
    """The rows of a record of the short track that have an arm: its date, arm, parent.

    More than one where it was made again, under other rules or another environment."""
    rows = read_table(PUBLISHED / "history" / "records.csv")
    of_track = (row for row in rows if row["track"] == TRACK and row["arm"])
    return [row for row in of_track if row["record"].zfill(2) == record.removeprefix("r")]


def logged_arm(record: str, arm: str) -> PublishedRecord:
    """The runs of an arm of the short track's history, under the name of a record."""
    losses, times_s, steps = [], [], 0
    for row in read_table(PUBLISHED / "history" / "runs.csv"):
        if row["track"] == TRACK and row["arm"] == arm and row["val_loss"] and row["train_time_s"]:
            losses.append(float(row["val_loss"]))
            times_s.append(float(row["train_time_s"]))
            steps = int(row["steps"])
    return PublishedRecord(
        record=record,
        n=len(losses),
        loss=float(np.mean(losses)),
        time_s=float(np.mean(times_s)),
        steps=steps,
    )


def published_pair(record: str, against: str) -> tuple[PublishedRecord, PublishedRecord]:
    """A record and the one it is held against, where one machine made both: as its authors did."""
    links = links_of_record(record)
    if record in known_records() or not links or not links[0]["parent"]:
        return published_record(record), published_record(against)
    return logged_arm(record, links[0]["arm"]), logged_arm(against, links[0]["parent"])


def known_records() -> set[str]:
    """Records with official runs, or a mean of many logs."""
    return {of for of, _, _ in final_rows() if of.startswith("r")} | set(summaries())


def published_losses(record: str, path: Path = RUNS) -> list[float]:
    """Final losses of a record's official runs."""
    losses = []
    for (of, arm, _), row in final_rows(path).items():
        if of == record and arm == record:
            losses.append(float(row["val_loss"]))
    return losses


def published_record(record: str, path: Path = RUNS) -> PublishedRecord:
    """A record's official runs in five numbers; raises ValueError naming the records there are."""
    final, means = final_rows(path), summaries()
    rows = []
    for (of, arm, _), row in final.items():
        if of == record and (arm == record or arm.endswith(f"(= {record})")):
            rows.append(row)
    if rows:
        losses = [float(row["val_loss"]) for row in rows]
        times_ms = [float(row["train_time_ms"]) for row in rows]
        return PublishedRecord(
            record=record,
            n=len(rows),
            loss=float(np.mean(losses)),
            time_s=float(np.mean(times_ms)) / 1e3,
            steps=int(rows[0]["total_steps"]),
        )
    if record in means:
        row = means[record]
        return PublishedRecord(
            record=record,
            n=int(row["n_runs"]),
            loss=float(row["val_loss"]),
            time_s=float(row["train_time_s"]),
            steps=int(row["steps"]),
        )
    if links := links_of_record(record):
        return logged_arm(record, links[-1]["arm"])
    raise ValueError(
        f"no published runs of '{record}': there are {', '.join(sorted(known_records()))}, and"
        " those of the short track's history"
    )


def predecessor(record: str, base: str | None = None) -> str:
    """The record a delta is against: the experiment's base, or the record before."""
    return base or f"r{int(record[1:]) - 1:02d}"
