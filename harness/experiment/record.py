"""An experiment as experiment.json and plan.lock keep it."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime

from harness.config import plugins
from harness.config.run import plain, plain_value
from harness.corpora.index import open_corpus
from harness.experiment.arms import Arm
from harness.experiment.experiment import Experiment
from harness.experiment.keys import target_content
from harness.experiment.plan import heldout_of
from harness.provenance.interpreters import effect
from harness.run.digests import spaced_digest
from harness.run.document import Content, Document, Fields
from harness.run.plan import Lock, Plan, PlanArm, PlanCorpus, PlanRun
from harness.run.renamed import value_today
from harness.run.spec import PlannedRun


def locked_plan(e: Experiment) -> Content:
    """What is decided before the first run.

    A later change of it is a new lock, shown on the page.
    """
    arms = {}
    for arm in e.arms:
        arms[arm.name] = {"changes": list(arm.changes), "fields": _plain_fields(arm)}
    seeds = e.seeds
    rule = None
    if e.seeds_rule:
        seeds = seeds[: e.seeds_rule.least]  # what a rule adds is no change of plan
        rule = e.seeds_rule.to_mapping()
    locked = {
        "question": e.question,
        "base": e.base,
        "scale": e.scale,
        "baseline": e.baseline.name,
        "design": e.design,
        "arms": arms,
        "baseline_config": plain(e.baseline.config),
        "primary": e.primary,
        "seeds": list(seeds),
        "seeds_rule": rule,
        "phases": {role: vars(phase) for role, phase in e.phases.items()},
        "budgets": list(e.budgets),
        "target": target_content(e.target),
        "margin": e.margin,
        "estimand": e.estimand,
        "axes": {axis.name: list(axis.points) for axis in e.axes},
        "grid": e.grid.name if e.grid else None,
        "rates": {arm: dict(rate) for arm, rate in e.rates.items()},
        "confirm": e.confirm,
        "published": e.published,
        "alters_noise": list(e.alters_noise),
        "slope": asdict(e.slope) if e.slope else None,
        **({"branch_at": e.branch_at} if e.branch_at else {}),
    }
    if e.prior_noise:  # plans without it stay what they were
        locked["prior_noise"] = asdict(e.prior_noise)
    if e.draw:
        locked["draw"] = e.draw.to_mapping()
    if e.halving:
        locked["halving"] = e.halving.to_mapping()
    if e.parents:
        locked["parents"] = dict(e.parents)
    return locked


def _plain_fields(arm: Arm) -> Fields:
    return {name: plain_value(value) for name, value in arm.fields.items()}


def locks_with(before: Sequence[Lock], decided: Document) -> tuple[Lock, ...]:
    """The locks there were, and another where what is decided is no longer the last one's."""
    digest = spaced_digest(decided)[:16]
    if before and digest in (before[-1].digest, _in_todays_words(before[-1])):
        return tuple(before)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return (*before, Lock(locked=now, digest=digest, plan=decided))


def _in_todays_words(lock: Lock) -> str:
    """The digest of what a lock says, had it been written in this release."""
    primary = value_today("primary", lock.plan.get("primary"))
    return spaced_digest({**lock.plan, "primary": primary})[:16]


def with_history(plan: Plan, before: Plan | None, decided: Document) -> Plan:
    """The plan with locks, looks and older runs of the one that it replaces, if there is one.

    decided: what is now decided before the first run. A run's older ones are of its intent.
    """
    before = before or Plan(name=plan.name)
    names_of_intent = {run.intent_id: (run.run_id, *run.older) for run in before.runs}
    runs = []
    for run in plan.runs:
        names = () if run.borrowed else names_of_intent.get(run.intent_id, ())
        older = tuple(name for name in names if name != run.run_id)
        runs.append(replace(run, older=older) if older else run)
    return replace(
        plan,
        locks=locks_with(before.locks, decided),
        looks=before.looks,
        looked_at=before.looked_at,
        runs=tuple(runs),
    )


def describe(
    e: Experiment, runs: Sequence[PlannedRun], *, before: Plan | None, command: str
) -> Plan:
    """What experiment.json holds of an experiment; before: the one that it replaces."""
    locked = locked_plan(e)
    plan = Plan(
        name=e.name,
        question=e.question,
        base=e.base,
        scale=e.scale,
        scale_rates=e.scale_rates,
        baseline=e.baseline.name,
        design=e.design,
        arms=tuple(_plan_arm(e, arm) for arm in e.arms),
        parents=e.parents,
        baseline_config=locked["baseline_config"],
        departures={name: plain_value(value) for name, value in e.departures.items()},
        primary=e.primary,
        seeds=e.seeds,
        seeds_rule=e.seeds_rule,
        phases=locked["phases"],
        budgets=e.budgets,
        target=e.target,
        margin=e.margin,
        estimand=e.estimand,
        axes=locked["axes"],
        draw=locked.get("draw"),
        halving=e.halving,
        grid=locked["grid"],
        rates=locked["rates"],
        confirm=e.confirm,
        published=e.published,
        alters_noise=e.alters_noise,
        slope=locked["slope"],
        prior_noise=e.prior_noise,
        branch_at=e.branch_at,
        protocol=e.baseline.config.timing.protocol,
        corpus=_plan_corpus(e),
        command=command,
        plugins=tuple(map(str, plugins.paths())),
        left_out=e.left_out,
        runs=tuple(map(_plan_run, runs)),
        device=e.device,
    )
    return with_history(plan, before, locked)


def _plan_arm(e: Experiment, arm: Arm) -> PlanArm:
    return PlanArm(
        name=arm.name,
        changes=arm.changes,
        fields=_plain_fields(arm),
        estimand=e.estimand,
        alters_noise=not set(arm.changes).isdisjoint(e.alters_noise),
        of=arm.of,
        point=arm.point,
        substituted=arm.substituted,
        environment_effect=effect(arm.runs_in),
    )


def _plan_corpus(e: Experiment) -> PlanCorpus:
    config = e.baseline.config
    corpus = open_corpus(config.data.corpus)
    heldout = heldout_of(config, corpus)
    of_heldout = None
    if heldout:
        of_heldout = {"name": heldout.name, "fingerprint": heldout.fingerprint}
    bytes_per_token = None
    if corpus.bytes_per_token:
        bytes_per_token = corpus.bytes_per_token["val"]
    return PlanCorpus(
        name=corpus.name,
        fingerprint=corpus.fingerprint,
        unit=corpus.unit,
        bytes_per_token=bytes_per_token,
        tokens=corpus.tokens["train"],
        heldout=of_heldout,
    )


def _plan_run(run: PlannedRun) -> PlanRun:
    spec = run.spec
    return PlanRun(
        arm=run.arm,
        seed=spec.seed,
        replicate=spec.replicate,
        budget=spec.budget,
        role=spec.role,
        block=run.block,
        place=run.place,
        intent_id=spec.intent_id,
        run_id=spec.run_id,
        environment=spec.environment_digest,
        trunk=spec.trunk.run_id if spec.trunk else None,
    )
