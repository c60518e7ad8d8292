"""The public repository's history as rows of figures: its table of records, and its logs as arms.

Only figures are taken: numbers, dates, names of folders, the ids of runs and versions.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.errors import UserError
from harness.foreign.history_pages import printed_rows
from harness.foreign.history_rows import HistoryRecord, HistoryRun, PrintedRow
from harness.foreign.imports import import_logs
from harness.foreign.log_arms import BASELINE, LogPlace
from harness.run.document import Document
from harness.run.plan import Plan
from harness.run.read import read_json
from harness.store.store import Store

TRACKS = {  # track -> its folder of logs, the page with its table
    "short": ("records/track_1_short", "README.md"),
    "medium": ("records/track_2_medium", "README.md"),
    "optimization": (
        "records/track_3_optimization/results",
        "records/track_3_optimization/README.md",
    ),
}
ROW = re.compile(r"^\|?\s*(\d{1,3}) ?\|([^|]*)\|(.*)$")
DATE = re.compile(r"\b(?:(\d\d)/(\d\d)/(\d\d)|(\d{4})/(\d\d)/(\d\d))\b")
LOG = re.compile(r"\[log\]\(([^)]+)\)")
DURATION = re.compile(r"([\d.]+)\s*(minutes|hours|seconds)")
STEPS = re.compile(r"(\d{3,5})")
RECORD_MARK = "(!)"  # of the optimization track: the row was a record
SECONDS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0}
MIN_BESIDE = 3  # runs of a baseline: with fewer the record before says more
SHORT_ID = 8  # letters of a run's name
FOLDER_DATE = re.compile(r"(\d{4})-?(\d\d)-?(\d\d)")


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """One row of a table of records."""

    record: str
    published: float | None  # seconds or steps
    date: str
    log: str | None  # the path of its log, or of its folder, from the repository's root


@dataclass(frozen=True, kw_only=True)
class HistoryRows:
    """The tables of figures of a checkout, every track's."""

    runs: list[HistoryRun] = field(default_factory=list)
    records: list[HistoryRecord] = field(default_factory=list)
    printed: list[PrintedRow] = field(default_factory=list)  # losses on records' own pages


@dataclass(frozen=True, kw_only=True)
class ImportedRun:
    """A run of an imported log."""

    arm: str
    result: Document  # result.json
    environment: Document  # environment.json

    @property
    def n_gpus(self) -> int:
        """0 where unknown."""
        return len(self.environment["gpus"] or ())


def rows_of_history(checkout: Path, scratch: Path) -> HistoryRows:
    """scratch: a folder for the import."""
    read = HistoryRows()
    for track, (folder, page) in TRACKS.items():
        logs, table = checkout / folder, checkout / page
        if not logs.is_dir() or not table.is_file():
            raise UserError(
                f"{checkout}: no {folder} or no {page}: name a checkout of the public repository"
            )
        store = Store.create(scratch / track)
        imported = import_logs([logs], store=store, experiment=track)
        assert imported.plan is not None
        runs = _imported_runs(scratch / track, imported.plan)
        aliases = {**imported.copies, **imported.twins}
        of_log = _arms_of_logs(runs, aliases)
        rows = list(table_rows(table.read_text(encoding="utf-8"), track))
        read.records.extend(_records(track, rows, of_log, runs))
        run_rows = _run_rows(track, runs)
        read.runs.extend(run_rows)
        read.printed.extend(printed_rows(logs, run_rows))
    return read


def runs_as_figures(track: str, root: Path, plan: Plan) -> list[HistoryRun]:
    """The finished runs of imported logs, a row a run.

    track: what they are called. root: the results folder."""
    return _run_rows(track, _imported_runs(root, plan))


def table_rows(text: str, track: str) -> Iterator[TableRow]:
    """The rows of a track's table, in order; of the optimization track those that were records."""
    folder = TRACKS[track][0]
    for line in text.splitlines():
        match = ROW.match(line)
        if match is None:
            continue
        link = LOG.search(line)
        path = None
        if link is not None:
            path = link[1]
            if track == "optimization":
                path = f"records/track_3_optimization/{path}"
        date = _date(line)
        if date is None or not _is_of_track(path, line, folder, track):
            continue
        yield TableRow(record=match[1], published=_published(match[2], track), date=date, log=path)


def _is_of_track(path: str | None, line: str, folder: str, track: str) -> bool:
    if track == "optimization":
        return RECORD_MARK in line
    if path is not None:
        return path.startswith(folder)
    return track == "short" and "track_" not in line


def _date(line: str) -> str | None:
    match = DATE.search(line)
    if match is None:
        return None
    if match[4]:
        return f"{match[4]}-{match[5]}-{match[6]}"
    return f"20{match[3]}-{match[1]}-{match[2]}"


def _published(cell: str, track: str) -> float | None:
    if track == "optimization":
        steps = STEPS.search(cell)
        return None if steps is None else float(steps[1])
    duration = DURATION.search(cell)
    if duration is None:
        return None
    return round(float(duration[1]) * SECONDS[duration[2]], 2)


def _imported_runs(root: Path, plan: Plan) -> list[ImportedRun]:
    runs = {}
    for run in plan.runs:
        folder = root / "runs" / run.run_id
        runs[run.run_id] = ImportedRun(
            arm=run.arm,
            result=read_json(folder / "result.json"),
            environment=read_json(folder / "environment.json"),
        )
    return list(runs.values())


def _arms_of_logs(runs: Iterable[ImportedRun], aliases: Mapping[str, str]) -> dict[str, str]:
    """The path of a log -> its arm, of copies too."""
    arms: dict[str, str] = {run.result["log"]: run.arm for run in runs}
    for copy, first in aliases.items():
        if first in arms:
            arms[copy] = arms[first]
    return arms


def _records(
    track: str,
    rows: Sequence[TableRow],
    of_log: Mapping[str, str],
    runs: Sequence[ImportedRun],
) -> list[HistoryRecord]:
    """Every record with its arm, and its parent: a baseline beside it, else the record before."""
    sizes = Counter(run.arm for run in runs)
    made = []
    before = ""
    for row in rows:
        arm = _arm_of(row.log, of_log, sizes)
        beside = _baseline_beside(arm, of_log, sizes, runs)
        parent = beside or before
        made.append(
            HistoryRecord(
                track=track,
                record=row.record,
                date=row.date,
                published="" if row.published is None else f"{row.published:g}",
                arm=arm,
                parent=parent,
                beside="yes" if beside else "",
            )
        )
        before = arm
    return made


def _arm_of(log: str | None, of_log: Mapping[str, str], sizes: Mapping[str, int]) -> str:
    """The arm of a record's log, of its folder the one with the most runs; '' for none."""
    if log is None:
        return ""
    inside: list[str] = []
    for path, arm in of_log.items():
        if path.endswith(f"/{log}"):
            return arm
        if f"/{log.rstrip('/')}/" in path:
            inside.append(arm)
    candidates = [arm for arm in inside if LogPlace(folder="", name=arm).role != BASELINE]
    return max(candidates or inside, key=sizes.__getitem__, default="")


def _baseline_beside(
    arm: str,
    of_log: Mapping[str, str],
    sizes: Mapping[str, int],
    runs: Iterable[ImportedRun],
) -> str:
    """The baseline of a record's own folder, of as many GPUs; '' where there is none."""
    folder = arm.partition("/")[0].partition(" (")[0]
    n_gpus: dict[str, int] = defaultdict(int)
    for run in runs:
        n_gpus[run.arm] = run.n_gpus
    beside = []
    for name in dict.fromkeys(of_log.values()):
        inner = name.removeprefix(folder)
        is_baseline = LogPlace(folder="", name=inner).role == BASELINE
        is_alike = n_gpus[name] == n_gpus[arm] and sizes[name] >= MIN_BESIDE
        if name != arm and inner != name and is_baseline and is_alike:
            beside.append(name)
    return max(beside, key=sizes.__getitem__, default="") if arm else ""


def _run_rows(track: str, runs: Iterable[ImportedRun]) -> list[HistoryRun]:
    """The finished runs, by arm, name and loss."""
    rows = [_run_row(track, run) for run in runs if run.result["status"] == "finished"]
    rows.sort(key=lambda row: (row.arm, row.run, str(row.val_loss)))
    return rows


def _run_row(track: str, run: ImportedRun) -> HistoryRun:
    result, environment = run.result, run.environment
    first_gpu = (environment["gpus"] or [{}])[0]
    return HistoryRun(
        track=track,
        arm=run.arm,
        date=_folder_date(run.arm),
        run=Path(result["log"]).stem[:SHORT_ID],
        steps=result["budget"],
        val_loss=result["val_loss"],
        train_time_s=result["train_time_s"] or "",
        step_ms=_step_ms(result),
        peak_mib=result["peak_allocated_mib"] or "",
        gpu=first_gpu.get("name", ""),
        n_gpus=run.n_gpus or "",
        driver=first_gpu.get("driver_version") or "",
        cuda=environment.get("cuda", ""),
        torch=environment.get("torch", ""),
        program=result["program"] or "",
        recipe=result.get("recipe") or "",
    )


def _step_ms(result: Document) -> float | str:
    """Milliseconds a step, from the whole time: what a log averages leaves out its first steps."""
    if not result["train_time_s"]:
        return ""
    return round(1e3 * result["train_time_s"] / result["budget"], 4)


def _folder_date(arm: str) -> str:
    match = FOLDER_DATE.match(arm)
    return "" if match is None else f"{match[1]}-{match[2]}-{match[3]}"
