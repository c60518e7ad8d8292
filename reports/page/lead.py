"""What stands above the table of verdicts: what was compared with what, by which metric."""

from collections.abc import Iterable, Sequence

from harness.run.plan import Plan
from harness.run.plural import plural
from reports.analysis.increments import rungs_of
from reports.analysis.types import Comparisons
from reports.page.cells import metric_words
from reports.page.naming import NAMED, listing
from reports.stats.contrasts import Method

OF_ALL_ARMS = (
    "An interval is as wide as the scatter of all arms within blocks makes it, or that of one arm"
    " beside the others where that is wider (two-way model)"
)
NOISE_MODELS = {
    Method.TWO_WAY: f"{OF_ALL_ARMS}: one arm's small paired sd does not narrow it.",
    Method.TWO_WAY_SHARED: f"{OF_ALL_ARMS}: one arm's small paired sd does not narrow it.",
    Method.MODERATED: f"{OF_ALL_ARMS}, with the declared noise of earlier runs.",
    Method.PAIRED: "An interval of an arm that alters the noise rests on its own paired sd.",
    Method.WELCH: "Without common blocks an interval rests on the sds of both arms.",
    Method.SEQUENCE: "An interval rests on the arm's own paired sd, and holds at every look.",
}


def held_against(outcome: Comparisons, arms: Iterable[str]) -> Sequence[str]:
    """Each arm with its parent."""
    held = []
    for arm in arms:
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
        held = ", ".join(held_against(outcome, outcome.arms))
        text = (
            f"The verdict is about what an arm adds to its parent, judged by {metric}: {held}."
            f" Differences to {outcome.baseline} are of all"
            f" parts up to there together.{two_intervals(outcome)}"
        )
    elif outcome.increments:
        text = (
            f"The verdict is about an arm's own part: the arm against {outcome.own_words.briefly},"
            f" judged by {metric}.{beside_the_rungs(plan, outcome)} Differences to"
            f" {outcome.baseline} are of all parts up to there together.{two_intervals(outcome)}"
        )
    text += noise_model(outcome)
    if plan.target is None:
        return text
    loss = plan.target.val_loss
    text += " Target loss " + ("not set yet" if loss is None else f"{loss:g} {plan.corpus.unit}")
    if plan.target.reason:
        text += f" (as planned: {plan.target.reason})"
    return f"{text}{bracket_words(outcome)}."


def beside_the_rungs(plan: Plan, outcome: Comparisons) -> str:
    """What the arms of another length are held against; '' where there are none."""
    rungs = rungs_of(plan)
    held = held_against(outcome, [arm for arm in outcome.arms if arm not in rungs])
    return f" Of another length: {listing(held, most=NAMED)}." if held else ""


def bracket_words(outcome: Comparisons) -> str:
    """Of which arms alone the budgets lie on both sides of the target, where not of all."""
    times = outcome.times
    if not any(time.extrapolated and not time.slope_given for time in times.values()):
        return ""
    within = [arm for arm, time in times.items() if time.seconds and not time.extrapolated]
    if not within:
        return "; as it came out, no arm's budgets lie on both sides of it"
    named = listing(within, most=NAMED)
    return f"; as it came out, the budgets lie on both sides of it for {named} alone"


def noise_model(outcome: Comparisons) -> str:
    """By which noise the intervals of the metric that decides are as wide as they are."""
    judged = [outcome.judged(arm) for arm in outcome.arms]
    methods = dict.fromkeys(c.method for c in judged if c is not None and c.low is not None)
    models = dict.fromkeys(NOISE_MODELS[method] for method in methods if method in NOISE_MODELS)
    return "".join(f" {model}" for model in models)


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
