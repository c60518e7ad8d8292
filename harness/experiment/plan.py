"""From an experiment to its runs: every arm at every seed and budget.

Each run has the specification that is its identity. record.py writes down what was planned.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from harness.config import plugins
from harness.config.run import RunConfig, plain
from harness.corpora.bpe import token_texts
from harness.corpora.corpus import Corpus, HeldOut, data_root
from harness.corpora.index import KNOWN, check_fits, open_corpus, open_heldout
from harness.data.config import DataConfig
from harness.errors import UserError
from harness.experiment.arms import Arm
from harness.experiment.blocks import order_in_block
from harness.experiment.budgets import at_budget
from harness.experiment.experiment import Experiment
from harness.experiment.keys import Phase, Role
from harness.provenance.interpreters import lock_of
from harness.provenance.source import Source, source_of
from harness.run.spec import Branch, PlannedRun, RunSpec
from harness.yamlfile import YamlFile

NO_DATA = "not prepared"  # the fingerprint of a corpus that is not here, in a plan to look at


@dataclass(frozen=True, kw_only=True)
class DesignCell:
    """An arm at a budget: what is run once at every seed."""

    arm: str
    spec: RunSpec  # its seed is still to be set


@dataclass(frozen=True, kw_only=True)
class SizedPhase:
    """How the runs of one role are made, its number of processes decided."""

    role: Role
    phase: Phase
    world_size: int  # processes of a run


@dataclass(kw_only=True)
class Texts:
    """The corpora that an experiment's arms read, each opened once."""

    corpora: dict[str, Corpus | None] = field(default_factory=dict)  # None: not prepared
    heldout: dict[DataConfig, HeldOut | None] = field(default_factory=dict)
    fitting: set[tuple[DataConfig, int]] = field(default_factory=set)  # and the largest growth

    def open(self, config: RunConfig, *, need_data: bool) -> tuple[Corpus | None, HeldOut | None]:
        """What a run reads and is validated on besides; raises UserError where it is too short."""
        name = config.data.corpus
        corpus = self.corpora.get(name) or corpus_of(name, need_data=need_data)
        self.corpora[name] = corpus
        if corpus and config.data not in self.heldout:
            heldout = heldout_of(config, corpus)
            self.heldout[config.data] = heldout
        growth = max(config.schedule.batch_growth, default=1)
        if corpus and (config.data, growth) not in self.fitting:
            check_fits(corpus, self.heldout[config.data], config.data, growth)
            self.fitting.add((config.data, growth))
        if corpus and config.loss.prefix_weight:
            token_texts(corpus)
        return corpus, self.heldout.get(config.data)


def in_words(arm: Arm) -> tuple[str, ...]:
    """Which toggles an arm sets, for the head of its log."""
    settings = {**arm.fields, **arm.runs_in}
    if not settings:
        return ("the baseline: nothing is changed",)
    return tuple(f"{name} = {value}" for name, value in settings.items())


def heldout_of(config: RunConfig, corpus: Corpus) -> HeldOut | None:
    """The text that data.heldout names, None where it names none."""
    if not config.data.heldout:
        return None
    return open_heldout(config.data.heldout, corpus)


def corpus_of(name: str, *, need_data: bool) -> Corpus | None:
    """A prepared corpus; None for a known one that is yet to be prepared, unless it is needed."""
    prepared = (data_root() / name / "corpus.json").exists()
    if name in KNOWN and not prepared and not need_data:
        return None
    return open_corpus(name)


def plan_runs(
    e: Experiment, *, world_size: int | None = None, need_data: bool = True
) -> list[PlannedRun]:
    """All runs of an experiment: the loss runs, then the timing runs if any, each block by block.

    world_size: processes of a run, where that is not for the experiment's phases to say.
    need_data=False plans for a corpus that is not prepared too: `ablate plan` may look at that,
    nothing can run it.
    """
    phases = _sized_phases(e, world_size)
    texts = Texts()
    cells = _resolve(e, phases, texts, need_data=need_data)
    _check_alike(e, cells)
    _check_texts(e, texts)
    runs = []
    for phase in phases:
        runs += _expand(e, phase, cells)
    return runs


def _sized_phases(e: Experiment, world_size: int | None) -> list[SizedPhase]:
    if world_size is not None and len(e.phases) > 1:
        raise UserError(
            f"{e.path}: its phases say how many GPUs a run of each role has: "
            "leave --gpus-per-run out"
        )
    phases = []
    for role, phase in e.phases.items():
        size = world_size or phase.gpus_per_run
        phases.append(SizedPhase(role=role, phase=phase, world_size=size))
    return phases


def _resolve(
    e: Experiment, phases: Iterable[SizedPhase], texts: Texts, *, need_data: bool
) -> list[DesignCell]:
    """Every arm at every budget; raises UserError where its ranks or its text do not fit."""
    source = source_of(plugins.paths())
    cells: list[DesignCell] = []
    for arm in e.arms:
        for config in _at_budgets(arm.config, e.budgets):
            for phase in phases:
                _check_ranks(config, phase)
            try:
                corpus, heldout = texts.open(config, need_data=need_data)
            except UserError as error:
                place = YamlFile(e.path).where("set", "data.corpus")
                raise UserError(f"{place}: {error}") from None
            spec = _spec_of(arm, config, source, corpus, heldout, device=e.device)
            if e.branch_at:
                baseline = cells[0].spec if cells else spec
                spec = replace(spec, branch=Branch(at=e.branch_at, config=baseline.config))
            cells.append(DesignCell(arm=arm.name, spec=spec))
    return cells


def _at_budgets(config: RunConfig, budgets: Sequence[int]) -> list[RunConfig]:
    if not budgets:
        return [config]
    return [at_budget(config, steps) for steps in budgets]


def _check_ranks(config: RunConfig, phase: SizedPhase) -> None:
    ranks, size = config.data.ranks, phase.world_size
    if ranks % size:
        of_file = f"phases: {phase.role}: gpus_per_run"
        name = of_file if size == phase.phase.gpus_per_run else "--gpus-per-run"
        raise UserError(
            f"{name} {size} does not divide data.ranks={ranks}, which the "
            f"processes share: choose a divisor, or --set data.ranks={size}"
        )


def _spec_of(
    arm: Arm,
    config: RunConfig,
    source: Source,
    corpus: Corpus | None,
    heldout: HeldOut | None,
    *,
    device: str,
) -> RunSpec:
    """The identity of an arm's runs at one budget; seed, role and processes are set later."""
    return RunSpec(
        config=plain(config),
        seed=0,
        budget=config.schedule.steps,
        data_name=config.data.corpus,
        data_fingerprint=fingerprint_of(corpus),
        heldout_fingerprint=heldout.fingerprint if heldout else None,
        device=device,
        source_digest=source.digest,
        source_files=source.files,
        environment_digest=lock_of(arm.runs_in).digest,
        runs_in=arm.runs_in,
        toggles=in_words(arm),
        substituted=arm.substituted,
    )


def fingerprint_of(corpus: Corpus | None) -> str:
    if corpus is None:
        return NO_DATA
    return corpus.fingerprint


def _check_alike(e: Experiment, cells: Iterable[DesignCell]) -> None:
    """Refuse two arms whose runs would be the same."""
    arm_of: dict[str, str] = {}
    for cell in cells:
        other = arm_of.setdefault(cell.spec.intent_id, cell.arm)
        if other != cell.arm:
            raise UserError(
                f"{e.path}: arms '{other}' and '{cell.arm}' are one and the same "
                f"at {cell.spec.budget} steps: leave one of them out"
            )


def _check_texts(e: Experiment, texts: Texts) -> None:
    """Refuse arms that read or are validated on different text: their losses say nothing."""
    if len(set(map(fingerprint_of, texts.corpora.values()))) > 1:
        raise UserError(
            f"{e.path}: its arms read different corpora ({', '.join(texts.corpora)}): "
            "losses on different text are not compared"
        )
    heldout = {text.fingerprint for text in texts.heldout.values() if text}
    if len(heldout) > 1:
        raise UserError(
            f"{e.path}: its arms name different held-out text in data.heldout: "
            "name one for all of them"
        )


def _expand(e: Experiment, phase: SizedPhase, cells: Iterable[DesignCell]) -> list[PlannedRun]:
    """The runs of one role at all of its seeds."""
    longest = max(e.budgets, default=None)
    chosen = []
    for cell in cells:
        # the time of a step is the same at every budget
        if phase.role == "timing" and longest is not None and cell.spec.budget != longest:
            continue
        spec = replace(cell.spec, role=phase.role, world_size=phase.world_size)
        chosen.append(replace(cell, spec=spec))
    return blocks(e, chosen, e.seeds[: phase.phase.seeds])


def blocks(e: Experiment, cells: Sequence[DesignCell], seeds: Sequence[int]) -> list[PlannedRun]:
    """Randomised complete blocks: every cell once at each seed."""
    runs = []
    for block, seed in enumerate(seeds):
        for place, index in enumerate(order_in_block(e.name, seed, len(cells))):
            cell = cells[index]
            spec = cell.spec.at_seed(int(seed))
            runs.append(PlannedRun(arm=cell.arm, block=block, place=place, spec=spec))
    return runs


def with_seeds(e: Experiment, seeds: Sequence[int]) -> Experiment:
    """The experiment with other seeds (more blocks of an adaptive design, or --seeds)."""
    return replace(e, seeds=tuple(seeds))
