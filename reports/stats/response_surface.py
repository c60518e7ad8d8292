"""A quadratic surface over two coordinates: its lowest point, and the region where that lies.

Least squares over runs in complete blocks, which are effects of their own. The region (Box and
Hunter 1954) has all places at which both slopes together are not told apart from zero:
g' V^-1 g <= 2 F(2, df), g the slopes there and V their covariance. It is bounded where that holds
in no direction without end. As in the two-way model (two_way.py) the larger error counts: one
variance for all runs, that of the residuals, or a variance of its own for any point, here with at
most POINT_DF (n - 1) df; told apart is what all errors tell. Lack of fit: the squares of the
points' means about the surface against those of the runs about points and blocks. Coordinates z run
from -1 to 1 over the points. Arrays: n blocks, p points, e errors, m directions.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import stats

from reports.stats.simultaneous import Array
from reports.stats.two_way import noisy_share, split_variances

N_TERMS = 6  # 1, z1, z2, z1^2, z1 z2, z2^2
POINT_DF = 6  # times n - 1: with more, one point of twice the sd breaks the rows of the study
N_DIRECTIONS = 360  # in which the region's edge is sought
N_FINER = 81  # directions about the one that reaches farthest
NO_NOISE = 1e-24  # of the losses' squares: residuals below it are no noise
WITHOUT_END = 1e9  # stands for an edge without end
REAL = 1e-9  # a root's imaginary part, of the root
CORNERS = np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])


def terms_at(z: Array) -> Array:
    """The terms (p, 6) of a quadratic at places (p, 2)."""
    a, b = z[:, 0], z[:, 1]
    return np.stack([np.ones(len(z)), a, b, a * a, a * b, b * b], axis=1)


def slopes_at(z: Array) -> Array:
    """Rows (..., 2, 6) whose products with the coefficients are the slopes at places (..., 2)."""
    rows = np.zeros((*z.shape[:-1], 2, N_TERMS))
    rows[..., 0, 1] = rows[..., 1, 2] = 1.0
    rows[..., 0, 3], rows[..., 0, 4] = 2 * z[..., 0], z[..., 1]
    rows[..., 1, 5], rows[..., 1, 4] = 2 * z[..., 1], z[..., 0]
    return rows


SAME_ROWS = slopes_at(np.zeros(2))  # the part of the rows that is the same everywhere


def directions(n: int) -> Array:
    """Unit vectors (n, 2) all round."""
    angles = np.arange(n) * 2 * np.pi / n
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def bends_along(u: Array) -> Array:
    """Rows (m, 6) whose products with the coefficients are half the bends along unit vectors."""
    rows = np.zeros((len(u), N_TERMS))
    rows[:, 3:] = np.stack([u[:, 0] ** 2, u[:, 0] * u[:, 1], u[:, 1] ** 2], axis=1)
    return rows


@dataclass(frozen=True, kw_only=True)
class Surface:
    """A quadratic through losses at points of two axes."""

    middle: Array  # (2,) of the points' range
    reach: Array  # (2,) half of it: a place is middle + reach * z
    coefficients: Array  # (6,)
    covariances: Array  # (e, 6, 6) of the coefficients; none where the residuals tell no noise
    df: Array  # (e,)
    lack_of_fit: float | None  # its p; None where no point has two runs, or none is left over
    n_points: int

    @cached_property
    def bend(self) -> Array:
        """The second derivatives (2, 2) in z."""
        _, _, _, aa, ab, bb = self.coefficients
        return np.array([[2 * aa, ab], [ab, 2 * bb]])

    @cached_property
    def stationary(self) -> Array:
        """Where both slopes are zero, (2,) in z; nan of a surface that is bent along no line."""
        if not abs(np.linalg.det(self.bend)) > 0:
            return np.full(2, math.nan)
        return np.asarray(np.linalg.solve(self.bend, -self.coefficients[1:3]), float)

    @property
    def is_bowl(self) -> bool:
        """Whether its stationary point is its lowest, as fitted."""
        return bool(np.linalg.eigvalsh(self.bend)[0] > 0)

    @property
    def is_inside(self) -> bool:
        """Whether the stationary point is within the range of the points."""
        return bool((np.abs(self.stationary) <= 1).all())

    def at(self, z: Array) -> Array:
        """Places (..., 2) on the scale of the axes."""
        places: Array = self.middle + self.reach * z
        return places

    def slope_sign(self, axis: int, alpha: float) -> int:
        """The sign of the slope along an axis (0 or 1) where it is told all over the range.

        A slope is linear, so that its sign at the four corners is its sign between them. Both axes
        together err at most at alpha.
        """
        rows = slopes_at(CORNERS)[:, axis]
        return int(self._signs(rows, stats.t.isf(alpha / 4, self.df)).sum() / 4)

    def is_told_no_bowl(self, alpha: float) -> bool:
        """Whether it is told to bend downwards along some line, of all lines at once (Scheffe)."""
        rows = bends_along(directions(N_DIRECTIONS))
        return bool((self._signs(rows, np.sqrt(3 * stats.f.isf(alpha, 3, self.df))) < 0).any())

    def _signs(self, rows: Array, critical: Array) -> Array:
        """Of rows (m, 6) times the coefficients, where told apart from zero; critical: (e,)."""
        se = np.sqrt(np.einsum("mi,eij,mj->em", rows, self.covariances, rows))
        half = (critical[:, None] * se).max(axis=0, initial=0.0 if len(se) else np.inf)
        value = rows @ self.coefficients
        signs: Array = np.sign(value) * (np.abs(value) > half)
        return signs

    def edge(self, alpha: float) -> Array | None:
        """The edge (m, 2) in z of the region of the lowest point; None where it is not bounded."""
        if not len(self.df) or not self.is_bowl:
            return None
        edge = self._edge_along(directions(N_DIRECTIONS), alpha)
        return edge if np.abs(edge).max() < WITHOUT_END / 2 else None

    def ends(self, edge: Array, alpha: float) -> Array:
        """Between which values of each axis the region lies, (axis, low and high) in z.

        An end beyond the points is infinite. edge: the region's, of the same alpha.
        """
        ends = np.empty((2, 2))
        step = 2 * np.pi / len(edge)
        for axis, side in np.ndindex(2, 2):
            sign = 2 * side - 1
            angle = step * int((sign * edge[:, axis]).argmax())
            angles = np.linspace(angle - step, angle + step, N_FINER)
            finer = self._edge_along(np.stack([np.cos(angles), np.sin(angles)], axis=1), alpha)
            ends[axis, side] = sign * (sign * finer[:, axis]).max()
        return np.where(np.abs(ends) > 1, np.copysign(np.inf, ends), ends)

    def _edge_along(self, u: Array, alpha: float) -> Array:
        """The region's edge along directions (m, 2) from the stationary point."""
        here, more = slopes_at(self.stationary), slopes_at(u) - SAME_ROWS
        radii = np.zeros(len(u))
        for c, df in zip(self.covariances, self.df, strict=True):
            still = np.broadcast_to(here @ c @ here.T, (len(u), 2, 2))
            turned = here @ c @ more.swapaxes(1, 2)
            v = np.stack([still, turned + turned.swapaxes(1, 2), more @ c @ more.swapaxes(1, 2)])
            bound = 2 * float(stats.f.isf(alpha, 2, df))
            radii = np.maximum(radii, _last_roots(v, u @ self.bend, bound))
        edge: Array = self.stationary + np.minimum(radii, WITHOUT_END)[:, None] * u
        return edge


def _last_roots(v: Array, slopes: Array, bound: float) -> Array:
    """The radii (m,) beyond which slopes are told apart from zero; infinite where there is none.

    v: their covariance, by powers (3, m, 2, 2) of the radius; slopes: (m, 2) at a radius of 1.
    """
    a, b, c = v[..., 0, 0], v[..., 0, 1], v[..., 1, 1]
    g, h = slopes.T
    told = bound * (_product(b, b) - _product(a, c))  # with the next line above zero where told
    told[2:] += g * g * c - 2 * g * h * b + h * h * a
    radii, is_bounded = np.full(len(slopes), np.inf), told[4] > 0
    companion = np.zeros((int(is_bounded.sum()), 4, 4))
    companion[:, 1:, :3] = np.eye(3)
    companion[:, :, 3] = -(told[:4, is_bounded] / told[4, is_bounded]).T
    roots = np.linalg.eigvals(companion)
    real = np.where(np.abs(roots.imag) <= REAL * np.abs(roots), roots.real, -np.inf)
    radii[is_bounded] = real.max(axis=1)
    return radii


def _product(a: Array, b: Array) -> Array:
    """Of two polynomials by their coefficients, (power, m) each."""
    product = np.zeros((len(a) + len(b) - 1, a.shape[1]))
    for power, of_power in enumerate(a):
        product[power : power + len(b)] += of_power * b
    return product


def surface_through(losses: Array, places: Array) -> Surface | None:
    """The surface of losses (n, p) in complete blocks at places (p, 2).

    None where the places are too few for its coefficients, or lie on one conic.
    """
    n, p = losses.shape
    if p < N_TERMS or not n or not (np.ptp(places, axis=0) > 0).all():
        return None
    low, high = places.min(axis=0), places.max(axis=0)
    middle, reach = (low + high) / 2, (high - low) / 2
    x = terms_at((places - middle) / reach)
    if np.linalg.matrix_rank(x) < N_TERMS:
        return None
    of_points = losses.mean(axis=0)
    unscaled = np.linalg.inv(x.T @ x)
    coefficients = unscaled @ x.T @ of_points
    misfit = n * float(((of_points - x @ coefficients) ** 2).sum())
    left = losses - of_points - losses.mean(axis=1, keepdims=True) + losses.mean()
    noise, rounding = float((left**2).sum()), NO_NOISE * n * p * float((losses**2).max())
    df_misfit, df_noise, lack_of_fit = p - N_TERMS, (n - 1) * (p - 1), None
    if df_misfit and noise > rounding:
        ratio = misfit / df_misfit / (noise / df_noise)
        lack_of_fit = float(stats.f.sf(ratio, df_misfit, df_noise))
    variances, df = np.empty((0, p)), np.empty(0)
    if misfit + noise > rounding and df_misfit + df_noise:
        variances = np.full((1, p), (misfit + noise) / (df_misfit + df_noise))
        df = np.array([float(df_misfit + df_noise)])
    if n > 1 and len(df):
        variances = np.concatenate([variances, own_variances((left**2).sum(axis=0), n)])
        df = np.append(df, np.full(p, df_of_own(n, p)))
    of_means = unscaled @ x.T  # (6, p)
    return Surface(
        middle=middle,
        reach=reach,
        coefficients=coefficients,
        covariances=np.einsum("tp,ep,sp->ets", of_means, variances / n, of_means),
        df=df,
        lack_of_fit=lack_of_fit,
        n_points=p,
    )


def own_variances(rss: Array, n: int) -> Array:
    """(p, p): in row a those of all points where point a has its own and the others share one.

    rss: (p,) squares of the points' residuals about points and blocks.
    """
    p = len(rss)
    _, of_own, others = split_variances(rss[None], rss.sum()[None], n, p)
    variances = np.repeat(np.maximum(others[0], 0.0)[:, None], p, axis=1)
    np.fill_diagonal(variances, np.maximum(of_own[0], 0.0))
    return variances


def df_of_own(n: int, p: int) -> float:
    """The df of an error in which one point has a variance of its own."""
    return (n - 1) * min(POINT_DF, (p - 1) * noisy_share(p))
