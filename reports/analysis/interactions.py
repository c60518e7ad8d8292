"""Do changes add up?  Main effects and two-way interactions from the subsets of changes that an experiment ran.

For changes a and b and any set S of others for which S, S+a, S+b and S+a+b were all run,
    interaction(a, b) = y(S+a+b) - y(S+a) - y(S+b) + y(S),    main effect(a) = y(S+a) - y(S),
each averaged over those S: a contrast of arm means, judged as shares are (reports/analysis/attribution.py) over the blocks that hold all
its arms, Bonferroni over all the effects shown. In a complete factorial these are the effects of -1/+1 coding (Box, Hunter and
Hunter 2005): the main effect, twice the interaction.
"""

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from reports.analysis.attribution import contrast_of

Subset = frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Interplay:
    """A main effect (one change) or an interaction (two), in the metric's unit; no interval below two blocks."""

    changes: tuple[str, ...]
    estimate: float
    low: float | None
    high: float | None
    n_blocks: int
    n_contexts: int  # sets of other changes that the average goes over


def interplay(
    runs: pd.DataFrame, plan: Mapping[str, Any], metric: str = "val_loss", level: float = 0.95, *, anytime: bool = False
) -> list[Interplay]:
    """Main effects of all changes, then all interactions that the runs can tell; [] where there is no interaction to tell.

    `runs`: the finished runs that count, at one budget."""
    plain = [a for a in plan["arms"] if a.get("of", a["name"]) == a["name"]]  # off the axes, where one set is one arm
    names = {frozenset(a["changes"]): a["name"] for a in plain}
    changes = list(dict.fromkeys(c for a in plain for c in a["changes"]))
    wanted = [*((c,) for c in changes), *itertools.combinations(changes, 2)]
    found = {who: sets for who in wanted if (sets := contexts(who, names))}
    if not any(len(who) == 2 for who in found):
        return []
    done = runs[runs[metric].notna() & runs["block"].notna() & runs["arm"].isin(names.values())]
    table = done.pivot_table(index="block", columns="arm", values=metric, aggfunc="mean")
    told, there = {}, set(table)
    for who, sets in found.items():
        weights = {names[s | i]: (-1) ** (len(who) - len(i)) / len(sets) for s in sets for i in subsets(who)}
        y = table[[*weights]].dropna().to_numpy(float) if set(weights) <= there else np.empty((0, 0))
        if len(y):
            told[who] = (y, np.array([*weights.values()]), len(sets))
    if not any(len(who) == 2 for who in told):
        return []
    shares = {who: contrast_of(y, c, (1 - level) / len(told), anytime=anytime) for who, (y, c, _) in told.items()}
    return [
        Interplay(changes=who, estimate=s.value, low=s.low, high=s.high, n_blocks=len(told[who][0]), n_contexts=told[who][2])
        for who, s in shares.items()
    ]


def subsets(who: tuple[str, ...]) -> list[Subset]:
    return [frozenset(s) for n in range(len(who) + 1) for s in itertools.combinations(who, n)]


def contexts(who: tuple[str, ...], ran: Collection[Subset]) -> list[Subset]:
    """The sets of other changes that were run with every subset of `who` added, in the order of `ran`: sums keep their bits."""
    return [s for s in ran if not s & set(who) and all(s | i in ran for i in subsets(who))]
