"""How much loss a longer schedule gains: one slope from pairs of arms that differ in steps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reports.stats.intervals import Estimate


@dataclass(frozen=True, kw_only=True)
class StepPair:
    """One program at two lengths."""

    log_steps: float  # of the longer over the shorter, above zero
    gained: float  # loss of the shorter less that of the longer
    se: float  # of that

    @property
    def slope(self) -> Estimate:
        """Loss per log step."""
        return Estimate(value=self.gained / self.log_steps, se=self.se / self.log_steps)


def pooled_slope(pairs: Sequence[StepPair]) -> Estimate:
    """The mean of the pairs' slopes, weighted by their errors.

    Its error is widened where they differ by more than their errors say (Birge 1932), never
    narrowed. Raises ValueError without a pair."""
    if not pairs:
        raise ValueError("no program ran at two lengths: its slope cannot be told")
    values = np.array([pair.slope.value for pair in pairs])
    weights = np.array([pair.slope.se**-2 for pair in pairs])
    mean = float((weights * values).sum() / weights.sum())
    widening = 1.0
    if len(pairs) > 1:
        squares = float((weights * (values - mean) ** 2).sum())
        widening = max(1.0, math.sqrt(squares / (len(pairs) - 1)))
    return Estimate(value=mean, se=widening / math.sqrt(float(weights.sum())))
