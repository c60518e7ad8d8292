"""Which learning rate is best for each arm, from a grid: a quadratic in log rate through the mean losses of its points.

The best of a noisy grid looks better than it is, so that nothing here is an effect: the chosen rates are measured again on fresh
seeds, and those runs alone are compared.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from reports.analysis.compare import compare_all
from reports.inputs.experiment import Experiment
from reports.stats.sequential import Continue, Stop


def decide(experiment: Experiment) -> Stop | Continue:
    """Stop, or how many blocks to add, by `seeds: {min, max, stop: {decide: alpha} | {half_width: x}}`.

    decide: every arm's interval of the primary metric excludes zero or lies inside the margin; half_width: all are that narrow.
    Without a rule the planned seeds are run and the answer is Stop."""
    rule = experiment.plan.get("seeds_rule")
    if not rule:
        return Stop(reason="the planned seeds are run; there is no stopping rule")
    n, low, high = len(experiment.plan["seeds"]), int(rule["min"]), int(rule["max"])
    if n < low:
        return Continue(n=low - n, reason=f"{n} of at least {low} seeds")
    ((kind, value),) = rule["stop"].items()
    level = 1 - float(value) if kind == "decide" else 0.95
    outcome = compare_all(experiment, level=level)
    open_arms = []
    for arm in outcome.arms:
        c = outcome.of(arm, outcome.primary)
        width = math.inf if c is None or c.low is None or c.high is None else (c.high - c.low) / 2
        settled = ("helps", "hurts") if experiment.plan.get("margin") is None else ("helps", "hurts", "equal")
        if width > float(value) if kind == "half_width" else c is None or c.kind not in settled:
            open_arms.append(arm)
    if not open_arms:
        return Stop(reason="every arm is decided" if kind == "decide" else f"every interval is within +-{value:g}")
    if n >= high:
        return Stop(reason=f"{high} seeds, the most allowed; open: {', '.join(open_arms)}")
    return Continue(n=1, reason=f"{n} seeds; open: {', '.join(open_arms)}")


@dataclass(frozen=True, kw_only=True)
class Best:
    """The factor on an arm's own rates at which its mean loss is lowest."""

    factor: float
    at_edge: bool  # an end of the grid: the best may lie beyond
    how: str


def best_rates(grid: Experiment) -> dict[str, Best]:
    """Arm of the design -> its best factor, from the finished runs of a grid over one axis of factors.

    Raises ValueError for an arm without a point at which all its runs have finished."""
    losses: dict[str, dict[float, list[float]]] = {}
    for arm in grid.plan["arms"]:
        (text,) = arm["point"].values()
        own = grid.runs[grid.runs["arm"] == arm["name"]]
        if len(own) and (own["status"] == "finished").all():
            losses.setdefault(arm["of"], {})[float(text.removeprefix("x"))] = own["val_loss"].astype(float).tolist()
        else:
            losses.setdefault(arm["of"], {})
    empty = [arm for arm, points in losses.items() if not points]
    if empty:
        raise ValueError(
            f"experiment '{grid.name}': arm '{empty[0]}' has no rate at which all its runs finished, so none can be chosen: give "
            "the axis lower factors"
        )
    return {arm: best(points) for arm, points in losses.items()}


def best(points: Mapping[float, list[float]]) -> Best:
    """The lowest point of the quadratic, kept within the grid; the best mean where there is no such point."""
    factors = sorted(points)
    x = np.log(factors)
    means = np.array([math.fsum(points[f]) / len(points[f]) for f in factors])
    ends = (factors[0], factors[-1])
    if len(factors) >= 3:
        curvature, slope, _ = np.polyfit(x, means, 2)
        if curvature > 0:
            lowest = math.exp(-slope / (2 * curvature))
            inside = ends[0] <= lowest <= ends[1]
            factor = lowest if inside else min(ends, key=lambda end: abs(math.log(end / lowest)))
            return Best(factor=factor, at_edge=not inside, how="quadratic in log rate")
    factor = factors[int(means.argmin())]
    return Best(factor=factor, at_edge=factor in ends, how="best point of the grid, which shows no minimum")
