"""The model of loss against steps in blocks: which test and which degrees of freedom it goes by, from textbooks' formulas."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize, stats

from reports.stats.loss_blocks import BlockErrors
from reports.stats.loss_model import LossModel, Slope, fit

BUDGETS = (2700, 3300)
X = np.log(BUDGETS)


def of_lines(slope_Kn: np.ndarray, mean_Kn: np.ndarray, slope: Slope | None = None) -> LossModel:
    """The fit of runs that lie exactly on the line of their arm and block; with a slope from outside at one budget."""
    budgets = BUDGETS if slope is None else BUDGETS[:1]
    centre = X.mean() if slope is None else X[0]
    arm, block, which = (i.ravel() for i in np.indices((*slope_Kn.shape, len(budgets))))
    loss = mean_Kn[arm, block] + slope_Kn[arm, block] * (X[which] - centre)
    found = fit(
        arm=arm,
        budget=np.array(budgets, float)[which],
        loss=loss,
        block=list(block),
        target=3.28,
        slope=slope,
    )
    assert found is not None
    return found


def p_of_arms(table_Kn: np.ndarray) -> float:
    """That the arms of a two-way table without replicates differ, by sums of squares of two fits."""
    k, n = table_Kn.shape
    without_blocks = table_Kn - table_Kn.mean(0)
    left = without_blocks - without_blocks.mean(1, keepdims=True)
    between = (without_blocks**2).sum() - (left**2).sum()
    df = (n - 1) * (k - 1)
    return float(stats.f.sf(between / (k - 1) / ((left**2).sum() / df), k - 1, df))


@pytest.mark.parametrize(("k", "n"), [(2, 3), (2, 6), (3, 4)])
def test_arms_have_slopes_of_their_own_where_the_f_test_of_the_two_way_table_says_so(
    k: int, n: int
) -> None:
    rng = np.random.default_rng(k * n)
    noise, mean = rng.normal(0, 0.01, (k, n)), 3.28 + rng.normal(0, 0.001, (k, n))

    def slopes(step: float) -> np.ndarray:
        return -0.19 - step * np.arange(k)[:, None] + noise

    def at(p: float) -> np.ndarray:
        start = max(np.linspace(-0.1, 0.1, 41), key=lambda step: p_of_arms(slopes(step)))
        return slopes(optimize.brentq(lambda step: p_of_arms(slopes(step)) - p, start, 1.0))

    assert of_lines(at(0.0505), mean).common
    steeper = at(0.0495)
    apart = of_lines(steeper, mean)
    assert not apart.common
    assert apart.beta == pytest.approx(steeper.mean(1))


def test_a_slope_from_outside_brings_its_variance_and_no_degrees_of_freedom() -> None:
    """Satterthwaite's df of what the blocks say and of an error that is known."""
    rng, n = np.random.default_rng(3), 5
    mean = 3.285 + rng.normal(0, 0.001, (1, n))
    slope = Slope(per_step=0.19 / BUDGETS[0], se=0.05 / BUDGETS[0])
    found = of_lines(np.zeros((1, n)), mean, slope).log_steps(0)
    theta = (3.28 - mean.mean()) / -0.19
    own, outside = mean.var(ddof=1) / n / 0.19**2, (theta * 0.05 / 0.19) ** 2
    assert 0.1 < outside / own < 10
    assert found.value == pytest.approx(X[0] + theta)
    assert found.se == pytest.approx(math.sqrt(own + outside))
    assert found.df == pytest.approx((own + outside) ** 2 / (own**2 / (n - 1)))


def test_what_fewer_than_two_blocks_fix_has_no_error() -> None:
    values = np.array([[1.0, 2.0], [3.0, np.nan], [5.0, 5.0]])
    errors = BlockErrors(values=values, outside=np.diag([0.5, 0.0]))
    first, second, both = np.eye(2)[0], np.eye(2)[1], np.ones(2)
    within = 4.0 / 3  # of 1, 3 and 5 the variance over their number
    variance, df = errors.variance(first)
    assert variance == pytest.approx(within + 0.5)
    assert df == pytest.approx(2 * (1 + 0.5 / within) ** 2)
    assert errors.variance(both) == pytest.approx((49 / 2 / 2 + 0.5, (1 + 0.5 / 12.25) ** 2))
    assert errors.covariance(first, second) == pytest.approx(
        np.array([[8.0, 6.0], [6.0, 4.5]]) / 2 + [[0.5, 0], [0, 0]]
    )
    few = BlockErrors(values=values[:2], outside=errors.outside)
    assert few.variance(second) == (math.inf, 1.0)
    assert few.covariance(first, second).tolist() == [[math.inf] * 2] * 2
    line = of_lines(np.full((1, 2), -0.19), np.array([[3.28, 3.281]]))
    assert replace(line, errors=few).theta_interval(0, 0.05) is None
    alike = BlockErrors(values=np.ones((4, 2)), outside=np.zeros((2, 2)))
    assert alike.variance(first) == (0.0, 3.0)
