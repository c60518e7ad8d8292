"""Where along an axis the loss is lowest: how often the interval holds the place."""

from collections.abc import Iterator

import numpy as np

from reports.analysis.slopes import slope_weights
from tests.proof.batch import chunks, contrast_half
from tests.proof.row import AT_MOST, SIZES, Row

PLACE = 0.3  # of the lowest point, on the logarithmic scale of factors from one half to two
CURVATURES = {"well curved": 8.0, "hardly curved": 1.0}  # sd per squared unit
KIND = "lowest point along an axis"
FLAT = "no lowest point along an axis"


def grid_of(k: int) -> np.ndarray:
    """Places of k points."""
    return np.log(np.geomspace(0.5, 2.0, k))


def lowest_points(r: int) -> Iterator[Row]:
    """One arm at three or five points; an interval that is not resolved holds the place and is counted."""
    r = min(50 * r, AT_MOST // 2)
    for k in (3, 5):
        places = grid_of(k)
        last = np.ones(k)
        last[-1] = 2.0
        for n in SIZES:
            for noise, sd in (("equal", np.ones(k)), ("last point 2 x", last)):
                for words, curvature in CURVATURES.items():
                    found = []
                    for rng, size in chunks([30, k, n, len(words), len(noise)], r, k * n):
                        y = curvature * (places - PLACE) ** 2 + sd * rng.normal(size=(size, n, k))
                        found.append(held(y + rng.normal(size=(size, n, 1)), places))
                    covers, resolved = np.mean(found, axis=0)
                    yield Row(kind=f"{KIND}, {k} points, {words}", n=str(n), noise=noise, replications=r,
                              coverage=float(covers), unbounded=float(1 - resolved))  # fmt: skip


def held(y_RNK: np.ndarray, places: np.ndarray) -> tuple[float, float]:
    """(share of intervals that hold the place or are not resolved, share of those resolved)."""
    holds, resolved = each(y_RNK, places)
    return float((holds | ~resolved).mean()), float(resolved.mean())


def each(y_RNK: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(whether the slope at the place is not told apart from zero, whether there is an interval), (R,)."""
    means = y_RNK.mean(1)
    at, curves = (
        slope_weights(places, PLACE),
        slope_weights(places, 1.0) - slope_weights(places, 0.0),
    )
    curvature = means @ curves
    lowest = -(means @ slope_weights(places, 0.0)) / curvature
    resolved = curvature > contrast_half(y_RNK, curves, 0.05)
    resolved &= (lowest >= places[0]) & (lowest <= places[-1])
    return np.abs(means @ at) <= contrast_half(y_RNK, at, 0.05), resolved


def flat_axes(r: int) -> Iterator[Row]:
    """Losses that are the same at every point: how often a page says all the same where they are lowest."""
    r = min(50 * r, AT_MOST // 2)
    for k in (3, 5):
        last = np.ones(k)
        last[-1] = 2.0
        for n in SIZES:
            for noise, sd in (("equal", np.ones(k)), ("last point 2 x", last)):
                n_claims = 0
                for rng, size in chunks([31, k, n, len(noise)], r, k * n):
                    y = sd * rng.normal(size=(size, n, k)) + rng.normal(size=(size, n, 1))
                    n_claims += int(claims(y, grid_of(k)).sum())
                yield Row(kind=f"{FLAT}, {k} points", n=str(n), noise=noise, replications=r,
                          family_error=n_claims / r)  # fmt: skip


def claims(y_RNK: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Whether a place, an end or that there is none is told without a doubt, (R,)."""

    def sign(weights: np.ndarray) -> np.ndarray:
        value = y_RNK.mean(1) @ weights
        return np.sign(value) * (np.abs(value) > contrast_half(y_RNK, weights, 0.025))

    _, resolved = each(y_RNK, places)
    first, last = (sign(slope_weights(places, x)) for x in (places[0], places[-1]))
    curves = slope_weights(places, 1.0) - slope_weights(places, 0.0)
    return resolved | (first * last > 0) | (sign(curves) < 0)
