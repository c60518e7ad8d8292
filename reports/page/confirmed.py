"""What came out where a page's question was asked again on fresh seeds, and what is left open."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.run.plan import Plan, PlanArm
from harness.run.plural import plural
from reports.analysis.comparison import is_confirmed_by_command
from reports.analysis.increments import judged_pairs
from reports.analysis.types import Comparisons
from reports.inputs.experiment import Experiment
from reports.page.by_design import Confirmation
from reports.page.headline import sentence_on
from reports.page.naming import NAMED, arms_listed, verb_for
from reports.page.related import address_of
from reports.page.selection import confirmation_of


@dataclass(frozen=True, kw_only=True)
class AskedAgain:
    """What another experiment says: its beginning, its name with the address, what came out."""

    words: str
    name: str
    address: str
    answer: str
    is_complete: bool  # no run of it is to come

    @property
    def sentence(self) -> str:
        """All of it."""
        return f"{self.words} ({self.name}): {self.answer}"


def asked_again(experiment: Experiment, confirmed: Sequence[Confirmation]) -> list[AskedAgain]:
    """Of each that asked again; of one with runs to come how many, for it may not be looked at."""
    told = []
    for other in confirmed:
        plan, outcome = other.experiment.plan, other.outcome
        lead = f"Asked again on {plural(len(plan.seeds), 'fresh seed')} since"
        if are_whole(experiment.plan, plan):
            outcome = in_full(outcome, plan)
        answer = sentence_on(outcome, outcome.primary, plan.corpus.unit)
        if other.n_to_come:
            lead = f"Being asked again on {plural(len(plan.seeds), 'fresh seed')}"
            answer = f"{plural(other.n_to_come, 'run')} to come."
        address = address_of(experiment, plan.name)
        told.append(
            AskedAgain(
                words=lead,
                name=plan.name,
                address=address,
                answer=answer,
                is_complete=not other.n_to_come,
            )
        )
    return told


def are_whole(plan: Plan, later: Plan) -> bool:
    """Whether a later experiment's arms are whole, where a page judges the part each adds."""
    return bool(judged_pairs(plan)) and not judged_pairs(later)


def in_full(outcome: Comparisons, plan: Plan) -> Comparisons:
    """The same with arms named by all their changes, since a ladder's has the name of its last."""
    names = {arm.name: " + ".join(arm.changes) or arm.name for arm in plan.arms}
    if len({*names.values()}) < len(names):
        return outcome
    comparisons = {(names[arm], metric): c for (arm, metric), c in outcome.comparisons.items()}
    return replace(outcome, arms=tuple(names[arm] for arm in outcome.arms), comparisons=comparisons)


def not_asked_again(experiment: Experiment, confirmed: Sequence[Confirmation]) -> list[str]:
    """The arms that no other experiment asked again."""
    asked = {key_of(arm) for other in confirmed for arm in other.experiment.plan.arms}
    return [arm.name for arm in experiment.plan.arms if key_of(arm) not in asked]


def asking_the_rest(plan: Plan, arms: Sequence[str], *, of_parts: bool) -> str:
    """What asks again of undecided arms that nobody asked again; '' where there are none.

    of_parts: each is judged by its own part, for which the arm before it has to run too."""
    if not arms:
        return ""
    command = "a new experiment"
    if is_confirmed_by_command(plan):
        named = [] if of_parts or len(arms) > NAMED else arms
        command = confirmation_of(plan, *named, file="FILE")
    names, verb = arms_listed(arms), verb_for(arms, "is", "are")
    whose = " in their own parts" if of_parts else ""
    return f"{command}, for {names}, which {verb} undecided here{whose} and not asked again"


def undecided(outcome: Comparisons, arms: Sequence[str]) -> list[str]:
    """Those of the arms that are."""
    judged = {arm: outcome.judged(arm) for arm in arms if arm in outcome.arms}
    return [arm for arm, c in judged.items() if c is not None and c.kind == "undecided"]


def key_of(arm: PlanArm) -> tuple[frozenset[str], frozenset[tuple[str, str]]]:
    """What an arm is in whatever experiment: its changes, its point on axes."""
    return frozenset(arm.changes), frozenset(arm.point.items())
