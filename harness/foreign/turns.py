"""Which blocks a call of `ablate ab` plans: times count among runs that were made side by side."""

from dataclasses import replace
from pathlib import Path

from harness.foreign.experiment import ForeignExperiment
from harness.foreign.plan import plan_foreign
from harness.run.plan import Plan
from harness.store.plans import read_plan
from harness.store.store import Store


def with_blocks(
    e: ForeignExperiment, results: Path, *, n: int, fresh: bool = False
) -> ForeignExperiment:
    """The experiment with n blocks: those that it had, and new ones.

    A script that is another one than before begins with blocks of its own, in which the others run
    again: no block is planned of which some runs have a result, and others none. Blocks that were
    planned before are finished all the same.
    fresh: n blocks of which nothing is done, beside those that the experiment had.
    """
    before = blocks_before(e, results)
    blocks = list(before if fresh else before[:n])
    most = n + len(blocks) if fresh else n
    store, block = Store(results), max(blocks, default=-1) + 1
    while len(blocks) < most:
        n_done, n_runs = _done_of(e, store, block)
        if n_done == 0 or (n_done == n_runs and not fresh):
            blocks.append(block)
        block += 1
    return replace(e, seeds=tuple(blocks))


def blocks_before(e: ForeignExperiment, results: Path) -> tuple[int, ...]:
    """The blocks that were planned of these very scripts before."""
    before = read_plan(results, e.name)
    if before is None or not before.foreign or not _is_what_ran(e, before):
        return ()
    return before.seeds


def _is_what_ran(e: ForeignExperiment, before: Plan) -> bool:
    """Whether the plan's own runs are those that this experiment would have at its blocks."""
    planned = plan_foreign(replace(e, seeds=before.seeds, borrowed=()))
    ran = {run.run_id for run in before.runs if not run.borrowed}
    return ran <= {run.spec.run_id for run in planned}


def _done_of(e: ForeignExperiment, store: Store, block: int) -> tuple[int, int]:
    """How many of a block's runs have a result, and how many runs it has."""
    planned = plan_foreign(replace(e, seeds=(block,), borrowed=()))
    return sum(store.is_done(run.spec.run_id) for run in planned), len(planned)
