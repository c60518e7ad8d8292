"""A results directory as tables: reports.inputs.load("quickstart") gives an Experiment. Reads files, computes nothing but first
crossings.

One row per planned run; a run without a result has its status and empty numbers. Raises ValueError in one line for what cannot
be read.
"""

import json
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from harness.run.plan import Plan
from harness.run.read import read_lines
from reports.inputs.experiment import Experiment
from reports.inputs.step_times import StepTimes, of_rows

NUMBERS = ("val_loss", "heldout_loss", "train_time_s", "step_ms", "step_ms_median", "step_ms_p95", "steps", "tokens",
           "tokens_per_s", "mfu", "peak_allocated_mib", "peak_reserved_mib")  # fmt: skip
RUN_COLUMNS = (
    *("experiment", "arm", "seed", "replicate", "budget", "role", "block", "status", "reason"),
    *("val_loss", "bits_per_byte", *NUMBERS[1:]),
    *("first_crossing_s", "censored", "node", "device", "gpu", "fingerprint", "stale", "stale_files", "imported"),
    *("self_reported", "metrics_digest", "run_id"),
)
CURVE_COLUMNS = ("run_id", "arm", "seed", "budget", "role", "step", "val_loss", "train_time_s")
POINT = ("step", "val_loss", "train_time_s")


def load(name_or_dir: str | Path, results: str | Path = "results", *, accept_stale: bool = False) -> Experiment:
    """An experiment by name in R/experiments, or by its folder there."""
    folder = Path(name_or_dir)
    if not (folder / "experiment.json").is_file():
        folder = Path(results) / "experiments" / str(name_or_dir)
    if not (folder / "experiment.json").is_file():
        known = sorted(p.parent.name for p in folder.parent.glob("*/experiment.json"))
        hint = f"there are {', '.join(known)}" if known else "run one first: ablate run EXP"
        raise ValueError(f"{folder}: no experiment '{Path(name_or_dir).name}' here; {hint}")
    plan = Plan.from_mapping(_json(folder / "experiment.json"))
    root = folder.parent.parent / "runs"
    rows: list[dict[str, Any]] = []
    curves: dict[str, list[Any]] = {c: [] for c in CURVE_COLUMNS}
    environments: dict[str, Mapping[str, Any]] = {}
    configs: dict[str, Mapping[str, Any]] = {}
    results_of: dict[str, Mapping[str, Any]] = {}
    step_times: dict[str, StepTimes] = {}
    target = (plan.get("target") or {}).get("val_loss")
    bytes_per_token = (plan.get("corpus") or {}).get("bytes_per_token") or math.nan
    for planned in plan["runs"]:
        run_id, stale = _existing(root, planned)
        run = root / run_id
        result = _json(run / "result.json") if (run / "result.json").is_file() else {}
        config = _config((run / "config.yaml").read_text(encoding="utf-8")) if (run / "config.yaml").is_file() else {}
        environment = _json(run / "environment.json") if (run / "environment.json").is_file() else {}
        status, reason = (result["status"], result.get("reason")) if result else _ended(run)
        points = _validations(run / "metrics.jsonl")
        at = {key: [_number(point.get(key)) for point in points] for key in POINT}
        crossing = first_crossing(at["train_time_s"], at["val_loss"], target) if target is not None and result else None
        gpus = environment.get("gpus") or []
        rows.append(
            {
                "experiment": plan["name"],
                **{key: planned.get(key) for key in ("arm", "seed", "replicate", "budget", "role", "block")},
                "status": status,
                "reason": reason,
                **{key: _number(result.get(key)) for key in NUMBERS},
                "bits_per_byte": _number(result.get("val_loss")) / math.log(2) / bytes_per_token,
                "first_crossing_s": crossing if crossing is not None else math.nan,
                "censored": bool(result) and target is not None and crossing is None,
                "node": environment.get("host"),
                "device": config.get("device"),
                "gpu": _gpu(gpus[0]) if gpus else environment.get("cpu"),
                "fingerprint": (config.get("data") or {}).get("fingerprint"),
                "stale": stale,
                "stale_files": "",
                "imported": bool(planned.get("imported") or result.get("imported")),
                "self_reported": bool(planned.get("self_reported") or result.get("self_reported")),
                "metrics_digest": (result.get("digests") or {}).get("metrics.jsonl"),
                "run_id": run_id,
            }
        )
        facts = {"run_id": run_id} | {key: planned.get(key) for key in ("arm", "seed", "budget", "role")}
        for key, values in (at | {k: [v] * len(at["step"]) for k, v in facts.items()}).items():
            curves[key] += values
        for store, value in ((environments, environment), (configs, config), (results_of, result)):
            if value:
                store[run_id] = value
        if result and (times := of_rows(points)) is not None:
            step_times[run_id] = times
    _name_stale_files(rows, configs, plan.get("source"), {a["name"]: a["source"] for a in plan["arms"] if "source" in a})
    table = pd.DataFrame(rows, columns=list(RUN_COLUMNS))
    return Experiment(
        name=plan["name"], plan=plan, runs=table, curves=pd.DataFrame(curves), environments=environments, configs=configs,
        results=results_of, step_times=step_times, accept_stale=accept_stale,
    )  # fmt: skip


def first_crossing(times: Any, losses: Any, target: float) -> float | None:
    """Training seconds at the first validation point at or below the target, interpolated from the point before; None if
    never."""
    t, y = np.asarray(times, float), np.asarray(losses, float)
    below = np.flatnonzero(y <= target)
    if not len(below):
        return None
    i = int(below[0])
    if i == 0 or not np.isfinite(y[i - 1]) or y[i - 1] == y[i]:
        return float(t[i])
    return float(t[i - 1] + (t[i] - t[i - 1]) * (y[i - 1] - target) / (y[i - 1] - y[i]))


_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


_OWN = re.compile(r"^(seed|replicate): (\d+)$", re.MULTILINE)  # what tells the runs of one arm apart


def _config(text: str) -> dict[str, Any]:
    """config.yaml, of which most runs differ in a line or two: the rest is parsed once."""
    return {**_parsed(_OWN.sub("", text)), **{key: int(value) for key, value in _OWN.findall(text)}}


@lru_cache(maxsize=256)
def _parsed(text: str) -> dict[str, Any]:
    return yaml.load(text, Loader=_YAML)


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{path}: cannot be read as JSON ({error}): delete the run's folder and run the experiment again"
        ) from None
    if not isinstance(value, dict):
        raise ValueError(f"{path}: holds no mapping: delete the run's folder and run the experiment again")
    return value


def _existing(root: Path, planned: Mapping[str, Any]) -> tuple[str, bool]:
    """(run_id that has a result, whether it is stale): the current one, else the newest older one, else the current one."""
    current = planned["run_id"]
    if (root / current / "result.json").is_file():
        return current, False
    older = [o for o in planned.get("older") or [] if (root / o / "result.json").is_file()]
    if older and not (root / current / "attempts.jsonl").is_file():
        return max(older, key=lambda o: (root / o / "result.json").stat().st_mtime), True
    return current, False


def _ended(run: Path) -> tuple[str, str | None]:
    """(status, reason) of a run without a result: its last attempt's, running while an attempt has no end, else pending."""
    attempts = read_lines(run / "attempts.jsonl")
    if not attempts:
        return "pending", None
    return str(attempts[-1].get("status") or "running"), attempts[-1].get("reason")


def _validations(path: Path) -> list[dict[str, Any]]:
    """Every validation row; the others, one per step, are passed over unread. Lines cut short by a kill are left out."""
    try:
        lines = [line for line in path.read_bytes().splitlines() if b'"val"' in line]
        rows = json.loads(b"[%s]" % b",".join(lines))  # at once: five times as fast as one by one
    except OSError:
        return []
    except ValueError:
        rows = read_lines(path)
    return [row for row in rows if isinstance(row, dict) and row.get("kind") == "val"]


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _gpu(gpu: Any) -> str:
    return str(gpu.get("name")) if isinstance(gpu, Mapping) else str(gpu)


def _name_stale_files(
    rows: list[dict[str, Any]],
    configs: Mapping[str, Mapping[str, Any]],
    source: Mapping[str, str] | None,
    of_arms: Mapping[str, Mapping[str, str]],
) -> None:
    """Name the files by which stale runs' code differs from the source as it is, or from that of the runs that are not stale.

    of_arms: the source of each arm, where every arm is a trainer of its own."""
    fresh: Mapping[str, Any] = next((configs[r["run_id"]] for r in rows if not r["stale"] and r["run_id"] in configs), {})
    everywhere = source or (fresh.get("source") or {}).get("files") or {}
    for row in rows:
        files = of_arms.get(row["arm"], everywhere)
        if row["stale"] and files:
            own = ((configs.get(row["run_id"]) or {}).get("source") or {}).get("files") or {}
            row["stale_files"] = ", ".join(sorted(f for f in {*files, *own} if files.get(f) != own.get(f)))
