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
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np
import pandas as pd

from harness.run.document import Content
from harness.run.plan import PlanArm
from reports.analysis import samples
from reports.analysis.slopes import Ends, Slopes, lowest, sign_of
from reports.inputs.experiment import Experiment
from reports.stats.digits import kept, kept_p
from reports.stats.response_surface import Surface, surface_through
from reports.stats.simultaneous import Array

LEAST_POINTS = 3  # points that a quadratic goes through
MISFIT = 0.05  # level at which a quadratic surface is told not to fit


class Lowest(Enum):
    """What is told of the lowest point of the quadratic."""

    INSIDE = "inside the grid"
    FIRST = "at the first point of the grid or before it"
    LAST = "at the last point of the grid or beyond it"
    NOWHERE = "no minimum: the losses do not curve upwards"
    UNTOLD = "not told apart from the noise: more seeds or a wider grid"
    TOO_FEW = "too few whole points: a quadratic goes through three in one block"
    FEW_DRAWN = "too few whole points: a quadratic of two axes takes six, not on one conic"


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

    def place_of(self, word: str) -> float:
        """A point on the scale of the quadratic."""
        value = number_of(word)
        return math.log(value) if self.is_logarithmic else value

    def value_at(self, place: float) -> float:
        """The axis's value at a place of the scale."""
        return math.exp(place) if self.is_logarithmic else place


@dataclass(frozen=True, kw_only=True)
class Optimum:
    """Where an arm of the design has its lowest loss along an axis."""

    arm: str
    axis: GridAxis
    where: Lowest
    value: float | None  # of the axis, where it is among the points
    low: float | None  # None: beyond the points, or where nothing is resolved
    high: float | None
    is_resolved: bool  # whether the runs tell it apart from the noise
    n_blocks: int
    left_out: tuple[str, ...]  # points at which not every run finished
    is_drawn: bool = False  # whether the points were drawn
    doubt: str = ""  # what a surface does, for which it tells no region
    surface: Surface | None = None  # of drawn points, the same for both axes
    region: Array | None = field(default=None, compare=False)  # its edge (m, 2), on the scales

    @property
    def lack_of_fit(self) -> float | None:
        """The p of the test whether the quadratic of drawn points fits."""
        return None if self.surface is None else self.surface.lack_of_fit

    def to_mapping(self) -> Content:
        """As `compare --json` has it."""
        return {
            "arm": self.arm,
            "axis": self.axis.name,
            "where": self.where.name.lower(),
            "value": kept(self.value),
            "low": kept(self.low),
            "high": kept(self.high),
            "is_resolved": self.is_resolved,
            "lack_of_fit": kept_p(self.lack_of_fit),
            "n_blocks": self.n_blocks,
            "left_out": list(self.left_out),
            "doubt": self.doubt,
        }


def number_of(word: str) -> float:
    """A point of an axis as a number: its factor, or its value."""
    return float(word.removeprefix("x"))


def optima(experiment: Experiment, *, level: float = 0.95) -> list[Optimum]:
    """One for every arm of the design and every axis, the baseline first.

    [] without an axis, with three or more between whose ends points were drawn, or before a run has
    an outcome."""
    plan = experiment.plan
    is_scattered = plan.draw is not None and len(plan.axes) > 1  # along no axis lies another point
    if not plan.axes or (is_scattered and len(plan.axes) > 2) or experiment.memory.lost:
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
    places: list[Optimum] = []
    asked, anytime = [], samples.watched(experiment)
    for arms in of_design.values():
        if is_scattered:
            alpha = None if anytime else (1 - level) / len(of_design)
            places += _of_surface(losses, [*plan.axes], arms, alpha)
            continue
        whole = [arm for arm in arms if has_finished(losses, arm.name)]
        for axis in plan.axes:
            asked.append((axis, arms, whole))
    for axis, arms, whole in asked:
        alpha = (1 - level) / len(asked)
        places.append(_optimum(losses, axis, (arms, whole), alpha, anytime=anytime))
    return [replace(o, is_drawn=plan.draw is not None) for o in places]


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


def _of_surface(
    losses: pd.DataFrame, names: Sequence[str], arms: Sequence[PlanArm], alpha: float | None
) -> list[Optimum]:
    """Of an arm at points drawn along two axes: one for each, of one surface.

    alpha: None where the seeds are not those that were planned."""
    whole = [arm for arm in arms if has_finished(losses, arm.name)]
    left_out = tuple(others_of(arm, "") for arm in arms if arm not in whole)
    axes, y = [], np.empty((0, len(whole), 1))
    for name in names:
        on_axis = {arm.point[name] for arm in whole or arms}
        axes.append(GridAxis(name=name, words=tuple(sorted(on_axis, key=number_of))))
    if whole:
        y = _losses_along(losses, [{"": arm.name} for arm in whole])
    on_scales = [[axis.place_of(arm.point[axis.name]) for axis in axes] for arm in whole]
    surface = surface_through(y[:, :, 0], np.array(on_scales).reshape(-1, len(names)))
    if surface is None:
        few = (Lowest.FEW_DRAWN, None, None)
        return [_optimum_of(axis, arms[0].of, few, 0, left_out) for axis in axes]
    doubt = _doubt_of(surface, alpha)
    told, edge = _told_of(surface, None if doubt else alpha)
    places = []
    for axis, of_axis in zip(axes, told, strict=True):
        place = _optimum_of(axis, arms[0].of, of_axis, len(y), left_out)
        places.append(replace(place, doubt=doubt, surface=surface, region=edge))
    return places


def _doubt_of(surface: Surface, alpha: float | None) -> str:
    """Why a surface tells no region, as what it does; '' where it may tell one."""
    p = surface.lack_of_fit
    if p is not None and p < MISFIT:
        return "does not fit the losses (lack of fit): draw points between narrower ends"
    if alpha is None:
        return "tells a region of planned seeds alone, all of them there and none looked at before"
    return ""


def _told_of(
    surface: Surface, alpha: float | None
) -> tuple[Sequence[tuple[Lowest, float | None, Ends | None]], Array | None]:
    """(what is told along each axis: where, the place and its ends; the region's edge (m, 2)).

    Ends beyond the points are infinite. alpha: None where nothing is judged."""
    if not (surface.is_bowl and surface.is_inside):
        return [(_beyond(surface, axis, alpha), None, None) for axis in (0, 1)], None
    first, second = map(float, surface.at(surface.stationary))
    edge = None if alpha is None else surface.edge(alpha)
    if edge is None or alpha is None:
        return [(Lowest.INSIDE, first, None), (Lowest.INSIDE, second, None)], None
    (low, high), (left, right) = surface.at(surface.ends(edge, alpha).T).T.tolist()
    of_first, of_second = (
        (Lowest.INSIDE, first, (low, high)),
        (Lowest.INSIDE, second, (left, right)),
    )
    return [of_first, of_second], surface.at(edge)


def _beyond(surface: Surface, axis: int, alpha: float | None) -> Lowest:
    """What is told along an axis of a surface without a lowest point among its points."""
    if alpha is None:
        return Lowest.UNTOLD
    sign = surface.slope_sign(axis, alpha / 2)  # the other half is that of the region
    if sign:
        return Lowest.FIRST if sign > 0 else Lowest.LAST
    if surface.is_told_no_bowl(alpha / 2):
        return Lowest.NOWHERE
    return Lowest.UNTOLD


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
