"""Points drawn between the ends of axes, instead of a grid of all combinations.

The seed stands in the file, so that the same file draws the same points everywhere. Between ends
above zero they are even in the logarithm.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import qmc

from harness.experiment.axes import Axis, GridPoint, number_of
from harness.experiment.file import ExperimentFile
from harness.experiment.keys import is_whole
from harness.experiment.values import holds_whole
from harness.run.document import Content

MOST_DRAWN = 1000  # points of one draw
WAYS = ("sobol", "random")
EXAMPLE = "{sobol: 16}, or {random: 16, seed: 1}"


@dataclass(frozen=True, kw_only=True)
class Draw:
    """How many points are drawn, and how."""

    way: str  # sobol or random
    n: int
    seed: int

    def to_mapping(self) -> Content:
        return {self.way: self.n, "seed": self.seed}


def read_draw(file: ExperimentFile, axes: Sequence[Axis]) -> Draw | None:
    """`draw`; None where the axes are a grid. Raises UserError for axes that are no ranges."""
    value = file.data.get("draw")
    if value is None:
        return None
    draw = _draw_of(file, value)
    if not axes:
        raise file.fail("draw: points are drawn between the ends of `axes`: give some", "draw")
    for axis in axes:
        ends = [*map(number_of, axis.points)]
        if len(ends) != 2 or not ends[0] < ends[1]:
            raise file.fail(
                f"axis {axis.name} is [{', '.join(axis.points)}], but with `draw` it must be its "
                "two ends, such as [x0.25, x4]",
                "axes",
                axis.name,
            )
    return draw


def _draw_of(file: ExperimentFile, value: Any) -> Draw:
    ways = [way for way in WAYS if isinstance(value, dict) and way in value]
    if len(ways) == 1 and not set(value) - {*ways, "seed"}:
        n, seed = value[ways[0]], value.get("seed", 0)
        if is_whole(n) and 2 <= n <= MOST_DRAWN and is_whole(seed) and 0 <= seed < 2**31:
            return Draw(way=ways[0], n=n, seed=seed)
    raise file.fail(
        f"draw is {value!r}, but must be such as {EXAMPLE}, with 2 to {MOST_DRAWN} points", "draw"
    )


def drawn(axes: Sequence[Axis], draw: Draw) -> list[GridPoint]:
    """The points, in the order of the draw; those that rounding makes equal once."""
    rng = np.random.default_rng(draw.seed)
    if draw.way == "random":
        places = rng.random((draw.n, len(axes)))
    else:
        sampler = qmc.Sobol(len(axes), seed=rng)
        places = sampler.random_base2(math.ceil(math.log2(draw.n)))[: draw.n]
    points: dict[tuple[str, ...], GridPoint] = {}
    for row in places:
        point = tuple(_word(axis, float(u)) for axis, u in zip(axes, row, strict=True))
        points[point] = {axis.name: word for axis, word in zip(axes, point, strict=True)}
    return list(points.values())


def _word(axis: Axis, u: float) -> str:
    """The value at a share u of the way between an axis's ends, to three digits."""
    low, high = map(number_of, axis.points)
    value = low * (high / low) ** u if low > 0 else low + u * (high - low)
    if axis.relative:
        return f"x{value:.3g}"
    if all(map(holds_whole, axis.fields)):
        return str(round(value))
    return f"{value:.3g}"
