"""The slope of a quadratic through points along an axis, and where it is zero (Fieller 1954)."""

import math
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from reports.analysis.judges import Share, contrast_of
from reports.stats.simultaneous import Array

Ends = tuple[float, float]


def slope_weights(places: Array, x: float) -> Array:
    """Weights (k,) of the points whose sum is the slope at x of the quadratic through them."""
    centre = float(places.mean())
    basis = np.stack([np.ones(len(places)), places - centre, (places - centre) ** 2], axis=1)
    of_mean = np.linalg.pinv(basis)  # (3, k)
    weights: Array = of_mean[1] + 2 * (x - centre) * of_mean[2]
    return weights


@dataclass(frozen=True, kw_only=True)
class Slopes:
    """The slopes of the quadratic through losses (n, k, others) in complete blocks."""

    losses: Array
    places: Array  # (k,)
    alpha: float
    anytime: bool = False

    def at(self, x: float) -> Share:
        return self._judged(slope_weights(self.places, x))

    @property
    def curvature(self) -> Share:
        """What a slope grows by over one unit of the scale."""
        return self._judged(slope_weights(self.places, 1.0) - slope_weights(self.places, 0.0))

    def _judged(self, weights: Array) -> Share:
        n, k, others = self.losses.shape
        y = self.losses.reshape(n, k * others)
        of_points = np.repeat(weights / others, others)
        return contrast_of(y, of_points, self.alpha, anytime=self.anytime)


def sign_of(share: Share) -> int:
    """Where it is told apart from zero, else 0."""
    if share.low is None or share.high is None:
        return 0
    return (share.low > 0) - (share.high < 0)


def lowest(slopes: Slopes) -> tuple[float | None, Ends | None]:
    """(the place of the lowest point, the interval's ends inside the points' range).

    None where the quadratic has no lowest point; no ends where its curvature is not told apart from
    zero, or that place is beyond the points; an end beyond them is infinite."""
    first, last = float(slopes.places.min()), float(slopes.places.max())
    before, behind = slopes.at(first).value, slopes.at(last).value
    if not behind > before:
        return None, None
    place = first - before * (last - first) / (behind - before)
    if sign_of(slopes.curvature) <= 0 or not first <= place <= last:
        return place, None

    def beyond(x: float) -> float:
        """Above zero where the slope is told apart from zero."""
        slope = slopes.at(x)
        if slope.low is None or slope.high is None:
            return -math.inf
        return max(slope.low, -slope.high)

    ends = [-math.inf, math.inf]
    for side, end in enumerate((first, last)):
        if beyond(end) > 0:
            ends[side] = float(optimize.brentq(beyond, place, end, xtol=1e-14, rtol=1e-14))
    return place, (ends[0], ends[1])
