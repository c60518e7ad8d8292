"""What follows from results: more seeds by the stopping rule, rates of a grid, points that go on.

The rate by a quadratic in log rate through the mean losses of its points. The best of a noisy grid
looks better than it is, so that nothing here is an effect: the chosen rates are measured again on
fresh seeds, and those runs alone are compared.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from harness.run.plan import SeedsRule
from reports.analysis.compare import compare_all
from reports.analysis.samples import arms_on_the_axes
from reports.analysis.types import Comparison
from reports.inputs.experiment import Experiment
from reports.stats.sequential import Continue, Stop
from reports.stats.simultaneous import Array


def decide(experiment: Experiment) -> Stop | Continue:
    """Stop, or how many blocks to add, by `seeds: {min, max, stop: {...}}`.

    stop: {decide: alpha}: every arm's interval of the primary metric excludes zero or lies inside
    the margin; {half_width: x}: all are that narrow. Without a rule the planned seeds are run and
    the answer is Stop."""
    rule = experiment.plan.seeds_rule
    if rule is None:
        return Stop(reason="the planned seeds are run; there is no stopping rule")
    n = len(experiment.plan.seeds)
    if n < rule.least:
        return Continue(n=rule.least - n, reason=f"{n} of at least {rule.least} seeds")
    open_arms = _open_arms(experiment, rule)
    if not open_arms:
        if "decide" in rule.stop:
            return Stop(reason="every arm is decided")
        return Stop(reason=f"every interval is within +-{rule.stop['half_width']:g}")
    listed = ", ".join(open_arms)
    if n >= rule.most:
        return Stop(reason=f"{rule.most} seeds, the most allowed; open: {listed}")
    return Continue(n=1, reason=f"{n} seeds; open: {listed}")


def _open_arms(experiment: Experiment, rule: SeedsRule) -> list[str]:
    """The arms that the rule asks more seeds for."""
    level = 0.95
    if "decide" in rule.stop:
        level = 1 - float(rule.stop["decide"])
    outcome = compare_all(experiment, level=level)
    settled = ["helps", "hurts"]
    if experiment.plan.margin is not None:
        settled.append("equal")
    open_arms = []
    for arm in outcome.arms:
        comparison = outcome.of(arm, outcome.primary)
        if "half_width" in rule.stop:
            is_open = _half_width(comparison) > float(rule.stop["half_width"])
        else:
            is_open = comparison is None or comparison.kind not in settled
        if is_open:
            open_arms.append(arm)
    return open_arms


def _half_width(comparison: Comparison | None) -> float:
    """inf where there is no interval."""
    if comparison is None or comparison.low is None or comparison.high is None:
        return math.inf
    return (comparison.high - comparison.low) / 2


def best_points(rung: Experiment, n: int) -> list[str]:
    """The n arms beside the baseline with the lowest mean loss, the best first.

    Of equal ones those that the plan has first; one of whose runs not all finished is none of
    them, so that they may be fewer. Raises ValueError where there is none."""
    means = {}
    for arm in rung.plan.by_arm:
        runs = rung.runs[rung.runs["arm"] == arm]
        losses = runs["val_loss"].astype(float)
        whole = (runs["status"] == "finished") & np.isfinite(losses)
        if arm != rung.plan.baseline and len(runs) and whole.all():
            means[arm] = math.fsum(losses) / len(losses)
    if not means:
        raise ValueError(
            f"experiment '{rung.name}': no point of it has a loss at every seed, so that none goes "
            "on: give the axes other ends"
        )
    return sorted(means, key=means.__getitem__)[:n]


@dataclass(frozen=True, kw_only=True)
class Best:
    """The factor on an arm's own rates at which its mean loss is lowest."""

    factor: float
    at_edge: bool  # an end of the grid: the best may lie beyond
    how: str


def best_rates(grid: Experiment) -> dict[str, Best]:
    """Arm of the design -> its best factor, from a grid's finished runs over one axis of factors.

    Raises ValueError for an arm without a point at which all its runs have finished."""
    losses: dict[str, dict[float, list[float]]] = {}
    for arm in arms_on_the_axes(grid.plan):
        points = losses.setdefault(arm.of, {})
        (factor,) = arm.point.values()
        runs = grid.runs[grid.runs["arm"] == arm.name]
        if len(runs) and (runs["status"] == "finished").all():
            points[float(factor.removeprefix("x"))] = runs["val_loss"].astype(float).tolist()
    for arm_of_design, points in losses.items():
        if not points:
            raise ValueError(
                f"experiment '{grid.name}': arm '{arm_of_design}' has no rate at which all its "
                "runs finished, so none can be chosen: give the axis lower factors"
            )
    return {arm_of_design: best(points) for arm_of_design, points in losses.items()}


def best(points: Mapping[float, list[float]]) -> Best:
    """The lowest point of the quadratic, kept within the grid.

    The best mean where there is no such point."""
    factors = sorted(points)
    means = np.array([math.fsum(points[factor]) / len(points[factor]) for factor in factors])
    lowest = _lowest_of_quadratic(factors, means)
    first, last = factors[0], factors[-1]
    if lowest is None:
        factor = factors[int(means.argmin())]
        return Best(
            factor=factor,
            at_edge=factor in (first, last),
            how="best point of the grid, which shows no minimum",
        )
    how = "quadratic in log rate"
    if first <= lowest <= last:
        return Best(factor=lowest, at_edge=False, how=how)
    is_below = abs(math.log(first / lowest)) <= abs(math.log(last / lowest))
    return Best(factor=first if is_below else last, at_edge=True, how=how)


def _lowest_of_quadratic(factors: list[float], means: Array) -> float | None:
    """None of fewer than three points, or where the quadratic has no minimum."""
    if len(factors) < 3:
        return None
    curvature, slope, _ = np.polyfit(np.log(factors), means, 2)
    if not curvature > 0:
        return None
    return math.exp(-slope / (2 * curvature))
