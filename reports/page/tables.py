"""The tables of a page that hold facts, not judgements: every run, and what failed.

A TableCell is what a table prints: its text, what is written small below it, and, for a number, the
value at full precision (`v`), which the page carries in `data-v` for sorting and `ablate verify`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from reports.format import NONE, show
from reports.inputs.experiment import Document
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


@dataclass(frozen=True, kw_only=True)
class RunColumn:
    """A column of the table of runs, its heading, kind of number (None for text) and meaning."""

    name: str  # of the tidy column
    head: str
    kind: str | None = None
    meaning: str


PRINTED_COLUMNS = (
    RunColumn(
        name="seed",
        head="seed",
        meaning="Keys the initial weights and the order of the data.",
    ),
    RunColumn(
        name="replicate",
        head="replicate",
        meaning="Counts repeated runs of one arm, seed and budget.",
    ),
    RunColumn(
        name="budget",
        head="budget",
        meaning="Training steps the run was planned with; the schedule scales with it.",
    ),
    RunColumn(
        name="role",
        head="role",
        meaning="Whether the run was made to measure loss or time.",
    ),
    RunColumn(
        name="status",
        head="status",
        meaning="How the run ended; a run without a result is listed with what it is waiting for.",
    ),
    RunColumn(
        name="val_loss",
        head="loss",
        kind="loss",
        meaning="Validation loss after the last step, on the fixed validation tokens.",
    ),
    RunColumn(
        name="bits_per_byte",
        head="bits/byte",
        kind="loss",
        meaning=(
            "The loss in bits per byte of text, comparable between tokenizers: "
            "loss / ln 2 / bytes per token of the validation set."
        ),
    ),
    RunColumn(
        name="heldout_loss",
        head="held-out loss",
        kind="loss",
        meaning=(
            "Loss on the text that data.heldout names, after the last step: is the gain real "
            "on other text?"
        ),
    ),
    RunColumn(
        name="steps",
        head="steps",
        kind="count",
        meaning="Optimizer updates made.",
    ),
    RunColumn(
        name="step_ms",
        head="step, ms",
        kind="ms",
        meaning="Mean time of one training step.",
    ),
    RunColumn(
        name="train_time_s",
        head="time, s",
        kind="s",
        meaning=(
            "The training clock: steps alone, without imports, compilation, warm-up or validation."
        ),
    ),
    RunColumn(
        name="first_crossing_s",
        head="target at, s",
        kind="s",
        meaning=(
            "Training time at the first validation at or below the target, interpolated; empty "
            "when it was never reached. Descriptive only."
        ),
    ),
    RunColumn(
        name="peak_allocated_mib",
        head="memory, MiB",
        kind="mib",
        meaning="Highest memory allocated.",
    ),
    RunColumn(
        name="mfu",
        head="MFU",
        kind="mfu",
        meaning=(
            "Model FLOPs utilisation: useful floating point work over this device's measured "
            "matrix rate."
        ),
    ),
    RunColumn(
        name="node",
        head="node",
        meaning="The machine it ran on.",
    ),
    RunColumn(
        name="gpu",
        head="GPU",
        meaning="The accelerator it ran on.",
    ),
    RunColumn(
        name="disturbed",
        head="disturbed",
        meaning=(
            "What disturbed the run's time. A machine that stood still while the clock ran leaves "
            "no time that could be compared."
        ),
    ),
    RunColumn(
        name="stale",
        head="stale",
        meaning=(
            "Made by code or an environment that is no longer the current one; the files that "
            "changed are named."
        ),
    ),
    RunColumn(
        name="run_id",
        head="run",
        meaning=(
            "Digest of everything that can change the result; the folder's name in results/runs/."
        ),
    ),
)
WAITING = ("pending", "running")
ALWAYS = ("seed", "status", "val_loss", "steps", "step_ms", "train_time_s", "run_id")


def missing(value: Any) -> bool:
    if value is None or value is pd.NaT or value is pd.NA:
        return True
    return bool(value != value or value == "")


def is_informative(column: RunColumn, runs: pd.DataFrame) -> bool:
    """Whether a column says anything: one that is empty, or the same in every run, does not."""
    if column.name in ALWAYS:
        return True
    if column.name == "stale":
        return bool(runs["stale"].astype(bool).any())
    values = runs[column.name]
    if not values.notna().any():
        return False
    return column.kind is not None or values.nunique(dropna=False) > 1


def run_columns(runs: pd.DataFrame) -> list[RunColumn]:
    there = [column for column in PRINTED_COLUMNS if column.name in runs.columns]
    return [column for column in there if is_informative(column, runs)]


def run_cell(column: RunColumn, run: Mapping[Any, Any]) -> TableCell:
    """One cell of the table of runs, from one row's values."""
    if column.name == "stale":
        return stale_cell(run)
    value = plain(run[column.name])
    if column.kind is None:
        return text_cell(column.name, value)
    shown = None
    if known(value):
        shown = value
    return TableCell(text=show(value, column.kind), key=column.name, v=shown, css="num")


def text_cell(key: str, value: Any) -> TableCell:
    """A cell of words, or of a number that is a name."""
    text = str(value)
    if missing(value):
        text = NONE
    if known(value):
        return TableCell(text=text, key=key, css="num")
    return TableCell(text=text, key=key)


def stale_cell(run: Mapping[Any, Any]) -> TableCell:
    """Empty for a run of the current code, else the first two files that changed."""
    if not plain(run["stale"]):
        return TableCell(text="", key="stale", css="none")
    files = [name for name in str(run.get("stale_files") or "").split(", ") if name]
    words = ", ".join(files[:2])
    if len(files) > 2:
        words += f" and {len(files) - 2} more"
    return TableCell(text=words or "yes", key="stale")


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


def failures(runs: pd.DataFrame, results: Mapping[str, Document]) -> list[Failure]:
    """Runs that ended otherwise than finished; the diverged ones, which are outcomes, first."""
    diverged, others = [], []
    for run in runs[runs["status"] != "finished"].to_dict("records"):
        reason = run.get("reason")
        if missing(reason):
            reason = results.get(run["run_id"], {}).get("reason")
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
