"""The second path for times whose nodes are unknown: the noise between nodes, added by hand."""

import math
from collections.abc import Iterator, Mapping, Sequence

from scipy import stats

from reports.inputs.noise import benchmark_noise
from reports.verify.page import Printed
from reports.verify.separate import FACTOR_WITHIN, WITHIN_VALUE, separate
from reports.verify.table import ALPHA, Table, near, on_scale


def check_unknown_nodes(
    table: Table, here: Sequence[str], printed: Mapping[str, Mapping[str, Printed]], m: int
) -> Iterator[str]:
    """Welch's variance and that of two nodes: m intervals at the table's simultaneous level."""
    nodes = benchmark_noise().nodes
    of_nodes = 2 * nodes.sd**2
    for arm in here:
        part = printed[arm].get(f"{table.metric}.interval")
        difference = separate(table, arm, ALPHA / m)
        if part is None or difference is None:
            continue
        squared = difference.se**2
        df = (squared + of_nodes) ** 2 / (squared**2 / difference.df + of_nodes**2 / nodes.df)
        half = float(stats.t.isf(ALPHA / m / 2, df)) * math.sqrt(squared + of_nodes)
        low, high = difference.mean - half, difference.mean + half
        within = WITHIN_VALUE + FACTOR_WITHIN * half
        shown_low = on_scale(part.values[0], table.metric)
        shown_high = on_scale(part.values[1], table.metric)
        if not (near(shown_low, low, within) and near(shown_high, high, within)):
            yield (
                f"arm {arm!r}: {table.metric}.interval is printed as {part.text} but the rows and"
                f" the noise between nodes give [{low:.5f}, {high:.5f}]"
            )
