"""The public benchmark's history as figures: a row a run, a row a record; no text of its logs."""

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from reports.inputs.noise import PUBLISHED
from reports.inputs.published import read_table
from reports.stats.simultaneous import Array

HISTORY = PUBLISHED / "history"
HISTORY_KEYS = (
    *("track", "arm", "date", "run", "steps", "val_loss", "train_time_s", "step_ms"),
    *("peak_mib", "gpu", "n_gpus", "driver", "cuda", "torch", "program", "recipe"),
)
PRINTED_KEYS = ("track", "folder", "arm", "n", "n_in_logs", "mean", "sd")
EARLIER_NUMBERS = ("seconds", "low", "high")
STEPS_TRACK = "optimization"  # whose records are steps
LINK_KEYS = ("track", "record", "date", "published", "arm", "parent", "beside")


@dataclass(frozen=True, kw_only=True)
class ArmFigures:
    """An arm's runs as figures."""

    name: str
    track: str
    date: str
    steps: int
    losses: Array  # nats
    log_times: Array  # of seconds
    log_step_ms: Array
    gpu: str = ""
    n_gpus: int = 0  # 0 where unknown
    n_diverged: int = 0  # beside the runs whose losses these are
    environment: Mapping[str, str] = field(default_factory=dict)  # driver, cuda, torch
    printed: "PrintedLosses | None" = None  # by its own page

    @property
    def n(self) -> int:
        """Runs."""
        return len(self.losses)


@dataclass(frozen=True, kw_only=True)
class PrintedLosses:
    """A list of losses on a record's own page."""

    n: int
    n_in_logs: int  # of them, that the arm's logs hold
    mean: float
    sd: float


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """What the same logs said of a record before arms, machines and nodes were told apart."""

    seconds: float | None  # its time less that of the folder before
    low: float | None
    high: float | None
    verdict: str


@dataclass(frozen=True, kw_only=True)
class Link:
    """A record as it was published, with its arm and the arm it is held against."""

    track: str
    record: str
    date: str
    published: float | None  # seconds, or steps where the track counts these
    published_delta: float | None  # to the record before, in the same unit
    arm: str
    parent: str
    beside: bool = False  # the parent is a baseline that its own authors ran beside it
    by_steps: bool = False  # the track counts steps and no time
    subject: str = ""  # what it changed, in our words
    earlier: Earlier | None = None


def read_history(
    folder: Path = HISTORY,
) -> tuple[dict[str, list[Link]], dict[str, dict[str, ArmFigures]]]:
    """(track -> its records in order, track -> arm -> its figures)."""
    printed = folder / "printed.csv"
    return (
        links_of(read_table(folder / "records.csv")),
        figures_of(
            read_table(folder / "runs.csv"), read_table(printed) if printed.is_file() else ()
        ),
    )


def published_runs(folder: Path = HISTORY) -> list[Mapping[str, str]]:
    """Every run of every track that has a final loss."""
    return [row for row in read_table(folder / "runs.csv") if row["val_loss"]]


def links_of(rows: Iterable[Mapping[str, str]]) -> dict[str, list[Link]]:
    """The records of every track."""
    links: dict[str, list[Link]] = defaultdict(list)
    subjects = {_record_key(row): row["subject"] for row in read_table(HISTORY / "subjects.csv")}
    earlier = {_record_key(row): _earlier_of(row) for row in read_table(HISTORY / "before.csv")}
    before: dict[str, float | None] = {}
    for row in rows:
        track = row["track"]
        published = float(row["published"]) if row["published"] else None
        last = before.get(track)
        delta = None if published is None or last is None else published - last
        before[track] = published
        link = Link(
            track=track,
            record=row["record"],
            date=row["date"],
            published=published,
            published_delta=delta,
            arm=row["arm"],
            parent=row["parent"],
            beside=row["beside"] == "yes",
            by_steps=track == STEPS_TRACK,
            subject=subjects.get(_record_key(row), ""),
            earlier=earlier.get(_record_key(row)),
        )
        links[track].append(link)
    return dict(links)


def _record_key(row: Mapping[str, str]) -> tuple[str, str, str]:
    """A row of a table of records: one number may stand in several."""
    return row["track"], row["record"], row["date"]


def _earlier_of(row: Mapping[str, str]) -> Earlier:
    seconds, low, high = (float(row[key]) if row[key] else None for key in EARLIER_NUMBERS)
    return Earlier(seconds=seconds, low=low, high=high, verdict=row["verdict"])


def figures_of(
    rows: Iterable[Mapping[str, str]], printed: Iterable[Mapping[str, str]] = ()
) -> dict[str, dict[str, ArmFigures]]:
    """The arms of every track; a run without a final loss is none.

    printed: the lists of losses on the records' own pages."""
    lists: dict[tuple[str, str], PrintedLosses] = {}
    for row in printed:
        of_page = PrintedLosses(
            n=int(row["n"]),
            n_in_logs=int(row["n_in_logs"]),
            mean=float(row["mean"]),
            sd=float(row["sd"]),
        )
        before = lists.get((row["track"], row["arm"]))
        if row["arm"] and (before is None or before.n_in_logs < of_page.n_in_logs):
            lists[row["track"], row["arm"]] = of_page
    of_arm: dict[tuple[str, str], list[Mapping[str, str]]] = defaultdict(list)
    for row in rows:
        if row["val_loss"]:
            of_arm[row["track"], row["arm"]].append(row)
    figures: dict[str, dict[str, ArmFigures]] = defaultdict(dict)
    for (track, name), runs in of_arm.items():
        arm = _arm_figures(track, name, runs)
        figures[track][name] = replace(arm, printed=lists.get((track, name)))
    return dict(figures)


def _arm_figures(track: str, name: str, runs: Sequence[Mapping[str, str]]) -> ArmFigures:
    first = runs[0]
    return ArmFigures(
        name=name,
        track=track,
        date=first["date"],
        steps=int(first["steps"]),
        losses=_numbers(runs, "val_loss"),
        log_times=np.log(_numbers(runs, "train_time_s")),
        log_step_ms=np.log(_numbers(runs, "step_ms")),
        gpu=first["gpu"],
        n_gpus=int(first["n_gpus"] or 0),
        environment={name: first[name] for name in ("driver", "cuda", "torch")},
    )


def _numbers(runs: Sequence[Mapping[str, str]], key: str) -> Array:
    values = [float(run[key]) for run in runs if run[key]]
    return np.array([value for value in values if math.isfinite(value)], float)


def write_rows(path: Path, keys: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """A table of figures."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, keys, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
