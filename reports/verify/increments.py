"""The second path for own parts: a ladder's rungs against the one before, a chain's arms too.

From the page's rows: in complete blocks the larger of the two errors by its formulas, at a share of
the error rate; while runs are to come the ends of each pair's sequence. Ladders with holes have no
second formula here; their estimates and words are left to the rerun in rendered.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean

import numpy as np
from scipy import stats

from reports.verify.blocks import errors_of, variances_of_arms
from reports.verify.page import Embedded, Printed, Row
from reports.verify.sequences import check_sequences
from reports.verify.table import ALPHA, Table, agree_p, agree_scatter, near, on_scale

OWN = "own_"  # how the keys of an own part begin
OF_VALUE = 1e-6  # what a page leaves off
NO_SPREAD = 1e-20
WHAT = ("effect", "interval", "p")  # is printed of it


def planned_pairs(plan: Embedded) -> Sequence[tuple[str, str]]:
    """(held against, arm) of a ladder or chain; () where no arm has a part of its own."""
    if plan.get("evidence") or plan.get("axes"):
        return ()
    if plan["design"] == "chain":
        parents = plan.get("parents") or {}
        named = [arm["name"] for arm in plan["arms"] if arm["name"] != plan["baseline"]]
        there = {*named, plan["baseline"]}
        pairs = [(parents[name], name) for name in named if parents.get(name) in there]
        return pairs if {below for below, _ in pairs} - {plan["baseline"]} else ()
    if plan["design"] != "ladder":
        return ()
    first = [arm for arm in plan["arms"] if arm["name"] == plan["baseline"]]
    arms: Sequence[Embedded] = first + [
        arm for arm in plan["arms"] if arm["name"] != plan["baseline"]
    ]
    lengths: Sequence[tuple[str, str]] = ()
    if is_bundle(plan):
        every, arms = arms, _without_lengths(arms)
        lengths = [*_of_lengths(every, arms)]
    for below, above in pairwise(arms):
        more = set(above["changes"])
        if not more.issuperset(below["changes"]) or len(more) == len(set(below["changes"])):
            return ()
    names = [arm["name"] for arm in arms]
    pairs = [*pairwise(names), *lengths]
    return pairs if {below for below, _ in pairs} - {plan["baseline"]} else ()


def is_bundle(plan: Embedded) -> bool:
    """Whether its changes are parts of a difference that was taken apart."""
    return bool(plan.get("foreign") and plan.get("remarks"))


def _without_lengths(arms: Sequence[Embedded]) -> Sequence[Embedded]:
    """The arms of a bundle's ladder without those with changes that the first rung's holders lack.

    The arms that measure what steps are worth have a change that no arm shares with the first rung
    but the last one."""
    with_first = [arm for arm in arms if set(arms[1]["changes"]) <= set(arm["changes"])]
    apart = {c for arm in arms[1:] if arm not in with_first for c in arm["changes"]}
    return [arm for arm in arms if not apart & set(arm["changes"])]


def _of_lengths(every: Sequence[Embedded], rungs: Sequence[Embedded]) -> Iterator[tuple[str, str]]:
    """(the rung that has all else of it, arm) of the arms that are no rung."""
    parts = {change for rung in rungs for change in rung["changes"]}
    for arm in every:
        rest = parts & set(arm["changes"])
        same = [rung["name"] for rung in rungs if set(rung["changes"]) == rest]
        if arm not in rungs and same:
            yield same[0], arm["name"]


def check_increments(
    metric: str,
    rows: Sequence[Row],
    printed: Mapping[str, Mapping[str, Printed]],
    plan: Embedded,
    *,
    raised: float,
    anytime: bool,
) -> Iterator[str]:
    """Sentences on own parts that are printed otherwise than the rows give.

    rows: outcomes compared on this metric, without copies; raised: by how much the family of the
    memory is larger than the ladder; anytime: whether it shows sequences.
    """
    pairs = planned_pairs(plan)
    if not pairs:
        return
    rungs = [*dict.fromkeys(name for pair in pairs for name in pair)]
    m, key = len(pairs) * raised, f"{OWN}{metric}"
    if anytime:
        for below, above in pairs:
            if f"{key}.effect" in printed[above]:
                table = Table.of(metric, below, rows)
                shown = {f"{metric}.{what}": printed[above].get(f"{key}.{what}") for what in WHAT}
                pair = {above: {name: part for name, part in shown.items() if part is not None}}
                yield from check_sequences(table, [above], pair, m)
        return
    table = Table.of(metric, rungs[0], rows)
    noisy = any(arm.get("alters_noise") for arm in plan["arms"])
    if noisy or set(table.blocks) != set(rungs) or table.n_blocks() < 2 or not table.complete():
        return
    y = np.array([[table.blocks[arm][block] for block in table.blocks[rungs[0]]] for arm in rungs])
    residuals = y - y.mean(0) - y.mean(1, keepdims=True) + y.mean()
    if float((residuals**2).sum()) < NO_SPREAD:
        return
    variances = variances_of_arms(residuals)
    for below, above in pairs:
        effect = printed[above].get(f"{key}.effect")
        if effect is None:
            continue
        first, second = rungs.index(below), rungs.index(above)
        yield from agree_scatter(printed[above], key, list(y[second] - y[first]), above)
        difference = fmean(y[second]) - fmean(y[first])
        errors = errors_of(residuals, max(variances[first], variances[second]))
        half = max(float(stats.t.isf(ALPHA / m / 2, e.df)) * e.se for e in errors)
        if not near(on_scale(effect.values[0], metric), difference, OF_VALUE):
            yield (
                f"arm {above!r}: {key}.effect is printed as {effect.text} but it lies"
                f" {difference:.6g} from {below!r}"
            )
        ends = printed[above].get(f"{key}.interval")
        shown_ends = ends.values if ends is not None else (None, None)
        for end, sign in zip(shown_ends, (-1, 1)):
            if not near(on_scale(end, metric), difference + sign * half, OF_VALUE):
                yield (
                    f"arm {above!r}: {key}.interval does not end at {difference + sign * half:.5f},"
                    " as its blocks give"
                )
        p = max(float(2 * stats.t.sf(abs(difference) / e.se, e.df)) for e in errors)
        yield from agree_p(printed[above], key, min(1.0, m * p), above)
