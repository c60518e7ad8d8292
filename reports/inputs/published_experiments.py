"""The benchmark's own evidence as experiments, so that page, export and verification serve it like any other.

Every run of results/published/ is a run here: imported, its clock self-reported, nothing of it made on this machine.
"""

import collections
import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.run.plan import Plan
from reports.inputs.experiment import Experiment
from reports.inputs.load import CURVE_COLUMNS, RUN_COLUMNS
from reports.inputs.published import PUBLISHED, RUNS, era_sd, read_table, summaries
from reports.stats.rules import TARGET

BATCH_TOKENS = 524_288  # per step, records 4 to 18
HARDWARE = "8 x H100"
HOSTS = "Hosts and drivers differ between logs: step times of different records are no controlled comparison."


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One row of a published table: where its runs are in official_runs.csv, and what it changed (dotted fields)."""

    name: str
    record: str  # column `record` of official_runs.csv
    log_arm: str  # column `arm`
    changes: tuple[str, ...] = ()
    fields: tuple[tuple[str, Any], ...] = ()


def ladder() -> list[Arm]:
    records = [r for r in read_table(PUBLISHED / "records.csv") if r["record"] >= "r04"]
    return [
        Arm(
            name=(record := r["record"]),
            record=record,
            log_arm="+ tanh logit softcap (= r09)" if record == "r09" else record,
            fields=(("schedule.steps", int(r["steps"])),),
        )
        for r in records
    ]


def r09_ladder() -> list[Arm]:
    arms: list[Arm] = []
    changes: tuple[str, ...] = ()
    for r in read_table(PUBLISHED / "r09_ladder.csv"):
        changes += () if r["change"] == "schedule" else (r["change"],)
        arms.append(Arm(name=r["arm"], record="r09", log_arm=r["log_arm"], changes=changes, fields=(("change", r["change"]),)))
    return arms


def optimizers() -> list[Arm]:
    return [
        Arm(
            name=r["arm"],
            record="r07" if r["log_arm"] == "r07" else "optimizers-on-r07",
            log_arm=r["log_arm"],
            fields=(("optimizer", r["description"]),),
        )
        for r in read_table(PUBLISHED / "optimizers_on_r07.csv")
    ]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A published page: its question, its arms in order, how a row is read, and what to know about it."""

    question: str
    arms: Callable[[], list[Arm]]
    against: str  # 'above': every row against the row above it; 'first': against the first
    remarks: tuple[str, ...]


EVIDENCE: Mapping[str, Evidence] = {
    "ladder": Evidence(
        question="How did the benchmark get from record 4 to record 18?",
        arms=ladder,
        against="above",
        remarks=(
            "Every record was tuned until its loss just met 3.28, so a step count, and with it a time, is as uncertain as the "
            "loss it was tuned on: intervals are the noise of one run of its era, turned into time by its slope over steps.",
            "Records 14 and 16 are the means of 38 and 40 logs that are not in the file: each stands as one run.",
            HOSTS,
        ),
    ),
    "r09_ladder": Evidence(
        question="Which part of record 9 made it better?",
        arms=r09_ladder,
        against="above",
        remarks=(
            "One run per row, published with record 9: an interval is one run's noise of its era (sd 0.004) on both sides.",
            "The first row is record 8 cut to 3200 steps; record 8 itself takes 4578 steps to a loss of 3.2762.",
        ),
    ),
    "optimizers_on_r07": Evidence(
        question="Which optimizer trains record 7's model best?",
        arms=optimizers,
        against="first",
        remarks=("One run per row, each with its own tuned rate: an interval is one run's noise of its era (sd 0.004).", HOSTS),
    ),
}


def published_experiment(name: str) -> Experiment:
    """`ladder`, `r09_ladder` or `optimizers_on_r07` as an Experiment; raises ValueError for another name."""
    evidence = EVIDENCE.get(name)
    if evidence is None:
        near = difflib.get_close_matches(name, EVIDENCE, 1)
        hint = f"did you mean 'published/{near[0]}'?" if near else f"there are {', '.join(f'published/{k}' for k in EVIDENCE)}"
        raise ValueError(f"unknown published evidence 'published/{name}'; {hint}")
    arms, points = evidence.arms(), read_table(RUNS)
    rows: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    for arm in arms:
        own: dict[str, list[dict[str, str]]] = {}
        for p in points:
            if (p["record"], p["arm"]) == (arm.record, arm.log_arm):
                own.setdefault(p["run"], []).append(p)
        rows += [run_row(name, arm, run, of_run[-1]) for run, of_run in own.items()] or [summary_row(name, arm)]
        curves += [curve_row(name, arm, run, p) for run, of_run in own.items() for p in of_run]
    table = pd.DataFrame(rows, columns=list(RUN_COLUMNS))
    return Experiment(
        name=f"published/{name}",
        plan=plan_of(name, evidence, arms, rows),
        runs=table,
        curves=pd.DataFrame(curves, columns=list(CURVE_COLUMNS)),
        environments={},
        configs={},
        results={r["run_id"]: {"status": "finished"} for r in rows},
    )


def run_row(name: str, arm: Arm, run: str, last: Mapping[str, str]) -> dict[str, Any]:
    """A row of the tidy table from the last line of a log. The first 10 steps are untimed, so a mean step is over the rest."""
    steps, time_s = int(last["step"]), float(last["train_time_ms"]) / 1e3
    return row(
        name, arm, f"{arm.record}-{run}", steps=steps, val_loss=float(last["val_loss"]), time_s=time_s,
        step_ms=float(last["step_avg_ms"]), peak=float(last["peak_memory_mib"] or math.nan),
    )  # fmt: skip


def summary_row(name: str, arm: Arm) -> dict[str, Any]:
    """A row for a record of which only the means of its logs are known."""
    s = summaries()[arm.record]
    peak = float(s["peak_allocated_mib"] or math.nan)
    return row(
        name, arm, f"{arm.record}-mean-of-{s['n_runs']}", steps=int(s["steps"]), val_loss=float(s["val_loss"]),
        time_s=float(s["train_time_s"]), step_ms=float(s["step_ms"]), peak=peak,
    )  # fmt: skip


def row(
    name: str, arm: Arm, run_id: str, *, steps: int, val_loss: float, time_s: float, step_ms: float, peak: float
) -> dict[str, Any]:
    known = {
        "experiment": f"published/{name}",
        "arm": arm.name,
        "replicate": 0,
        "budget": steps,
        "role": "loss",
        "status": "finished",
        "val_loss": val_loss,
        "train_time_s": time_s,
        "step_ms": step_ms,
        "steps": float(steps),
        "tokens": float(steps * BATCH_TOKENS),
        "peak_allocated_mib": peak,
        "censored": val_loss > TARGET,
        "device": "cuda",
        "gpu": HARDWARE,
        "fingerprint": "fineweb10B",
        "stale": False,
        "stale_files": "",
        "imported": True,
        "self_reported": True,
        "run_id": run_id,
    }
    numbers = dict.fromkeys(
        ("step_ms_median", "step_ms_p95", "tokens_per_s", "mfu", "peak_reserved_mib", "first_crossing_s"), math.nan
    )
    return {**dict.fromkeys(RUN_COLUMNS), **numbers, **known}


def curve_row(name: str, arm: Arm, run: str, point: Mapping[str, str]) -> dict[str, Any]:
    facts = {"run_id": f"{arm.record}-{run}", "arm": arm.name, "seed": None, "budget": int(point["total_steps"]), "role": "loss"}
    numbers = {"step": float(point["step"]), "val_loss": float(point["val_loss"])}
    return {**facts, **numbers, "train_time_s": float(point["train_time_ms"]) / 1e3}


def plan_of(name: str, evidence: Evidence, arms: Sequence[Arm], rows: Sequence[Mapping[str, Any]]) -> Plan:
    """What a page asks of a plan; nothing was planned here."""
    means = {r: int(s["n_runs"]) for r, s in summaries().items()}
    n_rows = collections.Counter(r["arm"] for r in rows)
    own = [
        {
            "name": a.name,
            "changes": list(a.changes),
            "fields": dict(a.fields),
            "n_logs": max(n_rows[a.name], means.get(a.name, 1)),
            "noise_sd": era_sd(a.record),
        }
        for a in arms
    ]
    planned = [{k: r[k] for k in ("arm", "seed", "replicate", "budget", "role", "block", "run_id")} | {"older": []} for r in rows]
    return Plan.from_mapping(
        {
            "schema": 1,
            "name": f"published/{name}",
            "question": evidence.question,
            "evidence": evidence.against,
            "remarks": list(evidence.remarks),
            "imported": True,
            "base": arms[0].name,
            "baseline": arms[0].name,
            "scale": "gpt2",
            "design": "ladder" if evidence.against == "above" else "explicit",
            "arms": own,
            "seeds": [],
            "seeds_rule": None,
            "budgets": [],
            "target": {"val_loss": TARGET, "reason": "the benchmark's"},
            "primary": "val_loss",
            "margin": None,
            "confirm": False,
            "published": None,
            "protocol": "skip10: the first 10 steps run untimed",
            "corpus": {"name": "FineWeb", "fingerprint": "the benchmark's", "unit": "nats per token"},
            "command": f"ablate report published/{name}",
            "locks": [],
            "looks": 1,
            "runs": planned,
        }
    )
