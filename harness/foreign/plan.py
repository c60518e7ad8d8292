"""The runs of an experiment with foreign trainers, and what the results folder keeps of it; the same for imported logs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.experiment.blocks import order_in_block
from harness.experiment.record import digest
from harness.foreign.arm import ForeignArm, read_side
from harness.foreign.collect import data_fingerprint
from harness.foreign.experiment import ForeignExperiment
from harness.foreign.trainer import Limits
from harness.provenance.code import Code, read_code
from harness.provenance.interpreters import difference, lock_of
from harness.run.digests import run_id_of
from harness.run.plan import SCHEMA, Plan
from harness.run.read import read_json
from harness.run.spec import PlannedRun, RunSpec
from harness.store.store import Store

OWN_STEPS = 0  # the budget of a run whose script alone knows its number of steps
NO_CORPUS = {"name": "the script's own", "fingerprint": "not recorded", "unit": "nats", "bytes_per_token": None}


def spec_of(e: ForeignExperiment, arm: ForeignArm) -> RunSpec:
    """A run of the arm, without its seed or number."""
    source = arm.code.source
    return RunSpec(
        config={"trainer": dict(arm.trainer)},
        seed=0,
        budget=OWN_STEPS,
        data_name=", ".join(arm.trainer["data"]) or NO_CORPUS["name"] or "",
        data_fingerprint=e.fingerprint,
        source_digest=source.digest,
        source_files=source.files,
        environment_digest=arm.environment_digest,
        device="cuda" if arm.trainer["gpus"] else "cpu",
        world_size=max(1, arm.trainer["gpus"]),
        toggles=tuple(f"{k} = {v}" for k, v in arm.fields.items()) or ("the baseline: nothing is changed",),
    )


def plan_foreign(e: ForeignExperiment) -> list[PlannedRun]:
    """All runs, block by block: every arm once in each, in random order. Arms that differ in code alone get other numbers."""
    specs = [spec_of(e, arm) for arm in e.arms]
    twins = [sum(s.intent_id == before.intent_id for before in specs[:i]) for i, s in enumerate(specs)]
    runs = []
    for block, seed in enumerate(e.seeds):
        for order, i in enumerate(order_in_block(e.name, seed, len(specs))):
            arm = e.arms[i]
            number: dict[str, Any] = {"seed": seed, "replicate": twins[i]} if arm.seeded else {"replicate": seed * (max(twins) + 1) + twins[i]}
            runs.append(PlannedRun(arm=arm.name, block=block, order=order, spec=replace(specs[i], **number)))
    return runs


def row(arm: str, spec: RunSpec, **more: Any) -> dict[str, Any]:
    """A run as experiment.json lists it."""
    known = {
        "arm": arm,
        "seed": None,
        "replicate": spec.replicate,
        "budget": spec.budget,
        "role": "loss",
        "block": None,
        "order": None,
    }
    ids = {"intent_id": spec.intent_id, "run_id": spec.run_id, "environment": spec.environment_digest, "older": []}
    return {**known, **ids, "self_reported": True, **more}


def plan_mapping(
    *,
    name: str,
    arms: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    question: str = "",
    command: str = "",
    **more: Any,
) -> Plan:
    """experiment.json of runs that are not our own trainer's: the first arm is the baseline unless `baseline` says otherwise."""
    return Plan.from_mapping(
        {
            "schema": SCHEMA,
            "name": name,
            "question": question,
            "base": arms[0]["name"],
            "scale": "its own",
            "baseline": arms[0]["name"],
            "design": "explicit",
            "baseline_config": {},
            "primary": "val_loss",
            "seeds": [],
            "seeds_rule": None,
            "budgets": [],
            "target": None,
            "margin": None,
            "estimand": "at-rate",
            "confirm": False,
            "published": None,
            "arms": [{"changes": [], "fields": {}, "estimand": "at-rate", "substituted": [], **a} for a in arms],
            "protocol": "self-reported: the script's own clock",
            "corpus": NO_CORPUS,
            "command": command,
            "plugins": [],
            "locks": [],
            "looks": 0,
            "looked_at": 0,
            "runs": list(rows),
            **more,
        }
    )


def describe_foreign(e: ForeignExperiment, runs: Sequence[PlannedRun], *, before: Mapping[str, Any] | None, command: str) -> Plan:
    """The content of experiment.json. `before` is the one it replaces: its locks, looks and older runs are kept."""
    seeded = {arm.name: arm.seeded for arm in e.arms}
    older = {r["intent_id"]: [r["run_id"], *r["older"]] for r in (before or {}).get("runs", [])}
    rows = []
    for r in runs:
        numbered = {"seed": r.spec.seed, "block": r.block} if seeded[r.arm] else {}
        stale = [i for i in older.get(r.spec.intent_id, []) if i != r.spec.run_id]
        rows.append(row(r.arm, r.spec, order=r.order, **numbered, older=stale))
    locked = {
        "question": e.question,
        "baseline": e.baseline.name,
        "arms": {a.name: {"trainer": dict(a.trainer), "code": a.code.source.digest} for a in e.arms},
        "primary": e.primary,
        "seeds": list(e.seeds),
        "target": e.target,
        "margin": e.margin,
        "confirm": e.confirm,
    }
    locks = list((before or {}).get("locks", []))
    if not locks or locks[-1]["digest"] != digest(locked):
        locks.append({"locked": datetime.now(UTC).isoformat(timespec="seconds"), "digest": digest(locked), "plan": locked})
    arms = [
        {
            "name": a.name,
            "changes": list(a.changes),
            "fields": dict(a.fields),
            "environment_effect": _environment_effect(a, e.baseline),
            "hints": [asdict(h) for h in a.hints],
            "side": a.side.saved(),
            "code": a.code.source.digest,
            "source": dict(a.code.source.files),
        }
        for a in e.arms
    ]
    data = e.baseline.trainer["data"]
    corpus = {**NO_CORPUS, "name": ", ".join(data), "fingerprint": e.fingerprint} if data else NO_CORPUS
    known = {k: (before or {}).get(k, 0) for k in ("looks", "looked_at")}
    kept = {k: locked[k] for k in ("primary", "seeds", "target", "margin", "confirm")}
    return plan_mapping(
        name=e.name, arms=arms, rows=rows, question=e.question, command=command, design=e.design,
        base=e.baseline.trainer["script"],
                corpus=corpus, foreign=True, limits=asdict(e.limits), locks=locks, **known, **kept,
    )  # fmt: skip


def _environment_effect(arm: ForeignArm, baseline: ForeignArm) -> str | None:
    """What another environment than the baseline's changes, in words."""
    own, base = arm.trainer["environment"], baseline.trainer["environment"]
    return None if own == base else difference(lock_of(base).versions, lock_of(own).versions)


def keep_code(e: ForeignExperiment, store: Store) -> None:
    """What the runs will unpack: code/<digest>.zip, patches applied."""
    for arm in e.arms:
        store.keep_once("code", arm.code.source.digest, ".zip", arm.code.zipped)


def restored(results: Path, plan: Mapping[str, Any]) -> ForeignExperiment:
    """An experiment from what the results folder keeps of it: its scripts as they are now, those that are gone as they ran."""
    arms: list[ForeignArm] = []
    for known in plan["arms"]:
        side, where = read_side(known["side"]), f"{plan['name']}: arm '{known['name']}'"
        for path in side.data.values():
            if not Path(path).exists():
                raise UserError(f"{where}: its data {path} is gone: put it back, or start anew with other data")
        code = code_now(results, known)
        arms.append(side.arm(known["name"], tuple(known["changes"]), baseline=arms[0] if arms else None, where=where, code=code))
    keys = ("name", "question", "design", "target", "primary", "margin", "confirm")
    return ForeignExperiment(
        **{k: plan[k] for k in keys},
        arms=tuple(arms),
        seeds=tuple(plan["seeds"]),
        fingerprint=data_fingerprint(map(Path, arms[0].trainer["data"].values())),
        limits=Limits(**plan["limits"]),
        started=plan["command"],
    )


def code_now(results: Path, arm: Mapping[str, Any]) -> Code:
    """An arm's code as it is now where it came from; as it was last planned where that is gone."""
    side = read_side(arm["side"])
    try:
        return side.code(arm["name"])
    except UserError:
        return read_code(results / "code" / f"{arm['code']}.zip", side.script_name)


def with_present_code(results: Path, plan: Mapping[str, Any]) -> Plan:
    """The plan with run ids of the scripts as they are now; what they replace is kept as older (stale) runs."""
    sources = {a["name"]: code_now(results, a).source for a in plan["arms"]}
    rows = []
    for r in plan["runs"]:
        now = run_id_of(r["intent_id"], source_digest=sources[r["arm"]].digest, environment_digest=r["environment"])
        older = [i for i in dict.fromkeys((r["run_id"], *r["older"])) if i != now]
        rows.append({**r, "run_id": now, "older": older})
    arms = [{**a, "source": dict(sources[a["name"]].files)} for a in plan["arms"]]
    return Plan.from_mapping({**plan, "arms": arms, "runs": rows})


def with_steps(results: Path, plan: Mapping[str, Any]) -> Plan:
    """The plan with the number of steps that each run turned out to have."""
    rows = []
    for r in plan["runs"]:
        result = read_json(results / "runs" / r["run_id"] / "result.json") or {}
        rows.append({**r, "budget": result.get("budget") or r["budget"]})
    return Plan.from_mapping({**plan, "runs": rows})
