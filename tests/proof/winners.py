"""The best of many candidates: judged by the runs that it was chosen by, and on fresh seeds."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from tests.proof.batch import chunks, declared_analysis
from tests.proof.row import BEYOND_CONDITION, SIZES, Row

CANDIDATES = 16
SPREAD = 1.0  # sd of the candidates' true effects, in sds of one run
OWN = f"the best of {CANDIDATES} by the runs it was chosen by"
FRESH = f"the best of {CANDIDATES} on fresh seeds"

# generator, truth (R, k + 1), blocks -> (baseline and choice (R, n, 2), which it is (R,))
Choice = Callable[[np.random.Generator, np.ndarray, int], tuple[np.ndarray, np.ndarray]]


def winners(r: int) -> Iterator[Row]:
    """The candidate of the lowest mean over n blocks, against the baseline in the same and in n fresh ones."""
    r = min(500 * r, 1_000_000)
    for n in SIZES:
        drawn = chunks([61, n], r, n * (CANDIDATES + 1) * 4)
        yield from judged_twice((OWN, FRESH), chosen, drawn, (r, n, CANDIDATES))


def judged_twice(
    kinds: tuple[str, str],
    choose: Choice,
    drawn: Iterable[tuple[np.random.Generator, int]],
    sizes: tuple[int, int, int],
) -> Iterator[Row]:
    """Rows of a choice judged by its own runs and on fresh seeds; sizes: replications, blocks, candidates."""
    r, n, k = sizes
    own, fresh, covered, parts = [], [], [], []
    for rng, size in drawn:
        truth = np.zeros((size, k + 1))
        first, of_first = choose(rng, truth, n)
        own.append(_wrong(first))
        fresh.append(_wrong(again(rng, truth, of_first, n)))
        truth[:, 1:] = rng.normal(0, SPREAD, (size, k))
        _, best = choose(rng, truth, n)
        judged = declared_analysis(again(rng, truth, best, n))
        effect = truth[np.arange(size), best]
        covered.append(((judged.low[:, 0] <= effect) & (effect <= judged.high[:, 0])).mean())
        parts.append(size)
    means = [float(np.average(shares, weights=parts)) for shares in (own, fresh, covered)]
    yield Row(kind=kinds[0], n=str(n), noise=f"no effect: {BEYOND_CONDITION}", replications=r,
              family_error=means[0])  # fmt: skip
    yield Row(kind=kinds[1], n=str(n), noise="no effect; effects of 1 sd", replications=r,
              coverage=means[2], family_error=means[1])  # fmt: skip


def chosen(rng: np.random.Generator, truth: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """(baseline and best candidate in the blocks of the choice, (R, n, 2); which it is, (R,))."""
    size, k = truth.shape
    y = truth[:, None, :] + rng.normal(size=(size, n, k)) + rng.normal(size=(size, n, 1))
    best = 1 + y[:, :, 1:].mean(1).argmin(1)
    return np.stack([y[:, :, 0], y[np.arange(size), :, best]], axis=2), best


def again(rng: np.random.Generator, truth: np.ndarray, best: np.ndarray, n: int) -> np.ndarray:
    """Baseline and best candidate in n fresh blocks, (R, n, 2)."""
    size = len(truth)
    two = np.stack([truth[:, 0], truth[np.arange(size), best]], axis=1)
    of_block = rng.normal(size=(size, n, 1))
    fresh: np.ndarray = two[:, None, :] + of_block + rng.normal(size=(size, n, 2))
    return fresh


def _wrong(y: np.ndarray) -> float:
    judged = declared_analysis(y)
    return float(((judged.low > 0) | (judged.high < 0)).mean())
