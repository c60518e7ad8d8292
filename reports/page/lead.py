"""What stands above the table of verdicts: what was compared with what, by which metric."""

from collections.abc import Sequence

from harness.run.plan import Plan
from harness.run.plural import plural
from reports.analysis.types import Comparisons
from reports.page.cells import metric_words
from reports.page.naming import NAMED, listing


def held_against(outcome: Comparisons) -> Sequence[str]:
    """Each arm with its parent."""
    held = []
    for arm in outcome.arms:
        link = outcome.increments.get((arm, outcome.primary))
        if link is not None:
            held.append(f"{arm} against {link.baseline}")
    return held


def lead(plan: Plan, outcome: Comparisons) -> str:
    """One sentence on what was compared and by which metric the verdict goes."""
    metric = metric_words(outcome.primary)
    if outcome.budget and outcome.primary in ("val_loss", *outcome.own):
        metric += f" after {plural(outcome.budget, 'step')}"
    if outcome.primary in outcome.own:
        metric += f" ({outcome.own[outcome.primary].better} is better)"
    text = f"Every arm against {outcome.baseline}, judged by {metric}."
    if plan.design == "chain" and outcome.increments:
        text = (
            f"The verdict is about what an arm adds to its parent, judged by {metric}:"
            f" {', '.join(held_against(outcome))}. Differences to {outcome.baseline} are of all"
            f" parts up to there together.{two_intervals(outcome)}"
        )
    elif outcome.increments:
        text = (
            f"The verdict is about an arm's own part: the arm against the one before it, judged by"
            f" {metric}. Differences to {outcome.baseline} are of all parts up to there together."
            f"{two_intervals(outcome)}"
        )
    if plan.target is None:
        return text
    loss = plan.target.val_loss
    text += " Target loss " + ("not set yet" if loss is None else f"{loss:g} {plan.corpus.unit}")
    if plan.target.reason:
        text += f" (as planned: {plan.target.reason})"
    return f"{text}."


def two_intervals(outcome: Comparisons) -> str:
    """Why an arm that is held against the baseline has one difference in two intervals."""
    both = []
    for arm in outcome.arms:
        link = outcome.increments.get((arm, outcome.primary))
        if link and link.baseline == outcome.baseline and outcome.of(arm, outcome.primary):
            both.append(arm)
    if not both:
        return ""
    return (
        f" Of {listing(both, most=NAMED)} own part and Δ are one difference in two intervals: each"
        " column's hold for all of its rows at once, so that they are not equally wide."
    )
