"""Arms against the baseline while runs are to come: effects that hold however often one looks."""

import math
from collections.abc import Mapping

from reports.stats.contrasts import Effect, Method, Sample, correlation, difference_only, paired
from reports.stats.sequential import attainable_p, independent_t_mixture, t_mixture
from reports.stats.unblocked import welch


def sequences(
    arms: Mapping[str, Sample], baseline: Sample, *, m: int, level: float
) -> dict[str, Effect]:
    """Anytime-valid effects at alpha / m each for m planned arms.

    On paired differences where two blocks are shared, else on independent samples."""
    if not arms:
        return {}
    alpha = (1 - level) / m
    effects = {}
    for name, arm in arms.items():
        if len(paired(arm, baseline)[0]) >= 2:
            effects[name] = _paired_sequence(arm, baseline, alpha, m)
        else:
            effects[name] = _independent_sequence(arm, baseline, alpha, m)
    return effects


def _paired_sequence(arm: Sample, baseline: Sample, alpha: float, m: int) -> Effect:
    a, b = paired(arm, baseline)
    d, n = a - b, len(a)
    delta, se = float(d.mean()), float(d.std(ddof=1) / math.sqrt(n))
    r = correlation(arm, baseline)
    if not se > 0:
        return difference_only(delta, n_blocks=n, correlation=r)
    low, high, p = t_mixture(d, alpha)
    diverged = bool(arm.n_diverged or baseline.n_diverged)
    return Effect(
        delta=delta,
        low=None if diverged else low,
        high=None if diverged else high,
        p=None if diverged else min(1.0, m * p),
        p_attainable=min(1.0, m * attainable_p(n)),
        df=None,
        se=se,
        method=Method.SEQUENCE,
        n_blocks=n,
        correlation=r,
    )


def _independent_sequence(arm: Sample, baseline: Sample, alpha: float, m: int) -> Effect:
    delta, se, _ = welch(arm.values, baseline.values)
    r = correlation(arm, baseline)
    if not se > 0:
        return difference_only(delta, n_blocks=0, correlation=r)
    low, high, p = independent_t_mixture(arm.values, baseline.values, alpha)
    diverged = bool(arm.n_diverged or baseline.n_diverged)
    return Effect(
        delta=delta,
        low=None if diverged else low,
        high=None if diverged else high,
        p=None if diverged else min(1.0, m * p),
        p_attainable=None,
        df=None,
        se=se,
        method=Method.SEQUENCE,
        n_blocks=0,
        correlation=r,
    )
