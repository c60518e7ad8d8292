"""From an experiment to its runs: every arm at every seed and budget, each with the specification that is its identity.

Also what is written down of a plan, for the report: plan_file.py keeps it in the results folder.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from harness import plugins
from harness.config import RunConfig, flat, plain
from harness.data.config import DataConfig
from harness.data.corpora import KNOWN, check_fits, data_root, open_corpus, open_heldout
from harness.data.corpus import Corpus, HeldOut
from harness.errors import UserError
from harness.experiment import Arm, Experiment
from harness.foreign.environments import effect, lock_of
from harness.plan_file import SCHEMA
from harness.presets import to_config, with_budget
from harness.records import RunSpec
from harness.source import source_of
from harness.validate import check_config
from harness.yamlfile import YamlFile

NO_DATA = "not prepared"  # the fingerprint of a corpus that is not here, in a plan that is only looked at


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One run of an experiment. Blocks hold every arm once at one seed; `order` is its random place in its block."""

    arm: str
    block: int
    order: int
    spec: RunSpec


def at_budget(config: RunConfig, steps: int) -> RunConfig:
    """The configuration trained for `steps` updates, warm-up and cooldown at the same fraction of them."""
    before = flat(config)
    at = to_config(with_budget({**before, "schedule.steps": steps}, before))
    check_config(at)
    return at


def in_words(arm: Arm) -> tuple[str, ...]:
    """Which toggles an arm sets, for the head of its log."""
    return tuple(f"{k} = {v}" for k, v in {**arm.fields, **arm.runs_in}.items()) or ("the baseline: nothing is changed",)


def heldout_of(config: RunConfig, corpus: Corpus) -> HeldOut | None:
    """The text that data.heldout names, None where it names none."""
    return open_heldout(config.data.heldout, corpus) if config.data.heldout else None


def corpus_of(name: str, *, need_data: bool) -> Corpus | None:
    """A prepared corpus; None for a known one that is yet to be prepared, unless it is needed."""
    if not need_data and name in KNOWN and not (data_root() / name / "corpus.json").exists():
        return None
    return open_corpus(name)


def plan_runs(e: Experiment, *, world_size: int | None = None, need_data: bool = True) -> list[PlannedRun]:
    """All runs of an experiment: the loss runs, then the timing runs if it has any, each block by block.

    world_size: processes of a run, where that is not for the experiment's phases to say.
    need_data=False plans for a corpus that is not prepared too: `ablate plan` may look at that, nothing can run it."""
    if world_size is not None and len(e.phases) > 1:
        raise UserError(f"{e.path}: its phases say how many GPUs a run of each role has: leave --gpus-per-run out")
    phases = [(role, phase, world_size or phase.gpus_per_run) for role, phase in e.phases.items()]
    sources = source_of(plugins.paths())
    corpora: dict[str, Corpus | None] = {}
    second: dict[DataConfig, HeldOut | None] = {}
    cells: list[tuple[str, RunSpec]] = []  # arm and specification, without its seed
    for arm in e.arms:
        for budget in e.budgets or (None,):
            config = arm.config if budget is None else at_budget(arm.config, budget)
            for _, _, size in phases:
                if config.data.ranks % size:
                    raise UserError(
                        f"--gpus-per-run {size} does not divide data.ranks={config.data.ranks}, which the processes share: "
                        f"choose a divisor, or --set data.ranks={size}"
                    )
            name = config.data.corpus
            try:
                corpus = corpora[name] = corpora.get(name) or corpus_of(name, need_data=need_data)
                if corpus and config.data not in second:
                    second[config.data] = heldout_of(config, corpus)
                    check_fits(corpus, second[config.data], config.data)
            except UserError as error:
                raise UserError(f"{YamlFile(e.path).where('set', 'data.corpus')}: {error}") from None
            heldout = second.get(config.data)
            spec = RunSpec(
                config=plain(config),
                seed=0,
                budget=config.schedule.steps,
                data_name=name,
                data_fingerprint=corpus.fingerprint if corpus else NO_DATA,
                heldout_fingerprint=heldout.fingerprint if heldout else None,
                device=e.device,
                source_digest=sources.digest,
                source_files=sources.files,
                environment_digest=lock_of(arm.runs_in).digest,
                runs_in=arm.runs_in,
                toggles=in_words(arm),
                substituted=arm.substituted,
            )
            cells.append((arm.name, spec))
    arm_of: dict[str, str] = {}
    for label, spec in cells:
        other = arm_of.setdefault(spec.intent_id, label)
        if other != label:
            raise UserError(
                f"{e.path}: arms '{other}' and '{label}' are one and the same at {spec.budget} steps: leave one of them out"
            )
    if len({c.fingerprint if c else NO_DATA for c in corpora.values()}) > 1:
        raise UserError(
            f"{e.path}: its arms read different corpora ({', '.join(corpora)}): losses on different text are not compared"
        )
    if len({h.fingerprint for h in second.values() if h}) > 1:
        raise UserError(f"{e.path}: its arms name different held-out text in data.heldout: name one for all of them")
    longest = max(e.budgets, default=None)
    runs = []
    for role, phase, size in phases:
        own = [(arm, replace(spec, role=role, world_size=size)) for arm, spec in cells]
        if role == "timing" and longest is not None:  # the time of a step is the same at every budget
            own = [(arm, spec) for arm, spec in own if spec.budget == longest]
        runs += blocks(e, own, e.seeds[: phase.seeds])
    return runs


def blocks(e: Experiment, cells: Sequence[tuple[str, RunSpec]], seeds: Sequence[int]) -> list[PlannedRun]:
    """Randomised complete blocks: every cell once at each seed, in an order fixed by the experiment's name."""
    runs = []
    for block, seed in enumerate(seeds):
        rng = np.random.default_rng(int.from_bytes(hashlib.sha256(f"{e.name}/{seed}".encode()).digest()[:8]))
        for order, index in enumerate(rng.permutation(len(cells))):
            arm, spec = cells[index]
            runs.append(PlannedRun(arm=arm, block=block, order=order, spec=spec.at_seed(int(seed))))
    return runs


def locked_plan(e: Experiment) -> dict[str, Any]:
    """What is decided before the first run: changing any of it later is a new lock, shown on the page."""
    return {
        "question": e.question,
        "base": e.base,
        "scale": e.scale,
        "baseline": e.baseline.name,
        "design": e.design,
        "arms": {a.name: {"changes": list(a.changes), "fields": {k: _plain(v) for k, v in a.fields.items()}} for a in e.arms},
        "baseline_config": plain(e.baseline.config),
        "primary": e.primary,
        "seeds": list(e.seeds[: e.seeds_rule["min"]] if e.seeds_rule else e.seeds),  # what a rule adds is no change of plan
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


def describe(e: Experiment, runs: Sequence[PlannedRun], *, before: dict[str, Any] | None, command: str) -> dict[str, Any]:
    """The content of experiment.json. `before` is the one it replaces: its locks, looks and older runs are kept."""
    before = before or {"locks": [], "looks": 0, "looked_at": 0, "runs": []}
    plan = locked_plan(e)
    locks = list(before["locks"])
    if not locks or locks[-1]["digest"] != digest(plan):
        locks.append({"locked": datetime.now(UTC).isoformat(timespec="seconds"), "digest": digest(plan), "plan": plan})
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
    return {
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
            "bytes_per_token": corpus.bytes_per_token["val"] if corpus.bytes_per_token else None,
            "heldout": {"name": heldout.name, "fingerprint": heldout.fingerprint} if heldout else None,
        },
        "command": command,
        "plugins": [str(p) for p in plugins.paths()],
        "left_out": list(e.left_out),
        "locks": locks,
        "looks": before["looks"],
        "looked_at": before.get("looked_at", 0),
        "runs": rows,
    }


def with_seeds(e: Experiment, seeds: Sequence[int]) -> Experiment:
    """The experiment with other seeds (more blocks of an adaptive design, or --seeds)."""
    return replace(e, seeds=tuple(seeds))
