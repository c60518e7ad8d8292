"""Axes: numeric grids that cross every arm of a design, the baseline too.

And the retuned experiment's choice on one of them. A grid holds numbers (0.01) or factors on what
the arm has anyway (x0.5). A name may stand for several fields: optim.*_lr takes every learning rate
together.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import product
from typing import Any

from harness.config import plugins
from harness.config.run import RunConfig, flat, toggles, with_fields
from harness.errors import Mistakes, near
from harness.experiment.file import ExperimentFile, factor_of
from harness.experiment.values import check_values, holds_number, multiplied, off_value
from harness.run.document import Content, Fields

NOT_AN_AXIS = {"schedule.steps": "budgets"}  # field -> the key that is meant


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One key of `axes`: the fields that move together and the points they take."""

    name: str  # as the file writes it
    fields: tuple[str, ...]
    points: tuple[str, ...]  # as the file writes them: '0.01', 'x0.5'
    relative: bool  # points are factors

    @property
    def short(self) -> str:
        return self.name.partition(".")[2]

    def values(self, config: RunConfig, point: str) -> Fields:
        """The axis' fields at a point; what is off stays off under a factor."""
        number = number_of(point)
        values, of_arm = {}, flat(config)
        for field in self.fields:
            before = of_arm.get(field, off_value(field))
            if not self.relative:
                whole = isinstance(before, int) and number.is_integer()
                values[field] = int(number) if whole else number
            elif before is not None:
                values[field] = multiplied(before, number)
        return values


def number_of(point: str) -> float:
    """A point of an axis as a number: its factor, or its value."""
    return float(point.removeprefix("x"))


GridPoint = Mapping[str, str]  # axis name -> its point; empty where nothing is crossed


def read_axes(file: ExperimentFile) -> tuple[Axis, ...]:
    axes, mistakes = [], Mistakes()
    for name, points in file.value("axes", dict, {}, "a mapping").items():
        with mistakes.gathered():
            axes.append(_axis(file, str(name), points))
    mistakes.refuse()
    return tuple(axes)


def _axis(file: ExperimentFile, name: str, points: Any) -> Axis:
    if name in NOT_AN_AXIS:
        raise file.fail(
            f"axis {name}: use `{NOT_AN_AXIS[name]}`, which re-anneals every arm",
            "axes",
            name,
        )
    every = [field for field, _ in toggles()] + list(plugins.declared())
    numeric = [field for field in every if holds_number(field)]
    fields = tuple(field for field in numeric if fnmatchcase(field, name))
    if name in every and not fields:
        raise file.fail(
            f"axis {name} holds no numbers: make a change of each of its values, and "
            "`design: factorial` to combine it with others",
            "axes",
            name,
        )
    if not fields:
        raise file.fail(f"axis {name} is no numeric field{near(name, numeric)}", "axes", name)
    relative = _all_factors(points)
    if not _all_different(points) or not (relative or _all_numbers(points)):
        raise file.fail(
            f"axis {name} is {points!r}, but must be a list of different numbers, or of factors "
            "such as [x0.5, x1, x2]",
            "axes",
            name,
        )
    if not relative and len(fields) > 1:
        raise file.fail(
            f"axis {name} moves several fields together: give factors such as x0.5, not numbers",
            "axes",
            name,
        )
    return Axis(name=name, fields=fields, points=tuple(map(str, points)), relative=relative)


def _all_factors(points: Any) -> bool:
    return isinstance(points, list) and None not in map(factor_of, points)


def _all_numbers(points: Any) -> bool:
    if not isinstance(points, list):
        return False
    return all(isinstance(p, int | float) and not isinstance(p, bool) for p in points)


def _all_different(points: Any) -> bool:
    """Whether there are points, no two of them alike."""
    return isinstance(points, list) and 0 < len(points) == len(set(map(str, points)))


def grid(axes: tuple[Axis, ...]) -> list[GridPoint]:
    """Every combination of the axes' points; one empty point without axes."""
    names = [axis.name for axis in axes]
    combinations = product(*(axis.points for axis in axes))
    return [dict(zip(names, points, strict=True)) for points in combinations]


def at_point(
    config: RunConfig, axes: tuple[Axis, ...], point: GridPoint, where: Callable[[str], str]
) -> RunConfig:
    """The configuration at a point, its values checked.

    where: names the place of a field in the file.
    """
    values: Content = {}
    for axis in axes:
        if axis.name in point:
            values.update(axis.values(config, point[axis.name]))
    return with_fields(config, check_values(values, where))


def arm_name(label: str, axes: tuple[Axis, ...], point: GridPoint) -> str:
    """'untied_head @ muon_lr x0.5'; the label alone at no point."""
    places = [f"{axis.short} {point[axis.name]}" for axis in axes if axis.name in point]
    if not places:
        return label
    return f"{label} @ {', '.join(places)}"
