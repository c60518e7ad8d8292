"""The point that a halving selects: judged by the runs of its last rung, and on fresh seeds."""

from collections.abc import Iterator

import numpy as np

from harness.run.halving import Halving
from tests.proof.batch import chunks
from tests.proof.row import SIZES, Row
from tests.proof.winners import judged_twice

HALVING = Halving(one_in=2, budgets=(100, 200, 400), n_points=16)  # 16, 8, 4 points
KEPT = 0.5  # of a run's variance: what a seed has in common with the same seed at other budgets
OWN = "the best of 16 by halving, by the runs of its last rung"
FRESH = "the best of 16 by halving, on fresh seeds"


def halved(r: int) -> Iterator[Row]:
    """The point selected among 16 in three rungs of n seeds, against the baseline in the last rung and in n fresh blocks."""
    r = min(100 * r, 500_000)
    for n in SIZES:
        drawn = chunks([62, n], r, 6 * n * (HALVING.n_points + 1))
        yield from judged_twice((OWN, FRESH), selected, drawn, (r, n, HALVING.n_points))


def selected(rng: np.random.Generator, truth: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """(baseline and selected point in the last rung's blocks, (R, n, 2); which it is, (R,))."""
    size, k = truth.shape
    of_seed = np.sqrt(KEPT) * rng.normal(size=(size, n, k))  # the same at every budget
    inside = np.zeros((size, k), bool)
    inside[:, 1:] = True
    for rung in range(len(HALVING.budgets)):
        y = truth[:, None, :] + of_seed + np.sqrt(1 - KEPT) * rng.normal(size=(size, n, k))
        y += rng.normal(size=(size, n, 1))
        means = np.where(inside, y.mean(1), np.inf)
        chooses = HALVING.n_at(rung + 1) if rung + 1 < len(HALVING.budgets) else 1
        place = means.argsort(1).argsort(1)
        inside &= place < chooses
    best = inside.argmax(1)
    return np.stack([y[:, :, 0], y[np.arange(size), :, best]], axis=2), best
