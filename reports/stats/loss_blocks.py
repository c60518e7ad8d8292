"""Loss against steps from runs in blocks: every block's own fit, and the spread between blocks.

The budgets of one seed share what the seed does to the loss, and so do a block's arms, so that runs
of a block are not independent: pooled residuals would count one seed's luck as often as it has
budgets. Each block gives one mean loss per arm and one slope; what follows from them is linear in
each block's, so its error is the spread between blocks with n - 1 degrees of freedom, whatever the
correlation within. Arrays: K arms, n blocks, B budgets.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from reports.stats.simultaneous import Array

INTERACTION_ALPHA = 0.05  # of the test whether blocks and arms interact


@dataclass(frozen=True, kw_only=True)
class BlockErrors:
    """What every block says of (mu, beta), and the covariance of what came from outside."""

    values: Array  # (n, 2K): an arm's mean losses and slopes, nan where a block does not fix them
    outside: Array  # (2K, 2K)

    def variance(self, gradient: Array) -> tuple[float, float]:
        """(variance, Satterthwaite df) of gradient @ z: inf below two blocks that have it all."""
        outside = float(gradient @ self.outside @ gradient)
        used = gradient != 0
        rows = self.values[:, used]
        each = rows[np.isfinite(rows).all(axis=1)] @ gradient[used]
        if len(each) < 2:
            return math.inf, 1.0
        within, df = float(each.var(ddof=1)) / len(each), len(each) - 1.0
        if within > 0:
            df *= (1 + outside / within) ** 2
        return within + outside, df

    def covariance(self, a: Array, b: Array) -> Array:
        """(2, 2) of (a @ z, b @ z): all of it from the blocks that have both, inf below two."""
        gradients = np.stack([a, b])
        used = gradients.any(axis=0)
        rows = self.values[:, used]
        each = rows[np.isfinite(rows).all(axis=1)] @ gradients[:, used].T
        if len(each) < 2:
            return np.full((2, 2), math.inf)
        matrix: Array = np.cov(each.T) / len(each) + gradients @ self.outside @ gradients.T
        return matrix


@dataclass(frozen=True, kw_only=True)
class BlockFit:
    """The fit over all blocks: z = (mu, beta), and what each block says of it."""

    z: Array
    values: Array
    x0: float
    common: bool  # one slope


def fit_blocks(
    arm: Array, budget: Array, loss: Array, block: Sequence[object], slope: float | None
) -> BlockFit | None:
    """None where fewer than two blocks fix an arm's line, or nothing tells a slope.

    arm: numbered from 0; slope: d loss / d log N from outside, for one budget.
    One entry of budget (steps), loss and block a run.
    """
    budgets = np.unique(budget)
    mean_KnB = _table(arm, np.searchsorted(budgets, budget), loss, block)
    has_KnB: NDArray[np.bool_] = np.isfinite(mean_KnB)
    count_Kn = has_KnB.sum(axis=2)
    # one budget fixes no line where the arm has more of them: such a block is left out for that arm
    enough_Kn = count_Kn >= np.minimum(2, count_Kn.max(axis=1, keepdims=True))
    weight_KnB = has_KnB / np.maximum(count_Kn, 1)[:, :, None]
    filled = np.where(has_KnB, mean_KnB, 0.0)
    x = np.log(budgets)
    x_Kn = np.where(enough_Kn, weight_KnB @ x, np.nan)
    mean_Kn = (filled * weight_KnB).sum(axis=2)
    x0 = float(x.mean())
    if slope is not None:
        slope_Kn, common = np.full(mean_Kn.shape, slope), True
    else:
        slope_Kn, common = _slopes(filled, np.where(has_KnB, x - x_Kn[:, :, None], 0.0))
    if not np.isfinite(slope_Kn).any():
        return None
    mu_Kn = mean_Kn + slope_Kn * (x0 - x_Kn)
    if np.isfinite(mu_Kn).sum(axis=1).min() < 2:
        return None
    z = np.concatenate([_arm_means(mu_Kn), np.nanmean(slope_Kn, axis=1)])
    return BlockFit(z=z, values=np.vstack([mu_Kn, slope_Kn]).T, x0=x0, common=common)


def _table(arm: Array, which: NDArray[np.int64], loss: Array, block: Sequence[object]) -> Array:
    """Mean losses (K, n, B), nan where there is none."""
    names = {name: i for i, name in enumerate(dict.fromkeys(block))}
    place = np.array([names[name] for name in block])
    cells = arm.astype(np.int64), place, which
    shape = int(arm.max()) + 1, len(names), int(which.max()) + 1
    total, count = np.zeros(shape), np.zeros(shape)
    np.add.at(total, cells, loss)
    np.add.at(count, cells, 1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _slopes(loss_KnB: Array, x_KnB: Array) -> tuple[Array, bool]:
    """(slopes (K, n) of every block, whether one serves all arms).

    x_KnB: log budgets about their mean in the block, zero where the arm has none there."""
    spread = (x_KnB**2).sum(axis=2)
    with np.errstate(invalid="ignore", divide="ignore"):
        slope_Kn = np.where(spread > 0, (loss_KnB * x_KnB).sum(axis=2) / spread, np.nan)
    if _differ(slope_Kn):
        return slope_Kn, False
    is_measured = np.isfinite(slope_Kn)
    count = is_measured.sum(axis=0)
    of_blocks = np.where(is_measured, slope_Kn, 0.0).sum(axis=0) / np.maximum(count, 1)
    return np.tile(np.where(count > 0, of_blocks, np.nan), (len(slope_Kn), 1)), True


def _differ(slope_Kn: Array) -> bool:
    """F test of the arms' slopes, in blocks."""
    whole = slope_Kn[:, np.isfinite(slope_Kn).all(axis=0)]
    k, n = whole.shape
    if k < 2 or n < 2:
        return False
    of_arms = whole.mean(axis=1, keepdims=True)
    left = whole - of_arms - whole.mean(axis=0) + whole.mean()
    between, within = n * float(((of_arms - whole.mean()) ** 2).sum()), float((left**2).sum())
    if within <= 0:
        return False
    f = between * (n - 1) / within
    return bool(special.fdtrc(k - 1, (n - 1) * (k - 1), f) < INTERACTION_ALPHA)


def _arm_means(mu_Kn: Array) -> Array:
    """Least squares of arm + block, (K,): the arms' means where no cell is missing."""
    is_measured = np.isfinite(mu_Kn)
    if is_measured.all():
        means: Array = mu_Kn.mean(axis=1)
        return means
    k, n = mu_Kn.shape
    arm, block = np.nonzero(is_measured)
    of_blocks = np.eye(n)[block] - 1 / n
    design = np.hstack([np.eye(k)[arm], of_blocks[:, 1:]])
    if np.linalg.matrix_rank(design) < design.shape[1]:
        return np.asarray(np.nanmean(mu_Kn, axis=1))
    fitted: Array = np.linalg.lstsq(design, mu_Kn[is_measured])[0][:k]
    return fitted
