"""How to read the verdicts of a page: each kind on it, by the arm that shows it best."""

from reports.analysis.types import Comparison, Comparisons, effect
from reports.figures.forest import effect_text

SIDES_OF_ZERO = {"helps": "on the better side of zero", "hurts": "on the worse side of zero"}
LEAVES_ZERO = "A verdict is better or worse (faster or slower) where the interval leaves zero"
VERDICT_RULES = {  # whether a margin was declared -> how verdicts follow from intervals
    True: (
        f"{LEAVES_ZERO}, be it within the margin or beyond; no difference larger than the margin"
        " where it holds zero and lies within the margin; else undecided."
    ),
    False: f"{LEAVES_ZERO}; else undecided.",
}
WHAT_FOLLOWS = {
    "helps": "chance alone shows such a difference in fewer than one of 20 experiments",
    "hurts": "chance alone shows such a difference in fewer than one of 20 experiments",
    "equal": "a difference that matters is as good as ruled out; a large p would not say that",
    "undecided": (
        "these runs neither show a difference nor rule out one that matters; it is no sign that "
        "there is none"
    ),
}


def reading(outcome: Comparisons, margin: float | None) -> list[tuple[str, str]]:
    """(verdict, what it rests on) of one arm of each kind that was judged.

    margin: the largest difference that does not matter, in the unit of the primary metric.
    """
    by_kind: dict[str, Comparison] = {}
    for arm in outcome.arms:
        c = outcome.judged(arm)
        if c is None or c.kind not in WHAT_FOLLOWS or c.low is None or c.high is None:
            continue
        shown = by_kind.get(c.kind)
        if shown is None or abs(effect(c)[0]) > abs(effect(shown)[0]):
            by_kind[c.kind] = c
    lines = [("the rule", VERDICT_RULES[margin is not None])] if by_kind else []
    for kind, meaning in WHAT_FOLLOWS.items():
        if kind in by_kind:
            c = by_kind[kind]
            example = f"of {c.arm}, {effect_text(c)},"
            lines.append((c.verdict, f"The interval {example} {where(c, margin)}: {meaning}."))
    return lines


def where(c: Comparison, margin: float | None) -> str:
    """Where an interval lies, of which its verdict follows."""
    if c.kind in SIDES_OF_ZERO:
        return f"lies wholly {SIDES_OF_ZERO[c.kind]}"
    if margin is None:
        return "holds zero, and no margin says how small a difference would be none"
    if c.kind == "equal":
        return f"lies wholly within the margin of {margin:g} that was declared before the first run"
    return f"holds zero and reaches beyond the margin of {margin:g}"
