"""What the results folder keeps of an experiment: experiment.json and plan.lock.

The report reads the first; how an experiment is cancelled stands here, too.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from harness.errors import UserError
from harness.provenance.lock import environment_lock
from harness.provenance.own_secrets import own_in
from harness.provenance.source import changed_files, source_of
from harness.run.digests import run_id_of
from harness.run.files import write_json, write_new, write_text
from harness.run.guarded import IN_FOLDER, RefusedFileError, experiments_in, is_name
from harness.run.plan import Plan, PlanRun
from harness.run.plan_file import lock_text, plan_text, read_plan_file
from harness.run.read import read_config
from harness.store.store import Store

SAMPLED = 20  # stale runs are of few sources: so many tell which files changed


def stale_runs(results: Path, plan: Plan) -> tuple[frozenset[str], str]:
    """Planned runs whose only result is an older one, and why in words.

    plan: experiment.json as `plan.up_to_date` gives it.
    """
    store = Store(results)
    stale: dict[str, PlanRun] = {}
    replaced: dict[str, str] = {}  # by the planned run's name, the older one that has a result
    for run in plan.runs:
        if not run.older or store.is_done(run.run_id):
            continue
        for older in run.older:
            if store.is_done(older):
                stale[run.run_id], replaced[run.run_id] = run, older
                break
    changed: set[str] = set()
    for run_id in list(stale)[:SAMPLED]:
        then = _source_of_run(results, replaced[run_id])
        arm = plan.by_arm.get(stale[run_id].arm)
        of_the_arm = arm.source if arm else None  # a foreign trainer's, arm by arm
        now = of_the_arm or plan.source or {}
        changed.update(changed_files(then, now))
    names = ", ".join(sorted(changed)[:3]) or "the environment"
    if len(changed) > 3:
        names += f" and {len(changed) - 3} more files"
    return frozenset(stale), f"stale: {names} changed since its result"


def _source_of_run(results: Path, run_id: str) -> dict[str, str]:
    """File -> digest, of the code that a run recorded; empty where it recorded none."""
    try:
        return dict(read_config(results / "runs" / run_id)["source"]["files"])
    except (OSError, KeyError, TypeError, ValueError):
        return {}


def folder(results: Path, name: str) -> Path:
    return results / "experiments" / name


def read_plan(results: Path, name: str) -> Plan | None:
    """experiment.json of an experiment, None if it was never launched here."""
    path = folder(results, name) / "experiment.json"
    if not is_name(name):
        return None
    try:
        return read_plan_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except RefusedFileError:
        raise
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: {str(error)[:200]}: remove it and run the experiment again; its runs are kept"
        ) from None


def readable_plans(results: Path) -> Iterator[tuple[str, Plan | None, str]]:
    """Every experiment of a results folder: its name, and its plan or why there is none."""
    for name in experiments_in(results):
        try:
            yield name, read_plan(results, name), ""
        except UserError as error:
            yield name, None, str(error)


def begin_plan(results: Path, plan: Plan) -> bool:
    """experiment.json of a new experiment; False where another call made one of its name."""
    text = _text_without_own(plan)
    place = folder(results, plan.name)
    place.mkdir(parents=True, exist_ok=True)
    try:
        write_new(place / "experiment.json", text, below=IN_FOLDER)
    except FileExistsError:
        return False
    return True


def save_plan(results: Path, plan: Plan) -> None:
    """experiment.json, and plan.lock: every plan that was locked, in order."""
    text = _text_without_own(plan)
    place = folder(results, plan.name)
    place.mkdir(parents=True, exist_ok=True)
    write_text(place / "plan.lock", lock_text(plan), below=IN_FOLDER)
    write_text(place / "experiment.json", text, below=IN_FOLDER)


def _text_without_own(plan: Plan) -> str:
    """The plan's text; raises UserError where it holds a secret of the user's own."""
    text = plan_text(plan)
    if variable := own_in(text):
        raise UserError(
            f"{plan.name}: its plan holds the value of ${variable}, and a plan is kept with its "
            "results: take it out; what is trained inherits the variables of its shell"
        )
    return text


def up_to_date(results: Path, plan: Plan) -> Plan:
    """The plan with run ids of the source as it is now.

    What they replace is kept as older (stale) runs.

    A run keeps the environment it was planned in: to read results on another machine makes nothing
    stale. Nor does it where a plug-in's file is not at hand: its code cannot be compared.
    """
    if plan.imported or plan.foreign:
        return plan
    plugged = [Path(p) for p in plan.plugins]
    for path in plugged:
        if not path.is_file():
            return plan
    sources = source_of(plugged)
    runs = []
    for run in plan.runs:
        current = run_id_of(
            run.intent_id,
            source_digest=sources.digest,
            environment_digest=run.environment or environment_lock().digest,
        )
        runs.append(run.renamed(current))
    return replace(plan, source=dict(sources.files), runs=tuple(runs))


def cancel(results: Path, name: str) -> None:
    """Ask whoever runs an experiment, here or on another machine, to stop."""
    asked = {"at": datetime.now(UTC).isoformat()}
    write_json(folder(results, name) / "cancelled.json", asked, below=IN_FOLDER)


def cancel_mark(results: Path, name: str) -> bytes | None:
    """What `cancel` left last: a runner stops when this is no longer what it was at its start."""
    try:
        return (folder(results, name) / "cancelled.json").read_bytes()
    except OSError:
        return None


def count_look(results: Path, plan: Plan) -> Plan:
    """The plan with one look more, if results came in since the last one.

    Peeking has its price in the intervals.
    """
    store = Store(results)
    n_results = sum(store.is_done(run.run_id) for run in plan.runs)
    if n_results and n_results != plan.looked_at:
        plan = replace(plan, looks=plan.looks + 1, looked_at=n_results)
    return plan
