"""The parts of an experiment that follow from results: seeds, arms at rates, points that go on.

Only the command line may look at results and then plan: the scheduler never sees a loss.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli.parts import current_part, with_more

if TYPE_CHECKING:
    from harness.experiment.experiment import Experiment
    from harness.foreign.experiment import ForeignExperiment


def next_part(
    whole: "Experiment", part: "Experiment", results: Path, *, world_size: int | None = None
) -> "Experiment | None":
    """What follows a part whose runs have ended; None if nothing does.

    The retuned arms follow their grid, a rung of a halving the rung before, more seeds by the rule
    a part that has one.
    """
    if part.name != whole.name:
        following = current_part(whole, results, world_size=world_size)
        if following.name == part.name:
            return None
        if following.halving is not None:
            points = ", ".join(arm.name for arm in following.arms[1:])
            print(f"{following.halving.words}, {following.budgets[0]} steps: {points}", flush=True)
        return following
    if part.seeds_rule is None:
        return None
    seeds = next_seeds(part, part.seeds_rule.most, results)
    return with_more(part, seeds) if seeds else None


def next_seeds(
    experiment: "Experiment | ForeignExperiment", most: int, results: Path
) -> tuple[int, ...]:
    """Seeds of the blocks to add, asked of the statistics between blocks.

    None when it is decided, or there are as many seeds as the rule allows. most: so many.
    """
    from harness.cli.lookup import load_for_report
    from reports.analysis.adaptive import decide
    from reports.stats.sequential import Continue

    decision = decide(load_for_report(experiment.name, results, look="run"))
    if not isinstance(decision, Continue):
        return ()
    n = min(decision.n, most - len(experiment.seeds))
    if n <= 0:
        return ()
    print(f"{decision.reason}: {n} more", flush=True)
    first = max(experiment.seeds) + 1
    return tuple(range(first, first + n))
