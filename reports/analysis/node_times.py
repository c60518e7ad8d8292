"""What the noise between nodes adds to a difference of times."""

import pandas as pd

from reports.analysis import samples
from reports.analysis.machines import nodes_unknown, on_several_nodes
from reports.inputs.noise import benchmark_noise
from reports.stats.contrasts import Effect
from reports.stats.node_noise import with_nodes


def with_unknown_nodes(
    runs: pd.DataFrame, pair: tuple[str, str], effect: Effect, *, alpha: float, m: int
) -> Effect:
    """An effect between two arms, wider where their nodes are unknown or they share none.

    pair: the arms; runs: it was taken from; alpha: its share of the error rate of m effects."""
    across = not effect.n_blocks and on_several_nodes(runs, *pair)
    if across or (samples.any_imported(runs, *pair) and nodes_unknown(runs, *pair)):
        return with_nodes(effect, benchmark_noise().nodes, alpha=alpha, m=m)
    return effect
