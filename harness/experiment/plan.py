"""From an experiment to its runs: every arm at every seed and budget, each with the specification that is its identity.

Also what is written down of a plan, for the report: plan_file.py keeps it in the results folder.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from harness.config import plugins
from harness.config.presets import to_config, with_budget
from harness.config.run import RunConfig, flat, plain
from harness.config.validate import check_config
from harness.corpora.corpus import Corpus, HeldOut, data_root
from harness.corpora.index import KNOWN, check_fits, open_corpus, open_heldout
from harness.data.config import DataConfig
from harness.errors import UserError
from harness.experiment.arms import Arm
from harness.experiment.experiment import Experiment
from harness.provenance.interpreters import lock_of
from harness.provenance.source import source_of
from harness.run.spec import PlannedRun, RunSpec
from harness.yamlfile import YamlFile

NO_DATA = (
    "not prepared"  # the fingerprint of a corpus that is not here, in a plan that is only looked at
)


def at_budget(config: RunConfig, steps: int) -> RunConfig:
    """The configuration trained for `steps` updates, warm-up and cooldown at the same fraction of them."""
    before = flat(config)
    at = to_config(with_budget({**before, "schedule.steps": steps}, before))
    check_config(at)
    return at


def in_words(arm: Arm) -> tuple[str, ...]:
    """Which toggles an arm sets, for the head of its log."""
    return tuple(f"{k} = {v}" for k, v in {**arm.fields, **arm.runs_in}.items()) or (
        "the baseline: nothing is changed",
    )


def heldout_of(config: RunConfig, corpus: Corpus) -> HeldOut | None:
    """The text that data.heldout names, None where it names none."""
    return open_heldout(config.data.heldout, corpus) if config.data.heldout else None


def corpus_of(name: str, *, need_data: bool) -> Corpus | None:
    """A prepared corpus; None for a known one that is yet to be prepared, unless it is needed."""
    if not need_data and name in KNOWN and not (data_root() / name / "corpus.json").exists():
        return None
    return open_corpus(name)


def plan_runs(
    e: Experiment, *, world_size: int | None = None, need_data: bool = True
) -> list[PlannedRun]:
    """All runs of an experiment: the loss runs, then the timing runs if it has any, each block by block.

    world_size: processes of a run, where that is not for the experiment's phases to say.
    need_data=False plans for a corpus that is not prepared too: `ablate plan` may look at that, nothing can run it."""
    if world_size is not None and len(e.phases) > 1:
        raise UserError(
            f"{e.path}: its phases say how many GPUs a run of each role has: leave --gpus-per-run out"
        )
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
                raise UserError(
                    f"{YamlFile(e.path).where('set', 'data.corpus')}: {error}"
                ) from None
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
        raise UserError(
            f"{e.path}: its arms name different held-out text in data.heldout: name one for all of them"
        )
    longest = max(e.budgets, default=None)
    runs = []
    for role, phase, size in phases:
        own = [(arm, replace(spec, role=role, world_size=size)) for arm, spec in cells]
        if (
            role == "timing" and longest is not None
        ):  # the time of a step is the same at every budget
            own = [(arm, spec) for arm, spec in own if spec.budget == longest]
        runs += blocks(e, own, e.seeds[: phase.seeds])
    return runs


def blocks(
    e: Experiment, cells: Sequence[tuple[str, RunSpec]], seeds: Sequence[int]
) -> list[PlannedRun]:
    """Randomised complete blocks: every cell once at each seed, in an order fixed by the experiment's name."""
    runs = []
    for block, seed in enumerate(seeds):
        rng = np.random.default_rng(
            int.from_bytes(hashlib.sha256(f"{e.name}/{seed}".encode()).digest()[:8])
        )
        for order, index in enumerate(rng.permutation(len(cells))):
            arm, spec = cells[index]
            runs.append(PlannedRun(arm=arm, block=block, order=order, spec=spec.at_seed(int(seed))))
    return runs


def with_seeds(e: Experiment, seeds: Sequence[int]) -> Experiment:
    """The experiment with other seeds (more blocks of an adaptive design, or --seeds)."""
    return replace(e, seeds=tuple(seeds))
