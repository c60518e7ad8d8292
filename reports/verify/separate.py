"""The second path for arms that are judged one by one.

Runs without blocks, and arms declared to alter the noise: widened Welch and paired intervals by
hand, Bonferroni, sharpened by Holm.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, variance

import numpy as np
from scipy import special, stats

from reports.verify.page import Printed
from reports.verify.table import ALPHA, Table, agree_p, near, on_scale

WITHIN_VALUE = 1e-6  # of a value: what a page leaves off
FACTOR_WITHIN = 2e-3  # of a half width: what the factor of unblocked samples may be off


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Arm minus baseline, its standard error and the error's degrees of freedom."""

    mean: float
    se: float
    df: float

    def p(self) -> float:
        return 2 * float(stats.t.sf(abs(self.mean) / self.se, self.df))


def check_separate(
    table: Table, here: Sequence[str], printed: Mapping[str, Mapping[str, Printed]], m: float
) -> Iterator[str]:
    """Paired t over shared blocks or Welch's, widened; sharpened by Holm where it decides the sign.

    m: arms of the family, of which those here spend their share of the error.
    """
    differences: dict[str, Difference] = {}
    for arm in here:
        difference = separate(table, arm, ALPHA / m)
        if difference is None:
            return
        differences[arm] = difference
    adjusted = {arm: min(1.0, m / len(here) * p) for arm, p in adjusted_p(differences).items()}
    for arm, difference in differences.items():
        part = printed[arm].get(f"{table.metric}.interval")
        if part is None:
            continue
        half = float(stats.t.isf(ALPHA / m / 2, difference.df)) * difference.se
        ends = ends_of(difference, half, decided=adjusted[arm] <= ALPHA)
        if not agree_ends(part, table.metric, ends, half):
            yield (
                f"arm {arm!r}: {table.metric}.interval is printed as {part.text} but the rows give"
                f" [{ends[0]:.5f}, {ends[1]:.5f}]"
            )
        yield from agree_p(printed[arm], table.metric, adjusted[arm], arm)


def agree_ends(part: Printed, metric: str, ends: tuple[float, float], half: float) -> bool:
    """Whether the printed interval has these ends, as near as a half width can be known."""
    within = WITHIN_VALUE + FACTOR_WITHIN * half
    shown = (on_scale(part.values[0], metric), on_scale(part.values[1], metric))
    return all(near(there, end, within) for there, end in zip(shown, ends, strict=True))


def adjusted_p(differences: Mapping[str, Difference]) -> dict[str, float]:
    """Every arm's p value after Holm."""
    raw = {arm: difference.p() for arm, difference in differences.items()}
    adjusted: dict[str, float] = {}
    least = 0.0
    for rank, arm in enumerate(sorted(raw, key=raw.__getitem__)):
        least = max(least, min(1.0, (len(raw) - rank) * raw[arm]))
        adjusted[arm] = least
    return adjusted


def ends_of(difference: Difference, half: float, *, decided: bool) -> tuple[float, float]:
    """The interval of this half width, cut at zero where its sign is decided."""
    low, high = difference.mean - half, difference.mean + half
    if decided and difference.mean > 0:
        return max(low, 0.0), high
    if decided:
        return low, min(high, 0.0)
    return low, high


def separate(table: Table, arm: str, alpha: float) -> Difference | None:
    """The arm against the baseline, None where a sample has no spread."""
    differences = table.differences(arm)
    if len(differences) < 2:
        return unpaired(table.loose[arm], table.loose[table.baseline], alpha)
    se = math.sqrt(variance(differences) / len(differences))
    if se <= 1e-12:
        return None
    return Difference(mean=fmean(differences), se=se, df=len(differences) - 1.0)


def unpaired(a: Sequence[float], b: Sequence[float], alpha: float) -> Difference | None:
    """Two samples without blocks, None where one has no spread; the error is widened."""
    if len(a) < 2 or len(b) < 2:
        return None
    va, vb = variance(a) / len(a), variance(b) / len(b)
    if va + vb < 1e-24:
        return None
    df = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    se = widened(len(a), len(b), alpha) * math.sqrt(va + vb)
    return Difference(mean=fmean(a) - fmean(b), se=se, df=df)


@lru_cache(maxsize=256)
def widened(n: int, n0: int, alpha: float) -> float:
    """Factor at which Welch's interval misses in 0.99 alpha where it misses most, or 1.

    By one integral: given which share of the two chi squares is the first's, a Beta, the
    difference over the root of their sum is Student's t of all df.
    """
    df = n + n0 - 2.0
    x, weight = np.polynomial.legendre.leggauss(120)
    first = stats.beta.ppf((x + 1) / 2, (n - 1) / 2, (n0 - 1) / 2)
    # Of the arm in the variance of the difference.
    share = special.expit(np.linspace(-6, 6, 61))[:, None]
    a = share * df * first / (n - 1)
    b = (1 - share) * df * (1 - first) / (n0 - 1)
    welch_df = (a + b) ** 2 / (a**2 / (n - 1) + b**2 / (n0 - 1))
    apart = np.sqrt(a + b) * special.stdtrit(welch_df, 1 - alpha / 2)

    def missed(factor: float) -> float:
        return float((special.stdtr(df, -factor * apart) @ weight).max())

    low, high = 1.0, 10.0
    if missed(low) <= 0.99 * alpha:
        return low
    for _ in range(40):
        middle = (low + high) / 2
        if missed(middle) > 0.99 * alpha:
            low = middle
        else:
            high = middle
    return high
