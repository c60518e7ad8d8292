"""The headline: what the runs answer, and what that holds for."""

import math
from collections.abc import Mapping, Sequence

from reports.analysis.increments import rungs_of
from reports.analysis.interactions import Interplay
from reports.analysis.recipe import Recipe
from reports.analysis.types import LOSSES, Comparison, Comparisons, effect
from reports.figures.effects import effect_text
from reports.figures.interactions import changes_in_words, interplay_words
from reports.format import show
from reports.inputs.experiment import Experiment
from reports.page.by_design import ByDesign
from reports.page.cells import metric_words
from reports.page.places import optimum_answer, signs_answer
from reports.page.scope import conditions, shares_answer
from reports.page.selection import halving_answer

EXPLORATORY = "Exploratory: "  # how a headline begins that nothing has confirmed
NAMED = 4  # arms that a sentence names; the rest is counted
OPENINGS = ("All ", "Undecided ", "The loss ", "The changes ", "Whether ")  # small after a colon


def headline(
    experiment: Experiment, outcome: Comparisons, by_design: ByDesign, recipe: Recipe
) -> str:
    """At what size and rates, then the answer.

    A Shapley design's begins with the shares, any other in which changes were combined with
    whether they add up, an axis's with the place of the lowest loss.
    """
    judged = [outcome.judged(arm) for arm in outcome.arms]
    compared = [c for c in judged if c is not None]
    if not compared:
        return without_comparison(outcome)
    selected = halving_answer(experiment, outcome)
    if selected:
        return selected
    sentences, unit = [], experiment.plan.corpus.unit
    is_decided = any(c.kind in ("helps", "hurts") for c in compared)
    pairs = [e for e in by_design.interactions if len(e.changes) == 2]
    shares = shares_answer(experiment.plan, by_design.contributions, outcome)
    if shares:
        is_decided = True
        sentences.append(shares)
    adding = adding_up(pairs, unit)
    if adding:
        is_decided = is_decided or any(leaves_zero(pair) for pair in pairs)
        sentences.append(adding)
    along_axes = optimum_answer(by_design.lowest)
    if along_axes:
        is_decided = is_decided or any(optimum.is_resolved for optimum in by_design.lowest)
        sentences.append(along_axes)
    if along_axes and all(optimum.surface is None for optimum in by_design.lowest):
        is_decided = is_decided or any(e.sign for of_arm in by_design.signs for e in of_arm.effects)
        sentences += signs_answer(by_design.signs, design_baseline(experiment))
        sentences += lowest_heldout(outcome, unit)
    else:
        if not shares:  # which the arms of a Shapley design are there for
            sentences.append(sentence_on(outcome, outcome.primary, unit))
        if any(outcome.of(arm, "heldout_loss") for arm in outcome.arms):
            sentences.append(sentence_on(outcome, "heldout_loss", unit))
    top = outcome.of(rungs_of(experiment.plan)[-1], outcome.primary)
    if outcome.increments and experiment.plan.design == "ladder" and top is not None:
        sentences.append(
            f"All parts together: {effect_text(top)} against {top.baseline}, {top.verdict}."
        )
    text = " ".join(sentences)
    setting = conditions(recipe, outcome)
    if setting:
        if text.startswith(OPENINGS):  # else it begins with an arm's name
            text = text[:1].lower() + text[1:]
        text = f"at {setting}: {text}"
    if is_decided and any(c.exploratory for c in compared):
        return EXPLORATORY + text
    if setting:
        text = text[:1].upper() + text[1:]
    return text


def leaves_zero(pair: Interplay) -> bool:
    return pair.low is not None and pair.high is not None and (pair.low > 0 or pair.high < 0)


def adding_up(pairs: Sequence[Interplay], unit: str) -> str:
    """Whether the changes add up: the interactions whose intervals leave zero, the largest first.

    Where none does, the largest; '' without an interval. unit: of a loss.
    """
    told = [pair for pair in pairs if pair.low is not None and pair.high is not None]
    told.sort(key=lambda pair: -abs(pair.estimate))
    if not told:
        return ""
    apart = [pair for pair in told if leaves_zero(pair)]
    named = [f"{changes_in_words(pair)} {interplay_words(pair)}" for pair in apart or told[:1]]
    said = f"beyond the sum of two ({unit}, above zero is worse), {listing(named, most=NAMED)}"
    if apart:
        return f"The changes do not add up: {said}."
    return f"Whether the changes add up is undecided; the largest interaction: {said}."


def design_baseline(experiment: Experiment) -> str:
    """The baseline as the arm of the design whose points cross the axes."""
    plan = experiment.plan
    return plan.by_arm[plan.baseline].of or plan.baseline


def lowest_heldout(outcome: Comparisons, unit: str) -> list[str]:
    """Which point of the axes has the lowest mean on the held-out text, where there is one."""
    means = {}
    for arm, cell in outcome.cells.items():
        if "heldout_loss" in cell.mean:
            means[arm] = cell.mean["heldout_loss"]
    if not means:
        return []
    lowest = min(means, key=means.__getitem__)
    loss = show(means[lowest], "loss")
    return [f"The lowest mean held-out loss ({unit}) is that of {lowest}, {loss}."]


def sentence_on(outcome: Comparisons, name: str, unit: str) -> str:
    """What the runs say of a metric: what helps, what hurts, what is equal, what is undecided.

    unit: of a loss, named once.
    """
    compared: dict[str, Comparison] = {}
    groups: dict[str, list[str]] = {"helps": [], "hurts": [], "equal": [], "open": []}
    for arm in outcome.arms:
        c = outcome.judged(arm, name)
        if c is not None:
            compared[arm] = c
        if c is None or (c.kind not in groups and not c.is_bit_equal):
            groups["open"].append(arm)
        elif c.is_bit_equal:
            groups["equal"].append(arm)
        else:
            groups[c.kind].append(arm)
    metric = metric_words(name)
    other, clauses = outcome.baseline, []
    if outcome.increments:
        other = outcome.own_words.before.removesuffix(" it")
    for kind, comparative in (("helps", "better"), ("hurts", "worse")):
        if groups[kind]:
            effects = {arm: compared[arm] for arm in groups[kind]}
            clauses.append(f"{with_effects(effects)} {comparative} than {other} in {metric}")
    if groups["equal"]:
        verb = verb_for(groups["equal"], "shows", "show")
        equal = listing(measured(groups["equal"], compared), most=NAMED)
        clauses.append(f"{equal} {verb} no difference that matters in {metric}")
    if groups["open"]:
        undecided = listing(measured(groups["open"], compared), most=NAMED)
        if clauses:
            clauses.append(f"{undecided} {verb_for(groups['open'], 'is', 'are')} undecided")
        else:
            clauses.append(f"Undecided in {metric}: {undecided}")
    text = f"{'; '.join(clauses)}."
    if name in LOSSES:
        return text.replace(metric, f"{metric} ({unit})", 1)
    return text


def measured(arms: Sequence[str], compared: Mapping[str, Comparison]) -> list[str]:
    """The arms, each with its effect where it has one; the best first where some are counted."""
    named = []
    if len(arms) > NAMED:
        arms = sorted(arms, key=lambda arm: loss_gained(compared.get(arm)), reverse=True)
    for arm in arms:
        effects = ""
        if arm in compared:
            effects = f" ({effect_text(compared[arm])})"
        named.append(f"{arm}{effects}")
    return named


def loss_gained(c: Comparison | None) -> float:
    """By how much an arm is better, as its effect is told; below all others where it has none."""
    if c is None:
        return -math.inf
    return effect(c)[0] if c.better == "higher" else -effect(c)[0]


def without_comparison(outcome: Comparisons) -> str:
    if any(cell.n_finished for cell in outcome.cells.values()):
        return "No arm can be compared to the baseline yet."
    if any(cell.n_stale for cell in outcome.cells.values()):
        return (
            "The finished runs are of an older source and were left out, so there is no answer: "
            "run the experiment again, or admit them with --accept-stale."
        )
    return "No run has finished yet, so there is no answer."


def with_effects(comparisons: Mapping[str, Comparison]) -> str:
    """The arms with their effects, the largest first, and the verb."""
    sizes = {arm: abs(effect(c)[0]) for arm, c in comparisons.items()}
    arms = sorted(sizes, key=sizes.__getitem__, reverse=True)
    named = [f"{arm} ({effect_text(comparisons[arm])})" for arm in arms]
    return f"{listing(named, most=NAMED)} {verb_for(arms, 'is', 'are')}"


def verb_for(names: Sequence[str], singular: str, plural: str) -> str:
    if len(names) == 1:
        return singular
    return plural


def listing(names: Sequence[str], *, most: int) -> str:
    """Names as a sentence has them; beyond `most` the rest is counted."""
    if len(names) > most:
        return ", ".join(names[:most]) + f" and {len(names) - most} more"
    if len(names) == 1:
        return names[0]
    return ", ".join(names[:-1]) + " and " + names[-1]
