"""The second path for the lowest places of points drawn along two axes.

The quadratic's coefficients are least squares of the runs with a column for every block, in
logarithms where a place is above zero. Its lowest place is where both derivatives are zero; at a
printed end of an axis no value of the other one may have slopes that are told apart from zero less
than F asks of the common error. Which places have a region, how far a point of its own error moves
an end, and all words, are left to the rerun in rendered.py.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize, stats

from reports.verify.page import Embedded, Row
from reports.verify.table import ALPHA

OF_AXIS = 1e-4  # of the axis: what a page leaves off, and what a fit may be off
OF_BOUND = 1e-3  # of F's bound
OF_P = 1e-5
TRIES = 401  # values of the other axis, before the best is made better
SPREADS = 6.0  # of the points' range, to either side of the lowest place


@dataclass(frozen=True, kw_only=True)
class Bowl:
    """The least squares of one arm's runs."""

    who: str
    axes: tuple[str, ...]
    logarithmic: tuple[bool, ...]
    spread: tuple[float, float]  # of the points along each axis
    beta: Any  # (5,) of x, y, x², xy, y²
    covariance: Any  # (5, 5)
    df: int
    lack_of_fit: float | None

    def slopes(self, x: float, y: float) -> Any:
        """Rows (2, 5) of the derivatives."""
        return np.array([[1, 0, 2 * x, y, 0], [0, 1, 0, x, 2 * y]])

    def lowest(self) -> Any:
        x, y, xx, xy, yy = self.beta
        return np.linalg.solve([[2 * xx, xy], [xy, 2 * yy]], [-x, -y])

    def told(self, x: float, y: float) -> float:
        """How far both slopes together are from zero, as F has it."""
        rows = self.slopes(x, y)
        slopes = rows @ self.beta
        return float(slopes @ np.linalg.solve(rows @ self.covariance @ rows.T, slopes)) / 2

    def told_at(self, axis: int, value: float) -> float:
        """The least of it over the other axis, where this one has a value."""
        other = 1 - axis
        middle, room = self.lowest()[other], SPREADS * self.spread[other]

        def of(free: float) -> float:
            return self.told(value, free) if axis == 0 else self.told(free, value)

        tries = np.linspace(middle - room, middle + room, TRIES)
        best = int(np.argmin([of(free) for free in tries]))
        ends = tries[max(best - 1, 0)], tries[min(best + 1, TRIES - 1)]
        return float(optimize.minimize_scalar(of, bounds=ends, method="bounded").fun)


def check_surfaces(
    printed: Sequence[Sequence[float | None]],
    plan: Embedded,
    rows: Sequence[Row],
    *,
    raised: float,
) -> Iterator[str]:
    """Sentences on surfaces that are printed otherwise than the rows give.

    printed: of every arm and axis the place, its ends and the p of lack of fit. rows: compared ones
    of the loss. raised: by how much the family of the results folder is larger than the experiment.
    """
    bowls = [*fitted_bowls(plan, rows)]
    if len(printed) != 2 * sum(bowl is not None for bowl in bowls):
        yield f"{len(printed)} lowest places are printed, the rows give {len(bowls)} surfaces"
        return
    told = iter(printed)
    for bowl in bowls:
        if bowl is None:
            continue
        bound = stats.f.isf(ALPHA / raised / len(bowls), 2, bowl.df) if bowl.df else math.inf
        for axis, name in enumerate(bowl.axes):
            value, low, high, p = (*next(told), None)[:4]
            who = f"{bowl.who}, {name}"
            if value is not None:
                place = on_scale_of(bowl, axis, value)
                if abs(place - bowl.lowest()[axis]) > OF_AXIS:
                    yield f"{who}: the lowest loss is printed at {value:g}, the rows give another"
            if (p is None) != (bowl.lack_of_fit is None) or (
                p is not None and abs(p - (bowl.lack_of_fit or 0.0)) > OF_P
            ):
                yield f"{who}: lack of fit is printed with p {p}, the rows give {bowl.lack_of_fit}"
            for end in (low, high):
                if end is None:
                    continue
                if bowl.told_at(axis, on_scale_of(bowl, axis, end)) < bound * (1 - OF_BOUND):
                    yield f"{who}: the end {end:g} is closer than the region of its surface reaches"


def on_scale_of(bowl: Bowl, axis: int, value: float) -> float:
    return math.log(value) if bowl.logarithmic[axis] else value


def fitted_bowls(plan: Embedded, rows: Sequence[Row]) -> Iterator[Bowl | None]:
    """One for every arm of the design that was drawn along the axes; None of too few points."""
    first = next(arm["of"] for arm in plan["arms"] if arm["name"] == plan["baseline"])
    drawn = [arm for arm in plan["arms"] if arm.get("point")]
    for design in dict.fromkeys([first, *(arm["of"] for arm in drawn)]):
        yield bowl_of(design, plan, [arm for arm in drawn if arm["of"] == design], rows)


def bowl_of(who: str, plan: Embedded, arms: Sequence[Embedded], rows: Sequence[Row]) -> Bowl | None:
    """The surface through the runs of arms that have all finished, in blocks that have them all."""
    runs: dict[str, dict[Any, list[float]]] = {}
    for arm in arms:
        mine = [row for row in rows if row["arm"] == arm["name"]]
        if mine and all(row["status"] == "finished" for row in mine):
            runs[arm["name"]] = {}
            for row in mine:
                if row["block"] is not None:
                    runs[arm["name"]].setdefault(row["block"], []).append(row["val_loss"])
    whole = [arm for arm in arms if arm["name"] in runs]
    shared = sorted(set.intersection(*map(set, runs.values()))) if runs else []
    if not shared:
        return None
    places, logarithmic = [], []
    for axis in plan["axes"]:
        values = [float(arm["point"][axis].removeprefix("x")) for arm in whole]
        logarithmic.append(min(values) > 0)
        places.append([math.log(v) if logarithmic[-1] else v for v in values])
    x, y = np.repeat(places, len(shared), axis=1)
    terms = np.stack([x, y, x * x, x * y, y * y], axis=1)
    n, p = len(shared), len(whole)
    block = np.tile(np.eye(n), (p, 1))
    if np.linalg.matrix_rank(np.c_[terms - terms.mean(0), block]) < 5 + n:
        return None
    losses = np.array([np.mean(runs[arm["name"]][b]) for arm in whole for b in shared])
    columns = np.c_[terms, block]
    beta = np.linalg.lstsq(columns, losses)[0]
    rss, df = float(((losses - columns @ beta) ** 2).sum()), n * p - n - 5
    point = np.repeat(np.eye(p), n, axis=0)
    both = np.c_[point, block]
    pure = losses - both @ np.linalg.lstsq(both, losses)[0]
    noise, df_noise = float((pure**2).sum()), (n - 1) * (p - 1)
    lack_of_fit = None
    if df > df_noise > 0:
        ratio = (rss - noise) / (df - df_noise) / (noise / df_noise)
        lack_of_fit = float(stats.f.sf(ratio, df - df_noise, df_noise))
    return Bowl(
        who=who,
        axes=tuple(plan["axes"]),
        logarithmic=tuple(logarithmic),
        spread=(float(np.ptp(x)), float(np.ptp(y))),
        beta=beta[:5],
        covariance=(np.linalg.inv(columns.T @ columns) * rss / max(df, 1))[:5, :5],
        df=df,
        lack_of_fit=lack_of_fit,
    )
