"""Steps and seconds to a target loss from runs whose schedule was annealed to several budgets.

The rate decays to the last step, so N* is not where one curve crosses the target: it solves E[final loss | budget N] = target.
Locally  loss = mu_arm + beta * (log N - x0) + block,  with one slope for all arms unless an arm-by-budget interaction shows (F test at
5 %); theta = (target - mu) / beta is log(N* / N0), with Fieller's (1954) interval, unbounded where beta is not resolved from zero.
Two arms: theta_arm - theta_baseline = (mu_baseline - mu_arm) / beta under one slope, again Fieller.
Time to target is N* times step time: the two log intervals are added by variance recovery (Zou and Donner 2008), which keeps Fieller's
asymmetry and reduces to the delta method on the log where both are symmetric.
Arrays: K arms, the baseline first.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from reports.simultaneous import Array

WINDOW = 3  # budgets: the fit stays local
INTERACTION_ALPHA = 0.05
REACH = 1.2  # with a slope from outside, how far (as a factor of N) it may carry

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Slope:
    """d loss / d step near `at_steps`, from outside, with its standard error (both positive numbers: loss lost per step less)."""

    per_step: float
    se: float
    source: str = "given"


PUBLISHED_SLOPES = {
    "2024-11": Slope(per_step=0.0037 / 100, se=0.0004 / 100, source="records 3 to 11, late 2024; its error is a guess of 10 %"),
    "track3": Slope(per_step=0.0045 / 100, se=0.0, source="the optimization track's rule"),
    "2026": Slope(per_step=0.0145 / 100, se=0.0008 / 100, source="public recipes of 2026"),
}


@dataclass(frozen=True, kw_only=True)
class LossModel:
    """Fitted loss against log N: per arm its mean loss mu at N0 = exp(x0) and its slope, with their joint covariance."""

    mu: Array  # (K,)
    beta: Array  # (K,)
    cov: Array  # (2K, 2K) of (mu, beta)
    df: float
    x0: float
    common: bool  # one slope
    given: bool  # the slope came from outside
    target: float

    def theta(self, i: int) -> float:
        return float((self.target - self.mu[i]) / self.beta[i])

    def theta_interval(self, i: int, alpha: float) -> Interval | None:
        """Fieller's interval of log(N*_i / N0); None where unbounded."""
        k = len(self.mu)
        return fieller(
            self.target - self.mu[i],
            self.beta[i],
            self.cov[i, i],
            self.cov[k + i, k + i],
            -self.cov[i, k + i],
            stats.t.isf(alpha / 2, self.df),
        )

    def shift(self, i: int) -> float:
        return self.theta(i) - self.theta(0)

    def shift_interval(self, i: int, alpha: float) -> Interval | None:
        """Interval of log(N*_i / N*_0); None where unbounded."""
        if not self.common:
            one, base = self.theta_interval(i, alpha), self.theta_interval(0, alpha)
            return (
                None
                if one is None or base is None
                else add_intervals((self.theta(i), one), (-self.theta(0), (-base[1], -base[0])))
            )
        k = len(self.mu)
        c = np.zeros(2 * k)
        c[0], c[i] = 1.0, -1.0
        b = np.zeros(2 * k)
        b[k] = 1.0
        return fieller(
            self.mu[0] - self.mu[i],
            self.beta[0],
            c @ self.cov @ c,
            b @ self.cov @ b,
            c @ self.cov @ b,
            stats.t.isf(alpha / 2, self.df),
        )


def fieller(u: float, v: float, var_u: float, var_v: float, cov_uv: float, t: float) -> Interval | None:
    """{r: (u - r v)^2 <= t^2 var(u - r v)}, the exact set for u / v; None where it is unbounded (v not resolved from zero)."""
    a = v * v - t * t * var_v
    b = u * v - t * t * cov_uv
    c = u * u - t * t * var_u
    if a <= 0:
        return None
    root = math.sqrt(max(b * b - a * c, 0.0))  # u / v itself is in the set, so below zero is rounding
    return float((b - root) / a), float((b + root) / a)


def add_intervals(*parts: tuple[float, Interval]) -> Interval:
    """Interval of a sum of independent estimates from their own intervals (variance recovery, Zou and Donner 2008)."""
    total = sum(estimate for estimate, _ in parts)
    below = math.sqrt(sum((estimate - low) ** 2 for estimate, (low, _) in parts))
    above = math.sqrt(sum((high - estimate) ** 2 for estimate, (_, high) in parts))
    return total - below, total + above


def p_of_interval(interval: Callable[[float], Interval | None], *, floor: float = 1e-9) -> float:
    """Two-sided p: the smallest alpha whose interval excludes zero, by bisection; 1 where none does."""

    def excludes(alpha: float) -> bool:
        ends = interval(alpha)
        return ends is not None and (ends[0] > 0 or ends[1] < 0)

    low, high = floor, 0.999
    if excludes(low):
        return low
    if not excludes(high):
        return 1.0
    for _ in range(50):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if excludes(middle) else (middle, high)
    return high


def local_window(budgets: Array, losses: Array, target: float) -> tuple[float, ...]:
    """The at most three neighbouring budgets whose mean losses lie nearest the target."""
    distinct = np.unique(budgets)
    if len(distinct) <= WINDOW:
        return tuple(map(float, distinct))
    gap = np.array([abs(losses[budgets == b].mean() - target) for b in distinct])
    start = int(np.argmin([gap[i : i + WINDOW].sum() for i in range(len(distinct) - WINDOW + 1)]))
    return tuple(map(float, distinct[start : start + WINDOW]))


def _design(arm: Array, x: Array, block: Sequence[object], k: int, common: bool) -> Array:
    columns = [(arm[:, None] == np.arange(k)).astype(float)]
    columns.append(x[:, None] if common else (arm[:, None] == np.arange(k)) * x[:, None])
    names = list(dict.fromkeys(block))
    if None not in names and len(names) > 1:
        index = np.array([names.index(b) for b in block])
        dummies = (index[:, None] == np.arange(len(names) - 1)).astype(float)
        columns.append(dummies - (index[:, None] == len(names) - 1))  # sum to zero: mu is the average block's
    return np.hstack(columns)


def fit(
    *, arm: Array, budget: Array, loss: Array, block: Sequence[object], target: float, slope: Slope | None = None
) -> LossModel | None:
    """The local model, (K,) arms numbered from 0; None where the runs leave no residual df or no slope.

    With one budget a `slope` from outside is needed; with several it is ignored."""
    k, x0 = int(arm.max()) + 1, float(np.log(budget).mean())
    x = np.log(budget) - x0
    several = len(np.unique(budget)) >= 2
    if not several and slope is None:
        return None
    solutions = {}
    for common in (True, False):
        design = _design(arm, x, block, k, common)
        if not several:
            design = np.delete(design, np.s_[k : k + (1 if common else k)], axis=1)
        df = len(loss) - design.shape[1]
        if df < 1 or np.linalg.matrix_rank(design) < design.shape[1]:
            solutions[common] = None
            continue
        inverse = np.linalg.inv(design.T @ design)
        coefficients = inverse @ design.T @ loss
        rss = float(((loss - design @ coefficients) ** 2).sum())
        solutions[common] = (coefficients, inverse, rss, df)
    best = solutions[True]
    if best is None:
        return None
    coefficients, inverse, rss, df = best
    s2 = rss / df
    if not several:
        assert slope is not None
        n = float(np.exp(x0))
        mu, beta = coefficients[:k], np.full(k, -slope.per_step * n)
        cov = np.zeros((2 * k, 2 * k))
        cov[:k, :k] = inverse[:k, :k] * s2
        cov[k:, k:] = (slope.se * n) ** 2
        return LossModel(mu=mu, beta=beta, cov=cov, df=df, x0=x0, common=True, given=True, target=target)
    other = solutions[False] if k > 1 else None
    if other is not None and other[3] < df:
        f = (rss - other[2]) / (df - other[3]) / max(other[2] / other[3], 1e-300)
        if stats.f.sf(f, df - other[3], other[3]) < INTERACTION_ALPHA:
            c, inv, rss2, df2 = other
            return LossModel(
                mu=c[:k],
                beta=c[k : 2 * k],
                cov=inv[: 2 * k, : 2 * k] * rss2 / df2,
                df=df2,
                x0=x0,
                common=False,
                given=False,
                target=target,
            )
    spread = np.vstack([np.eye(k + 1)[:k], np.tile(np.eye(k + 1)[k], (k, 1))])  # (mu, beta) of (mu, common slope)
    cov = spread @ inverse[: k + 1, : k + 1] @ spread.T * s2
    return LossModel(
        mu=coefficients[:k], beta=np.full(k, coefficients[k]), cov=cov, df=df, x0=x0, common=True, given=False, target=target
    )


def decompose(n_baseline: float, s_baseline: float, n_arm: float, s_arm: float) -> tuple[float, float]:
    """(learning, systems) parts of n_arm * s_arm - n_baseline * s_baseline: mid-points, so that they sum exactly."""
    learning = (s_arm + s_baseline) / 2 * (n_arm - n_baseline)
    return learning, (n_arm + n_baseline) / 2 * (s_arm - s_baseline)
