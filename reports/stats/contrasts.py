"""Arms against the baseline with a fixed number of runs: the one declared analysis, on arrays.

`analyse` chooses by the number of blocks and by what the plan declares, never by the values:
    2 to 5 blocks   two-way model arm + block, the larger of two errors (reports/stats/two_way.py), max-t over the arms
    6 and more      paired t per arm over shared blocks, Holm over the arms
    no blocks       Welch's t per arm, widened (reports/stats/unblocked.py), Holm
    alters_noise    an arm declared so is not pooled: paired t, and its share of the error rate
    diverged runs   permuted worst-rank trimmed mean (reports/stats/outcomes.py), and its share
A family of m arms spends alpha once: the pooled arms share alpha * m_pooled / m, the others the rest by Holm.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from reports.stats.outcomes import permuted_effect
from reports.stats.simultaneous import Array, agree_with_holm, holm, max_t_p, max_t_quantile
from reports.stats.two_way import two_way
from reports.stats.unblocked import too_few, welch, widening

POOLED_UP_TO = 5  # blocks: above it every arm's own variance is known well enough


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One arm's outcomes of one metric: finite values with their blocks (None: unblocked), and how many runs diverged."""

    values: Array
    blocks: tuple[object, ...]
    n_diverged: int = 0


@dataclass(frozen=True, kw_only=True)
class Effect:
    """Arm minus baseline: the estimate, a simultaneous interval, the adjusted p. None where the runs allow none.

    p_attainable is 1 where too few runs without common blocks allow no interval."""

    delta: float
    low: float | None
    high: float | None
    p: float | None
    p_attainable: float | None
    df: float | None
    se: float | None
    method: str
    n_blocks: int
    correlation: float | None


def block_means(sample: Sample) -> dict[object, float]:
    """Mean per block (replicates within a block averaged), unblocked runs left out."""
    grouped: dict[object, list[float]] = {}
    for value, block in zip(sample.values, sample.blocks, strict=True):
        if block is not None:
            grouped.setdefault(block, []).append(float(value))
    return {block: float(np.mean(values)) if len(values) > 1 else values[0] for block, values in grouped.items()}


def paired(arm: Sample, baseline: Sample) -> tuple[Array, Array]:
    """Values of arm and baseline over the blocks both have, (n,) each, in the baseline's order."""
    a, b = block_means(arm), block_means(baseline)
    shared = [block for block in b if block in a]
    return np.array([a[s] for s in shared], float), np.array([b[s] for s in shared], float)


def correlation(arm: Sample, baseline: Sample) -> float | None:
    """Pearson's r of arm and baseline over shared blocks; None below 3 blocks or without spread."""
    a, b = paired(arm, baseline)
    if len(a) < 3 or not np.ptp(a) or not np.ptp(b):
        return None
    return float(np.corrcoef(a, b)[0, 1])


def paired_t(arm: Sample, baseline: Sample) -> tuple[float, float, float, int]:
    """(difference, standard error, df, shared blocks): paired over shared blocks, Welch where fewer than two are shared."""
    a, b = paired(arm, baseline)
    if len(a) >= 2:
        d = a - b
        return float(d.mean()), float(d.std(ddof=1) / np.sqrt(len(d))), len(d) - 1.0, len(d)
    return *welch(arm.values, baseline.values), 0


def analyse(
    arms: Mapping[str, Sample], baseline: Sample, *, level: float = 0.95, alters_noise: frozenset[str] = frozenset()
) -> dict[str, Effect]:
    """Effect of every arm that has a value, by the declared analysis at simultaneous `level`."""
    alpha, m = 1 - level, len(arms)
    n_blocks = len(block_means(baseline))
    shared = {name: len(paired(sample, baseline)[0]) for name, sample in arms.items()}
    pooled = [
        name
        for name, sample in arms.items()
        if 2 <= n_blocks <= POOLED_UP_TO
        and shared[name] >= 1
        and not {name} & alters_noise
        and not sample.n_diverged
        and not baseline.n_diverged
        and None not in sample.blocks
    ]
    out = _pooled(arms, baseline, pooled, alpha * len(pooled) / m if m else alpha, m)
    rest = [name for name in arms if name not in out]
    out |= _separate({name: arms[name] for name in rest}, baseline, alpha, m)
    return {name: out[name] for name in arms}


def _blocked(sample: Sample) -> Sample:
    """Without its unblocked runs."""
    keep = np.array([b is not None for b in sample.blocks], bool)
    return Sample(values=sample.values[keep], blocks=tuple(b for b in sample.blocks if b is not None))


def _pooled(arms: Mapping[str, Sample], baseline: Sample, names: list[str], alpha: float, m: int) -> dict[str, Effect]:
    if not names:
        return {}
    samples = [_blocked(baseline), *(arms[name] for name in names)]
    values = np.concatenate([s.values for s in samples])
    arm = [i for i, s in enumerate(samples) for _ in s.values]
    index = {block: i for i, block in enumerate(dict.fromkeys(b for s in samples for b in s.blocks))}
    fitted = two_way(values, arm, [index[b] for s in samples for b in s.blocks])
    share, level = m / len(names), 1 - alpha
    halves = [max_t_quantile(level, fitted.corr, e.df) * e.se for e in fitted.errors]
    ps = [np.minimum(1, share * max_t_p(fitted.delta / np.maximum(e.se, 1e-300), fitted.corr, e.df)) for e in fitted.errors]
    out = {}
    for i, name in enumerate(names):
        wider = max(range(len(halves)), key=lambda j: halves[j][i], default=None)
        half, p, df, se = (
            (np.nan,) * 4
            if wider is None
            else (halves[wider][i], max(p[i] for p in ps), fitted.errors[wider].df, fitted.errors[wider].se[i])
        )
        out[name] = _effect(
            float(fitted.delta[i]), float(half), float(p), df, float(se), "two-way model, max-t", arms[name], baseline
        )
    return out


def _separate(arms: Mapping[str, Sample], baseline: Sample, alpha: float, m: int) -> dict[str, Effect]:
    """Each arm on its own at alpha / m, sharpened by Holm among them."""
    if not arms:
        return {}
    share, out = m / len(arms), {}
    for name, sample in arms.items():
        if sample.n_diverged or baseline.n_diverged:
            r = permuted_effect(sample.values, sample.n_diverged, baseline.values, baseline.n_diverged, alpha=alpha / m)
            out[name] = Effect(
                delta=r.delta, low=r.low, high=r.high, p=r.p, p_attainable=min(1.0, m * r.p_attainable), df=None,
                se=se if np.isfinite(se := welch(sample.values, baseline.values)[1]) else None,
                method="permuted worst-rank trimmed mean, Holm", n_blocks=0, correlation=correlation(sample, baseline),
            )  # fmt: skip
            continue
        delta, se, df, n = paired_t(sample, baseline)
        good = np.isfinite(se) and se > 1e-12 * max(1.0, abs(float(baseline.values.mean())))
        if good and not n:
            if too_few(len(sample.values), len(baseline.values), alpha / m):
                out[name] = replace(_effect(delta, np.nan, np.nan, df, se, "", sample, baseline), p_attainable=1.0)
                continue
            se *= widening(len(sample.values), len(baseline.values), alpha / m)
        half = stats.t.isf(alpha / m / 2, df) * se if good else np.nan
        p = float(2 * stats.t.sf(abs(delta) / se, df)) if good else np.nan
        method = f"{'paired' if n else 'Welch'} t, Holm"
        out[name] = _effect(delta, half, p, df, se, method, sample, baseline)
    tested = [name for name, e in out.items() if e.p is not None]
    if tested:
        adjusted = np.minimum(1, share * holm(np.array([out[n].p for n in tested], float)))
        for name, p in zip(tested, adjusted, strict=True):
            e = out[name]
            low, high = e.low, e.high
            if low is not None and high is not None:
                ends = agree_with_holm(*map(np.asarray, (e.delta, low, high, p)), alpha=alpha)
                low, high = float(ends[0]), float(ends[1])
            out[name] = Effect(**{**vars(e), "low": low, "high": high, "p": float(p)})
    return out


def _effect(delta: float, half: float, p: float, df: float, se: float, method: str, arm: Sample, baseline: Sample) -> Effect:
    known = bool(np.isfinite(half))
    return Effect(
        delta=delta,
        low=delta - half if known else None,
        high=delta + half if known else None,
        p=p if known else None,
        p_attainable=0.0 if known else None,  # a t statistic can grow without bound
        df=df if known else None,
        se=se if known else None,
        method=method if known else "difference only",
        n_blocks=0 if method.startswith("Welch") else len(paired(arm, baseline)[0]),
        correlation=correlation(arm, baseline),
    )
