"""Successive halving: a sweep whose points start short, and whose best go on to longer budgets.

Each rung is an experiment of its own at one of the budgets; every point of it is trained from its
first update on, with the whole schedule of that budget, since a cooldown belongs to its end. Which
points go on the command line asks of the results (harness/cli/adaptive.py).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from harness.experiment.cost import by_flops
from harness.experiment.experiment import Experiment
from harness.experiment.plan import plan_runs
from harness.run.spec import PlannedRun


def at_rung(
    whole: Experiment, rung: int, kept: Collection[str] | None = None, *, known_as: str = ""
) -> Experiment:
    """One rung of a halving: the baseline and the points that came so far, at its budget.

    kept: names of the points; None: all of them. known_as: the halving's name when its rungs before
    the last were run; '': its present one.
    """
    halving = whole.halving
    assert halving is not None
    known_as = known_as or whole.name

    def name_at(rung: int) -> str:
        return halving.name_at(whole.name if rung == len(halving.budgets) - 1 else known_as, rung)

    arms = [arm for arm in whole.arms[1:] if kept is None or arm.name in kept]
    before = None
    if rung:
        before = replace(whole, name=name_at(rung - 1))
    return replace(
        whole,
        name=name_at(rung),
        arms=(whole.baseline, *arms),
        budgets=(halving.budgets[rung],),
        halving=replace(halving, rung=rung),
        grid=before,
    )


@dataclass(frozen=True, kw_only=True)
class RungToCome:
    """A rung whose points are not known yet: how many, and runs of all that may be among them."""

    steps: int
    n_points: int
    planned: Sequence[PlannedRun]  # of every candidate, and of the baseline
    baseline: str

    @property
    def of_baseline(self) -> list[PlannedRun]:
        return [run for run in self.planned if run.arm == self.baseline]

    @property
    def of_points(self) -> dict[str, list[PlannedRun]]:
        """The runs of every point, those first that compute most."""
        points: dict[str, list[PlannedRun]] = {}
        for run in self.planned:
            if run.arm != self.baseline:
                points.setdefault(run.arm, []).append(run)
        flops = {arm: by_flops(runs[0].spec) for arm, runs in points.items()}
        return {arm: points[arm] for arm in sorted(flops, key=flops.__getitem__, reverse=True)}

    @property
    def dearest(self) -> list[PlannedRun]:
        """The most that it may take: the baseline's runs, and those of the dearest points."""
        chosen = [*self.of_points.values()][: self.n_points]
        return [*self.of_baseline, *chain.from_iterable(chosen)]


def rungs_to_come(part: Experiment, *, world_size: int | None = None) -> list[RungToCome]:
    """What follows a rung, [] where nothing does.

    world_size: processes of a run, as `plan_runs` takes it."""
    halving = part.halving
    if halving is None:
        return []
    to_come = []
    for rung in range(halving.rung + 1, len(halving.budgets)):
        steps, n_points = halving.budgets[rung], min(halving.n_at(rung), len(part.arms) - 1)
        longer = replace(part, budgets=(steps,))
        planned = plan_runs(longer, world_size=world_size, need_data=False)
        rung_to_come = RungToCome(
            steps=steps, n_points=n_points, planned=planned, baseline=part.baseline.name
        )
        to_come.append(rung_to_come)
    return to_come
