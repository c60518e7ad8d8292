"""Equal arms whose runs a cluster puts on several nodes: how often a time is called different."""

from collections.abc import Callable, Iterator

import numpy as np
from scipy import stats

from reports.inputs.noise import benchmark_noise
from reports.stats.unblocked import widening
from tests.proof.batch import chunks
from tests.proof.row import Row

NODE, RUN = 0.02, 0.003  # sd of a node's effect and of a run, in logarithms of times
Place = Callable[
    [np.random.Generator, int, int], np.ndarray
]  # (experiments, blocks) -> nodes of (R, N, 2) runs


def by_chance(n_nodes: int) -> Place:
    return lambda rng, r, n: rng.integers(n_nodes, size=(r, n, 2))


def sticky(rng: np.random.Generator, r: int, n: int) -> np.ndarray:
    """The baseline always on one node, the arm on another."""
    return np.broadcast_to([0, 1], (r, n, 2))


def nearly_sticky(rng: np.random.Generator, r: int, n: int) -> np.ndarray:
    """As sticky, but that one run in five is elsewhere."""
    return sticky(rng, r, n) ^ (rng.random((r, n, 2)) < 0.2)


PLACES: dict[str, Place] = {
    "2 nodes by chance": by_chance(2),
    "8 nodes by chance": by_chance(8),
    "each arm on a node of its own": sticky,
    "each arm nearly always on its own node": nearly_sticky,
}


def drawn(
    rng: np.random.Generator, r: int, n: int, place: Place, node: float = NODE
) -> tuple[np.ndarray, np.ndarray]:
    """(log times, nodes), (R, N, 2) each, the baseline first."""
    nodes = place(rng, r, n)
    effects = rng.normal(0, node, (r, 8))
    return effects[np.arange(r)[:, None, None], nodes] + rng.normal(0, RUN, (r, n, 2)), nodes


def intervals(y: np.ndarray, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(difference, half width) of one arm, (R,) each: within seed and node where such pairs are (one alone has no interval), else by
    Welch with the noise between nodes; tests/reports/analysis/test_nodes.py holds it to production code."""
    n = y.shape[1]
    pair = nodes[:, :, 0] == nodes[:, :, 1]
    k, d = pair.sum(1), y[:, :, 1] - y[:, :, 0]
    some = np.maximum(k, 2)
    mean = (d * pair).sum(1) / np.maximum(k, 1)
    se = np.sqrt((((d - mean[:, None]) ** 2) * pair).sum(1) / (some - 1) / some)
    half = stats.t.isf(0.025, some - 1) * se
    var = y.var(axis=1, ddof=1) / n  # (R, 2)
    df = var.sum(1) ** 2 / (var**2 / (n - 1)).sum(1)
    loose = widening(n, n, 0.05) * np.sqrt(var.sum(1))
    noise = benchmark_noise().nodes
    of_nodes = np.where((nodes == nodes[:, :1, :1]).all((1, 2)), 0.0, np.sqrt(2) * noise.sd)
    whole = np.hypot(loose, of_nodes)
    whole_df = whole**4 / (loose**4 / df + of_nodes**4 / noise.df)
    wide = np.maximum(stats.t.isf(0.025, df) * loose, stats.t.isf(0.025, whole_df) * whole)
    half = np.select([k >= 2, k == 1], [half, np.inf], wide)
    return np.where(k >= 1, mean, d.mean(1)), half


def nodes(r: int) -> Iterator[Row]:
    """One arm that is the baseline's copy."""
    r = min(50 * r, 500_000)
    for n in (3, 5, 10, 20):
        for i, (name, place) in enumerate(PLACES.items()):
            errors = []
            for rng, size in chunks([41, n, i], r, 4 * n):
                delta, half = intervals(*drawn(rng, size, n, place))
                errors.append((np.abs(delta) > half).mean())
            yield Row(kind="step times of equal arms, nodes differ by 2 %", n=str(n), noise=name, replications=r,
                      family_error=float(np.mean(errors)))  # fmt: skip
