"""A published effect is tested where a measurement without error would confirm it often enough."""

import numpy as np
import pytest
from scipy import stats

from reports.stats.intervals import Estimate
from reports.stats.repetition import ALPHA, POWER, gate, of_ratio


def test_from_the_gate_on_a_perfect_measurement_confirms_with_the_power_that_is_said():
    """Both one-sided tests of a ratio, 0.5 and 1.5, of the true effect against drawn published figures."""
    z = stats.norm.isf(ALPHA)
    for size in (gate(), 0.9 * gate(), 1.2 * gate()):
        published = size + np.random.default_rng(1).normal(size=400_000)
        above = (size - 0.5 * published) / 0.5 > z
        below = (1.5 * published - size) / 1.5 > z
        found = (above & below).mean()
        if size == gate():
            assert found == pytest.approx(POWER, abs=0.004)
        else:
            assert (found < POWER) == (size < gate())


def test_beside_a_figure_without_an_error_a_ratio_is_a_t_test_of_ours_alone():
    ours = Estimate(value=-0.012, se=0.002, df=8.0)
    published = Estimate(value=-0.01, se=0.0)
    for ratio in (0.5, 1.5):
        found = of_ratio(ours, published, ratio)
        below = stats.t.cdf((0.012 - ratio * 0.01) / 0.002, 8)
        assert (float(found.less), float(found.more)) == pytest.approx((below, 1 - below))
