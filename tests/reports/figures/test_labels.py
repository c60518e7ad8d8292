"""Where words of a drawing stand: a target's name beside the marks, an effect's numbers beside its interval."""

import re

import pytest

from reports.figures.base import CHAR_PX, WIDE
from reports.figures.effects import ForestLayout
from reports.figures.palette import Palette
from reports.figures.target import target_label

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


def test_no_interval_reaches_the_numbers_beside_it():
    for label in ("+0.1836 [+0.1540, +0.2133]", "−0.000014 [−0.000050, +0.000022]"):
        at = ForestLayout.of(WIDE, 3, len(label))
        assert at.right < WIDE - CHAR_PX * len(label) - 10


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
