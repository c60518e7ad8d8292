"""Intervals that are built from others: Fieller's for a ratio, variance recovery for a sum, and p values from either."""

import math
from collections.abc import Callable

Interval = tuple[float, float]


def fieller(u: float, v: float, var_u: float, var_v: float, cov_uv: float, t: float) -> Interval | None:
    """{r: (u - r v)^2 <= t^2 var(u - r v)}, the exact set for u / v (Fieller 1954); None where unbounded: v not resolved from
    zero."""
    a = v * v - t * t * var_v
    b = u * v - t * t * cov_uv
    c = u * u - t * t * var_u
    if a <= 0:
        return None
    root = math.sqrt(max(b * b - a * c, 0.0))  # u / v itself is in the set, so below zero is rounding
    return float((b - root) / a), float((b + root) / a)


def add_intervals(*parts: tuple[float, Interval]) -> Interval:
    """Interval of a sum of independent estimates from their own intervals (variance recovery, Zou and Donner 2008)."""
    total = sum(estimate for estimate, _ in parts)
    below = math.sqrt(sum((estimate - low) ** 2 for estimate, (low, _) in parts))
    above = math.sqrt(sum((high - estimate) ** 2 for estimate, (_, high) in parts))
    return total - below, total + above


def p_of_interval(interval: Callable[[float], Interval | None], *, floor: float = 1e-9) -> float:
    """Two-sided p: the smallest alpha whose interval excludes zero, by bisection; `floor` or 1 at the ends."""

    def excludes(alpha: float) -> bool:
        ends = interval(alpha)
        return ends is not None and (ends[0] > 0 or ends[1] < 0)

    low, high = floor, 0.999
    if excludes(low):
        return low
    if not excludes(high):
        return 1.0
    for _ in range(50):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if excludes(middle) else (middle, high)
    return high
