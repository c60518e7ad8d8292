"""The quadratic surface: a textbook's numbers, and its region held against what it is by definition."""

import dataclasses

import numpy as np
import pytest
from scipy import optimize, stats

from reports.stats.response_surface import df_of_own, slopes_at, surface_through
from tests.proof.surface import BEND, PLACE, batch_of, drawn_points

# Montgomery, Design and Analysis of Experiments (2001), example 11-1: yield of a process by time and temperature, coded
CODED = [(-1, -1), (1, -1), (-1, 1), (1, 1), *[(0, 0)] * 5, (1.414, 0), (-1.414, 0), (0, 1.414), (0, -1.414)]  # fmt: skip
YIELD = [76.5, 78.0, 77.0, 79.5, 79.9, 80.3, 80.0, 79.7, 79.8, 78.4, 75.6, 78.5, 77.0]


def test_a_textbooks_surface_has_its_stationary_point_and_its_residuals():
    places = np.array(CODED, float)
    surface = surface_through(-np.array([YIELD]), places)
    assert surface.at(surface.stationary) == pytest.approx([0.389, 0.306], abs=5e-4)
    of_scale = surface.coefficients / [1, 1.414, 1.414, 1.414**2, 1.414**2, 1.414**2]
    assert -of_scale == pytest.approx([79.94, 0.995, 0.515, -1.376, 0.25, -1.001], abs=5e-4)
    assert (surface.df.tolist(), surface.lack_of_fit) == ([7.0], None)
    se = np.sqrt(np.diag(surface.covariances[0])) / [1, 1.414, 1.414, 1.414**2, 1.414**2, 1.414**2]
    assert se[[0, 1, 3, 4]] == pytest.approx([0.119, 0.094, 0.101, 0.133], abs=6e-4)  # its table
    assert surface.is_bowl and surface.is_inside


def surface_of(n: int, *, p: int = 12, curvature: float = 4.0, seed: int = 0):
    z, rng = drawn_points(p), np.random.default_rng(seed)
    bowl = curvature * np.einsum("pk,kl,pl->p", z - PLACE, BEND, z - PLACE)
    y = bowl + rng.normal(size=(n, p)) + rng.normal(size=(n, 1))
    return surface_through(y, z), y, z


@pytest.mark.parametrize("n", [1, pytest.param(6, marks=pytest.mark.slow)])
def test_the_region_has_the_places_where_no_error_tells_both_slopes_apart_from_zero(n):
    surface, _, _ = surface_of(n, curvature=9.0)
    edge = surface.edge(0.05)
    ends = surface.ends(edge, 0.05)
    line = np.linspace(-1.2, 1.2, 481)
    places = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    inside = np.zeros(len(places), bool)
    rows = slopes_at(places)
    slopes = rows @ surface.coefficients
    for covariance, df in zip(surface.covariances, surface.df, strict=True):
        v = rows @ covariance @ rows.swapaxes(1, 2)
        squares = np.einsum("mk,mkl,ml->m", slopes, np.linalg.inv(v), slopes)
        inside |= squares <= 2 * stats.f.isf(0.05, 2, df)
    assert len(surface.df) == (1 if n == 1 else 13)
    found = places[inside]
    told = np.stack([found.min(axis=0), found.max(axis=0)], axis=1)
    assert told == pytest.approx(np.clip(ends, -1.2, 1.2), abs=0.006)
    assert (edge.min(axis=0) < surface.stationary).all()


def test_an_end_of_the_region_is_where_a_line_touches_it():
    surface, _, _ = surface_of(1, curvature=9.0)
    ends = surface.ends(surface.edge(0.05), 0.05)

    def told_apart(across, axis, end):
        rows = slopes_at(np.array([end, across] if axis == 0 else [across, end]))
        slopes = rows @ surface.coefficients
        return slopes @ np.linalg.solve(rows @ surface.covariances[0] @ rows.T, slopes)

    for axis, side in np.ndindex(2, 2):
        line = (axis, ends[axis, side])
        nearest = optimize.minimize_scalar(told_apart, bounds=(-1, 1), args=line, method="bounded")
        assert nearest.fun == pytest.approx(2 * stats.f.isf(0.05, 2, surface.df[0]), rel=1e-6)


def test_a_surface_moves_and_stretches_with_its_places():
    surface, y, z = surface_of(4)
    moved = surface_through(y, 3 * z + [10.0, -7.0])
    assert moved.coefficients == pytest.approx(surface.coefficients)
    there = 3 * surface.at(surface.stationary) + [10.0, -7.0]
    assert moved.at(moved.stationary) == pytest.approx(there)
    assert moved.is_inside and surface.is_inside


def test_lack_of_fit_is_the_f_test_of_two_models():
    _, y, z = surface_of(4)
    y = y + 3 * z[:, 0] ** 3
    n, p = y.shape
    block, point = np.repeat(np.eye(n), p, axis=0), np.tile(np.eye(p), (n, 1))
    terms = np.tile(np.stack([*z.T, *(z**2).T, z[:, 0] * z[:, 1]], axis=1), (n, 1))
    rss = []
    for columns in (np.c_[block, terms], np.c_[block, point]):
        beta = np.linalg.lstsq(columns, y.ravel())[0]
        rss.append(float(((y.ravel() - columns @ beta) ** 2).sum()))
    ratio = (rss[0] - rss[1]) / (p - 6) / (rss[1] / ((n - 1) * (p - 1)))
    expected = stats.f.sf(ratio, p - 6, (n - 1) * (p - 1))
    assert surface_through(y, z).lack_of_fit == pytest.approx(expected, rel=1e-9)
    assert 0 < expected < 0.05


def test_what_is_no_bowl_or_flat_has_no_region():
    z = drawn_points(12)
    noise = 0.1 * np.random.default_rng(0).normal(size=(4, 12))
    saddle = surface_through(z[:, 0] ** 2 - z[:, 1] ** 2 + noise, z)
    assert (saddle.is_bowl, saddle.edge(0.05), saddle.is_told_no_bowl(0.05)) == (False, None, True)
    slope = surface_through(3 * z[:, 0] - z[:, 1] + noise, z)
    assert [slope.slope_sign(axis, 0.05) for axis in (0, 1)] == [1, -1]
    ridge = surface_through(z[:, 0] ** 2 + noise, z)
    assert ridge.edge(0.05) is None and not ridge.is_told_no_bowl(0.05)
    flat = surface_through(noise, z)
    assert [flat.slope_sign(axis, 0.05) for axis in (0, 1)] == [0, 0]
    plane = dataclasses.replace(slope, coefficients=np.array([1.0, 3.0, -1.0, 0.0, 0.0, 0.0]))
    assert np.isnan(plane.stationary).tolist() == [True, True]


def test_losses_without_noise_are_judged_by_nothing():
    z = drawn_points(12)
    surface = surface_through(np.ones((3, 12)) * (z**2).sum(axis=1), z)
    assert surface.stationary == pytest.approx([0.0, 0.0], abs=1e-9)
    assert surface.edge(0.05) is None and surface.slope_sign(0, 0.05) == 0


def test_too_few_points_or_points_on_a_conic_have_no_surface():
    z, y = drawn_points(8), np.random.default_rng(0).normal(size=(3, 8))
    assert surface_through(y[:, :5], z[:5]) is None
    angles = np.arange(8)
    on_circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert surface_through(y, on_circle) is None
    assert surface_through(y, z * [1, 0]) is None
    assert surface_through(y[:0], z) is None
    assert surface_through(y, z) is not None


@pytest.mark.parametrize("n", [3, 6])
def test_the_studys_batch_is_the_production_surface(n):
    z, rng = drawn_points(8), np.random.default_rng(n)
    bowl = 4 * np.einsum("pk,kl,pl->p", z - PLACE, BEND, z - PLACE)
    shapes = (
        bowl,
        bowl,
        3 * bowl,
        0 * bowl,
        -bowl,
        9 * z[:, 0],
        bowl + 20 * z[:, 0] ** 3,
        9 * z[:, 1],
    )
    y = np.array([shape + 0.6 * rng.normal(size=(n, 8)) for shape in shapes])
    batch = batch_of(y, z)
    at_place = slopes_at(PLACE)[None]
    kinds = set()
    for r, losses in enumerate(y):
        surface = surface_through(losses, z)
        assert surface.lack_of_fit == pytest.approx(batch.lack_of_fit[r])
        fits = surface.lack_of_fit >= 0.05
        edge = surface.edge(0.05) if fits and surface.is_inside else None
        assert (edge is not None) == batch.resolved[r]
        beyond = any(surface.slope_sign(axis, 0.025) for axis in (0, 1))
        claims = not (surface.is_bowl and surface.is_inside) and (
            beyond or surface.is_told_no_bowl(0.025)
        )
        assert (edge is not None or (fits and claims)) == batch.claims[r]
        kinds.add((edge is not None, bool(batch.claims[r])))
        if edge is not None:
            out = PLACE - surface.stationary
            towards = (edge - surface.stationary) @ out / (out @ out)
            across = (edge - surface.stationary) @ [out[1], -out[0]]
            nearest = np.abs(across) / np.linalg.norm(out)
            ahead = np.where(towards > 0, nearest, np.inf).argmin()
            if abs(towards[ahead] - 1) > 0.05:
                assert (towards[ahead] < 1) == batch.told(at_place)[r, 0]
    assert kinds == {(True, True), (False, True), (False, False)}


def test_an_error_of_a_points_own_has_degrees_of_freedom_by_the_blocks_beyond_the_first() -> None:
    for p in (9, 17):
        one = df_of_own(2, p)
        assert 0 < one <= p - 1
        assert [df_of_own(n, p) for n in (1, 4, 9)] == pytest.approx([0, 3 * one, 8 * one])
