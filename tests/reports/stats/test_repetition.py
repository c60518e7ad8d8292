"""A published effect is tested where a measurement without error would confirm it often enough."""

import numpy as np
import pytest
from scipy import stats

from reports.stats.repetition import ALPHA, POWER, gate


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
