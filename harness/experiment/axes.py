"""Axes: numeric grids that cross every arm of a design, the baseline too; and the retuned experiment's choice on one of them.

A grid holds numbers (0.01) or factors on what the arm has anyway (x0.5). A name may stand for several fields: optim.*_lr takes
every learning rate together.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import product
from typing import Any, get_type_hints

from harness.config.run import RunConfig, get, toggles, with_fields
from harness.config.validate import check_values
from harness.config.values import allowed_text
from harness.errors import near
from harness.experiment.file import ExperimentFile, factor_of

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

    def values(self, config: RunConfig, point: str) -> dict[str, Any]:
        """The axis' fields at a point; what is off stays off under a factor."""
        factor = float(point.removeprefix("x"))
        if not self.relative:
            return {
                f: int(factor)
                if factor.is_integer() and isinstance(get(config, f), int)
                else factor
                for f in self.fields
            }
        now = {f: get(config, f) for f in self.fields if get(config, f) is not None}
        return {
            f: max(1, round(v * factor)) if isinstance(v, int) else v * factor
            for f, v in now.items()
        }


Point = Mapping[str, str]  # axis name -> its point; empty where nothing is crossed


def is_number(field: str) -> bool:
    """Whether a dotted field holds a number, or is off."""
    section, _, name = field.partition(".")
    return any(
        words in allowed_text(get_type_hints(type(getattr(RunConfig(), section)))[name])
        for words in ("a number", "an integer")
    )


def read_axes(file: ExperimentFile) -> tuple[Axis, ...]:
    return tuple(
        _axis(file, str(name), points)
        for name, points in file.value("axes", dict, {}, "a mapping").items()
    )


def _axis(file: ExperimentFile, name: str, points: Any) -> Axis:
    known = [f for f, _ in toggles() if is_number(f)]
    if name in NOT_AN_AXIS:
        raise file.fail(
            f"axis {name}: use `{NOT_AN_AXIS[name]}`, which re-anneals every arm", "axes", name
        )
    fields = tuple(f for f in known if fnmatchcase(f, name))
    if not fields:
        raise file.fail(f"axis {name} is no numeric field{near(name, known)}", "axes", name)
    factors = [factor_of(p) for p in points] if isinstance(points, list) else []
    numbers = (
        [p for p in points if isinstance(p, int | float) and not isinstance(p, bool)]
        if isinstance(points, list)
        else []
    )
    relative = bool(factors) and None not in factors
    if (
        not points
        or not (relative or len(numbers) == len(points))
        or len(set(map(str, points))) != len(points)
    ):
        raise file.fail(
            f"axis {name} is {points!r}, but must be a list of different numbers, or of factors such as [x0.5, x1, x2]",
            *("axes", name),
        )
    if not relative and len(fields) > 1:
        raise file.fail(
            f"axis {name} moves several fields together: give factors such as x0.5, not numbers",
            "axes",
            name,
        )
    return Axis(name=name, fields=fields, points=tuple(map(str, points)), relative=relative)


def grid(axes: tuple[Axis, ...]) -> list[Point]:
    """Every combination of the axes' points; one empty point without axes."""
    return [
        dict(zip([a.name for a in axes], points, strict=True))
        for points in product(*(a.points for a in axes))
    ]


def at_point(
    config: RunConfig, axes: tuple[Axis, ...], point: Point, where: Callable[[str], str]
) -> RunConfig:
    """The configuration at a point, its values checked; `where` names the place of a field in the file."""
    values = {
        f: v
        for axis in axes
        if axis.name in point
        for f, v in axis.values(config, point[axis.name]).items()
    }
    return with_fields(config, check_values(values, where))


def arm_name(label: str, axes: tuple[Axis, ...], point: Point) -> str:
    """'untied_head @ muon_lr x0.5'; the label alone at no point."""
    words = ", ".join(f"{a.short} {point[a.name]}" for a in axes if a.name in point)
    return f"{label} @ {words}" if words else label
