"""result.json: what it holds, how it is sealed, and whether it can be believed."""

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from harness.run.digests import _encode, result_digest, short_digest
from harness.run.disturbed import Disturbance, disturbances_of
from harness.run.document import Content, Document
from harness.run.guarded import chunks_of, facts_of, is_file, read_bytes
from harness.run.measured import Measured
from harness.run.parse import parse_json
from harness.run.spec import RESULT_STATUSES, TRUNK_FILE
from harness.run.typed import typed
from harness.run.versions import RESULT, check_version

DIGESTED = ("config.yaml", "environment.json", "metrics.jsonl")
GROWING = ("log.txt", "attempts.jsonl")  # sealed as far as they went when the result was written
SEALED = (*DIGESTED, *GROWING)
UNSEALED = 1  # the last format whose seal, where it has one, is over DIGESTED alone
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
    own: Mapping[str, float] | None = None  # metrics of a foreign script's own
    stopped_at: int | None = None  # the step at which it was to be stopped
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
    def schema(self) -> int:
        """The version of its format."""
        return int(self.content.get("schema", 1))

    @property
    def vouches_for(self) -> tuple[str, ...]:
        """The files of its run that are under its seal."""
        if self.schema <= UNSEALED:
            return DIGESTED
        return (*SEALED, TRUNK_FILE) if TRUNK_FILE in self.digests else SEALED

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
    """result.json of a run directory, None where there is none or its seal does not hold.

    The other files are not looked at.
    """
    return result_in(str(run), run.name)


def result_in(folder: str, run_id: str) -> Result | None:
    """The result of a run whose directory is `folder`.

    Text, not a Path, since ten thousand runs are looked at in a second.
    """
    result, wrong = read_known(folder, run_id)
    return None if wrong else result


def read_known(folder: Path | str, run_id: str) -> tuple[Result | None, str | None]:
    """A run's result, None if it has none or it cannot be read, and what is wrong with it alone.

    Raises NewerError.
    """
    path, result = f"{folder}/result.json", None
    try:
        raw = read_bytes(path)
        result = _valid(parse_json(raw), run_id, path)
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError):
        pass
    if result is None:
        return None, f"{path} is damaged" if is_file(path) else None
    if not _seal_holds(raw, result):
        return result, f"{path} is not the file that the run wrote"
    return result, None


def _valid(content: Any, run_id: str, path: str) -> Result | None:
    good = (
        isinstance(content, dict)
        and check_version(content, RESULT, path)
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


def _seal_holds(raw: bytes, result: Result) -> bool:
    """Whether a result has the digest that it says.

    Of its text, which is quick, or of its content in another layout. The first results had none.
    """
    seal = result.digest
    if seal is None:
        return result.schema <= UNSEALED
    content = raw.replace(b"\n", b"").replace(f'"digest":"{seal}",'.encode(), b"", 1)
    if hashlib.sha256(content).hexdigest()[:16] == seal:
        return True
    return short_digest({k: v for k, v in result.to_json().items() if k != "digest"}) == seal


def part_digest(path: Path | str, size: int | None) -> str:
    """sha256 of the first bytes of a file of a results folder; size: None for all of them."""
    if size is None:
        return result_digest(path)
    digest = hashlib.sha256()
    for piece in chunks_of(path):
        digest.update(piece[:size])
        size -= len(piece)
        if size <= 0:
            break
    return digest.hexdigest()


def digests_of(run: Path) -> Content:
    """`digests` and `bytes` of a result: what it vouches for, as it is now."""
    names = (*SEALED, TRUNK_FILE) if is_file(run / TRUNK_FILE) else SEALED
    sizes = {name: (run / name).stat().st_size for name in names}
    digests = {name: part_digest(run / name, size) for name, size in sizes.items()}
    return {"digests": digests, "bytes": sizes}


FileStats = Mapping[str, os.stat_result]  # file of a finished run -> what the system says of it


def stats_of(folder: str) -> FileStats:
    """The facts of a finished run's files; raises OSError where one is missing.

    The first results vouch for fewer files than there may be.
    """
    names: tuple[str, ...] = ("result.json", *SEALED)
    try:
        return dict(zip(names, facts_of(folder, names)))
    except FileNotFoundError:
        names = ("result.json", *DIGESTED)
        return dict(zip(names, facts_of(folder, names)))


def examine(
    folder: Path | str, run_id: str, *, stats: FileStats | None = None
) -> tuple[Result | None, str | None]:
    """A run's result, None if it has none or it cannot be read.

    And what is wrong with it or the files that it vouches for. Raises NewerError.

    With stats of its files, one that kept its size and is no newer than the result is taken for
    untouched.
    """
    result, wrong = read_known(folder, run_id)
    if result is None or wrong:
        return result, wrong
    if TRUNK_FILE in result.vouches_for and not is_file(f"{folder}/{TRUNK_FILE}"):
        return result, f"{folder}/{TRUNK_FILE} is gone"
    try:
        if stats and TRUNK_FILE in result.vouches_for:
            stats = {**stats, TRUNK_FILE: facts_of(folder, [TRUNK_FILE])[0]}
        for name in result.vouches_for:
            if stats and _untouched(name, result, stats):
                continue
            size = result.bytes.get(name) if name in GROWING else None
            if part_digest(f"{folder}/{name}", size) != result.digests.get(name):
                return result, f"{folder}/{name} is not the file that the run wrote"
    except OSError as error:
        return result, f"{error.filename}: {error.strerror}"
    return result, None


def _untouched(name: str, result: Result, stats: FileStats) -> bool:
    """Whether a file looks as it did when the result was written, by its size and its time.

    attempts.jsonl never does: the end of an attempt is noted later.
    """
    if name not in stats or name == "attempts.jsonl":
        return False
    late_ns = stats[name].st_mtime_ns - stats["result.json"].st_mtime_ns
    return stats[name].st_size == result.bytes.get(name) and late_ns <= 0
