"""Noise far from equal, and how power grows with the number of blocks: one analysis at every n."""

from collections.abc import Iterator

import numpy as np
from scipy import stats

from tests.proof.batch import chunks, contrast_half, declared_analysis
from tests.proof.row import POWER_ROWS, Row
from tests.proof.shares import FAMILIES

STEPS = (*range(3, 13), 16, 20)  # blocks at which power is shown
PAIRED_FROM = 6  # blocks at which each arm had a t test of its own


def patterns(m: int) -> dict[str, np.ndarray | None]:
    """sd of the baseline and of m arms, the baseline first; None: Student's t of 3 df."""
    arms = np.arange(m + 1)
    half = (arms > 0) & (arms <= m // 2)
    return {
        "one arm 3 x": np.where(arms == m, 3.0, 1.0),
        "one arm 10 x": np.where(arms == m, 10.0, 1.0),
        "baseline 3 x": np.where(arms == 0, 3.0, 1.0),
        "baseline 10 x": np.where(arms == 0, 10.0, 1.0),
        "all arms 10 x": np.where(arms > 0, 10.0, 1.0),
        "half of the arms 10 x": np.where(half, 10.0, 1.0),
        "baseline and one arm 10 x": np.where((arms == 0) | (arms == m), 10.0, 1.0),
        "baseline and half of the arms 3 x": np.where((arms == 0) | half, 3.0, 1.0),
        "t, 3 df": None,
    }


def far_noise(r: int) -> Iterator[Row]:
    """No arm has an effect, some are up to ten times as noisy as others: how often any is called different."""
    r = min(4 * r, 20_000)
    for m in (4, 15):
        for n in (3, 6, 20):
            for name, sd in patterns(m).items():
                wrong = []
                for rng, size in chunks([30, m, n, len(name)], r, n * (m + 1)):
                    shape = (size, n, m + 1)
                    y = rng.standard_t(3, shape) if sd is None else rng.normal(size=shape) * sd
                    b = declared_analysis(y)
                    wrong.append(((b.low > 0) | (b.high < 0)).any(1).mean())
                yield Row(kind=f"difference, {m} arms, noise far from equal", n=str(n), noise=name, replications=r,
                          family_error=float(np.mean(wrong)))  # fmt: skip


def power_by_n(r: int) -> Iterator[Row]:
    """An arm with an effect is found more often with every block that is added; the same runs at every n."""
    for m, effect in ((1, 2.0), (4, 2.0), (15, 2.0), (15, 2.5)):
        found = {n: 0 for n in STEPS}
        paired = {n: 0 for n in STEPS if n >= PAIRED_FROM}
        for rng, size in chunks([31, m, int(10 * effect)], r, 20 * (m + 1)):
            y = rng.normal(size=(size, 20, m + 1)) + np.r_[0.0, effect, np.zeros(m - 1)]
            for n in STEPS:
                found[n] += int((declared_analysis(y[:, :n]).low[:, 0] > 0).sum())
            for n in paired:
                paired[n] += _n_found_in_pairs(y[:, :n, 1] - y[:, :n, 0], m)
        kind = f"{POWER_ROWS}{m} arm{'s' if m > 1 else ''}, effect {effect:g} sd"
        yield from _power_rows(kind, found, r)
        if m > 1:
            yield from _power_rows(f"{kind}, a paired t each", paired, r)
    for kind, c_MK in FAMILIES.items():
        found, c = {n: 0 for n in STEPS}, c_MK[0]
        for rng, size in chunks([32, len(kind)], r, 20 * 8):
            y = rng.normal(size=(size, 20, 8)) + c / (c @ c) * 2.0 * np.sqrt(c @ c / 2)
            for n in STEPS:
                half = contrast_half(y[:, :n], c, 0.05 / len(c_MK))
                found[n] += int((y[:, :n].mean(1) @ c > half).sum())
        yield from _power_rows(f"{POWER_ROWS}{kind}, effect as of two arms 2 sd apart", found, r)


def _n_found_in_pairs(d_RN: np.ndarray, m: int) -> int:
    """How many of R arms their own differences tell from zero, at their share of the 5 % of m arms."""
    n = d_RN.shape[1]
    t = d_RN.mean(1) / d_RN.std(1, ddof=1) * np.sqrt(n)
    return int((t > stats.t.isf(0.025 / m, n - 1)).sum())


def _power_rows(kind: str, found: dict[int, int], r: int) -> Iterator[Row]:
    for n, times in found.items():
        yield Row(kind=kind, n=str(n), noise="equal", replications=r, power=times / r)
