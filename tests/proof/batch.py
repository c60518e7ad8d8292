"""The fixed-n analyses for R experiments at once; tests/test_stats_proof.py holds them to reports.stats.contrasts.analyse.

Arrays: y_RNK is R replications, N blocks, K arms with the baseline first; M = K - 1 arms."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import stats

from reports.stats.moderated import Prior
from reports.stats.sequential import FIRST, MOST_REACH, critical_of
from reports.stats.simultaneous import max_t_quantile
from reports.stats.two_way import noisy_share, split_variances
from reports.stats.unblocked import widening


@dataclass(frozen=True, kw_only=True)
class Batch:
    delta: np.ndarray  # (R, M)
    low: np.ndarray
    high: np.ndarray


def chunks(
    seed: list[int], replications: int, numbers_each: int
) -> Iterator[tuple[np.random.Generator, int]]:
    """One stream of random numbers and how many experiments to draw from it next, a few million numbers at a time."""
    rng, at_once = np.random.default_rng(seed), max(1, 4_000_000 // numbers_each)
    for start in range(0, replications, at_once):
        yield rng, min(at_once, replications - start)


def running_sums(d_RNM: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, sd and adjusted skewness of the first 2, 3, ..., N differences, (R, N - 1, M) each."""
    n = np.arange(1, d_RNM.shape[1] + 1)[None, :, None]
    d = d_RNM - d_RNM.mean(1, keepdims=True)  # so that third powers keep their digits
    mean, second, third = ((d**k).cumsum(1)[:, 1:] / n[:, 1:] for k in (1, 2, 3))
    n = n[:, 1:]
    central = np.maximum(second - mean**2, 1e-300)
    skew = (
        (third - 3 * mean * second + 2 * mean**3)
        / central**1.5
        * np.sqrt(n * (n - 1))
        / np.maximum(n - 2, 1)
    )
    return (
        mean + d_RNM.mean(1, keepdims=True),
        np.sqrt(central * n / (n - 1)),
        np.where(n > 2, skew, 0.0),
    )


def running_h(d_RNM: np.ndarray, truth: float | np.ndarray = 0.0) -> np.ndarray:
    """What the sequences take for t after 2, 3, ..., N differences, (R, N - 1, M); truth: of their mean."""
    mean, sd, skew = running_sums(d_RNM)
    n = np.arange(2, d_RNM.shape[1] + 1)[None, :, None]
    u, a = (mean - truth) / sd, skew / 3
    h = u + a * u**2 + a**2 * u**3 / 3 + skew / 6 / n
    return np.sqrt(n) * np.minimum(np.abs(u), np.maximum(np.abs(h), np.abs(u) / MOST_REACH))


def running_independent(
    a_RM: np.ndarray, b_RN: np.ndarray, alpha: float, *, grows: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Differences and half widths (R, M) of two samples without pairs, after each of the arm's runs.

    grows: the baseline has as many runs as the arm, else all of its own from the first on."""
    m = np.arange(1, a_RM.shape[1] + 1)
    n = m if grows else np.full_like(m, b_RN.shape[1])
    mean_a, var_a = _running(a_RM, m)
    mean_b, var_b = _running(b_RN, n)
    share = m * n / (m + n)
    with np.errstate(divide="ignore", invalid="ignore"):
        of_a, of_b = var_a / m, var_b / n
        df = (of_a + of_b) ** 2 / (of_a**2 / (m - 1) + of_b**2 / (n - 1))
        pooled = np.sqrt(((m - 1) * var_a + (n - 1) * var_b) / (m + n - 2) / share)
        half = np.maximum(
            critical_of(share, df, alpha) * np.sqrt(of_a + of_b),
            critical_of(share, m + n - 2.0, alpha) * pooled,
        )
    return mean_a - mean_b, np.where(np.minimum(m, n) < FIRST, np.inf, half)


def _running(x_RN: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances of the first so many values."""
    n = np.arange(1, x_RN.shape[1] + 1)
    mean = x_RN.cumsum(1) / n
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = ((x_RN**2).cumsum(1) - n * mean**2) / (n - 1)
    return mean[:, counts - 1], variance[:, counts - 1]


def declared_analysis(
    y_RNK: np.ndarray,
    *,
    level: float = 0.95,
    noisy: frozenset[int] = frozenset(),
    prior: Prior | None = None,
) -> Batch:
    """Blocked experiments; `noisy` numbers the arms (from 0) declared alters_noise."""
    _, n, k = y_RNK.shape
    m, alpha = k - 1, 1 - level
    d_RNM = y_RNK[:, :, 1:] - y_RNK[:, :, :1]
    delta = d_RNM.mean(axis=1)
    pooled = np.array([j for j in range(m) if j not in noisy])
    own = np.array(sorted(noisy), dtype=int)
    low, high = np.empty_like(delta), np.empty_like(delta)
    if len(pooled):
        whole, m_in = y_RNK[:, :, [0, *(pooled + 1)]], len(pooled)
        corr, level = 0.5 * (np.eye(m_in) + 1), 1 - alpha * m_in / m
        one, by_arm = drawn_variances(whole)
        either = np.maximum(by_arm[:, :1], by_arm[:, 1:])
        df, own_df, more = (n - 1) * m_in, 4 * (n - 1) * m_in / (m_in + 3), 0.0
        if prior is not None:
            one, either = prior.variance(one, df), prior.variance(either, own_df, np.sqrt(2))
            more = prior.df
        half = max_t_quantile(level, corr, df + more) * np.sqrt(2 * one[:, None] / n)
        if m_in > 1 or prior is None:  # of two arms there is one error
            own_half = max_t_quantile(level, corr, own_df + more) * np.sqrt(either / n)
            half = np.maximum(half, own_half)
        low[:, pooled], high[:, pooled] = delta[:, pooled] - half, delta[:, pooled] + half
    if len(own):
        part = _separate(d_RNM[:, :, own], delta[:, own], alpha, m, np.arange(len(own)))
        low[:, own], high[:, own] = part.low, part.high
    return Batch(delta=delta, low=low, high=high)


def _separate(
    d_RNM: np.ndarray, delta: np.ndarray, alpha: float, m: int, index: np.ndarray
) -> Batch:
    n, m_own = d_RNM.shape[1], len(index)
    se = d_RNM.std(axis=1, ddof=1) / np.sqrt(n)
    t = np.abs(delta) / se
    order = np.argsort(-t, axis=1)
    steps = stats.t.isf(
        alpha / m * m_own / np.arange(m_own, 0, -1) / 2, n - 1
    )  # Holm's, the largest t first
    decided = np.empty(t.shape, bool)
    np.put_along_axis(
        decided,
        order,
        np.logical_and.accumulate(np.take_along_axis(t, order, 1) >= steps, axis=1),
        1,
    )
    half = stats.t.isf(alpha / m / 2, n - 1) * se
    low, high = delta - half, delta + half
    low = np.where(decided & (delta > 0), np.maximum(low, 0), low)
    high = np.where(decided & (delta < 0), np.minimum(high, 0), high)
    return Batch(delta=delta, low=low, high=high)


def drawn_variances(
    y_RNK: np.ndarray, c_K: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The two errors' variances for R experiments of N complete blocks and K arms at once.

    As sums of squares would give them: (one variance of all arms (R,), per arm (R, K) that of the
    contrast where the arm has its own and the others share one). Without c_K the contrast is that
    arm minus another one."""
    _, n, k = y_RNK.shape
    of_blocks, of_arms = y_RNK.mean(2, keepdims=True), y_RNK.mean(1, keepdims=True)
    left = y_RNK - of_arms - of_blocks + y_RNK.mean((1, 2), keepdims=True)
    rss = (left**2).sum(1)
    one, own, rest = split_variances(rss, rss.sum(1), n, k)
    square, others = np.ones(k), np.ones(k)
    if c_K is not None:
        square = c_K**2
        others = square.sum() - square
    variance = np.maximum(own * square + rest * others, 0.0)
    return one, np.where(square > 0, variance, 0.0)


def contrast_half(y_RNK: np.ndarray, c_K: np.ndarray, alpha: float) -> np.ndarray:
    """Half widths (R,) of a contrast of arm means, as reports.analysis.attribution.contrast_of gives them."""
    _, n, k = y_RNK.shape
    one, own = drawn_variances(y_RNK, c_K)
    half = stats.t.isf(alpha / 2, (n - 1) * (k - 1)) * np.sqrt(one * (c_K @ c_K) / n)
    return np.maximum(
        half,
        stats.t.isf(alpha / 2, min(own_df(n, c_K), (n - 1) * (k - 1) * noisy_share(k)))
        * np.sqrt(own.max(axis=1) / n),
    )


def own_df(n: int, c_K: np.ndarray) -> float:
    """Least df of a contrast in n complete blocks when one of its arms has a variance of its own: of the design alone."""
    k, square = len(c_K), c_K**2
    kept = (
        (n - 1) / k**2 * np.array([[(k - 1) ** 2, k - 1], [k - 1, (k - 1) * (k**2 - k - 1)]])
    )  # expected squares: arm, others
    w = np.array([square, square.sum() - square])[:, square > 0]
    return float((w.sum(0) ** 2 / np.einsum("am,ab,bm->m", w, np.linalg.inv(kept), w)).min())


def unblocked_interval(
    a_RN: np.ndarray, b_RN: np.ndarray, level: float = 0.95
) -> tuple[np.ndarray, np.ndarray]:
    """(delta, half width) of R independent pairs of samples: Welch's, widened."""
    va, vb = a_RN.var(1, ddof=1) / a_RN.shape[1], b_RN.var(1, ddof=1) / b_RN.shape[1]
    df = (va + vb) ** 2 / (va**2 / (a_RN.shape[1] - 1) + vb**2 / (b_RN.shape[1] - 1))
    grid = np.linspace(
        1 / (a_RN.shape[1] + b_RN.shape[1]), 1.0, 4001
    )  # of 1 / df, in which t's quantile is smooth
    factor = widening(a_RN.shape[1], b_RN.shape[1], 1 - level) * np.interp(
        1 / df, grid, stats.t.isf((1 - level) / 2, 1 / grid)
    )
    return a_RN.mean(1) - b_RN.mean(1), factor * np.sqrt(va + vb)
