"""result.json: what it holds, how it is sealed, and whether it can be believed."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from harness.run.digests import _encode, result_digest, short_digest, text_digest
from harness.run.disturbed import Disturbance, disturbances_of
from harness.run.document import Document
from harness.run.guarded import facts_of, is_file, read_bytes
from harness.run.measured import Measured
from harness.run.parse import parse_json
from harness.run.read import read_json
from harness.run.spec import RESULT_STATUSES, SCHEMA
from harness.run.typed import typed

DIGESTED = ("config.yaml", "environment.json", "metrics.jsonl")
FILES = ("result.json", *DIGESTED)
# key of a result's `wall` -> words, in the order a run passes through them; its total_s holds them
# all
PHASES = {
    "import_s": "import",
    "data_s": "data",
    "build_s": "build",
    "compile_s": "compile",
    "warmup_s": "warm-up",
    "train_s": "training",
    "validate_s": "validation",
}


@dataclass(frozen=True, kw_only=True)
class Result(Measured):
    """What result.json says; None, or empty, where an older one does not say it."""

    run_id: str = ""
    status: str  # of RESULT_STATUSES
    reason: str | None = None
    started: str | None = None  # ISO 8601
    ended: str | None = None
    attempt: int | None = None
    host: str | None = None
    wall: Mapping[str, float] | None = None  # seconds by phase, and total_s
    gpu: Document | None = None  # see OwnMarks
    environment_effect: str | None = None
    budget: int | None = None  # updates that a foreign trainer's run turned out to have
    imported: bool = False
    self_reported: bool = False
    disturbed: tuple[Disturbance, ...] = ()  # what disturbed its time
    digests: Mapping[str, str] = field(default_factory=dict)  # file -> sha256
    bytes: Mapping[str, int] = field(default_factory=dict)  # file -> its size
    digest: str | None = None  # of all the rest
    content: Document = field(default_factory=dict, repr=False)  # the file's, as it is

    @classmethod
    def from_json(cls, content: Document) -> Self:
        values = {name: content[name] for name in IN_RESULT if name in content}
        values["disturbed"] = disturbances_of(content.get("disturbed"))
        return typed(cls(content=content, **values))

    def to_json(self) -> Document:
        return self.content

    @property
    def stood_still(self) -> bool:
        """Whether the run's clock ran while nothing else did: its times are then none."""
        return any(disturbance.kind == "still" for disturbance in self.disturbed)


IN_RESULT = tuple(name for name in Result.__dataclass_fields__ if name != "content")


def finite(value: Any) -> Any:
    """The value with None for every number that is not finite, in lists and mappings too.

    JSON has no word for it.
    """
    if isinstance(value, Mapping):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def where_time_went(walls: Sequence[Mapping[str, float]]) -> tuple[dict[str, float], float]:
    """Seconds of runs by phase, and the fraction of them that was training or validation.

    Each run's worker and its wait before the run count, from their results' `wall`.
    """
    seconds = {phase: math.fsum(w.get(key) or 0.0 for w in walls) for key, phase in PHASES.items()}
    idle = math.fsum(w.get("idle_s") or 0.0 for w in walls)
    rest = max(0.0, math.fsum(w.get("total_s") or 0.0 for w in walls) - math.fsum(seconds.values()))
    seconds |= {"rest": rest, "idle": idle}
    useful = seconds["training"] + seconds["validation"]
    return seconds, useful / (math.fsum(seconds.values()) or 1.0)


def read_result(run: Path) -> Result | None:
    """result.json of a run directory, None where there is none or it is damaged.

    Its digests are not looked at.
    """
    return result_in(str(run), run.name)


def result_in(folder: str, run_id: str) -> Result | None:
    """The result of a run whose directory is `folder`.

    Text, not a Path, since ten thousand runs are looked at in a second.
    """
    return _valid(read_json(f"{folder}/result.json"), run_id)


def _valid(content: Any, run_id: str) -> Result | None:
    good = (
        isinstance(content, dict)
        and content.get("schema") == SCHEMA
        and content.get("run_id") == run_id
        and content.get("status") in RESULT_STATUSES
        and isinstance(content.get("digests"), dict)
    )
    try:
        return Result.from_json(content) if good else None
    except ValueError:
        return None


def sealed(content: Document) -> Result:
    """The result of such content, with the digest of it."""
    unsealed = {k: v for k, v in content.items() if k != "digest"}
    return Result.from_json({**unsealed, "digest": short_digest(unsealed)})


def result_text(result: Result) -> str:
    """A sealed result as result.json holds it, an entry a line.

    Without the line ends it is canonical JSON.
    """
    content = result.to_json()
    lines = [f"{_encode(key)}:{_encode(content[key])}" for key in sorted(content)]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _seal_holds(text: str, result: Result) -> bool:
    """Whether a result has the digest that it says.

    Of its text, which is quick, or of its content in another layout.
    """
    seal = result.digest
    content = text.replace("\n", "").replace(f'"digest":"{seal}",', "", 1)
    if text_digest(content) == seal:
        return True
    return short_digest({k: v for k, v in result.to_json().items() if k != "digest"}) == seal


def stats_of(folder: str) -> list[os.stat_result]:
    """The facts of a finished run's FILES; raises OSError where one is missing."""
    return facts_of(folder, FILES)


def examine(
    folder: Path | str, run_id: str, *, stats: Sequence[os.stat_result] | None = None
) -> tuple[Result | None, str | None]:
    """A run's result, None if it has none or it cannot be read.

    And what is wrong with it or the files that it vouches for.

    With stats of its files, one that kept its size and is no newer than the result is taken for
    untouched.
    """
    path = f"{folder}/result.json"
    try:
        raw = read_bytes(path)
        text, result = raw.decode(), _valid(parse_json(raw), run_id)
    except (OSError, ValueError):
        result = None
    if result is None:
        return None, f"{path} is damaged" if is_file(path) else None
    if not _seal_holds(text, result):
        return result, f"{path} is not the file that the run wrote"
    try:
        for i, name in enumerate(DIGESTED, start=1):
            if (
                stats
                and stats[i].st_size == result.bytes.get(name)
                and stats[i].st_mtime_ns <= stats[0].st_mtime_ns
            ):
                continue
            if result_digest(f"{folder}/{name}") != result.digests.get(name):
                return result, f"{folder}/{name} is not the file that the run wrote"
    except OSError as error:
        return result, f"{error.filename}: {error.strerror}"
    return result, None
