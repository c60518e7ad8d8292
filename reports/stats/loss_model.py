"""Loss against steps from runs annealed to several budgets, and the steps N* at which it meets a target.

The rate decays to the last step, so N* is not where one curve crosses the target: it solves E[final loss | budget N] = target.
Locally  loss = mu_arm + beta (log N - x0) + block,  one slope for all arms unless an arm-by-budget interaction shows (F test,
5 %); theta = (target - mu) / beta is log(N* / N0), a ratio of normals: Fieller's interval. In sums (time to target) and
differences (of two arms) its error comes by the delta method. Every arm's own residual variance is used where the arm alone has
OWN_DF residual degrees of freedom (a matter of the design, not of the data), Satterthwaite's df for the combination; else one
pooled variance. Arrays: K arms, the baseline first; z = (mu, beta) has 2K entries.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special

from reports.stats.intervals import Estimate, Interval, fieller, t_quantile
from reports.stats.simultaneous import Array

WINDOW = 3  # budgets: the fit stays local
INTERACTION_ALPHA = 0.05
OWN_DF = 3.5
LEAST_SHARE = 0.1  # of the pooled variance: a difference of sums of squares may come out at or below zero


@dataclass(frozen=True, kw_only=True)
class Slope:
    """-d loss / d step at the budget that was run, from outside, with its standard error (both per step, not negative)."""

    per_step: float
    se: float
    source: str = "given"


PUBLISHED_SLOPES = {
    "late 2024": Slope(
        per_step=0.0037 / 100, se=0.0004 / 100, source="records 3 to 11 of late 2024; the error is a guess of 10 %"
    ),
    "track3": Slope(per_step=0.0045 / 100, se=0.0, source="the optimization track's rule, which states no error"),
    "2026": Slope(per_step=0.0145 / 100, se=0.0008 / 100, source="public recipes of 2026"),
}


@dataclass(frozen=True, kw_only=True)
class LossModel:
    """Fitted z with its covariance as a sum of parts, one per independent variance estimate."""

    z: Array  # (2K,): mean losses at N0 = exp(x0), then slopes
    parts: Array  # (P, 2K, 2K)
    part_df: Array  # (P,)
    x0: float
    common: bool  # one slope
    given: bool  # the slope came from outside
    target: float

    @property
    def beta(self) -> Array:
        return self.z[len(self.z) // 2 :]

    def slope_se(self, i: int) -> float:
        j = len(self.z) // 2 + i
        return math.sqrt(float(self.parts[:, j, j].sum()))

    def theta(self, i: int) -> float:
        """log(N*_i / N0)."""
        return float((self.target - self.z[i]) / self.beta[i])

    def theta_interval(self, i: int, alpha: float) -> Interval | None:
        """Fieller's; None where the slope is not resolved from zero."""
        u, v = self.target - float(self.z[i]), float(self.beta[i])
        above, below = -self._unit(i), self._unit(len(self.z) // 2 + i)
        t = t_quantile(alpha, self._error(self._gradient(i))[1])
        cov = self.parts.sum(axis=0)
        return fieller(u, v, above @ cov @ above, below @ cov @ below, above @ cov @ below, t)

    def log_steps(self, i: int) -> Estimate:
        """log N* of an arm, its error by the delta method."""
        se, df = self._error(self._gradient(i))
        return Estimate(value=self.x0 + self.theta(i), se=se, df=df)

    def shift(self, i: int) -> Estimate:
        """log(N*_i / N*_0), its error by the delta method: what both arms share, the slope above all, cancels."""
        se, df = self._error(self._gradient(i) - self._gradient(0))
        return Estimate(value=self.theta(i) - self.theta(0), se=se, df=df)

    def error_of(self, weights: Mapping[int, float]) -> tuple[float, float]:
        """(standard error, df) of the sum of weights[i] log N*_i: what the arms share, runs and slope, counts once."""
        return self._error(np.sum([w * self._gradient(i) for i, w in weights.items()], axis=0))

    def _gradient(self, i: int) -> Array:
        """d theta_i / d z."""
        return -(self._unit(i) + self.theta(i) * self._unit(len(self.z) // 2 + i)) / self.beta[i]

    def _error(self, gradient: Array) -> tuple[float, float]:
        """(standard error, Satterthwaite df) of gradient @ z."""
        each = np.einsum("i,pij,j->p", gradient, self.parts, gradient)
        df = float(each.sum() ** 2 / (each**2 / self.part_df).sum()) if each.any() else float(self.part_df.min())
        return math.sqrt(float(each.sum())), df

    def _unit(self, j: int) -> Array:
        return np.eye(len(self.z))[j]


def local_window(budgets: Array, losses: Array, target: float) -> tuple[float, ...]:
    """The at most three neighbouring budgets whose mean losses lie nearest the target."""
    distinct = np.unique(budgets)
    if len(distinct) <= WINDOW:
        return tuple(map(float, distinct))
    gap = np.array([abs(losses[budgets == b].mean() - target) for b in distinct])
    start = int(np.argmin([gap[i : i + WINDOW].sum() for i in range(len(distinct) - WINDOW + 1)]))
    return tuple(map(float, distinct[start : start + WINDOW]))


def fit(
    *, arm: Array, budget: Array, loss: Array, block: Sequence[object], target: float, slope: Slope | None = None
) -> LossModel | None:
    """The local model of runs (one entry each; arms numbered from 0); None without residual df, or without a slope.

    With one budget a `slope` from outside is needed; with several it is ignored."""
    k, x0 = int(arm.max()) + 1, float(np.log(budget).mean())
    x = np.log(budget) - x0
    arms, several = (arm[:, None] == np.arange(k)).astype(float), len(np.unique(budget)) > 1
    if not several and slope is None:
        return None
    blocks = _block_columns(block)
    if not several:
        least_squares = _solve(np.hstack([arms, blocks]), loss)
        if least_squares is None:
            return None
        n, lift = float(np.exp(x0)), np.vstack([np.eye(k), np.zeros((k, k))])
        assert slope is not None
        z = np.concatenate([least_squares[0][:k], np.full(k, -slope.per_step * n)])
        parts, part_df = _covariance(least_squares, arm, k, lift)
        outside = np.zeros((1, 2 * k, 2 * k))
        outside[0, k:, k:] = (slope.se * n) ** 2
        return LossModel(z=z, parts=np.concatenate([parts, outside]), part_df=np.append(part_df, np.inf), x0=x0, common=True,
                         given=True, target=target)  # fmt: skip
    one = _solve(np.hstack([arms, x[:, None], blocks]), loss)
    if one is None:
        return None
    own = _solve(np.hstack([arms, arms * x[:, None], blocks]), loss) if k > 1 else None
    if own is not None and _interaction(one, own):
        parts, part_df = _covariance(own, arm, k, np.eye(2 * k))
        return LossModel(z=own[0][: 2 * k], parts=parts, part_df=part_df, x0=x0, common=False, given=False, target=target)
    lift = np.vstack([np.eye(k + 1)[:k], np.tile(np.eye(k + 1)[k], (k, 1))])  # (mu, beta, ..., beta) from (mu, beta)
    parts, part_df = _covariance(one, arm, k, lift)
    return LossModel(z=lift @ one[0][: k + 1], parts=parts, part_df=part_df, x0=x0, common=True, given=False, target=target)


Solution = tuple[
    Array, Array, Array, Array
]  # coefficients (q,), their map from losses (q, n), residuals (n,), I - hat matrix (n, n)


def _block_columns(block: Sequence[object]) -> Array:
    """Sum-to-zero block dummies, so that mu is the average block's; none where a run has no block."""
    names = list(dict.fromkeys(block))
    if None in names or len(names) < 2:
        return np.zeros((len(block), 0))
    index = np.array([names.index(b) for b in block])
    return (index[:, None] == np.arange(len(names) - 1)).astype(float) - (index[:, None] == len(names) - 1)


def _solve(design: Array, loss: Array) -> Solution | None:
    found = _least_squares(np.ascontiguousarray(design).tobytes(), len(loss))
    if found is None:
        return None
    solver, remainder = found
    return solver @ loss, solver, remainder @ loss, remainder


@lru_cache(maxsize=64)  # the same design is fitted again and again: for every arm's p, every look, every simulated experiment
def _least_squares(design_bytes: bytes, n: int) -> tuple[Array, Array] | None:
    """(map from losses to coefficients, I - hat matrix); None where the runs do not determine them."""
    design = np.frombuffer(design_bytes).reshape(n, -1)
    if n - design.shape[1] < 1 or np.linalg.matrix_rank(design) < design.shape[1]:
        return None
    solver = np.linalg.inv(design.T @ design) @ design.T
    return solver, np.eye(n) - design @ solver


def _covariance(solution: Solution, arm: Array, k: int, lift: Array) -> tuple[Array, Array]:
    """Covariance of lift @ coefficients in parts (one per arm with OWN_DF residual df, or one pooled) and their df.

    An arm's residuals hold some of the others' noise through slope and blocks, so the variances solve E[rss_a] = sum_b T_ab
    var_b."""
    _, solver, residual, remainder = solution
    groups, shares = _variance_groups(np.ascontiguousarray(remainder).tobytes(), arm.astype(np.int64).tobytes(), k)
    pooled = float(residual @ residual) / (len(arm) - len(solver))
    rss = np.array([residual[a] @ residual[a] for a in groups])
    variances = np.maximum(np.linalg.solve(shares, rss), LEAST_SHARE * pooled)
    maps = [lift @ solver[: lift.shape[1], members] for members in groups]
    df = np.diag(shares)  # what of an arm's own noise its residuals keep; all residual df where pooled
    return np.array([m @ m.T * v for m, v in zip(maps, variances, strict=True)]), df


@lru_cache(maxsize=64)
def _variance_groups(remainder_bytes: bytes, arm_bytes: bytes, k: int) -> tuple[list[Any], Array]:
    """(runs that share one variance, how much of each group's noise every group's residuals hold): of the design alone."""
    arm = np.frombuffer(arm_bytes, np.int64)
    remainder = np.frombuffer(remainder_bytes).reshape(len(arm), -1)
    groups = [arm == a for a in range(k)]
    if min(float(np.trace(remainder[np.ix_(a, a)])) for a in groups) < OWN_DF:
        groups = [np.ones(len(arm), bool)]
    return groups, np.array([[(remainder[np.ix_(a, b)] ** 2).sum() for b in groups] for a in groups])


def _interaction(one: Solution, own: Solution) -> bool:
    """F test of the arms' own slopes against a common one."""
    df = len(own[2]) - len(own[0])
    more = len(own[0]) - len(one[0])
    rss_one, rss_own = float(one[2] @ one[2]), float(own[2] @ own[2])
    if rss_own <= 0:
        return False
    return bool(special.fdtrc(more, df, (rss_one - rss_own) / more / (rss_own / df)) < INTERACTION_ALPHA)
