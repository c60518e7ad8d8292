"""Plans that follow what was seen: one question asked in many experiments, seeds swapped until they suit."""

from collections.abc import Iterator

import numpy as np

from reports.stats.sequential import critical_t
from tests.proof.batch import chunks, declared_analysis, running_h
from tests.proof.row import BEYOND_CONDITION, Row

PARTS, SWAPS, SEEDS = 15, 16, 3


def tricks(r: int) -> Iterator[Row]:
    """Equal arms: fifteen experiments of one arm each, at their share of the family's 5 %, that of all and that of those asked
    so far; three seeds swapped for fresh ones
    until a page shows a difference, all that was seen counting."""
    r = min(10 * r, 100_000)
    for n in (3, 5, 10):
        for noise, n_baselines in (("one baseline", 1), ("a baseline each", PARTS)):
            errors, first = [], []
            for rng, size in chunks([42, n, n_baselines], r, n * (PARTS + n_baselines)):
                wrong, pleased = np.zeros((2, size), bool)
                base = rng.normal(size=(size, n, n_baselines))
                for part in range(PARTS):
                    arm = rng.normal(size=(size, n))
                    y = np.stack([base[:, :, part % n_baselines], arm], axis=2)
                    b = declared_analysis(y, level=1 - 0.05 / PARTS)
                    wrong |= ((b.low > 0) | (b.high < 0))[:, 0]
                    b = declared_analysis(y, level=1 - 0.05 / (part + 1))
                    pleased |= ((b.low > 0) | (b.high < 0))[:, 0]
                errors.append(wrong.mean())
                first.append(pleased.mean())
            yield Row(kind=f"difference, one experiment split in {PARTS}", n=str(n), noise=noise, replications=r,
                      family_error=float(np.mean(errors)))  # fmt: skip
            yield Row(kind=f"difference, one experiment split in {PARTS}, each part judged when it was asked", n=str(n),
                      noise=f"{noise}, {BEYOND_CONDITION}", replications=r, family_error=float(np.mean(first)))  # fmt: skip
    n = np.arange(2, SWAPS * SEEDS + 1)
    looked = n % SEEDS == 0
    for m in (1, 4):
        critical, errors = critical_t(n, 0.05 / m), []
        for rng, size in chunks([43, m], r, SWAPS * SEEDS * m):
            y = rng.normal(size=(size, SWAPS * SEEDS, m + 1))
            t = np.abs(running_h(y[:, :, 1:] - y[:, :, :1]))
            errors.append((t > critical[None, :, None])[:, looked].any(axis=(1, 2)).mean())
        yield Row(kind=f"anytime-valid, {m} arm{'s' if m > 1 else ''}, seeds swapped until they suit", n=f"{SEEDS} to {SWAPS * SEEDS}",
                  noise="equal", replications=r, family_error=float(np.mean(errors)))  # fmt: skip
