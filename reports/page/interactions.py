"""The runs that a page's verdicts count, and which interactions of changes they tell."""

import pandas as pd

from reports.analysis.interactions import BesideOther, Interplay, beside_others, interplay
from reports.analysis.samples import at_budget, of_role, usable
from reports.analysis.types import Comparisons
from reports.inputs.experiment import Experiment


def counted(experiment: Experiment) -> pd.DataFrame:
    """The runs that the verdicts count: all but the stale ones, unless those were admitted."""
    if experiment.accept_stale:
        return experiment.runs
    return experiment.runs[~experiment.runs["stale"].astype(bool)]


def interactions_of(
    experiment: Experiment, outcome: Comparisons
) -> tuple[list[Interplay], list[BesideOther]]:
    """Main effects and interactions in validation loss, and what a change adds beside another.

    Nothing where there is none to tell."""
    if experiment.memory.lost:
        return [], []
    plan, runs = experiment.plan, of_role(usable(experiment).runs, "loss")
    finished = at_budget(runs[runs["status"] == "finished"], outcome.budget)
    level = experiment.memory.level(0.95, len(plan.arms) - 1)
    effects = interplay(finished, plan, level=level, anytime=outcome.anytime)
    beside = beside_others(finished, plan, level=level, anytime=outcome.anytime)
    return effects, beside
