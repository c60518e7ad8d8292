"""What the results folder keeps of an experiment.

Experiment.json, which the report reads, and plan.lock; how it is cancelled.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.provenance.machine import environment_lock
from harness.provenance.source import source_of
from harness.run.digests import run_id_of
from harness.run.files import write_json
from harness.run.plan import SCHEMA, Plan
from harness.run.read import read_config, read_json

SAMPLED = 20  # stale runs are of few sources: so many tell which files changed


def stale_runs(results: Path, plan: Mapping[str, Any]) -> tuple[frozenset[str], str]:
    """Planned runs whose only result is an older one, and why in words.

    plan: experiment.json as `plan.up_to_date` gives it.
    """
    has_result = lambda run_id: os.path.isfile(f"{results}/runs/{run_id}/result.json")  # noqa: E731
    stale = {
        r["run_id"]: (r["arm"], old)
        for r in plan["runs"]
        if r["older"]
        and not has_result(r["run_id"])
        and (old := next(filter(has_result, r["older"]), None))
    }
    changed: set[str] = set()
    own = {
        a["name"]: a["source"] for a in plan.get("arms", ()) if "source" in a
    }  # of foreign trainers, arm by arm
    for arm, old in list(stale.values())[:SAMPLED]:
        then, now = (
            read_config(results / "runs" / old)["source"]["files"],
            own.get(arm) or plan.get("source") or {},
        )
        changed |= {f for f in {*then, *now} if then.get(f) != now.get(f)}
    names = ", ".join(sorted(changed)[:3]) + (
        f" and {len(changed) - 3} more files" if len(changed) > 3 else ""
    )
    return frozenset(stale), f"stale: {names or 'the environment'} changed since its result"


def folder(results: Path, name: str) -> Path:
    return results / "experiments" / name


def read_plan(results: Path, name: str) -> Plan | None:
    """experiment.json of an experiment, None if it was never launched here."""
    path = folder(results, name) / "experiment.json"
    if not path.exists():
        return None
    content = read_json(path)
    try:
        if content["schema"] != SCHEMA:
            raise ValueError
        return Plan.from_mapping(content)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UserError(
            f"{path}: damaged, or of another version: remove it and run the experiment again; its"
            " runs are kept"
        ) from None


def save_plan(results: Path, plan: Plan | Mapping[str, Any]) -> None:
    """experiment.json, and plan.lock: every plan that was locked, in order."""
    content = plan.to_mapping() if isinstance(plan, Plan) else plan
    place = folder(results, content["name"])
    place.mkdir(parents=True, exist_ok=True)
    write_json(place / "plan.lock", content["locks"])
    write_json(place / "experiment.json", content)


def up_to_date(results: Path, plan: Plan | Mapping[str, Any]) -> Plan:
    """The plan with run ids of the source as it is now.

    What they replace is kept as older (stale) runs.

    A run keeps the environment it was planned in: to read results on another machine makes nothing
    stale. Nor does it where a plug-in's file is not at hand: its code cannot be compared.
    """
    plan = plan if isinstance(plan, Plan) else Plan.from_mapping(plan)
    plugged = [Path(p) for p in plan.plugins]
    if plan.imported or plan.foreign or not all(p.is_file() for p in plugged):
        return plan
    sources = source_of(plugged)
    rows = []
    for r in plan.runs:
        environment = r.environment or environment_lock().digest
        current = run_id_of(
            r.intent_id, source_digest=sources.digest, environment_digest=environment
        )
        if current != r.run_id:
            r = replace(
                r, run_id=current, older=tuple(i for i in (r.run_id, *r.older) if i != current)
            )
        rows.append(r)
    return replace(plan, source=dict(sources.files), runs=tuple(rows))


def cancel(results: Path, name: str) -> None:
    """Ask whoever runs an experiment, here or on another machine, to stop."""
    write_json(folder(results, name) / "cancelled.json", {"at": datetime.now(UTC).isoformat()})


def cancel_mark(results: Path, name: str) -> bytes | None:
    """What `cancel` left last: a runner stops when this is no longer what it was at its start."""
    try:
        return (folder(results, name) / "cancelled.json").read_bytes()
    except OSError:
        return None


def count_look(results: Path, plan: Plan) -> Plan:
    """The plan with one look more, if results came in since the last one.

    Peeking has its price in the intervals.
    """
    n_results = sum((results / "runs" / r.run_id / "result.json").exists() for r in plan.runs)
    if n_results and n_results != plan.looked_at:
        plan = replace(plan, looks=plan.looks + 1, looked_at=n_results)
    return plan
