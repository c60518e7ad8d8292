"""Variances moderated by what other runs of the same era and scale have shown.

Three runs tell little of their own noise: their variance is averaged with that of earlier runs,
weighted by degrees of freedom, and its t has the df of both (empirical Bayes: Lonnstedt and Speed
2002; Smyth 2004). The prior counts for at most 4 df, however many runs are behind it: experiments
differ in noise, and one that is noisier than the prior must be able to say so. Of the two errors of
reports/stats/two_way.py each is moderated. Declared in the plan before the first run.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from reports.stats.simultaneous import Array
from reports.stats.two_way import Errors

DOUBTED = 0.05  # share of experiments with the prior's own noise that look noisier than it


@dataclass(frozen=True, kw_only=True)
class Prior:
    """One run's sd, and for how many df it counts."""

    sd: float
    df: float

    def variance(self, variance: Array, df: Array | float, scale: Array | float = 1.0) -> Array:
        """Of an estimate whose error is `scale` times one run's sd: seen with df, moderated."""
        return np.asarray(
            (self.df * (scale * self.sd) ** 2 + df * variance) / (self.df + df), float
        )

    def moderated(self, errors: Errors, scale: Array) -> Errors:
        """The errors of contrasts, with the df of both sources."""
        variance = self.variance(errors.se**2, errors.df, scale)
        return Errors(se=np.sqrt(variance), df=errors.df + self.df)

    def is_too_small(self, sd: float, df: int) -> bool:
        """Whether runs with this sd are noisier than chance allows, had they the prior's noise."""
        return bool(df and stats.chi2.sf(df * (sd / self.sd) ** 2, df) < DOUBTED)
