"""Whether a baseline's fresh runs are still what its earlier runs were."""

import numpy as np
from scipy import stats

from reports.stats.simultaneous import Array

DRIFT = 0.05  # p below which earlier runs are not borrowed


def drift_p(pool: Array, fresh: Array) -> float:
    """Two-sided p of the fresh runs' mean among draws like the pool's.

    A t test by the pool's own sd, as two fresh runs say little of theirs: sees a drift of 2 sds in
    7 of 10 cases, of 1 sd in 2. 1.0 where the pool has no sd."""
    n, m = len(pool), len(fresh)
    if n < 2 or not m:
        return 1.0
    se = float(pool.std(ddof=1)) * np.sqrt(1 / n + 1 / m)
    if not se > 0:
        return 1.0 if fresh.mean() == pool.mean() else 0.0
    return float(2 * stats.t.sf(abs(fresh.mean() - pool.mean()) / se, n - 1))
