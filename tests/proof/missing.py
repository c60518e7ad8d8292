"""Runs that are missing: the two-way model in incomplete blocks, for many experiments at once."""

from collections.abc import Iterator

import numpy as np

from reports.stats.simultaneous import max_t_quantile
from reports.stats.two_way import Errors, two_way
from tests.proof.batch import Batch, chunks
from tests.proof.row import AT_MOST, Row

PATTERNS = {  # cells (block, arm) that are missing, the last arm being -1
    "a run missing": ((0, -1),),
    "two arms miss a run": ((0, -1), (1, -2)),
    "the baseline misses a run": ((0, 0),),
}


def errors_of(y_RNK: np.ndarray, has_NK: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[Errors]]:
    """(differences (R, M), their correlation, both errors with se (R, M)) of experiments with holes."""
    block, arm = np.nonzero(has_NK)
    values, k = y_RNK[:, block, arm], has_NK.shape[1]
    n_values = len(block)
    # the model is linear: what it makes of unit values, it makes of all
    solver = np.stack(
        [two_way(unit, arm.tolist(), block.tolist()).delta for unit in np.eye(n_values)], axis=1
    )
    fitted = two_way(values[0], arm.tolist(), block.tolist())
    member = (arm == np.arange(k)[:, None]).astype(float)
    x = np.hstack([member.T, (block[:, None] == np.unique(block)).astype(float)])
    remainder = np.eye(n_values) - x @ np.linalg.pinv(x)
    squares = (values @ remainder.T) ** 2
    one, second = fitted.errors
    df, of_arms = one.df[0], squares @ member.T
    scale = np.sqrt((solver**2).sum(1))
    kept, weights = member @ remainder**2 @ member.T, solver**2 @ member.T
    own = np.zeros((len(values), k - 1))
    for a in range(k):
        group = np.stack([np.arange(k) == a, np.arange(k) != a]).astype(float)
        expected = group @ kept @ group.T
        if np.linalg.matrix_rank(expected, tol=1e-9) < 2:
            continue
        variance = of_arms @ group.T @ np.linalg.inv(expected).T @ (weights @ group.T).T
        own = np.maximum(own, np.where((a == 0) | (np.arange(1, k) == a), variance, 0.0))
    pooled = np.sqrt(squares.sum(1) / df)[:, None] * scale
    errors = [Errors(se=pooled, df=one.df), Errors(se=np.sqrt(own), df=second.df)]
    return values @ solver.T, fitted.corr, errors


def missing_analysis(y_RNK: np.ndarray, has_NK: np.ndarray) -> Batch:
    """The declared analysis of experiments that lack the runs which `has_NK` denies."""
    delta, corr, errors = errors_of(y_RNK, has_NK)
    halves = []
    for error in errors:
        critical = np.array([max_t_quantile(0.95, corr, float(df)) for df in error.df])
        halves.append(critical * error.se)
    half = np.maximum(*halves)
    return Batch(delta=delta, low=delta - half, high=delta + half)


def with_holes(n: int, m: int, cells: tuple[tuple[int, int], ...]) -> np.ndarray:
    has = np.ones((n, m + 1), bool)
    for cell in cells:
        has[cell] = False
    return has


def missing(r: int) -> Iterator[Row]:
    """No arm has an effect; the widths are those of the arms that have all their runs."""
    r = min(4 * r, AT_MOST)
    for m in (3, 15):
        noises = {
            "equal": np.ones(m + 1),
            "baseline 2 x": np.r_[2.0, np.ones(m)],
            "last arm 3 x": np.r_[np.ones(m), 3.0],
            "all arms 2 x": np.r_[1.0, np.full(m, 2.0)],
        }
        for n in (3, 5):
            for name, cells in PATTERNS.items():
                has = with_holes(n, m, cells)
                shared = np.asarray(0.5 * (np.eye(m) + 1))
                oracle = max_t_quantile(0.95, shared, (n - 1) * m - len(cells)) * np.sqrt(2 / n)
                for noise, sd in noises.items():
                    held, each, widths = [], [], []
                    for rng, size in chunks([15, m, n, len(name), len(noise)], r, n * (m + 1)):
                        y = rng.normal(size=(size, n, m + 1)) * sd
                        b = missing_analysis(y, has)
                        covers = (b.low <= 0) & (b.high >= 0)
                        held.append(covers.all(1).mean())
                        each.append(covers.mean(0))
                        widths.append(np.median((b.high - b.low)[:, 0] / 2) / oracle)
                    apart = noise == "equal" and has[:, 0].all()
                    yield Row(kind=f"difference, simultaneous over {m} arms", n=str(n), noise=f"{noise}, {name}",
                              replications=r, coverage=float(np.mean(each, axis=0).min()), simultaneous=float(np.mean(held)),
                              family_error=float(1 - np.mean(held)), width=float(np.mean(widths)) if apart else None)  # fmt: skip
