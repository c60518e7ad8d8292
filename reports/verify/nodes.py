"""The second path for times whose nodes are unknown: the noise between nodes, added by hand."""

import math
from collections.abc import Iterator, Mapping, Sequence

from scipy import stats

from reports.inputs.noise import benchmark_noise
from reports.verify.page import Printed
from reports.verify.separate import (
    Difference,
    adjusted_p,
    agree_ends,
    ends_of,
    separate,
)
from reports.verify.table import ALPHA, Table, agree_p


def check_unknown_nodes(
    table: Table, here: Sequence[str], printed: Mapping[str, Mapping[str, Printed]], m: float
) -> Iterator[str]:
    """m intervals at the table's simultaneous level, of each end the further of two.

    One is Welch's sharpened by Holm; the other adds the variance of two nodes to Welch's.
    """
    differences: dict[str, Difference] = {}
    for arm in here:
        difference = separate(table, arm, ALPHA / m)
        if f"{table.metric}.interval" in printed[arm] and difference is not None:
            differences[arm] = difference
    for arm, p_within in adjusted_p(differences).items():
        part = printed[arm][f"{table.metric}.interval"]
        within_nodes, across = differences[arm], across_nodes(differences[arm])
        low, high = ends_of(within_nodes, half_of(within_nodes, m), decided=p_within <= ALPHA)
        half = half_of(across, m)
        low, high = min(low, across.mean - half), max(high, across.mean + half)
        if not agree_ends(part, table.metric, (low, high), half):
            yield (
                f"arm {arm!r}: {table.metric}.interval is printed as {part.text} but the rows and"
                f" the noise between nodes give [{low:.5f}, {high:.5f}]"
            )
        p = max(p_within, min(1.0, m * across.p()))
        yield from agree_p(printed[arm], table.metric, p, arm)


def across_nodes(difference: Difference) -> Difference:
    """With the noise of two nodes in its error, df by Satterthwaite."""
    nodes = benchmark_noise().nodes
    squared, of_nodes = difference.se**2, 2 * nodes.sd**2
    df = (squared + of_nodes) ** 2 / (squared**2 / difference.df + of_nodes**2 / nodes.df)
    return Difference(mean=difference.mean, se=math.sqrt(squared + of_nodes), df=df)


def half_of(difference: Difference, m: float) -> float:
    """Half the width of one of m intervals."""
    return float(stats.t.isf(ALPHA / m / 2, difference.df)) * difference.se
