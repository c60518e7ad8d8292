"""The public repository's history as rows of figures: its table of records, and its logs as arms.

Only figures are taken: numbers, dates, names of folders, the ids of runs and versions.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.foreign.history_pages import printed_rows
from harness.foreign.imports import import_logs
from harness.foreign.log_arms import BASELINE, LogPlace
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

    runs: list[dict[str, Any]] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    printed: list[dict[str, Any]] = field(default_factory=list)  # losses on records' own pages


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
        results = _results(scratch / track, imported.plan)
        aliases = {**imported.copies, **imported.twins}
        of_log = _arms_of_logs(results, aliases)
        rows = list(table_rows(table.read_text(encoding="utf-8"), track))
        read.records.extend(_records(track, rows, of_log, results))
        runs = _runs(track, results)
        read.runs.extend(runs)
        read.printed.extend(printed_rows(logs, runs))
    return read


def runs_as_figures(track: str, root: Path, plan: Plan) -> list[dict[str, Any]]:
    """The finished runs of imported logs, a row a run.

    track: what they are called. root: the results folder."""
    return _runs(track, _results(root, plan))


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


def _results(root: Path, plan: Plan) -> dict[str, dict[str, Any]]:
    """run_id -> its result, environment and arm."""
    results = {}
    for run in plan.runs:
        folder = root / "runs" / run.run_id
        result = read_json(folder / "result.json")
        result["environment"] = read_json(folder / "environment.json")
        result["arm"] = run.arm
        results[run.run_id] = result
    return results


def _arms_of_logs(
    results: Mapping[str, Mapping[str, Any]], aliases: Mapping[str, str]
) -> dict[str, str]:
    """The path of a log -> its arm, of copies too."""
    arms = {result["log"]: result["arm"] for result in results.values()}
    for copy, first in aliases.items():
        if first in arms:
            arms[copy] = arms[first]
    return arms


def _records(
    track: str,
    rows: Sequence[TableRow],
    of_log: Mapping[str, str],
    results: Mapping[str, Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Every record with its arm, and its parent: a baseline beside it, else the record before."""
    sizes = Counter(result["arm"] for result in results.values())
    made = []
    before = ""
    for row in rows:
        arm = _arm_of(row.log, of_log, sizes)
        beside = _baseline_beside(arm, of_log, sizes, results)
        parent = beside or before
        made.append(
            {
                "track": track,
                "record": row.record,
                "date": row.date,
                "published": "" if row.published is None else f"{row.published:g}",
                "arm": arm,
                "parent": parent,
                "beside": "yes" if beside else "",
            }
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
    results: Mapping[str, Mapping[str, Any]],
) -> str:
    """The baseline of a record's own folder, of as many GPUs; '' where there is none."""
    folder = arm.partition("/")[0].partition(" (")[0]
    n_gpus: dict[str, int] = defaultdict(int)
    for result in results.values():
        n_gpus[result["arm"]] = len(result["environment"]["gpus"] or ())
    beside = []
    for name in dict.fromkeys(of_log.values()):
        inner = name.removeprefix(folder)
        is_baseline = LogPlace(folder="", name=inner).role == BASELINE
        is_alike = n_gpus[name] == n_gpus[arm] and sizes[name] >= MIN_BESIDE
        if name != arm and inner != name and is_baseline and is_alike:
            beside.append(name)
    return max(beside, key=sizes.__getitem__, default="") if arm else ""


def _runs(track: str, results: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for result in results.values():
        if result["status"] != "finished":
            continue
        environment = result["environment"]
        gpus = environment["gpus"] or [{}]
        rows.append(
            {
                "track": track,
                "arm": result["arm"],
                "date": _folder_date(result["arm"]),
                "run": Path(result["log"]).stem[:SHORT_ID],
                "steps": result["budget"],
                "val_loss": result["val_loss"],
                "train_time_s": result["train_time_s"] or "",
                "step_ms": _step_ms(result),
                "peak_mib": result["peak_allocated_mib"] or "",
                "gpu": gpus[0].get("name", ""),
                "n_gpus": len(environment["gpus"] or ()) or "",
                "driver": gpus[0].get("driver_version") or "",
                "cuda": environment.get("cuda", ""),
                "torch": environment.get("torch", ""),
                "program": result["program"] or "",
                "recipe": result.get("recipe") or "",
            }
        )
    rows.sort(key=lambda row: (row["arm"], row["run"], str(row["val_loss"])))
    return rows


def _step_ms(result: Mapping[str, Any]) -> float | str:
    """Milliseconds a step, from the whole time: what a log averages leaves out its first steps."""
    if not result["train_time_s"]:
        return ""
    return round(1e3 * result["train_time_s"] / result["budget"], 4)


def _folder_date(arm: str) -> str:
    match = FOLDER_DATE.match(arm)
    return "" if match is None else f"{match[1]}-{match[2]}-{match[3]}"
