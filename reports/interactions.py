"""Do changes add up?  Main effects and two-way interactions from the subsets of changes that an experiment ran.

For changes a and b and any set S of others for which S, S+a, S+b and S+a+b were all run,
    interaction(a, b) = y(S+a+b) - y(S+a) - y(S+b) + y(S),    main effect(a) = y(S+a) - y(S),
each averaged over those S within a block, then over blocks: t intervals over blocks, Bonferroni over all the effects shown.
In a complete factorial these are the effects of -1/+1 coding (Box, Hunter and Hunter 2005): the main effect, twice the
interaction.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

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


def interplay(runs: pd.DataFrame, plan: Mapping[str, Any], metric: str = "val_loss", level: float = 0.95) -> list[Interplay]:
    """Main effects of all changes, then all interactions that the runs can tell; [] where there is no interaction to tell.

    `runs`: the finished runs that count, at one budget."""
    plain = [a for a in plan["arms"] if a.get("of", a["name"]) == a["name"]]  # off the axes, where one set is one arm
    sets = {a["name"]: frozenset(a["changes"]) for a in plain}
    changes = list(dict.fromkeys(c for a in plain for c in a["changes"]))
    done = runs[runs[metric].notna() & runs["block"].notna() & runs["arm"].isin(sets)]
    means: dict[Any, dict[Subset, float]] = {}
    table = done.groupby(["block", "arm"], as_index=False)[metric].mean()
    for block, arm, value in zip(table["block"], table["arm"], table[metric]):
        means.setdefault(block, {})[sets[arm]] = float(value)
    wanted = [*((c,) for c in changes), *itertools.combinations(changes, 2)]
    found = {who: list(contrasts(who, set(sets.values()), means)) for who in wanted}
    told = {who: values for who, values in found.items() if values}
    if not any(len(who) == 2 for who in told):
        return []
    return [_effect(who, values, 1 - (1 - level) / len(told)) for who, values in told.items()]


def contrasts(who: tuple[str, ...], ran: set[Subset], means: Mapping[Any, Mapping[Subset, float]]) -> Iterator[tuple[float, int]]:
    """(contrast, number of contexts) per block: the same contexts in every block, those that all its subsets were run in."""
    inside = [frozenset(s) for n in range(len(who) + 1) for s in itertools.combinations(who, n)]
    contexts = [s for s in ran if not s & set(who) and all(s | i in ran for i in inside)]
    for cells in means.values():
        if contexts and all(s | i in cells for s in contexts for i in inside):
            signed = [(-1) ** (len(who) - len(i)) * cells[s | i] for s in contexts for i in inside]
            yield math.fsum(signed) / len(contexts), len(contexts)


def _effect(who: tuple[str, ...], values: list[tuple[float, int]], level: float) -> Interplay:
    d, n = np.array([v for v, _ in values]), len(values)
    half = float(stats.t.isf((1 - level) / 2, n - 1) * d.std(ddof=1) / math.sqrt(n)) if n > 1 else None
    mean = float(d.mean())
    ends = (None, None) if half is None else (mean - half, mean + half)
    return Interplay(changes=who, estimate=mean, low=ends[0], high=ends[1], n_blocks=n, n_contexts=values[0][1])
