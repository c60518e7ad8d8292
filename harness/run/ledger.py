"""What of a results folder was seen, and when: results/ledger.jsonl, which only grows.

It lies outside the experiments' own folders and outlives them. A row says what one look showed for
the first time (every arm-and-seed result with its value, and the seeds that were planned then),
what was taken away, or that an experiment has another name, by which its looks until then are read.
Each has a seal, a digest of all the text before it. A line that is torn, was changed or says
something else is passed over and counted; the first format had no seals.

{"schema": 2, "kind": "look", "at": ISO 8601, "by": "compare", "experiment": NAME, "confirm": false,
 "baseline": CLAIM, "arms": {CLAIM: name}, "seeds": [0, 1], "results": [[CLAIM, seed, intent_id,
 run_id, val_loss, train_time_s], ...], "digest": SEAL}
{"schema": 2, "kind": "gone", "at": ISO 8601, "by": "clean", "runs": [RUN, ...], "digest": SEAL}
{"schema": 2, "kind": "stream", "at": ISO 8601, "candidate": CLAIM, "kept": false, "stream": NAME,
 "number": 1, "parts": 3, "n_kept": 0, "digest": SEAL}
{"schema": 2, "kind": "renamed", "at": ISO 8601, "experiment": NAME, "name": NAME, "digest": SEAL}

A claim is a digest of a change and of the baseline that it was made to; the baseline's own is one.
From a branch on, the update at which the arms part belongs to all of them.
"""

import errno
import fcntl
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.run.digests import short_digest, text_digest
from harness.run.document import Content
from harness.run.files import now_iso
from harness.run.guarded import IN_ROOT, is_name, open_to_append, read_bytes
from harness.run.plan import Plan, PlanArm
from harness.run.stream import StreamPlace, parts_of, place_of
from harness.run.versions import FIRST, LEDGER, check_version

FILE = "ledger.jsonl"
WORDS = re.compile(r"[a-z][a-z -]{0,39}")  # of a command
MOST_SEED = 2**31
SEAL = ',"digest":"'  # the last entry of a line


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A result that was shown, as it was then."""

    claim: str
    seed: int | None
    intent_id: str
    run_id: str
    val_loss: float | None  # None: it diverged
    train_time_s: float | None

    def to_row(self) -> list[object]:
        return [
            self.claim,
            self.seed,
            self.intent_id,
            self.run_id,
            self.val_loss,
            self.train_time_s,
        ]


@dataclass(frozen=True, kw_only=True)
class Look:
    """What one look showed for the first time."""

    at: str
    by: str
    experiment: str
    confirm: bool
    baseline: str  # its claim
    arms: Mapping[str, str]  # claim -> the arm's name; without the baseline's
    seeds: tuple[int, ...]
    results: tuple[Seen, ...]

    def to_json(self) -> Content:
        return {"kind": "look", **vars(self), "results": [seen.to_row() for seen in self.results]}


@dataclass(frozen=True, kw_only=True)
class StreamRow:
    """That a candidate has a place in a stream, and whether it was kept."""

    place: StreamPlace
    candidate: str  # its claim
    kept: bool

    def to_json(self) -> Content:
        said = {"candidate": self.candidate, "kept": self.kept}
        return {"kind": "stream", "at": now_iso(), **said, **self.place.to_mapping()}


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """The rows of a ledger, oldest first."""

    looks: tuple[Look, ...] = ()
    gone: Mapping[str, str] = field(default_factory=dict)  # run -> what took it away, and when
    # stream -> candidate -> the last that was said of it
    streams: Mapping[str, Mapping[str, StreamRow]] = field(default_factory=dict)
    n_passed_over: int = 0  # lines that say nothing
    unread: str = ""  # why none of it could be read

    @property
    def words(self) -> str:
        """What is wrong with it, in a sentence; '' where nothing is."""
        if self.unread:
            return f"{FILE} cannot be read ({self.unread}): what was seen before is not known"
        if self.n_passed_over:
            return f"{FILE} has {self.n_passed_over} lines that say nothing: they were passed over"
        return ""


def claims_of(plan: Plan) -> dict[str, str]:
    """Arm -> its claim."""
    baseline = plan.by_arm.get(plan.baseline)
    identity = _identity(baseline) if baseline else None
    asked: list[object] = [plan.baseline_config, plan.base, plan.corpus.fingerprint, identity]
    if plan.branch_at is not None:  # claims of whole runs stay what they were
        asked.append(plan.branch_at)
    of_baseline = short_digest(asked)
    claims = {}
    for arm in plan.arms:
        claims[arm.name] = short_digest([of_baseline, _identity(arm)])
    claims[plan.baseline] = of_baseline
    return claims


def _identity(arm: PlanArm) -> list[object]:
    """What an arm is, whatever it is called."""
    side = arm.side.to_mapping() if arm.side else None
    return [dict(arm.fields), side, arm.code, arm.environment_effect]


def read_ledger(results: Path) -> Ledger:
    """The ledger of a results folder, empty where there is none; raises NewerError."""
    try:
        lines = read_bytes(results / FILE, below=IN_ROOT).splitlines()
    except FileNotFoundError:
        return Ledger()
    except OSError as error:
        return Ledger(unread=str(error.strerror or error))
    looks, gone, n_passed_over = [], {}, 0
    streams: dict[str, dict[str, StreamRow]] = {}
    for line in lines:
        try:
            row = _unsealed(line.decode())
            if row["kind"] == "look":
                looks.append(_look(row))
            elif row["kind"] == "gone":
                removal = f"{_command(row['by'])}, {_time(row['at'])[:16]}"
                gone.update(dict.fromkeys(map(_name, row["runs"]), removal))
            elif row["kind"] == "stream":
                _add_to_stream(streams, _stream_row(row))
            elif row["kind"] == "renamed":
                looks = _renamed(looks, _name(row["experiment"]), _name(row["name"]))
            else:
                n_passed_over += 1
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            n_passed_over += bool(line.strip())
    return Ledger(looks=tuple(looks), gone=gone, streams=streams, n_passed_over=n_passed_over)


def _sealed(row: Content) -> str:
    """A row as its line holds it."""
    text = json.dumps({"schema": LEDGER, **row}, separators=(",", ":"))[:-1]
    return f'{text}{SEAL}{text_digest(text)}"}}'


def _unsealed(line: str) -> Any:
    """What a line says; raises NewerError, or what nonsense raises."""
    row = json.loads(line)
    if check_version(row, LEDGER, FILE) > FIRST:
        text, _, seal = line.rpartition(SEAL)
        if seal != f'{text_digest(text)}"}}':
            raise ValueError(line)
    return row


def _look(row: Content) -> Look:
    """Raises what nonsense raises."""
    results = []
    for claim, seed, intent_id, run_id, val_loss, train_time_s in row["results"]:
        seen = Seen(
            claim=_name(claim),
            seed=None if seed is None else _seed(seed),
            intent_id=str(intent_id),
            run_id=_name(run_id),
            val_loss=None if val_loss is None else float(val_loss),
            train_time_s=None if train_time_s is None else float(train_time_s),
        )
        results.append(seen)
    return Look(
        at=_time(row["at"]),
        by=_command(row["by"]),
        experiment=_name(row["experiment"]),
        confirm=bool(row["confirm"]),
        baseline=_name(row["baseline"]),
        arms={_name(claim): str(name) for claim, name in row["arms"].items()},
        seeds=tuple(map(_seed, row["seeds"])),
        results=tuple(results),
    )


def _renamed(looks: Iterable[Look], old: str, new: str) -> list[Look]:
    """Looks, those at an experiment by its new name."""
    named = []
    for look in looks:
        named.append(replace(look, experiment=new) if look.experiment == old else look)
    return named


def _stream_row(row: Content) -> StreamRow:
    """Raises what nonsense raises."""
    place = StreamPlace.from_mapping(row)
    if place.number < 1 or place.n_kept < 0 or place.parts != parts_of(place.number, place.n_kept):
        raise ValueError(row)
    _name(place.stream)
    return StreamRow(place=place, candidate=_name(row["candidate"]), kept=row["kept"] is True)


def _add_to_stream(streams: dict[str, dict[str, StreamRow]], row: StreamRow) -> None:
    """Raises ValueError where its place is another candidate's, or it has another one."""
    rows = streams.setdefault(row.place.stream, {})
    before = rows.get(row.candidate)
    taken = {other.place.number for other in rows.values()}
    is_wrong = row.place.number in taken if before is None else before.place != row.place
    if is_wrong:
        raise ValueError(row)
    rows[row.candidate] = row


def _name(value: object) -> str:
    """The name of a run, an experiment or a claim: nothing else of a stranger's reaches a page."""
    if not is_name(value):
        raise ValueError(value)
    return str(value)


def _seed(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value < MOST_SEED:
        raise ValueError(value)
    return value


def _time(value: str) -> str:
    return datetime.fromisoformat(value).isoformat(timespec="milliseconds")


def _command(value: str) -> str:
    if not WORDS.fullmatch(value):
        raise ValueError(value)
    return value


def add_rows(results: Path, rows: Sequence[Content]) -> None:
    """Add rows at the end, whole, whoever else adds some; raises OSError where nothing can be."""
    if rows:
        with _locked(results) as descriptor:
            _append(results, descriptor, rows)


def give_place(results: Path, stream: str, candidate: str) -> StreamPlace | None:
    """A candidate's place in a stream, the next one if it has none: nobody else takes it meanwhile.

    None where somebody did, on a file system without locks. Raises OSError."""
    with _locked(results) as descriptor:
        rows = read_ledger(results).streams.get(stream, {})
        if candidate not in rows:
            number = max((row.place.number for row in rows.values()), default=0) + 1
            place = place_of(stream, number, sum(row.kept for row in rows.values()))
            row = StreamRow(place=place, candidate=candidate, kept=False)
            _append(results, descriptor, [row.to_json()])
            rows = read_ledger(results).streams.get(stream, {})
    return rows[candidate].place if candidate in rows else None


@contextmanager
def _locked(results: Path) -> Iterator[int]:
    """The ledger's descriptor, which nobody else adds to meanwhile."""
    descriptor = open_to_append(results / FILE, below=IN_ROOT)
    try:
        with suppress(OSError):  # without locks a write at the end is one all the same
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _append(results: Path, descriptor: int, rows: Sequence[Content]) -> None:
    size = os.fstat(descriptor).st_size
    torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
    lines = [f"{_sealed(row)}\n" for row in rows]
    content = "".join(["\n" * torn, *lines]).encode()
    if os.write(descriptor, content) != len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(results / FILE))
    os.fsync(descriptor)


def gone_row(by: str, runs: Iterable[str]) -> Content:
    """That runs were deleted or replaced."""
    return {"kind": "gone", "at": now_iso(), "by": by, "runs": list(runs)}


def renamed_row(experiment: str, name: str) -> Content:
    """That an experiment has another name from now on."""
    return {"kind": "renamed", "at": now_iso(), "experiment": experiment, "name": name}


def missing_rows(results: Path, others: Path) -> list[Content]:
    """The rows of another folder's ledger that this one lacks; what is none is left there."""
    here = {_what_it_showed(look) for look in read_ledger(results).looks}
    rows = []
    for look in read_ledger(others).looks:
        showed = _what_it_showed(look)
        if showed not in here:
            here.add(showed)
            rows.append(look.to_json())
    return rows


def _what_it_showed(look: Look) -> str:
    """A digest of a look, whatever its experiment is called by now."""
    return short_digest({**look.to_json(), "experiment": None})
