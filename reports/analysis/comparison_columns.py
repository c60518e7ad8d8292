"""The statistics of a comparison, each declared once, in the order of JSON.

The page prints those with a format below the difference of every metric, keyed `metric.key`.
"""

import numpy as np

from reports.analysis.types import Comparison, effect
from reports.inputs.columns import Between, Column
from reports.stats.contrasts import paired

EFFECT = "effect"  # in a format: a loss's difference, or a percentage of time


def effect_value(c: Comparison) -> float:
    return effect(c)[0]


def effect_interval(c: Comparison) -> Between | None:
    _, low, high = effect(c)
    if low is None and high is None:
        return None
    return Between(low, high)


def bounds(c: Comparison) -> list[float] | None:
    if c.low is None or c.high is None:
        return None
    return [c.low, c.high]


def sd_of_pairs(c: Comparison) -> float | None:
    """Of the differences within shared blocks; None of times, and where runs diverged."""
    if c.ratio is not None or c.of_arm.n_diverged or c.of_baseline.n_diverged:
        return None
    of_arm, of_baseline = paired(c.of_arm, c.of_baseline)
    if len(of_arm) < 2:
        return None
    return float(np.std(of_arm - of_baseline, ddof=1))


def next_cost(c: Comparison, hours_per_run: float | None = None) -> dict[str, float | None]:
    """Runs that the next action costs, and their hours: None where no run has shown how long."""
    n_runs = c.next_runs or 0
    hours: float | None = n_runs * (hours_per_run or 0.0)
    if n_runs and hours_per_run is None:
        hours = None
    return {"runs": n_runs, "hours": hours}


def warning_names(c: Comparison) -> list[str]:
    return [warning.name.lower() for warning in c.warnings]


COMPARISON_COLUMNS: tuple[Column[Comparison], ...] = (
    Column(
        key="arm",
        json_name="arm",
        in_terminal=True,
        meaning="The arm that is compared.",
    ),
    Column(
        key="baseline",
        json_name="baseline",
        meaning="The arm that it is compared with.",
    ),
    Column(
        key="metric",
        json_name="metric",
        in_terminal=True,
        meaning=(
            "What is compared: a loss, a step time, a training time, the time to target, or a "
            "metric of a script's own."
        ),
    ),
    Column(
        key="better",
        json_name="better",
        meaning="Which is better of this metric, lower or higher.",
    ),
    Column(
        key="unit",
        json_name="unit",
        meaning="Of delta and its interval.",
    ),
    Column(
        key="estimand",
        json_name="estimand",
        meaning="At-rate: at the baseline's learning rates; retuned: each arm at its own best one.",
    ),
    Column(
        key="effect",
        value=effect_value,
        format="{:effect}",
        meaning="Arm minus baseline, of times in percent of the baseline's; its sign as delta's.",
    ),
    Column(
        key="interval",
        value=effect_interval,
        format="{:effect}",
        meaning="The simultaneous interval of the effect.",
    ),
    Column(
        key="delta",
        json_name="delta",
        in_terminal=True,
        meaning=(
            "Arm minus baseline in the metric's unit; below zero is better, but for a metric of a "
            "script's own of which higher is better."
        ),
    ),
    Column(
        key="bounds",
        value=bounds,
        json_name="interval",
        is_nested=True,
        meaning="Low and high as a pair; null where there is no interval.",
    ),
    Column(
        key="low",
        json_name="low",
        in_terminal=True,
        meaning="The lower end of delta's simultaneous interval; null where unbounded or unknown.",
    ),
    Column(
        key="high",
        json_name="high",
        in_terminal=True,
        meaning="The upper end of delta's simultaneous interval; null where unbounded or unknown.",
    ),
    Column(
        key="level",
        json_name="level",
        meaning="With which the intervals of all arms hold at once.",
    ),
    Column(
        key="ratio",
        json_name="ratio",
        meaning="Arm over baseline, of times; null for a loss.",
    ),
    Column(
        key="p",
        format="p {:p}",
        json_name="p",
        in_terminal=True,
        meaning=(
            "Two-sided, adjusted for the number of arms; null where the sample cannot give one."
        ),
    ),
    Column(
        key="sd_paired",
        value=sd_of_pairs,
        format="paired sd {:sd}",
        json_name="sd_paired",
        meaning=(
            "The standard deviation of the differences within shared blocks, which the interval "
            "does not rest on alone; null of times, below two blocks and where runs diverged."
        ),
    ),
    Column(
        key="p_attainable",
        json_name="p_attainable",
        meaning="The smallest p that so many runs could give; null where no test is possible.",
    ),
    Column(
        key="n_arm",
        json_name="n",
        in_terminal=True,
        meaning="Runs of the arm with an outcome, the diverged ones too.",
    ),
    Column(
        key="n_baseline",
        json_name="n_baseline",
        meaning="Runs of the baseline with an outcome, the diverged ones too.",
    ),
    Column(
        key="looks",
        json_name="looks",
        meaning="How often the results were looked at; 1 for a planned analysis.",
    ),
    Column(
        key="exploratory",
        json_name="exploratory",
        meaning="Whether the runs that suggested the change are also those that judge it.",
    ),
    Column(
        key="method",
        json_name="method",
        meaning="How the difference was judged.",
    ),
    Column(
        key="verdict",
        json_name="verdict",
        in_terminal=True,
        meaning="The judgement in words, which follows from the interval alone.",
    ),
    Column(
        key="next_action",
        json_name="next_action",
        in_terminal=True,
        meaning="What to do next; empty when nothing is left to do.",
    ),
    Column(
        key="next_cost",
        value=next_cost,
        json_name="next_cost",
        is_nested=True,
        meaning="Runs that the next action costs, and hours of one slot.",
    ),
    Column(
        key="more_seeds",
        json_name="more_seeds",
        meaning="Seeds per arm that the sequence still needs, where that is known.",
    ),
    Column(
        key="fresh_seeds",
        json_name="fresh_seeds",
        meaning="Seeds per arm of the new experiment that would decide, where that is known.",
    ),
    Column(
        key="warnings",
        value=warning_names,
        json_name="warnings",
        meaning="What to doubt about the comparison, by name.",
    ),
)
