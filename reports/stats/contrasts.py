"""Arms against the baseline with a fixed number of runs: the one declared analysis, on arrays.

`analyse` chooses by the design and by what the plan declares, never by the values:
    blocks          two-way model arm + block, the larger of two errors (reports/stats/two_way.py),
                    max-t over the arms, at every number of blocks from 2 on; variances moderated
                    where the plan declares a prior (reports/stats/moderated.py)
    no blocks       Welch's t per arm, widened (reports/stats/unblocked.py), Holm
    alters_noise    an arm declared so is not pooled: paired t, and its share of the error rate
    diverged runs   permuted worst-rank trimmed mean (reports/stats/outcomes.py), and its share
A family of m arms spends alpha once: the pooled arms share alpha * m_pooled / m, the others the
rest by Holm.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from reports.stats.intervals import Estimate
from reports.stats.moderated import Prior
from reports.stats.outcomes import permuted_effect
from reports.stats.simultaneous import Array, agree_with_holm, holm, max_t_p, max_t_quantile
from reports.stats.two_way import Errors, TwoWay, two_way
from reports.stats.unblocked import too_few, welch, widening


class Method(enum.StrEnum):
    """How an effect was judged; the value is what is printed."""

    TWO_WAY = "two-way model, max-t"
    TWO_WAY_SHARED = "two-way model, Bonferroni"
    MODERATED = "two-way model with moderated variance, max-t"
    PAIRED = "paired t, Holm"
    WELCH = "Welch t, Holm"
    PERMUTED = "permuted worst-rank trimmed mean, Holm"
    SEQUENCE = "anytime-valid t-mixture"
    SLOPE = "local slope, delta method, Bonferroni"
    SLOPE_SEQUENCE = "anytime-valid t-mixture over the slope's sequence"
    DIFFERENCE = "difference only"


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One arm's outcomes of one metric: finite values with their blocks, and how many diverged."""

    values: Array
    blocks: tuple[object, ...]  # None: unblocked
    n_diverged: int = 0


@dataclass(frozen=True, kw_only=True)
class Effect:
    """Arm minus baseline: the estimate, a simultaneous interval, the adjusted p.

    What the runs do not allow is None. p_attainable is 1 where too few runs without common blocks
    allow no interval."""

    delta: float
    low: float | None
    high: float | None
    p: float | None
    p_attainable: float | None
    df: float | None
    se: float | None
    method: Method
    n_blocks: int
    correlation: float | None


def difference_only(delta: float, *, n_blocks: int, correlation: float | None) -> Effect:
    """An effect of which nothing is known but its size."""
    return Effect(
        delta=delta,
        low=None,
        high=None,
        p=None,
        p_attainable=None,
        df=None,
        se=None,
        method=Method.DIFFERENCE,
        n_blocks=n_blocks,
        correlation=correlation,
    )


def block_means(sample: Sample) -> dict[object, float]:
    """Mean per block (replicates within a block averaged), unblocked runs left out."""
    grouped: dict[object, list[float]] = {}
    for value, block in zip(sample.values, sample.blocks, strict=True):
        if block is not None:
            grouped.setdefault(block, []).append(float(value))
    means = {}
    for block, values in grouped.items():
        means[block] = float(np.mean(values)) if len(values) > 1 else values[0]
    return means


def paired(arm: Sample, baseline: Sample) -> tuple[Array, Array]:
    """Values of arm and baseline over the blocks both have, (n,) each, in the baseline's order."""
    of_arm, of_baseline = block_means(arm), block_means(baseline)
    shared = [block for block in of_baseline if block in of_arm]
    a = np.array([of_arm[block] for block in shared], float)
    b = np.array([of_baseline[block] for block in shared], float)
    return a, b


def correlation(arm: Sample, baseline: Sample) -> float | None:
    """Pearson's r of arm and baseline over shared blocks; None below 3 blocks or without spread."""
    a, b = paired(arm, baseline)
    if len(a) < 3 or not np.ptp(a) or not np.ptp(b):
        return None
    return float(np.corrcoef(a, b)[0, 1])


def paired_t(arm: Sample, baseline: Sample) -> tuple[float, float, float, int]:
    """(difference, standard error, df, shared blocks): paired over shared blocks.

    Welch's, with 0 blocks, where fewer than two are shared."""
    a, b = paired(arm, baseline)
    if len(a) >= 2:
        d = a - b
        return float(d.mean()), float(d.std(ddof=1) / np.sqrt(len(d))), len(d) - 1.0, len(d)
    return *welch(arm.values, baseline.values), 0


def analyse(
    arms: Mapping[str, Sample],
    baseline: Sample,
    *,
    level: float = 0.95,
    alters_noise: frozenset[str] = frozenset(),
    prior: Prior | None = None,
) -> dict[str, Effect]:
    """Effect of every arm that has a value, by the declared analysis at simultaneous `level`.

    alters_noise: arms that are declared to have a variance of their own; prior: what the plan
    declares of one run's noise, by which the two-way model's variances are moderated."""
    if not arms:
        return {}
    alpha, m = 1 - level, len(arms)
    pooled = _names_to_pool(arms, baseline, alters_noise)
    effects = _pooled(arms, baseline, pooled, alpha * len(pooled) / m, prior)
    rest = {name: sample for name, sample in arms.items() if name not in effects}
    effects |= _separate(rest, baseline, alpha, m)
    return {name: effects[name] for name in arms}


def _names_to_pool(
    arms: Mapping[str, Sample], baseline: Sample, alters_noise: frozenset[str]
) -> list[str]:
    """Arms of the two-way model: all runs in blocks, one of them the baseline's, none diverged."""
    if len(block_means(baseline)) < 2 or baseline.n_diverged:
        return []
    names = []
    for name, sample in arms.items():
        all_blocked = None not in sample.blocks and len(paired(sample, baseline)[0]) >= 1
        if all_blocked and name not in alters_noise and not sample.n_diverged:
            names.append(name)
    return names


def _blocked(sample: Sample) -> Sample:
    """Without its unblocked runs."""
    keep = np.array([block is not None for block in sample.blocks], bool)
    blocks = tuple(block for block in sample.blocks if block is not None)
    return Sample(values=sample.values[keep], blocks=blocks)


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """The contrasts of the two-way model by one of its errors, (m,) each."""

    half: Array
    p: Array
    se: Array
    df: Array


def _pooled(
    arms: Mapping[str, Sample],
    baseline: Sample,
    names: Sequence[str],
    alpha: float,
    prior: Prior | None,
) -> dict[str, Effect]:
    """The named arms by the two-way model at simultaneous `alpha`."""
    if not names:
        return {}
    fitted = two_way_of([_blocked(baseline), *(arms[name] for name in names)])
    share = len(arms) / len(names)
    errors, method = fitted.errors, Method.TWO_WAY
    if prior is not None:
        errors = tuple(prior.moderated(error, fitted.scale) for error in errors)
        method = Method.MODERATED
    answers = [_judged(fitted, error, 1 - alpha, share) for error in errors]
    effects = {}
    for i, name in enumerate(names):
        delta = float(fitted.delta[i])
        n_blocks = len(paired(arms[name], baseline)[0])
        r = correlation(arms[name], baseline)
        if not answers:
            effects[name] = difference_only(delta, n_blocks=n_blocks, correlation=r)
            continue
        wider = _widest(answers, i)
        effects[name] = effect_of(
            Estimate(value=delta, se=float(wider.se[i]), df=float(wider.df[i])),
            float(wider.half[i]),
            float(max(answer.p[i] for answer in answers)),
            method,
            n_blocks=n_blocks,
            correlation=r,
        )
    return effects


def two_way_of(samples: Sequence[Sample], contrasts: Array | None = None) -> TwoWay:
    """The two-way model of samples, the baseline's first; contrasts: others than with that."""
    values = np.concatenate([sample.values for sample in samples])
    arm: list[int] = []
    block: list[int] = []
    numbers: dict[object, int] = {}
    for i, sample in enumerate(samples):
        for name in sample.blocks:
            arm.append(i)
            block.append(numbers.setdefault(name, len(numbers)))
    return two_way(values, arm, block, contrasts)


def _judged(fitted: TwoWay, errors: Errors, level: float, share: float) -> _Judged:
    """share: of the whole family's arms to those that are pooled, by which p is raised."""
    t = fitted.delta / np.maximum(errors.se, 1e-300)
    half, p = np.empty_like(t), np.empty_like(t)
    for df in np.unique(errors.df):
        of_it = errors.df == df
        half[of_it] = max_t_quantile(level, fitted.corr, float(df)) * errors.se[of_it]
        p[of_it] = np.minimum(1, share * max_t_p(t[of_it], fitted.corr, float(df)))
    return _Judged(half=half, p=p, se=errors.se, df=errors.df)


def _widest(answers: Sequence[_Judged], i: int) -> _Judged:
    """The answer with the widest interval of contrast i; the first of equal ones."""
    widest = answers[0]
    for answer in answers[1:]:
        if answer.half[i] > widest.half[i]:
            widest = answer
    return widest


def _separate(
    arms: Mapping[str, Sample], baseline: Sample, alpha: float, m: int
) -> dict[str, Effect]:
    """Each arm on its own at alpha / m, sharpened by Holm among them."""
    effects = {}
    for name, sample in arms.items():
        if sample.n_diverged or baseline.n_diverged:
            effects[name] = _permuted(sample, baseline, alpha / m, m)
        else:
            effects[name] = _by_its_own_t(sample, baseline, alpha / m)
    return _sharpened(effects, alpha, m)


def _permuted(arm: Sample, baseline: Sample, alpha: float, m: int) -> Effect:
    """The trimmed mean's, where runs diverged."""
    result = permuted_effect(
        arm.values, arm.n_diverged, baseline.values, baseline.n_diverged, alpha=alpha
    )
    _, se, _ = welch(arm.values, baseline.values)
    return Effect(
        delta=result.delta,
        low=result.low,
        high=result.high,
        p=result.p,
        p_attainable=min(1.0, m * result.p_attainable),
        df=None,
        se=se if np.isfinite(se) else None,
        method=Method.PERMUTED,
        n_blocks=0,
        correlation=correlation(arm, baseline),
    )


def _by_its_own_t(arm: Sample, baseline: Sample, alpha: float) -> Effect:
    """One arm's at `alpha`: paired over shared blocks, or Welch's, widened."""
    delta, se, df, n_blocks = paired_t(arm, baseline)
    r = correlation(arm, baseline)
    rounding = 1e-12 * max(1.0, abs(float(baseline.values.mean())))
    if not (np.isfinite(se) and se > rounding):
        return difference_only(delta, n_blocks=n_blocks, correlation=r)
    if not n_blocks:
        n_arm, n_baseline = len(arm.values), len(baseline.values)
        if too_few(n_arm, n_baseline, alpha):
            n_shared = len(paired(arm, baseline)[0])
            effect = difference_only(delta, n_blocks=n_shared, correlation=r)
            return replace(effect, p_attainable=1.0)
        se *= widening(n_arm, n_baseline, alpha)
    half = stats.t.isf(alpha / 2, df) * se
    p = float(2 * stats.t.sf(abs(delta) / se, df))
    method = Method.PAIRED if n_blocks else Method.WELCH
    estimate = Estimate(value=delta, se=se, df=df)
    return effect_of(estimate, half, p, method, n_blocks=n_blocks, correlation=r)


def _sharpened(effects: Mapping[str, Effect], alpha: float, m: int) -> dict[str, Effect]:
    """Effects at alpha / m with Holm's p; an interval ends at zero where Holm decided the sign."""
    sharpened = dict(effects)
    ps = {name: effect.p for name, effect in effects.items() if effect.p is not None}
    if not ps:
        return sharpened
    share = m / len(effects)
    adjusted = np.minimum(1, share * holm(np.array([*ps.values()], float)))
    for name, p in zip(ps, adjusted, strict=True):
        effect = effects[name]
        low, high = effect.low, effect.high
        if low is not None and high is not None:
            bounds = np.asarray(effect.delta), np.asarray(low), np.asarray(high)
            cut_low, cut_high = agree_with_holm(*bounds, np.asarray(p), alpha=alpha)
            low, high = float(cut_low), float(cut_high)
        sharpened[name] = replace(effect, low=low, high=high, p=float(p))
    return sharpened


def effect_of(
    estimate: Estimate,
    half: float,
    p: float,
    method: Method,
    *,
    n_blocks: int,
    correlation: float | None,
) -> Effect:
    """With the interval of this half width, or without where it is not finite.

    p: adjusted; n_blocks: that both arms share; correlation: over these."""
    delta = estimate.value
    if not np.isfinite(half):
        return difference_only(delta, n_blocks=n_blocks, correlation=correlation)
    return Effect(
        delta=delta,
        low=delta - half,
        high=delta + half,
        p=p,
        p_attainable=0.0,  # a t statistic can grow without bound
        df=estimate.df,
        se=estimate.se,
        method=method,
        n_blocks=n_blocks,
        correlation=correlation,
    )
