"""What to type next: what a question costs and is asked with, the page again, its verification."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.run.plan import Plan
from harness.run.plural import plural
from reports.analysis.optimum import GridAxis, Lowest, Optimum
from reports.analysis.plugin_rates import plugin_rates
from reports.analysis.recipe import Recipe
from reports.analysis.samples import pending
from reports.analysis.sensitivity import Sensitivity
from reports.analysis.types import Comparison, Comparisons
from reports.inputs.experiment import Experiment
from reports.page.asking import asked_steps
from reports.page.by_design import ByDesign, Confirmation
from reports.page.command_words import OF_RESULTS, without_folders
from reports.page.confirmed import are_whole, asking_the_rest, in_full, not_asked_again, undecided
from reports.page.headline import loss_gained
from reports.page.naming import NAMED, arms_listed, listing
from reports.page.places import place_words
from reports.page.scope import grid_for, moves_rates
from reports.page.selection import as_typed, chosen_points, confirmation_of, is_better
from reports.stats.digits import settled
from reports.stats.verdicts import ACCEPT

NO_STEP = "nothing that these runs ask for"


@dataclass(frozen=True, kw_only=True)
class NextRun:
    """What to run next, and what is said before and after it."""

    lead: str = "What to run next: "
    step: str
    note: str = ""

    def __str__(self) -> str:
        return f"{self.lead}{self.step}.{self.note}"

    def asks_for_no_run(self) -> bool:
        """Whether it asks for nothing, or for an interval to be taken as the answer."""
        return self.step == NO_STEP or self.step.startswith(ACCEPT)

    def with_runs(self, step: str) -> "NextRun":
        """The same with these runs as its step; that an interval is taken is said after them."""
        if self.step != NO_STEP:
            step += f". {self.step[0].upper()}{self.step[1:]}"
        return replace(self, step=step)


def next_of_verdicts(experiment: Experiment, outcome: Comparisons, by_design: ByDesign) -> str:
    """What helps, and what to run next, in one sentence; '' where nothing is judged."""
    return str(next_run(experiment, outcome, by_design) or "")


def next_run(experiment: Experiment, outcome: Comparisons, by_design: ByDesign) -> NextRun | None:
    """What helps, and what to run next; None where nothing is judged."""
    judged: dict[str, Comparison] = {}
    for arm in outcome.arms:
        c = outcome.judged(arm)
        if c is not None:
            judged[arm] = c
    if experiment.plan.imported or not judged:
        return None
    if by_design.confirmed:
        return next_of_confirmed(experiment, outcome, by_design.confirmed)
    if experiment.plan.halving:
        return next_of_halving(experiment, outcome)
    helping = [arm for arm, c in judged.items() if c.kind == "helps"]
    places = [place for place in by_design.lowest if place.where is not Lowest.FEW_DRAWN]
    if places and not pending(experiment):
        points = sorted(helping, key=lambda arm: judged[arm].delta)
        following = next_of_axes(experiment.plan, places, by_design.signs, points)
        if following.step == NO_STEP:
            return replace(following, step=unasked(experiment, outcome))
        return following
    helps = listing(helping or ["nothing"], most=NAMED)
    other = outcome.own_words.before if outcome.increments else outcome.baseline
    asking = asked_steps(outcome)
    to_confirm = [arm for arm in helping if judged[arm].exploratory]
    if to_confirm and experiment.memory.confirmed_by:
        asked_again = listing(experiment.memory.confirmed_by, most=NAMED)
        step = f"nothing before what {asked_again} says, which asked again on fresh seeds"
    elif to_confirm and not (asking and pending(experiment)):
        best = max(to_confirm, key=lambda arm: loss_gained(judged[arm]))
        step = confirmation(experiment.plan, best)
        if asking:
            step += f" whether {best} helps (the table has what would decide the others)"
    elif asking:
        step = asking[0].words(experiment.plan)
        if len(asking) > 1:
            step += " (the table has the others')"
    else:
        step = unasked(experiment, outcome)
    lead = f"Shown to be better than {other}: {helps}. What to run next: "
    return NextRun(lead=lead, step=step)


def next_of_confirmed(
    experiment: Experiment, outcome: Comparisons, confirmed: Sequence[Confirmation]
) -> NextRun:
    """What the last experiment that asked again says to run; of an unfinished one its rest."""
    last = confirmed[-1]
    if last.n_to_come:
        to_come = f"{plural(last.n_to_come, 'run')} to come, which asks again on fresh seeds"
        return NextRun(step=f"the rest of {last.experiment.name}, {to_come}")
    of_parts = are_whole(experiment.plan, last.experiment.plan)
    named = in_full(last.outcome, last.experiment.plan) if of_parts else last.outcome
    told = next_run(last.experiment, named, last.by_design)
    if told is None:
        told = NextRun(
            step=f"what did not finish of {last.experiment.name}, which judges nothing yet"
        )
    left = not_asked_again(experiment, confirmed)
    if told.asks_for_no_run():
        arms = undecided(outcome, outcome.arms if of_parts else left)
        asking = asking_the_rest(experiment.plan, arms, of_parts=of_parts)
        if asking:
            told = told.with_runs(asking)
        left = [arm for arm in left if arm not in arms]
    note = f" Not asked again: {arms_listed(left)}." if left else ""
    return replace(told, lead=f"By {last.experiment.name}: {told.lead}", note=told.note + note)


def next_of_halving(experiment: Experiment, outcome: Comparisons) -> NextRun:
    """What to run after a rung."""
    plan, chosen = experiment.plan, chosen_points(experiment)
    if plan.halving is not None and not (plan.halving.is_last and chosen):
        return NextRun(step=f"{quoted_command(plan)}, which goes on with the halving")
    if not is_better(outcome, chosen[0]):
        return NextRun(step=NO_STEP)
    return NextRun(step=confirmation(plan, chosen[0]))


def quoted_command(plan: Plan) -> str:
    """What made the runs, to be typed again."""
    return f"`{without_folders(plan.command or f'ablate run {plan.name}')}`"


def unasked(experiment: Experiment, outcome: Comparisons) -> str:
    """What to run where the verdicts ask for nothing: other rates of a plug-in that has its own."""
    swept = {part.strip() for axis in experiment.plan.axes for part in axis.split(",")}
    for arm, fields in plugin_rates(Recipe.of(experiment, outcome.budget)).items():
        if fields and not swept.intersection(fields):
            over = listing(fields, most=NAMED)
            return f"an axis over {over}, for {arm} moves by rates of a plug-in"
    return NO_STEP


def confirmation(plan: Plan, best: str) -> str:
    """What asks again: of a sweep of the baseline alone its best point, which is one comparison."""
    if plan.foreign:
        return "a new experiment, which asks again on fresh runs"
    alone = all(arm.of == plan.baseline for arm in plan.arms)
    command = confirmation_of(plan, best) if alone else f"`ablate confirm {as_typed(plan)}`"
    return f"{command}, which asks again on fresh seeds"


def next_of_axes(
    plan: Plan,
    places: Sequence[Optimum],
    of_arms: Sequence[Sensitivity],
    points: Sequence[str],
) -> NextRun:
    """What helps along axes that cross the arms, and what to run next.

    points: that are better than the baseline, the best first: what helps in a sweep of it alone."""
    helping = list(points)
    if of_arms:
        helping = [s.arm for s in of_arms if s.with_sign(-1) and not s.with_sign(1)]
    turning = [s.arm for s in of_arms if s.with_sign(-1) and s.with_sign(1)]
    beyond = [o for o in places if o.where in (Lowest.FIRST, Lowest.LAST)]
    ending = [o for o in places if o.is_resolved and o.value and None in (o.low, o.high)]
    open_places = [o for o in places if not o.is_resolved]
    helps = listing(helping or ["nothing"], most=NAMED)
    if turning:
        helps += f", and {listing(turning, most=NAMED)} at some points alone"
    if plan.draw and helping and not plan.confirm:
        step = confirmation(plan, helping[0])
    elif beyond:
        step = further(plan, of_first_arm(beyond), open_places)
    elif open_places:
        step = resolving(of_first_arm(open_places))
    elif ending:
        step = further(plan, of_first_arm(ending), open_places)
    elif grid_for(plan):
        step = NO_STEP
    elif turning and moves_rates(plan) and plan.estimand != "retuned":
        step = "the same with `estimand: retuned`, every arm at its own best rates on fresh seeds"
    elif helping and not plan.confirm:
        step = confirmation(plan, helping[0])
    else:
        step = NO_STEP
    lead = f"Shown to be better: {helps}. What to run next: "
    if grid_for(plan):
        lead = (
            f"What helps is judged by {grid_for(plan)}, whose rates these runs choose. What to run"
            " next, for rates that are better known: "
        )
    return NextRun(lead=lead, step=step)


def of_first_arm(places: Sequence[Optimum]) -> list[Optimum]:
    """The places of the first arm that has one, along each of its axes."""
    return [o for o in places if o.arm == places[0].arm]


def resolving(places: Sequence[Optimum]) -> str:
    """What resolves the places of an arm along its axes, none of which is told."""
    arm, names = places[0].arm, " and ".join(o.axis.name for o in places)
    if places[0].doubt:
        return f"points drawn between narrower ends, for the quadratic of {arm} does not fit"
    if places[0].where is Lowest.TOO_FEW:
        return f"more points of {names}, for {arm} has too few whole ones"
    wider = f"a wider {names}" if len(places) == 1 else f"wider {names}"
    return f"more seeds or {wider}, for {arm} has no resolved place yet"


def further(plan: Plan, places: Sequence[Optimum], untold: Sequence[Optimum]) -> str:
    """Longer axes for an arm whose lowest place lies at or beyond their ends, or may.

    untold: the places of arms that are not resolved."""
    arm, at = places[0].arm, [place_words(o) for o in places]
    step = f"a longer axis, `{longer(plan, places[0])}`, for"
    if len(places) > 1:
        step = f"longer axes, {' and '.join(f'`{longer(plan, o)}`' for o in places)}, for"
        at = [f"{o.axis.name} {place}" for o, place in zip(places, at, strict=True)]
    if any(o.where is Lowest.INSIDE for o in places):
        points = "points" if places[0].is_drawn else "grid"
        return f"{step} the lowest place of {arm} may lie beyond the {points}"
    unresolved = [o.axis.name for o in untold if o.arm == arm]
    step = f"{step} {arm} is lowest at {' and '.join(at)}"
    return f"{step}, and not resolved along {' and '.join(unresolved)}" if unresolved else step


def longer(plan: Plan, o: Optimum) -> str:
    """An axis as a file has it, with one point more where it is open, as far as the last two are.

    Between drawn points' ends that end moves, by half of what they are apart."""
    name, points, part = o.axis.name, [*o.axis.words], 1.0
    if plan.draw:
        points, part = [str(end) for end in plan.axes[name]], 0.5
    values = replace(o.axis, words=tuple(points)).values
    at_start = o.where is Lowest.FIRST or (o.where is Lowest.INSIDE and o.low is None)
    at_end = o.where is Lowest.LAST or (o.where is Lowest.INSIDE and o.high is None)
    before, after = [], []
    if at_start:
        before = [as_on_axis(o.axis, beyond_end(o.axis, values[0], values[1], part))]
    if at_end:
        after = [as_on_axis(o.axis, beyond_end(o.axis, values[-1], values[-2], part))]
    if plan.draw:
        points = points[len(before) : len(points) - len(after)]
    return f"{name}: [{', '.join([*before, *points, *after])}]"


def beyond_end(axis: GridAxis, end: float, neighbour: float, part: float) -> float:
    """The place that follows an end of an axis, so far on as part of its last step."""
    if axis.is_logarithmic:
        return end * (end / neighbour) ** part
    return end + part * (end - neighbour)


def as_on_axis(axis: GridAxis, value: float) -> str:
    """A new point, in the words of those that there are."""
    return f"{'x' if axis.words[0].startswith('x') else ''}{settled(value):.3g}"


def commands(name: str, plan: Plan, here: Sequence[str] = ()) -> list[str]:
    """What to type to make the results, the page, and its verification.

    here: what asks a page of published evidence's question on this machine.
    """
    verify = "ablate verify PAGE.html    # this page's file: recompute every number on it"
    again = f"ablate report {name}    # this page again, from"
    if plan.evidence:
        return [*here, f"{again} the published tables", verify]
    run = without_folders(plan.command or f"ablate run {name}")
    if OF_RESULTS in run.split():
        again = f"ablate report {name} --results {OF_RESULTS}    # this page again, from"
    purpose = "runs what is missing, then writes this page"
    if "--no-report" in run.split():
        purpose = "runs what is missing"
    if plan.imported:
        purpose = "brings in the logs that are not there yet"
    return [
        f"{run}    # {purpose}",
        f"{again} the results alone",
        verify,
    ]
