"""A ladder's rungs, each against the one before it: what every part adds on top of those below."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from harness.run.plan import Plan
from reports.analysis import samples
from reports.analysis.comparison import Metric, Pair, comparison_of
from reports.analysis.node_times import with_unknown_nodes
from reports.analysis.time_estimates import time_effects_of
from reports.analysis.time_model import TimeModel
from reports.analysis.types import Comparison, TimeEstimate
from reports.stats.increments import increment_sequences, increments


def rungs_of(plan: Plan) -> tuple[str, ...]:
    """The arms of a ladder from the baseline up, each with all changes of the one before and more.

    () for other designs, along axes, and where there is but one rung, which is the comparison."""
    if plan.design != "ladder" or plan.evidence or plan.axes:
        return ()
    others = [arm.name for arm in plan.arms if arm.name != plan.baseline]
    names = (plan.baseline, *others)
    for before, arm in pairwise(names):
        if not {*plan.by_arm[before].changes} < {*plan.by_arm[arm].changes}:
            return ()
    return names if len(names) > 2 else ()


def measured_increments(shared: Metric, rungs: Sequence[str]) -> Iterator[Comparison]:
    """Of a metric that runs measure; shared: its n_arms are the rungs above the baseline."""
    chain = {}
    for arm in rungs:
        of_arm = samples.sample(shared.runs, arm, shared.name)
        if len(of_arm.values):
            chain[arm] = of_arm
    if len(chain) < 2:
        return
    if shared.anytime:
        effects = increment_sequences(chain, level=shared.level, m=shared.n_arms)
    else:
        noisy = frozenset(arm.name for arm in shared.plan.arms if arm.alters_noise)
        effects = increments(chain, level=shared.level, m=shared.n_arms, alters_noise=noisy)
    for (arm, before), effect in effects.items():
        if rungs[rungs.index(arm) - 1] != before:
            continue  # a rung without a value lies between: their difference is not one part's
        if not shared.is_loss:
            alpha, m = shared.alpha / shared.n_arms, shared.n_arms
            effect = with_unknown_nodes(shared.runs, (arm, before), effect, alpha=alpha, m=m)
        pair = Pair(arm=arm, effect=effect, of_arm=chain[arm], of_baseline=chain[before])
        yield comparison_of(replace(shared, baseline=before), pair)


def timed_increments(
    shared: Metric,
    rungs: Sequence[str],
    time_model: TimeModel,
    estimates: dict[str, TimeEstimate],
) -> Iterator[Comparison]:
    """Of the time to target, which is estimated."""
    pairs = [(arm, before) for before, arm in pairwise(rungs)]
    effects = time_effects_of(
        time_model, pairs, m=shared.n_arms, level=shared.level, anytime=shared.anytime
    )
    for (arm, before), effect in effects.items():
        pair = Pair(
            arm=arm,
            effect=effect,
            of_arm=time_model.time_sample(arm, estimates[arm].seconds),
            of_baseline=time_model.time_sample(before, estimates[before].seconds),
        )
        yield comparison_of(replace(shared, baseline=before), pair, estimates[arm].warnings)
