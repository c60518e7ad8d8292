"""When an adaptive experiment has enough seeds: asked by the command line between blocks, for all arms alike.

The runner never sees a loss; a rule adds whole blocks, and whatever it stops at, the page prints the sequence's interval.
"""

import math

from reports.compare import compare_all
from reports.sequential import Continue, Stop
from reports.types import Experiment


def decide(experiment: Experiment) -> Stop | Continue:
    """Stop, or how many blocks to add, by `seeds: {min, max, stop: {decide: alpha} | {half_width: x}}`.

    decide: every arm's interval of the primary metric excludes zero or lies inside the margin; half_width: all are that narrow.
    Without a rule the planned seeds are run and the answer is Stop."""
    rule = experiment.plan.get("seeds_rule")
    if not rule:
        return Stop(reason="the planned seeds are run; there is no stopping rule")
    n, low, high = len(experiment.plan["seeds"]), int(rule["min"]), int(rule["max"])
    if n < low:
        return Continue(n=low - n, reason=f"{n} of at least {low} seeds")
    ((kind, value),) = rule["stop"].items()
    level = 1 - float(value) if kind == "decide" else 0.95
    outcome = compare_all(experiment, level=level)
    open_arms = []
    for arm in outcome.arms:
        c = outcome.of(arm, outcome.primary)
        width = math.inf if c is None or c.low is None or c.high is None else (c.high - c.low) / 2
        settled = ("helps", "hurts") if experiment.plan.get("margin") is None else ("helps", "hurts", "equal")
        if width > float(value) if kind == "half_width" else c is None or c.kind not in settled:
            open_arms.append(arm)
    if not open_arms:
        return Stop(reason="every arm is decided" if kind == "decide" else f"every interval is within +-{value:g}")
    if n >= high:
        return Stop(reason=f"{high} seeds, the most allowed; open: {', '.join(open_arms)}")
    return Continue(n=1, reason=f"{n} seeds; open: {', '.join(open_arms)}")
