"""The two-way model arm + block, judged by the larger of two errors.

One variance for all arms, residual df (n-1)(k-1) for k arms in n complete blocks, is the
textbook's. It errs where one arm is noisier than the rest: with a baseline of 1.5 times the sd in
all comparisons at once (family-wise error 8 % instead of 5 %), with one arm of three times the sd
in that arm's (8 to 10 %). So any arm of a contrast may have a variance of its own beside one of all
others; the largest of these answers is the second error, with 4 (n-1) (k-1) / (k+2) df for a
difference of two arms in complete blocks, and for contrasts of many arms with as many as one arm of
twice the sd would leave. Whichever error is larger counts, so nobody has to test first which of
them is right. Estimates are least squares; for one arm against the baseline both answers are the
paired t test. Arrays: N runs, k arms, the baseline first, m = k - 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reports.stats.simultaneous import Array


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Standard errors of contrasts with their df, (m,) each: a missing run is its arm's alone."""

    se: Array
    df: Array


@dataclass(frozen=True, kw_only=True)
class TwoWay:
    """Contrasts of arm effects (m,), their correlation at equal noise (m, m), and their errors.

    There are at most two errors. A noisier baseline correlates the arms more, and then max-t errs
    on the safe side."""

    delta: Array
    corr: Array
    scale: Array  # (m,) of a contrast's standard error to one run's sd, at equal noise
    errors: tuple[Errors, ...]


def two_way(
    values: Array, arm: Sequence[int], block: Sequence[int], contrasts: Array | None = None
) -> TwoWay:
    """Fit runs (N,) of arms numbered from 0 in blocks; cells may be missing or repeated.

    contrasts: (m, k), rows that sum to zero; without them every arm minus the baseline. No errors
    where nothing is left over to judge by; raises ValueError where an arm shares no block with the
    rest."""
    arms, blocks = np.asarray(arm), np.asarray(block)
    k = int(arms.max()) + 1
    if contrasts is None:
        contrasts = np.hstack([-np.ones((k - 1, 1)), np.eye(k - 1)])
    member = (arms == np.arange(k)[:, None]).astype(float)  # (k, N)
    in_block = (blocks[:, None] == np.unique(blocks)).astype(float)
    x = np.hstack([member[1:].T, in_block])
    if np.linalg.matrix_rank(x) < x.shape[1]:
        raise ValueError(
            "an arm shares no block with the baseline, so the arm + block model has no answer: "
            "complete the missing runs"
        )
    solver = np.linalg.inv(x.T @ x) @ x.T
    remainder = np.eye(len(values)) - x @ solver
    residual = remainder @ values
    to_contrast = contrasts[:, 1:] @ solver[: k - 1]
    unscaled = to_contrast @ to_contrast.T
    scale = np.sqrt(np.diag(unscaled))
    df, rss = len(values) - x.shape[1], float(residual @ residual)
    rounding = 1e-24 * df * max(1.0, float(np.abs(values).max()) ** 2)
    errors: tuple[Errors, ...] = ()
    if df >= 1 and rss > rounding:
        one = Errors(se=scale * np.sqrt(rss / df), df=np.full(len(scale), float(df)))
        second = _second_error(
            holds=contrasts != 0,
            weights=to_contrast**2 @ member.T,
            kept=member @ remainder**2 @ member.T,
            rss=member @ residual**2,
            df=df,
        )
        errors = (one,) if second is None else (one, second)
    return TwoWay(
        delta=to_contrast @ values,
        corr=unscaled / np.outer(scale, scale),
        scale=scale,
        errors=errors,
    )


def _second_error(
    *, holds: NDArray[np.bool_], weights: Array, kept: Array, rss: Array, df: int
) -> Errors | None:
    """The largest of the answers in which one arm has a variance of its own; None without any.

    holds: (m, k), whether a contrast has the arm; weights: (m, k), of an arm's variance in the
    contrast's; kept: (k, k), E[rss of arm a] = sum_b kept_ab var_b; rss: (k,), of an arm's
    residuals; df: of all residuals."""
    k = len(rss)
    variances, dfs = [], []
    for arm in range(k):
        answer = _with_its_own_variance(arm, holds[:, arm], weights, kept, rss)
        if answer is not None:
            variances.append(answer[0])
            dfs.append(answer[1])
    if not variances:
        return None
    least_df = np.minimum(np.min(dfs, axis=0), df * noisy_share(k))
    return Errors(se=np.sqrt(np.max(variances, axis=0)), df=np.round(least_df, 9))


def noisy_share(k: int) -> float:
    """Share of the residual df of k arms that is left where one arm has twice the sd.

    By Satterthwaite (1946); for contrasts of many arms, whose own variances say too little about
    each."""
    left = np.eye(k) - 1 / k
    noisy = left * np.r_[4.0, np.ones(k - 1)]
    return float(np.trace(noisy) ** 2 / np.trace(noisy @ noisy) / (k - 1))


def _with_its_own_variance(
    arm: int, holds: NDArray[np.bool_], weights: Array, kept: Array, rss: Array
) -> tuple[Array, Array] | None:
    """(variance of the contrasts, its df), (m,) each, where the others of an arm share a variance.

    Zero, with infinite df, for contrasts without the arm; None where residuals cannot tell the two
    apart."""
    is_arm = np.arange(len(rss)) == arm
    group = np.stack([is_arm, ~is_arm]).astype(float)  # (2, k)
    expected = group @ kept @ group.T
    if not holds.any() or np.linalg.matrix_rank(expected, tol=1e-9) < 2:
        return None
    inverse = np.linalg.inv(expected)
    w = weights @ group.T  # (m, 2): variance = w @ (the arm's, the others')
    variance = np.maximum(w @ inverse @ (group @ rss), 0.0)
    # Satterthwaite's at equal noise: of the design alone
    df = w.sum(1) ** 2 / np.einsum("ma,ab,mb->m", w, inverse, w)
    return np.where(holds, variance, 0.0), np.where(holds, df, np.inf)


def split_variances(rss_RA: Array, whole_R: Array, n: int, k: int) -> tuple[Array, Array, Array]:
    """(one variance of all (R,), an arm's own and the others' (R, A)) in n blocks of k arms.

    rss_RA: of some arms' residuals; whole_R: of all arms'. Zeros where an arm cannot be told from
    the others."""
    total = whole_R[:, None] / (n - 1) * k / (k - 1)  # the sum of all arms' variances
    one: Array = total[:, 0] / k
    if k == 2:
        return one, np.zeros_like(rss_RA), np.zeros_like(rss_RA)
    of_arm: Array = (rss_RA / (n - 1) - total / k**2) * k / (k - 2)
    return one, of_arm, (total - of_arm) / (k - 1)


def drawn_squares(rng: np.random.Generator, r: int, n: int, k: int) -> tuple[Array, Array]:
    """(rss of the first two arms (r, 2), of all arms (r,)) of r experiments of equal noise 1.

    In as many numbers whatever n and k are: the residuals of two arms are two normals a block,
    so that their squares are Wishart's (Bartlett 1933), and those of the others are chi square."""
    of_two = np.eye(2) - 1 / k  # what arm + block leaves of two arms
    root = np.linalg.cholesky(of_two) if k > 2 else np.array([[1, 0], [-1, 0]]) / np.sqrt(2)
    first, second = np.sqrt(rng.chisquare(n - 1, r)), np.sqrt(rng.chisquare(max(n - 2, 1e-9), r))
    between, second = rng.normal(size=r), second if n > 2 else np.zeros(r)
    whole = first**2 + between**2 + second**2 if k > 2 else first**2
    if k > 3:
        whole = whole + rng.chisquare((n - 1) * (k - 3), r)
    of_each = [(a * first + b * between) ** 2 + (b * second) ** 2 for a, b in root]
    return np.stack(of_each, axis=1), whole
