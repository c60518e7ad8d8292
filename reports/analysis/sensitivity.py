"""Where an effect's sign depends on the rate, along the axes that cross the arms.

Every arm is compared with the baseline at the same point. The declared analysis
(reports/stats/contrasts.py) at each point, or the sequences where a page needs them, the error
rate shared among the points (Bonferroni).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import pandas as pd

from harness.run.plan import Plan
from reports.analysis import samples
from reports.inputs.experiment import Experiment
from reports.stats.anytime import sequences
from reports.stats.contrasts import Effect, Sample, analyse


@dataclass(frozen=True, kw_only=True)
class PointEffect:
    """Loss of an arm minus the baseline's at one point, in nats."""

    point: str  # 'optim.muon_lr x0.5'
    delta: float
    low: float | None  # no interval where the runs allow none
    high: float | None

    @property
    def sign(self) -> int:
        """-1 better, +1 worse, 0 not told apart from zero."""
        if self.low is None or self.high is None:
            return 0
        return (self.low > 0) - (self.high < 0)


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """An arm's effects over the points."""

    arm: str  # of the design
    effects: tuple[PointEffect, ...]

    def with_sign(self, sign: int) -> list[PointEffect]:
        """The effects that are better (-1), worse (+1) or not told apart (0), the lowest first."""
        effects = [effect for effect in self.effects if effect.sign == sign]
        return sorted(effects, key=lambda effect: effect.delta)

    @property
    def words(self) -> str:
        """At how many points it is better and worse."""
        n, counts = len(self.effects), []
        for sign, word in ((-1, "better"), (1, "worse")):
            if self.with_sign(sign):
                counts.append(f"{word} at {len(self.with_sign(sign))}")
        return f"{', '.join(counts) or 'not told apart at any'} of {n}"


def sensitivities(experiment: Experiment, *, level: float = 0.95) -> list[Sensitivity]:
    """One row per arm of the design.

    [] without axes, or before the baseline and an arm have finished at two points."""
    plan = experiment.plan
    if not plan.axes or experiment.memory.lost:
        return []
    use = samples.usable(experiment)
    losses = samples.of_role(use.runs, "loss")
    losses = samples.at_budget(losses, samples.shared_budget(losses, use.arms))
    design = plan.by_arm[plan.baseline].of
    points = _arms_by_point(plan, design)
    noisy = frozenset(arm.of for arm in plan.arms if arm.alters_noise)
    level = experiment.memory.level(level, len(plan.arms) - 1)
    effects: dict[str, list[PointEffect]] = {}
    for point, arms in points.items():
        share = 1 - (1 - level) / len(points)
        present, of_baseline = _samples_at(losses, arms, design)
        judged: Mapping[str, Effect]
        if samples.watched(experiment):
            judged = sequences(present, of_baseline, m=len(arms) - 1, level=share)
        else:
            judged = analyse(present, of_baseline, level=share, alters_noise=noisy)
        for arm, effect in judged.items():
            effects.setdefault(arm, []).append(
                PointEffect(point=point, delta=effect.delta, low=effect.low, high=effect.high)
            )
    rows = []
    for arm, over_points in effects.items():
        if len(over_points) > 1:
            rows.append(Sensitivity(arm=arm, effects=tuple(over_points)))
    return rows


def _arms_by_point(plan: Plan, design: str) -> dict[str, dict[str, str]]:
    """Point in words -> arm of the design -> arm, in the order of the grid.

    Of those points that have the baseline's arm of the design and another one."""
    arms: dict[str, dict[str, str]] = {}
    for arm in plan.arms:
        arms.setdefault(in_words(arm.point), {})[arm.of] = arm.name
    places = [*arms]
    if not plan.draw:  # the baseline's place among them is not the first
        combinations = product(*plan.axes.values())
        places = [in_words(dict(zip(plan.axes, values, strict=True))) for values in combinations]
    grid = {}
    for point in places:
        at_point = arms.get(point, {})
        if len(at_point) > 1 and design in at_point:
            grid[point] = at_point
    return grid


def _samples_at(
    losses: pd.DataFrame, arms: Mapping[str, str], design: str
) -> tuple[dict[str, Sample], Sample]:
    """(arm of the design -> its losses at a point, the baseline's); without arms that have none."""
    of_baseline = samples.sample(losses, arms[design], "val_loss")
    present = {}
    for of, name in arms.items():
        of_arm = samples.sample(losses, name, "val_loss")
        if of != design and len(of_arm.values) and len(of_baseline.values):
            present[of] = of_arm
    return present, of_baseline


def in_words(point: Mapping[str, str]) -> str:
    """A point of the axes."""
    return ", ".join(f"{axis} {value}" for axis, value in point.items())
