"""Variances moderated by what other runs of the same era and scale have shown.

Three runs tell little of their own noise: their variance is averaged with that of earlier runs,
weighted by degrees of freedom, and its t has the df of both (empirical Bayes: Lonnstedt and Speed
2002; Smyth 2004). The prior counts for at most 4 df, however many runs are behind it: experiments
differ in noise, and one that is noisier than the prior must be able to say so. Of the two errors of
reports/stats/two_way.py each is moderated. Declared in the plan before the first run.
"""

from dataclasses import dataclass

import numpy as np
from scipy import optimize, special, stats

from reports.stats.simultaneous import Array
from reports.stats.two_way import Errors

MOST_DF = 4.0  # of a prior
FEWEST_GROUPS = 3  # that tell how groups differ
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


def fitted_prior(variance: Array, df: Array) -> Prior | None:
    """The prior behind the variances of groups (G,), each seen with its df; None for too few.

    Moments of the logarithms (Smyth 2004), with at most MOST_DF: groups of such a prior have
    variances with a long upper tail, so that its sd lies below the pooled one of their runs."""
    if len(variance) < FEWEST_GROUPS:
        return None
    logs = np.log(variance) - special.digamma(df / 2) + np.log(df / 2)
    between = float(logs.var(ddof=1) - special.polygamma(1, df / 2).mean())

    def excess(half_df: float) -> float:
        return float(special.polygamma(1, half_df)) - between

    half_df = MOST_DF / 2
    if excess(half_df) < 0:
        half_df = float(optimize.brentq(excess, 1e-3, half_df))
    scale = float(logs.mean() + special.digamma(half_df) - np.log(half_df))
    return Prior(sd=float(np.exp(scale / 2)), df=2 * half_df)
