"""Where the loss is lowest among points drawn along two axes: how often region and intervals hold that place."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats
from scipy.stats import qmc

from reports.analysis.optimum import MISFIT
from reports.stats.response_surface import (
    CORNERS,
    N_TERMS,
    SAME_ROWS,
    bends_along,
    df_of_own,
    directions,
    slopes_at,
    terms_at,
)
from reports.stats.two_way import split_variances
from tests.proof.batch import chunks
from tests.proof.row import AT_MOST, BEYOND_CONDITION, SIZES, Row

PLACE = np.array([0.3, -0.2])  # of the lowest point, where the points' range is -1 to 1
BEND = np.array([[1.0, 0.4], [0.4, 0.7]])  # sd per squared unit, times a curvature
CURVATURES = {"well curved": 4.0, "hardly curved": 0.7}
KIND = "lowest point of two drawn axes"
NONE = "no lowest point of two drawn axes"
FIT = "lack of fit of a drawn surface"
ALPHA = 0.05
LINE = np.linspace(-12, 12, 1201)  # values of the other axis, of which one must be in the region


def drawn_points(p: int) -> np.ndarray:
    """Places (p, 2) of Sobol's sequence, as far as they reach from -1 to 1."""
    x = qmc.Sobol(2, seed=0).random(16)[:p]
    low, high = x.min(0), x.max(0)
    return (2 * x - low - high) / (high - low)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Surfaces of R experiments in n blocks at the same p points."""

    coefficients: np.ndarray  # (R, 6)
    of_means: np.ndarray  # (6, p) coefficients of the points' means
    variances: np.ndarray  # (R, e, p) of those means, by every error
    df: np.ndarray  # (e,)
    lack_of_fit: np.ndarray  # (R,) p

    def told(self, rows: np.ndarray, alpha: float = ALPHA) -> np.ndarray:
        """Whether both slopes are told apart from zero by rows (m, 2, 6), by every error, (R, m)."""
        slopes = np.einsum("mkt,rt->rmk", rows, self.coefficients)
        g, h = slopes[..., 0], slopes[..., 1]
        of_points = rows @ self.of_means  # (m, 2, p)
        products = np.stack(
            [of_points[:, i] * of_points[:, j] for i, j in ((0, 0), (0, 1), (1, 1))]
        )
        told = np.ones(g.shape, bool)
        for e, df in enumerate(self.df):
            a, b, c = np.einsum("ump,rp->urm", products, self.variances[:, e])
            form, size = g * g * c - 2 * g * h * b + h * h * a, a * c - b * b
            told &= form > 2 * stats.f.isf(alpha, 2, df) * size
        return told

    def part(self, which: np.ndarray) -> "Batch":
        """Of some of the experiments."""
        kept = {
            name: getattr(self, name)[which]
            for name in ("coefficients", "variances", "lack_of_fit")
        }
        return replace(self, **kept)

    @property
    def bowls(self) -> np.ndarray:
        """Whether the lowest point is among the points, (R,)."""
        _, _, _, aa, ab, bb = self.coefficients.T
        bend = np.stack([2 * aa, ab, ab, 2 * bb], axis=1).reshape(-1, 2, 2)
        place = np.linalg.solve(bend, -self.coefficients[:, 1:3, None])[:, :, 0]
        return (np.linalg.det(bend) > 0) & (aa > 0) & (np.abs(place) <= 1).all(1)

    @property
    def resolved(self) -> np.ndarray:
        """Whether there is a region, (R,)."""
        resolved = self.bowls & (self.lack_of_fit >= MISFIT)
        rows = (
            slopes_at(directions(180)[:90]) - SAME_ROWS
        )  # a slope far away is told there as on the other side
        resolved[resolved] = self.part(resolved).told(rows).all(1)
        return resolved

    def sign(self, rows: np.ndarray, critical: np.ndarray) -> np.ndarray:
        """Of contrasts (m, 6) of the coefficients where they are told apart from zero, (R, m)."""
        se = np.sqrt(np.einsum("mp,rep->rem", (rows @ self.of_means) ** 2, self.variances))
        value = self.coefficients @ rows.T
        return np.sign(value) * (np.abs(value) > (critical[:, None] * se).max(1))

    @property
    def claims(self) -> np.ndarray:
        """Whether a place, an end or that there is none is told without a doubt, (R,)."""
        beyond = np.zeros(len(self.coefficients), bool)
        for axis in (0, 1):
            signs = self.sign(slopes_at(CORNERS)[:, axis], stats.t.isf(ALPHA / 8, self.df))
            beyond |= np.abs(signs.sum(1)) == 4
        scheffe = np.sqrt(3 * stats.f.isf(ALPHA / 2, 3, self.df))
        hill = (self.sign(bends_along(directions(180)[:90]), scheffe) < 0).any(1)
        fits = self.lack_of_fit >= MISFIT
        return self.resolved | (fits & ~self.bowls & (beyond | hill))


def batch_of(y: np.ndarray, z: np.ndarray) -> Batch:
    """Surfaces through y (R, n, p) at places z (p, 2)."""
    _, n, p = y.shape
    x = terms_at(z)
    unscaled = np.linalg.inv(x.T @ x)
    means = y.mean(1)
    coefficients = means @ x @ unscaled
    misfit = n * ((means - coefficients @ x.T) ** 2).sum(1)
    left = y - means[:, None] - y.mean(2, keepdims=True) + y.mean((1, 2), keepdims=True)
    noise, df_noise, df_misfit = (left**2).sum((1, 2)), (n - 1) * (p - 1), p - N_TERMS
    ratio = misfit / df_misfit / (noise / df_noise)
    df, rss = df_noise + df_misfit, (left**2).sum(1)
    _, own, others = split_variances(rss, rss.sum(1), n, p)
    variances = np.repeat(np.maximum(others, 0)[:, :, None], p, axis=2)
    variances[:, np.arange(p), np.arange(p)] = np.maximum(own, 0)
    one = np.broadcast_to(((misfit + noise) / df)[:, None, None], (len(y), 1, p))
    return Batch(
        coefficients=coefficients,
        of_means=unscaled @ x.T,
        variances=np.concatenate([one, variances], axis=1) / n,
        df=np.array([df, *[df_of_own(n, p)] * p]),
        lack_of_fit=stats.f.sf(ratio, df_misfit, df_noise),
    )


def noises(z: np.ndarray) -> dict[str, np.ndarray]:
    """Standard deviations (p,): the same, or twice of the point that is farthest out."""
    outer = np.ones(len(z))
    outer[np.abs(z).sum(1).argmax()] = 2.0
    return {"equal": np.ones(len(z)), "outermost point 2 x": outer}


def drawn_surfaces(r: int) -> Iterator[Row]:
    """One arm at 8 or 16 points; a region that is not told holds the place and is counted."""
    for p in (8, 16):
        z = drawn_points(p)
        for n in SIZES:
            for noise, sd in noises(z).items():
                for words, curvature in CURVATURES.items():
                    from_place = z - PLACE
                    bowl = curvature * np.einsum("pk,kl,pl->p", from_place, BEND, from_place)
                    parts = []
                    for rng, size in chunks([63, p, n, len(noise), len(words)], r, 60 * p * n):
                        y = (
                            bowl
                            + sd * rng.normal(size=(size, n, p))
                            + rng.normal(size=(size, n, 1))
                        )
                        parts.append((size, *shares_held(batch_of(y, z))))
                    sizes, *columns = zip(*parts, strict=True)
                    each, region, unbounded = (np.average(c, weights=sizes) for c in columns)
                    yield Row(kind=f"{KIND}, {p} points, {words}", n=str(n), noise=noise, replications=r,
                              coverage=float(each), simultaneous=float(region), unbounded=float(unbounded))  # fmt: skip


def shares_held(batch: Batch) -> tuple[float, float, float]:
    """(of intervals, of the axis that holds its place less often; of regions; of those not told)."""
    resolved = batch.resolved
    missed = resolved & batch.told(slopes_at(PLACE)[None])[:, 0]
    each = []
    for axis in (0, 1):
        line = np.tile(PLACE, (len(LINE), 1))
        line[:, 1 - axis] = LINE
        each.append(float(batch.part(missed).told(slopes_at(line)).all(1).sum()) / len(missed))
    return 1 - max(each), float(1 - missed.mean()), float(1 - resolved.mean())


def flat_surfaces(r: int) -> Iterator[Row]:
    """Losses that are the same at every point: how often a page says all the same where they are lowest, or nowhere."""
    r = min(2 * r, AT_MOST)
    for p in (8, 16):
        z = drawn_points(p)
        for n in SIZES:
            for noise, sd in noises(z).items():
                claimed = []
                for rng, size in chunks([64, p, n, len(noise)], r, 40 * p * n):
                    y = sd * rng.normal(size=(size, n, p)) + rng.normal(size=(size, n, 1))
                    claimed.append((size, batch_of(y, z).claims.sum()))
                yield Row(kind=f"{NONE}, {p} points", n=str(n), noise=noise, replications=r,
                          family_error=float(sum(c for _, c in claimed)) / r)  # fmt: skip


def lacks_of_fit(r: int) -> Iterator[Row]:
    """A quadratic that is one, told not to fit; beyond the condition the point that the others say most of is noisier."""
    z = drawn_points(8)
    innermost = np.ones(len(z))
    innermost[np.abs(z).sum(1).argmin()] = 2.0
    beyond = f"innermost point 2 x: {BEYOND_CONDITION}"
    for n in SIZES:
        for noise, sd, times in (("equal", np.ones(len(z)), 100), (beyond, innermost, 5)):
            n_told, total = 0, min(times * r, 1_000_000)
            for rng, size in chunks([65, n, len(noise)], total, len(z) * n):
                batch = batch_of(sd * rng.normal(size=(size, n, len(z))), z)
                n_told += int((batch.lack_of_fit < MISFIT).sum())
            yield Row(kind=f"{FIT}, 8 points", n=str(n), noise=noise, replications=total,
                      family_error=n_told / total)  # fmt: skip
