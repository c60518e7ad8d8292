"""The second path for effects, intervals, p values and verdict words.

From a page's rows, sharing no code with the statistics.

Estimates by backfitting arm and block means in turn; the error of complete blocks from its
formulas, its coverage by integration at the printed width (blocks.py); widened Welch intervals by
hand (separate.py); a sequence by putting its ends into the test martingale (sequences.py). What has
no formula short enough to be written twice (ragged blocks, permutations, N*) is left to the rerun
in rendered.py.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from reports.stats.digits import room, unit
from reports.verify.blocks import check_blocks
from reports.verify.increments import OWN, planned_pairs
from reports.verify.nodes import check_unknown_nodes
from reports.verify.page import Embedded, Printed, Row
from reports.verify.separate import check_separate
from reports.verify.sequences import check_sequences
from reports.verify.table import (
    LOG_SCALE,
    Table,
    agree_scatter,
    arms_elsewhere,
    arms_nowhere,
    near,
    on_scale,
    own_metrics,
)

WORDS = {
    "val_loss": ("better", "worse"),
    "step_ms": ("faster", "slower"),
    "time_to_target": ("faster", "slower"),
}
NO_INTERVAL = ("too few runs", "no error estimate", "undecided", "not judged")
EQUAL = ("no difference larger than",)
NO_DECISION = ("undecided", "too few runs")
OLD_WORDS = {"step_time": "step_ms"}  # of the plans in older pages
ENDS = re.compile(r"undecided: ([+−]?[\d.]+) to ([+−]?[\d.]+)")
UNFINISHED = ("pending", "running", "interrupted", "preempted", "claimed")


def check_effects(
    metric: str,
    rows: Sequence[Row],
    printed: Mapping[str, Mapping[str, Printed]],
    plan: Embedded,
    *,
    memory: Embedded,
    anytime: bool,
) -> Iterator[str]:
    """Sentences on what is printed otherwise than the rows give.

    rows: outcomes compared on this metric, without copies.
    metric: whose effects. memory: of what was seen. anytime: intervals hold at every look.
    """
    table = Table.of(metric, plan["baseline"], rows)
    arms = [arm["name"] for arm in plan["arms"] if arm["name"] != plan["baseline"]]
    here = [arm for arm in arms if f"{metric}.effect" in printed.get(arm, {})]
    noisy = [arm["name"] for arm in plan["arms"] if arm.get("alters_noise")]
    for arm in here:
        expected = estimate(table, arm, anytime=anytime)
        effect = printed[arm][f"{metric}.effect"]
        shown = on_scale(effect.values[0], metric)
        if expected is not None and not near(shown, expected, 1e-6):
            yield (
                f"arm {arm!r}: {metric}.effect is printed as {effect.text} but backfitting gives"
                f" {expected:.6g}"
            )
        yield from agree_scatter(printed[arm], metric, table.differences(arm), arm)
    if memory.get("lost"):
        return  # rendered.py knows which intervals there must not be
    raised = raised_by(memory, len(arms))
    if anytime:
        yield from check_sequences(table, here, printed, len(arms) * raised)
        return
    if table.diverged:
        return
    m, elsewhere = len(here) * raised, arms_elsewhere(rows, here, plan["baseline"])
    unknown = arms_nowhere(rows, here, plan["baseline"])
    if metric in LOG_SCALE and unknown:
        yield from check_unknown_nodes(table, unknown, printed, m)
    elif metric in LOG_SCALE and any(not table.differences(arm) for arm in elsewhere):
        apart = [arm for arm in elsewhere if not table.differences(arm)]
        yield from check_unknown_nodes(table, apart, printed, m)
    elif not table.n_blocks():
        yield from check_separate(table, here, printed, m)
    elif table.n_blocks() >= 2 and table.complete():
        prior = plan.get("prior_noise") if metric == "val_loss" else None
        pooled = [arm for arm in here if arm not in noisy]
        yield from check_blocks(table, pooled, printed, m, prior)
        yield from check_separate(table, [arm for arm in here if arm in noisy], printed, m)


def raised_by(memory: Embedded, n_arms: int) -> float:
    """How many changes the family has for each of these."""
    return max(1.0, (memory.get("family") or 0) / max(1, n_arms))


def estimate(table: Table, arm: str, *, anytime: bool) -> float | None:
    """Arm minus baseline.

    None where runs diverged and the estimate is a trimmed mean, or an arm repeats a block.
    """
    if not table.no_divergence_beside(arm):
        return None
    differences = table.differences(arm)
    if anytime or not differences or table.n_blocks() < 2 or table.diverged:
        if len(differences) > 1:
            return fmean(differences)
        return fmean(table.loose[arm]) - fmean(table.loose[table.baseline])
    if table.complete():
        return fmean(differences)
    if not table.one_run_a_block():
        return None
    return backfitted(table, arm)


def backfitted(table: Table, arm: str) -> float:
    """Least squares of arm + block in a table with holes.

    Arms and blocks are fitted in turn until nothing moves.
    """
    base = set(table.blocks[table.baseline])
    used = {name: values for name, values in table.blocks.items() if base & set(values)}
    blocks: dict[Any, float] = {}
    for values in used.values():
        blocks.update(dict.fromkeys(values, 0.0))
    arms = dict.fromkeys(used, 0.0)
    for _ in range(10_000):
        before = arms
        arms = arm_means(used, blocks)
        blocks = block_means(used, arms)
        if max(abs(arms[name] - before[name]) for name in arms) < 1e-13:
            break
    return arms[arm] - arms[table.baseline]


def arm_means(
    used: Mapping[str, Mapping[Any, float]], blocks: Mapping[Any, float]
) -> dict[str, float]:
    """Every arm's mean of what its blocks leave."""
    means: dict[str, float] = {}
    for arm, values in used.items():
        means[arm] = fmean(value - blocks[block] for block, value in values.items())
    return means


def block_means(
    used: Mapping[str, Mapping[Any, float]], arms: Mapping[str, float]
) -> dict[Any, float]:
    """Every block's mean of what its arms leave."""
    left: dict[Any, list[float]] = {}
    for arm, values in used.items():
        for block, value in values.items():
            left.setdefault(block, []).append(value - arms[arm])
    return {block: fmean(values) for block, values in left.items()}


def check_word(printed: Mapping[str, Printed], plan: Embedded, arm: str) -> Iterator[str]:
    """The verdict's word against the printed interval of the metric that decides.

    That of a ladder's rung is its own part's.
    """
    primary = plan.get("primary") or "val_loss"
    metric = OLD_WORDS.get(primary, primary)
    prefix = OWN if planned_pairs(plan) else ""
    if f"{metric}.effect" not in printed:
        metric = "val_loss"
    word = printed.get("verdict")
    effect = printed.get(f"{prefix}{metric}.effect")
    part = printed.get(f"{prefix}{metric}.interval")
    if word is None or effect is None:
        return
    margin = plan.get("margin")
    if metric != OLD_WORDS.get(primary, primary):
        margin = None
    if metric not in LOG_SCALE and part is not None:
        yield from check_ends(word.text, part, arm)
    if own_metrics(plan).get(metric) == "higher":
        effect, part = turned(effect), None if part is None else turned(part)
    if word.text.startswith(fitting_words(metric, effect, part, margin)):
        return
    interval = "that is missing"
    if part is not None:
        interval = part.text
    yield f"arm {arm!r}: the verdict '{word.text}' does not follow from the interval {interval}"


def check_ends(verdict: str, part: Printed, arm: str) -> Iterator[str]:
    """The two numbers of 'undecided: a to b' against the interval that is printed beside."""
    told = ENDS.match(verdict)
    if told is None:
        return
    for text, end in zip(told.groups(), part.values, strict=True):
        decimals = len(text.partition(".")[2])
        if end is None or abs(float(text.replace("−", "-")) - end) > 0.5000001 * 10.0**-decimals:
            yield f"arm {arm!r}: the verdict '{verdict}' does not tell the ends of {part.text}"
            return


def turned(printed: Printed) -> Printed:
    """The same with the other sign, as of a metric of which lower is better."""
    values = tuple(None if value is None else -value for value in reversed(printed.values))
    return Printed(text=printed.text, values=values)


def fitting_words(
    metric: str, effect: Printed, part: Printed | None, margin: float | None
) -> tuple[str, ...]:
    """How the verdict may begin beside this interval.

    part: the interval, None where none is printed; margin: of the plan, for this metric.
    """
    if part is None or not part.values:
        return NO_INTERVAL
    good, bad = WORDS.get(metric, ("better", "worse"))
    low, high = (math.nan if end is None else end for end in part.values)
    sign = effect.values[0] or 0.0
    if high < 0 or (high == 0 and sign < 0):
        return (good,)
    if low > 0 or (low == 0 and sign > 0):
        return (bad,)
    if margin is None:
        return NO_DECISION
    if metric in LOG_SCALE:  # the margin is in its unit, the interval a share
        return (*EQUAL, *NO_DECISION)
    reach = max(-low, high)
    half = unit(reach) / 2 + room(reach)
    if reach + half < margin:
        return EQUAL
    if reach - half < margin:
        return (*EQUAL, *NO_DECISION)
    return NO_DECISION


def is_anytime(plan: Embedded, rows: Sequence[Row], memory: Embedded) -> bool:
    """Whether the page must show sequences.

    A stopping rule, runs still to come, seeds or a noise added after the first launch, or other
    seeds that were seen before. memory: of what was seen.
    """
    if plan.get("seeds_rule"):
        return True
    if memory.get("changed") or any(row["status"] in UNFINISHED for row in rows):
        return True
    locks = plan.get("locks") or []
    if not locks:  # nothing tells that a noise was declared in time
        return plan.get("prior_noise") is not None
    declared = locks[0].get("plan") or {}
    if declared.get("prior_noise") != plan.get("prior_noise"):
        return True
    first = declared.get("seeds")
    return first is not None and len(plan.get("seeds") or ()) > len(first)
