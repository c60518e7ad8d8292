"""Whether differences in blocks, in their order, are what an anytime-valid sequence supposes."""

import numpy as np
from scipy import stats

from reports.analysis.cautions import Caution
from reports.stats.sequential import FIRST, skewness
from reports.stats.simultaneous import Array

MOST_SKEW = 2.0  # of the differences that a sequence is for


def sequence_warnings(arm: Array, baseline: Array) -> list[Caution]:
    """Whether the differences in blocks, in their order, are what a sequence supposes of them.

    A warning, never a choice of analysis: skewness as it is seen; whether one is the noisier, by
    the correlation of sum and difference (Pitman 1939), for a sequence errs just where it has not
    yet seen the long tail; Spearman's test for a drift."""
    d = arm - baseline
    if len(d) < FIRST:
        return []
    doubts = []
    if abs(skewness(d)) > MOST_SKEW:
        doubts.append(Caution.SKEWED)
    if np.ptp(d) > 0 and _noisier(arm, baseline):
        doubts.append(Caution.UNLIKE_NOISE)
    if np.ptp(d) > 0 and stats.spearmanr(np.arange(len(d)), d).pvalue < 0.05:
        doubts.append(Caution.DRIFTS)
    return doubts


def _noisier(arm: Array, baseline: Array, alpha: float = 0.05) -> bool:
    """Whether one of two samples in pairs (n,) has more noise than the other, beyond chance."""
    together = arm + baseline
    return bool(np.ptp(together) > 0 and stats.pearsonr(together, arm - baseline).pvalue < alpha)
