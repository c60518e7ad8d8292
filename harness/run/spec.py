"""What flows between plan, worker and report.

A run's specification and its outcome, and the reading of run directories.

A run is one directory, results/runs/<run_id>/. It has a result if and only if its result.json
exists and validates. No torch here: reports share this module with the harness.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import yaml

from harness.run.digests import canonical, digest_of_config, run_id_of
from harness.run.document import Content, Document

SCHEMA = 1
Status = Literal["finished", "diverged", "oom", "timeout", "failed", "preempted", "interrupted"]
RESULT_STATUSES = (
    "finished",
    "diverged",
)  # what result.json may hold; the others live in attempts.jsonl alone
_Yaml = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_YamlDumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


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
    runs_in: Mapping[str, str] = field(
        default_factory=dict
    )  # {python: PATH} or {container: COMMAND}; empty: this environment
    source_files: Mapping[str, str] = field(
        default_factory=dict
    )  # path -> digest, to name what changed
    toggles: tuple[str, ...] = ()  # in words, for the log; no part of the identity
    substituted: tuple[
        str, ...
    ] = ()  # what this device replaced, in words; no part of the identity

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
        }

    def at_seed(self, seed: int) -> "RunSpec":
        """replace(self, seed=seed), with its names, ten times as quick.

        A matrix has thousands of runs.
        """
        spec, intent_id = object.__new__(RunSpec), self._intent_at(seed)
        run_id = run_id_of(
            intent_id, source_digest=self.source_digest, environment_digest=self.environment_digest
        )
        spec.__dict__.update(self.__dict__, seed=seed, intent_id=intent_id, run_id=run_id)
        return spec

    @cached_property
    def _around_seed(self) -> tuple[str, str]:
        """The canonical text of what was asked, before and after its seed."""
        asked = {**self.asked(), "config": digest_of_config(self.config), "seed": None}
        before, _, after = (
            canonical(asked).decode().partition('"seed":null')
        )  # in a text it would be \"seed\"
        return before, after

    def _intent_at(self, seed: int) -> str:
        before, after = self._around_seed
        return hashlib.sha256(f'{before}"seed":{seed}{after}'.encode()).hexdigest()[:16]

    @cached_property
    def intent_id(self) -> str:
        """Two runs of one intent differ by code or environment: the older one is stale."""
        return self._intent_at(self.seed)

    @cached_property
    def run_id(self) -> str:
        """What was asked, with the code and the environment that do it."""
        return run_id_of(
            self.intent_id,
            source_digest=self.source_digest,
            environment_digest=self.environment_digest,
        )

    def to_mapping(self) -> Content:
        """What config.yaml holds."""
        return {
            "schema": SCHEMA,
            **self.asked(),
            "source": {"digest": self.source_digest, "files": dict(self.source_files)},
            "environment": {"digest": self.environment_digest},
            "toggles": list(self.toggles),
            "substituted": list(self.substituted),
        }

    @classmethod
    def from_mapping(cls, m: Document) -> "RunSpec":
        """The inverse of to_mapping.

        Raises ValueError for another schema, KeyError for missing parts.
        """
        if m["schema"] != SCHEMA:
            raise ValueError(f"schema {m['schema']}, this program reads {SCHEMA}")
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
            source_digest=m["source"]["digest"],
            source_files=m["source"]["files"],
            environment_digest=m["environment"]["digest"],
            toggles=tuple(m["toggles"]),
            substituted=tuple(m["substituted"]),
        )

    def to_yaml(self) -> str:
        # escaped: unicode line ends would not survive
        return yaml.dump(self.to_mapping(), Dumper=_YamlDumper, sort_keys=False, width=130)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended; a value, never an exception.

    final: the numbers of result.json; wall: seconds by phase; marks: what else result.json says of
    a run that our own trainer did not make; timed: when the run's clock ran, by this machine's
    monotonic clock, None where that is not known.
    """

    status: Status
    reason: str | None = None
    final: Mapping[str, Any] = field(default_factory=dict)
    wall: Mapping[str, float] = field(default_factory=dict)
    marks: Mapping[str, Any] = field(default_factory=dict)
    timed: tuple[tuple[float, float], ...] | None = None


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One run of an experiment.

    Blocks hold every arm once at one seed; `order` is its random place in its block.
    """

    arm: str
    block: int
    order: int
    spec: RunSpec


def is_exclusive(spec: RunSpec) -> bool:
    """Whether nothing else may run on the node meanwhile.

    Timing runs, and where timing.exclusive_node says so.
    """
    return spec.role == "timing" or bool(spec.config["timing"]["exclusive_node"])
