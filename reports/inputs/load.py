"""A results directory as tables: reports.inputs.load.load("quickstart") gives an Experiment.

Reads files, computes nothing but first crossings. One row per planned run; a run without a result
has its status and empty numbers. Raises ValueError in one line for what cannot be read.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from harness.run.disturbed import disturbances_of, disturbed_words
from harness.run.plan import Plan, PlanRun
from harness.run.read import read_lines
from reports.inputs.experiment import Document, Experiment, target_loss
from reports.inputs.step_times import StepTimes, of_rows

NUMBERS = (
    *("val_loss", "heldout_loss", "train_time_s", "step_ms", "step_ms_median", "step_ms_p95"),
    *("steps", "tokens", "tokens_per_s", "mfu", "peak_allocated_mib", "peak_reserved_mib"),
)
TIMES = ("train_time_s", "step_ms", "step_ms_median", "step_ms_p95", "tokens_per_s", "mfu")
RUN_COLUMNS = (
    *("experiment", "arm", "seed", "replicate", "budget", "role", "block", "status", "reason"),
    *("val_loss", "bits_per_byte", *NUMBERS[1:]),
    *("first_crossing_s", "censored", "node", "device", "gpu", "fingerprint", "stale"),
    *("disturbed", "stale_files", "imported", "self_reported", "metrics_digest", "run_id"),
)
POINT = ("step", "val_loss", "train_time_s")
CURVE_COLUMNS = ("run_id", "arm", "seed", "budget", "role", *POINT)
YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
OWN_LINES = re.compile(r"^(seed|replicate): (\d+)$", re.MULTILINE)  # tell the runs of one arm apart


def load(
    name_or_dir: str | Path, results: str | Path = "results", *, accept_stale: bool = False
) -> Experiment:
    """An experiment by name in R/experiments, or by its folder there."""
    folder = experiment_folder(Path(name_or_dir), Path(results))
    plan = Plan.from_mapping(read_mapping(folder / "experiment.json"))
    root = folder.parent.parent / "runs"
    runs = [read_run(root, planned) for planned in plan.runs]
    rows = [row_of(run, plan) for run in runs]
    configs = {run.run_id: run.config for run in runs if run.config}
    name_stale_files(rows, configs, plan)
    return Experiment(
        name=plan.name,
        plan=plan,
        runs=pd.DataFrame(rows, columns=list(RUN_COLUMNS)),
        curves=curves_of(runs),
        environments={run.run_id: run.environment for run in runs if run.environment},
        configs=configs,
        results={run.run_id: run.result for run in runs if run.result},
        step_times=single_steps(runs),
        accept_stale=accept_stale,
    )


def experiment_folder(given: Path, results: Path) -> Path:
    """The folder given, or that of an experiment so named; raises ValueError with what there is."""
    if (given / "experiment.json").is_file():
        return given
    folder = results / "experiments" / given
    if (folder / "experiment.json").is_file():
        return folder
    names = sorted(path.parent.name for path in folder.parent.glob("*/experiment.json"))
    hint = "run one first: ablate run EXP"
    if names:
        hint = f"there are {', '.join(names)}"
    raise ValueError(f"{folder}: no experiment '{given.name}' here; {hint}")


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """A planned run and what its folder holds; a file that is not there is empty."""

    planned: PlanRun
    run_id: str  # of the run that stands for it, which may be an older one
    stale: bool
    status: str
    reason: str | None
    result: Document
    config: Document
    environment: Document
    validations: Sequence[Mapping[str, Any]]  # rows of metrics.jsonl

    def points(self, key: str) -> list[float]:
        """One of POINT at every validation, nan where unknown."""
        return [float_or_nan(row.get(key)) for row in self.validations]


def read_run(root: Path, planned: PlanRun) -> RecordedRun:
    run_id, stale = existing_run(root, planned)
    folder = root / run_id
    result = read_mapping_if_any(folder / "result.json")
    if result:
        status, reason = result["status"], result.get("reason")
    else:
        status, reason = last_attempt(folder)
    return RecordedRun(
        planned=planned,
        run_id=run_id,
        stale=stale,
        status=status,
        reason=reason,
        result=result,
        config=read_config_if_any(folder / "config.yaml"),
        environment=read_mapping_if_any(folder / "environment.json"),
        validations=read_validations(folder / "metrics.jsonl"),
    )


def row_of(run: RecordedRun, plan: Plan) -> dict[str, Any]:
    """A run's row of the tidy table; the files that made it stale are named later."""
    planned, result, environment = run.planned, run.result, run.environment
    target = target_loss(plan)
    crossing = None
    if target is not None and result:
        crossing = first_crossing(run.points("train_time_s"), run.points("val_loss"), target)
    bytes_per_token = plan.corpus.bytes_per_token or math.nan
    loss = float_or_nan(result.get("val_loss"))
    row = {
        "experiment": plan.name,
        "arm": planned.arm,
        "seed": planned.seed,
        "replicate": planned.replicate,
        "budget": planned.budget,
        "role": planned.role,
        "block": planned.block,
        "status": run.status,
        "reason": run.reason,
        "bits_per_byte": loss / math.log(2) / bytes_per_token,
        "first_crossing_s": float_or_nan(crossing),
        "censored": bool(result) and target is not None and crossing is None,
        "node": environment.get("host"),
        "device": run.config.get("device"),
        "gpu": accelerator(environment),
        "fingerprint": (run.config.get("data") or {}).get("fingerprint"),
        "stale": run.stale,
        "disturbed": disturbed_words(result) or "",
        "stale_files": "",
        "imported": bool(planned.imported or result.get("imported")),
        "self_reported": bool(planned.self_reported or result.get("self_reported")),
        "metrics_digest": (result.get("digests") or {}).get("metrics.jsonl"),
        "run_id": run.run_id,
    }
    for key in NUMBERS:
        row[key] = float_or_nan(result.get(key))
    if stood_still(result):
        row |= dict.fromkeys((*TIMES, "first_crossing_s"), math.nan)
        row["censored"] = False
    return row


def stood_still(result: Document) -> bool:
    """Whether a run's clock ran while nothing else did: its times are then none."""
    return any(disturbance.kind == "still" for disturbance in disturbances_of(result))


def curves_of(runs: Sequence[RecordedRun]) -> pd.DataFrame:
    """Every validation point of every run, columns CURVE_COLUMNS."""
    curves: dict[str, list[Any]] = {column: [] for column in CURVE_COLUMNS}
    for run in runs:
        n_points = len(run.validations)
        planned = run.planned
        facts = (run.run_id, planned.arm, planned.seed, planned.budget, planned.role)
        for column, fact in zip(CURVE_COLUMNS, facts, strict=False):
            curves[column] += [fact] * n_points
        for column in POINT:
            curves[column] += run.points(column)
        if stood_still(run.result) and n_points:
            curves["train_time_s"][-n_points:] = [math.nan] * n_points
    return pd.DataFrame(curves)


def single_steps(runs: Sequence[RecordedRun]) -> dict[str, StepTimes]:
    """run_id -> the times of single steps, of runs with a result that recorded them."""
    of_runs = {}
    for run in runs:
        if run.result and not stood_still(run.result):
            times = of_rows(run.validations)
            if times is not None:
                of_runs[run.run_id] = times
    return of_runs


def first_crossing(times: Any, losses: Any, target: float) -> float | None:
    """Training seconds at the first validation point at or below the target; None if never.

    Interpolated from the point before.
    """
    t, y = np.asarray(times, float), np.asarray(losses, float)
    below = np.flatnonzero(y <= target)
    if not len(below):
        return None
    i = int(below[0])
    if i == 0 or not np.isfinite(y[i - 1]) or y[i - 1] == y[i]:
        return float(t[i])
    return float(t[i - 1] + (t[i] - t[i - 1]) * (y[i - 1] - target) / (y[i - 1] - y[i]))


def read_config_if_any(path: Path) -> Document:
    if not path.is_file():
        return {}
    return parse_config(path.read_text(encoding="utf-8"))


def parse_config(text: str) -> dict[str, Any]:
    """A config.yaml, of which most runs differ in a line or two: the rest is parsed once."""
    content = dict(parse_shared(OWN_LINES.sub("", text)))
    for key, value in OWN_LINES.findall(text):
        content[key] = int(value)
    return content


@lru_cache(maxsize=256)
def parse_shared(text: str) -> dict[str, Any]:
    return yaml.load(text, Loader=YAML_LOADER)


def read_mapping_if_any(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    return read_mapping(path)


def read_mapping(path: Path) -> dict[str, Any]:
    """A JSON file's content; raises ValueError where it is none, or no mapping."""
    cure = "delete the run's folder and run the experiment again"
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: cannot be read as JSON ({error}): {cure}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path}: holds no mapping: {cure}")
    return value


def existing_run(root: Path, planned: PlanRun) -> tuple[str, bool]:
    """(run_id that has a result, whether it is stale), the current one where none has.

    The current run comes first; an older one, the newest, where nothing current was begun.
    """
    current = planned.run_id
    if (root / current / "result.json").is_file():
        return current, False
    if (root / current / "attempts.jsonl").is_file():
        return current, False
    made_at = {}
    for run_id in planned.older:
        result = root / run_id / "result.json"
        if result.is_file():
            made_at[run_id] = result.stat().st_mtime
    if not made_at:
        return current, False
    return max(made_at, key=made_at.__getitem__), True


def last_attempt(folder: Path) -> tuple[str, str | None]:
    """(status, reason) of a run without a result: its last attempt's, else pending.

    An attempt without an end is still running.
    """
    attempts = read_lines(folder / "attempts.jsonl")
    if not attempts:
        return "pending", None
    last = attempts[-1]
    return str(last.get("status") or "running"), last.get("reason")


def read_validations(path: Path) -> list[dict[str, Any]]:
    """Every validation row of a log; the others, one per step, are passed over unread.

    Lines cut short by a kill are left out.
    """
    try:
        lines = [line for line in path.read_bytes().splitlines() if b'"val"' in line]
        rows = json.loads(b"[%s]" % b",".join(lines))  # at once: five times as fast as one by one
    except OSError:
        return []
    except ValueError:
        rows = read_lines(path)
    return [row for row in rows if isinstance(row, dict) and row.get("kind") == "val"]


def float_or_nan(value: Any) -> float:
    if value is None:
        return math.nan
    return float(value)


def accelerator(environment: Document) -> str | None:
    """The first GPU's name, or the processor's where there is none."""
    gpus = environment.get("gpus")
    if not gpus:
        return environment.get("cpu")
    if isinstance(gpus[0], Mapping):
        return str(gpus[0].get("name"))
    return str(gpus[0])


def name_stale_files(
    rows: Sequence[dict[str, Any]], configs: Mapping[str, Document], plan: Plan
) -> None:
    """Fill `stale_files`: those by which a stale run's code differs from the code as it is.

    Where the plan does not know that, the code of the runs that are not stale stands for it; where
    every arm is a trainer of its own, the arm's.
    """
    of_arms = {arm.name: arm.source for arm in plan.arms if arm.source}
    everywhere = plan.source or fresh_source(rows, configs)
    for row in rows:
        files = of_arms.get(row["arm"], everywhere)
        if row["stale"] and files:
            made_by = source_files(configs.get(row["run_id"]))
            names = sorted({*files, *made_by})
            changed = [name for name in names if files.get(name) != made_by.get(name)]
            row["stale_files"] = ", ".join(changed)


def fresh_source(
    rows: Sequence[Mapping[str, Any]], configs: Mapping[str, Document]
) -> Mapping[str, str]:
    """The files of the first run that is not stale, with their digests."""
    for row in rows:
        if not row["stale"] and row["run_id"] in configs:
            return source_files(configs[row["run_id"]])
    return {}


def source_files(config: Document | None) -> Mapping[str, str]:
    """File -> digest, of the code that a run recorded."""
    source = (config or {}).get("source") or {}
    return source.get("files") or {}
