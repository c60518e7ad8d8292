"""What a halving has selected: chosen by the runs that are shown, which therefore judge nothing."""

from itertools import pairwise
from shlex import quote, split

from harness.run.plan import Plan
from harness.run.plural import plural
from reports.analysis.adaptive import best_points
from reports.analysis.samples import pending
from reports.analysis.types import Comparisons
from reports.format import show
from reports.inputs.experiment import Experiment
from reports.page.command_words import without_folders


def chosen_points(experiment: Experiment) -> list[str]:
    """The points that a rung chooses, the best first; [] before all of its runs have ended."""
    halving = experiment.plan.halving
    if halving is None or pending(experiment):
        return []
    try:
        return best_points(experiment, halving.n_chosen)
    except ValueError:
        return []


def is_better(outcome: Comparisons, arm: str) -> bool:
    """Whether an arm's mean loss is below the baseline's."""
    c = outcome.of(arm, "val_loss")
    return c is not None and c.delta < 0


def confirmation_of(plan: Plan, *arms: str, file: str = "") -> str:
    """The command that asks again of these arms; file: that it is to write."""
    options = "".join(f" --arm {quote(arm)}" for arm in arms) + (f" -o {file}" if file else "")
    return f"`ablate confirm {as_typed(plan)}{options}`"


def as_typed(plan: Plan) -> str:
    """The experiment as a command takes it: the file and the settings that were typed."""
    try:
        typed = split(without_folders(plan.command))
    except ValueError:
        typed = []
    known_as = plan.name
    if f"name={plan.name}" in typed and typed[:2] == ["ablate", "run"]:
        known_as = typed[2]  # it has its name by a setting
    file = next((word for word in typed if word.endswith((".yaml", ".yml"))), known_as)
    settings = [f" --set {quote(value)}" for word, value in pairwise(typed) if word == "--set"]
    return f"{quote(file)}{''.join(settings)}"


def halving_answer(experiment: Experiment, outcome: Comparisons) -> str:
    """Which points a rung chooses, by which losses, and what would judge the selected one.

    '' of what is no halving."""
    plan, halving = experiment.plan, experiment.plan.halving
    if halving is None:
        return ""
    n, at = len(outcome.arms), f"at {plural(halving.budgets[halving.rung], 'step')}"
    start = f"Halving, {halving.words}"
    chosen = chosen_points(experiment)
    if not chosen:
        points = f"{plural(n, 'point')} {at}"
        return f"{start}: {points}, of which none is chosen before all runs have ended."
    named = [f"{arm} ({measured_difference(outcome, arm)})" for arm in chosen]
    if not halving.is_last:
        return (
            f"{start}: of {plural(n, 'point')} {at} {', '.join(named)} go on to "
            f"{halving.budgets[halving.rung + 1]} steps; these runs choose and judge nothing."
        )
    steps = ", ".join(map(str, halving.budgets))
    text = (
        f"Selected by halving: {named[0]} from the baseline {at}, the best of {halving.n_points} "
        f"points by their losses at {steps} steps. These runs chose it, so that they judge nothing"
    )
    if not is_better(outcome, chosen[0]):
        return f"{text}; it is no better than the baseline in them, and asks for no fresh runs."
    return (
        f"{text}: {confirmation_of(plan, chosen[0])} asks fresh seeds, whose runs alone judge it."
    )


def measured_difference(outcome: Comparisons, arm: str) -> str:
    """Of an arm's loss from the baseline's, as measured."""
    c = outcome.of(arm, "val_loss")
    return "no loss" if c is None else show(c.delta, "loss_delta")
