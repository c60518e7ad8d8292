"""What a page sends its reader to first, and which question each of its sections answers."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from harness.cli.confirm import asked_on_page
from reports.analysis.attribution import Attribution
from reports.analysis.compare import compare_all
from reports.analysis.comparison import is_confirmed_by_command
from reports.analysis.interactions import BesideOther, Interplay
from reports.analysis.judges import Share
from reports.analysis.recipe import Recipe
from reports.analysis.sensitivity import Sensitivity
from reports.inputs.load import load
from reports.page.adding_up import (
    adding_up,
    exceeds_shares,
    leaves_zero,
    pair_words,
    pairs_apart,
)
from reports.page.asking import asked_steps, commands_elsewhere, said_in_rows
from reports.page.by_design import ByDesign
from reports.page.headline import counted_sentence, measured, what_helps
from reports.page.next_run import next_of_axes, next_of_verdicts
from reports.page.scope import scope
from tests.report_arms import FACTORIAL
from tests.report_fixtures import write_experiment

OPEN = {"kind": "undecided", "verdict": "undecided", "exploratory": True}


@pytest.fixture(scope="module")
def combined(tmp_path_factory):
    """Every combination of three changes, and its comparisons."""
    folder = tmp_path_factory.mktemp("combined")
    write_experiment(folder, arms=FACTORIAL, design="add-one", n_seeds=3)
    experiment = load("split", folder)
    return experiment, compare_all(experiment)


def judged_as(outcome, facts):
    """The comparisons of the loss with other facts; an arm without one has none."""
    told = {}
    for arm, changed in facts.items():
        told[arm, "val_loss"] = replace(outcome.judged(arm), **changed)
    return replace(outcome, comparisons=told, increments={})


def step_of(experiment, outcome):
    said = next_of_verdicts(experiment, outcome, ByDesign.of(experiment, outcome))
    return said.partition("What to run next: ")[2]


def test_what_helps_is_confirmed_before_what_is_undecided(combined):
    experiment, found = combined
    helps = {"kind": "helps", "exploratory": True, "next_action": ""}
    asks = {**OPEN, "next_action": "ablate confirm: 4 fresh seeds (20 runs)", "next_runs": 20}
    facts = {
        "softcap": asks,
        "untied_head": {**helps, "delta": -0.02},
        "value_residual": {**helps, "delta": -0.01},
    }
    step = step_of(experiment, judged_as(found, facts))
    assert step.startswith(
        "`ablate confirm experiments/split.yaml`, which asks again on fresh seeds"
    )
    assert "whether untied_head helps" in step
    pending = experiment.runs.assign(status="pending")
    step = step_of(replace(experiment, runs=pending), judged_as(found, facts))
    assert step.startswith(
        "`ablate confirm experiments/split.yaml`: 4 fresh seeds (20 runs), for softcap"
    )


def test_of_what_is_undecided_the_cheapest_is_asked_first(combined):
    experiment, found = combined
    facts = {}
    for arm, runs, delta in (
        ("softcap", 130, -0.03),
        ("untied_head", 100, -0.01),
        ("value_residual", 100, -0.02),
    ):
        action = f"ablate confirm --detect {-delta}: 9 fresh seeds ({runs} runs)"
        facts[arm] = {**OPEN, "next_action": action, "next_runs": runs, "delta": delta}
    step = step_of(experiment, judged_as(found, facts))
    asked = "`ablate confirm experiments/split.yaml --detect 0.02`: 9 fresh seeds (100 runs), for value_residual"
    assert step == f"{asked} (the table has the others')."


def test_one_command_for_several_arms_has_one_number_of_seeds(combined):
    """The runs that decide all of them, in its rows too."""
    experiment, found = combined
    facts = {}
    for arm, seeds in (("softcap", 13), ("untied_head", 10), ("value_residual", 13)):
        action = f"ablate confirm --detect 0.036: {seeds} fresh seeds ({10 * seeds} runs)"
        asks = {"next_action": action, "next_runs": 10 * seeds, "fresh_seeds": seeds}
        facts[arm] = {**OPEN, **asks, "delta": -0.01}
    outcome = judged_as(found, facts)
    seeds, why = asked_on_page(outcome, 0.036)  # what the command writes
    assert seeds == 13 and why.endswith("softcap, untied_head and value_residual at 0.036")
    assert asked_on_page(outcome, 0.04) is None
    assert step_of(experiment, outcome) == (
        "`ablate confirm experiments/split.yaml --detect 0.036`: 13 fresh seeds (130 runs), for untied_head,"
        " softcap and value_residual."
    )
    assert set(said_in_rows(outcome).values()) == {"next: 13 fresh seeds (130 runs)"}


def test_of_arms_that_share_a_step_the_widest_interval_decides_what_it_costs(combined):
    """One without an interval never does; what has no number of runs comes last."""
    _, found = combined
    asks = {**OPEN, "next_runs": None, "fresh_seeds": None}
    wide, narrow, open_ended = (
        {**asks, "next_action": f"see: {cost}", "low": low, "high": high}
        for cost, low, high in (("wide", -0.2, 0.3), ("narrow", -0.3, 0.1), ("none", None, 0.1))
    )
    few = {**OPEN, "next_action": "few: 9 runs", "next_runs": 9, "delta": 0.001}
    facts = {
        "softcap": {**narrow, "delta": 0.1},
        "untied_head": {**wide, "delta": -0.2},
        "value_residual": {**open_ended, "delta": 0.3},
        "softcap + untied_head": few,
    }
    first, last = asked_steps(judged_as(found, facts))
    assert (first.step, first.cost, first.arms) == ("few: 9 runs", "9 runs", [*facts][3:])
    assert last.cost == "wide" and last.arms == ["value_residual", "untied_head", "softcap"]
    half_open = {**open_ended, "low": 0.1, "high": None}
    for other, cost in ((wide, "wide"), (open_ended, "none"), (half_open, "none")):
        facts = {"untied_head": {**half_open, "delta": -0.2}, "softcap": {**other, "delta": 0.1}}
        assert asked_steps(judged_as(found, facts))[0].cost == cost


def test_a_command_that_is_not_run_next_stands_once_below_the_table(combined):
    experiment, found = combined
    action = "ablate confirm --detect 0.036: 13 fresh seeds (130 runs)"
    asks = {**OPEN, "next_action": action, "next_runs": 130, "fresh_seeds": 13}
    bound = {**OPEN, "next_action": "take the interval as the answer"}
    outcome = judged_as(found, {"softcap": asks, "untied_head": asks, "value_residual": bound})
    plan = experiment.plan
    command = "`ablate confirm experiments/split.yaml --detect 0.036`"
    for said, notes in (
        (f"Run {command} next.", 0),
        ("`ablate confirm experiments/split.yaml`", 1),
    ):
        below = commands_elsewhere(outcome, plan, said)
        assert len(below) == notes
        assert all(f"{command}: 13 fresh seeds (130 runs), for " in note for note in below)
    assert said_in_rows(outcome)["value_residual"] == "take the interval as the answer"


def test_the_next_step_takes_the_experiment_as_it_was_typed(combined):
    experiment, found = combined
    asks = {**OPEN, "next_action": "ablate confirm --detect 0.01: 4 fresh seeds (20 runs)"}
    for command, typed in (
        ("ablate run quickstart --set name=split", "quickstart --set name=split"),
        ("ablate run /home/me/q.yaml --results /big/res", "q.yaml"),
        ("", "split"),
    ):
        made = replace(experiment, plan=replace(experiment.plan, command=command))
        step = step_of(made, judged_as(found, {"softcap": asks}))
        assert step.startswith(f"`ablate confirm {typed} --detect 0.01`: 4 fresh"), step


def test_nobody_is_sent_to_a_command_that_refuses(combined):
    """`ablate confirm` writes nothing after what confirms already, scripts, logs, a sweep of rates."""
    plan = combined[0].plan
    assert is_confirmed_by_command(plan)
    others = ({"confirm": True}, {"foreign": True}, {"imported": True}, {"name": "mine.grid"})
    assert not any(is_confirmed_by_command(replace(plan, **other)) for other in others)


def test_arms_that_are_only_counted_are_never_the_best(combined):
    _, found = combined
    compared = {arm: found.judged(arm) for arm in found.arms}
    worst_first = sorted(compared, key=lambda arm: -compared[arm].delta)
    assert len(worst_first) == 7
    assert measured(worst_first, compared)[0].startswith(f"{worst_first[-1]} (")
    assert measured(worst_first[:3], compared)[0].startswith(f"{worst_first[0]} (")


def test_many_arms_are_counted_and_those_that_move_most_named(combined):
    _, found = combined
    compared = {arm: found.judged(arm) for arm in found.arms}
    by_size = sorted(compared, key=lambda arm: compared[arm].delta)
    groups = {
        "helps": by_size[:3],
        "hurts": by_size[-1:],
        "equal": by_size[3:4],
        "undecided": by_size[4:6],
    }
    said = counted_sentence(groups, compared, "base in loss", "base")
    assert said.startswith(f"3 of 7 arms are better than base in loss, most {by_size[0]} (−0.0")
    assert f" and {by_size[1]} (−0.0" in said and f"{by_size[2]} (" not in said
    assert f"; 1 is worse than base, namely {by_size[-1]} (" in said
    assert said.endswith("; 1 shows no difference that matters; 2 are undecided.")
    none = {"helps": [], "hurts": [], "equal": [], "undecided": by_size}
    said = counted_sentence(none, compared, "base in loss", "base")
    furthest = sorted(by_size, key=lambda arm: -abs(compared[arm].delta))
    assert said.startswith("None of 7 arms is better than base in loss; 7 are undecided, furthest ")
    assert f" from base {furthest[0]} (" in said and f") and {furthest[1]} (" in said
    assert said.count(" (") == 2


def effect_of(changes, estimate, half):
    return Interplay(
        changes=changes,
        estimate=estimate,
        low=None if half is None else estimate - half,
        high=None if half is None else estimate + half,
        n_blocks=4,
        n_contexts=2,
    )


def beside_of(change, other, there, alone, half=0.05):
    shares = [Share(value=v, low=v - half, high=v + half) for v in (there, alone)]
    return BesideOther(change=change, other=other, with_other=shares[0], without=shares[1])


def test_whether_changes_add_up_is_answered_the_largest_interaction_first():
    small, large = effect_of(("a", "b"), -0.1, 0.05), effect_of(("b", "c"), 0.3, 0.05)
    wide, untold = effect_of(("a", "c"), 0.2, 0.5), effect_of(("a", "d"), 9.0, None)
    beside = [beside_of("b", "c", 0.3, 0.0), beside_of("c", "b", 0.4, 0.1)]
    said = adding_up([small, wide, large, untold], beside, "nats")
    assert said == (
        "The changes do not add up. b is shown to hurt only with c: +0.3000 [+0.2500, +0.3500] "
        "with it, 0.0000 [−0.0500, +0.0500] without. c is shown to hurt more with b: "
        "+0.4000 [+0.3500, +0.4500] with it, +0.1000 [+0.0500, +0.1500] without. The two together "
        "add +0.3000 [+0.2500, +0.3500] nats beyond their sum (above zero is worse); "
        "so do a × b −0.1000 [−0.1500, −0.0500]."
    )
    said = adding_up([effect_of(("c",), 8.0, 0.1), wide, untold], [], "nats")
    assert said == (
        "Whether the changes add up is undecided; what two add beyond their sum is largest of "
        "a × c, +0.2000 [−0.3000, +0.7000] nats."
    )
    assert adding_up([untold], [], "nats") == ""


@pytest.mark.parametrize(
    ("estimate", "half", "is_apart"),
    [(0.1, 0.05, True), (-0.1, 0.05, True), (0.1, 0.1, False), (-0.1, 0.1, False)],
)
def test_an_interaction_whose_interval_ends_at_zero_does_not_leave_it(estimate, half, is_apart):
    assert leaves_zero(effect_of(("a", "b"), estimate, half)) == is_apart
    assert not leaves_zero(effect_of(("a", "b"), estimate, None))
    alone, larger = effect_of(("a",), 9.0, 0.1), effect_of(("b", "c"), -2.0, 0.1)
    pair = effect_of(("a", "b"), estimate, half)
    assert pairs_apart([alone, pair, larger]) == ([larger, pair] if is_apart else [larger])


@pytest.mark.parametrize(
    ("of_a", "of_b", "column", "metric", "half", "exceeds"),
    [
        (-0.2, 0.5, "shapley", "val_loss", 0.1, True),
        (0.5, -0.2, "shapley", "val_loss", 0.1, True),
        (-0.3, 0.5, "shapley", "val_loss", 0.1, False),
        (-0.2, 0.5, "shapley", "val_loss", 0.3, False),
        (-0.2, 0.5, "alone", "val_loss", 0.1, False),
        (-0.2, 0.5, "shapley", "seconds", 0.1, False),
        (-0.2, 0.5, "shapley", "zloss", 0.1, False),
    ],
)
def test_an_interaction_leads_where_it_is_larger_than_a_share_of_the_loss(
    of_a, of_b, column, metric, half, exceeds
):
    shares = {
        change: {column: Share(value=value, low=None, high=None)}
        for change, value in (("a", of_a), ("b", of_b))
    }
    table = Attribution(
        metric=metric, unit="nats", shares=shares, leaves_with={}, total=None, note=""
    )
    empty = replace(table, metric="val_loss", shares={})
    assert exceeds_shares([effect_of(("a", "b"), 0.3, half)], [table, empty]) == exceeds


def test_what_helps_is_counted_with_the_best_of_it_and_what_does_not(combined):
    _, found = combined
    first, second, third, *others = found.arms
    facts = {arm: {"kind": "undecided"} for arm in others[:3]} | {third: {"kind": "equal"}}
    assert what_helps(judged_as(found, facts)) == (
        "No arm is shown to help; 1 is no different, 6 are undecided."
    )
    helps = {"kind": "helps", "delta": -0.01, "low": -0.02, "high": -0.005}
    facts |= {first: helps, second: {"kind": "hurts"}, others[0]: {"kind": "hurts"}}
    effect = "−0.0100 [−0.0200, −0.0050]"
    rest = "2 are worse, 1 is no different, 3 are undecided."
    assert what_helps(judged_as(found, facts)) == (
        f"Of 7 arms one is shown to help: {first} ({effect}); {rest}"
    )
    facts[second] = {**helps, "delta": -0.03, "low": -0.04}
    assert what_helps(judged_as(found, facts)) == (
        f"Of 7 arms 2 are shown to help, most {second} (−0.0300 [−0.0400, −0.0050]); "
        "1 is worse, 1 is no different, 3 are undecided."
    )
    every = judged_as(found, dict.fromkeys(found.arms, helps))
    assert what_helps(every) == f"Of 7 arms 7 are shown to help, most {first} ({effect})."
    alike = replace(every, comparisons={})
    assert what_helps(alike) == "No arm is shown to help; 7 are undecided."


@pytest.mark.parametrize(
    ("of_a", "of_b", "said"),
    [
        ((0.3, 0.0), (0.3, 0.0), "a and b are shown to hurt only together: a +0.3000 ["),
        ((-0.3, 0.0), (-0.3, 0.0), "a and b are shown to help only together: a −0.3000 ["),
        ((0.0, -0.3), (0.0, -0.3), "a is shown to help only without b: 0.0000 ["),
        ((0.3, -0.1), (0.5, 0.1), "a is shown to help alone and to hurt with b: +0.3000 ["),
        ((-0.3, 0.1), (-0.3, 0.1), "a is shown to hurt alone and to help with b: −0.3000 ["),
        ((-0.1, -0.3), (-0.1, -0.3), "a is shown to help less with b: −0.1000 ["),
        ((0.5, 0.1), (0.3, 0.0), "b is shown to hurt only with a: +0.3000 ["),
        ((0.0, 0.3), (0.3, 0.0), "a is shown to hurt only without b: 0.0000 ["),
        ((0.04, -0.04), (0.04, -0.04), "a is told from zero neither with b nor without it: +0.04"),
    ],
)
def test_a_change_is_told_with_the_other_and_without_it(of_a, of_b, said, kept_line):
    pair = effect_of(("a", "b"), of_a[0] - of_a[1], 0.01)
    others = [beside_of("a", "c", 9.0, 9.0), beside_of("c", "b", 9.0, 9.0)]
    words = pair_words(pair, [*others, beside_of("a", "b", *of_a), beside_of("b", "a", *of_b)])
    kept_line(words)
    assert words.startswith(said), words
    assert "9.0" not in words


def test_of_arms_on_axes_those_help_that_are_better_somewhere_and_worse_nowhere() -> None:
    def arm(name: str, *signs: int) -> Sensitivity:
        effects = tuple(SimpleNamespace(sign=sign, delta=0.1 * sign) for sign in signs)
        told: Any = SimpleNamespace(arm=name, effects=effects)
        told.with_sign = lambda sign: [effect for effect in effects if effect.sign == sign]
        return told

    arms = [arm("good", -1, 0), arm("bad", 1, 1), arm("both", -1, 1), arm("open", 0, 0)]
    plan: Any = SimpleNamespace(
        name="x", draw=None, confirm=True, estimand=None, foreign=False, arms=(), axes={}, base=""
    )
    assert next_of_axes(plan, [], arms, ["of the sweep"]).lead.startswith(
        "Shown to be better: good, and both at some points alone."
    )
    assert next_of_axes(plan, [], arms[1:2], []).lead.startswith("Shown to be better: nothing.")
    assert next_of_axes(plan, [], [], ["first"]).lead.startswith("Shown to be better: first.")
    plan.baseline, plan.command, plan.confirm = "base", "", False
    for plan.draw in (None, {"n": 8}):
        asked = next_of_axes(plan, [], [], ["first", "second"]).step
        assert asked == "`ablate confirm x --arm first`, which asks again on fresh seeds"


def test_a_sweep_that_chooses_rates_says_so_and_judges_nothing(combined):
    experiment, found = combined
    axes = {"optim.*_lr": ["x0.5", "x1"]}
    grid = replace(experiment, plan=replace(experiment.plan, name="mine.grid", axes=axes))
    said = scope(Recipe.of(grid, found.budget), found)
    assert said.startswith("This sweep chooses the learning rates of mine and judges no arm: ")
    rates = {"softcap": {"axis": "optim.*_lr", "factor": 2.0, "at_edge": False, "how": "a fit"}}
    plan = replace(experiment.plan, estimand="retuned", grid="mine.grid", rates=rates)
    said = scope(Recipe.of(replace(experiment, plan=plan), found.budget), found)
    assert said.startswith("This section judges the arms, each at the rates that mine.grid chose ")
