"""Loss against steps from runs without blocks, which count as independent.

Every arm's own residual variance is used where the arm alone has OWN_DF residual degrees of freedom
(a matter of the design, not of the data), Satterthwaite's df for the combination; else one pooled
variance. Arrays: n runs, K arms, the baseline first; z = (mu, beta) has 2K entries.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from reports.stats.loss_blocks import INTERACTION_ALPHA
from reports.stats.simultaneous import Array

OWN_DF = 3.5
# Of the pooled variance: a difference of sums of squares may come out at or below zero
LEAST_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class PartErrors:
    """The covariance of z as a sum of parts, one per independent variance estimate."""

    parts: Array  # (P, 2K, 2K)
    df: Array  # (P,)

    def variance(self, gradient: Array) -> tuple[float, float]:
        """(variance, Satterthwaite df) of gradient @ z."""
        each = np.einsum("i,pij,j->p", gradient, self.parts, gradient)
        df = float(self.df.min())
        if each.any():
            df = float(each.sum() ** 2 / (each**2 / self.df).sum())
        return float(each.sum()), df

    def covariance(self, a: Array, b: Array) -> Array:
        """(2, 2) of (a @ z, b @ z)."""
        gradients = np.stack([a, b])
        matrix: Array = gradients @ self.parts.sum(axis=0) @ gradients.T
        return matrix


@dataclass(frozen=True, kw_only=True)
class FreeFit:
    """z with its covariance in parts."""

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


def with_given_slope(arm: Array, loss: Array, slope: float, se: float) -> FreeFit | None:
    """One budget's mean losses, and the slope from outside with an error of its own.

    slope, se: of loss over log steps."""
    k = int(arm.max()) + 1
    solution = _solve(_arm_columns(arm), loss)
    if solution is None:
        return None
    z = np.concatenate([solution.coefficients[:k], np.full(k, slope)])
    lift = np.vstack([np.eye(k), np.zeros((k, k))])
    parts, part_df = _covariance(solution, arm, k, lift)
    outside = np.zeros((1, 2 * k, 2 * k))
    outside[0, k:, k:] = se**2
    return FreeFit(
        z=z,
        parts=np.concatenate([parts, outside]),
        part_df=np.append(part_df, np.inf),
        common=True,
        given=True,
    )


def with_measured_slope(arm: Array, x: Array, loss: Array) -> FreeFit | None:
    """x: log budgets, centred."""
    k = int(arm.max()) + 1
    arms = _arm_columns(arm)
    one = _solve(np.hstack([arms, x[:, None]]), loss)
    if one is None:
        return None
    each = None
    if k > 1:
        each = _solve(np.hstack([arms, arms * x[:, None]]), loss)
    if each is not None and _slopes_differ(one, each):
        parts, part_df = _covariance(each, arm, k, np.eye(2 * k))
        z = each.coefficients[: 2 * k]
        return FreeFit(z=z, parts=parts, part_df=part_df, common=False, given=False)
    means, slope = np.eye(k + 1)[:k], np.eye(k + 1)[k]
    lift = np.vstack([means, np.tile(slope, (k, 1))])  # (mu, beta, ..., beta) from (mu, beta)
    parts, part_df = _covariance(one, arm, k, lift)
    z = lift @ one.coefficients[: k + 1]
    return FreeFit(z=z, parts=parts, part_df=part_df, common=True, given=False)


def _arm_columns(arm: Array) -> Array:
    """Arm dummies, (n, K)."""
    k = int(arm.max()) + 1
    columns: Array = (arm[:, None] == np.arange(k)).astype(float)
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
