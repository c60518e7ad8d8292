"""Each arm of a chain against the one before it, or against its parent, on arrays.

In blocks: differences of neighbours in the two-way model arm + block of the whole chain, by the
larger of its two errors (reports/stats/two_way.py), each at its share of the error rate
(Bonferroni: neighbouring differences are correlated below zero, where it gives next to nothing
away). Where the chain is not all in blocks, has diverged runs, or an arm with a variance of its
own, every pair is analysed alone at that share. Before the planned runs are there: sequences.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy import stats

from reports.stats.anytime import sequences
from reports.stats.contrasts import (
    Effect,
    Method,
    Sample,
    analyse,
    correlation,
    difference_only,
    effect_of,
    paired,
    two_way_of,
)
from reports.stats.intervals import Estimate
from reports.stats.simultaneous import Array

Neighbours = tuple[str, str]  # an arm, and the one that it is held against


def increments(
    chain: Mapping[str, Sample],
    pairs: Sequence[Neighbours],
    *,
    level: float,
    m: int,
    alters_noise: frozenset[str] = frozenset(),
) -> dict[Neighbours, Effect]:
    """Every pair's difference, at simultaneous `level` over m of them.

    chain: the arms that have values, in their order; alters_noise: those that are declared to have
    a variance of their own."""
    alpha = (1 - level) / m
    if not _is_one_model(chain, alters_noise):
        effects = {}
        for arm, before in pairs:
            noisy = alters_noise & {arm}
            alone = analyse({arm: chain[arm]}, chain[before], level=1 - alpha, alters_noise=noisy)
            effects[arm, before] = _of_many(alone[arm], m)
        return effects
    contrasts = contrasts_between([*chain], pairs)
    fitted = two_way_of([*chain.values()], contrasts)
    effects = {}
    for i, (arm, before) in enumerate(pairs):
        n_blocks = len(paired(chain[arm], chain[before])[0])
        r = correlation(chain[arm], chain[before])
        delta = float(fitted.delta[i])
        answers = []
        for error in fitted.errors:
            se, df = float(error.se[i]), float(error.df[i])
            half = float(stats.t.isf(alpha / 2, df)) * se
            p = min(1.0, m * float(2 * stats.t.sf(abs(delta) / max(se, 1e-300), df)))
            answers.append((half, p, Estimate(value=delta, se=se, df=df)))
        if not answers:
            effects[arm, before] = difference_only(delta, n_blocks=n_blocks, correlation=r)
            continue
        half, _, estimate = max(answers, key=lambda answer: answer[0])
        p = max(p for _, p, _ in answers)
        effects[arm, before] = effect_of(
            estimate, half, p, Method.TWO_WAY_SHARED, n_blocks=n_blocks, correlation=r
        )
    return effects


def contrasts_between(names: Sequence[str], pairs: Sequence[Neighbours]) -> Array:
    """A row a pair: the arm less the one that it is held against."""
    rows = np.zeros((len(pairs), len(names)))
    for i, (arm, before) in enumerate(pairs):
        rows[i, names.index(arm)] = 1.0
        rows[i, names.index(before)] = -1.0
    return rows


def increment_sequences(
    chain: Mapping[str, Sample], pairs: Sequence[Neighbours], *, level: float, m: int
) -> dict[Neighbours, Effect]:
    """The same while runs are to come: they hold however often one looks."""
    effects = {}
    for arm, before in pairs:
        alone = sequences({arm: chain[arm]}, chain[before], m=m, level=level)
        effects[arm, before] = alone[arm]
    return effects


def _is_one_model(chain: Mapping[str, Sample], alters_noise: frozenset[str]) -> bool:
    """Whether all runs are in blocks, each arm in one of the first arm's, and none diverged."""
    first = next(iter(chain.values()))
    for name, sample in chain.items():
        if name in alters_noise or sample.n_diverged or None in sample.blocks:
            return False
        if not len(paired(sample, first)[0]):
            return False
    return len(paired(first, first)[0]) >= 2


def _of_many(effect: Effect, m: int) -> Effect:
    """One of m, judged alone at its share: its p values as those of all of them at once."""
    p, attainable = effect.p, effect.p_attainable
    if p is not None:
        p = min(1.0, m * p)
    if attainable is not None:
        attainable = min(1.0, m * attainable)
    return replace(effect, p=p, p_attainable=attainable)
