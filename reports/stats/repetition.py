"""Is an effect that was published the one that was measured again? Tested given that it is tested.

Published effects are tested where they are many times their own error, and those that are drawn
large enough by chance are too large: of true repetitions 17 % would look *smaller*. So every p is
of the published figure given that it passed that gate (selective inference: Fithian, Sun and Taylor
2014; Lee et al. 2016). Under ours = ratio * theirs, D = our estimate - ratio * the published one
tells all, and W = published + cov D is independent of it: given W, D is normal, cut off where the
published figure would have failed the gate. What counts as a repetition is a ratio of true effects,
so the published figure's error enters the margin as well.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import optimize, special, stats

from reports.stats.intervals import Estimate
from reports.stats.simultaneous import Array

ALPHA = 0.05  # of each of the two one-sided tests
WITHIN_SHARE = 0.5  # a repetition's effect is within this share of the published one
POWER = 0.8  # a published effect that a perfect measurement would confirm less often is not tested


@cache
def gate() -> float:
    """The least size of a published effect, in its standard errors, that is tested.

    From it on a measurement without error would pass two one-sided tests with POWER."""

    def lack(size: float) -> float:
        z = stats.norm.isf(ALPHA)
        too_small = stats.norm.sf(size - z)  # the figure so large that ours looks below half of it
        too_large = stats.norm.cdf(z - size * WITHIN_SHARE / (1 + WITHIN_SHARE))
        return float(1 - too_small - too_large - POWER)

    return float(optimize.brentq(lack, 1.0, 100.0))


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """One-sided p values of a ratio of true effects, ours over the published one; any shape."""

    less: Array  # small where the true ratio is below it
    more: Array  # small where it is above


def of_ratio(ours: Estimate, published: Estimate, ratio: float) -> Ratio:
    """p of a ratio, given the sign of the published effect and that it passed the gate."""
    values = [np.asarray(x, float) for x in (ours.value, ours.se, published.value)]
    return ratio_p(*values, df=ours.df, published_se=published.se, ratio=ratio)


def ratio_p(
    ours: Array,
    se: Array,
    published: Array,
    *,
    df: float,
    published_se: float,
    ratio: float,
) -> Ratio:
    """The same of many experiments, each with its own estimate `ours`, `se` and `published` figure.

    df: of se; published_se: of the figure; ratio: of the true effects. Both
    errors are judged with our df: with Satterthwaite's a ratio of 1.5 would pass in 6 %."""
    size = np.abs(published)
    d = np.sign(published) * ours - ratio * size
    root = np.sqrt(np.maximum(se**2 + (ratio * published_se) ** 2, 1e-300))
    below, above = _t_cdf(d / root, df), _t_cdf(-d / root, df)
    if not published_se > 0:
        return Ratio(less=below, more=above)
    share = ratio * published_se**2 / root**2  # of D that the published figure holds
    # D beyond it would have failed the gate
    most = d + (size - gate() * published_se) / share
    tested, beyond = _t_cdf(most / root, df), _t_cdf(-most / root, df)
    tested = np.maximum(tested, 1e-300)
    return Ratio(
        less=np.minimum(1.0, below / tested),
        more=np.clip((above - beyond) / tested, 0.0, 1.0),
    )


def _t_cdf(x: Array, df: float) -> Array:
    return np.asarray(special.ndtr(x) if np.isinf(df) else special.stdtr(df, x), float)
