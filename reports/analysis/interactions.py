"""Do changes add up?  Main effects and two-way interactions from the subsets of changes that ran.

For changes a and b and any set S of others for which S, S+a, S+b and S+a+b were all run,
    interaction(a, b) = y(S+a+b) - y(S+a) - y(S+b) + y(S),    main effect(a) = y(S+a) - y(S),
each averaged over those S: a contrast of arm means, judged as shares are
(reports/analysis/attribution.py) over the blocks that hold all its arms, Bonferroni over all the
effects shown. In a complete factorial these are the effects of -1/+1 coding (Box, Hunter and
Hunter 2005): the main effect, twice the interaction.

What a change adds with another one and without it is told of each pair over the same S:
    with: mean of y(S+a+b) - y(S+b),    without: mean of y(S+a) - y(S),    their difference is the
interaction; Bonferroni over the four of every pair.
"""

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from harness.run.plan import Plan
from reports.analysis import samples
from reports.analysis.judges import Share, contrast_of
from reports.analysis.set_contrasts import Subset
from reports.stats.simultaneous import Array


@dataclass(frozen=True, kw_only=True)
class Interplay:
    """A main effect (one change) or an interaction (two), in the metric's unit."""

    changes: tuple[str, ...]
    estimate: float
    low: float | None  # no interval below two blocks
    high: float | None
    n_blocks: int
    n_contexts: int  # sets of other changes that the average goes over


@dataclass(frozen=True, kw_only=True)
class BesideOther:
    """What a change adds where another one is, and where that is not, in the metric's unit."""

    change: str
    other: str
    with_other: Share
    without: Share


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """One effect's blocks: losses (n, k) of its arms, the sets of these and their weights (k,)."""

    changes: tuple[str, ...]
    losses: Array
    sets: tuple[Subset, ...]
    weights: Array
    n_contexts: int


def interplay(
    runs: pd.DataFrame,
    plan: Plan,
    metric: str = "val_loss",
    level: float = 0.95,
    *,
    anytime: bool = False,
) -> list[Interplay]:
    """Main effects of all changes, then all interactions that the runs can tell.

    [] where there is no interaction to tell. runs: the finished ones that count, at one budget.
    metric: a column of runs. level: of the intervals. anytime: hold at every look.
    """
    measured = _effects_measured(runs, plan, metric)
    if not any(len(effect.changes) == 2 for effect in measured):
        return []
    alpha = (1 - level) / len(measured)
    effects = []
    for effect in measured:
        share = contrast_of(effect.losses, effect.weights, alpha, anytime=anytime)
        effects.append(
            Interplay(
                changes=effect.changes,
                estimate=share.value,
                low=share.low,
                high=share.high,
                n_blocks=len(effect.losses),
                n_contexts=effect.n_contexts,
            )
        )
    return effects


def beside_others(
    runs: pd.DataFrame,
    plan: Plan,
    metric: str = "val_loss",
    level: float = 0.95,
    *,
    anytime: bool = False,
) -> list[BesideOther]:
    """Both changes of every pair that the runs can tell, each beside the other.

    runs, metric, level, anytime: as of interplay."""
    pairs = [e for e in _effects_measured(runs, plan, metric) if len(e.changes) == 2]
    alpha = (1 - level) / max(1, 4 * len(pairs))
    effects = []
    for pair in pairs:
        for change, other in itertools.permutations(pair.changes):
            there = np.array([other in s for s in pair.sets])
            signs = np.array([1.0 if change in s else -1.0 for s in pair.sets]) / pair.n_contexts
            shares = []
            for which in (there, ~there):
                shares.append(contrast_of(pair.losses, signs * which, alpha, anytime=anytime))
            effects.append(
                BesideOther(change=change, other=other, with_other=shares[0], without=shares[1])
            )
    return effects


def _effects_measured(runs: pd.DataFrame, plan: Plan, metric: str) -> list[_Measured]:
    """The main effects and the interactions of which there are blocks."""
    arms = samples.arms_off_the_axes(plan)  # there one set is one arm
    names = {frozenset(arm.changes): arm.name for arm in arms}
    changes = dict.fromkeys(itertools.chain.from_iterable(arm.changes for arm in arms))
    pairs = list(itertools.combinations(changes, 2))
    if not any(contexts(pair, names) for pair in pairs):
        return []
    done = runs[runs[metric].notna() & runs["block"].notna() & runs["arm"].isin(names.values())]
    table = done.pivot_table(index="block", columns="arm", values=metric, aggfunc="mean")
    measured = []
    for who in (*itertools.combinations(changes, 1), *pairs):
        effect = _effect_measured(who, names, table)
        if effect is not None:
            measured.append(effect)
    return measured


def _effect_measured(
    who: tuple[str, ...], names: Mapping[Subset, str], table: pd.DataFrame
) -> _Measured | None:
    """An effect's contrast over the blocks that hold all its arms; None without one.

    names: of the arm of every set that was run; table: losses, blocks x arms."""
    others = contexts(who, names)
    weights = {}
    for context in others:
        for part in subsets(who):
            sign = (-1) ** (len(who) - len(part))
            weights[context | part] = sign / len(others)
    arms = [names[s] for s in weights]
    if not weights or not set(arms) <= set(table):
        return None
    losses = table[arms].dropna().to_numpy(float)
    if not len(losses):
        return None
    return _Measured(
        changes=who,
        losses=losses,
        sets=tuple(weights),
        weights=np.array([*weights.values()]),
        n_contexts=len(others),
    )


def subsets(who: tuple[str, ...]) -> list[Subset]:
    """All sets of the changes, the empty one first."""
    sizes = range(len(who) + 1)
    return [frozenset(part) for n in sizes for part in itertools.combinations(who, n)]


def contexts(who: tuple[str, ...], ran: Collection[Subset]) -> list[Subset]:
    """The sets of other changes that were run with every subset of `who` added.

    In the order of `ran`: sums keep their bits."""
    parts = subsets(who)
    others = []
    for context in ran:
        if not context & set(who) and all(context | part in ran for part in parts):
            others.append(context)
    return others
