"""The tables of a page that hold facts, not judgements: every run, and what failed.

A TableCell is what a table prints: its text, what is written small below it, and, for a number, the
value at full precision (`v`), which the page carries in `data-v` for sorting and `ablate verify`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import pandas as pd

from harness.run.plan import Plan
from reports.format import NONE
from reports.inputs.own_columns import RunColumn, all_columns
from reports.page.cells import Written
from reports.page.embed import plain
from reports.stats.digits import known


@dataclass(frozen=True, kw_only=True)
class TableCell:
    """One printed cell; `key` names what it shows, for the check of the page against its data."""

    text: str
    small: str = ""
    key: str = ""
    v: float | str | None = None
    css: str = ""


WAITING = ("pending", "running")


def missing(value: Any) -> bool:
    if value is None or value is pd.NaT or value is pd.NA:
        return True
    return bool(value != value or value == "")


def is_number(column: RunColumn) -> bool:
    """Whether it is written as a kind of number; else as text."""
    return column.format != "{}"


def is_informative(column: RunColumn, runs: pd.DataFrame) -> bool:
    """Whether a column says anything: one that is empty, or the same in every run, does not."""
    if column.is_always_shown:
        return True
    if column.key == "stale":
        return bool(runs["stale"].astype(bool).any())
    if column.key == "mfu" and not (runs["device"] == "cuda").any():
        return False  # a processor's rate, which every run measures anew, is shared with others
    values = runs[column.key]
    if not values.notna().any():
        return False
    return is_number(column) or values.nunique(dropna=False) > 1


def run_columns(runs: pd.DataFrame, plan: Plan) -> list[RunColumn]:
    printed = [column for column in all_columns(plan) if column.format]
    printed.sort(key=attrgetter("place"))
    there = [column for column in printed if column.key in runs.columns]
    return [column for column in there if is_informative(column, runs)]


def run_cell(column: RunColumn, run: Mapping[Any, Any]) -> TableCell:
    """One cell of the table of runs, from one row's values."""
    if column.key == "stale":
        return stale_cell(run)
    value = plain(run[column.key])
    if not is_number(column):
        return text_cell(column.key, value)
    shown = None
    if known(value):
        shown = value
    return TableCell(text=column.format.format(Written(value)), key=column.key, v=shown, css="num")


def text_cell(key: str, value: Any) -> TableCell:
    """A cell of words, or of a number that is a name."""
    text = str(value)
    if missing(value):
        text = NONE
    if known(value) or key == "seed":
        return TableCell(text=text, key=key, css="num")
    return TableCell(text=text, key=key)


def stale_cell(run: Mapping[Any, Any]) -> TableCell:
    """Empty for a run of the current code, else the first two files that changed."""
    if not plain(run["stale"]):
        return TableCell(text="", key="stale", css="none")
    files = [name for name in str(run.get("stale_files") or "").split(", ") if name]
    named = ", ".join(files[:2])
    if len(files) > 2:
        named += f" and {len(files) - 2} more"
    return TableCell(text=named or "yes", key="stale")


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """A run's row of the table."""

    run_id: str
    arm: str
    cells: Sequence[TableCell]


def run_rows(runs: pd.DataFrame, columns: Sequence[RunColumn]) -> list[RunRow]:
    """A row per run, in the table's order."""
    rows = []
    for run in runs.to_dict("records"):
        cells = [run_cell(column, run) for column in columns]
        rows.append(RunRow(run_id=str(run["run_id"]), arm=str(run["arm"]), cells=cells))
    return rows


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A run that ended otherwise than finished."""

    arm: str
    seed: str
    status: str
    run_id: str
    reason: str


def failures(runs: pd.DataFrame) -> list[Failure]:
    """Runs that ended otherwise than finished; the diverged ones, which are outcomes, first."""
    diverged, others = [], []
    for run in runs[runs["status"] != "finished"].to_dict("records"):
        reason = run.get("reason")
        if missing(reason):
            reason = "no reason was recorded; see log.txt in the run's folder"
        failure = Failure(
            arm=str(run["arm"]),
            seed=str(run["seed"]),
            status=str(run["status"]),
            run_id=str(run["run_id"]),
            reason=str(reason),
        )
        if failure.status == "diverged":
            diverged.append(failure)
        else:
            others.append(failure)
    return diverged + others
