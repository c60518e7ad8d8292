"""One slope of a benchmark from pairs of arms at two lengths: the weighted mean, its error widened where they differ."""

import math

import pytest

from reports.stats.slope import StepPair, pooled_slope


def pair(slope: float, se: float, log_steps: float = 0.1) -> StepPair:
    return StepPair(log_steps=log_steps, gained=slope * log_steps, se=se * log_steps)


def test_a_pair_has_what_a_log_step_gains() -> None:
    slope = StepPair(log_steps=0.2, gained=0.03, se=0.004).slope
    assert (slope.value, slope.se) == (pytest.approx(0.15), pytest.approx(0.02))


def test_one_pair_is_its_own_slope() -> None:
    pooled = pooled_slope([pair(0.15, 0.02)])
    assert (pooled.value, pooled.se) == (pytest.approx(0.15), pytest.approx(0.02))


def test_pairs_that_agree_are_weighted_by_their_errors() -> None:
    """By hand: weights 4 and 1 of 0.1 and 0.11, whose distance is well within their errors."""
    pooled = pooled_slope([pair(0.1, 0.05, 0.1), pair(0.11, 0.1, 0.4)])
    assert pooled.value == pytest.approx((4 * 0.1 + 0.11) / 5)
    assert pooled.se == pytest.approx(0.1 / math.sqrt(5))


def test_pairs_that_differ_widen_the_error_by_birges_ratio() -> None:
    """By hand: three of equal errors of 0.01 at 0.1, 0.2, 0.3: a chi square of 200 on 2."""
    pooled = pooled_slope([pair(at, 0.01) for at in (0.1, 0.2, 0.3)])
    assert pooled.value == pytest.approx(0.2)
    assert pooled.se == pytest.approx(0.01 / math.sqrt(3) * 10)


def test_without_a_pair_there_is_no_slope() -> None:
    with pytest.raises(ValueError, match="no program ran at two lengths"):
        pooled_slope([])
