"""An experiment as experiment.json and plan.lock keep it."""

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from harness.config import plugins
from harness.config.run import plain
from harness.corpora.index import open_corpus
from harness.experiment.experiment import Experiment
from harness.experiment.plan import heldout_of
from harness.provenance.interpreters import effect
from harness.run.plan import SCHEMA, Plan
from harness.run.spec import PlannedRun


def locked_plan(e: Experiment) -> dict[str, Any]:
    """What is decided before the first run: changing any of it later is a new lock, shown on the page."""
    return {
        "question": e.question,
        "base": e.base,
        "scale": e.scale,
        "baseline": e.baseline.name,
        "design": e.design,
        "arms": {
            a.name: {
                "changes": list(a.changes),
                "fields": {k: _plain(v) for k, v in a.fields.items()},
            }
            for a in e.arms
        },
        "baseline_config": plain(e.baseline.config),
        "primary": e.primary,
        "seeds": list(
            e.seeds[: e.seeds_rule["min"]] if e.seeds_rule else e.seeds
        ),  # what a rule adds is no change of plan
        "seeds_rule": e.seeds_rule,
        "phases": {role: vars(phase) for role, phase in e.phases.items()},
        "budgets": list(e.budgets),
        "target": e.target,
        "margin": e.margin,
        "estimand": e.estimand,
        "axes": {a.name: list(a.points) for a in e.axes},
        "grid": e.grid.name if e.grid else None,
        "rates": {name: dict(rate) for name, rate in e.rates.items()},
        "confirm": e.confirm,
        "published": e.published,
        "alters_noise": list(e.alters_noise),
        "slope": e.slope,
    }


def _plain(value: Any) -> Any:
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def digest(plan: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()[:16]


def describe(
    e: Experiment, runs: Sequence[PlannedRun], *, before: Plan | None, command: str
) -> Plan:
    """The content of experiment.json. `before` is the one it replaces: its locks, looks and older runs are kept."""
    before = before or Plan(name=e.name)
    plan = locked_plan(e)
    locks = list(before["locks"])
    if not locks or locks[-1]["digest"] != digest(plan):
        locks.append(
            {
                "locked": datetime.now(UTC).isoformat(timespec="seconds"),
                "digest": digest(plan),
                "plan": plan,
            }
        )
    older = {r["intent_id"]: [r["run_id"], *r["older"]] for r in before["runs"]}
    corpus = open_corpus(e.baseline.config.data.corpus)
    heldout = heldout_of(e.baseline.config, corpus)
    rows = [
        {
            "arm": r.arm,
            "seed": r.spec.seed,
            "replicate": r.spec.replicate,
            "budget": r.spec.budget,
            "role": r.spec.role,
            "block": r.block,
            "order": r.order,
            "intent_id": r.spec.intent_id,
            "run_id": r.spec.run_id,
            "environment": r.spec.environment_digest,
            "older": [i for i in older.get(r.spec.intent_id, []) if i != r.spec.run_id],
        }
        for r in runs
    ]
    return Plan.from_mapping(
        {
            "schema": SCHEMA,
            "name": e.name,
            **plan,
            "seeds": list(e.seeds),
            "arms": [
                {
                    "name": a.name,
                    "changes": list(a.changes),
                    "fields": {k: _plain(v) for k, v in a.fields.items()},
                    "estimand": e.estimand,
                    "alters_noise": bool(set(a.changes) & set(e.alters_noise)),
                    "of": a.of,
                    "point": dict(a.point),
                    "substituted": list(a.substituted),
                    "environment_effect": effect(a.runs_in),
                }
                for a in e.arms
            ],
            "protocol": e.baseline.config.timing.protocol,
            "corpus": {
                "name": corpus.name,
                "fingerprint": corpus.fingerprint,
                "unit": corpus.unit,
                "bytes_per_token": corpus.bytes_per_token["val"]
                if corpus.bytes_per_token
                else None,
                "heldout": {"name": heldout.name, "fingerprint": heldout.fingerprint}
                if heldout
                else None,
            },
            "command": command,
            "plugins": [str(p) for p in plugins.paths()],
            "left_out": list(e.left_out),
            "locks": locks,
            "looks": before.looks,
            "looked_at": before.looked_at,
            "runs": rows,
        }
    )
