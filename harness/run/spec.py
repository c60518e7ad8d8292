"""What flows between plan, worker and report.

A run's specification and its outcome, and the reading of run directories.

A run is one directory, results/runs/<run_id>/. It has a result if and only if its result.json
exists and validates. No torch here: reports share this module with the harness.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, fields, replace
from typing import Literal

import yaml

from harness.run.digests import digests_by, run_id_of, short_digest
from harness.run.disturbed import Disturbance
from harness.run.document import Content, Document
from harness.run.measured import Marks, Measured
from harness.run.versions import CONFIG, check_version

TRUNK = "trunk"  # for an arm's name, of the runs that arms go on from
TRUNK_FILE = "trunk.pt"  # what a trunk leaves to those that go on from it
Status = Literal["finished", "diverged", "oom", "timeout", "failed", "preempted", "interrupted"]
# what result.json may hold; the others live in attempts.jsonl alone
RESULT_STATUSES = (
    "finished",
    "diverged",
)
_YamlDumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@dataclass(frozen=True, kw_only=True)
class Branch:
    """Where a run begins that continues another one."""

    at: int  # the first update of its own
    config: Document  # of the trunk, resolved: the baseline's


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """Everything that can change the result of a run; its digest is the run's name."""

    config: Document  # resolved, plain values
    seed: int
    budget: int  # training steps
    data_name: str
    data_fingerprint: str
    heldout_fingerprint: str | None = None  # of data.heldout's text
    source_digest: str
    environment_digest: str
    replicate: int = 0
    role: Literal["loss", "timing"] = "loss"
    world_size: int = 1
    device: str = "cpu"  # or cuda
    # {python: PATH} or {container: COMMAND}; empty: this environment
    runs_in: Mapping[str, str] = field(default_factory=dict)
    until: int | None = None  # a trunk: it ends before this update, with all that goes on from it
    branch: Branch | None = None  # it goes on from a trunk
    # path -> digest, to name what changed
    source_files: Mapping[str, str] = field(default_factory=dict)
    toggles: tuple[str, ...] = ()  # in words, for the log; no part of the identity
    # what this device replaced, in words; no part of the identity
    substituted: tuple[str, ...] = ()
    shared: InitVar["Seedless | None"] = None  # at_seed hands it on, replace() does not
    seedless: "Seedless" = field(init=False, repr=False, compare=False)
    # runs of one intent differ by code or environment alone: the older one is stale
    intent_id: str = field(init=False, compare=False)
    run_id: str = field(init=False, compare=False)  # what is asked, with the code that does it

    def asked(self) -> Content:
        """What the user asked for: the identity without code and environment."""
        return {
            "config": self.config,
            "seed": self.seed,
            "replicate": self.replicate,
            "budget": self.budget,
            "role": self.role,
            "data": {
                "name": self.data_name,
                "fingerprint": self.data_fingerprint,
                "heldout": self.heldout_fingerprint,
            },
            "world_size": self.world_size,
            "device": self.device,
            **({"runs_in": dict(self.runs_in)} if self.runs_in else {}),
            **({"until": self.until} if self.until else {}),
            **({"branch": vars(self.branch)} if self.branch else {}),
        }

    def __post_init__(self, shared: "Seedless | None") -> None:
        seedless = shared or Seedless(self)
        intent_id = seedless.intent_at(self.seed)
        run_id = run_id_of(
            intent_id, source_digest=self.source_digest, environment_digest=self.environment_digest
        )
        object.__setattr__(self, "seedless", seedless)
        object.__setattr__(self, "intent_id", intent_id)
        object.__setattr__(self, "run_id", run_id)

    @property
    def trunk(self) -> "RunSpec | None":
        """The run that this one goes on from."""
        if self.branch is None:
            return None
        return replace(
            self,
            config=self.branch.config,
            budget=self.branch.config["schedule"]["steps"],
            until=self.branch.at,
            branch=None,
            toggles=(f"a trunk: the baseline before update {self.branch.at}",),
        )

    @property
    def own_steps(self) -> int:
        """Updates that the run makes itself."""
        return (self.until or self.budget) - (self.branch.at if self.branch else 0)

    def at_seed(self, seed: int) -> "RunSpec":
        """replace(self, seed=seed), where what all seeds share is computed once."""
        return RunSpec(**self.seedless.fields, seed=seed, shared=self.seedless)

    def to_mapping(self) -> Content:
        """What config.yaml holds."""
        return {
            "schema": CONFIG,
            **self.asked(),
            "source": {"digest": self.source_digest, "files": dict(self.source_files)},
            "environment": {"digest": self.environment_digest},
            "toggles": list(self.toggles),
            "substituted": list(self.substituted),
        }

    @classmethod
    def from_mapping(cls, m: Document) -> "RunSpec":
        """The inverse of to_mapping.

        Raises KeyError for missing parts, NewerError for what a later release wrote.
        """
        check_version(m, CONFIG, "config.yaml")
        return cls(
            config=m["config"],
            seed=m["seed"],
            replicate=m["replicate"],
            budget=m["budget"],
            role=m["role"],
            data_name=m["data"]["name"],
            data_fingerprint=m["data"]["fingerprint"],
            heldout_fingerprint=m["data"].get("heldout"),
            world_size=m["world_size"],
            device=m["device"],
            runs_in=m.get("runs_in", {}),
            until=m.get("until"),
            branch=Branch(**m["branch"]) if m.get("branch") else None,
            source_digest=m["source"]["digest"],
            source_files=m["source"]["files"],
            environment_digest=m["environment"]["digest"],
            toggles=tuple(m["toggles"]),
            substituted=tuple(m["substituted"]),
        )

    def to_yaml(self) -> str:
        # escaped: unicode line ends would not survive
        return yaml.dump(self.to_mapping(), Dumper=_YamlDumper, sort_keys=False, width=130)


class Seedless:
    """A run but for its seed: what thousands of runs share, computed once."""

    fields: Content  # of RunSpec, without the seed
    config_digest: str  # short_digest of the configuration
    intent_at: Callable[[int], str]  # the name of what is asked, at a seed

    def __init__(self, spec: RunSpec) -> None:
        names = [f.name for f in fields(spec) if f.init and f.name != "seed"]
        self.fields = {name: getattr(spec, name) for name in names}
        self.config_digest = short_digest(spec.config)
        self.intent_at = digests_by("seed", {**spec.asked(), "config": self.config_digest})


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended; a value, never an exception.

    final: the numbers of result.json; wall: seconds by phase; marks: what else result.json says;
    disturbed: what disturbed its time; timed: when the run's clock ran, by this machine's monotonic
    clock, None where that is not known.
    """

    status: Status
    reason: str | None = None
    final: Measured = field(default_factory=Measured)
    peak_rss_mib: float | None = None  # of a process that ran out of memory
    wall: Mapping[str, float] = field(default_factory=dict)
    marks: Marks | None = None
    disturbed: tuple[Disturbance, ...] = ()
    timed: tuple[tuple[float, float], ...] | None = None


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One run of an experiment.

    Blocks hold every arm once at one seed; `place` is where it stands in its block, at random.
    """

    arm: str
    block: int
    place: int
    spec: RunSpec


def trunks_of(runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """The trunks that runs go on from, each once, in the order of the runs."""
    trunks: dict[str, PlannedRun] = {}
    for run in runs:
        trunk = run.spec.trunk
        if trunk is not None and trunk.run_id not in trunks:
            trunks[trunk.run_id] = replace(run, arm=TRUNK, spec=trunk)
    return list(trunks.values())


def is_exclusive(spec: RunSpec) -> bool:
    """Whether nothing else may run on the node meanwhile.

    Timing runs, and where timing.exclusive_node says so.
    """
    return spec.role == "timing" or bool(spec.config.get("timing", {}).get("exclusive_node"))
