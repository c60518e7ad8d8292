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


PREDICATES = {  # of the loss along an axis, where no place is told
    Lowest.NOWHERE: "has no lowest point",
    Lowest.UNTOLD: "has a lowest point that is not resolved",
    Lowest.TOO_FEW: "has too few whole points",
}


def place_words(o: Optimum) -> str:
    """The place with its interval, or that there is none."""
    if o.where is Lowest.NOWHERE:
        return "no lowest point"
    if o.where is Lowest.UNTOLD:
        return "not resolved"
    if o.where is Lowest.TOO_FEW:
        return "too few points"
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
    """The headline of an axis: where every arm's loss is lowest; '' before that can be said."""
    of_axes: dict[str, list[Optimum]] = {}
    for optimum in found:
        of_axes.setdefault(optimum.axis.name, []).append(optimum)
    sentences = []
    for axis, of_arms in of_axes.items():
        if any(o.where is not Lowest.TOO_FEW for o in of_arms):
            sentences.append(f"The loss along {axis} {'; '.join(clauses_of(of_arms))}.")
    return " ".join(sentences)


def clauses_of(of_arms: Sequence[Optimum]) -> list[str]:
    """What is said of the arms along one axis: their places, then those without one."""
    places = [f"{place_words(o)} for {o.arm}" for o in of_arms if o.where not in PREDICATES]
    clauses = []
    if places:
        clauses.append(f"is lowest at {listed(places)}")
    for where, predicate in PREDICATES.items():
        arms = [o.arm for o in of_arms if o.where is where]
        if arms:
            clauses.append(f"{predicate} for {listed(arms)}")
    return clauses


def listed(names: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    text = ", ".join(names[:NAMED_PLACES])
    if len(names) > NAMED_PLACES:
        text += f" and {len(names) - NAMED_PLACES} more"
    return text
