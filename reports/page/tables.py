"""The tables of a page that hold facts, not judgements: every run, what failed, what differed, on what it ran.

A Cell is what a table prints: its text, what is written small below it, and, for a number, the value at full precision
(`v`), which the page carries in `data-v` for sorting and for `ablate verify`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from reports.format import NONE, known, show
from reports.page.embed import canonical, plain


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One printed cell; `key` names what it shows, for the check of the page against its data."""

    text: str
    small: str = ""
    key: str = ""
    v: float | str | None = None
    css: str = ""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of the table of runs: tidy column -> heading, the kind of number (None for text), and its meaning."""

    name: str
    head: str
    kind: str | None
    meaning: str


# ruff: noqa: E501  # a table of sentences
RUN_COLUMNS = (
    Column(name="seed", head="seed", kind=None, meaning="Keys the initial weights and the order of the data."),
    Column(name="replicate", head="replicate", kind=None, meaning="Counts repeated runs of one arm, seed and budget."),
    Column(name="budget", head="budget", kind=None, meaning="Training steps the run was planned with; the schedule scales with it."),
    Column(name="role", head="role", kind=None, meaning="Whether the run was made to measure loss or time."),
    Column(name="status", head="status", kind=None, meaning="How the run ended; a run without a result is listed with what it is waiting for."),
    Column(name="val_loss", head="loss", kind="loss", meaning="Validation loss after the last step, on the fixed validation tokens."),
    Column(name="bits_per_byte", head="bits/byte", kind="loss", meaning="The loss in bits per byte of text, comparable between tokenizers: loss / ln 2 / bytes per token of the validation set."),
    Column(name="heldout_loss", head="held-out loss", kind="loss", meaning="Loss on the text that data.heldout names, after the last step: is the gain real on other text?"),
    Column(name="steps", head="steps", kind="count", meaning="Optimizer updates made."),
    Column(name="step_ms", head="step, ms", kind="ms", meaning="Mean time of one training step."),
    Column(name="train_time_s", head="time, s", kind="s", meaning="The training clock: steps alone, without imports, compilation, warm-up or validation."),
    Column(name="first_crossing_s", head="target at, s", kind="s", meaning="Training time at the first validation at or below the target, interpolated; empty when it was never reached. Descriptive only."),
    Column(name="peak_allocated_mib", head="memory, MiB", kind="mib", meaning="Highest memory allocated."),
    Column(name="mfu", head="MFU", kind="mfu", meaning="Model FLOPs utilisation: useful floating point work over this device's measured matrix rate."),
    Column(name="node", head="node", kind=None, meaning="The machine it ran on."),
    Column(name="gpu", head="GPU", kind=None, meaning="The accelerator it ran on."),
    Column(name="stale", head="stale", kind=None, meaning="Made by code or an environment that is no longer the current one; the files that changed are named."),
    Column(name="run_id", head="run", kind=None, meaning="Digest of everything that can change the result; the folder's name in results/runs/."),
)  # fmt: skip
WAITING = ("pending", "running")
SIDE_BY_SIDE = 8  # arms whose settings stand in one table across; more do not fit a sheet of paper
ALWAYS = ("seed", "status", "val_loss", "steps", "step_ms", "train_time_s", "run_id")


def missing(value: Any) -> bool:
    return value is None or value is pd.NaT or value is pd.NA or value != value or value == ""


def telling(column: Column, runs: pd.DataFrame) -> bool:
    """Whether a column says anything here: a column that is empty or the same in every run is left out of the table."""
    if column.name in ALWAYS:
        return True
    if column.name == "stale":
        return bool(runs["stale"].astype(bool).any())
    values = runs[column.name]
    return bool(values.notna().any()) and (column.kind is not None or values.nunique(dropna=False) > 1)


def run_columns(runs: pd.DataFrame) -> list[Column]:
    return [c for c in RUN_COLUMNS if c.name in runs.columns and telling(c, runs)]


def run_cell(column: Column, run: Mapping[Any, Any]) -> Cell:
    """One cell of the table of runs, from one row's values."""
    value = plain(run[column.name])
    if column.name == "stale":
        files = [f for f in str(run.get("stale_files") or "").split(", ") if f]
        words = ", ".join(files[:2]) + (f" and {len(files) - 2} more" if len(files) > 2 else "") or "yes"
        return Cell(text=words if value else "", key="stale", css="none" if not value else "")
    if column.kind is None:
        return Cell(text=NONE if missing(value) else str(value), key=column.name, css="num" if known(value) else "")
    return Cell(text=show(value, column.kind), key=column.name, v=value if known(value) else None, css="num")


def run_rows(runs: pd.DataFrame, columns: Sequence[Column]) -> list[tuple[str, str, list[Cell]]]:
    """(run_id, arm, cells) per run, in the table's order."""
    return [(str(r["run_id"]), str(r["arm"]), [run_cell(c, r) for c in columns]) for r in runs.to_dict("records")]


def flat(mapping: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested mappings as dotted fields."""
    out: dict[str, Any] = {}
    for key, value in mapping.items():
        name = f"{above}{key}"
        out |= flat(value, f"{name}.") if isinstance(value, Mapping) and value else {name: value}
    return out


def in_words(value: Any) -> str:
    return (
        "off"
        if value is False or value is None
        else "on"
        if value is True
        else value
        if isinstance(value, str)
        else canonical(value)
    )


def config_differences(plan: Mapping[str, Any], configs: Mapping[str, Mapping[str, Any]], runs: pd.DataFrame) -> dict[str, Any]:
    """Fields in which some arm differs from the baseline: {arms, rows: [(field, [(text, differs)])]}; where arms are too many
    to stand side by side also by_arm: [(arm, [(field, text, baseline's text)])].

    Read from what the runs were given where an arm has a run, from the plan where it has none yet.
    """
    names = [a["name"] for a in plan["arms"]]
    base = plan["baseline"]
    planned = {a["name"]: dict(a.get("fields") or {}) for a in plan["arms"]}
    own: dict[str, dict[str, Any]] = {}
    for arm, run_id in zip(runs["arm"], runs["run_id"]):
        if arm not in own and run_id in configs:
            own[arm] = flat(configs[run_id].get("config", {}))
    fields = dict.fromkeys(f for arm in names for f in planned[arm])
    for arm in names:
        if arm in own and base in own:
            fields |= dict.fromkeys(f for f in (own[arm].keys() | own[base].keys()) if own[arm].get(f) != own[base].get(f))
    values = {arm: {f: own.get(arm, planned[arm]).get(f) for f in fields} for arm in names}
    rows = [
        (f, [(in_words(values[arm][f]), canonical(values[arm][f]) != canonical(values[base][f])) for arm in names])
        for f in sorted(fields)
    ]
    by_arm = [
        (arm, [(f, cells[i][0], cells[names.index(base)][0]) for f, cells in rows if cells[i][1]])
        for i, arm in enumerate(names)
        if arm != base and len(names) > SIDE_BY_SIDE
    ]
    return {"arms": names, "rows": rows, "by_arm": by_arm}


YES_NO = {"True": "yes", "False": "no"}
ENVIRONMENT_WORDS = {
    "host": "node",
    "cpu": "processor",
    "gpus": "accelerators",
    "driver": "driver",
    "python": "Python",
    "torch": "torch",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "nccl": "NCCL",
}


def environment_table(environments: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, list[tuple[str, int]]]]:
    """Per fact of the environment its distinct values with the number of runs that had each; all-empty facts are left out."""
    out = []
    for key in dict.fromkeys([*ENVIRONMENT_WORDS, *(k for e in environments.values() for k in e)]):
        if key in ("packages", "command", "pip_freeze", "freeze") or not any(key in e for e in environments.values()):
            continue
        counts: dict[str, int] = {}
        for environment in environments.values():
            value = environment.get(key)
            words = (
                ", ".join(map(str, value))
                if isinstance(value, list)
                else ", ".join(f"{k} {YES_NO.get(str(v), v)}" for k, v in flat(value).items() if not missing(v))
                if isinstance(value, dict)
                else value
            )
            if not missing(words):
                counts[str(words)] = counts.get(str(words), 0) + 1
        if counts:
            out.append((ENVIRONMENT_WORDS.get(key, key), sorted(counts.items(), key=lambda item: -item[1])))
    return out


def troubles(runs: pd.DataFrame, results: Mapping[str, Mapping[str, Any]]) -> list[dict[str, str]]:
    """Runs that ended otherwise than finished, with the reason; the diverged ones, which are outcomes, first."""
    found = []
    for run in runs[runs["status"] != "finished"].to_dict("records"):
        told = run.get("reason")
        reason = results.get(run["run_id"], {}).get("reason") if missing(told) else told
        words = "no reason was recorded; see log.txt in the run's folder" if missing(reason) else str(reason)
        found.append({k: str(run[k]) for k in ("arm", "seed", "status", "run_id")} | {"reason": words})
    return sorted(found, key=lambda t: t["status"] != "diverged")
