"""Loss against steps from runs annealed to several budgets: the steps N* that a target takes.

The rate decays to the last step, so N* is not where one curve crosses the target: it solves
E[final loss | budget N] = target. Locally  loss = mu_arm + beta (log N - x0) + block,  one slope
for all arms unless an arm-by-budget interaction shows (F test, 5 %); theta = (target - mu) / beta
is log(N* / N0), a ratio of normals: Fieller's interval. In sums (time to target) and differences
(of two arms) its error comes by the delta method. Every arm's own residual variance is used where
the arm alone has OWN_DF residual degrees of freedom (a matter of the design, not of the data),
Satterthwaite's df for the combination; else one pooled variance.
Arrays: K arms, the baseline first; z = (mu, beta) has 2K entries.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from reports.stats.intervals import Estimate, Interval, fieller, t_quantile
from reports.stats.simultaneous import Array

WINDOW = 3  # budgets: the fit stays local
INTERACTION_ALPHA = 0.05
OWN_DF = 3.5
# Of the pooled variance: a difference of sums of squares may come out at or below zero
LEAST_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class Slope:
    """-d loss / d step at the budget that was run, from outside, with its standard error.

    Both are per step and not negative."""

    per_step: float
    se: float
    source: str = "given"


PUBLISHED_SLOPES = {
    "late 2024": Slope(
        per_step=0.0037 / 100,
        se=0.0004 / 100,
        source="records 3 to 11 of late 2024; the error is a guess of 10 %",
    ),
    "track3": Slope(
        per_step=0.0045 / 100,
        se=0.0,
        source="the optimization track's rule, which states no error",
    ),
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
        """The arms' slopes, (K,)."""
        return self.z[len(self.z) // 2 :]

    def slope_se(self, i: int) -> float:
        """The standard error of an arm's slope."""
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
        """log(N*_i / N*_0), its error by the delta method.

        What both arms share, the slope above all, cancels."""
        se, df = self._error(self._gradient(i) - self._gradient(0))
        return Estimate(value=self.theta(i) - self.theta(0), se=se, df=df)

    def error_of(self, weights: Mapping[int, float]) -> tuple[float, float]:
        """(standard error, df) of the sum of weights[i] log N*_i.

        What the arms share, runs and slope, counts once."""
        gradients = [weight * self._gradient(i) for i, weight in weights.items()]
        return self._error(np.sum(gradients, axis=0))

    def _gradient(self, i: int) -> Array:
        """d theta_i / d z."""
        of_slope = self._unit(len(self.z) // 2 + i)
        gradient: Array = -(self._unit(i) + self.theta(i) * of_slope) / self.beta[i]
        return gradient

    def _error(self, gradient: Array) -> tuple[float, float]:
        """(standard error, Satterthwaite df) of gradient @ z."""
        each = np.einsum("i,pij,j->p", gradient, self.parts, gradient)
        if each.any():
            df = float(each.sum() ** 2 / (each**2 / self.part_df).sum())
        else:
            df = float(self.part_df.min())
        return math.sqrt(float(each.sum())), df

    def _unit(self, j: int) -> Array:
        unit: Array = np.eye(len(self.z))[j]
        return unit


def local_window(budgets: Array, losses: Array, target: float) -> tuple[float, ...]:
    """The at most three neighbouring budgets whose mean losses lie nearest the target."""
    distinct = np.unique(budgets)
    if len(distinct) <= WINDOW:
        return tuple(map(float, distinct))
    gap = np.array([abs(losses[budgets == budget].mean() - target) for budget in distinct])
    starts = range(len(distinct) - WINDOW + 1)
    nearest = int(np.argmin([gap[start : start + WINDOW].sum() for start in starts]))
    return tuple(map(float, distinct[nearest : nearest + WINDOW]))


def fit(
    *,
    arm: Array,
    budget: Array,
    loss: Array,
    block: Sequence[object],
    target: float,
    slope: Slope | None = None,
) -> LossModel | None:
    """The local model of runs (one entry each); None without residual df, or without a slope.

    arm: numbered from 0; budget: steps; slope: from outside, needed with one budget and ignored
    with several."""
    x0 = float(np.log(budget).mean())
    blocks = _block_columns(block)
    if len(np.unique(budget)) > 1:
        fitted = _with_measured_slope(arm, np.log(budget) - x0, loss, blocks)
    elif slope is not None:
        fitted = _with_given_slope(arm, loss, blocks, slope, budget=float(np.exp(x0)))
    else:
        return None
    if fitted is None:
        return None
    return LossModel(
        z=fitted.z,
        parts=fitted.parts,
        part_df=fitted.part_df,
        x0=x0,
        common=fitted.common,
        given=fitted.given,
        target=target,
    )


@dataclass(frozen=True, kw_only=True)
class _Fitted:
    """What of a LossModel follows from the runs."""

    z: Array
    parts: Array
    part_df: Array
    common: bool
    given: bool


@dataclass(frozen=True, kw_only=True)
class _Solution:
    """Least squares of n runs and q coefficients."""

    coefficients: Array  # (q,)
    solver: Array  # (q, n): from losses to coefficients
    residual: Array  # (n,)
    remainder: Array  # (n, n): I - hat matrix


def _with_given_slope(
    arm: Array, loss: Array, blocks: Array, slope: Slope, *, budget: float
) -> _Fitted | None:
    """One budget's mean losses, and the slope from outside with an error of its own."""
    k = int(arm.max()) + 1
    solution = _solve(np.hstack([_arm_columns(arm), blocks]), loss)
    if solution is None:
        return None
    z = np.concatenate([solution.coefficients[:k], np.full(k, -slope.per_step * budget)])
    lift = np.vstack([np.eye(k), np.zeros((k, k))])
    parts, part_df = _covariance(solution, arm, k, lift)
    outside = np.zeros((1, 2 * k, 2 * k))
    outside[0, k:, k:] = (slope.se * budget) ** 2
    return _Fitted(
        z=z,
        parts=np.concatenate([parts, outside]),
        part_df=np.append(part_df, np.inf),
        common=True,
        given=True,
    )


def _with_measured_slope(arm: Array, x: Array, loss: Array, blocks: Array) -> _Fitted | None:
    """x: log budgets, centred."""
    k = int(arm.max()) + 1
    arms = _arm_columns(arm)
    one = _solve(np.hstack([arms, x[:, None], blocks]), loss)
    if one is None:
        return None
    each = None
    if k > 1:
        each = _solve(np.hstack([arms, arms * x[:, None], blocks]), loss)
    if each is not None and _slopes_differ(one, each):
        parts, part_df = _covariance(each, arm, k, np.eye(2 * k))
        z = each.coefficients[: 2 * k]
        return _Fitted(z=z, parts=parts, part_df=part_df, common=False, given=False)
    means, slope = np.eye(k + 1)[:k], np.eye(k + 1)[k]
    lift = np.vstack([means, np.tile(slope, (k, 1))])  # (mu, beta, ..., beta) from (mu, beta)
    parts, part_df = _covariance(one, arm, k, lift)
    z = lift @ one.coefficients[: k + 1]
    return _Fitted(z=z, parts=parts, part_df=part_df, common=True, given=False)


def _arm_columns(arm: Array) -> Array:
    """Arm dummies, (n, K)."""
    k = int(arm.max()) + 1
    columns: Array = (arm[:, None] == np.arange(k)).astype(float)
    return columns


def _block_columns(block: Sequence[object]) -> Array:
    """Sum-to-zero block dummies: mu is the average block's; none where a run has no block."""
    names = list(dict.fromkeys(block))
    if None in names or len(names) < 2:
        return np.zeros((len(block), 0))
    index = np.array([names.index(name) for name in block])
    last = index[:, None] == len(names) - 1
    columns: Array = (index[:, None] == np.arange(len(names) - 1)).astype(float) - last
    return columns


def _solve(design: Array, loss: Array) -> _Solution | None:
    projections = _least_squares(np.ascontiguousarray(design).tobytes(), len(loss))
    if projections is None:
        return None
    solver, remainder = projections
    return _Solution(
        coefficients=solver @ loss,
        solver=solver,
        residual=remainder @ loss,
        remainder=remainder,
    )


# The same design is fitted again and again: for every arm's p, every look, every simulated
# experiment.
@lru_cache(maxsize=64)
def _least_squares(design_bytes: bytes, n: int) -> tuple[Array, Array] | None:
    """(map from losses to coefficients, I - hat matrix); None where runs do not determine them."""
    design = np.frombuffer(design_bytes).reshape(n, -1)
    if n - design.shape[1] < 1 or np.linalg.matrix_rank(design) < design.shape[1]:
        return None
    solver = np.linalg.inv(design.T @ design) @ design.T
    return solver, np.eye(n) - design @ solver


def _covariance(solution: _Solution, arm: Array, k: int, lift: Array) -> tuple[Array, Array]:
    """Covariance of lift @ coefficients in parts and their df.

    One part per arm where each has OWN_DF residual df, else one of the pooled variance. An arm's
    residuals hold some of the others' noise through slope and blocks, so the variances solve
    E[rss_a] = sum_b T_ab var_b."""
    solver, residual = solution.solver, solution.residual
    remainder_bytes = np.ascontiguousarray(solution.remainder).tobytes()
    groups, shares = _variance_groups(remainder_bytes, arm.astype(np.int64).tobytes(), k)
    pooled = float(residual @ residual) / (len(arm) - len(solver))
    rss = np.array([residual[members] @ residual[members] for members in groups])
    variances = np.maximum(np.linalg.solve(shares, rss), LEAST_SHARE * pooled)
    parts = []
    for members, variance in zip(groups, variances, strict=True):
        to_z = lift @ solver[: lift.shape[1], members]
        parts.append(to_z @ to_z.T * variance)
    df = np.diag(shares)  # what of an arm's noise its residuals keep; all residual df where pooled
    return np.array(parts), df


@lru_cache(maxsize=64)
def _variance_groups(
    remainder_bytes: bytes, arm_bytes: bytes, k: int
) -> tuple[list[NDArray[np.bool_]], Array]:
    """(runs that share one variance, how much of each group's noise every group's residuals hold).

    Of the design alone."""
    arm = np.frombuffer(arm_bytes, np.int64)
    remainder = np.frombuffer(remainder_bytes).reshape(len(arm), -1)
    groups = [arm == a for a in range(k)]
    own_df = [float(np.trace(remainder[np.ix_(group, group)])) for group in groups]
    if min(own_df) < OWN_DF:
        groups = [np.ones(len(arm), bool)]
    shares = np.empty((len(groups), len(groups)))
    for i, residuals_of in enumerate(groups):
        for j, noise_of in enumerate(groups):
            shares[i, j] = (remainder[np.ix_(residuals_of, noise_of)] ** 2).sum()
    return groups, shares


def _slopes_differ(one: _Solution, each: _Solution) -> bool:
    """F test of the arms' own slopes against a common one."""
    df = len(each.residual) - len(each.coefficients)
    more = len(each.coefficients) - len(one.coefficients)
    rss_one = float(one.residual @ one.residual)
    rss_each = float(each.residual @ each.residual)
    if rss_each <= 0:
        return False
    f = (rss_one - rss_each) / more / (rss_each / df)
    return bool(special.fdtrc(more, df, f) < INTERACTION_ALPHA)
