"""Where the loss is lowest along axes, in words; and the graph of what needs what: by hand."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from reports.analysis.optimum import GridAxis, Lowest, Optimum
from reports.analysis.sensitivity import PointEffect, Sensitivity
from reports.page import thin
from reports.page.next_run import NO_STEP, beyond_end, longer, next_of_axes, resolving
from reports.page.parts import group_styles, needs_graph
from reports.page.places import (
    listed,
    optimum_answer,
    place_words,
    sign_words,
    signs_answer,
    where_words,
)
from reports.page.thin import kept_of, thinned

AXIS = GridAxis(name="optim.muon_lr", words=("x0.5", "x1", "x2", "x4"))
PLACE = Optimum(
    arm="a", axis=AXIS, where=Lowest.INSIDE, value=1.2345, low=0.75, high=2.5, is_resolved=True,
    n_blocks=3, left_out=(),
)  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, "x1.23 [x0.750, x2.50]"),
        ({"low": None}, "x1.23 [below x0.5, x2.50]"),
        ({"high": None}, "x1.23 [x0.750, above x4]"),
        ({"is_resolved": False}, "x1.23 (interval not resolved)"),
        ({"axis": replace(AXIS, words=("1", "2", "3"))}, "1.23 [0.750, 2.50]"),
        ({"where": Lowest.FIRST, "value": None}, "x0.5 or beyond"),
        ({"where": Lowest.LAST, "value": None}, "x4 or beyond"),
        ({"where": Lowest.NOWHERE}, "no lowest point"),
        ({"where": Lowest.UNTOLD}, "not resolved"),
        ({"where": Lowest.TOO_FEW}, "too few points"),
        ({"where": Lowest.FEW_DRAWN}, "too few points"),
    ],
)
def test_a_place_is_told_with_its_interval_or_why_there_is_none(
    facts: dict[str, Any], words: str
) -> None:
    assert place_words(replace(PLACE, **facts)) == words


def test_of_drawn_points_it_is_told_otherwise_than_of_a_grid() -> None:
    for where in (Lowest.INSIDE, Lowest.FIRST, Lowest.LAST, Lowest.UNTOLD):
        of_grid, drawn = (replace(PLACE, where=where, is_drawn=d) for d in (False, True))
        assert where_words(of_grid) == where.value != where_words(drawn)
        assert "grid" not in where_words(drawn)
    few = replace(PLACE, where=Lowest.TOO_FEW, is_drawn=True)
    assert where_words(few) == Lowest.TOO_FEW.value


def of(arm: str, where: Lowest = Lowest.INSIDE, **facts: Any) -> Optimum:
    return replace(PLACE, arm=arm, where=where, **facts)


def test_the_headline_of_an_axis_tells_places_first_and_then_who_has_none() -> None:
    other = replace(AXIS, name="optim.adam_lr")
    rows = [
        of("a"),
        of("b", Lowest.NOWHERE),
        of("c", Lowest.LAST, value=None),
        of("d", Lowest.NOWHERE),
        of("e", Lowest.TOO_FEW),
        of("a", Lowest.UNTOLD, axis=other),
    ]
    assert optimum_answer(rows) == (
        "The loss along optim.muon_lr is lowest at x1.23 [x0.750, x2.50] for a, x4 or beyond for c; "
        "has no lowest point for b, d; has too few whole points for e. "
        "The loss along optim.adam_lr has a lowest point that is not resolved for a."
    )
    assert optimum_answer([of("e", Lowest.TOO_FEW)]) == optimum_answer([]) == ""
    names = list("abcdefgh")
    assert listed(names[:6]) == "a, b, c, d, e, f"
    assert listed(names) == "a, b, c, d, e, f and 2 more"


@pytest.mark.parametrize(
    ("deltas", "said"),
    [
        ((0.1, -0.1), "not told apart at any of 2."),
        ((0.4, -0.5), "its sign turns, from −0.5000 [−0.8000, −0.2000] at p1 to +0.4000 [+0.1000,"),
        ((-0.4, 0.1, -0.6), "better at 2 of 3, most by −0.6000 [−0.9000, −0.3000] at p2; not told"),
        ((0.4, 0.5, 0.1), "worse at 2 of 3, most by +0.5000 [+0.2000, +0.8000] at p1; not told"),
        ((-0.4, -0.5), "better at every one of 2, least by −0.4000 [−0.7000, −0.1000] at p0."),
        ((0.5, 0.4), "worse at every one of 2, least by +0.4000 [+0.1000, +0.7000] at p1."),
    ],
)
def test_whether_an_arms_sign_holds_over_the_points_is_told_in_a_sentence(
    deltas: tuple[float, ...], said: str
) -> None:
    assert sign_words(signs("a", *deltas), "base").startswith(
        f"a against base at the same point: {said}"
    )


def signs(arm: str, *deltas: float) -> Sensitivity:
    effects = [
        PointEffect(point=f"p{n}", delta=delta, low=delta - 0.3, high=delta + 0.3)
        for n, delta in enumerate(deltas)
    ]
    return Sensitivity(arm=arm, effects=tuple(effects))


def test_six_arms_have_a_sentence_and_the_others_are_counted() -> None:
    arms = [signs(name, 0.0) for name in "abcdefgh"]
    for n, more in ((6, []), (7, ["1 more arm below."]), (8, ["2 more arms below."])):
        told = signs_answer(arms[:n], "base")
        assert len(told[:6]) == 6 and told[6:] == more
        assert [sentence[0] for sentence in told[:6]] == list("abcdef")


def test_curves_of_more_points_than_a_page_has_room_for_lose_some_and_others_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(thin, "MOST", 6)
    rows = [("short", n, 9.0 - n) for n in range(6)] + [("long", n, 9.0 - n) for n in range(9)]
    curves = pd.DataFrame(rows, columns=["run_id", "step", "val_loss"])
    made = thinned(curves)
    kept = {run: [*points["step"]] for run, points in made.groupby("run_id")}
    assert kept == {"short": [0, 1, 2, 3, 4, 5], "long": [0, 1, 4, 5, 7, 8]}
    assert [*made["run_id"].unique()] == ["short", "long"] and [*made.index] == [*range(12)]
    flat = curves.assign(val_loss=3.0)  # of a stretch of two that are alike one would go
    assert len(thinned(flat[:6])) == 6
    assert [*thinned(flat)["run_id"]].count("short") == 6
    assert len(thinned(curves[:0])) == 0


def test_of_every_stretch_of_a_long_curve_its_highest_and_lowest_point_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(thin, "MOST", 6)
    losses = np.array([5.0, 4.0, 9.0, 1.0, 3.0, 3.0, 7.0, np.nan, 2.0, 6.0, 8.0])
    assert kept_of(losses) == [0, 2, 3, 6, 8, 10]  # two stretches between the ends


def test_an_axis_goes_on_as_far_as_its_last_step_on_its_own_scale() -> None:
    linear = replace(AXIS, words=("0", "1", "3"))
    assert beyond_end(AXIS, 4.0, 2.0, 1.0) == 8.0 and beyond_end(AXIS, 0.5, 1.0, 1.0) == 0.25
    assert beyond_end(AXIS, 4.0, 1.0, 0.5) == 8.0
    assert beyond_end(linear, 3.0, 1.0, 1.0) == 5.0 and beyond_end(linear, 0.0, 1.0, 0.5) == -0.5
    plan: Any = SimpleNamespace(draw=None, axes={})
    facts: dict[str, Any] = {"axis": linear, "value": None}
    assert longer(plan, of("a", Lowest.LAST, **facts)) == "optim.muon_lr: [0, 1, 3, 5]"
    assert longer(plan, of("a", Lowest.FIRST, **facts)) == "optim.muon_lr: [-1, 0, 1, 3]"


def test_what_resolves_an_arms_places_is_named_by_why_none_is_told() -> None:
    one, other = of("a", Lowest.UNTOLD), of("a", Lowest.UNTOLD, axis=replace(AXIS, name="x"))
    assert (
        resolving([one]) == "more seeds or a wider optim.muon_lr, for a has no resolved place yet"
    )
    assert resolving([one, other]).startswith("more seeds or wider optim.muon_lr and x, for a has")
    few = of("a", Lowest.TOO_FEW)
    assert resolving([few]) == "more points of optim.muon_lr, for a has too few whole ones"
    bent = replace(one, doubt="its fit lacks")
    assert resolving([bent]) == (
        "points drawn between narrower ends, for the quadratic of a does not fit"
    )


OTHER = replace(AXIS, name="optim.adam_lr", words=("x1", "x3"))
UNTOLD = {"where": Lowest.UNTOLD, "is_resolved": False}
LAST, FIRST = ({"where": where, "value": None} for where in (Lowest.LAST, Lowest.FIRST))
FURTHER = "optim.muon_lr: [x0.5, x1, x2, x4, x8]"


def plan_of(**facts: Any) -> Any:
    """A plan of a sweep, as far as a next step asks."""
    known: dict[str, Any] = {"name": "sweep", "baseline": "base", "base": "r07", "command": ""}
    known |= {"draw": None, "confirm": False, "estimand": "at-rate", "foreign": False, "arms": ()}
    axes = {axis.name: [*axis.words] for axis in (AXIS, OTHER)}
    return SimpleNamespace(**{**known, "axes": axes, **facts})


@pytest.mark.parametrize(
    ("places", "step"),
    [
        ([{}], NO_STEP),
        ([{}, {"arm": "b", "high": None}], f"a longer axis, `{FURTHER}`, for the lowest place of b may lie beyond the grid"),
        ([{"low": None}], "a longer axis, `optim.muon_lr: [x0.25, x0.5, x1, x2, x4]`, for the lowest place of a may lie beyond the grid"),
        ([{"high": None}, {"arm": "c", **UNTOLD}], "more seeds or a wider optim.muon_lr, for c has no resolved place yet"),
        ([{"arm": "c", **UNTOLD}, LAST], f"a longer axis, `{FURTHER}`, for a is lowest at x4 or beyond"),
        ([LAST, {"axis": OTHER, **UNTOLD}], f"a longer axis, `{FURTHER}`, for a is lowest at x4 or beyond, and not resolved along optim.adam_lr"),
        (
            [FIRST, {"axis": OTHER, **LAST}, {"arm": "b", **LAST}],
            "longer axes, `optim.muon_lr: [x0.25, x0.5, x1, x2, x4]` and `optim.adam_lr: [x1, x3, x9]`, for a is lowest at"
            " optim.muon_lr x0.5 or beyond and optim.adam_lr x3 or beyond",
        ),
    ],
)  # fmt: skip
def test_places_ask_for_longer_axes_then_for_what_resolves_them_then_for_nothing(
    places: list[dict[str, Any]], step: str
) -> None:
    told = [replace(PLACE, **facts) for facts in places]
    following = next_of_axes(plan_of(), told, [], [])
    assert following.step == step
    assert str(following) == f"Shown to be better: nothing. What to run next: {step}."


def test_between_drawn_points_an_end_moves_by_half_of_what_they_are_apart() -> None:
    plan = plan_of(draw={"sobol": 8}, axes={AXIS.name: ["x0.5", "x2"]})
    for facts, ends in (
        ({"high": None}, "x0.5, x4"),
        ({"low": None}, "x0.25, x2"),
        ({"low": None, "high": None}, "x0.25, x4"),
    ):
        (place,) = [replace(PLACE, is_drawn=True, **facts)]
        assert next_of_axes(plan, [place], [], []).step == (
            f"a longer axis, `optim.muon_lr: [{ends}]`, for the lowest place of a may lie beyond the"
            " points"
        )


def test_what_helps_along_axes_is_confirmed_or_asked_at_rates_of_its_own() -> None:
    good, turning, worse = signs("good", -0.4, 0.1), signs("both", -0.4, 0.4), signs("bad", 0.4)
    fresh = "which asks again on fresh seeds"
    retuned = "the same with `estimand: retuned`, every arm at its own best rates on fresh seeds"
    for arms, facts, step in (
        ([good, worse], {}, f"`ablate confirm sweep --arm good`, {fresh}"),
        ([good], {"arms": (SimpleNamespace(of="good"),)}, f"`ablate confirm sweep`, {fresh}"),
        ([good], {"foreign": True}, "a new experiment, which asks again on fresh runs"),
        ([good], {"confirm": True}, NO_STEP),
        ([worse], {}, NO_STEP),
        ([good, turning], {}, retuned),
        ([good, turning], {"estimand": "retuned"}, f"`ablate confirm sweep --arm good`, {fresh}"),
        ([turning], {"estimand": "retuned"}, NO_STEP),
        ([turning], {"axes": {"model.width": ["1"]}}, NO_STEP),
        ([good], {"name": "sweep.grid"}, NO_STEP),
    ):
        assert next_of_axes(plan_of(**facts), [PLACE], arms, []).step == step
    assert next_of_axes(plan_of(name="sweep.grid"), [PLACE], [good], []).lead == (
        "What helps is judged by sweep, whose rates these runs choose. What to run next, for rates"
        " that are better known: "
    )
    drawn = plan_of(draw={"sobol": 8})
    for plan, step in ((drawn, f"`ablate confirm sweep --arm good`, {fresh}"), (plan_of(), None)):
        place = replace(PLACE, **LAST)
        following = next_of_axes(plan, [place], [good], []).step
        assert following == (step or f"a longer axis, `{FURTHER}`, for a is lowest at x4 or beyond")


# ---------------------------------------------------------------- what needs what

GROUPS = [
    {"name": "rate", "kind": "learning", "direct": []},
    {"name": "gate<", "kind": "learning", "direct": ["rate", "scale"]},
    {"name": "alone", "kind": "always on", "direct": []},
    {"name": "scale", "kind": "support", "direct": []},
]


def test_every_group_that_needs_or_is_needed_has_a_row_and_an_arc_to_what_it_needs() -> None:
    svg = ElementTree.fromstring(needs_graph(GROUPS))
    size = {name: svg.attrib[name] for name in ("width", "height", "viewBox")}
    assert size == {"width": "156", "height": "78", "viewBox": "0 0 156 78"}  # 104 + 12 + 8 x 5
    dots = [{k: e.attrib[k] for k in ("cx", "cy")} for e in svg.iter("circle")]
    assert dots == [{"cx": "104", "cy": y} for y in ("13.0", "39.0", "65.0")]
    names = [(e.text, e.attrib["x"], e.attrib["y"]) for e in svg.iter("text")]
    assert names == [
        *(("rate", "116", "17.0"), ("gate<", "116", "43.0")),
        ("scale", "116", "69.0"),
    ]
    assert [e.attrib["href"] for e in svg.iter("a")] == ["#g-rate", "#g-gate<", "#g-scale"]
    arcs = [e.attrib["d"] for e in svg.iter("path") if e.attrib["class"] == "needs"]
    tips = [e.attrib["d"] for e in svg.iter("path") if e.attrib["class"] == "tip"]
    assert arcs == [
        "M98 39.0 C83.0 39.0 83.0 13.0 96 13.0",
        "M98 39.0 C83.0 39.0 83.0 65.0 96 65.0",
    ]
    assert tips == ["M99 13.0l-7 -4v8z", "M99 65.0l-7 -4v8z"]
    styles = group_styles(GROUPS)
    assert [*styles.values()] == [
        *("--h:0;--s:60%", "--h:138;--s:60%", "--h:275;--s:0%", "--h:53;--s:0%"),
    ]
    assert {e.attrib["style"] for e in svg.iter("path")} == {styles["gate<"]}
    assert needs_graph(GROUPS[2:]) == ""
    far = [
        {"name": str(n), "kind": "x", "direct": ["29"] if n == 0 else [str(n - 1)]}
        for n in range(30)
    ]
    longest = next(e for e in ElementTree.fromstring(needs_graph(far)).iter("path"))
    assert longest.attrib["d"] == "M98 13.0 C8 13.0 8 767.0 96 767.0"  # no arc leaves the drawing
