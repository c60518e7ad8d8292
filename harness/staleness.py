"""Results that an older source or environment made: which runs have one, and what changed since."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.records import read_config

SAMPLED = 20  # stale runs are of few sources: so many tell which files changed


def stale_runs(results: Path, plan: Mapping[str, Any]) -> tuple[frozenset[str], str]:
    """Planned runs whose only result is an older one, and why in words; plan: experiment.json as `plan.up_to_date` gives it."""
    has_result = lambda run_id: os.path.isfile(f"{results}/runs/{run_id}/result.json")  # noqa: E731
    stale = {
        r["run_id"]: (r["arm"], old)
        for r in plan["runs"]
        if r["older"] and not has_result(r["run_id"]) and (old := next(filter(has_result, r["older"]), None))
    }
    changed: set[str] = set()
    own = {a["name"]: a["source"] for a in plan.get("arms", ()) if "source" in a}  # of foreign trainers, arm by arm
    for arm, old in list(stale.values())[:SAMPLED]:
        then, now = read_config(results / "runs" / old)["source"]["files"], own.get(arm) or plan.get("source") or {}
        changed |= {f for f in {*then, *now} if then.get(f) != now.get(f)}
    names = ", ".join(sorted(changed)[:3]) + (f" and {len(changed) - 3} more files" if len(changed) > 3 else "")
    return frozenset(stale), f"stale: {names or 'the environment'} changed since its result"
