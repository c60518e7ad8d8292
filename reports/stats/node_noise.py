"""How much the same program's time differs from node to node, and what that adds to an interval."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from reports.stats.contrasts import Effect
from reports.stats.intervals import Estimate
from reports.stats.simultaneous import Array


@dataclass(frozen=True, kw_only=True)
class NodeNoise:
    """sd of the logarithm of one program's time over nodes, and how well it is known."""

    sd: float
    df: int
    largest: float  # ratio seen between two nodes, less one
    n_programs: int

    @property
    def of_two(self) -> Estimate:
        """What the nodes of two arms may differ by, on the log of a time."""
        return Estimate(value=0.0, se=math.sqrt(2.0) * self.sd, df=float(self.df))


def between_nodes(programs: Sequence[Sequence[Array]]) -> NodeNoise:
    """From programs that ran on several nodes: per program the log times (n,) of each node.

    The variance of the nodes' means within a program, less what their runs' own noise adds to it
    (the method of moments); never below zero. Raises ValueError without such a program."""
    squares, df, expected, largest = 0.0, 0, 0.0, 0.0
    n_programs = 0
    within = _within([node for nodes in programs for node in nodes])
    for nodes in programs:
        if len(nodes) < 2:
            continue
        means = np.array([node.mean() for node in nodes])
        squares += float(((means - means.mean()) ** 2).sum())
        expected += within * float(np.mean([1 / len(node) for node in nodes])) * (len(nodes) - 1)
        df += len(nodes) - 1
        largest = max(largest, float(np.ptp(means)))
        n_programs += 1
    if not df:
        raise ValueError("no program ran on several nodes: its noise cannot be told")
    variance = max(0.0, (squares - expected) / df)
    return NodeNoise(
        sd=math.sqrt(variance), df=df, largest=math.expm1(largest), n_programs=n_programs
    )


def _within(nodes: Sequence[Array]) -> float:
    """The pooled variance of runs on one node."""
    squares, df = 0.0, 0
    for node in nodes:
        squares += float(((node - node.mean()) ** 2).sum())
        df += len(node) - 1
    return squares / df if df else 0.0


def with_nodes(effect: Effect, noise: NodeNoise, *, alpha: float, m: int) -> Effect:
    """A difference of log times whose arms ran on nodes of their own, one each at worst.

    Its interval at 1 - alpha, one of m, carries both nodes' noise: the variances add, the degrees
    of freedom are Satterthwaite's. It is never narrower than the interval without. One that holds
    at any time is widened on both sides instead. Without an interval there is none here either."""
    if effect.low is None or effect.high is None:
        return effect
    of_nodes = math.sqrt(2.0) * noise.sd
    if effect.se is None or effect.df is None:
        more = float(stats.t.isf(alpha / 2, noise.df)) * of_nodes
        return replace(effect, low=effect.low - more, high=effect.high + more, p=None)
    se = math.hypot(effect.se, of_nodes)
    df = se**4 / (effect.se**4 / effect.df + of_nodes**4 / noise.df)
    half = float(stats.t.isf(alpha / 2, df)) * se
    low = min(effect.low, effect.delta - half)
    high = max(effect.high, effect.delta + half)
    p = 2 * m * float(stats.t.sf(abs(effect.delta) / se, df))
    if effect.p is not None:
        p = max(p, effect.p)
    return replace(effect, low=low, high=high, p=min(1.0, p), se=se, df=df)
