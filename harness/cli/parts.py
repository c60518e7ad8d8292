"""An experiment that has parts, and which of them its results ask for now."""

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UserError

if TYPE_CHECKING:
    from harness.experiment.experiment import Experiment
    from harness.foreign.experiment import ForeignExperiment


def current_part(
    whole: "Experiment", results: Path, *, world_size: int | None = None
) -> "Experiment":
    """What is to be run now: the experiment, or the part that comes next of one that has parts.

    Of a retuned one its grid until it is complete, then its arms at their rates; of a halving its
    first rung that is not complete, or the last. world_size: processes of a run.
    """
    if whole.halving is not None:
        return current_rung(whole, results, world_size)
    if whole.grid is None:
        return resumed(whole, results)
    from harness.experiment.experiment import at_rates
    from harness.run.halving import GRID
    from reports.analysis.adaptive import best_rates
    from reports.inputs.load import load

    grid = replace(whole.grid, name=f"{known_as(whole, results)}{GRID}")
    if not is_complete(grid, results, world_size):
        return grid
    whole = replace(whole, grid=grid)
    try:
        rates = best_rates(load(grid.name, results=results))
    except ValueError as error:
        raise UserError(str(error)) from None
    return at_rates(whole, {arm: vars(rate) for arm, rate in rates.items()})


def current_rung(whole: "Experiment", results: Path, world_size: int | None) -> "Experiment":
    """The first rung of a halving that is not complete, its points chosen by the one before."""
    from harness.experiment.rungs import at_rung
    from reports.analysis.adaptive import best_points
    from reports.inputs.load import load

    before = known_as(whole, results)
    part = at_rung(whole, 0, known_as=before)
    while part.halving and not part.halving.is_last and is_complete(part, results, world_size):
        try:
            kept = best_points(load(part.name, results=results), part.halving.n_chosen)
        except ValueError as error:
            raise UserError(str(error)) from None
        part = at_rung(whole, part.halving.rung + 1, kept, known_as=before)
    return part


def known_as(whole: "Experiment", results: Path) -> str:
    """The name by which the parts before the last one are kept: of a renamed experiment its old."""
    from harness.run.halving import GRID
    from harness.store.plans import read_plan

    saved = read_plan(results, whole.name)
    if saved is None or saved.grid is None:
        return whole.name
    return re.sub(rf"({re.escape(GRID)}|\.rung\d+)$", "", saved.grid)


def is_complete(part: "Experiment", results: Path, world_size: int | None) -> bool:
    """Whether it was launched as it is now planned, and every run of it has its result."""
    from harness.experiment.plan import plan_runs
    from harness.run.results import read_result
    from harness.store.plans import read_plan

    runs = plan_runs(part, world_size=world_size, need_data=False)
    planned = {run.spec.run_id for run in runs}
    saved = read_plan(results, part.name)
    if saved is None or planned != {run.run_id for run in saved.runs}:
        return False
    return all(read_result(results / "runs" / run_id) for run_id in planned)


def resumed(experiment: "Experiment", results: Path) -> "Experiment":
    """An adaptive experiment with the seeds that its rule had added when it was last run."""
    added = added_by_rule(experiment, results)
    return with_more(experiment, added) if added else experiment


def added_by_rule(experiment: "Experiment | ForeignExperiment", results: Path) -> tuple[int, ...]:
    """The seeds that its rule had added when it was last run."""
    from harness.store.plans import read_plan

    saved = read_plan(results, experiment.name)
    if saved is None or saved.seeds_rule is None or saved.seeds_rule != experiment.seeds_rule:
        return ()
    n_planned = len(experiment.seeds)
    return saved.seeds[n_planned:] if saved.seeds[:n_planned] == experiment.seeds else ()


def with_more(experiment: "Experiment", seeds: tuple[int, ...]) -> "Experiment":
    from harness.experiment.plan import with_seeds

    return with_seeds(experiment, (*experiment.seeds, *seeds))
