"""`ablate ab --pool`: losses of the baseline that earlier experiments measured."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.cli.ab_options import AbOptions
from harness.cli.foreign import run_foreign, stop_if_stopped

if TYPE_CHECKING:
    from harness.foreign.experiment import ForeignExperiment
    from harness.foreign.pool import EarlierRun
    from harness.run.spec import PlannedRun

LEAST = 5  # runs that are worth borrowing


def borrowing(e: "ForeignExperiment", options: AbOptions) -> "ForeignExperiment":
    """The experiment with the baseline's earlier runs; as it was where they are few. Runs none."""
    if e.primary != "val_loss":
        _say(options, f"is for val_loss, not for {e.primary}: none is borrowed")
        return e
    name = e.baseline.name
    if e.baseline.trainer.seeded:
        _say(options, f"runs of {name} are paired by the block's seed: none is borrowed")
        return e
    pool = _pool(e, options)
    if len(pool) < LEAST:
        _say(options, f"{len(pool)} earlier runs of {name}: none is borrowed")
        return e
    return replace(e, borrowed=tuple(run.spec.replicate for run in pool))


def where_fresh_agree(
    e: "ForeignExperiment", options: AbOptions, *, n: int
) -> "tuple[ForeignExperiment, Sequence[str]]":
    """(the experiment, which borrows nothing where fresh runs are other ones; runs made for it).

    Of n blocks it runs the first ones, in which both scripts are."""
    from harness.foreign.plan import FRESH
    from harness.foreign.turns import with_blocks
    from reports.stats.pool import DRIFT

    if not e.borrowed:
        return e, ()
    first = with_blocks(e, options.results, n=n)
    summary, planned, store = run_foreign(first, options.call(), n_blocks=FRESH)
    stop_if_stopped(summary, first, planned, store)
    name, pool = e.baseline.name, _pool(e, options)
    p = _p_of_drift(pool, [run for run in planned if run.arm == name], options)
    if p < DRIFT:
        _say(
            options,
            f"fresh runs of {name} are not what {len(pool)} earlier ones were (p = {p:.2g}): "
            "none is borrowed",
        )
        return replace(e, borrowed=()), tuple(summary.statuses)
    _say(options, f"{len(pool)} runs of {name} are borrowed, with which fresh ones agree")
    return e, tuple(summary.statuses)


def _pool(e: "ForeignExperiment", options: AbOptions) -> "list[EarlierRun]":
    """Earlier runs that finished; those that the experiment has borrowed already, if it has."""
    from harness.foreign.pool import borrowable
    from harness.store.plans import read_plan

    plan = read_plan(options.results, e.name)
    pool = borrowable(e, options.results, plan)
    borrowed = {run.run_id for run in plan.runs if run.borrowed} if plan else set()
    if any(run.spec.run_id in borrowed for run in pool):
        pool = [run for run in pool if run.spec.run_id in borrowed]
    return [run for run in pool if run.result.status == "finished"]


def _p_of_drift(
    pool: "Sequence[EarlierRun]", fresh: "Sequence[PlannedRun]", options: AbOptions
) -> float:
    """0 where a fresh run has no loss."""
    import numpy as np

    from harness.run.results import result_in
    from reports.stats.pool import drift_p

    losses = []
    for run in fresh:
        run_id = run.spec.run_id
        result = result_in(f"{options.results}/runs/{run_id}", run_id)
        if result is None or result.val_loss is None or result.status != "finished":
            return 0.0
        losses.append(result.val_loss)
    earlier = [run.result.val_loss for run in pool]
    return drift_p(np.array(earlier, float), np.array(losses))


def _say(options: AbOptions, sentence: str) -> None:
    file = sys.stderr if options.json else sys.stdout
    print(f"--pool: {sentence}", file=file, flush=True)
