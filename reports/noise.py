"""The noise of one run's loss as other experiments of a results folder have seen it: what a plan rests on before its own runs."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.records import read_json, read_result

RUNS_NAMED = 3  # experiments named in a source


@dataclass(frozen=True, kw_only=True)
class Noise:
    """One run's sd of the final loss with its df, pooled within configurations, and where it was seen, in words."""

    sd: float
    df: int
    source: str


def pooled(groups: Iterable[Iterable[float]]) -> tuple[float, int]:
    """(sd, df) within groups; nan with 0 df."""
    known = [x for g in groups if len(x := np.array([*g], float)) > 1]
    df = sum(len(x) - 1 for x in known)
    return (math.sqrt(sum(float(((x - x.mean()) ** 2).sum()) for x in known) / df) if df else math.nan), df


def other_plans(results: Path, name: str) -> list[Mapping[str, Any]]:
    """Plans of the folder's other experiments that ran our own trainer."""
    plans = [read_json(p) for p in sorted(results.glob("experiments/*/experiment.json")) if p.parent.name != name]
    return [p for p in plans if isinstance(p, dict) and "baseline_config" in p and not p.get("foreign") and not p.get("imported")]


def baseline_losses(results: Path, plan: Mapping[str, Any]) -> dict[tuple[int, str], float]:
    """(budget, run_id) -> final loss of the baseline's finished runs."""
    found = {}
    for run in plan["runs"]:
        if run["arm"] == plan["baseline"]:
            for run_id in (run["run_id"], *(run.get("older") or ())):
                result = read_result(results / "runs" / run_id)
                if result is not None and result["status"] == "finished" and result.get("val_loss") is not None:
                    found[run["budget"], run_id] = float(result["val_loss"])
                    break
    return found


def same_baseline(results: Path, plans: Iterable[Mapping[str, Any]], config: Mapping[str, Any]) -> str | None:
    """The experiment with the same baseline that has most finished runs of it."""
    runs = {p["name"]: len(baseline_losses(results, p)) for p in plans if p["baseline_config"] == config}
    best = max(runs, key=lambda name: runs[name], default=None)
    return best if best is not None and runs[best] else None


def noise_at_scale(results: Path, plans: Iterable[Mapping[str, Any]], scale: str) -> Noise | None:
    """Pooled over the baselines of every experiment at a scale; a run that several share counts once."""
    groups: dict[tuple[str, int], dict[str, float]] = {}
    names = []
    for plan in plans:
        if plan.get("scale") == scale and (losses := baseline_losses(results, plan)):
            names.append(plan["name"])
            for (budget, run_id), loss in losses.items():
                groups.setdefault((repr(plan["baseline_config"]), budget), {})[run_id] = loss
    sd, df = pooled(g.values() for g in groups.values())
    if not df:
        return None
    n, more = sum(len(g) for g in groups.values()), ", ..." if len(names) > RUNS_NAMED else ""
    return Noise(sd=sd, df=df, source=f"{n} runs of other baselines at scale {scale}: {', '.join(names[:RUNS_NAMED])}{more}")
