"""A baseline of which 20 losses are borrowed: error, power against running both, and what drift the two fresh runs see."""

import math
from collections.abc import Iterator

import numpy as np
from scipy import stats

from reports.stats.pool import DRIFT
from tests.proof.batch import chunks, unblocked_interval
from tests.proof.row import AT_MOST, Row

POOL, FRESH = 20, 2
KIND = "difference, 20 borrowed baselines"
AGREE = ("power, 2 fresh runs see a pool of 20 drift", "power, a pool of 20, effect 1.3 sd")
WITHOUT = "power, both run, effect 1.3 sd"
EFFECT = 1.3  # sds: found in 8 of 10 experiments of 10 against 10 runs
POOLED_RUNS, BOTH_RUNS = 8, 10  # of the new script


def drifted(pool: np.ndarray, fresh: np.ndarray) -> np.ndarray:
    """Of experiments (R, runs): whether the pool is not borrowed."""
    error = pool.std(axis=1, ddof=1) * math.sqrt(1 / POOL + 1 / fresh.shape[1])
    t = np.abs(fresh.mean(1) - pool.mean(1)) / error
    return 2 * stats.t.sf(t, POOL - 1) < DRIFT


def missed(
    rng: np.random.Generator, size: int, n: int, *, ratio: float = 1.0, effect: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of size experiments of n new runs: whether the interval leaves zero, whether it leaves the truth, whether it is borrowed.

    Without the pool as many of the baseline's own runs are made."""
    pool, own = rng.normal(size=(size, POOL)), rng.normal(size=(size, max(n, FRESH)))
    new = rng.normal(size=(size, n)) * ratio + effect
    borrowed = ~drifted(pool, own[:, :FRESH])
    whole = np.concatenate([pool, own[:, :FRESH]], axis=1)
    pooled, both = unblocked_interval(new, whole, 0.95), unblocked_interval(new, own[:, :n], 0.95)
    delta = np.where(borrowed, pooled[0], both[0])
    half = np.where(borrowed, pooled[1], both[1])
    return np.abs(delta) > half, np.abs(delta - effect) > half, borrowed


def borrowed_baselines(r: int) -> Iterator[Row]:
    """Runs of the new script against 22 of the old one, or against as many where the two fresh ones disagree with the pool."""
    r = min(20 * r, AT_MOST)
    for n in (5, POOLED_RUNS):
        for noise, ratio in (("equal", 1.0), ("arm 2 x", 2.0), ("arm 5 x", 5.0)):
            wrong = np.concatenate(
                [
                    missed(rng, size, n, ratio=ratio)[1]
                    for rng, size in chunks([41, n, int(ratio)], r, 60)
                ]
            )
            yield Row(kind=KIND, n=f"{n} against 22", noise=noise, replications=r, coverage=float(1 - wrong.mean()),
                      family_error=float(wrong.mean()))  # fmt: skip
    yield from _power(r)
    for drift in (0.5, 1.0, 2.0, 3.0):
        rng = np.random.default_rng([43, int(10 * drift)])
        seen = drifted(rng.normal(size=(r, POOL)), rng.normal(drift, 1.0, size=(r, FRESH)))
        yield Row(kind=AGREE[0], n=f"{drift:g} sd", noise="equal", replications=r, power=float(seen.mean()))  # fmt: skip


def _power(r: int) -> Iterator[Row]:
    """The same power from 20 runs and from 11."""
    rng = np.random.default_rng([42])
    a, b = rng.normal(EFFECT, 1.0, size=(r, BOTH_RUNS)), rng.normal(size=(r, BOTH_RUNS))
    delta, half = unblocked_interval(a, b, 0.95)
    yield Row(kind=WITHOUT, n=f"{BOTH_RUNS} and {BOTH_RUNS}", noise="equal", replications=r,
              power=float((np.abs(delta) > half).mean()))  # fmt: skip
    found, _, borrowed = missed(np.random.default_rng([44]), r, POOLED_RUNS, effect=EFFECT)
    yield Row(kind=AGREE[1], n=f"{POOLED_RUNS} and {FRESH}", noise="equal", replications=r,
              power=float(found[borrowed].mean()))  # fmt: skip
