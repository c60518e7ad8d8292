"""Why a printed change of the step time is not that of the printed means."""

from collections.abc import Iterator

from reports.analysis.types import Comparisons, effect
from reports.format import show
from reports.page.naming import NAMED

APART = 0.02  # of the baseline's: below it nobody sees two numbers


def are_apart(of_means: float, of_blocks: float) -> bool:
    """Whether a reader sees two numbers: far from one another, or printed with other signs."""
    texts = [show(value, "percent") for value in (of_means, of_blocks)]
    return abs(of_means - of_blocks) > APART or {text[0] for text in texts} == {"+", "−"}


def ratio_notes(outcome: Comparisons) -> Iterator[str]:
    """Of the arms whose means and ratio are apart for the eye, the furthest first."""
    means = {arm: cell.mean.get("step_ms") for arm, cell in outcome.cells.items()}
    base, apart = means.get(outcome.baseline), {}
    for arm in outcome.arms:
        c, mean = outcome.of(arm, "step_ms"), means.get(arm)
        if c is not None and base and mean:
            apart[arm] = (mean / base - 1, effect(c)[0])
    apart = {arm: two for arm, two in apart.items() if are_apart(*two)}
    if not apart:
        return
    told = []
    for arm in sorted(apart, key=lambda arm: -abs(apart[arm][0] - apart[arm][1])):
        of_means, of_blocks = (show(value, "percent") for value in apart[arm])
        told.append(f"{arm} {of_means} and {of_blocks}")
    more = f" and {len(told) - NAMED} more" if len(told) > NAMED else ""
    yield (
        f"Off {outcome.baseline}'s step time by the means in ms and by Δ:"
        f" {'; '.join(told[:NAMED])}{more}. Δ is the mean of the ratios within blocks, which one"
        " slow run moves less than it moves the mean in ms; it is Δ that is judged."
    )
