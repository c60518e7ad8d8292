"""The headline: what the runs answer, and what that holds for."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from harness.run.plural import plural
from reports.analysis.increments import rungs_of
from reports.analysis.recipe import Recipe
from reports.analysis.types import LOSSES, Comparison, Comparisons, effect
from reports.figures.forest import effect_text
from reports.format import show
from reports.inputs.experiment import Experiment
from reports.page.adding_up import adding_up, exceeds_shares, pairs_apart
from reports.page.by_design import ByDesign
from reports.page.cells import metric_words
from reports.page.naming import NAMED, listing, verb_for
from reports.page.places import optimum_answer, signs_answer
from reports.page.scope import conditions, shares_answer
from reports.page.selection import halving_answer

COUNTED_ABOVE = 6  # arms beyond which a sentence counts them and names those that move most
MOST_OF_MANY = 2
EXPLORATORY = "Exploratory: "  # how a headline begins that nothing has confirmed


def headline(
    experiment: Experiment, outcome: Comparisons, by_design: ByDesign, recipe: Recipe
) -> str:
    """At what size and rates, then the answer.

    A Shapley design's begins with whether anything helps, then tells the shares, after interactions
    that are larger than one of them; any other in which changes were combined begins with whether
    they add up, an axis's with the place of the lowest loss.
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
    shares = shares_answer(experiment.plan, by_design.contributions, outcome)
    adding = adding_up(by_design.interactions, by_design.beside, unit)
    combined = [shares, adding]
    if shares:
        sentences.append(what_helps(outcome))
        if exceeds_shares(by_design.interactions, by_design.contributions):
            combined = [adding, shares]
    is_decided = is_decided or bool(shares or pairs_apart(by_design.interactions))
    sentences += filter(None, combined)
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
    rungs = rungs_of(experiment.plan)
    top = outcome.of(rungs[-1], outcome.primary)
    if outcome.increments and experiment.plan.design == "ladder" and top is not None:
        parts = "All parts" if len(rungs) > len(outcome.arms) else "All parts but the length"
        sentences.append(
            f"{parts} together: {effect_text(top)} against {top.baseline}, {top.verdict}."
        )
    text = " ".join(sentences)
    setting = conditions(recipe, outcome)
    if setting:
        text = f"at {setting}: {text}"
    if is_decided and any(c.exploratory for c in compared):
        return EXPLORATORY + text
    if setting:
        text = text[:1].upper() + text[1:]
    return text


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


def what_helps(outcome: Comparisons) -> str:
    """How many arms are shown to help by the metric that decides, and which does most."""
    judged = {arm: outcome.judged(arm) for arm in outcome.arms}
    helping = {arm: c for arm, c in judged.items() if c is not None and c.kind == "helps"}
    others = others_counted(judged.values())
    if not helping:
        return f"No arm is shown to help{others}."
    most = max(helping, key=lambda arm: loss_gained(helping[arm]))
    named = f"{most} ({effect_text(helping[most])})"
    if len(helping) == 1:
        return f"Of {plural(len(judged), 'arm')} one is shown to help: {named}{others}."
    return f"Of {len(judged)} arms {len(helping)} are shown to help, most {named}{others}."


def others_counted(judged: Iterable[Comparison | None]) -> str:
    """How many arms are worse, alike and undecided, behind what helps."""
    kinds = Counter(kind_of(c) for c in judged)
    told = []
    for kind, verdict in (("hurts", "worse"), ("equal", "no different"), ("undecided",) * 2):
        if kinds[kind]:
            told.append(f"{kinds[kind]} {'is' if kinds[kind] == 1 else 'are'} {verdict}")
    return f"; {', '.join(told)}" if told else ""


def kind_of(c: Comparison | None) -> str:
    """helps, hurts, equal (bit for bit, too) or undecided."""
    if c is not None and c.is_bit_equal:
        return "equal"
    return "undecided" if c is None or c.kind == "none" else c.kind


def sentence_on(outcome: Comparisons, name: str, unit: str) -> str:
    """What the runs say of a metric: what helps, what hurts, what is equal, what is undecided.

    unit: of a loss, named once.
    """
    compared: dict[str, Comparison] = {}
    groups: dict[str, list[str]] = {"helps": [], "hurts": [], "equal": [], "undecided": []}
    for arm in outcome.arms:
        c = outcome.judged(arm, name)
        if c is not None:
            compared[arm] = c
        groups[kind_of(c)].append(arm)
    metric = metric_words(name)
    other, clauses = outcome.baseline, []
    if outcome.increments:
        other = outcome.own_words.before
    if len(outcome.arms) > COUNTED_ABOVE:
        text = counted_sentence(groups, compared, f"{other} in {metric}", other)
        return text.replace(metric, f"{metric} ({unit})", 1) if name in LOSSES else text
    for kind, comparative in (("helps", "better"), ("hurts", "worse")):
        if groups[kind]:
            effects = {arm: compared[arm] for arm in groups[kind]}
            clauses.append(f"{with_effects(effects)} {comparative} than {other} in {metric}")
    if groups["equal"]:
        verb = verb_for(groups["equal"], "shows", "show")
        equal = listing(measured(groups["equal"], compared), most=NAMED)
        clauses.append(f"{equal} {verb} no difference that matters in {metric}")
    if groups["undecided"]:
        undecided = listing(measured(groups["undecided"], compared), most=NAMED)
        if clauses:
            clauses.append(f"{undecided} {verb_for(groups['undecided'], 'is', 'are')} undecided")
        else:
            clauses.append(f"Undecided in {metric}: {undecided}")
    text = f"{'; '.join(clauses)}."
    if name in LOSSES:
        return text.replace(metric, f"{metric} ({unit})", 1)
    return text


def counted_sentence(
    groups: Mapping[str, Sequence[str]],
    compared: Mapping[str, Comparison],
    other: str,
    briefly: str,
) -> str:
    """How many arms are better, worse, alike and undecided, and which of them most.

    Of the undecided it names some where nothing is decided.

    groups: arms by kind. other: what they are compared with, and in what; briefly: without that."""
    n_arms = sum(map(len, groups.values()))
    clauses: list[str] = []
    for kind, comparative in (("helps", "better"), ("hurts", "worse")):
        arms = groups[kind]
        verb = "are" if len(arms) > 1 else "is"
        told = f"{len(arms)} {verb} {comparative} than {briefly}"
        if not clauses:
            told = f"{len(arms) or 'none'} of {n_arms} arms {verb} {comparative} than {other}"
        if arms:
            told += f", {'most' if len(arms) > 1 else 'namely'} {largest(arms, compared)}"
        if arms or not clauses:
            clauses.append(told)
    if groups["equal"]:
        verb = verb_for(groups["equal"], "shows", "show")
        clauses.append(f"{len(groups['equal'])} {verb} no difference that matters")
    if groups["undecided"]:
        told = f"{len(groups['undecided'])} {verb_for(groups['undecided'], 'is', 'are')} undecided"
        apart = [arm for arm in groups["undecided"] if arm in compared]
        if apart and not groups["helps"] and not groups["hurts"]:
            told += f", furthest from {briefly} {largest(apart, compared)}"
        clauses.append(told)
    text = "; ".join(clauses)
    return f"{text[:1].upper()}{text[1:]}."


def largest(arms: Sequence[str], compared: Mapping[str, Comparison]) -> str:
    """The arms of the largest effects, each with its own."""
    return listing(largest_first(arms, compared)[:MOST_OF_MANY], most=MOST_OF_MANY)


def largest_first(arms: Iterable[str], compared: Mapping[str, Comparison]) -> list[str]:
    """The arms, each with its effect, the largest first."""
    arms = sorted(arms, key=lambda arm: -abs(effect(compared[arm])[0]))
    return [f"{arm} ({effect_text(compared[arm])})" for arm in arms]


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
    named = largest_first(comparisons, comparisons)
    return f"{listing(named, most=NAMED)} {verb_for(named, 'is', 'are')}"
