"""The second path's own formulas, held against the first path's and against numbers by hand."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

from reports.inputs.noise import benchmark_noise
from reports.stats.sequential import t_mixture
from reports.stats.simultaneous import max_t_cdf
from reports.verify.beside import Beside, check_words
from reports.verify.blocks import Spread, averaged, beyond
from reports.verify.increments import planned_pairs
from reports.verify.markup import otherwise
from reports.verify.nodes import across_nodes
from reports.verify.optimum import check_signs, is_too_close, point_effects
from reports.verify.page import Page
from reports.verify.separate import Difference
from reports.verify.sequences import Martingale
from reports.verify.surface import check_surfaces, fitted_bowls


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("skewed", [True, False])
def test_the_martingale_of_differences_is_where_the_first_path_ends(
    seed: int, skewed: bool
) -> None:
    rng = np.random.default_rng(seed)
    d = rng.exponential(1.0, 30) - 0.4 if skewed else rng.normal(0.6, 1.0, 30)
    martingale = Martingale(differences=list(map(float, d)))
    low, high, p = t_mixture(d, 0.05)
    for end in (low, high):
        assert martingale.log_at(end) == pytest.approx(math.log(20), abs=1e-6)
    assert math.exp(-max(martingale.log_at(0.0), 0.0)) == pytest.approx(p, rel=1e-6)
    assert martingale.log_at(float(d.mean())) < 0 < martingale.log_at(high + 1.0)


@pytest.mark.parametrize("df", [2.0, 8.0, 40.0])
@pytest.mark.parametrize("m", [1, 2, 5])
def test_the_tail_of_several_contrasts_with_one_baseline(m: int, df: float) -> None:
    corr = np.full((m, m), 0.5) + 0.5 * np.eye(m)
    for c in (1.0, 2.5, 4.0):
        assert beyond(c, m, df) == pytest.approx(1 - max_t_cdf(c, corr, df), abs=2e-4)


def test_an_error_with_a_prior_is_weighted_by_degrees_of_freedom() -> None:
    """By hand: (4 * 0.09 + 12 * 2 * 0.25 / 5) / 16."""
    both = averaged(Spread(se=0.3, df=4.0), {"sd": 0.5, "df": 12.0}, 5)
    assert both.df == 16
    assert both.se == pytest.approx(math.sqrt((0.36 + 1.2) / 16))


def test_two_nodes_of_unknown_speed_widen_an_error_by_their_variance() -> None:
    nodes = benchmark_noise().nodes
    of_nodes = 2 * nodes.sd**2
    across = across_nodes(Difference(mean=0.1, se=2 * nodes.sd, df=6.0))
    assert across.mean == 0.1
    assert across.se**2 == pytest.approx(3 * of_nodes)
    expected = 9 / (4 / 6 + 1 / nodes.df)
    assert across.df == pytest.approx(expected)
    assert across.p() == pytest.approx(2 * stats.t.sf(0.1 / across.se, expected))


def ladder(*changes: str, **more: Any) -> dict[str, Any]:
    """A plan of arms with these changes, a letter each, named by them."""
    arms = [{"name": names or "-", "changes": list(names)} for names in changes]
    return {"design": "ladder", "baseline": arms[-1]["name"], "arms": arms, **more}


@pytest.mark.parametrize(
    ("plan", "pairs"),
    [
        (ladder("a", "ab", "abc", ""), [("-", "a"), ("a", "ab"), ("ab", "abc")]),
        (ladder("ab", "bac", ""), [("-", "ab"), ("ab", "bac")]),
        (ladder("a", "bc", ""), []),  # not all of what stands below
        (ladder("a", "ab", "ba", ""), []),  # nothing more
        (ladder("a", ""), []),  # against the baseline alone
        (ladder("a", "ab", "", design="add-one"), []),
        (ladder("a", "ab", "", axes={"optim.lr": ["x1", "x2"]}), []),
        (ladder("a", "ab", "", evidence={}), [("-", "a"), ("a", "ab")]),
        (ladder("a", "ab", "", evidence={"runs": 3}), []),
        (
            ladder("a", "b", "c", "", design="chain", parents={"a": "-", "b": "a", "c": "gone"}),
            [("-", "a"), ("a", "b")],
        ),
        (ladder("a", "b", "", design="chain", parents={"a": "-", "b": "-"}), []),
    ],
)
def test_an_arm_has_a_part_of_its_own_in_a_ladder_and_beside_its_parent(
    plan: dict[str, Any], pairs: list[tuple[str, str]]
) -> None:
    assert list(planned_pairs(plan)) == pairs


def test_a_short_text_is_told_whole_and_a_longer_one_where_it_parts() -> None:
    for length, whole in ((60, True), (61, False)):
        printed, expected = "a" * (length - 1) + "x", "a" * (length - 1) + "y"
        told = otherwise(printed, expected)
        assert ("a" * (length - 1) in told) == whole
        assert f"{'a' * 15}x' stands where" in told and f"{'a' * 15}y'" in told
    assert otherwise("x", "") == "'x' does not follow from the data in the page"
    assert otherwise("", "y") == "'y' follows from the data in the page and is missing"


def test_points_that_lack_one_of_two_arms_are_passed_over_and_holes_in_blocks_are_told() -> None:
    arms = [
        {"name": f"{of}{n}", "of": of, "point": {"lr": f"x{n}"}}
        for n, there in ((1, "pq"), (2, "p"), (4, "pq"))
        for of in there
    ]
    losses = {
        "p1": [3.0, 3.2],
        "q1": [3.5, 3.9],
        "p2": [3.0, 3.0],
        "p4": [2.0, 2.2],
        "q4": [1.9, 2.1],
    }
    rows = [
        {"arm": arm, "block": block, "val_loss": loss}
        for arm, of_arm in losses.items()
        for block, loss in enumerate(of_arm)
    ]
    assert point_effects(arms, ("p", "q"), rows) == [pytest.approx(0.6), pytest.approx(-0.1)]
    assert point_effects(arms, ("p", "r"), rows) is None
    assert point_effects(arms, ("p", "q"), rows[:-1]) is None
    unknown = [{**row, "val_loss": None} if row["arm"] == "q4" else row for row in rows]
    assert point_effects(arms, ("p", "q"), unknown) is None


def test_the_headline_of_a_pair_is_held_against_that_pair_alone() -> None:
    """A third change has other effects beside each of the two."""
    of_pair = Beside(with_other=(-0.02, None, None), without=(0.0, None, None), beyond=-0.02)
    third = Beside(with_other=(-0.01, None, None), without=(-0.01, None, None), beyond=0.0)
    effects = {("a", "b"): of_pair, ("b", "a"): of_pair, ("a", "c"): third, ("c", "a"): third}
    said = "a and b are shown to help only together: a {} with it, 0.0000 without; b −0.0200 with it, 0.0000 without."
    assert [*check_words(said.format("−0.0200"), effects)] == []
    [wrong] = check_words(said.format("−0.0300"), effects)
    assert wrong == "the headline says a −0.0300 beside b, the rows give -0.02"


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ("better at every one of 2, least by −0.1250 [x].", []),
        ("+0.0000 [x] at x1, −0.1250 [x] at x2.", ["q: the headline says +0.0000 at a point, its"]),
        ("−0.2500 [x] at x1, −0.1250 [x] at x2.", []),
        (
            "−0.2501 [x] at x1.",
            ["q: the headline says −0.2501 at a point, its rows [-0.25, -0.125]"],
        ),
        (
            "worse at every one of 2, least by −0.1250 [x].",
            [
                "q: the headline says worse at every one of 2, least by −0.1250, its rows [-0.25, -0.125]"
            ],
        ),
        (
            "better at every one of 3, least by −0.1250 [x].",
            ["q: the headline says better at every one of 3, least by −0.1250, its rows"],
        ),
        (
            "better at every one of 2, least by −0.2500 [x].",
            ["q: the headline says least by −0.2500, its rows -0.1250"],
        ),
        ("all is open.", []),
    ],
)
def test_what_a_headline_says_of_an_arm_at_every_point_is_held_to_its_rows(
    words: str, wrong: list[str]
) -> None:
    losses = {"p1": 3.0, "q1": 2.75, "p2": 3.0, "q2": 2.875, "r1": 3.5}
    arms = [{"name": arm, "of": arm[0], "point": {"lr": arm[1]}} for arm in losses]
    rows = [
        {"arm": arm, "block": block, "val_loss": loss + block}
        for arm, loss in losses.items()
        for block in range(2)
    ]
    plan = {"baseline": "p2", "arms": arms}
    page = Page(sentences={(0, "answer"): f"q against p at the same point: {words} And so on."})
    said = [*check_signs(page, 0, plan, rows)]
    assert len(said) == len(wrong)
    assert all(one.startswith(start) for one, start in zip(said, wrong, strict=True)), said
    assert [*check_signs(page, 1, plan, rows)] == []


def test_an_end_is_too_close_where_its_slope_is_told_from_zero_less_than_students_t_asks() -> None:
    """Four places, three blocks: the common error has (3 - 1) * (4 - 1) degrees of freedom."""
    x = np.array([0.0, 1.0, 2.0, 3.0])
    noise = np.array(
        [[0.02, -0.03, 0.01, 0.0], [-0.01, 0.02, 0.02, -0.03], [0.0, 0.01, -0.04, 0.03]]
    )
    y = (x - 1.5) ** 2 / 10 + noise
    residuals = y - y.mean(0) - y.mean(1, keepdims=True) + y.mean()
    variance = float((residuals**2).sum()) / 6
    design = np.stack([x**2, x, np.ones(4)], axis=1)
    bend, tilt, _ = np.linalg.lstsq(design, y.mean(0))[0]
    covariance = np.linalg.inv(design.T @ design) * variance / 3
    told = []
    for end in np.linspace(1.5, 3.5, 401):
        of_slope = np.array([2 * end, 1.0, 0.0])
        t = abs(2 * bend * end + tilt) / math.sqrt(of_slope @ covariance @ of_slope)
        for m in (1.0, 2.0):
            told.append(is_too_close(y, x, end, m))
            assert told[-1] == (t < stats.t.isf(0.025 / m, 6) * (1 - 1e-3)), (end, m)
    assert {*told} == {True, False}


# ---------------------------------------------------------------- surfaces


PLACES = [(x, y) for x in ("0.5", "1", "2") for y in ("-1", "0", "1")]  # the first a logarithm
OFF = (0.004, -0.003, 0.001, -0.005, 0.002, 0.006, -0.001, -0.002, -0.002)
SURFACE: dict[str, Any] = {
    "baseline": "a",
    "axes": {"lr": ["x0.5", "x2"], "shift": ["-1", "1"]},
    "arms": [
        {"name": f"{who}{n}" if n else who, "of": who, "point": {"lr": f"x{x}", "shift": y}}
        for who in "ab"
        for n, (x, y) in enumerate(PLACES)
    ],
}
LOSSES_AT = [
    0.1 * (math.log(float(x)) - 0.2) ** 2
    + 0.05 * (float(y) + 0.3) ** 2
    + 0.02 * float(y) * math.log(float(x))
    for x, y in PLACES
]


def surface_rows(who: str = "a") -> list[dict[str, Any]]:
    """Two blocks of every point, a run of another block, and one point of which a run failed."""
    rows = []
    for n, loss in enumerate(LOSSES_AT):
        name = f"{who}{n}" if n else who
        for block in range(2):
            off = OFF[n] if block else -OFF[(n + 2) % 9]
            rows.append({"arm": name, "block": block, "val_loss": 3 + loss + off + 0.1 * block})
    rows += [{**rows[0], "block": block, "val_loss": 9.0} for block in (2, None)]
    return [{**row, "status": "finished"} for row in rows]


class Fit:
    """By least squares of columns that leave out what a hypothesis says: F of what that costs."""

    def __init__(self) -> None:
        rows = [row for row in surface_rows() if row["block"] in (0, 1)]
        points = [PLACES[int(row["arm"].removeprefix("a") or 0)] for row in rows]
        self.x = np.array([math.log(float(x)) for x, _ in points])
        self.y = np.array([float(y) for _, y in points])
        self.blocks = np.array([[row["block"] == b for b in (0, 1)] for row in rows], float)
        self.losses = np.array([row["val_loss"] for row in rows])
        whole = [self.x, self.y, self.x**2, self.x * self.y, self.y**2]
        self.rss = self.rest(*whole)
        self.beta = np.linalg.lstsq(np.c_[np.stack(whole, 1), self.blocks], self.losses)[0]
        of_points = self.rest(*(np.array([p == q for p in points], float) for q in PLACES[1:]))
        lack = (self.rss - of_points) / 3 / (of_points / 8)  # 18 runs, 9 points, 2 blocks
        self.lack_of_fit = float(stats.f.sf(lack, 3, 8))

    def rest(self, *columns: Any) -> float:
        matrix = np.c_[np.stack(columns, 1), self.blocks]
        fitted = matrix @ np.linalg.lstsq(matrix, self.losses)[0]
        return float(((self.losses - fitted) ** 2).sum())

    def lowest(self) -> Any:
        a, b, c, d, e = self.beta[:5]
        return np.linalg.solve([[2 * c, d], [d, 2 * e]], [-a, -b])

    def told(self, x: float, y: float) -> float:
        """F of a slope at a place: the surface is flat there where both are zero."""
        flat = self.x * self.y - y * self.x - x * self.y
        of_flat = self.rest(self.x**2 - 2 * x * self.x, flat, self.y**2 - 2 * y * self.y)
        return (of_flat - self.rss) / 2 / (self.rss / 11)

    def end(self, axis: int, bound: float) -> float:
        """Above the lowest place, the end of the region of all places that are not told from it."""

        def least(at: float) -> float:
            def of(other: float) -> float:
                return self.told(at, other) if axis == 0 else self.told(other, at)

            other = float(self.lowest()[1 - axis])
            return float(optimize.minimize_scalar(of, bounds=(other - 2, other + 2)).fun) - bound

        low = float(self.lowest()[axis])
        return float(optimize.brentq(least, low + 1e-6, low + 2.0))


def test_a_place_of_a_surface_and_its_lack_of_fit_are_held_to_the_rows() -> None:
    fit = Fit()
    x, y = fit.lowest()
    plan = SURFACE | {"arms": [arm for arm in SURFACE["arms"] if arm["of"] == "a"]}

    def said(lr: float, shift: float, p: float | None = fit.lack_of_fit) -> list[str]:
        printed = [[lr, None, None, fit.lack_of_fit], [shift, None, None, p]]
        return [*check_surfaces(printed, plan, surface_rows(), raised=1.0)]

    assert said(math.exp(x + 9e-5), y - 9e-5, fit.lack_of_fit + 9e-6) == []
    lr = math.exp(x + 2e-4)
    told = [f"a, lr: the lowest loss is printed at {lr:g}, the rows give another"]
    assert said(lr, y) == told
    assert len(said(math.exp(x), y - 2e-4)) == 1
    for p in (None, fit.lack_of_fit + 2e-5):
        (sentence,) = said(math.exp(x), y, p)
        assert sentence.startswith(f"a, shift: lack of fit is printed with p {p}, the rows give 0.")


@pytest.mark.parametrize(("raised", "arms"), [(1.0, "a"), (3.0, "a"), (1.0, "ab")])
def test_an_end_of_a_surface_is_no_closer_than_a_place_that_f_tells_from_the_lowest(
    raised: float, arms: str
) -> None:
    fit = Fit()
    bound = float(stats.f.isf(0.05 / raised / len(arms), 2, 11))
    x, y = fit.lowest()
    reach = fit.end(0, bound) - x, fit.end(1, bound) - y
    plan = SURFACE | {"arms": [arm for arm in SURFACE["arms"] if arm["of"] in arms]}
    rows = [row for who in arms for row in surface_rows(who)]

    def said(part: float) -> list[str]:
        """Where both axes end at a part of their reach."""
        ends = math.exp(x + part * reach[0]), y + part * reach[1]
        of_arm = [[None, None, ends[0], fit.lack_of_fit], [None, ends[1], None, fit.lack_of_fit]]
        return [*check_surfaces(of_arm * len(arms), plan, rows, raised=raised)]

    assert said(1.001) == []
    lr, shift = math.exp(x + 0.99 * reach[0]), y + 0.99 * reach[1]
    assert said(0.99) == [
        f"{who}, {name}: the end {end:g} is closer than the region of its surface reaches"
        for who in arms
        for name, end in (("lr", lr), ("shift", shift))
    ]


def test_a_surface_needs_enough_points_that_all_finished_in_one_block() -> None:
    plan = SURFACE | {"arms": [arm for arm in SURFACE["arms"] if arm["of"] == "a"]}
    rows = surface_rows()
    few = [row for row in rows if row["arm"] in ("a", "a1", "a2", "a3", "a4")]
    unfinished = [{**row, "status": "failed"} if row["arm"] > "a3" else row for row in rows]
    apart = [{**row, "block": row["arm"]} for row in rows]
    for other in (few, unfinished, apart, []):
        assert [*fitted_bowls(plan, other)] == [None]
        assert [*check_surfaces([], plan, other, raised=1.0)] == []
        assert [*check_surfaces([[1.0]] * 2, plan, other, raised=1.0)] == [
            "2 lowest places are printed, the rows give 1 surfaces"
        ]
    (bowl,) = fitted_bowls(plan, rows)
    assert bowl is not None and (bowl.logarithmic, bowl.df) == ((True, False), 11)
