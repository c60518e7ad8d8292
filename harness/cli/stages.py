"""The parts of an experiment that follow from results: more seeds, or the retuned arms once their grid is complete.

Only the command line may look at results and then plan: the scheduler never sees a loss.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UserError

if TYPE_CHECKING:
    from harness.experiment import Experiment


def current_part(whole: "Experiment", results: Path, *, world_size: int | None = None) -> "Experiment":
    """What is to be run now: the experiment; of a retuned one the grid, and once that is complete the arms at their rates."""
    from harness.experiment import at_rates
    from harness.plan import plan_runs
    from harness.plan_file import read_plan
    from harness.records import read_result

    if whole.grid is None:
        return resumed(whole, results)
    planned = {p.spec.run_id for p in plan_runs(whole.grid, world_size=world_size, need_data=False)}
    saved = read_plan(results, whole.grid.name)
    launched = saved is not None and planned == {r["run_id"] for r in saved["runs"]}
    if not launched or not all(read_result(results / "runs" / run_id) for run_id in planned):
        return whole.grid
    from reports import load  # slow to import, and seldom needed
    from reports.retune import best_rates

    try:
        rates = best_rates(load(whole.grid.name, results=results))
    except ValueError as error:
        raise UserError(str(error)) from None
    return at_rates(whole, {arm: vars(rate) for arm, rate in rates.items()})


def resumed(experiment: "Experiment", results: Path) -> "Experiment":
    """An adaptive experiment with the seeds that its rule had added when it was last run."""
    from harness.plan_file import read_plan

    saved = read_plan(results, experiment.name) if experiment.seeds_rule else None
    seeds = tuple(saved["seeds"]) if saved and saved["seeds_rule"] == experiment.seeds_rule else ()
    return (
        with_more(experiment, seeds[len(experiment.seeds) :])
        if seeds[: len(experiment.seeds)] == experiment.seeds
        else experiment
    )


def next_part(whole: "Experiment", part: "Experiment", results: Path, *, world_size: int | None = None) -> "Experiment | None":
    """What follows a part whose runs have ended: the retuned arms after their grid, more seeds by the rule, or nothing."""
    if whole.grid is not None and part.name == whole.grid.name:
        following = current_part(whole, results, world_size=world_size)
        return following if following.name != part.name else None
    if part.seeds_rule is None:
        return None
    more = next_seeds(part, results)
    return with_more(part, more) if more else None


def with_more(experiment: "Experiment", seeds: tuple[int, ...]) -> "Experiment":
    from harness.plan import with_seeds

    return with_seeds(experiment, (*experiment.seeds, *seeds))


def next_seeds(experiment: "Experiment", results: Path) -> tuple[int, ...]:
    """Seeds of the blocks to add, asked of the statistics between blocks; none when it is decided or the limit is reached."""
    from harness.cli.pages import load_for_report
    from reports.sequential import Continue
    from reports.stopping import decide

    decision = decide(load_for_report(experiment.name, results, look=True))
    assert experiment.seeds_rule is not None
    room = experiment.seeds_rule["max"] - len(experiment.seeds)
    n = min(decision.n, room) if isinstance(decision, Continue) else 0
    first = max(experiment.seeds) + 1
    if n > 0:
        print(f"{decision.reason}: {n} more", flush=True)
    return tuple(range(first, first + n))
