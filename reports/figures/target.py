"""The name of a target's line, where the fewest marks lie under it."""

from collections.abc import Iterable

from reports.figures.base import CHAR_PX, text

LINE_HEIGHT = 13  # pixels of a line of text
CLEAR = 5  # pixels between the text and the middle of a mark


def target_label(
    target: float, level: float, ends: tuple[float, float], spots: Iterable[tuple[float, float]]
) -> str:
    """The target in words above its line or below it, at the right end or the left.

    target: a loss. level: of its line in pixels. ends: the line's left and right. spots: the
    middles of all marks in pixels.
    """
    label, marks = f"target {target:g}", [*spots]
    wide = CHAR_PX * len(label)
    left, right = ends
    best, fewest = (0.0, 0.0, "end"), len(marks) + 1
    for foot in (level - 6, level + 4 + LINE_HEIGHT):
        for x, anchor, start in ((right - 2, "end", right - 2 - wide), (left + 2, "start", left)):
            under = 0
            for mark_x, mark_y in marks:
                beside = start - CLEAR < mark_x < start + wide + CLEAR
                under += beside and foot - LINE_HEIGHT - CLEAR < mark_y < foot + CLEAR
            if under < fewest:
                best, fewest = (x, foot, anchor), under
    x, foot, anchor = best
    return text(x, foot, label, anchor=anchor, css="note")
