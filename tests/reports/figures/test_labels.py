"""Where words of a drawing stand: a target's name beside the marks, an effect's numbers beside its interval."""

import itertools
import re
from dataclasses import replace

import pytest

from reports.figures.base import CHAR_PX, NARROW, WIDE
from reports.figures.forest import ForestLayout, row_words
from reports.figures.palette import Palette, beginnings
from reports.figures.rows import LINE
from reports.figures.tags import HIGH_TAG, places_of_tags, tags
from reports.figures.target import LINE_HEIGHT, target_label

ENDS, LEVEL = (60.0, 700.0), 200.0
RIGHT, LEFT = (650.0, LEVEL - 8), (90.0, LEVEL - 8)
BELOW = (650.0, LEVEL + 12)


@pytest.mark.parametrize(
    ("marks", "anchor", "is_above"),
    [
        ([], "end", True),
        ([(300.0, LEVEL)], "end", True),
        ([RIGHT], "start", True),
        ([RIGHT, LEFT], "end", False),
        ([RIGHT, LEFT, BELOW], "start", False),
        ([RIGHT, RIGHT, LEFT, BELOW, (90.0, LEVEL + 12)], "start", True),
    ],
)
def test_a_targets_name_stands_where_the_fewest_marks_are(marks, anchor, is_above):
    drawn = target_label(1.86, LEVEL, ENDS, marks)
    assert "target 1.86" in drawn
    assert ('text-anchor="end"' in drawn) == (anchor == "end")
    assert (float(re.search(r' y="([\d.]+)"', drawn)[1]) < LEVEL) == is_above


ABOVE, UNDER = LEVEL - 6, LEVEL + 4 + LINE_HEIGHT  # where its letters stand


@pytest.mark.parametrize(
    ("marks", "x", "foot"),
    [
        ([], 698.0, ABOVE),
        ([(612.6, 190.0), (703.1, 190.0), (650.0, 199.0), (650.0, 189.0 - LINE_HEIGHT)], 698.0, ABOVE),
        ([(612.8, 190.0)], 62.0, ABOVE),
        ([(702.9, 190.0)], 62.0, ABOVE),
        ([(650.0, 198.9)], 62.0, ABOVE),
        ([(650.0, 189.1 - LINE_HEIGHT)], 62.0, ABOVE),
        ([RIGHT, (55.0, 190.0), (145.4, 190.0)], 62.0, ABOVE),
        ([RIGHT, (55.1, 190.0)], 698.0, UNDER),
        ([RIGHT, (145.2, 190.0)], 698.0, UNDER),
    ],
)  # fmt: skip
def test_a_mark_is_in_the_way_of_a_targets_name_up_to_five_pixels_from_it(marks, x, foot):
    anchor = "end" if x > 600 else "start"
    drawn = target_label(1.86, LEVEL, ENDS, marks)
    assert f'<text x="{x}" y="{foot:.1f}" text-anchor="{anchor}"' in drawn


def test_no_interval_reaches_the_numbers_beside_it():
    for label in ("+0.1836 [+0.1540, +0.2133]", "−0.000014 [−0.000050, +0.000022]"):
        at = ForestLayout.of(WIDE, Palette(arms=("base", "a"), baseline="base"), ["a"], len(label))
        assert at.right < WIDE - CHAR_PX * len(label) - 10


def test_changes_that_do_not_fit_keep_as_many_letters_as_there_is_room_for():
    name = "untied_head + zero_head + embed_norm"
    for room, said in (
        (len(name), name),
        (20, "untied+zero_h+embed"),
        (17, "untie+zero+embed"),
        (16, "unti+zero+embe"),
        (11, "unt+zer+emb"),
        (10, name),
    ):
        assert beginnings(name, room * CHAR_PX) == said
    assert beginnings("untied_head", 3 * CHAR_PX) == "untied_head"


def test_names_of_points_and_of_sets_of_changes_are_told_in_short():
    names = ("base", "base @ muon_lr x0.5, adam_lr x1", "a @ muon_lr x2, adam_lr x1")
    palette = Palette(arms=names, baseline="base")
    said = [palette.label(name, 214) for name in names]
    assert said == ["base", "muon_lr x0.5, adam_lr x1", "a @ muon_lr x2, adam_lr x1"]
    said = [palette.label(name, 136) for name in names]
    assert said == ["base", "x0.5, x1", "a @ x2, x1"], "values alone where the axes do not fit"
    sets = ("base", "untied_head + zero_head", "untied_head + post_embed_norm + zero_head")
    palette = Palette(arms=sets, baseline="base")
    said = [palette.label(name, 136) for name in sets]
    assert said == ["base", "untied_h+zero_hea", "untie+post+zero"], "how each of them begins"
    same = Palette(arms=("base", "base @ x", "x"), baseline="base")
    assert same.label("base @ x", 214) != same.label("x", 214)


def test_a_name_that_is_too_long_for_a_line_stands_whole_on_several():
    sets = ("base", "untied_head", "untied_head + post_embed_norm + zero_head + optimizer_split")
    palette = Palette(arms=sets, baseline="base")
    assert palette.lines("untied_head", 214) == ["untied_head"]
    assert palette.lines(sets[2], 214) == [
        "untied_head + post_embed_norm",
        "+ zero_head",
        "+ optimizer_split",
    ]
    assert palette.lines(sets[2], 316) == [
        "untied_head + post_embed_norm + zero_head",
        "+ optimizer_split",
    ]
    assert palette.lines(sets[2], 60) == [palette.label(sets[2], 60)], "no change fits a line"
    points = Palette(arms=("base", "base @ muon_lr x0.637, adam_lr x2.72"), baseline="base")
    assert points.lines(points.arms[1], 120) == ["muon_lr x0.637,", "adam_lr x2.72"]
    same = Palette(arms=("base", "base @ x" + 40 * "y", "x" + 40 * "y"), baseline="base")
    assert len({*map(tuple, (same.lines(arm, 400) for arm in same.arms))}) == 3


def test_a_point_of_the_baseline_has_its_whole_name_where_that_fits():
    palette = Palette(arms=("base", "base @ muon_lr x2"), baseline="base")
    px = CHAR_PX * len(palette.arms[1])
    for room, said in ((px + 1, "base @ muon_lr x2"), (px, "base @ muon_lr x2"), (px - 1, "muon_lr x2")):  # fmt: skip
        assert palette.lines(palette.arms[1], room) == [said]


def test_a_name_has_up_to_four_lines_and_of_more_how_its_changes_begin():
    for n, lines in ((4, ["abcd", "+ efgh", "+ ijkl", "+ mnop"]), (5, None)):
        name = " + ".join(("abcd", "efgh", "ijkl", "mnop", "qrst")[:n])
        palette = Palette(arms=("base", name), baseline="base")
        found = palette.lines(name, 6 * CHAR_PX)
        assert found == (lines or [palette.label(name, 6 * CHAR_PX)])


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_no_name_meets_another_row(width):
    sets = ("base", "a" * 20 + " + " + "b" * 20 + " + " + "c" * 20, "d", "e" * 28 + " + f")
    palette = Palette(arms=sets, baseline="base")
    at = ForestLayout.of(width, palette, sets[1:], 27)
    drawn = [row_words(palette, arm, "x" * 27, at.y(n), at) for n, arm in enumerate(sets[1:])]
    names = [[float(y) for y in re.findall(r' y="([\d.]+)"', words[0])] for words in drawn]
    assert [len(ys) for ys in names] == ([3, 1, 2] if width == WIDE else [2, 1, 1])
    for above, below in itertools.pairwise(names):
        assert below[0] - above[-1] >= LINE
    if width == NARROW:
        for name, (_, effect) in zip(names, drawn, strict=True):
            assert float(re.search(r' y="([\d.]+)"', effect)[1]) >= name[-1] + LINE


def test_numbers_stand_apart_near_their_marks_and_inside():
    crowded = {f"arm{n}": (100.0, 50.0 + n) for n in range(8)} | {"far": (300.0, 52.0)}
    places = places_of_tags(crowded, 30, 120)
    heights = sorted(y for arm, (x, y) in places.items() if arm != "far")
    assert all(b - a >= HIGH_TAG for a, b in itertools.pairwise(heights))
    assert heights[0] >= 30 and heights[-1] <= 120 and places["far"] == (300.0, 52.0)
    low = places_of_tags({"a": (0.0, 118.0), "b": (0.0, 119.0), "c": (0.0, 119.5)}, 30, 120)
    assert [low[arm][1] for arm in "abc"] == [98.0, 109.0, 120.0]


def test_numbers_eighteen_pixels_apart_are_not_in_each_others_way():
    for apart, moved in ((18.0, 50.0), (17.9, 61.0)):
        places = places_of_tags({"a": (0.0, 50.0), "b": (apart, 50.0)}, 30, 120)
        assert places == {"a": (0.0, 50.0), "b": (apart, moved)}
        low = places_of_tags({"a": (0.0, 120.0), "b": (apart, 120.0)}, 30, 120)
        assert low["b"][1] - low["a"][1] == (0.0 if apart == 18 else 11.0)


@pytest.mark.parametrize(("y", "n_lines"), [(59.0, 0), (58.9, 1)])
def test_a_number_that_had_to_move_by_more_than_two_pixels_has_a_line_to_its_mark(y, n_lines):
    arms = ("base", *(f"arm{n}" for n in range(1, 11)))
    palette = Palette(arms=arms, baseline="base", tones=dict.fromkeys(arms[1:], "open"))
    drawn = tags(palette, {"arm1": (10.0, 50.0), "arm2": (10.0, y)}, 0, 100)
    lines = re.findall(r"<line [^>]*>", "".join(drawn))
    assert len(lines) == n_lines
    wanted = f'<line x1="10.0" y1="{y}" x2="16.0" y2="61.0" class="whisker"/>'
    assert all(line == wanted for line in lines)


def test_arms_of_alike_colours_are_numbered_in_drawing_and_legend():
    arms = ("base", *(f"arm{n}" for n in range(1, 11)))
    palette = Palette(arms=arms, baseline="base", tones=dict.fromkeys(arms[1:], "open"))
    drawn = tags(palette, {"arm7": (10.0, 40.0)}, 0, 100)
    assert ">7</text>" in drawn[0] and 'data-arm-group="7"' in drawn[0]
    assert [key.name for key in palette.legend(arms)][:3] == ["0 base", "1 arm1", "2 arm2"]
    few = replace(palette, arms=arms[:4])
    crowd = replace(palette, arms=(*arms, *(f"more{n}" for n in range(20))))
    for unnumbered in (few, crowd):
        assert tags(unnumbered, {"arm1": (10.0, 40.0)}, 0, 100) == []
        assert unnumbered.legend(["arm1"])[0].name == "arm1"
