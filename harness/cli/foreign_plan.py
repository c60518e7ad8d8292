"""What `ablate plan` says of an experiment of foreign trainers."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli.plan_facts import seeds_words
from harness.run.document import Cells
from harness.run.plural import plural

if TYPE_CHECKING:
    from harness.foreign.experiment import ForeignExperiment
    from harness.run.spec import PlannedRun


def print_foreign_plan(
    e: "ForeignExperiment",
    results: Path,
    *,
    price: float | None,
    max_gpu_hours: float | None = None,
    json: bool = False,
) -> None:
    """Arms, runs, what is done, what the rest costs, and what was seen in each script.

    results: the results folder. price: of a GPU-hour or a slot's hour. max_gpu_hours: None allows
    any. json: for a program.
    """
    from harness.cli.table import print_json, print_table
    from harness.experiment.cost import check_limit, estimate_foreign, with_price
    from harness.foreign.plan import plan_foreign
    from harness.store.store import Store

    planned = plan_foreign(e)
    store = Store(results)
    done = {run.spec.run_id for run in planned if store.is_done(run.spec.run_id)}
    estimate = estimate_foreign(planned, results, wall_limit_s=e.limits.wall_s)
    cost = with_price(estimate, price)
    rows = _arm_rows(e, planned, done)
    if json:
        print_json(
            {
                "name": e.name,
                "question": e.question,
                "arms": rows,
                "runs": len(planned),
                "done": len(done),
                "seeds": list(e.seeds),
                "cost": cost.to_mapping(),
            }
        )
        return
    title = f"{e.name}: {e.question}" if e.question else e.name
    print(
        f"{title}\n{plural(len(planned), 'run')} of {plural(len(e.arms), 'arm')}, {len(done)} done"
    )
    named = {arm.name: list(arm.changes) for arm in e.arms if arm.changes}
    print_table([{**row, "changes": named.get(str(row["arm"]), row["changes"])} for row in rows])
    if e.seeds_rule is not None:
        print(seeds_words(e.seeds_rule))
    for arm in e.arms:
        for hint in arm.hints:
            print(f"{arm.name}, {arm.code.script}:{hint.line}: {hint.text}")
    print(cost.words)
    check_limit(cost, max_gpu_hours)


def _arm_rows(
    e: "ForeignExperiment", planned: "list[PlannedRun]", done: set[str]
) -> Sequence[Cells]:
    """Per arm: its runs, those that are done, its changes."""
    rows = []
    for arm in e.arms:
        run_ids = [run.spec.run_id for run in planned if run.arm == arm.name]
        rows.append(
            {
                "arm": arm.name,
                "runs": len(run_ids),
                "done": len(done.intersection(run_ids)),
                "changes": [f"{field}={value}" for field, value in arm.fields.items()],
            }
        )
    return rows
