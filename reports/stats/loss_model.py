"""Loss against steps from runs annealed to several budgets: the steps N* that a target takes.

The rate decays to the last step, so N* is not where one curve crosses the target: it solves
E[final loss | budget N] = target. Locally  loss = mu_arm + beta (log N - x0) + block,  one slope
for all arms unless an arm-by-budget interaction shows (F test, 5 %); theta = (target - mu) / beta
is log(N* / N0), a ratio of normals: Fieller's interval. In sums (time to target) and differences
(of two arms) its error comes by the delta method. Runs in blocks are judged by the spread between
blocks (reports/stats/loss_blocks.py), runs without blocks as independent ones
(reports/stats/loss_free.py).
Arrays: K arms, the baseline first; z = (mu, beta) has 2K entries.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from reports.stats.intervals import Estimate, Interval, fieller, t_quantile
from reports.stats.loss_blocks import BlockErrors, fit_blocks
from reports.stats.loss_free import PartErrors, with_given_slope, with_measured_slope
from reports.stats.simultaneous import Array

WINDOW = 3  # budgets: the fit stays local


@dataclass(frozen=True, kw_only=True)
class Slope:
    """-d loss / d step at the budget that was run, from outside, with its standard error.

    Both are per step and not negative."""

    per_step: float
    se: float
    source: str = "given"


class Uncertainty(Protocol):
    """The uncertainty of z."""

    def variance(self, gradient: Array) -> tuple[float, float]:
        """(variance, Satterthwaite df) of gradient @ z."""

    def covariance(self, a: Array, b: Array) -> Array:
        """(2, 2) of (a @ z, b @ z), all of it from the same runs."""


@dataclass(frozen=True, kw_only=True)
class LossModel:
    """Fitted z with its errors."""

    z: Array  # (2K,): mean losses at N0 = exp(x0), then slopes
    errors: Uncertainty
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
        return math.sqrt(self.errors.variance(self._unit(len(self.z) // 2 + i))[0])

    def theta(self, i: int) -> float:
        """log(N*_i / N0)."""
        return float((self.target - self.z[i]) / self.beta[i])

    def theta_interval(self, i: int, alpha: float) -> Interval | None:
        """Fieller's; None where the slope is not resolved from zero."""
        u, v = self.target - float(self.z[i]), float(self.beta[i])
        above, below = -self._unit(i), self._unit(len(self.z) // 2 + i)
        t = t_quantile(alpha, self._error(self._gradient(i))[1])
        covariance = self.errors.covariance(above, below)
        if not np.isfinite(covariance).all():
            return None
        var_u, var_v = float(covariance[0, 0]), float(covariance[1, 1])
        return fieller(u, v, var_u, var_v, float(covariance[0, 1]), t)

    def log_steps(self, i: int) -> Estimate:
        """log N* of an arm, its error by the delta method."""
        se, df = self._error(self._gradient(i))
        return Estimate(value=self.x0 + self.theta(i), se=se, df=df)

    def shift(self, i: int, j: int = 0) -> Estimate:
        """log(N*_i / N*_j), its error by the delta method.

        What both arms share, the slope above all, cancels."""
        se, df = self._error(self._gradient(i) - self._gradient(j))
        return Estimate(value=self.theta(i) - self.theta(j), se=se, df=df)

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
        variance, df = self.errors.variance(gradient)
        return math.sqrt(variance), df

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
    with several.
    loss: final, in the metric's unit. block: that a run belongs to. target: a loss.
    """
    several = len(np.unique(budget)) > 1
    if not several and slope is None:
        return None
    if None not in block:
        return _of_blocks(arm, budget, loss, block, target, None if several else slope)
    x0 = float(np.log(budget).mean())
    steps = math.exp(x0)
    if slope is None or several:
        fitted = with_measured_slope(arm, np.log(budget) - x0, loss)
    else:
        fitted = with_given_slope(arm, loss, -slope.per_step * steps, slope.se * steps)
    if fitted is None:
        return None
    return LossModel(
        z=fitted.z,
        errors=PartErrors(parts=fitted.parts, df=fitted.part_df),
        x0=x0,
        common=fitted.common,
        given=fitted.given,
        target=target,
    )


def _of_blocks(
    arm: Array,
    budget: Array,
    loss: Array,
    block: Sequence[object],
    target: float,
    slope: Slope | None,
) -> LossModel | None:
    """By every block's own fit (reports/stats/loss_blocks.py)."""
    k = int(arm.max()) + 1
    per_log, outside = None, np.zeros((2 * k, 2 * k))
    if slope is not None:
        per_log = -slope.per_step * float(budget[0])
        outside[k:, k:] = (slope.se * float(budget[0])) ** 2
    fitted = fit_blocks(arm, budget, loss, block, per_log)
    if fitted is None:
        return None
    return LossModel(
        z=fitted.z,
        errors=BlockErrors(values=fitted.values, outside=outside),
        x0=fitted.x0,
        common=fitted.common,
        given=slope is not None,
        target=target,
    )
