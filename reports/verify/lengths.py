"""The second path for how long schedules are: tokens to the target, learning and systems gain.

From the printed seconds to the target and plain means over the rows: those seconds over the step
time are steps, these times the tokens of a step are tokens.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from reports.verify.page import Embedded, Printed, Row
from reports.verify.table import Table, near

ALIKE = 1.01  # of tokens of a step: what the rounding of stages to whole steps may differ by
GAINS = ("learning.percent", "systems.percent")
ROUNDED = 1e-5  # of what is computed from printed values, which are rounded


def check_lengths(
    rows: Sequence[Row],
    timed: Sequence[Row],
    printed: Mapping[str, Mapping[str, Printed]],
    plan: Embedded,
) -> Iterator[str]:
    """Sentences on tokens and gains that are printed otherwise than the rows give.

    rows: outcomes that losses are taken from, of all budgets. timed: those of step times.
    """
    of_step, baseline = tokens_of_steps(rows), plan["baseline"]
    log_ms = {arm: fmean(logs) for arm, logs in Table.of("step_ms", baseline, timed).loose.items()}
    steps: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for arm, parts in printed.items():
        at, tokens = parts.get("target.seconds"), parts.get("target.tokens")
        if at is not None and at.values[0] is not None and arm in log_ms:
            seconds[arm] = at.values[0]
            steps[arm] = seconds[arm] * 1e3 / math.exp(log_ms[arm])
            if arm in of_step:
                yield from agree_length(arm, "target.tokens", tokens, steps[arm] * of_step[arm])
        if tokens is not None and arm not in of_step:
            yield f"arm {arm!r}: target.tokens is printed, but a step reads as many in all arms"
    told = [arm for arm in steps if "target.extrapolated" not in printed[arm]]
    for arm in told if baseline in told else ():
        ratio = of_step[arm] / of_step[baseline] if {arm, baseline} <= {*of_step} else 1.0
        ratio = 1.0 if 1 / ALIKE <= ratio <= ALIKE else ratio
        before, after = steps[baseline], steps[arm] * ratio
        pace, pace_after = seconds[baseline] / before, seconds[arm] / after
        learning = (pace + pace_after) / 2 * (after - before)
        systems = (before + after) / 2 * (pace_after - pace)
        percents = [100 * gain / seconds[baseline] for gain in (learning, systems)]
        for key, gains in (*zip(GAINS, zip(percents)), ("gain.seconds", (learning, systems))):
            if key in printed[arm]:
                yield from agree_length(arm, key, printed[arm][key], *gains)


def tokens_of_steps(rows: Sequence[Row]) -> dict[str, float]:
    """Arm -> tokens of a step; {} where all arms have as many, or some are not known."""
    means: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        if row["status"] == "finished" and row["val_loss"] is not None:
            if row.get("tokens") is None:
                return {}
            of_arm = means.setdefault(row["arm"], {})
            of_arm.setdefault(row["budget"], []).append(row["tokens"] / row["steps"])
    shared = set.intersection(*map(set, means.values())) if means else set()
    of_step = {}
    for arm, budgets in means.items():
        of_step[arm] = fmean(fmean(budgets[b]) for b in budgets if b in shared or not shared)
    if not of_step or max(of_step.values()) <= ALIKE * min(of_step.values()):
        return {}
    return of_step


def agree_length(arm: str, key: str, part: Printed | None, *expected: float) -> Iterator[str]:
    """A sentence where another value is printed, or none."""
    if part is None:
        yield f"arm {arm!r}: {key} is missing but the rows give {expected[0]:.6g}"
        return
    for value, printed in zip(expected, part.values, strict=True):
        if not near(value, printed, ROUNDED):
            yield f"arm {arm!r}: {key} is printed as {part.text} but the rows give {value:.6g}"
