"""The second path for contributions: what is lost without a change, what it does alone, its share.

From the page's rows, in blocks that hold every arm of the baseline's length: values as plain means,
intervals of pairs of arms by the formulas of blocks.py; in steps and seconds with the slope of the
arms that differ in length. The error of a Shapley share is left to the rerun in rendered.py.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np
from scipy import stats

from reports.verify.blocks import errors_of, variances_of_arms
from reports.verify.increments import is_bundle
from reports.verify.page import Embedded, Page, Row, numbers
from reports.verify.table import ALPHA, near

ALIKE_SQUARES = 1e-20
OF_CARRIED = 1e-5  # relative: what a page leaves off
Sets = Mapping[frozenset[str], str]  # changes -> the arm that has them
Weights = Mapping[str, float]  # arm -> its weight in a contrast
LARGEST_REST = ("factorial", "shapley", "leave-one-out")


@dataclass(frozen=True, kw_only=True)
class WantedShare:
    """One number that a table prints."""

    who: str
    weights: Weights
    alpha: float


def check_contributions(
    page: Page, index: int, plan: Embedded, rows: Sequence[Row], *, raised: float, anytime: bool
) -> Iterator[str]:
    """Sentences on contributions that are printed otherwise than the rows give.

    rows: compared ones of the loss; index: of the experiment on the page; raised: by how much the
    family of the results folder is larger than the experiment; anytime: it shows sequences."""
    sets, others = _sets(plan, rows)
    wanted = _wanted(plan["design"], sets, ALPHA / raised, of_bundle=is_bundle(plan))
    slope = _measured_slope(rows, sets, others) if plan.get("foreign") else None
    for metric in ("val_loss", "steps", "seconds"):
        key = (index, f"attribution-{metric}")
        printed = [numbers(v) for place, v in page.carried.items() if place[:2] == key]
        if not printed or (metric != "val_loss" and slope is None):
            continue
        if len(printed) != len(wanted):
            yield f"{key[1]}: {len(printed)} numbers are printed, the arms give {len(wanted)}"
            continue
        for share, carried in zip(wanted, printed, strict=True):
            for place, at in enumerate(_expected(metric, share, rows, sets, slope)):
                if at is None or place >= len(carried) or (place and anytime):
                    continue
                told = carried[place]
                if told is None or not near(told, at, OF_CARRIED):
                    yield f"{key[1]}, {share.who}: {told} is printed, the rows give {at:.6g}"


def _sets(plan: Embedded, rows: Sequence[Row]) -> tuple[Sets, Sets]:
    """The arms of the baseline's length, and those of another one, by their changes."""
    same: dict[frozenset[str], str] = {}
    others: dict[frozenset[str], str] = {}
    lengths = {row["arm"]: row["budget"] for row in rows if row["status"] == "finished"}
    for arm in plan["arms"]:
        name = arm["name"]
        if (arm.get("of") or name) != name:
            continue
        is_same = lengths.get(name) == lengths.get(plan["baseline"])
        kept = same if is_same or not plan.get("foreign") else others
        kept[frozenset(arm["changes"])] = name
    return same, others


def _wanted(design: str, sets: Sets, alpha: float, *, of_bundle: bool) -> list[WantedShare]:
    """The numbers of a table in the order in which it prints them."""
    changes = [*dict.fromkeys(change for s in sets for change in sorted(s))]
    everything, nothing = frozenset(changes), frozenset[str]()
    if of_bundle and design in ("ladder", "add-one"):
        wanted = _of_ladder(sets) if design == "ladder" else _of_added(sets, changes)
        alphas = alpha / max(1, len(wanted))
        shares = [WantedShare(who=who, weights=w, alpha=alphas) for who, w in wanted.items()]
        if everything in sets and shares:
            weights = {sets[everything]: 1.0, sets[nothing]: -1.0}
            shares.append(WantedShare(who="all together", weights=weights, alpha=alpha))
        return shares
    columns: dict[str, dict[str, Weights]] = {"alone": {}, "shapley": {}, "left_out": {}}
    orders = []
    if design in ("factorial", "shapley"):
        for order in itertools.permutations(changes):
            if all(frozenset(order[:n]) in sets for n in range(len(order) + 1)):
                orders.append(order)
    for change in changes:
        if frozenset({change}) in sets:
            columns["alone"][change] = {sets[frozenset({change})]: 1.0, sets[nothing]: -1.0}
        rest = everything - {change}
        if design in LARGEST_REST:
            without = [s for s in sorted(sets, key=sorted) if change not in s]
            rest = max(without, key=len)
        if everything in sets and rest in sets:
            columns["left_out"][change] = {sets[everything]: 1.0, sets[rest]: -1.0}
        if orders:
            columns["shapley"][change] = _shapley(change, orders, sets)
    shown = [column for column in columns.values() if column]
    several = max((sum(change in column for column in shown) for change in changes), default=0)
    if several < (1 if of_bundle else 2) and design != "leave-one-out":
        return []
    if not changes or (len(changes) < 2 and not of_bundle):
        return []
    wanted_shares = []
    for change in changes:
        for column in shown:
            if change in column:
                share = WantedShare(who=change, weights=column[change], alpha=alpha / len(column))
                wanted_shares.append(share)
    if everything in sets:
        weights = {sets[everything]: 1.0, sets[nothing]: -1.0}
        wanted_shares.append(WantedShare(who="all together", weights=weights, alpha=alpha))
    return wanted_shares


def _of_ladder(sets: Sets) -> dict[str, Weights]:
    """What each rung adds to the one before it."""
    before, *above = sorted(sets, key=len)
    wanted: dict[str, Weights] = {}
    for rung in above:
        if before < rung:
            wanted[" and ".join(sorted(rung - before))] = {sets[rung]: 1.0, sets[before]: -1.0}
            before = rung
    return wanted


def _of_added(sets: Sets, changes: Sequence[str]) -> dict[str, Weights]:
    """What each change adds to what it needs, where that was run; else it with that."""
    wanted: dict[str, Weights] = {}
    for change in changes:
        size = min(len(s) for s in sets if change in s)
        smallest = min((s for s in sets if change in s and len(s) == size), key=sorted)
        before = smallest - {change}
        other = sets[before] if before in sets else sets[frozenset()]
        wanted[change] = {sets[smallest]: 1.0, other: -1.0}
    return wanted


def _shapley(change: str, orders: Sequence[Sequence[str]], sets: Sets) -> Weights:
    """Of all orders the mean of what a change adds where it comes."""
    weights: dict[str, float] = {}
    for order in orders:
        n = order.index(change)
        for end, sign in ((n + 1, 1.0), (n, -1.0)):
            arm = sets[frozenset(order[:end])]
            weights[arm] = weights.get(arm, 0.0) + sign / len(orders)
    return {arm: weight for arm, weight in weights.items() if abs(weight) > 1e-12}


# ---------------------------------------------------------------- what the rows give


@dataclass(frozen=True, kw_only=True)
class _Slope:
    """Nats that a log step gains: its mean, error and df; steps and seconds of the baseline."""

    value: float
    se: float
    df: int
    steps: float
    seconds: float


def _arms_by_block(rows: Sequence[Row], metric: str) -> dict[str, dict[object, float]]:
    values: dict[str, dict[object, float]] = {}
    for row in rows:
        if row["status"] == "finished" and row["block"] is not None and row[metric] is not None:
            values.setdefault(row["arm"], {})[row["block"]] = row[metric]
    return values


def _measured_slope(rows: Sequence[Row], sets: Sets, others: Sets) -> _Slope | None:
    """From the arms that differ in length alone, a mean per block."""
    baseline = sets.get(frozenset())
    losses = _arms_by_block(rows, "val_loss")
    steps = {row["arm"]: row["budget"] for row in rows if row["status"] == "finished"}
    if not others or baseline not in losses:
        return None
    longer = min(others, key=len)
    pairs = []
    for s, arm in others.items():
        partner = sets.get(s - longer)
        if longer <= s and partner in losses and arm in losses:
            pairs.append((partner, arm))
    gained = []
    for block in losses[baseline]:
        slopes = []
        for one, other in pairs:
            if block in losses[one] and block in losses[other]:
                of_both = losses[one][block] - losses[other][block]
                slopes.append(of_both / math.log(steps[other] / steps[one]))
        if pairs and len(slopes) == len(pairs):
            gained.append(fmean(slopes))
    if len(gained) < 2:
        return None
    took = [
        row["train_time_s"]
        for row in rows
        if (row["arm"], row["status"]) == (baseline, "finished") and row["train_time_s"] is not None
    ]
    return _Slope(
        value=fmean(gained),
        se=stdev(gained) / math.sqrt(len(gained)),
        df=len(gained) - 1,
        steps=steps[baseline],
        seconds=fmean(took) if took else math.nan,
    )


def _expected(
    metric: str, share: WantedShare, rows: Sequence[Row], sets: Sets, slope: _Slope | None
) -> tuple[float | None, float | None, float | None]:
    """The value and the ends; None for what has no formula here.

    slope: that turns a loss into steps or seconds, None for the loss itself."""
    if metric == "val_loss" or slope is None:
        value, half = _contrast(share, rows, sets, share.alpha, 1.0, 0.0)
        return (value, *_printed_ends([(value, half)]))
    worth, of_time = (slope.steps, 0.0) if metric == "steps" else (slope.seconds, 1.0)
    value, _ = _contrast(share, rows, sets, share.alpha, worth / slope.value, of_time)
    reach = float(stats.t.isf(share.alpha / 4, slope.df)) * slope.se
    if slope.value <= reach:
        return value, None, None
    at_ends = []
    for at in (slope.value - reach, slope.value + reach):
        at_ends.append(_contrast(share, rows, sets, share.alpha / 2, worth / at, of_time))
    return (value, *_printed_ends(at_ends))


def _printed_ends(
    estimates: Sequence[tuple[float, float | None]],
) -> tuple[float | None, float | None]:
    halves = [half for _, half in estimates if half is not None]
    if len(halves) < len(estimates):
        return None, None
    low = min(value - half for (value, _), half in zip(estimates, halves, strict=True))
    high = max(value + half for (value, _), half in zip(estimates, halves, strict=True))
    return low, high


def _contrast(
    share: WantedShare,
    rows: Sequence[Row],
    sets: Sets,
    alpha: float,
    of_loss: float,
    of_time: float,
) -> tuple[float, float | None]:
    """The contrast of of_loss times the loss plus of_time times the time, and its half width.

    alpha: of the interval. None for the half width of a contrast of more than two arms."""
    losses, times = _arms_by_block(rows, "val_loss"), _arms_by_block(rows, "train_time_s")
    arms = [*sets.values()]
    tables = [losses, times] if of_time else [losses]
    blocks = set.intersection(*(set(table.get(arm, ())) for table in tables for arm in arms))
    values = []
    for arm in arms:
        in_blocks = []
        for block in blocks:
            time = of_time * times[arm][block] if of_time else 0.0
            in_blocks.append(of_loss * losses[arm][block] + time)
        values.append(in_blocks)
    if not blocks:
        return math.nan, None
    y = np.array(values)
    value = math.fsum(share.weights.get(arm, 0.0) * fmean(y[n]) for n, arm in enumerate(arms))
    residuals = y - y.mean(0) - y.mean(1, keepdims=True) + y.mean()
    scale = max(1.0, of_loss**2)
    if (
        len(share.weights) != 2
        or len(blocks) < 2
        or float((residuals**2).sum()) < ALIKE_SQUARES * scale
    ):
        return value, None
    variances = variances_of_arms(residuals)
    larger = max(variances[n] for n, arm in enumerate(arms) if arm in share.weights)
    errors = errors_of(residuals, larger)
    return value, max(float(stats.t.isf(alpha / 2, e.df)) * e.se for e in errors)
