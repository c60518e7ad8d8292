"""The parts of an experiment that follow from results: more seeds, or the retuned arms once their grid is complete.

Only the command line may look at results and then plan: the scheduler never sees a loss.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli.lookup import current_part, with_more

if TYPE_CHECKING:
    from harness.experiment.experiment import Experiment


def next_part(whole: "Experiment", part: "Experiment", results: Path, *, world_size: int | None = None) -> "Experiment | None":
    """What follows a part whose runs have ended: the retuned arms after their grid, more seeds by the rule, or nothing."""
    if whole.grid is not None and part.name == whole.grid.name:
        following = current_part(whole, results, world_size=world_size)
        return following if following.name != part.name else None
    if part.seeds_rule is None:
        return None
    more = next_seeds(part, results)
    return with_more(part, more) if more else None


def next_seeds(experiment: "Experiment", results: Path) -> tuple[int, ...]:
    """Seeds of the blocks to add, asked of the statistics between blocks; none when it is decided or the limit is reached."""
    from harness.cli.lookup import load_for_report
    from reports.analysis.adaptive import decide
    from reports.stats.sequential import Continue

    decision = decide(load_for_report(experiment.name, results, look=True))
    assert experiment.seeds_rule is not None
    room = experiment.seeds_rule.most - len(experiment.seeds)
    n = min(decision.n, room) if isinstance(decision, Continue) else 0
    first = max(experiment.seeds) + 1
    if n > 0:
        print(f"{decision.reason}: {n} more", flush=True)
    return tuple(range(first, first + n))
