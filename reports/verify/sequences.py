"""The second path for confidence sequences: their ends put into the test martingale."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from reports.verify.page import Printed
from reports.verify.table import ALPHA, Table, agree_p, reach

LEAST = 7  # blocks from which there is an interval


@dataclass(frozen=True, kw_only=True)
class Martingale:
    """The test martingale of paired differences."""

    differences: Sequence[float]

    def log_at(self, mu: float) -> float:
        """Its logarithm where the true difference is mu, of t or of t freed of the skewness.

        Of the smaller one, which takes at most a share of t away; Hall's polynomial in its other
        form: ((1 + g u / 3)^3 - 1) / g + g / 6n.
        """
        n, mean = len(self.differences), fmean(self.differences)
        second = fmean((d - mean) ** 2 for d in self.differences)
        third = fmean((d - mean) ** 3 for d in self.differences)
        g = third / second**1.5 * math.sqrt(n * (n - 1.0)) / (n - 2)
        u = (mean - mu) / math.sqrt(variance(self.differences))
        h = u
        if abs(g) > 1e-6:
            h = ((1 + g * u / 3) ** 3 - 1) / g + g / (6 * n)
        x = n * min(u**2, max(h**2, (u / 1.3) ** 2)) / (n - 1)
        return -0.5 * math.log1p(n) + n / 2 * (math.log1p(x) - math.log1p(x / (1 + n)))


def check_sequences(
    table: Table, here: Sequence[str], printed: Mapping[str, Mapping[str, Printed]], m: float
) -> Iterator[str]:
    """At an end of the interval the martingale of the paired differences is m / alpha.

    m: arms beside the baseline, whether the page has their rows yet or not.
    """
    for arm in here:
        differences = table.differences(arm)
        part = printed[arm].get(f"{table.metric}.interval")
        if part is None or len(differences) < 2 or not table.no_divergence_beside(arm):
            continue
        if len(differences) < LEAST or not variance(differences) > 0:
            continue
        martingale = Martingale(differences=differences)
        for end in part.values:
            if end is not None and math.isfinite(end) and not ends_at(martingale, end, table, m):
                yield (
                    f"arm {arm!r}: {table.metric}.interval is printed as {part.text}, but it is not"
                    " where the sequence ends"
                )
        p = min(1.0, m * math.exp(-max(martingale.log_at(0.0), 0.0)))
        yield from agree_p(printed[arm], table.metric, p, arm)


def ends_at(martingale: Martingale, end: float, table: Table, m: float) -> bool:
    """Whether the martingale is m / alpha somewhere in what the printed end may stand for."""
    around = [martingale.log_at(at) for at in reach(end, table.metric) if math.isfinite(at)]
    if not around:
        return False
    return min(around) - 1e-6 <= math.log(m / ALPHA) <= max(around) + 1e-6
