"""Where along an axis the loss is lowest, with an interval (Fieller 1954).

A quadratic in the logarithm of the axis (in its value, where one is not above zero) through an
arm's mean losses has its lowest point where its slope is zero. For each place x the slope there is
a contrast of the arm's points, judged as shares are (reports/analysis/attribution.py: the larger
error of the two-way model, or the t-mixture where a page needs sequences); the places whose slope
is not told apart from zero are the interval. That is bounded where the curvature is told apart
from zero, else the place is not resolved. That the loss is lowest at an end of the grid is said
where the slopes at both ends are told apart from zero with one sign, that there is no minimum where
the curvature is told below zero, both at half the error rate. With more axes than one the losses
are averaged over the points of the others. Bonferroni over arms and axes, and over the family that
the results folder remembers. The error is that of the noise alone: how far a loss is from a
quadratic is not in it.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import pandas as pd
from scipy import optimize

from harness.run.plan import PlanArm
from reports.analysis import samples
from reports.analysis.judges import Share, contrast_of
from reports.inputs.experiment import Experiment
from reports.stats.simultaneous import Array

LEAST_POINTS = 3  # points that a quadratic goes through
Ends = tuple[float, float]


class Lowest(Enum):
    """What is told of the lowest point of the quadratic."""

    INSIDE = "inside the grid"
    FIRST = "at the first point of the grid or before it"
    LAST = "at the last point of the grid or beyond it"
    NOWHERE = "no minimum: the losses do not curve upwards"
    UNTOLD = "not told apart from the noise: more seeds or a wider grid"
    TOO_FEW = "too few whole points: a quadratic goes through three in one block"


TOLD_AT_ONCE = (Lowest.FIRST, Lowest.LAST, Lowest.NOWHERE)  # and a place inside by its interval


@dataclass(frozen=True, kw_only=True)
class GridAxis:
    """An axis as numbers: its points in order, and whether they are factors and logarithmic."""

    name: str
    words: tuple[str, ...]  # of its points, by their value

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(number_of(word) for word in self.words)

    @property
    def is_logarithmic(self) -> bool:
        return min(self.values) > 0

    @property
    def places(self) -> Array:
        """The points on the scale of the quadratic."""
        if self.is_logarithmic:
            return np.log(self.values)
        return np.array(self.values)

    def value_at(self, place: float) -> float:
        """The axis's value at a place of the scale."""
        if self.is_logarithmic:
            return math.exp(place)
        return place


@dataclass(frozen=True, kw_only=True)
class Optimum:
    """Where an arm of the design has its lowest loss along an axis."""

    arm: str
    axis: GridAxis
    where: Lowest
    value: float | None  # of the axis, where it is inside the grid
    low: float | None  # None: beyond the grid, or where nothing is resolved
    high: float | None
    is_resolved: bool  # whether the runs tell it apart from the noise
    n_blocks: int
    left_out: tuple[str, ...]  # points at which not every run finished


def number_of(word: str) -> float:
    """A point of an axis as a number: its factor, or its value."""
    return float(word.removeprefix("x"))


def optima(experiment: Experiment, *, level: float = 0.95) -> list[Optimum]:
    """One for every arm of the design and every axis, the baseline first.

    [] without an axis, with several between whose ends points were drawn, or before a run has an
    outcome."""
    plan = experiment.plan
    scattered = plan.draw is not None and len(plan.axes) > 1  # along no axis lies another point
    if not plan.axes or scattered or experiment.memory.lost:
        return []
    use = samples.usable(experiment)
    losses = samples.of_role(use.runs, "loss")
    losses = samples.at_budget(losses, samples.shared_budget(losses, use.arms))
    if not len(losses):
        return []
    level = experiment.memory.level(level, len(plan.arms) - 1)
    of_design: dict[str, list[PlanArm]] = {plan.by_arm[plan.baseline].of: []}
    for arm in samples.arms_on_the_axes(plan):
        of_design.setdefault(arm.of, []).append(arm)
    asked = []
    for arms in of_design.values():
        whole = [arm for arm in arms if has_finished(losses, arm.name)]
        for axis in plan.axes:
            asked.append((axis, arms, whole))
    anytime, places = samples.watched(experiment), []
    for axis, arms, whole in asked:
        alpha = (1 - level) / len(asked)
        places.append(_optimum(losses, axis, (arms, whole), alpha, anytime=anytime))
    return places


def has_finished(losses: pd.DataFrame, arm: str) -> bool:
    """Whether an arm has runs with an outcome, and all have a loss."""
    runs = losses[losses["arm"] == arm]
    return bool(len(runs) and (runs["status"] == "finished").all())


def _optimum(
    losses: pd.DataFrame,
    name: str,
    of_arm: tuple[Sequence[PlanArm], Sequence[PlanArm]],
    alpha: float,
    *,
    anytime: bool,
) -> Optimum:
    """Of an arm along an axis; of_arm: its points, and those whose runs have all finished.

    With several axes the losses are those at the points of the others that every point of this
    one has."""
    arms, whole = of_arm
    by_point: dict[str, dict[str, str]] = {}
    for arm in whole:
        by_point.setdefault(arm.point[name], {})[others_of(arm, name)] = arm.name
    places = sorted(by_point, key=number_of)
    shared = set.intersection(*map(set, by_point.values())) if by_point else set()
    points = []
    for word in places:
        points.append({others: by_point[word][others] for others in sorted(shared)})
    left_out = _left_out(name, arms, (places, shared))
    y = np.empty((0, len(places), 1))
    if len(places) >= LEAST_POINTS and shared:
        y = _losses_along(losses, points)
    if not len(y):
        planned = sorted({arm.point[name] for arm in arms}, key=number_of)
        axis = GridAxis(name=name, words=tuple(planned))
        return _optimum_of(axis, arms[0].of, (Lowest.TOO_FEW, None, None), 0, left_out)
    axis = GridAxis(name=name, words=tuple(places))
    lowest = lowest_told(Slopes(losses=y, places=axis.places, alpha=alpha, anytime=anytime))
    return _optimum_of(axis, arms[0].of, lowest, len(y), left_out)


def _left_out(
    name: str, arms: Sequence[PlanArm], counted: tuple[Sequence[str], Collection[str]]
) -> tuple[str, ...]:
    """The points of an axis and of the others that do not count, in the order of the arms."""
    points, shared = counted
    left_out: dict[str, None] = {}
    for arm in arms:
        if arm.point[name] not in points:
            left_out[arm.point[name]] = None
        elif others_of(arm, name) not in shared:
            left_out[others_of(arm, name)] = None
    return tuple(left_out)


def others_of(arm: PlanArm, name: str) -> str:
    """An arm's point on the other axes, in words."""
    return ", ".join(f"{axis} {word}" for axis, word in arm.point.items() if axis != name)


def _losses_along(losses: pd.DataFrame, points: Sequence[Mapping[str, str]]) -> Array:
    """Losses (n, points, others) over the blocks in which every arm of the points has finished.

    points: along the axis, each with the arms at it."""
    names = [name for point in points for name in point.values()]
    done = losses[losses["arm"].isin(names) & losses["block"].notna()]
    table = done.pivot_table(index="block", columns="arm", values="val_loss", aggfunc="mean")
    if not set(names) <= set(table):
        return np.empty((0, len(points), 1))
    return table[names].dropna().to_numpy(float).reshape(-1, len(points), len(points[0]))


def slope_weights(places: Array, x: float) -> Array:
    """Weights (k,) of the points whose sum is the slope at x of the quadratic through them."""
    centre = float(places.mean())
    basis = np.stack([np.ones(len(places)), places - centre, (places - centre) ** 2], axis=1)
    of_mean = np.linalg.pinv(basis)  # (3, k)
    weights: Array = of_mean[1] + 2 * (x - centre) * of_mean[2]
    return weights


@dataclass(frozen=True, kw_only=True)
class Slopes:
    """The slopes of the quadratic through losses (n, k, others) in complete blocks."""

    losses: Array
    places: Array  # (k,)
    alpha: float
    anytime: bool = False

    def at(self, x: float) -> Share:
        return self._judged(slope_weights(self.places, x))

    @property
    def curvature(self) -> Share:
        """What a slope grows by over one unit of the scale."""
        return self._judged(slope_weights(self.places, 1.0) - slope_weights(self.places, 0.0))

    def _judged(self, weights: Array) -> Share:
        n, k, others = self.losses.shape
        y = self.losses.reshape(n, k * others)
        of_points = np.repeat(weights / others, others)
        return contrast_of(y, of_points, self.alpha, anytime=self.anytime)


def sign_of(share: Share) -> int:
    """Where it is told apart from zero, else 0."""
    if share.low is None or share.high is None:
        return 0
    return (share.low > 0) - (share.high < 0)


def lowest_told(slopes: Slopes) -> tuple[Lowest, float | None, Ends | None]:
    """(what is told of the lowest point, its place inside the points, its interval's ends)."""
    first, last = float(slopes.places.min()), float(slopes.places.max())
    place, ends = lowest(slopes)
    if place is not None and first <= place <= last:
        return Lowest.INSIDE, place, ends
    strict = replace(slopes, alpha=slopes.alpha / 2)  # the other half is that of the interval
    signs = {sign_of(strict.at(first)), sign_of(strict.at(last))}
    where = Lowest.UNTOLD
    if signs == {1}:
        where = Lowest.FIRST
    elif signs == {-1}:
        where = Lowest.LAST
    elif sign_of(strict.curvature) < 0:
        where = Lowest.NOWHERE
    return where, None, None


def lowest(slopes: Slopes) -> tuple[float | None, Ends | None]:
    """(the place of the lowest point, the interval's ends inside the points' range).

    None where the quadratic has no lowest point; no ends where its curvature is not told apart from
    zero, or that place is beyond the points; an end beyond them is infinite."""
    first, last = float(slopes.places.min()), float(slopes.places.max())
    before, behind = slopes.at(first).value, slopes.at(last).value
    if not behind > before:
        return None, None
    place = first - before * (last - first) / (behind - before)
    if sign_of(slopes.curvature) <= 0 or not first <= place <= last:
        return place, None

    def beyond(x: float) -> float:
        """Above zero where the slope is told apart from zero."""
        slope = slopes.at(x)
        if slope.low is None or slope.high is None:
            return -math.inf
        return max(slope.low, -slope.high)

    ends = [-math.inf, math.inf]
    for side, end in enumerate((first, last)):
        if beyond(end) > 0:
            ends[side] = float(optimize.brentq(beyond, place, end, xtol=1e-14, rtol=1e-14))
    return place, (ends[0], ends[1])


def _optimum_of(
    axis: GridAxis,
    arm: str,
    lowest: tuple[Lowest, float | None, Ends | None],
    n: int,
    left_out: tuple[str, ...],
) -> Optimum:
    """lowest: what is told, the place, and its ends."""
    where, place, ends = lowest
    value, low, high = None, None, None
    if place is not None:
        value = axis.value_at(place)
    if ends is not None:
        if math.isfinite(ends[0]):
            low = axis.value_at(ends[0])
        if math.isfinite(ends[1]):
            high = axis.value_at(ends[1])
    return Optimum(
        arm=arm,
        axis=axis,
        where=where,
        value=value,
        low=low,
        high=high,
        is_resolved=ends is not None or where in TOLD_AT_ONCE,
        n_blocks=n,
        left_out=left_out,
    )
