"""Results of another folder brought into this one.

Every digest is verified, on the copy too, before a run counts as here.
"""

import errno
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
from harness.run.document import Content
from harness.run.guarded import (
    IN_FOLDER,
    IN_ROOT,
    OF_ATTEMPT,
    RefusedFileError,
    copy_file,
    entries_in,
    folders_in,
    is_name,
)
from harness.run.identity import wrong_identity
from harness.run.ledger import add_rows, missing_rows
from harness.run.plan import Plan, PlanRun
from harness.run.results import examine
from harness.run.versions import NewerError
from harness.store.claims import TOMBSTONE
from harness.store.kept import kept_of
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
        merge_run(theirs, store, run_id, done)
    add_rows(store.root, missing_rows(store.root, source))
    for plan in plans:
        save_plan(store.root, plan)
        done.experiments.append(plan.name)
    return done


def merge_plans(source: Path, store: Store, done: Merged) -> None:
    """Bring in the plans and the ledger alone; a plan that is another's here is a problem."""
    for _, plan, wrong in readable_plans(source):
        if plan is None:
            done.problems += [wrong] if wrong else []
            continue
        try:
            save_plan(store.root, _joined_plan(store, source, plan))
        except UserError as error:
            done.problems.append(str(error))
        else:
            done.experiments.append(plan.name)
    add_rows(store.root, missing_rows(store.root, source))


def _no_runs(theirs: Store) -> list[str]:
    """What lies among the runs there and is none."""
    lines = []
    for name, kind in entries_in(theirs.runs, below=IN_ROOT).items():
        if not name.startswith(".") and (kind != "folder" or not is_name(name)):
            lines.append(f"{theirs.runs / name}: is no folder of a run")
    return lines


def what_is_wrong(run: Path) -> str | None:
    """Why a run directory with a result is not sound.

    A digest that does not hold, another run's identity, a later release's format.
    """
    try:
        return _wrong_result(run)
    except NewerError as error:
        return str(error)


def is_damaged(run: Path) -> bool:
    """Whether a run's result is not sound, and no later release's either."""
    try:
        return _wrong_result(run) is not None
    except NewerError:
        return False


def _wrong_result(run: Path) -> str | None:
    result, wrong = examine(run, run.name)
    if wrong or result is None:
        return wrong or f"{run / 'result.json'} is missing"
    return None if result.imported else wrong_identity(run, result)


def merge_run(theirs: Store, store: Store, run_id: str, done: Merged) -> None:
    """Bring in a finished run whole, once the code and the environment that it names are here."""
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
            _merge_kept(theirs, store, beside, done)
            os.rename(beside, place)
            done.copied.append(run_id)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            merge_run(theirs, store, run_id, done)  # somebody was faster: look again
        finally:
            shutil.rmtree(beside, ignore_errors=True)


def _copy_run(run: Path, place: Path) -> list[str]:
    """Copy the files of a run and of its attempts; what else lies there is left out, and named."""
    names, left_out = files_of_run(run)
    place.mkdir(parents=True)
    for number in folders_in(run / "attempts", below=IN_FOLDER):
        (place / "attempts" / number).mkdir(parents=True)
    for name in names:
        below = IN_FOLDER if "/" not in name else OF_ATTEMPT
        try:
            copy_file(run / name, place / name, below=below)
        except RefusedFileError as error:
            left_out.append(f"{error}: left out")
    return left_out


def files_of_run(run: Path) -> tuple[list[str], list[str]]:
    """What of a run's folder goes to another one, by names below it, and what is left out."""
    folders = [""]
    for name in folders_in(run / "attempts", below=IN_FOLDER):
        folders.append(f"attempts/{name}/")
    names, left_out = [], []
    for folder in folders:
        below = OF_ATTEMPT if folder else IN_FOLDER
        for name, kind in entries_in(run / folder, below=below - 1).items():
            if not goes_along(name):
                continue
            if kind != "folder":
                names.append(f"{folder}{name}")
            elif not folder and name != "attempts":
                left_out.append(f"{run / name}: is a folder: left out")
    return names, left_out


def goes_along(name: str) -> bool:
    """Whether a file of this name goes to another folder with its run."""
    return not name.startswith(".") and name not in NOT_COPIED


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


def _merge_kept(theirs: Store, store: Store, run: Path, done: Merged) -> None:
    """The code, diff and environment that a run names."""
    for kept in kept_of(run):
        if not os.path.lexists(kept.path(theirs.root)):
            continue
        content = kept.read(theirs.root)
        if content is not None:
            store.keep_once(kept.kind, kept.digest, kept.suffix, partial(bytes, content))
        elif kept.wrong(theirs.root) not in done.problems:
            done.problems.append(kept.wrong(theirs.root))


# ---------------------------------------------------------------- experiments


NOT_COPIED = ("owner.json", "progress.json", TOMBSTONE)
SAME_QUESTION = (
    "arms",
    "parents",
    "baseline_config",
    "primary",
    "target",
    "margin",
    "prior_noise",
    "branch_at",
    "confirm",
)


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
