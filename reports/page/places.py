"""Where along an axis the loss is lowest, in words."""

from collections.abc import Sequence

from reports.analysis.optimum import GridAxis, Lowest, Optimum
from reports.format import significant
from reports.stats.digits import settled

PLACE_DIGITS = 3
NAMED_PLACES = 6  # of an axis, in the headline


def axis_words(axis: GridAxis, value: float) -> str:
    """A value as the experiment's file writes those of the axis."""
    mark = "x" if axis.words[0].startswith("x") else ""
    return f"{mark}{significant(settled(value), PLACE_DIGITS)}"


def place_words(o: Optimum) -> str:
    """The place with its interval."""
    if o.where is Lowest.NOWHERE:
        return "nowhere inside the grid"
    if o.value is None:
        end = o.axis.words[0] if o.where is Lowest.FIRST else o.axis.words[-1]
        return f"{end} or beyond"
    place = axis_words(o.axis, o.value)
    if not o.is_resolved:
        return f"{place} (interval not resolved)"
    low, high = f"below {o.axis.words[0]}", f"above {o.axis.words[-1]}"
    if o.low is not None:
        low = axis_words(o.axis, o.low)
    if o.high is not None:
        high = axis_words(o.axis, o.high)
    return f"{place} [{low}, {high}]"


def optimum_answer(found: Sequence[Optimum]) -> str:
    """The headline of an axis: where every arm's loss is lowest; '' before there is."""
    of_axes: dict[str, list[str]] = {}
    for optimum in found:
        of_axes.setdefault(optimum.axis.name, []).append(
            f"{place_words(optimum)} for {optimum.arm}"
        )
    sentences = []
    for axis, places in of_axes.items():
        listed = ", ".join(places[:NAMED_PLACES])
        if len(places) > NAMED_PLACES:
            listed += f" and {len(places) - NAMED_PLACES} more"
        sentences.append(f"The loss along {axis} is lowest at {listed}.")
    return " ".join(sentences)
