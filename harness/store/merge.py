"""Results of another folder brought into this one.

Every digest is verified, on the copy too, before a run counts as here.
"""

import hashlib
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.provenance.code import Code
from harness.provenance.source import code_digest
from harness.run.archive import unpacked
from harness.run.digests import short_digest
from harness.run.document import Content
from harness.run.guarded import (
    IN_FOLDER,
    IN_ROOT,
    KEPT,
    OF_ATTEMPT,
    RefusedFileError,
    copy_file,
    entries_in,
    folders_in,
    is_name,
    read_bytes,
)
from harness.run.ledger import add_rows, missing_rows
from harness.run.parse import parse_json
from harness.run.plan import Plan, PlanRun
from harness.run.read import read_config, read_json
from harness.run.results import examine
from harness.run.spec import RunSpec
from harness.store.claims import TOMBSTONE
from harness.store.plans import read_plan, readable_plans, save_plan
from harness.store.store import Store


@dataclass(kw_only=True)
class Merged:
    """What came in from one folder.

    Problems are lines for the user; what has one was left where it is.
    """

    copied: list[str] = field(default_factory=list)
    here: list[str] = field(default_factory=list)  # the same runs were here already
    unfinished: list[str] = field(default_factory=list)  # no result there: nothing to bring
    experiments: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def check_source(source: Path, results: Path) -> None:
    """Raise UserError for a folder without results, or the one they would be brought into."""
    if not (source / "runs").is_dir():
        raise UserError(
            f"{source}: no results folder: it has no runs/ in it; name the folder that --results"
            " named there"
        )
    if source.resolve() == results.resolve():
        raise UserError(f"{source}: this is the results folder itself; name the one to bring in")


def merge(source: Path, store: Store) -> Merged:
    """Bring in every finished run of a results folder.

    Its code, its environment and its experiments come with it.

    Raises UserError where an experiment there is another one than here.
    """
    theirs, done = Store(source), Merged()
    plans = []
    for _, plan, wrong in readable_plans(source):
        if plan is None:
            done.problems += [wrong] if wrong else []
        else:
            plans.append(_joined_plan(store, source, plan))
    done.problems += _no_runs(theirs)
    for run_id in folders_in(theirs.runs, below=IN_ROOT):
        _merge_run(theirs, store, run_id, done)
    add_rows(store.root, missing_rows(store.root, source))
    for plan in plans:
        save_plan(store.root, plan)
        done.experiments.append(plan.name)
    return done


def _no_runs(theirs: Store) -> list[str]:
    """What lies among the runs there and is none."""
    lines = []
    for name, kind in entries_in(theirs.runs, below=IN_ROOT).items():
        if not name.startswith(".") and (kind != "folder" or not is_name(name)):
            lines.append(f"{theirs.runs / name}: is no folder of a run")
    return lines


def what_is_wrong(run: Path) -> str | None:
    """Why a run directory with a result is not sound.

    A digest that does not hold, or another run's identity.
    """
    result, wrong = examine(run, run.name)
    if wrong or result is None:
        return wrong or f"{run / 'result.json'} is missing"
    if not result.imported:
        try:
            spec = RunSpec.from_mapping(read_config(run))
        except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
            return f"{run / 'config.yaml'} is not the configuration of a run ({error})"
        if spec.run_id != run.name:
            return f"{run / 'config.yaml'} is the configuration of run {spec.run_id}"
    return None


def _merge_run(theirs: Store, store: Store, run_id: str, done: Merged) -> None:
    run, place = theirs.directory(run_id), store.directory(run_id)
    if not theirs.is_done(run_id):
        done.unfinished.append(run_id)
        return
    wrong = what_is_wrong(run)
    if wrong:
        done.problems.append(wrong)
    elif store.is_done(run_id) and what_is_wrong(place) is None:
        done.here.append(run_id)  # one run, done twice: ours stays
    else:
        beside = store.runs / f".merged-{run_id}-{uuid.uuid4().hex[:8]}"
        try:
            left_out = _copy_run(run, beside)
            done.problems += left_out
            wrong = _wrong_copy(run, beside) or _make_room(store, run_id)
            if wrong:
                done.problems.append(wrong)
                return
            os.rename(beside, place)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
        done.copied.append(run_id)
        _merge_kept(theirs, store, place, done)


def _copy_run(run: Path, place: Path) -> list[str]:
    """Copy the files of a run and of its attempts; what else lies there is left out, and named."""
    attempts = run / "attempts"
    folders = {run: place}
    for name in folders_in(attempts, below=IN_FOLDER):
        folders[attempts / name] = place / "attempts" / name
    left_out = []
    for folder, copy in folders.items():
        copy.mkdir(parents=True)
        below = IN_FOLDER if folder == run else OF_ATTEMPT
        for name, kind in entries_in(folder, below=below - 1).items():
            if name.startswith(".") or name in NOT_COPIED:
                continue
            if kind == "folder":
                if folder == run and name != "attempts":
                    left_out.append(f"{folder / name}: is a folder: left out")
                continue
            try:
                copy_file(folder / name, copy / name, below=below)
            except RefusedFileError as error:
                left_out.append(f"{error}: left out")
    return left_out


def _wrong_copy(run: Path, copy: Path) -> str | None:
    result, wrong = examine(copy, run.name)
    return f"{run}: changed while it was copied" if wrong or result is None else None


def _make_room(store: Store, run_id: str) -> str | None:
    """Set aside what is here of a run without a result; why not, if somebody works on it."""
    if not store.directory(run_id).exists():
        return None
    if store.hold(run_id) is None:
        return f"run {run_id} is running in {store.root}: bring it in when that has ended"
    store.set_aside(run_id)
    return None


# ---------------------------------------------------------------- what runs name by digest


def _zip_digest(content: bytes, script: str | None) -> str:
    files = unpacked(content)
    if script is not None:
        return Code(script=script, files=files).source.digest
    return short_digest({name: code_digest(text.decode()) for name, text in files.items()})


DIGESTS = {  # suffix of a kept file -> what its name must be; script: of a foreign trainer
    ".zip": _zip_digest,
    ".diff": lambda content, script: hashlib.sha256(content).hexdigest(),
    ".json": lambda content, script: short_digest(parse_json(content)),
}


def _merge_kept(theirs: Store, store: Store, run: Path, done: Merged) -> None:
    """The code, diff and environment that a run names."""
    config, environment = read_config(run), read_json(run / "environment.json")
    script = _inside(config, "config", "trainer", "script")
    named = [
        ("code", _inside(config, "source", "digest"), ".zip"),
        ("code", _inside(environment, "git", "diff_sha256"), ".diff"),
        ("environments", _inside(config, "environment", "digest"), ".json"),
    ]
    for kind, digest, suffix in named:
        path = theirs.root / kind / f"{digest}{suffix}"
        if digest is None or not is_name(digest) or not os.path.lexists(path):
            continue
        content = b""
        try:
            content = read_bytes(path, below=KEPT)
            sound = DIGESTS[suffix](content, script) == digest
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
            sound = False
        if sound:
            store.keep_once(kind, digest, suffix, partial(bytes, content))
        elif f"{path} is not what its name says" not in done.problems:
            done.problems.append(f"{path} is not what its name says")


def _inside(content: Any, *keys: str) -> str | None:
    """The text that stands under these keys, None where there is none."""
    for key in keys:
        content = content.get(key) if isinstance(content, Mapping) else None
    return content if isinstance(content, str) else None


# ---------------------------------------------------------------- experiments


NOT_COPIED = ("owner.json", "progress.json", TOMBSTONE)
SAME_QUESTION = ("arms", "baseline_config", "primary", "target", "margin", "confirm")


def _joined_plan(store: Store, source: Path, theirs: Plan) -> Plan:
    """experiment.json of both folders as one.

    The runs of both, the locks in order of time, the looks at either.
    """
    name = theirs.name
    ours = read_plan(store.root, name)
    if ours is None:
        return theirs
    our_question, their_question = _question(ours), _question(theirs)
    for key in SAME_QUESTION:
        if our_question[key] != their_question[key]:
            raise UserError(
                f"experiment '{name}' in {source} has another {key} than in {store.root}: they are"
                " two experiments; give one of them another name"
            )
    seeds = tuple(sorted({*ours.seeds, *theirs.seeds}))
    runs: dict[str, PlanRun] = {}
    for run in ours.runs:
        _join_run(runs, run, store, into=store)
    for run in theirs.runs:
        _join_run(runs, run, Store(source), into=store)
    placed = [_in_its_block(run, seeds) for run in runs.values()]
    locks = {lock.digest: lock for lock in (*theirs.locks, *ours.locks)}
    return replace(
        ours,
        seeds=seeds,
        locks=tuple(sorted(locks.values(), key=attrgetter("locked"))),
        looks=max(ours.looks, theirs.looks),
        looked_at=max(ours.looked_at, theirs.looked_at),
        runs=tuple(sorted(placed, key=attrgetter("block", "place"))),
    )


def _question(plan: Plan) -> Content:
    """What two plans of one experiment have in common, as experiment.json says it."""
    content = plan.to_mapping()
    return {key: _bare(content.get(key)) for key in SAME_QUESTION}


def _join_run(runs: dict[str, PlanRun], run: PlanRun, store: Store, *, into: Store) -> None:
    """Add a run of the folder `store` to those that are known, by what they intend.

    Of two environments the one whose result is there counts, and of two such the first; the other
    stays as an older run.
    """
    before = runs.get(run.intent_id, run)
    wins = before
    if not into.is_done(before.run_id) and store.is_done(run.run_id):
        wins = run
    names = dict.fromkeys([*before.older, *run.older, before.run_id, run.run_id])
    names.pop(wins.run_id)
    runs[run.intent_id] = replace(wins, block=run.block, older=tuple(names))


def _in_its_block(run: PlanRun, seeds: Sequence[int]) -> PlanRun:
    """The run in the block of its seed: more seeds may have come between."""
    if run.seed not in seeds:
        return run
    return replace(run, block=seeds.index(run.seed))


def _bare(value: Any) -> Any:
    """Without what describes the machine: a substitution is no part of the question."""
    if isinstance(value, list):
        return [_bare(v) for v in value]
    if isinstance(value, Mapping):
        return {k: _bare(v) for k, v in value.items() if k != "substituted"}
    return value
