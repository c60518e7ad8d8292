"""The fixed-n analyses for R experiments at once; tests/test_stats_proof.py holds them to reports.contrasts.analyse.

Arrays: y_RNK is R replications, N blocks, K arms with the baseline first; M = K - 1 arms."""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from reports.contrasts import POOLED_UP_TO
from reports.simultaneous import max_t_quantile


@dataclass(frozen=True, kw_only=True)
class Batch:
    delta: np.ndarray  # (R, M)
    low: np.ndarray
    high: np.ndarray


def declared_analysis(y_RNK: np.ndarray, *, level: float = 0.95, noisy: frozenset[int] = frozenset()) -> Batch:
    """Blocked experiments by the number of blocks; `noisy` numbers the arms (from 0) declared alters_noise."""
    _, n, k = y_RNK.shape
    m, alpha = k - 1, 1 - level
    d_RNM = y_RNK[:, :, 1:] - y_RNK[:, :, :1]
    delta = d_RNM.mean(axis=1)
    if n > POOLED_UP_TO:
        return _separate(d_RNM, delta, alpha, m, np.arange(m))
    pooled = np.array([j for j in range(m) if j not in noisy])
    own = np.array(sorted(noisy), dtype=int)
    low, high = np.empty_like(delta), np.empty_like(delta)
    if len(pooled):
        y, m_in = y_RNK[:, :, 1:][:, :, pooled], len(pooled)
        gap = y_RNK[:, :, 0] - y.mean(2)
        residual = y - y.mean(1, keepdims=True) - y.mean(2, keepdims=True) + y.mean((1, 2), keepdims=True)
        arms = (residual**2).sum((1, 2)) / (n - 1) / max(m_in - 1, 1)
        variance = gap.var(axis=1, ddof=1) + arms * (1 - 1 / m_in)  # the baseline's noise and one arm's
        corr, level = 0.5 * (np.eye(m_in) + 1), 1 - alpha * m_in / m
        whole = y_RNK[:, :, [0, *(pooled + 1)]]
        left = whole - whole.mean(1, keepdims=True) - whole.mean(2, keepdims=True) + whole.mean((1, 2), keepdims=True)
        df = (n - 1) * m_in
        half = np.maximum(
            max_t_quantile(level, corr, df) * np.sqrt((left**2).sum((1, 2)) / df * 2 / n),
            max_t_quantile(level, corr, 4 * (n - 1) * m_in / (m_in + 3)) * np.sqrt(variance / n),
        )[:, None]
        low[:, pooled], high[:, pooled] = delta[:, pooled] - half, delta[:, pooled] + half
    if len(own):
        part = _separate(d_RNM[:, :, own], delta[:, own], alpha, m, np.arange(len(own)))
        low[:, own], high[:, own] = part.low, part.high
    return Batch(delta=delta, low=low, high=high)


def _separate(d_RNM: np.ndarray, delta: np.ndarray, alpha: float, m: int, index: np.ndarray) -> Batch:
    n, m_own = d_RNM.shape[1], len(index)
    se = d_RNM.std(axis=1, ddof=1) / np.sqrt(n)
    p = 2 * stats.t.sf(np.abs(delta) / se, n - 1)
    order = np.argsort(p, axis=1)
    stepped = np.minimum(1, np.maximum.accumulate(np.take_along_axis(p, order, 1) * np.arange(m_own, 0, -1), axis=1))
    adjusted = np.empty_like(p)
    np.put_along_axis(adjusted, order, stepped, 1)
    half = stats.t.isf(alpha / m / 2, n - 1) * se
    decided = adjusted * (m / m_own) <= alpha
    low, high = delta - half, delta + half
    low = np.where(decided & (delta > 0), np.maximum(low, 0), low)
    high = np.where(decided & (delta < 0), np.minimum(high, 0), high)
    return Batch(delta=delta, low=low, high=high)


def welch_interval(a_RN: np.ndarray, b_RN: np.ndarray, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """(delta, half width) of R independent pairs of samples."""
    va, vb = a_RN.var(1, ddof=1) / a_RN.shape[1], b_RN.var(1, ddof=1) / b_RN.shape[1]
    df = (va + vb) ** 2 / (va**2 / (a_RN.shape[1] - 1) + vb**2 / (b_RN.shape[1] - 1))
    return a_RN.mean(1) - b_RN.mean(1), stats.t.isf((1 - level) / 2, df) * np.sqrt(va + vb)
