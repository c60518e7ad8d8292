"""The two-way model arm + block, judged by the larger of two errors.

One variance for all arms, residual df (n-1)(k-1) for k arms in n complete blocks, is the textbook's. It errs where one arm is
noisier than the rest: with a baseline of 1.5 times the sd in all comparisons at once (family-wise error 8 % instead of 5 %), with
one arm of three times the sd in that arm's (8 to 10 %). So any arm of a contrast may have a variance of its own beside one of all
others; the largest of these answers is the second error, with 4 (n-1) (k-1) / (k+2) df for a difference of two arms in complete
blocks, and for contrasts of many arms with as many as one arm of twice the sd would leave. Whichever error is larger counts, so
nobody has to test first which of them is right. Estimates are least squares; for one arm against the baseline both answers are
the paired t test. Arrays: N runs, k arms, the baseline first, m = k - 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reports.stats.simultaneous import Array


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Standard errors (m,) with their df; where designs are ragged, the least certain contrast's."""

    se: Array
    df: float


@dataclass(frozen=True, kw_only=True)
class TwoWay:
    """Contrasts of arm effects (m,), their correlation at equal noise (m, m), and the errors there are, at most two.

    A noisier baseline correlates the arms more, and then max-t errs on the safe side."""

    delta: Array
    corr: Array
    errors: tuple[Errors, ...]


def two_way(values: Array, arm: Sequence[int], block: Sequence[int], contrasts: Array | None = None) -> TwoWay:
    """Fit runs (N,) of arms numbered from 0 in blocks; cells may be missing or repeated.

    contrasts: (m, k), rows that sum to zero; without them every arm minus the baseline. No errors where nothing is left over to
    judge by; raises ValueError where an arm shares no block with the rest."""
    arm_i, block_i = np.asarray(arm), np.asarray(block)
    k, blocks = int(arm_i.max()) + 1, np.unique(block_i)
    of_arms = np.hstack([-np.ones((k - 1, 1)), np.eye(k - 1)]) if contrasts is None else contrasts
    member = (arm_i == np.arange(k)[:, None]).astype(float)  # (k, N)
    x = np.hstack([member[1:].T, (block_i[:, None] == blocks).astype(float)])
    if np.linalg.matrix_rank(x) < x.shape[1]:
        raise ValueError(
            "an arm shares no block with the baseline, so the arm + block model has no answer: complete the missing runs"
        )
    solver = np.linalg.inv(x.T @ x) @ x.T
    remainder = np.eye(len(values)) - x @ solver
    residual, contrast = remainder @ values, of_arms[:, 1:] @ solver[: k - 1]
    unscaled = contrast @ contrast.T
    scale = np.sqrt(np.diag(unscaled))
    fitted = {"delta": contrast @ values, "corr": unscaled / np.outer(scale, scale)}
    df, rss = len(values) - x.shape[1], float(residual @ residual)
    if df < 1 or rss <= 1e-24 * df * max(1.0, float(np.abs(values).max()) ** 2):  # nothing left over, or nothing but rounding
        return TwoWay(**fitted, errors=())
    one = Errors(se=scale * np.sqrt(rss / df), df=float(df))
    kept = member @ remainder**2 @ member.T  # (k, k): E[rss of arm a] = sum_b kept_ab var_b
    own = [_own(a, of_arms[:, a] != 0, contrast**2 @ member.T, kept, member @ residual**2) for a in range(k)]
    told = [found for found in own if found is not None]
    if not told:
        return TwoWay(**fitted, errors=(one,))
    variance, own_df = np.max([variance for variance, _ in told], axis=0), float(min(df.min() for _, df in told))
    second = Errors(se=np.sqrt(variance), df=round(min(own_df, df * noisy_share(k)), 9))
    return TwoWay(**fitted, errors=(one, second))


def noisy_share(k: int) -> float:
    """Of the residual df of k arms, what is left by Satterthwaite (1946) where one arm has twice the sd: for contrasts of many
    arms, whose own variances say too little about each."""
    left = np.eye(k) - 1 / k
    noisy = left * np.r_[4.0, np.ones(k - 1)]
    return float(np.trace(noisy) ** 2 / np.trace(noisy @ noisy) / (k - 1))


def _own(a: int, holds: Array, weights: Array, kept: Array, rss: Array) -> tuple[Array, Array] | None:
    """(variance of the contrasts, its df), (m,) each, where arm a has a variance of its own and the others share one.

    Zero, with infinite df, for contrasts without the arm; None where residuals cannot tell the two apart."""
    group = np.stack([np.arange(len(rss)) == a, np.arange(len(rss)) != a]).astype(float)  # (2, k)
    expected = group @ kept @ group.T
    if not holds.any() or np.linalg.matrix_rank(expected, tol=1e-9) < 2:
        return None
    inverse, w = np.linalg.inv(expected), weights @ group.T  # (m, 2): variance = w @ (the arm's, the others')
    variance = np.maximum(w @ inverse @ (group @ rss), 0.0)
    df = w.sum(1) ** 2 / np.einsum("ma,ab,mb->m", w, inverse, w)  # Satterthwaite's at equal noise: of the design alone
    return np.where(holds, variance, 0.0), np.where(holds, df, np.inf)


def drawn_variances(y_RNK: Array, c_K: Array | None = None) -> tuple[Array, Array]:
    """The two errors' variances for R experiments of N complete blocks and K arms at once, as sums of squares would give them.

    (one variance of all arms (R,), per arm (R, K) that of the contrast where the arm has its own and the others share one).
    Without c_K the contrast is that arm minus another one."""
    _, n, k = y_RNK.shape
    left = y_RNK - y_RNK.mean(1, keepdims=True) - y_RNK.mean(2, keepdims=True) + y_RNK.mean((1, 2), keepdims=True)
    rss = (left**2).sum(1) / (n - 1)
    total = rss.sum(1, keepdims=True) * k / (k - 1)  # the sum of all arms' variances
    if k == 2:
        return total[:, 0] / k, np.zeros_like(rss)
    own = (rss - total / k**2) * k / (k - 2)
    rest = (total - own) / (k - 1)
    square = np.ones(k) if c_K is None else c_K**2
    others = np.ones(k) if c_K is None else square.sum() - square
    return total[:, 0] / k, np.where(square > 0, np.maximum(own * square + rest * others, 0.0), 0.0)
