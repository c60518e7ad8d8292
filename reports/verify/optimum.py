"""The second path for the places of the lowest loss along the axes.

By the parabola's vertex through the mean losses, and, in complete blocks of planned seeds, by the
slope at each printed end against the two-way model's common error: an end may stand no closer than
that gives. Which places have an interval, and all words, are left to the rerun in rendered.py.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy import stats

from reports.verify.page import Embedded, Page, Row, numbers
from reports.verify.surface import check_surfaces
from reports.verify.table import ALPHA

OF_PLACE = 1e-4  # of the logarithm: what a page leaves off, and what a fit may be off
CLOSER = 1e-3  # of a half width
OF_EFFECT = 6e-5  # nats: half of a printed unit


def check_optima(
    page: Page,
    index: int,
    plan: Embedded,
    rows: Sequence[Row],
    *,
    raised: float,
    anytime: bool,
) -> Iterator[str]:
    """Sentences on places that are printed otherwise than the rows give.

    rows: compared ones of the loss. index: of the experiment on the page. raised: by how much the
    family of the results folder is larger than the experiment. anytime: it shows sequences.
    """
    printed = [numbers(v) for k, v in page.carried.items() if k[:2] == (index, "optimum")]
    if plan.get("draw") and len(plan.get("axes") or {}) == 2:
        yield from check_surfaces(printed, plan, rows, raised=raised)
        return
    lowest = [fit for fit in fitted(plan, rows)]
    if len(printed) != len(lowest):
        if plan.get("axes") and (printed or lowest):
            yield f"{len(printed)} lowest places are printed but the rows give {len(lowest)}"
        return
    m = len(lowest) * raised
    for (who, places, y), (value, *ends) in zip(lowest, printed, strict=True):
        logarithmic = places[0] == "log"
        x = np.array(places[1:], float)
        bend, tilt, _ = np.polyfit(x, y.mean(0), 2)
        if value is not None and abs(vertex(bend, tilt) - on_axis(value, logarithmic)) > OF_PLACE:
            yield f"{who}: the lowest loss is printed at {value:g}, the rows give another place"
        if anytime:
            continue
        for end in ends:
            if end is not None and is_too_close(y, x, on_axis(end, logarithmic), m):
                yield f"{who}: the end {end:g} of the lowest place is closer than its error gives"


def check_signs(page: Page, index: int, plan: Embedded, rows: Sequence[Row]) -> Iterator[str]:
    """What the headline of an axis says of an arm at every point, against plain means of blocks."""
    answer = page.sentences.get((index, "answer"), "")
    first = next(a["of"] for a in plan["arms"] if a["name"] == plan["baseline"])
    for who in dict.fromkeys(arm.get("of") or arm["name"] for arm in plan["arms"]):
        of_points = point_effects(plan["arms"], (first, who), rows)
        start = rf"{re.escape(who)} against {re.escape(first)} at the same point: "
        about = re.search(rf"{start}(.*?)\.(?= |$)", answer)
        if about is None or who == first or of_points is None:
            continue
        for printed in re.findall(r"([+−][\d.]+) \[", about[1]):
            told = float(printed.replace("−", "-"))
            if min(abs(told - delta) for delta in of_points) > OF_EFFECT:
                yield f"{who}: the headline says {printed} at a point, its rows {of_points}"
        said = re.match(r"(better|worse) at every one of (\d+), least by ([+−][\d.]+) ", about[1])
        if said is None:
            continue
        least = min(of_points, key=abs)
        signs = {delta > 0 for delta in of_points}
        if signs != {said[1] == "worse"} or len(of_points) != int(said[2]):
            yield f"{who}: the headline says {said[0].strip()}, its rows {of_points}"
        elif abs(float(said[3].replace("−", "-")) - least) > OF_EFFECT:
            yield f"{who}: the headline says least by {said[3]}, its rows {least:+.4f}"


def point_effects(
    arms: Sequence[Embedded], pair: tuple[str, str], rows: Sequence[Row]
) -> list[float] | None:
    """The mean difference of two arms of the design at each point; None where blocks have holes."""
    at: dict[str, dict[str, dict[Any, float]]] = {}
    for arm in arms:
        of_arm = {row["block"]: row["val_loss"] for row in rows if row["arm"] == arm["name"]}
        at.setdefault(str(sorted(arm["point"].items())), {})[arm.get("of") or arm["name"]] = of_arm
    effects = []
    for of_point in at.values():
        if not set(pair) <= set(of_point):
            continue
        base, mine = of_point[pair[0]], of_point[pair[1]]
        if not base or {*base} != {*mine} or None in (*base.values(), *mine.values()):
            return None
        effects.append(math.fsum(mine[block] - base[block] for block in base) / len(base))
    return effects or None


def vertex(bend: float, tilt: float) -> float:
    """Where a parabola turns."""
    return -tilt / (2 * bend)


def on_axis(value: float, logarithmic: bool) -> float:
    return math.log(value) if logarithmic else value


def is_too_close(y: Any, x: Any, end: float, m: float) -> bool:
    """Whether the slope at an end is told from zero less than Student's t asks.

    y: losses (n, k); m: of the family."""
    n, k = y.shape
    residuals = y - y.mean(0) - y.mean(1, keepdims=True) + y.mean()
    variance = float((residuals**2).sum()) / ((n - 1) * (k - 1))
    slopes = np.array([np.polyval(np.polyder(np.polyfit(x, unit, 2)), end) for unit in np.eye(k)])
    half = stats.t.isf(ALPHA / m / 2, (n - 1) * (k - 1)) * math.sqrt(variance * slopes @ slopes / n)
    return abs(float(y.mean(0) @ slopes)) < half * (1 - CLOSER)


def fitted(plan: Embedded, rows: Sequence[Row]) -> Iterator[tuple[str, Sequence[Any], Any]]:
    """(arm and axis, scale and places, losses (n, k)) of every axis of three finished points."""
    first = next(a["of"] for a in plan["arms"] if a["name"] == plan["baseline"])
    axes = plan.get("axes") or {}
    if plan.get("draw") and len(axes) > 1:
        return
    on_axes = [arm for arm in plan["arms"] if arm.get("point")]
    designs = dict.fromkeys([first, *(arm.get("of") or arm["name"] for arm in on_axes)])
    for design in designs:
        arms = [arm for arm in on_axes if (arm.get("of") or arm["name"]) == design]
        for axis in axes:
            fit = along(axis, arms, rows)
            if fit is not None:
                yield (f"{design}, {axis}", *fit)


def along(
    axis: str, arms: Sequence[Embedded], rows: Sequence[Row]
) -> tuple[Sequence[Any], Any] | None:
    """The places of an axis, one for each point of the others, and the losses (n, k) there."""
    at: dict[float, dict[str, dict[Any, float]]] = {}
    for arm in arms:
        mine = [row for row in rows if row["arm"] == arm["name"]]
        if mine and all(row["status"] == "finished" for row in mine):
            blocks: dict[Any, list[float]] = {}
            for row in mine:
                if row["block"] is not None:
                    blocks.setdefault(row["block"], []).append(row["val_loss"])
            means = {block: sum(losses) / len(losses) for block, losses in blocks.items()}
            others = str({k: v for k, v in arm["point"].items() if k != axis})
            value = float(arm["point"][axis].removeprefix("x"))
            at.setdefault(value, {})[others] = means
    if len(at) < 3:
        return None
    values = sorted(at)
    everywhere = sorted(set.intersection(*map(set, at.values())))
    cells = [(value, at[value][others]) for value in values for others in everywhere]
    shared = set.intersection(*(set(losses) for _, losses in cells)) if cells else set()
    if not shared:
        return None
    y = np.array([[losses[block] for _, losses in cells] for block in sorted(shared)])
    places = [value for value, _ in cells]
    if values[0] > 0:
        return ["log", *map(math.log, places)], y
    return ["linear", *places], y
