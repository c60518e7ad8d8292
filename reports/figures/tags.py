"""The numbers of arms beside their marks, where colours tell verdicts alone."""

from collections.abc import Mapping

from reports.figures.base import line, text
from reports.figures.palette import Palette

WIDE_TAG, HIGH_TAG = 18, 11  # px that a number takes
TAG_GAP = 7  # px from a mark to its number


def places_of_tags(
    marks: Mapping[str, tuple[float, float]], top: float, bottom: float
) -> dict[str, tuple[float, float]]:
    """Where the number of each mark stands: at its height, or below or above others that are there.

    top, bottom: between which they stand, px.
    """
    places: dict[str, tuple[float, float]] = {}
    for arm, (x, y) in sorted(marks.items(), key=lambda mark: mark[1][1]):
        near = [there for at, there in places.values() if abs(at - x) < WIDE_TAG]
        places[arm] = (x, max([y, top, *(there + HIGH_TAG for there in near)]))
    settled: dict[str, tuple[float, float]] = {}
    for arm, (x, y) in sorted(places.items(), key=lambda place: -place[1][1]):
        # the lowest go up again, and those that are in their way
        near = [there for at, there in settled.values() if abs(at - x) < WIDE_TAG]
        settled[arm] = (x, min([y, bottom, *(there - HIGH_TAG for there in near)]))
    return settled


def tags(
    palette: Palette, marks: Mapping[str, tuple[float, float]], top: float, bottom: float
) -> list[str]:
    """A number beside each arm's mark, with a line to it where it had to move; [] without numbers.

    marks: arm -> where its mark is; top, bottom: between which they stand, px."""
    if not palette.has_numbers:
        return []
    drawn = []
    for arm, (x, y) in places_of_tags(marks, top, bottom).items():
        at_x, at_y = marks[arm]
        parts = [text(x + TAG_GAP, y + 4, palette.number(arm), css="own")]
        if abs(y - at_y) > 2:
            parts.append(line(at_x, at_y, x + TAG_GAP - 1, y, "whisker"))
        drawn.append(palette.series(arm, parts))
    return drawn
