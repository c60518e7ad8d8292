"""Where along an axis the loss is lowest, in words."""

from collections.abc import Sequence

from harness.run.plural import plural
from reports.analysis.optimum import GridAxis, Lowest, Optimum
from reports.analysis.sensitivity import PointEffect, Sensitivity
from reports.format import interval, show, significant
from reports.stats.digits import settled

PLACE_DIGITS = 3
NAMED_PLACES = 6  # of an axis, in the headline


def axis_words(axis: GridAxis, value: float) -> str:
    """A value as the experiment's file writes those of the axis."""
    mark = "x" if axis.words[0].startswith("x") else ""
    return f"{mark}{significant(settled(value), PLACE_DIGITS)}"


FEW = (Lowest.TOO_FEW, Lowest.FEW_DRAWN)
PREDICATES = {  # of the loss along an axis, where no place is told
    Lowest.NOWHERE: "has no lowest point",
    Lowest.UNTOLD: "has a lowest point that is not resolved",
    Lowest.TOO_FEW: "has too few whole points",
    Lowest.FEW_DRAWN: "has too few whole points",
}

DRAWN_WORDS = {  # of points drawn between the ends of an axis, which make no grid
    Lowest.INSIDE: "between the lowest and the highest point drawn",
    Lowest.FIRST: "at the lowest point drawn or below it",
    Lowest.LAST: "at the highest point drawn or above it",
    Lowest.UNTOLD: "not told apart from the noise: more seeds, or points between wider ends",
}


def where_words(o: Optimum) -> str:
    """What is told of the place, of a grid or of drawn points."""
    return DRAWN_WORDS.get(o.where, o.where.value) if o.is_drawn else o.where.value


def place_words(o: Optimum) -> str:
    """The place with its interval, or that there is none."""
    if o.where is Lowest.NOWHERE:
        return "no lowest point"
    if o.where is Lowest.UNTOLD:
        return "not resolved"
    if o.where in FEW:
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


def optimum_answer(lowest: Sequence[Optimum]) -> str:
    """The headline of an axis: where every arm's loss is lowest; '' before that can be said.

    Of points drawn along two axes one sentence is about both."""
    if any(o.surface is not None for o in lowest):
        return surface_answer(lowest)
    of_axes: dict[str, list[list[Optimum]]] = {}
    for optimum in lowest:
        of_axes.setdefault(optimum.axis.name, []).append([optimum])
    sentences = []
    for axis, of_arms in of_axes.items():
        if any(o.where not in FEW for (o,) in of_arms):
            sentences.append(f"The loss along {axis} {'; '.join(clauses_of(of_arms))}.")
    return " ".join(sentences)


def surface_answer(lowest: Sequence[Optimum]) -> str:
    """Where the surfaces of drawn points are lowest, and what that is worth."""
    axes = [*dict.fromkeys(o.axis.name for o in lowest)]
    clauses = "; ".join(clauses_of(of_each_arm(lowest)))
    said = f"The loss along {' and '.join(axes)} {clauses}, on a quadratic surface"
    doubts = [*dict.fromkeys(o.doubt for o in lowest if o.doubt)]
    return f"{said}, which {'; '.join(doubts) or 'chooses and judges nothing'}."


def of_each_arm(lowest: Sequence[Optimum]) -> list[list[Optimum]]:
    """What is told of each arm, in their order."""
    arms: dict[str, list[Optimum]] = {}
    for optimum in lowest:
        arms.setdefault(optimum.arm, []).append(optimum)
    return [*arms.values()]


def clauses_of(of_arms: Sequence[Sequence[Optimum]]) -> list[str]:
    """What is said of the arms along one axis, or two: their places, then those without one."""
    places = []
    without: dict[Lowest, list[str]] = {where: [] for where in PREDICATES}
    for of_arm in of_arms:
        first = of_arm[0]
        if first.where in PREDICATES and all(o.where is first.where for o in of_arm):
            without[first.where].append(first.arm)
        elif first.surface is None:
            places.append(f"{place_words(first)} for {first.arm}")
        else:
            at = [f"{o.axis.name} {place_words(o)}" for o in of_arm]
            places.append(f"{' and '.join(at)} for {first.arm}")
    clauses = []
    if places:
        clauses.append(f"is lowest at {listed(places)}")
    for where, arms in without.items():
        if arms:
            clauses.append(f"{PREDICATES[where]} for {listed(arms)}")
    return clauses


def listed(names: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    text = ", ".join(names[:NAMED_PLACES])
    if len(names) > NAMED_PLACES:
        text += f" and {len(names) - NAMED_PLACES} more"
    return text


def signs_answer(arms: Sequence[Sensitivity], base: str) -> list[str]:
    """What the other arms of the design do along the axes, each against `base` at the same point.

    All their points are in the table below.
    """
    sentences = [sign_words(of_arm, base) for of_arm in arms[:NAMED_PLACES]]
    if len(arms) > NAMED_PLACES:
        sentences.append(f"{plural(len(arms) - NAMED_PLACES, 'more arm')} below.")
    return sentences


def sign_words(of_arm: Sensitivity, base: str) -> str:
    """Whether an arm's sign holds over the points, and by how much."""
    better, worse, n = of_arm.with_sign(-1), of_arm.with_sign(1), len(of_arm.effects)
    start = f"{of_arm.arm} against {base} at the same point"
    if not better and not worse:
        return f"{start}: not told apart at any of {n}."
    if better and worse:
        ends = f"from {effect_at(better[0])} to {effect_at(worse[-1])}"
        return f"{start}: its sign turns, {ends}; {of_arm.words}."
    word, told = ("better", better) if better else ("worse", worse)
    if len(told) < n:
        most = max(told, key=lambda effect: abs(effect.delta))
        apart = f"{word} at {len(told)} of {n}, most by {effect_at(most)}"
        return f"{start}: {apart}; not told apart elsewhere."
    least = min(told, key=lambda effect: abs(effect.delta))
    return f"{start}: {word} at every one of {n}, least by {effect_at(least)}."


def effect_at(effect: PointEffect) -> str:
    """An effect with its interval, and where it is."""
    ends = interval(effect.low, effect.high, "loss_delta")
    return f"{show(effect.delta, 'loss_delta')} {ends} at {effect.point}"
