"""What a plan promises, against experiments drawn in full and analysed by formulas written out here."""

import math

import numpy as np
import pytest
from scipy import stats

from reports.stats.planning import plan_detectable, seeds_needed
from reports.stats.simultaneous import max_t_quantile

DRAWS = 20_000


def half_widths(n: int, n_arms: int, level: float) -> np.ndarray:
    """(DRAWS,) half widths of arm 1 against the baseline in n blocks of noise 1, the larger of two errors."""
    k = n_arms + 1
    noise = np.random.default_rng(7).normal(size=(DRAWS, n, k))
    left = noise - noise.mean(1, keepdims=True) - noise.mean(2, keepdims=True)
    left += noise.mean((1, 2), keepdims=True)
    squares = (left**2).sum(1)  # (DRAWS, k)
    of_all = squares.sum(1) / ((n - 1) * (k - 1))
    own = (squares[:, :2] / (n - 1) - of_all[:, None] / k) * k / (k - 2)
    of_others = (k * of_all[:, None] - own) / (k - 1)
    corr = (np.eye(n_arms) + 1) / 2
    pooled = max_t_quantile(level, corr, (n - 1) * (k - 1)) * np.sqrt(2 * of_all / n)
    separate = max_t_quantile(level, corr, 4 * (n - 1) * (k - 1) / (k + 2))
    return np.maximum(pooled, separate * np.sqrt((own + of_others).max(1) / n))


@pytest.mark.parametrize(("n", "n_arms", "level"), [(3, 3, 0.95), (4, 5, 0.95), (5, 2, 0.9)])
def test_eight_of_ten_experiments_find_what_a_plan_calls_detectable(
    n: int, n_arms: int, level: float
) -> None:
    found = plan_detectable(sd=0.002, n=n, n_arms=n_arms, level=level)
    assert found.loss is not None
    half, se = half_widths(n, n_arms, level), math.sqrt(2 / n)
    shift = found.loss / 0.002
    finds = stats.norm.cdf((shift - half) / se) + stats.norm.cdf((-shift - half) / se)
    assert finds.mean() == pytest.approx(0.8, abs=0.006)


def test_a_difference_of_nothing_is_found_on_either_side_as_often_as_the_level_errs() -> None:
    half = half_widths(3, 2, 0.95)
    errs = 2 * stats.norm.cdf(-half / math.sqrt(2 / 3)).mean()
    nothing = {"difference": 1e-9, "sd": 1.0, "n_arms": 2}
    assert seeds_needed(**nothing, power=0.9 * errs) is not None
    assert seeds_needed(**nothing, power=2 * errs) is None


@pytest.mark.parametrize(("n_arms", "difference"), [(16, 0.3), (4, 0.3), (4, 1.0), (1, 2.0)])
def test_seeds_are_the_fewest_that_detect_a_difference(n_arms: int, difference: float) -> None:
    """Whether the first guess, of an sd that is known, is too many or too few."""
    found = seeds_needed(difference, sd=1.0, n_arms=n_arms)
    assert found is not None
    enough, fewer = (plan_detectable(sd=1.0, n=n, n_arms=n_arms) for n in (found, found - 1))
    assert enough.loss <= difference < fewer.loss
