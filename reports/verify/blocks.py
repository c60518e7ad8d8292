"""The second path for complete blocks.

Their errors from formulas, the coverage of an interval by integration at the printed width.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from scipy import special, stats

from reports.verify.page import Embedded, Printed
from reports.verify.table import ALPHA, WITHIN, Table, agree_p, on_scale, reach


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A standard error of a difference and its degrees of freedom."""

    se: float
    df: float


def check_blocks(
    table: Table,
    here: Sequence[str],
    printed: Mapping[str, Mapping[str, Printed]],
    m: float,
    prior: Embedded | None = None,
) -> Iterator[str]:
    """Complete blocks.

    The errors by their formulas, the printed half width must have the level at the largest one.
    m: arms of the family, of which those here spend their share of the error.
    prior: the noise that the plan declares beforehand, of these values.
    printed: what the page shows of each arm.
    """
    if not here:
        return
    share = m / len(here)
    shared = table.blocks[table.baseline]
    values = []
    for arm in (table.baseline, *here):
        values.append([table.blocks[arm][block] for block in shared])
    y = np.array(values)
    residuals = y - y.mean(0) - y.mean(1, keepdims=True) + y.mean()
    if float((residuals**2).sum()) < 1e-20:
        return
    variances = variances_of_arms(residuals)
    differences = y[1:].mean(1) - y[0].mean()
    for arm, difference, variance in zip(here, differences, variances[1:], strict=True):
        errors = errors_of(residuals, max(variances[0], variance))
        if prior is not None:
            errors = [averaged(error, prior, len(shared)) for error in errors]
        ends: tuple[float | None, ...] = (None, None)
        part = printed[arm].get(f"{table.metric}.interval")
        if part is not None:
            ends = part.values
        for end, sign in zip(ends, (-1, 1)):
            outwards = [(at - difference) * sign for at in places(end, difference, table.metric)]
            wrong = wrong_rate(outwards, errors, len(here), ALPHA / share)
            if wrong is not None:
                rate = f"{wrong:.4f} for all arms at once, not {ALPHA / share:g}"
                yield f"arm {arm!r}: {table.metric}.interval has the error rate {rate}"
                break
        p = min(1.0, share * rate_beyond(abs(difference), errors, len(here)))
        yield from agree_p(printed[arm], table.metric, p, arm)


def variances_of_arms(residuals: np.ndarray[Any, Any]) -> list[float]:
    """Every arm's own variance from its residuals; zeros where but one stands beside the baseline.

    residuals: of arm + block, arms in rows.
    """
    k, n = residuals.shape
    m = k - 1
    if m <= 1:
        return [0.0] * k
    # Expected squares: rows one arm, the others.
    expected = (n - 1) / k**2 * np.array([[m**2, m], [m, m * (m**2 + m - 1)]])
    squares = (residuals**2).sum(1)
    variances = []
    for square in squares:
        variances.append(float(np.linalg.solve(expected, [square, squares.sum() - square]).sum()))
    return variances


def errors_of(residuals: np.ndarray[Any, Any], variance: float) -> list[Spread]:
    """The errors of which the largest serves: all arms' together, and one from the arms' own.

    variance: the larger of the arm's own and the baseline's.
    """
    k, n = residuals.shape
    pooled = math.sqrt(2 * float((residuals**2).sum()) / ((n - 1) * (k - 1)) / n)
    errors = [Spread(se=pooled, df=(n - 1.0) * (k - 1))]
    if variance > 0:
        errors.append(Spread(se=math.sqrt(variance / n), df=4.0 * (n - 1) * (k - 1) / (k + 2)))
    return errors


def averaged(error: Spread, prior: Embedded, n: int) -> Spread:
    """With the prior's variance of a difference over n blocks, weighted by degrees of freedom."""
    df = error.df + prior["df"]
    square = error.df * error.se**2 + prior["df"] * 2 * prior["sd"] ** 2 / n
    return Spread(se=math.sqrt(square / df), df=df)


def places(end: float | None, difference: float, metric: str) -> tuple[float, ...]:
    """Where a printed end may stand, itself first; a missing end stands at the estimate."""
    if end is None:
        return (difference,)
    return (on_scale(end, metric), *reach(end, metric))


def wrong_rate(
    distances: Sequence[float], errors: Sequence[Spread], m: float, alpha: float
) -> float | None:
    """The error rate of the first of these ends; None where alpha lies among their rates.

    distances: from the estimate outwards, of the places where one printed end may stand.
    """
    rates: list[float] = []
    for distance in distances:
        rates.append(rate_beyond(distance, errors, m))
        if min(rates) - WITHIN <= alpha <= max(rates) + WITHIN:
            return None
    return rates[0]


def rate_beyond(distance: float, errors: Sequence[Spread], m: float) -> float:
    """The error rate of an end so far from the estimate: the largest that an error gives it."""
    return max(beyond(distance / error.se, m, error.df) for error in errors)


@lru_cache(maxsize=4096)
def beyond(c: float, m: float, df: float) -> float:
    """P(max |T| > c) of m contrasts with one baseline in complete blocks, by a grid.

    Their correlation is 1/2. Of the normal that they share the grid has the positive half: what is
    summed is even in it.
    """
    if m == 1:  # Student's t; with one df its tail is too long for the grid
        return float(2 * stats.t.sf(abs(c), df))
    z = np.linspace(0.1, 8.5, 43)[:, None]
    s, weight = spread_of(df)
    apart = math.sqrt(2.0) * c * s
    inside = (special.ndtr(z + apart) - special.ndtr(z - apart)) ** m
    phi = np.exp(-(z[:, 0] ** 2) / 2)
    return float(1.0 - (phi / phi.sum()) @ inside @ (weight / weight.sum()))


@cache
def spread_of(df: float) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A grid of the ratio of a pooled sd to the true one, and the density of each."""
    low = float(stats.chi.ppf(1e-9, df)) / math.sqrt(df)
    high = float(stats.chi.ppf(1 - 1e-9, df)) / math.sqrt(df)
    s = np.linspace(low, high, 301)
    return s, stats.chi.pdf(s * math.sqrt(df), df)
