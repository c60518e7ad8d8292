"""Where the loss is lowest along axes, in words; and the graph of what needs what: by hand."""

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from reports.analysis.optimum import GridAxis, Lowest, Optimum
from reports.page import thin
from reports.page.parts import group_styles, needs_graph
from reports.page.places import listed, optimum_answer, place_words, where_words
from reports.page.thin import kept_of

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


def test_of_every_stretch_of_a_long_curve_its_highest_and_lowest_point_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(thin, "MOST", 6)
    losses = np.array([5.0, 4.0, 9.0, 1.0, 3.0, 3.0, 7.0, np.nan, 2.0, 6.0, 8.0])
    assert kept_of(losses) == [0, 2, 3, 6, 8, 10]  # two stretches between the ends


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
