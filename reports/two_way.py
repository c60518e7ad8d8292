"""The two-way model arm + block, judged by the larger of two errors.

One variance for all arms, residual df (n-1)(k-1) for k arms in n complete blocks, is the textbook's. But every contrast holds the
baseline's noise, so where the baseline is noisier than the arms it errs in all of them at once: family-wise error 8 % instead of
5 % at 1.5 times the sd. The second answer gives the baseline a variance of its own, with 4 (n-1) (k-1) / (k+2) df. Whichever
error is larger counts, so nobody has to test first which of them is right (reports/contrasts.py takes the maximum).
Estimates are least squares; for one arm both answers are the paired t test. Arrays: N runs, m arms besides the baseline.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reports.simultaneous import Array


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Standard errors (m,) with their df; where designs are ragged, the least certain contrast's."""

    se: Array
    df: float


@dataclass(frozen=True, kw_only=True)
class TwoWay:
    """Arm minus baseline (m,), the estimates' correlation at equal noise (m, m), and the errors there are, at most two.

    A noisier baseline correlates the arms more, and then max-t errs on the safe side."""

    delta: Array
    corr: Array
    errors: tuple[Errors, ...]


def two_way(values: Array, arm: Sequence[int], block: Sequence[int]) -> TwoWay:
    """Fit runs (N,) of arms numbered from 0, the baseline, in blocks; cells may be missing or repeated.

    No errors where nothing is left over to judge by; raises ValueError where an arm shares no block with the rest."""
    arm_i, block_i = np.asarray(arm), np.asarray(block)
    m, blocks = int(arm_i.max()), np.unique(block_i)
    x_arm = (arm_i[:, None] == np.arange(1, m + 1)).astype(float)
    x = np.hstack([x_arm, (block_i[:, None] == blocks).astype(float)])
    if np.linalg.matrix_rank(x) < x.shape[1]:
        raise ValueError(
            "an arm shares no block with the baseline, so the arm + block model has no answer: complete the missing runs"
        )
    solver = np.linalg.inv(x.T @ x) @ x.T
    remainder = np.eye(len(values)) - x @ solver
    residual, contrast = remainder @ values, solver[:m]
    unscaled = contrast @ contrast.T
    scale = np.sqrt(np.diag(unscaled))
    fitted = {"delta": contrast @ values, "corr": unscaled / np.outer(scale, scale)}
    df, rss = len(values) - x.shape[1], float(residual @ residual)
    if df < 1 or rss <= 1e-24 * df * max(1.0, float(np.abs(values).max()) ** 2):  # nothing left over, or nothing but rounding
        return TwoWay(**fitted, errors=())
    one = Errors(se=scale * np.sqrt(rss / df), df=float(df))
    groups = [arm_i == 0, arm_i > 0]
    kept = np.array([[(remainder[np.ix_(a, b)] ** 2).sum() for b in groups] for a in groups])  # E[rss_a] = sum_b kept_ab var_b
    if np.linalg.matrix_rank(kept, tol=1e-9) < 2:
        return TwoWay(**fitted, errors=(one,))
    inverse = np.linalg.inv(kept)
    weights = np.array([(contrast[:, g] ** 2).sum(1) for g in groups]).T  # (m, 2): variance = weights @ (baseline's, the arms')
    variance = weights @ inverse @ np.array([residual[g] @ residual[g] for g in groups])
    satterthwaite = weights.sum(1) ** 2 / np.einsum(
        "ma,ab,mb->m", weights, inverse, weights
    )  # at equal noise: of the design alone
    own = Errors(se=np.sqrt(np.maximum(variance, 0.0)), df=float(satterthwaite.min()))
    return TwoWay(**fitted, errors=(one, own))
