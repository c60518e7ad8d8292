"""Estimates with their errors, and Fieller's interval for a ratio."""

import math
from dataclasses import dataclass

from scipy import special, stats

Interval = tuple[float, float]
ALPHA, LEAST_DF = 0.05, 2


def t_quantile(alpha: float, df: float) -> float:
    """c with P(|T| > c) = alpha for Student's t; df inf is the normal distribution.

    scipy.stats' own, without what it spends on arrays of parameters."""
    if math.isfinite(df):
        return float(-special.stdtrit(df, alpha / 2))
    return float(-special.ndtri(alpha / 2))


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value with its standard error; df inf where the error is known."""

    value: float
    se: float
    df: float = math.inf

    def interval(self, alpha: float) -> Interval:
        """Two-sided, at level 1 - alpha."""
        half = t_quantile(alpha, self.df) * self.se
        return self.value - half, self.value + half

    @property
    def p(self) -> float:
        """Two-sided, against zero; below alpha exactly when interval(alpha) leaves zero."""
        if self.se > 0:
            return float(2 * stats.t.sf(abs(self.value) / self.se, self.df))
        return float(self.value == 0)


def total(*parts: Estimate) -> Estimate:
    """Sum of independent estimates, df by Satterthwaite (1946).

    Beside an error of fewer than LEAST_DF his are too many: then those with which the interval at
    ALPHA is Banerjee's (1961), whose parts' half widths add in squares."""
    variance = sum(e.se**2 for e in parts)
    shares = sum(e.se**4 / e.df for e in parts)
    df = least = min(e.df for e in parts)
    if shares > 0:
        df = variance**2 / shares
    if shares > 0 and least < LEAST_DF:
        squares = sum((t_quantile(ALPHA, e.df) * e.se) ** 2 for e in parts)
        df = float(special.stdtridf(1 - ALPHA / 2, math.sqrt(squares / variance)))
    return Estimate(value=sum(e.value for e in parts), se=math.sqrt(variance), df=df)


def fieller(
    u: float, v: float, var_u: float, var_v: float, cov_uv: float, t: float
) -> Interval | None:
    """{r: (u - r v)^2 <= t^2 var(u - r v)}, the exact set for u / v (Fieller 1954).

    None where it is unbounded: v is not resolved from zero.
    var_u, var_v, cov_uv: of the estimates u and v. t: the quantile.
    """
    a = v * v - t * t * var_v
    b = u * v - t * t * cov_uv
    c = u * u - t * t * var_u
    if a <= 0:
        return None
    # u / v itself is in the set, so below zero is rounding
    root = math.sqrt(max(b * b - a * c, 0.0))
    return float((b - root) / a), float((b + root) / a)
