"""The runs of an experiment with foreign trainers, and what the results folder keeps of it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from harness.errors import UserError
from harness.experiment.blocks import order_in_block
from harness.experiment.keys import target_content
from harness.experiment.record import with_history
from harness.foreign.arm import ForeignArm, code_of, make_arm
from harness.foreign.experiment import ForeignExperiment
from harness.foreign.present import UNKNOWN_STEPS
from harness.provenance.code import Code, read_code
from harness.provenance.data import data_fingerprint
from harness.provenance.interpreters import difference, lock_of
from harness.run.document import Content
from harness.run.foreign import TrainerLimits, TrainerSpec
from harness.run.plan import Plan, PlanArm, PlanCorpus, PlanRun
from harness.run.spec import PlannedRun, RunSpec
from harness.store.store import Store

FRESH = 2  # runs of a baseline beside borrowed ones
UNKNOWN_CORPUS = PlanCorpus(name="the script's own", fingerprint="not recorded")
SELF_REPORTED = "self-reported: the script's own clock"


# ---------------------------------------------------------------- runs


def spec_of(e: ForeignExperiment, arm: ForeignArm) -> RunSpec:
    """A run of the arm, without its seed or number."""
    trainer, source = arm.trainer, arm.code.source
    toggles = tuple(f"{field} = {value}" for field, value in arm.fields.items())
    if not toggles:
        toggles = ("the baseline: nothing is changed",)
    return RunSpec(
        config={"trainer": trainer.to_mapping()},
        seed=0,
        budget=UNKNOWN_STEPS,
        data_name=", ".join(trainer.data) or UNKNOWN_CORPUS.name,
        data_fingerprint=e.fingerprint,
        source_digest=source.digest,
        source_files=source.files,
        environment_digest=arm.environment_digest,
        device="cuda" if trainer.gpus else "cpu",
        world_size=max(1, trainer.gpus),
        toggles=toggles,
    )


def plan_foreign(e: ForeignExperiment) -> list[PlannedRun]:
    """All runs, block by block: every arm once in each, in random order.

    Arms that differ in code alone get other numbers. A baseline of which runs are borrowed is in
    the first blocks alone."""
    specs = [spec_of(e, arm) for arm in e.arms]
    twins = _twins_before(specs)
    runs = []
    for block, seed in enumerate(e.seeds):
        for place, i in enumerate(order_in_block(e.name, seed, len(specs))):
            arm = e.arms[i]
            if e.borrowed and arm is e.baseline and block >= FRESH:
                continue
            if arm.trainer.seeded:
                spec = replace(specs[i], seed=seed, replicate=twins[i])
            else:
                spec = replace(specs[i], replicate=seed * (max(twins) + 1) + twins[i])
            runs.append(PlannedRun(arm=arm.name, block=block, place=place, spec=spec))
    return runs


def _twins_before(specs: Sequence[RunSpec]) -> list[int]:
    """Per run, how many before it have the same intent."""
    intents = [spec.intent_id for spec in specs]
    return [intents[:i].count(intent) for i, intent in enumerate(intents)]


# ---------------------------------------------------------------- what is kept of them


def describe_foreign(
    e: ForeignExperiment, runs: Sequence[PlannedRun], *, before: Plan | None, command: str
) -> Plan:
    """What experiment.json holds of them; before: the one that it replaces."""
    data = e.baseline.trainer.data
    corpus = UNKNOWN_CORPUS
    if data:
        corpus = replace(corpus, name=", ".join(data), fingerprint=e.fingerprint)
    plan = Plan(
        name=e.name,
        question=e.question,
        base=e.baseline.trainer.script,
        scale="its own",
        baseline=e.baseline.name,
        design=e.design,
        arms=tuple(_plan_arm(arm, e.baseline) for arm in e.arms),
        parents=e.parents,
        primary=e.primary,
        seeds=e.seeds,
        seeds_rule=e.seeds_rule,
        stream=e.stream,
        target=e.target,
        margin=e.margin,
        confirm=e.confirm,
        protocol=SELF_REPORTED,
        corpus=corpus,
        command=command,
        runs=(*_plan_runs(e, runs), *_borrowed_runs(e)),
        foreign=True,
        limits=e.limits,
        remarks=e.remarks,
    )
    return with_history(plan, before, _decided(e))


def _plan_arm(arm: ForeignArm, baseline: ForeignArm) -> PlanArm:
    source = arm.code.source
    return PlanArm(
        name=arm.name,
        changes=arm.changes,
        fields=arm.fields,
        of=arm.name,
        environment_effect=_environment_effect(arm, baseline),
        hints=arm.hints,
        side=arm.written,
        code=source.digest,
        source=source.files,
    )


def _environment_effect(arm: ForeignArm, baseline: ForeignArm) -> str | None:
    """What another environment than the baseline's changes, in words."""
    here, there = baseline.trainer.environment, arm.trainer.environment
    if here == there:
        return None
    return difference(lock_of(here).versions, lock_of(there).versions)


def _plan_runs(e: ForeignExperiment, runs: Sequence[PlannedRun]) -> tuple[PlanRun, ...]:
    """The runs by name; a seed have those whose script takes one."""
    seeded = {arm.name: arm.trainer.seeded for arm in e.arms}
    rows = []
    for run in runs:
        row = replace(plan_run(run.arm, run.spec), block=run.block, place=run.place)
        if seeded[run.arm]:
            row = replace(row, seed=run.spec.seed)
        rows.append(row)
    return tuple(rows)


def _borrowed_runs(e: ForeignExperiment) -> tuple[PlanRun, ...]:
    """Runs of the baseline that are there, in no block of this experiment."""
    rows = []
    for number in e.borrowed:
        spec = replace(spec_of(e, e.baseline), replicate=number)
        rows.append(replace(plan_run(e.baseline.name, spec), borrowed=True))
    return tuple(rows)


def plan_run(arm: str, spec: RunSpec) -> PlanRun:
    """A run whose time is its script's own, of no seed or block."""
    return PlanRun(
        arm=arm,
        seed=None,
        replicate=spec.replicate,
        budget=spec.budget,
        role="loss",
        block=None,
        run_id=spec.run_id,
        intent_id=spec.intent_id,
        environment=spec.environment_digest,
        self_reported=True,
    )


def _decided(e: ForeignExperiment) -> Content:
    """What is decided before the first run, as plan.lock keeps it."""
    arms = {}
    for arm in e.arms:
        arms[arm.name] = {"trainer": arm.trainer.to_mapping(), "code": arm.code.source.digest}
    seeds = list(e.seeds)
    rule = {}
    if e.seeds_rule:
        seeds = seeds[:1]  # what a rule adds is no change of plan
        rule = {"seeds_rule": e.seeds_rule.to_mapping()}
    decided: Content = {
        "question": e.question,
        "baseline": e.baseline.name,
        "arms": arms,
        "primary": e.primary,
        "seeds": seeds,
        **rule,
        "target": target_content(e.target),
        "margin": e.margin,
        "confirm": e.confirm,
    }
    if e.parents:
        decided["parents"] = dict(e.parents)
    return decided


def keep_code(e: ForeignExperiment, store: Store) -> None:
    """What the runs will unpack: code/<digest>.zip, patches applied; the versions they meet."""
    for arm in e.arms:
        store.keep_once("code", arm.code.source.digest, ".zip", arm.code.zipped)
        lock = lock_of(arm.written.environment)
        content = json.dumps(dict(lock.versions), indent=1).encode()
        store.keep_once("environments", lock.digest, ".json", partial(bytes, content))


# ---------------------------------------------------------------- what was kept, as it is now


def restored(results: Path, plan: Plan) -> ForeignExperiment:
    """An experiment from what the results folder keeps of it, launched here or trusted.

    Its scripts are as they are now, those that are gone as they ran. To find that out starts git
    and the interpreters that it names."""
    arms: list[ForeignArm] = []
    for kept in plan.arms:
        written, where = _written(kept), f"{plan.name}: arm '{kept.name}'"
        for path in written.data.values():
            if not Path(path).exists():
                raise UserError(
                    f"{where}: its data {path} is gone: put it back, or start anew with other data"
                )
        arm = make_arm(
            kept.name,
            written,
            changes=kept.changes,
            baseline=arms[0] if arms else None,
            where=where,
            code=code_now(results, kept),
        )
        arms.append(arm)
    return ForeignExperiment(
        name=plan.name,
        question=plan.question,
        design=plan.design,
        arms=tuple(arms),
        parents=plan.parents,
        seeds=plan.seeds,
        seeds_rule=plan.seeds_rule,
        stream=plan.stream,
        borrowed=tuple(run.replicate for run in plan.runs if run.borrowed),
        target=plan.target,
        primary=plan.primary,
        margin=plan.margin,
        confirm=plan.confirm,
        fingerprint=data_fingerprint(Path(path) for path in arms[0].trainer.data.values()),
        limits=plan.limits or TrainerLimits(),
        started=plan.command,
    )


def _written(arm: PlanArm) -> TrainerSpec:
    if arm.side is None:
        raise UserError(f"arm '{arm.name}': experiment.json does not say where its script is")
    return arm.side


def code_now(results: Path, arm: PlanArm) -> Code:
    """An arm's code as it is where it came from; as it was last planned where that is gone."""
    written = _written(arm)
    try:
        return code_of(written, where=arm.name)
    except UserError:
        archive = results / "code" / f"{arm.code}.zip"
        return read_code(archive, written.script_name, digest=arm.code)
