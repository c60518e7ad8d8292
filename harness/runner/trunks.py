"""Trunks, which other runs go on from: who makes them, and who waits for them."""

from collections.abc import Collection, Sequence

from harness.run.guarded import is_file
from harness.run.spec import PlannedRun, trunks_of
from harness.runner.executor import RunEnded, Summary
from harness.store.store import Store


def trunks_to_make(runs: Sequence[PlannedRun], store: Store) -> tuple[list[PlannedRun], list[str]]:
    """The trunks of these runs that are not there, and what was wrong with any that was.

    A trunk whose file is gone or damaged is set aside and made again.
    """
    missing, wrongs = [], []
    for trunk in trunks_of(runs):
        result, wrong = store.repair(trunk.spec.run_id)
        if wrong:
            wrongs.append(wrong)
        if result is None:
            missing.append(trunk)
    return missing, wrongs


def waits_for(planned: PlannedRun, store: Store) -> str | None:
    """The trunk that a run cannot begin without, by name; None if it can."""
    trunk = planned.spec.trunk
    if trunk is None:
        return None
    made = store.state(trunk.run_id).status == "finished"
    if made and is_file(store.trunk_file(planned.spec)):
        return None
    return trunk.run_id


def without_trunk(trunk: str, summary: Summary, store: Store) -> str:
    """Why a run cannot begin whose trunk nobody makes any more."""
    status = summary.statuses.get(trunk) or store.state(trunk).status
    if status == "finished":
        return f"its trunk {trunk} is gone: run the same command again"
    reason = summary.reasons.get(trunk)
    return f"its trunk {trunk} ended as {status}" + (f": {reason}" if reason else "")


def ready_and_lost(
    runs: Sequence[PlannedRun], left: Collection[str], summary: Summary, store: Store
) -> tuple[list[PlannedRun], list[RunEnded]]:
    """The runs that can begin, and those that cannot any more.

    left: the names of runs that are still to end.
    """
    ready, lost = [], []
    for planned in runs:
        trunk = waits_for(planned, store)
        if trunk is None:
            ready.append(planned)
        elif trunk not in left:
            reason = without_trunk(trunk, summary, store)
            lost.append(RunEnded(run=planned, status="failed", reason=reason))
    return ready, lost


def coming(*runs: Collection[PlannedRun]) -> set[str]:
    """The names of runs that are still to end."""
    return {planned.spec.run_id for some in runs for planned in some}
