"""What a folder's memory does to an effect: p for a family, no interval where results are gone."""

from dataclasses import replace

from reports.analysis.types import Comparison
from reports.inputs.memory import Memory
from reports.stats.contrasts import Effect, difference_only


def of_the_family(comparison: Comparison, raised: float) -> Comparison:
    """A rung's comparison with p for the whole family, as its interval is."""
    if comparison.p is None or raised == 1:
        return comparison
    return replace(comparison, p=min(1.0, raised * comparison.p))


def as_remembered(memory: Memory, arm: str, effect: Effect, raised: float) -> Effect:
    """With p for the whole family; without an interval where results that were seen are missing."""
    if arm in memory.lost:
        return difference_only(
            effect.delta, n_blocks=effect.n_blocks, correlation=effect.correlation
        )
    if effect.p is None or raised == 1:
        return effect
    return replace(effect, p=min(1.0, raised * effect.p))
