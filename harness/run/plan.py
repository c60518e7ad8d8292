"""What was planned of an experiment, as experiment.json keeps it.

Its arms, its runs, every plan that was locked.

Older files lack keys that were added since: each has the default that says nothing was known of it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Self

from harness.run.document import Content, Document, Fields, listed
from harness.run.foreign import ClockHint, TrainerLimits, TrainerSpec
from harness.run.guarded import is_name
from harness.run.halving import Halving
from harness.run.readings import OwnMetric, Readings
from harness.run.renamed import columns_today, value_today
from harness.run.stream import StreamPlace
from harness.run.typed import typed
from harness.run.versions import PLAN, check_version


@dataclass(frozen=True, kw_only=True)
class SeedsRule:
    """An adaptive number of seeds: at least `least`, at most `most`, until `stop` is reached."""

    least: int
    most: int
    stop: Mapping[str, float]  # {decide: alpha} or {half_width: loss}

    @classmethod
    def from_mapping(cls, content: Document) -> Self:
        return typed(cls(least=content["min"], most=content["max"], stop=content["stop"]))

    def to_mapping(self) -> Content:
        return {"min": self.least, "max": self.most, "stop": dict(self.stop)}


@dataclass(frozen=True, kw_only=True)
class Target:
    """The validation loss that training is to reach, and why that one."""

    val_loss: float | None  # None: the runs will tell
    reason: str | None = None
    from_baseline: bool = False  # set by its first block (reports/inputs/targets.py)

    @classmethod
    def from_mapping(cls, content: Document) -> Self:
        return typed(cls(**{f.name: content[f.name] for f in fields(cls) if f.name in content}))

    def to_mapping(self) -> Content:
        return _without_none(asdict(self), ("reason", "from_baseline"))


@dataclass(frozen=True, kw_only=True)
class PriorNoise:
    """What is known of one run's noise from other runs of the same era and scale."""

    sd: float  # of the final loss
    df: float  # that it counts for, however many are behind it
    source: str

    @classmethod
    def from_mapping(cls, content: Document) -> Self:
        return typed(cls(sd=content["sd"], df=content["df"], source=content["source"]))


@dataclass(frozen=True, kw_only=True)
class PlanCorpus:
    """The text that the arms train on."""

    name: str = "unknown"
    fingerprint: str = "unknown"
    unit: str = "nats"  # of a loss
    bytes_per_token: float | None = None  # of the validation text
    tokens: int | None = None  # to train on
    heldout: Mapping[str, str] | None = None  # {name, fingerprint} of data.heldout's text

    @classmethod
    def from_mapping(cls, content: Document) -> Self:
        return typed(cls(**{f.name: content[f.name] for f in fields(cls) if f.name in content}))


@dataclass(frozen=True, kw_only=True)
class PlanArm:
    """One arm: the baseline, or the baseline with changes.

    Of foreign trainers and published evidence alone: the last seven.
    """

    name: str
    changes: tuple[str, ...] = ()
    # dotted field -> value, of what differs from the baseline
    fields: Fields = field(default_factory=dict)
    estimand: str = "at-rate"
    alters_noise: bool = False
    of: str = ""  # the design's arm that this point of an axis belongs to; itself, off the axes
    point: Mapping[str, str] = field(default_factory=dict)  # axis -> its value, in words
    substituted: tuple[str, ...] = ()  # what this device replaced, in words
    environment_effect: str | None = None
    hints: tuple[ClockHint, ...] = ()  # on the script's timed region
    side: TrainerSpec | None = None  # where its script comes from
    code: str | None = None  # digest of its kept code
    source: Mapping[str, str] | None = None  # file of its code -> digest
    n_logs: int | None = None  # published logs behind a row
    noise_sd: float | None = None  # of its era, in nats
    note: str = ""  # what a published row changed, in words

    @classmethod
    def from_mapping(cls, content: Document) -> Self:
        values = {f.name: content[f.name] for f in fields(cls) if f.name in content}
        values.setdefault("of", content["name"])
        for name in ("changes", "substituted"):
            values[name] = tuple(values.get(name, ()))
        values["hints"] = tuple(ClockHint.from_mapping(h) for h in content.get("hints", ()))
        side = content.get("side")
        values["side"] = TrainerSpec.from_mapping(side) if side else None
        return typed(cls(**values))

    def to_mapping(self) -> Content:
        content = asdict(self)
        content["side"] = self.side.to_mapping() if self.side else None
        return _without_none(content, OF_SOME_ARMS)


@dataclass(frozen=True, kw_only=True)
class PlanRun:
    """A run of the plan, by its name and its place."""

    arm: str
    seed: int | None
    replicate: int
    budget: int  # training steps
    role: str  # loss or timing
    block: int | None
    place: int | None = None  # in its block, drawn at random
    run_id: str
    intent_id: str = ""
    environment: str | None = None  # digest of the lock it was planned in
    older: tuple[str, ...] = ()  # names of the same intent under older code, the newest first
    trunk: str | None = None  # name of the run that it goes on from
    self_reported: bool = False  # its time is its script's own
    imported: bool = False
    borrowed: bool = False  # made for other experiments: its loss counts, its time does not

    @classmethod
    def from_mapping(cls, content: Document) -> Self:
        row = columns_today(content)
        values = {name: row[name] for name in RUN_FIELDS if name in row}
        values["older"] = tuple(values.get("older", ()))
        return typed(cls(**values))

    def renamed(self, run_id: str) -> Self:
        """The run under its present name; the one that it had is an older one."""
        if run_id == self.run_id:
            return self
        names = dict.fromkeys((self.run_id, *self.older))
        names.pop(run_id, None)
        return replace(self, run_id=run_id, older=tuple(names))


RUN_FIELDS = tuple(f.name for f in fields(PlanRun))


@dataclass(frozen=True, kw_only=True)
class Lock:
    """What was decided before the first run, and when; a later change of it is another lock."""

    locked: str  # ISO 8601
    digest: str
    plan: Document


@dataclass(frozen=True, kw_only=True)
class Plan:
    """experiment.json."""

    name: str
    question: str = ""
    base: str = ""
    scale: str | None = None
    scale_rates: str | None = None  # where the scale's learning rates are from
    baseline: str = ""
    design: str = "explicit"
    arms: tuple[PlanArm, ...] = ()
    # of a chain: arm -> the arm it is held against
    parents: Mapping[str, str] = field(default_factory=dict)
    baseline_config: Document = field(default_factory=dict)
    # dotted field -> what the record has at this scale, where the baseline has something else
    departures: Fields | None = None  # None: an older plan, or not ours
    primary: str = "val_loss"
    seeds: tuple[int, ...] = ()
    seeds_rule: SeedsRule | None = None
    phases: Mapping[str, Document] = field(default_factory=dict)
    budgets: tuple[int, ...] = ()
    target: Target | None = None
    margin: float | None = None  # in the unit of the primary metric
    estimand: str = "at-rate"
    axes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    draw: Mapping[str, int | str] | None = None  # between the axes' ends: {sobol: 16, seed: 0}
    halving: Halving | None = None  # and which rung of it this is: its runs choose, and judge none
    grid: str | None = None  # name of the experiment that its rates or points were chosen by
    rates: Mapping[str, Document] = field(default_factory=dict)
    confirm: bool = False
    published: str | None = None  # the record whose delta this reproduces
    alters_noise: tuple[str, ...] = ()
    slope: Mapping[str, float | str] | None = None  # {per_step, se, source} of the loss
    prior_noise: PriorNoise | None = None
    stream: StreamPlace | None = None  # of candidates, that it is judged in
    branch_at: int | None = None  # the update before which all arms are one trunk
    protocol: str = ""  # of timing
    corpus: PlanCorpus = PlanCorpus()
    command: str = ""
    plugins: tuple[str, ...] = ()
    left_out: tuple[Any, ...] = ()  # subsets that requirements and conflicts rule out
    locks: tuple[Lock, ...] = ()
    looks: int = 0
    looked_at: int = 0  # results at the last look
    runs: tuple[PlanRun, ...] = ()
    source: Mapping[str, str] | None = None  # file -> digest, of the code as it is now
    foreign: bool = False
    imported: bool = False
    limits: TrainerLimits | None = None  # of foreign trainers
    evidence: str | None = None  # of the benchmark's published tables: what a row is compared with
    remarks: tuple[str, ...] = ()
    device: str | None = None  # cpu or cuda; None: an older plan, or not ours

    @classmethod
    def from_mapping(cls, content: Document) -> Self:
        """The plan of a file's content; raises KeyError or TypeError where it is none."""
        values = {f.name: content[f.name] for f in fields(cls) if f.name in content}
        for name in ("seeds", "budgets", "alters_noise", "plugins", "left_out", "remarks"):
            values[name] = tuple(values.get(name) or ())
        if "primary" in values:
            values["primary"] = value_today("primary", values["primary"])
        values["arms"] = tuple(PlanArm.from_mapping(a) for a in content.get("arms", ()))
        values["runs"] = tuple(PlanRun.from_mapping(r) for r in content.get("runs", ()))
        values["locks"] = tuple(typed(Lock(**lock)) for lock in content.get("locks", ()))
        values["corpus"] = PlanCorpus.from_mapping(content.get("corpus") or {})
        for name, read in READERS_OF_PARTS.items():
            values[name] = read(content[name]) if content.get(name) else None
        return typed(cls(**values))

    def to_mapping(self) -> Content:
        """What experiment.json holds, without what other kinds of experiments alone have."""
        content = {"schema": PLAN} | {f.name: getattr(self, f.name) for f in fields(self)}
        content["arms"] = [arm.to_mapping() for arm in self.arms]
        content["runs"] = [_without_none(_plain_run(r), OF_SOME_RUNS) for r in self.runs]
        content["locks"] = [asdict(lock) for lock in self.locks]
        content["corpus"] = asdict(self.corpus)
        content["seeds_rule"] = self.seeds_rule.to_mapping() if self.seeds_rule else None
        content["target"] = self.target.to_mapping() if self.target else None
        content["limits"] = asdict(self.limits) if self.limits else None
        content["prior_noise"] = asdict(self.prior_noise) if self.prior_noise else None
        content["stream"] = self.stream.to_mapping() if self.stream else None
        content["halving"] = self.halving.to_mapping() if self.halving else None
        return _without_none(listed(content), OF_SOME_KINDS)

    @property
    def is_bundle(self) -> bool:
        """Whether the changes are parts of one difference, which `ablate split` took apart."""
        return bool(self.foreign and self.remarks)

    @cached_property
    def by_arm(self) -> Mapping[str, PlanArm]:
        """Arms by name, in the plan's order."""
        return {arm.name: arm for arm in self.arms}

    @cached_property
    def own_metrics(self) -> Mapping[str, OwnMetric]:
        """What foreign scripts measure of their own, by name."""
        return {metric.name: metric for metric in self._readings.own}

    @property
    def is_stopped(self) -> bool:
        """Whether its runs are ended at a step of the plan."""
        return self._readings.stop_step is not None

    @cached_property
    def _readings(self) -> Readings:
        """What is read of its scripts, the same of all arms."""
        side = self.by_arm[self.baseline].side if self.baseline in self.by_arm else None
        return Readings() if side is None or side.readings is None else side.readings


READERS_OF_PARTS: Mapping[str, Callable[[Document], object]] = {  # of keys that may be absent
    **{"seeds_rule": SeedsRule.from_mapping, "target": Target.from_mapping},
    **{"prior_noise": PriorNoise.from_mapping, "stream": StreamPlace.from_mapping},
    **{"limits": TrainerLimits.from_mapping, "halving": Halving.from_mapping},
}


def plan_of(content: Any, name: str) -> Plan:
    """The plan that the folder of this name holds; raises ValueError where it is none of that name.

    No name in it leads out of the results folder.
    """
    if not isinstance(content, dict):
        raise ValueError("damaged: no mapping")
    check_version(content, PLAN, f"experiment '{name}'")
    try:
        plan = Plan.from_mapping(content)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"damaged: {type(error).__name__} {error}") from None
    if plan.name != name or not is_name(name):
        raise ValueError(f"the plan of an experiment named {plan.name!r}")
    for run in plan.runs:
        if not all(map(is_name, (run.run_id, *run.older, *filter(None, [run.trunk])))):
            raise ValueError(f"with a run named {run.run_id!r}")
    arms = [arm.name for arm in plan.arms]
    if len({*arms}) < len(arms):
        raise ValueError("with two arms of one name")
    asked = (plan.baseline, *plan.parents, *plan.parents.values(), *(run.arm for run in plan.runs))
    for arm in asked:
        if arms and arm not in plan.by_arm:
            raise ValueError(f"without the arm {str(arm)[:60]!r} that it speaks of")
    return plan


OF_SOME_RUNS = ("trunk", "self_reported", "imported", "borrowed")
OF_SOME_ARMS = ("hints", "side", "code", "source", "n_logs", "noise_sd", "note")
OF_SOME_KINDS = (
    "scale_rates",
    "parents",
    "source",
    "foreign",
    "imported",
    "limits",
    "evidence",
    "remarks",
    "device",
    "prior_noise",
    "stream",
    "branch_at",
    "draw",
    "halving",
)


def _plain_run(run: PlanRun) -> Content:
    return {name: getattr(run, name) for name in RUN_FIELDS} | {"older": list(run.older)}


def _without_none(content: Content, names: Sequence[str]) -> Content:
    """The mapping without those of the named keys that say nothing."""
    return {k: v for k, v in content.items() if v or k not in names}
