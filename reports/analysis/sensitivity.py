"""Where an effect's sign depends on the rate: every arm against the baseline at the same point of the axes that cross them.

The declared analysis (reports/stats/contrasts.py) at each point, or the sequences where a page needs them, the error rate shared among
the points (Bonferroni).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from reports.analysis import samples
from reports.analysis.compare import sequences
from reports.inputs.experiment import Experiment
from reports.stats.contrasts import analyse


@dataclass(frozen=True, kw_only=True)
class PointEffect:
    """Loss of an arm minus the baseline's at one point, in nats; no interval where the runs allow none."""

    point: str  # 'optim.muon_lr x0.5'
    delta: float
    low: float | None
    high: float | None

    @property
    def sign(self) -> int:
        """-1 better, +1 worse, 0 not told apart from zero."""
        if self.low is None or self.high is None:
            return 0
        return (self.low > 0) - (self.high < 0)


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    arm: str  # of the design
    effects: tuple[PointEffect, ...]

    @property
    def words(self) -> str:
        """Whether the sign holds at every point."""
        at = {sign: [e.point for e in self.effects if e.sign == sign] for sign in (-1, 0, 1)}
        if at[-1] and at[1]:
            return f"the sign depends on the point: better at {', '.join(at[-1])}; worse at {', '.join(at[1])}"
        word = "better" if at[-1] else "worse"
        if not at[-1] and not at[1]:
            return "not told apart from zero at any point"
        return f"{word} at every point" if not at[0] else f"{word} at {', '.join(at[-1] or at[1])}; not told apart elsewhere"


def sensitivities(experiment: Experiment, *, level: float = 0.95) -> list[Sensitivity]:
    """One row per arm of the design; [] without axes, or before the baseline and an arm have finished at two points."""
    plan = experiment.plan
    if not plan.get("axes"):
        return []
    use = samples.usable(experiment)
    losses = samples.of_role(use.runs, "loss")
    losses = samples.at_budget(losses, samples.shared_budget(losses, use.arms))
    design = next(a for a in plan["arms"] if a["name"] == plan["baseline"])["of"]
    by_point: dict[str, dict[str, str]] = {}  # point in words -> arm of the design -> arm
    for arm in plan["arms"]:
        by_point.setdefault(in_words(arm["point"]), {})[arm["of"]] = arm["name"]
    grid = [in_words(dict(zip(plan["axes"], points, strict=True))) for points in product(*plan["axes"].values())]
    by_point = {point: arms for point in grid if len(arms := by_point.get(point, {})) > 1 and design in arms}
    noisy = frozenset(a["of"] for a in plan["arms"] if a.get("alters_noise"))
    anytime, found = samples.watched(experiment), dict[str, list[PointEffect]]()
    for point, arms in by_point.items():
        base = samples.sample(losses, arms[design], "val_loss")
        present = {of: samples.sample(losses, name, "val_loss") for of, name in arms.items() if of != design}
        present = {of: sample for of, sample in present.items() if len(sample.values) and len(base.values)}
        share = 1 - (1 - level) / len(by_point)
        if anytime:
            judged = sequences(present, base, m=len(arms) - 1, level=share)
        else:
            judged = analyse(present, base, level=share, alters_noise=noisy)
        for of, e in judged.items():
            found.setdefault(of, []).append(PointEffect(point=point, delta=e.delta, low=e.low, high=e.high))
    return [Sensitivity(arm=arm, effects=tuple(effects)) for arm, effects in found.items() if len(effects) > 1]


def in_words(point: Mapping[str, str]) -> str:
    return ", ".join(f"{axis} {value}" for axis, value in point.items())
