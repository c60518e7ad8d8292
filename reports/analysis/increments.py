"""A ladder's rungs, each against the one before it, and a chain's arms, each against its parent."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import pandas as pd

from harness.run.plan import Plan
from reports.analysis import samples
from reports.analysis.comparison import Metric, Pair, comparison_of
from reports.analysis.node_times import with_unknown_nodes
from reports.analysis.time_estimates import time_effects_of
from reports.analysis.time_model import TimeModel
from reports.analysis.types import Comparison, OwnWords, TimeEstimate
from reports.stats.increments import Neighbours, increment_sequences, increments


def judged_pairs(plan: Plan) -> tuple[Neighbours, ...]:
    """(arm, the arm that it is held against) of a ladder or a chain, in the plan's order.

    () for other designs, along axes, and where all are held against the baseline, which is the
    comparison. A ladder's rung has all changes of the one before and more; an arm of another
    length is held against the same without it."""
    if plan.evidence or plan.axes:
        return ()
    others = [arm.name for arm in plan.arms if arm.name != plan.baseline]
    links: list[Neighbours] = []
    if plan.design == "chain":
        for arm in others:
            if plan.parents.get(arm) in plan.by_arm:
                links.append((arm, plan.parents[arm]))
    elif plan.design == "ladder":
        rungs = rungs_of(plan)
        for before, arm in pairwise(rungs):
            if not {*plan.by_arm[before].changes} < {*plan.by_arm[arm].changes}:
                return ()
            links.append((arm, before))
        links += of_another_length(plan, rungs)
    if all(before == plan.baseline for _, before in links):
        return ()
    return tuple(links)


def rungs_of(plan: Plan) -> tuple[str, ...]:
    """The baseline and the arms of a ladder, in the plan's order.

    Of a bundle without those that measure what steps are worth: an arm that shares no change with
    the one before it, and whatever has that arm's changes."""
    rungs = [plan.baseline]
    beside: set[str] = set()
    for arm in plan.arms:
        changes, before = {*arm.changes}, {*plan.by_arm[rungs[-1]].changes}
        if plan.is_bundle and before and not changes & before:
            beside |= changes
        if arm.name != plan.baseline and not changes & beside:
            rungs.append(arm.name)
    return tuple(rungs)


def of_another_length(plan: Plan, rungs: Sequence[str]) -> Iterator[Neighbours]:
    """The arms of a bundle's ladder that measure what steps are worth: each, the rung without."""
    by_changes = {frozenset(plan.by_arm[name].changes): name for name in rungs}
    of_rungs = frozenset().union(*by_changes)
    for arm in plan.arms:
        before = by_changes.get(of_rungs.intersection(arm.changes))
        if arm.name not in rungs and before is not None:
            yield arm.name, before


def own_words(plan: Plan) -> OwnWords:
    """How the parts of a ladder's rungs, or of a chain's arms, are told."""
    if plan.design == "chain":
        return OwnWords(arm="arm", before="its parent", briefly="its parent")
    if plan.is_bundle and len(rungs_of(plan)) < len(plan.arms):
        return OwnWords(before="the same without the part", briefly="the same without the part")
    return OwnWords()


def arms_of(links: Sequence[Neighbours]) -> tuple[str, ...]:
    """The arms that links join, each once."""
    return tuple(dict.fromkeys(name for arm, before in links for name in (before, arm)))


def on_one_machine(times: pd.DataFrame, links: Sequence[Neighbours], baseline: str) -> bool:
    """Whether all arms of the links ran on hardware like the baseline's."""
    return all(samples.same_hardware(times, arm, baseline) for arm in arms_of(links))


def measured_increments(shared: Metric, links: Sequence[Neighbours]) -> Iterator[Comparison]:
    """Of a metric that runs measure; shared: its n_arms are the links.

    Where an arm has no value, the ones held against it have no part of their own."""
    chain = {}
    for arm in arms_of(links):
        of_arm = samples.sample(shared.runs, arm, shared.name)
        if len(of_arm.values):
            chain[arm] = of_arm
    pairs = [(arm, before) for arm, before in links if arm in chain and before in chain]
    if not pairs:
        return
    if shared.anytime:
        effects = increment_sequences(chain, pairs, level=shared.level, m=shared.n_arms)
    else:
        noisy = frozenset(arm.name for arm in shared.plan.arms if arm.alters_noise)
        effects = increments(chain, pairs, level=shared.level, m=shared.n_arms, alters_noise=noisy)
    for (arm, before), effect in effects.items():
        if not shared.is_difference:
            alpha, m = shared.alpha / shared.n_arms, shared.n_arms
            effect = with_unknown_nodes(shared.runs, (arm, before), effect, alpha=alpha, m=m)
        pair = Pair(arm=arm, effect=effect, of_arm=chain[arm], of_baseline=chain[before])
        yield comparison_of(replace(shared, baseline=before), pair)


def timed_increments(
    shared: Metric,
    links: Sequence[Neighbours],
    time_model: TimeModel,
    estimates: dict[str, TimeEstimate],
) -> Iterator[Comparison]:
    """Of the time to target, which is estimated."""
    effects = time_effects_of(
        time_model, links, m=shared.n_arms, level=shared.level, anytime=shared.anytime
    )
    for (arm, before), effect in effects.items():
        pair = Pair(
            arm=arm,
            effect=effect,
            of_arm=time_model.time_sample(arm, estimates[arm].seconds),
            of_baseline=time_model.time_sample(before, estimates[before].seconds),
        )
        yield comparison_of(replace(shared, baseline=before), pair, estimates[arm].warnings)
