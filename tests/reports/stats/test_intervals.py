"""Quantiles of one comparison against scipy's own distributions."""

import math

import pytest
from scipy import stats

from reports.stats.intervals import t_quantile


@pytest.mark.parametrize("df", [1.0, 7.5, 300.0, math.inf])
@pytest.mark.parametrize("alpha", [0.2, 0.05, 0.001])
def test_a_quantile_is_of_t_or_of_the_normal(df: float, alpha: float) -> None:
    assert t_quantile(alpha, df) == pytest.approx(stats.t.isf(alpha / 2, df), rel=1e-12)
