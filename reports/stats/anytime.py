"""Arms against the baseline while runs are to come: effects that hold however often one looks."""

import math
from collections.abc import Mapping
from functools import partial

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
    return {name: _sequence(arm, baseline, alpha, m) for name, arm in arms.items()}


def _sequence(arm: Sample, baseline: Sample, alpha: float, m: int) -> Effect:
    a, b = paired(arm, baseline)
    n_blocks = len(a) if len(a) >= 2 else 0
    if n_blocks:
        d = a - b
        delta, se = float(d.mean()), float(d.std(ddof=1) / math.sqrt(n_blocks))
        mixture, attainable = partial(t_mixture, d), min(1.0, m * attainable_p(n_blocks))
    else:
        delta, se, _ = welch(arm.values, baseline.values)
        mixture = partial(independent_t_mixture, arm.values, baseline.values)
        attainable = None
    r = correlation(arm, baseline)
    if not se > 0:
        return difference_only(delta, n_blocks=n_blocks, correlation=r)
    low, high, p = mixture(alpha)
    diverged = bool(arm.n_diverged or baseline.n_diverged)
    return Effect(
        delta=delta,
        low=None if diverged else low,
        high=None if diverged else high,
        p=None if diverged else min(1.0, m * p),
        p_attainable=attainable,
        df=None,
        se=se,
        method=Method.SEQUENCE,
        n_blocks=n_blocks,
        correlation=r,
    )
