"""Before anything is spent: what an experiment can detect, and what it needs to.

The smallest difference, the seeds that a difference needs, the budgets that bracket. Power uses the
noncentral t of the analysis that will be made (reports/stats/contrasts.py), its multiplicity
included; where the larger of two errors judges (reports/stats/two_way.py) no noncentral t is its
law, and drawn experiments stand for it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy import optimize, stats
from scipy.special import ndtr

from reports.stats.loss_model import Slope
from reports.stats.moderated import Prior
from reports.stats.sequential import critical_t
from reports.stats.simultaneous import Array, max_t_quantile, power_of_t
from reports.stats.two_way import drawn_squares, split_variances

MAX_SEEDS = 1000  # that are planned for
FEW_DF = 4  # of fewer the upper bound is two to four times what was seen
DRAWN = 40_000  # experiments behind the power of the larger of two errors: then within 0.0025


@dataclass(frozen=True, kw_only=True)
class Detectable:
    """What n seeds per arm can see with power 0.8; None where so few leave no error to judge by."""

    n: int
    n_arms: int
    sd: float  # of one run, as assumed
    loss: float | None
    steps: float | None  # needs a slope
    seconds: float | None  # needs a slope and a step time
    runs: int  # arms and baseline, at one budget


def detectable(
    *,
    sd: float,
    n: int,
    df: float,
    alpha: float = 0.05,
    power: float = 0.8,
    critical: float | None = None,
) -> float:
    """Difference of two means of n runs that a two-sided t test with `df` finds with `power`.

    critical: the t from which the test rejects; without it that of `alpha`.
    sd: of one run.
    """
    if sd <= 0 or n < 2 or df < 1:
        raise ValueError(
            f"a detectable difference needs sd > 0, n >= 2 and df >= 1, got sd {sd}, n {n}, df {df}"
        )
    c = stats.t.isf(alpha / 2, df) if critical is None else critical

    def lack(shift: float) -> float:
        return power_of_t(c, shift, df) - power

    return float(optimize.brentq(lack, 0.0, 3 * c + 10)) * sd * math.sqrt(2 / n)


@lru_cache(maxsize=4096)
def planned_critical(n: int, n_arms: int, level: float = 0.95) -> tuple[float, float]:
    """(critical t, df) of the declared analysis for n blocks and n_arms besides the baseline."""
    df = 4 * (n - 1) * n_arms / (n_arms + 3)  # of reports/stats/two_way.py in complete blocks
    return max_t_quantile(level, _shared_baseline(n_arms), df), df


def _shared_baseline(n_arms: int) -> Array:
    """The correlation of arms minus one baseline in complete blocks."""
    return np.asarray(0.5 * (np.eye(n_arms) + 1))


@lru_cache(maxsize=64)
def _drawn_half_widths(n: int, n_arms: int, level: float, prior: Prior | None) -> Array:
    """Half widths (DRAWN,) of the two-way model's interval for one of several arms.

    In standard errors of a difference of two means; of drawn experiments: they come from
    residuals, independent of the means."""
    critical, own_df = planned_critical(n, n_arms, level)
    drawn = drawn_squares(np.random.default_rng(20250101), DRAWN, n, n_arms + 1)
    one, of_arm, rest = split_variances(*drawn, n, n_arms + 1)
    df, either = float((n - 1) * n_arms), np.maximum(*(of_arm + rest).T)
    if prior is not None:
        one, either = prior.variance(one, df), prior.variance(either, own_df, math.sqrt(2))
        df = df + prior.df
        critical = max_t_quantile(level, _shared_baseline(n_arms), own_df + prior.df)
    pooled = max_t_quantile(level, _shared_baseline(n_arms), df)
    by_one, by_own = pooled * np.sqrt(2 * one), critical * np.sqrt(either)
    if n_arms == 1:
        by_own = by_one  # one error: the paired t test
    return np.asarray(np.maximum(by_one, by_own) / math.sqrt(2))


def _drawn_power(shift: float, half: Array) -> float:
    """How often an interval of these half widths leaves zero out.

    shift: of the difference, in its standard errors, as `half` is.
    """
    return float((ndtr(shift - half) + ndtr(-shift - half)).mean())


@lru_cache(maxsize=1024)
def _drawn_detectable(
    n: int, n_arms: int, power: float, level: float, prior: Prior | None = None
) -> float:
    """Difference in sds of one run that the two-way model finds in one of several arms."""
    half = _drawn_half_widths(n, n_arms, level, prior)

    def lack(shift: float) -> float:
        return _drawn_power(shift, half) - power

    return math.sqrt(2 / n) * float(optimize.brentq(lack, 0.0, 3 * float(half.max())))


def plan_detectable(
    *,
    sd: float,
    n: int,
    n_arms: int,
    level: float = 0.95,
    slope: Slope | None = None,
    step_ms: float | None = None,
    anytime: bool = False,
    prior: Prior | None = None,
) -> Detectable:
    """The smallest difference of an experiment with its own analysis.

    Independent runs are assumed, but for what `sd` knows of pairing.
    sd: of one run's loss; n: seeds per arm; slope, step_ms: what turns a loss into steps and
    seconds; anytime: n is the most an adaptive design may reach, and what it decides by then
    counts.
    n_arms: compared with the baseline. level: of the intervals. prior: noise of a loss that the
    plan declares.
    """
    loss = _detectable_loss(
        sd=sd, n=n, n_arms=n_arms, power=0.8, level=level, anytime=anytime, prior=prior
    )
    steps, seconds = None, None
    if loss is not None and slope is not None and slope.per_step > 0:
        steps = loss / slope.per_step
        if step_ms is not None:
            seconds = steps * step_ms / 1e3
    return Detectable(
        n=n,
        n_arms=n_arms,
        sd=sd,
        loss=loss,
        steps=steps,
        seconds=seconds,
        runs=n * (n_arms + 1),
    )


def _detectable_loss(
    *,
    sd: float,
    n: int,
    n_arms: int,
    power: float,
    level: float,
    anytime: bool,
    prior: Prior | None,
) -> float | None:
    """None where so few seeds decide nothing."""
    if n < 2:
        return None
    if _is_drawn(n_arms, anytime, prior):
        return sd * _drawn_detectable(n, n_arms, power, level, _in_sds(prior, sd))
    of_one = _t_detectable(n, n_arms, power, level, anytime)
    return None if of_one is None else sd * of_one


def _is_drawn(n_arms: int, anytime: bool, prior: Prior | None) -> bool:
    """Whether no noncentral t is the law of the analysis: drawn experiments stand for it."""
    return not anytime and (n_arms > 1 or prior is not None)


def _in_sds(prior: Prior | None, sd: float) -> Prior | None:
    """The prior in a unit in which one run has the sd 1."""
    return None if prior is None else replace(prior, sd=prior.sd / sd)


@lru_cache(maxsize=1024)
def _t_detectable(n: int, n_arms: int, power: float, level: float, anytime: bool) -> float | None:
    """In sds of one run, of one t statistic."""
    critical, df = planned_critical(n, n_arms, level)
    if anytime:
        critical, df = float(critical_t(n, (1 - level) / n_arms)), n - 1.0
    if not math.isfinite(critical):
        return None
    return detectable(sd=1.0, n=n, df=df, power=power, critical=critical)


def seeds_needed(
    difference: float,
    *,
    sd: float,
    n_arms: int,
    power: float = 0.8,
    level: float = 0.95,
    anytime: bool = False,
    prior: Prior | None = None,
    most: int = MAX_SEEDS,
) -> int | None:
    """Smallest n that detects `difference`; None above `most`.

    sd: of one run, in the unit of `difference`. n_arms: compared with the baseline. power: of
    finding it. level: of the intervals. anytime: n is the most an adaptive design may reach.
    prior: noise of a loss that the plan declares.
    """
    if not 0 < difference < math.inf:
        raise ValueError(
            f"seeds for a difference of {difference}: give a positive difference in loss"
        )

    def enough(n: int) -> bool:
        if n >= 2 and _is_drawn(n_arms, anytime, prior):  # one look, where a loss takes ten
            half = _drawn_half_widths(n, n_arms, level, _in_sds(prior, sd))
            return _drawn_power(difference / sd * math.sqrt(n / 2), half) >= power
        loss = _detectable_loss(
            sd=sd, n=n, n_arms=n_arms, power=power, level=level, anytime=anytime, prior=prior
        )
        return loss is not None and loss <= difference

    sure = float(stats.norm.isf((1 - level) / 2 / n_arms) + stats.norm.ppf(power))
    of_known_sd = 2 * min(sure * sd / difference, most) ** 2
    return _fewest(enough, guess=math.ceil(of_known_sd), most=most)


def _fewest(enough: Callable[[int], bool], *, guess: int, most: int) -> int | None:
    """Smallest n up to `most` that is enough, of which every larger one is; None for none.

    guess: where to look first, in steps that double: each look may draw 40,000 experiments."""
    low, high, step = 0, max(1, min(guess, most)), 1
    while not enough(high):
        if high == most:
            return None
        low, high, step = high, min(high + step, most), 2 * step
    while high - low > step:  # nothing below the guess was looked at
        if not enough(high - step):
            low = high - step
        else:
            high, step = high - step, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle
    return high


def upper_sd(sd: float, n: float, confidence: float = 0.8) -> float:
    """Upper confidence bound of an sd seen in n runs.

    Three runs' sd may be off by 0.5 to 6 times, so plans use this."""
    if n < 2:
        raise ValueError(
            "the sd of one run is unknown: give the era's published value "
            "(results/published/noise_by_era.yaml)"
        )
    return float(sd * math.sqrt((n - 1) / stats.chi2.ppf(1 - confidence, n - 1)))


def bears_out(sd: float, df: int, bound: float) -> bool:
    """Whether an sd of few degrees of freedom leaves a known bound in place.

    Its own bound is wider, and one in twenty sds of so few would be larger."""
    narrower = bound < upper_sd(sd, df + 1)
    return df < FEW_DF and narrower and sd <= bound * math.sqrt(stats.chi2.ppf(0.95, df) / df)


def smallest_p(n_arm: int, n_baseline: int, n_comparisons: int = 1) -> float:
    """Smallest Holm-adjusted p of relabelling runs; above 0.05 no outcome could pass."""
    ways = math.comb(n_arm + n_baseline, n_arm)
    extremes = 2 if n_arm == n_baseline else 1
    return min(1.0, n_comparisons * extremes / ways)


def bracketing_budgets(
    n_star: list[float], *, margin: float = 0.06, multiple: int = 1
) -> tuple[int, int]:
    """Two budgets around every arm's expected N*, `margin` outside, rounded to a multiple."""
    if not n_star or min(n_star) <= 0:
        raise ValueError("budgets to bracket need a positive guess of every arm's steps to target")
    low, high = min(n_star) * (1 - margin), max(n_star) * (1 + margin)
    below = math.floor(low / multiple) * multiple
    return max(multiple, below), math.ceil(high / multiple) * multiple
