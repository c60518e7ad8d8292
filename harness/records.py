"""What flows between plan, worker and report: a run's specification and its outcome, and the reading of run directories.

A run is one directory, results/runs/<run_id>/. It has a result if and only if its result.json exists and validates.
No torch here: reports share this module with the harness.
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import yaml

SCHEMA = 1
Status = Literal["finished", "diverged", "oom", "timeout", "failed", "preempted", "interrupted"]
RESULT_STATUSES = ("finished", "diverged")  # what result.json may hold; the others live in attempts.jsonl alone
DIGESTED = ("config.yaml", "environment.json", "metrics.jsonl")
FILES = ("result.json", *DIGESTED)
MEASURED = (  # the numbers of a result, null where unknown
    "val_loss",
    "heldout_loss",
    "train_time_s",
    "step_ms",
    "step_ms_median",
    "step_ms_p95",
    "steps",
    "tokens",
    "tokens_per_s",
    "mfu",
    "peak_allocated_mib",
    "peak_reserved_mib",
)
PHASES = {  # key of a result's `wall` -> words, in the order a run passes through them; its total_s holds them all
    "import_s": "import",
    "data_s": "data",
    "build_s": "build",
    "compile_s": "compile",
    "warmup_s": "warm-up",
    "train_s": "training",
    "validate_s": "validation",
}
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode
_digests: dict[int, tuple[Mapping[str, Any], str]] = {}
_Yaml = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_YamlDumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def canonical(value: Any) -> bytes:
    """JSON with sorted keys and no spaces: what digests are made of."""
    return _encode(value).encode()


def short_digest(value: Any) -> str:
    """16 hex digits of the sha256 of a value's canonical JSON."""
    return hashlib.sha256(canonical(value)).hexdigest()[:16]


def digest_of_config(config: Mapping[str, Any]) -> str:
    """short_digest of a configuration, which many runs share: remembered for as long as the very object lives."""
    known = _digests.get(id(config))
    if known is None or known[0] is not config:
        if len(_digests) >= 1000:
            _digests.clear()
        known = _digests[id(config)] = (config, short_digest(config))
    return known[1]


def run_id_of(intent_id: str, *, source_digest: str, environment_digest: str) -> str:
    """The name of a run: an intent done by this code in this environment. All are hexadecimal digits."""
    text = f'{{"environment":"{environment_digest}","intent":"{intent_id}","source":"{source_digest}"}}'  # canonical, at once
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """Everything that can change the result of a run; its digest is the run's name."""

    config: Mapping[str, Any]  # resolved, plain values
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
    runs_in: Mapping[str, str] = field(default_factory=dict)  # {python: PATH} or {container: COMMAND}; empty: this environment
    source_files: Mapping[str, str] = field(default_factory=dict)  # path -> digest, to name what changed
    toggles: tuple[str, ...] = ()  # in words, for the log; no part of the identity
    substituted: tuple[str, ...] = ()  # what this device replaced, in words; no part of the identity

    def asked(self) -> dict[str, Any]:
        """What the user asked for: the identity without code and environment."""
        return {
            "config": self.config,
            "seed": self.seed,
            "replicate": self.replicate,
            "budget": self.budget,
            "role": self.role,
            "data": {"name": self.data_name, "fingerprint": self.data_fingerprint, "heldout": self.heldout_fingerprint},
            "world_size": self.world_size,
            "device": self.device,
            **({"runs_in": dict(self.runs_in)} if self.runs_in else {}),
        }

    def at_seed(self, seed: int) -> "RunSpec":
        """replace(self, seed=seed), with its names, ten times as quick: a matrix has thousands of runs."""
        spec, intent_id = object.__new__(RunSpec), self._intent_at(seed)
        run_id = run_id_of(intent_id, source_digest=self.source_digest, environment_digest=self.environment_digest)
        spec.__dict__.update(self.__dict__, seed=seed, intent_id=intent_id, run_id=run_id)
        return spec

    @cached_property
    def _around_seed(self) -> tuple[str, str]:
        """The canonical text of what was asked, before and after its seed."""
        asked = {**self.asked(), "config": digest_of_config(self.config), "seed": None}
        before, _, after = canonical(asked).decode().partition('"seed":null')  # in a text it would be \"seed\"
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
        return run_id_of(self.intent_id, source_digest=self.source_digest, environment_digest=self.environment_digest)

    def to_mapping(self) -> dict[str, Any]:
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
    def from_mapping(cls, m: Mapping[str, Any]) -> "RunSpec":
        """The inverse of to_mapping; raises ValueError for another schema, KeyError for missing parts."""
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
    """How a run ended; a value, never an exception. final: the numbers of result.json; wall: seconds by phase; marks: what
    else result.json says of a run that our own trainer did not make."""

    status: Status
    reason: str | None = None
    final: Mapping[str, Any] = field(default_factory=dict)
    wall: Mapping[str, float] = field(default_factory=dict)
    marks: Mapping[str, Any] = field(default_factory=dict)


def finite(value: Any) -> Any:
    """The value with None for every number that is not finite, in lists and mappings too: JSON has no word for it."""
    if isinstance(value, Mapping):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def where_time_went(walls: Sequence[Mapping[str, float]]) -> tuple[dict[str, float], float]:
    """Seconds of runs by phase, each run's worker and its wait before the run counted, from their results' `wall`; and the
    fraction of them that was training or validation."""
    seconds = {words: math.fsum(w.get(key) or 0.0 for w in walls) for key, words in PHASES.items()}
    idle = math.fsum(w.get("idle_s") or 0.0 for w in walls)
    rest = max(0.0, math.fsum(w.get("total_s") or 0.0 for w in walls) - math.fsum(seconds.values()))
    useful, seconds = seconds["training"] + seconds["validation"], {**seconds, "rest": rest, "idle": idle}
    return seconds, useful / (math.fsum(seconds.values()) or 1.0)


def file_digest(path: Path | str) -> str:
    """sha256 of a file, as 64 hex digits."""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def read_json(path: Path | str) -> Any:
    """A JSON file's content, None where it is missing or damaged."""
    try:
        return json.loads(_read(path))
    except (OSError, ValueError):
        return None


def _read(path: Path | str) -> str:
    with open(path, "rb", buffering=0) as file:
        return file.read().decode()


def read_result(run: Path) -> dict[str, Any] | None:
    """result.json of a run directory, None where there is none or it is damaged; its digests are not looked at."""
    return result_in(str(run), run.name)


def result_in(folder: str, run_id: str) -> dict[str, Any] | None:
    """The result of a run whose directory is `folder`: text, not a Path, since ten thousand runs are looked at in a second."""
    return _valid(read_json(f"{folder}/result.json"), run_id)


def _valid(result: Any, run_id: str) -> dict[str, Any] | None:
    good = isinstance(result, dict) and result.get("schema") == SCHEMA and result.get("run_id") == run_id
    return result if good and result.get("status") in RESULT_STATUSES and isinstance(result.get("digests"), dict) else None


def sealed(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result with the digest of its own content."""
    content = {k: v for k, v in result.items() if k != "digest"}
    return {**content, "digest": short_digest(content)}


def result_text(result: Mapping[str, Any]) -> str:
    """A sealed result as result.json holds it, an entry a line: without the line ends it is canonical JSON."""
    return "{\n" + ",\n".join([f"{_encode(key)}:{_encode(result[key])}" for key in sorted(result)]) + "\n}\n"


def _seal_holds(text: str, result: Mapping[str, Any]) -> bool:
    """Whether a result has the digest that it says: of its text, which is quick, or of its content in another layout."""
    seal = result.get("digest")
    content = text.replace("\n", "").replace(f'"digest":"{seal}",', "", 1)
    if hashlib.sha256(content.encode()).hexdigest()[:16] == seal:
        return True
    return short_digest({k: v for k, v in result.items() if k != "digest"}) == seal


def stats_of(folder: str) -> list[os.stat_result]:
    """The facts of a finished run's FILES; raises OSError where one is missing."""
    return [os.stat(f"{folder}/{name}") for name in FILES]


def examine(
    folder: Path | str, run_id: str, *, stats: Sequence[os.stat_result] | None = None
) -> tuple[dict[str, Any] | None, str | None]:
    """A run's result, None if it has none or it cannot be read; and what is wrong with it or the files that it vouches for.

    With stats of its files, one that kept its size and is no newer than the result is taken for untouched.
    """
    path = f"{folder}/result.json"
    try:
        text = _read(path)
        result = _valid(json.loads(text), run_id)
    except (OSError, ValueError):
        result = None
    if result is None:
        return None, f"{path} is damaged" if os.path.exists(path) else None
    if not _seal_holds(text, result):
        return result, f"{path} is not the file that the run wrote"
    try:
        for i, name in enumerate(DIGESTED, start=1):
            if stats and stats[i].st_size == result["bytes"][name] and stats[i].st_mtime_ns <= stats[0].st_mtime_ns:
                continue
            if file_digest(f"{folder}/{name}") != result["digests"][name]:
                return result, f"{folder}/{name} is not the file that the run wrote"
    except OSError as error:
        return result, f"{error.filename}: {error.strerror}"
    return result, None


def read_config(run: Path) -> dict[str, Any]:
    """config.yaml of a run directory."""
    return yaml.load((run / "config.yaml").read_text(encoding="utf-8"), Loader=_Yaml)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Rows of a .jsonl file; lines cut short by a kill are left out, a missing file has no rows."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return []
    rows = []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows
