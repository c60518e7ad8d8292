"""The sentences and small tables of a page, each from the facts that it tells, with no page around them."""

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.run.foreign import TrainerSpec
from harness.run.plan import Lock, Plan, PlanArm, PlanCorpus
from harness.run.readings import OwnMetric, Readings
from reports.analysis.arm_values import (
    ArmRow,
    gain_part,
    gain_reason,
    has_resolved,
    target_interval,
    target_reason,
)
from reports.analysis.attribution import Attribution
from reports.analysis.cautions import Caution
from reports.analysis.compare import compare_all
from reports.analysis.judges import Share
from reports.analysis.optimum import GridAxis, Lowest, Optimum
from reports.analysis.recipe import Recipe
from reports.analysis.types import Comparisons, Decomposition, NoiseFloor, TimeEstimate
from reports.figures.forest import effect_text
from reports.inputs.columns import Column
from reports.inputs.load import load
from reports.inputs.run_columns import RUN_COLUMNS
from reports.page.by_design import ByDesign
from reports.page.cells import Part, part_of, typed, verdict_cell
from reports.page.changes import change_sets
from reports.page.citation import citation
from reports.page.confirmed import are_whole, asking_the_rest, not_asked_again, undecided
from reports.page.contributions import attribution_table
from reports.page.embed import embed_curves, embed_table, restore_curves
from reports.page.headline import design_baseline, listing, sentence_on
from reports.page.lead import bracket_words
from reports.page.naming import few_named
from reports.page.next_run import NO_STEP, NextRun, commands, next_of_verdicts
from reports.page.places import optimum_answer, place_words
from reports.page.ratios import are_apart, ratio_notes
from reports.page.recipe import recipe_box, rest_of_words
from reports.page.scope import conditions, equal_tokens, margin_words, rate_words, scope
from reports.page.sentences import Fact, facts, notes
from reports.page.settings import config_differences, environment_table, fact_in_words
from reports.page.studies import optimum_table, rates_table
from reports.page.tables import failures, run_cell, run_columns
from reports.page.verdicts import in_order
from reports.page.version import VERSION
from reports.page.view import hints_by_arms
from reports.page.write import code
from reports.stats.verdicts import ACCEPT
from reports.verify.settings import written_setting
from tests.report_fixtures import write_experiment

# ---- lists


def test_names_beyond_the_first_few_are_counted():
    names = list("abcde")
    said = [listing(names[:n], most=3) for n in (1, 2, 3, 4, 5)]
    assert said == ["a", "a and b", "a, b and c", "a, b, c and 1 more", "a, b, c and 2 more"]


# ---- where an axis is lowest

AXIS = GridAxis(name="optim.*_lr", words=("x0.5", "x1", "x2"))
INSIDE = Optimum(arm="base", axis=AXIS, where=Lowest.INSIDE, value=1.2345, low=0.9, high=None,
                 is_resolved=True, n_blocks=4, left_out=())  # fmt: skip


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ({}, "x1.23 [x0.900, above x2]"),
        ({"low": None, "high": 1.5}, "x1.23 [below x0.5, x1.50]"),
        ({"is_resolved": False}, "x1.23 (interval not resolved)"),
        ({"where": Lowest.FIRST, "value": None}, "x0.5 or beyond"),
        ({"where": Lowest.LAST, "value": None}, "x2 or beyond"),
        ({"where": Lowest.NOWHERE, "value": None}, "no lowest point"),
        ({"where": Lowest.UNTOLD, "value": None}, "not resolved"),
        ({"where": Lowest.TOO_FEW, "value": None}, "too few points"),
        ({"axis": replace(AXIS, words=("1", "2", "3"))}, "1.23 [0.900, above 3]"),
    ],
)
def test_the_place_of_the_lowest_loss_in_words(where, words):
    assert place_words(replace(INSIDE, **where)) == words


def test_an_axis_names_six_places_and_counts_the_rest():
    arms = [replace(INSIDE, arm=f"a{i}", is_resolved=False) for i in range(8)]
    lost = [replace(INSIDE, arm=f"b{i}", where=Lowest.NOWHERE, value=None) for i in range(7)]
    place = "x1.23 (interval not resolved) for a"
    named = ", ".join(f"{place}{i}" for i in range(6))
    assert optimum_answer([*arms, *lost]) == (
        f"The loss along optim.*_lr is lowest at {named} and 2 more; "
        "has no lowest point for b0, b1, b2, b3, b4, b5 and 1 more."
    )
    few = replace(INSIDE, where=Lowest.TOO_FEW, value=None)
    assert optimum_answer([few]) == "" and "too few whole points for base" in optimum_answer(
        [few, arms[0]]
    )


def test_the_table_of_lowest_places_carries_their_numbers():
    few = replace(INSIDE, arm="few", where=Lowest.TOO_FEW, value=None)
    flat = replace(INSIDE, arm="flat", is_resolved=False, low=None, left_out=("x4",))
    rows = dict(optimum_table([INSIDE, flat, few]).rows)
    assert rows["base, optim.*_lr"][0].v == "1.2345,0.9,"
    assert rows["flat, optim.*_lr"][0].v == "1.2345,,"
    assert rows["few, optim.*_lr"][0].v is None
    assert rows["base, optim.*_lr"][1].text == "inside the grid"
    assert rows["flat, optim.*_lr"][1].text == (
        "inside the grid, but the curvature is not told apart from zero: more seeds or a wider grid; "
        "without x4, where not every run finished"
    )


def test_chosen_rates_say_whether_they_lie_at_an_end():
    rate = {"axis": "optim.*_lr", "factor": 0.70711, "at_edge": False, "how": "a quadratic"}
    table = rates_table({"a": rate, "b": {**rate, "factor": 2.0, "at_edge": True}}, "grid")
    (_, a), (_, b) = table.rows
    assert ([cell.text for cell in a], b[0].text) == (
        ["x0.707", "a quadratic", "lowest point inside the grid"],
        "x2",
    )
    assert b[2].text.startswith("an end of the grid") and "in grid" in table.lead


# ---- facts beside the verdicts

ARMS = (PlanArm(name="base"), PlanArm(name="a"))
PLAN = Plan(
    name="split",
    baseline="base",
    base="r07",
    scale="tiny",
    arms=ARMS,
    seeds=(0, 1, 2),
    corpus=PlanCorpus(name="mine"),
)


def recipe(plan: Plan = PLAN, **configs) -> Recipe:
    """Arm -> the configurations of its runs."""
    by_arm = {arm.name: [{"config": c} for c in configs.get(arm.name, ())] for arm in plan.arms}
    return Recipe(
        plan=plan, budget=100, by_arm=by_arm, results_by_arm={}, environments=(), plugins={}
    )


def outcome(**more) -> Comparisons:
    known = dict(baseline="base", arms=("a",), primary="val_loss", cells={}, comparisons={}, increments={},
                 own_words=None, times={}, decompositions={}, noise=NoiseFloor(n=0, sd=None, low=None, high=None),
                 published=None, anytime=False, looks=1, budget=100, warnings=(), notes=())  # fmt: skip
    return Comparisons(**{**known, **more})


def runs(**columns) -> pd.DataFrame:
    known = {"seed": [0, 1], "node": [None, None], "self_reported": [False, False],
             "stale": [False, False], "stale_files": [None, None], "gpu": ["H100", None]}  # fmt: skip
    return pd.DataFrame({**known, **columns})


def told(
    plan: Plan = PLAN, of: Comparisons | None = None, accept_stale: bool = False, **columns
) -> list[Fact]:
    return facts(recipe(plan), of or outcome(), runs(**columns), accept_stale=accept_stale)


def said(*args, **how) -> list[str]:
    return [fact.text for fact in told(*args, **how)]


def test_nodes_and_clocks_of_the_runs_are_facts():
    assert "no node known" in said()
    assert "one node: n1" in said(node=["n1", None])
    assert "2 nodes" in said(node=["n1", "n2"])
    own = "times are the scripts' own account (self-reported)"
    assert own not in said() and Fact(text=own, warn=True) in told(self_reported=[False, True])


@pytest.mark.parametrize(
    ("n", "text", "warn"),
    [
        (3, "sd of 3 baseline runs 0.0013 nats: too few for a noise floor", True),
        (4, "noise floor 0.0013 nats (sd of 4 baseline runs)", False),
    ],
)
def test_a_noise_floor_is_that_of_four_runs_at_least(n, text, warn):
    floor = NoiseFloor(n=n, sd=0.0013, low=None, high=None)
    assert Fact(text=text, warn=warn) in told(of=outcome(noise=floor))
    assert not any("baseline runs" in words for words in said())


def test_stale_runs_name_three_files_and_what_became_of_them():
    stale = {"stale": [True, True], "stale_files": ["b.py, a.py", "a.py, d.py, c.py"]}
    files = "a.py, b.py, c.py and 1 more"
    assert Fact(text=f"2 stale runs left out: {files}", warn=True) in told(**stale)
    assert f"2 stale runs counted as asked: {files}" in said(accept_stale=True, **stale)
    assert "1 stale run left out" in said(stale=[True, False])
    assert Fact(text="no stale runs") in told()


def test_where_every_run_stopped_and_what_no_clock_counts_are_facts():
    stopped = said(stopped_at=[200.0, 100.0])
    assert "every run stopped at step 100, 200, as planned" in stopped
    assert "every run stopped at step 100, as planned" in said(stopped_at=[None, 100])
    assert not any("stopped" in text for text in said(stopped_at=[None, None]))
    left_out = "the clock leaves out each run's first 10 steps"
    skipping = replace(PLAN, protocol="skip10")
    assert left_out in said(skipping)
    for plan in (PLAN, replace(skipping, imported=True), replace(skipping, foreign=True)):
        assert left_out not in said(plan)


def test_of_which_arms_budgets_lie_around_the_target_is_told_where_not_of_all():
    def words(*times: tuple[float | None, bool, bool]) -> str:
        of_arms = {}
        for name, (seconds, extrapolated, given) in zip("abcdef", times):
            of_arms[name] = SimpleNamespace(
                seconds=seconds, extrapolated=extrapolated, slope_given=given
            )
        return bracket_words(outcome(times=of_arms))

    inside, beyond, lost = (1.0, False, False), (1.0, True, False), (None, False, False)
    start = "; as it came out, the budgets lie on both sides of it for"
    assert words() == words(inside, lost) == words(inside, (1.0, True, True)) == ""
    assert words(beyond, lost) == "; as it came out, no arm's budgets lie on both sides of it"
    assert words(inside, beyond, lost, inside) == f"{start} a and d alone"
    assert words(beyond, *[inside] * 5) == f"{start} b, c, d, e and 1 more alone"


@pytest.mark.parametrize(
    ("of_means", "of_blocks", "apart"),
    [
        *((0.25, 0.0, True), (0.05, 0.031, False), (-0.05, -0.071, True)),
        *((0.004, -0.004, True), (-0.004, 0.004, True), (0.00001, -0.004, False)),
    ],
)
def test_two_changes_of_a_time_are_apart_by_two_percent_or_by_their_printed_signs(
    of_means: float, of_blocks: float, apart: bool
) -> None:
    assert are_apart(of_means, of_blocks) is apart


def test_of_many_arms_whose_means_are_apart_the_furthest_four_are_named() -> None:
    names = tuple("abcdef")
    cells = {"base": SimpleNamespace(mean={"step_ms": 100.0})}
    compared = {}
    for n, arm in enumerate(names):
        cells[arm] = SimpleNamespace(mean={"step_ms": 100.0 + 10 * n})
        compared[arm, "step_ms"] = SimpleNamespace(
            metric="step_ms", ratio=1.0, ratio_low=None, ratio_high=None, is_bit_equal=False
        )
    known = outcome(arms=names, cells=cells, comparisons=compared)
    [note] = ratio_notes(known)
    told = "; ".join(f"{arm} +{10 * n}.0 % and 0.0 %" for n, arm in [*enumerate(names)][:1:-1])
    assert f"by the means in ms and by Δ: {told} and 1 more. Δ is" in note
    assert " more. Δ is" not in "".join(ratio_notes(replace(known, arms=names[:5])))
    for lost in ({**cells, "base": SimpleNamespace(mean={})}, {"base": cells["base"]}):
        assert [*ratio_notes(replace(known, cells=lost))] == []


def lock(digest: str, **plan) -> Lock:
    return Lock(locked="2026-01-05T08:00:00Z", digest=digest, plan=plan)


def test_a_lock_is_named_and_what_changed_after_it():
    first, second = lock("a" * 20, seeds=[0], margin=1), lock("b" * 20, seeds=[0, 1], margin=1)
    third = lock("c" * 20, seeds=[0, 1], margin=2, target=3)
    none = Fact(text="no plan was locked", warn=True)
    assert none in told()
    assert none not in told(replace(PLAN, imported=True))
    assert "imported logs: nothing was planned before they were made" in said(
        replace(PLAN, imported=True)
    )
    once, twice = replace(PLAN, locks=(first, second)), replace(PLAN, locks=(first, second, third))
    last = [fact for fact in told(replace(PLAN, locks=(first,))) if "locked plan" in fact.text]
    assert last == [Fact(text="locked plan", code="a" * 12)]
    assert told(once)[-2:] == [
        Fact(text="locked plan", code="b" * 12),
        Fact(text="the plan was changed once after the first launch: seeds", warn=True),
    ]
    assert (
        said(twice)[-1]
        == "the plan was changed 2 times after the first launch: seeds, margin, target"
    )


def test_who_confirmed_and_how_many_looks_and_seeds_are_facts():
    assert told()[0] == Fact(text="exploratory", warn=True)
    assert told(replace(PLAN, confirm=True))[0] == Fact(text="confirmed on fresh seeds")
    assert "1 look, intervals for the planned number of runs" in said()
    assert "2 looks, anytime-valid intervals" in said(of=outcome(looks=2, anytime=True))
    assert "1 arm and the baseline, 3 seeds" in said()
    assert "1 arm and the baseline, 2 runs" in said(seed=[None, None])
    branched = said(replace(PLAN, branch_at=50))
    assert "effects from update 50 on, given one trunk a seed" in branched
    evidence = said(replace(PLAN, evidence="records"))
    assert evidence == ["published by others, not run here", "2 rows", "H100"]


# ---- what was trained


def lr(muon: float, **more) -> dict:
    return {"optim": {"muon_lr": muon, **more}, "model": {"n_layer": 2, "d_model": 64}}


BASELINES = "the baseline's learning rates (muon_lr 0.02)"


def test_arms_with_other_rates_are_counted_and_named():
    other = recipe(base=[lr(0.02)], a=[lr(0.04)])
    assert rate_words(other) == "the baseline's learning rates (muon_lr 0.02; a with others)"
    assert rate_words(recipe(base=[lr(0.02)], a=[lr(0.02)])) == BASELINES
    names = ("base", "a", "b", "c")
    four = replace(PLAN, arms=tuple(PlanArm(name=name) for name in names))
    three = recipe(four, base=[lr(0.02)], **{name: [lr(0.04)] for name in names[1:]})
    assert rate_words(three).endswith("muon_lr 0.02; 3 arms with others)")
    named = facts(other, outcome(), runs(), accept_stale=False)[1].text
    assert (
        named == "every arm at the baseline's learning rates (at-rate) but a, which sets other ones"
    )
    as_record = replace(PLAN, departures={})
    assert (
        rate_words(recipe(as_record, base=[lr(0.02)], a=[lr(0.02)]))
        == "r07's learning rates for scale tiny"
    )
    own = replace(PLAN, departures={"optim.muon_lr": 0.05})
    assert (
        rate_words(recipe(own, base=[lr(0.02)]))
        == "learning rates set by the experiment (muon_lr 0.02)"
    )
    retuned = replace(PLAN, estimand="retuned")
    assert rate_words(recipe(retuned, base=[lr(0.02)])) == "each arm at its own best learning rates"
    crossed = replace(retuned, axes={"optim.adam_lr, optim.muon_lr": ["x1"]})
    assert rate_words(recipe(crossed, base=[lr(0.02)])) == "learning rates along the axis"


def test_differences_are_read_from_what_ran_and_not_from_the_plan():
    planned = replace(PLAN, arms=(ARMS[0], replace(ARMS[1], fields={"optim.muon_lr": 0.5})))
    ran = recipe(planned, base=[lr(0.02)], a=[lr(0.02), lr(0.03)])
    found = config_differences(ran)
    ((field, (base, a)),) = found.rows
    assert (field, base.text, a.text) == ("optim.muon_lr", "0.02", "0.02 or 0.03")
    assert (base.differs, a.differs, a.usual) == (False, True, "0.02")
    assert "at 100 steps" in found.lead and found.lead.endswith("what differs is set in bold.")
    many = [lr(rate) for rate in (0.1, 0.2, 0.3, 0.4)]
    assert config_differences(recipe(base=[lr(0.02)], a=many)).rows[0][1][1].text == "4 values"
    same = config_differences(recipe(base=[lr(0.02)], a=[lr(0.02)]))
    assert not same.rows and same.lead == "The arms' runs at 100 steps have the same configuration."
    assert config_differences(recipe()).lead.startswith(
        "Unknown: what was recorded tells no setting"
    )


@pytest.mark.parametrize(("n", "n_told"), [(1, 1), (12, 12), (13, 0)])
def test_what_each_change_sets_is_told_of_up_to_twelve(n: int, n_told: int) -> None:
    names = [f"c{i}" for i in range(n)]
    changed = [PlanArm(name=name, of=name, changes=(name,)) for name in names]
    plan = replace(PLAN, arms=(PlanArm(name="base", of="base"), *changed))
    made = recipe(plan, base=[lr(0.02)], **{name: [lr(0.04)] for name in names})
    told = change_sets(made)
    assert [change.name for change in told] == names[:n_told]
    for place, change in enumerate(told):
        (setting,) = change.settings
        assert (setting.key, setting.text, setting.usual, setting.differs) == (
            *(f"sets {place} optim.muon_lr", "0.04", "0.02", True),
        )
    for unknown in ({"evidence": "first"}, {"imported": True}, {"foreign": True}):
        assert change_sets(replace(made, plan=replace(plan, **unknown))) == []


def test_arms_of_scripts_that_were_started_alike_differ_in_their_code():
    plan = replace(PLAN, foreign=True)
    alike = {"config": {"trainer": {"command": "python {script}", "script": "new.py"}}}

    def lead(*digests):
        by_arm = {}
        for arm, digest in zip(("base", "a", "b"), digests):
            by_arm[arm] = [{**alike, "source": {"digest": digest}}] if digest else [alike]
        arms = (*ARMS, PlanArm(name="b"))[: len(digests)]
        made = replace(recipe(), plan=replace(plan, arms=arms), by_arm=by_arm)
        start = "The arms' runs at 100 steps were started alike. "
        found = config_differences(made).lead
        assert found.startswith(start)
        return found.removeprefix(start)

    assert lead("0a", "0b") == "Their code differs, and nothing else that is known."
    assert lead("0a", "0b", "0a") == (
        "Their code differs, and nothing else that is known: "
        "1 of 2 arms have other code than the baseline."
    )
    assert lead("0a", "0a") == "Their code is the same, too."
    assert lead("0a", "") == lead("", "0b") == "Whether their code differs is unknown."


def test_size_steps_and_rates_are_said_as_far_as_they_are_known():
    known = recipe(base=[lr(0.02)], a=[lr(0.02)])
    assert conditions(known, outcome()) == (
        f"2 layers of width 64, 100 steps, {BASELINES}, on mine"
    )
    no_width = recipe(base=[{"model": {"n_layer": 2}}])
    assert conditions(no_width, outcome(budget=None)).startswith("2 layers, ")
    own = PlanCorpus(name="the script's own", fingerprint="not recorded")
    script = recipe(replace(PLAN, foreign=True, corpus=own))
    assert conditions(script, outcome(budget=None)) == ""
    assert conditions(script, outcome()) == "100 steps"
    results = {"base": [SimpleNamespace(tokens=8000)], "a": [SimpleNamespace(tokens=8040)]}
    own_steps = replace(known, results_by_arm=results)
    said = f"2 layers of width 64, 8040 tokens in each arm's own steps, {BASELINES}, on mine"
    assert conditions(own_steps, outcome(budget=None)) == said
    results["a"][0].tokens = 8100
    assert "tokens" not in conditions(own_steps, outcome(budget=None))
    assert scope(recipe(replace(PLAN, evidence="first")), outcome()) == ""
    assert scope(recipe(replace(PLAN, imported=True)), outcome()).startswith(
        "Size and rates are the scripts' own"
    )


def test_from_where_on_a_difference_of_a_loss_matters_is_said_where_it_was_declared():
    declared = replace(PLAN, margin=0.02)
    beyond = f"a difference matters beyond the margin of ±0.02 {PLAN.corpus.unit}."
    told = f"Better and worse are told from zero; {beyond}"
    assert margin_words(declared, outcome(primary="val_loss")) == [told]
    assert margin_words(declared, outcome(primary="step_ms")) == []
    assert margin_words(PLAN, outcome(primary="val_loss")) == []


def test_machines_are_counted_by_run_the_most_frequent_first():
    environments = {
        f"r{i}": {
            "host": "n2" if i else "n1",
            "cuda": None,
            "lock": "x",
            "extra": {"a": True, "b": None},
            "gpus": [{"name": "H100", "memory_mib": 81559}] * 8,
        }
        for i in range(3)
    }
    assert dict(environment_table(environments)) == {
        "node": [("n2", 2), ("n1", 1)],
        "extra": [("a yes", 3)],
        "accelerators": [("8 x H100", 3)],
    }


# ---- runs


RUN = {"run_id": "x", "arm": "a", "seed": 1, "status": "failed", "reason": None}


def test_a_failure_without_a_reason_says_where_to_look():
    found = failures(
        pd.DataFrame(
            [RUN, {**RUN, "status": "finished"}, {**RUN, "status": "diverged", "reason": "nan"}]
        )
    )
    assert [(f.status, f.reason) for f in found] == [
        ("diverged", "nan"),
        ("failed", "no reason was recorded; see log.txt in the run's folder"),
    ]


def test_a_column_that_says_nothing_is_left_out_but_for_what_a_run_is_known_by():
    run = {c.key: None for c in RUN_COLUMNS} | {"arm": "a", "seed": 0, "status": "finished"}
    alike = pd.DataFrame([{**run, "stale": False, "block": 0, "gpu": "H100"}] * 2)
    known_by = ["seed", "val_loss", "status", "steps", "step_ms", "train_time_s", "run_id"]
    assert [c.key for c in run_columns(alike, PLAN)] == known_by
    apart = alike.assign(stale=[False, True], gpu=["H100", "H200"], disturbed=["", "stood still"])
    where = ["gpu", "disturbed", "stale"]  # the run's name stays the last
    assert [c.key for c in run_columns(apart, PLAN)] == [*known_by[:-1], *where, "run_id"]


def test_what_a_script_was_asked_for_has_its_column_though_no_run_gave_it():
    readings = Readings(metrics=(OwnMetric(name="bpb", pattern="bpb (.*)"),), stop_step=100)
    side = TrainerSpec(script="", command="", env={}, data={}, environment={}, readings=readings)
    plan = Plan(name="x", baseline="base", arms=(PlanArm(name="base", side=side),))
    run = {c.key: None for c in RUN_COLUMNS} | {"stale": False, "bpb": None, "stopped_at": None}
    shown = {c.key: c for c in run_columns(pd.DataFrame([run] * 2), plan)}
    assert [run_cell(shown[key], run).text for key in ("bpb", "stopped_at")] == ["–", "–"]


@pytest.mark.parametrize(
    ("stale", "files", "text"),
    [
        (False, "a.py", ""),
        (True, None, "yes"),
        (True, "a.py, b.py", "a.py, b.py"),
        (True, "a.py, b.py, c.py, d.py", "a.py, b.py and 2 more"),
    ],
)
def test_a_stale_run_names_two_files_of_its_code(stale, files, text):
    column = next(
        c for c in run_columns(pd.DataFrame({"stale": [True, False]}), PLAN) if c.key == "stale"
    )
    assert run_cell(column, {"stale": stale, "stale_files": files}).text == text


def test_no_verdict_yet_says_how_many_runs_are_to_come():
    assert [part.text for part in verdict_cell(None, 0).parts] == ["no result yet"]
    assert verdict_cell(None, 1).parts[1].text == "unfinished: 1 run to come"


def test_a_printed_number_carries_its_values_and_words_carry_none():
    assert Part(text="x", key="a").v is None
    assert Part(text="x", key="a", values=(0.5, None)).v == "0.5,"


def test_without_any_comparison_all_arms_are_undecided():
    assert (
        sentence_on(outcome(arms=("a", "b")), "val_loss", "nats")
        == "Undecided in validation loss (nats): a and b."
    )
    assert notes(outcome(notes=("One.", "One.", "Two."))) == ["One.", "Two."]


def test_a_command_that_writes_no_page_does_not_say_that_it_does():
    first = commands("mine", replace(PLAN, command="ablate run mine --no-report"))[0]
    assert first == "ablate run mine --no-report    # runs what is missing"
    usual = commands("mine", replace(PLAN, command="ablate run mine"))[0]
    assert usual.endswith("then writes this page")


@pytest.mark.parametrize(
    ("out_of_range", "who"),
    [(("a",), "All arms but base: "), (("base", "a"), "")],
)
def test_budgets_that_bracket_the_target_for_the_baseline_alone_are_called_so(
    out_of_range: tuple[str, ...], who: str
) -> None:
    caution = Caution.NOT_BRACKETED
    times = {}
    for arm in ("base", "a"):
        warnings = (caution,) if arm in out_of_range else ()
        times[arm] = TimeEstimate(arm=arm, target=1.86, budgets=(100, 150), warnings=warnings)
    assert notes(outcome(times=times)) == [f"{who}{caution.text}"]


def test_what_it_takes_to_the_target_is_told_or_not_resolved():
    time = TimeEstimate(arm="a", target=1.86, budgets=(100, 150), warnings=())
    row = ArmRow(arm="a", outcome=outcome(times={"a": time}))
    assert (target_reason(row), target_interval(row)) == ("not resolved", None)
    told = replace(time, seconds=2.0, seconds_low=1.0, seconds_high=3.0)
    row = ArmRow(arm="a", outcome=outcome(times={"a": told}))
    interval = target_interval(row)
    assert target_reason(row) is None and interval is not None
    assert (interval.low, interval.high) == (1.0, 3.0)
    none = ArmRow(arm="a", outcome=outcome())
    assert (target_reason(none), target_interval(none)) == (None, None)


def test_a_next_step_is_a_command_that_can_be_typed():
    action = "ablate confirm --detect 0.01: 73 fresh seeds (584 runs)"
    assert typed(action, "mine") == (
        "`ablate confirm mine --detect 0.01`: 73 fresh seeds (584 runs)"
    )
    assert typed("take the interval as the answer", "mine") == "take the interval as the answer"
    text = str(code(typed(action, "mine")))
    assert '<code>ablate confirm mine</code> <code class="option">--detect 0.01</code>' in text


def test_a_page_says_near_its_headline_what_helps_and_what_to_run_next(tmp_path):
    write_experiment(tmp_path, n_seeds=4)
    experiment = load("split", tmp_path)
    found = compare_all(experiment)
    by_design = ByDesign.of(experiment, found)
    text = next_of_verdicts(experiment, found, by_design)
    helping = [arm for arm in found.arms if (c := found.judged(arm)) and c.kind == "helps"]
    assert all(arm in text for arm in helping)
    assert "What to run next: " in text
    none = replace(found, comparisons={}, increments={})
    assert next_of_verdicts(experiment, none, by_design) == ""


def test_a_gain_whose_interval_holds_zero_is_not_resolved(tmp_path):
    write_experiment(tmp_path, n_seeds=4)
    found = compare_all(load("split", tmp_path))
    steps = {key: c for key, c in found.comparisons.items() if key[1] == "step_ms"}
    open_steps = {key: replace(c, low=-1.0, high=1.0, kind="none") for key, c in steps.items()}
    apart = {key: replace(c, low=-2.0, high=-1.0, kind="helps") for key, c in steps.items()}
    cut = {key: replace(c, low=-2.0, high=0.0, kind="helps") for key, c in steps.items()}  # by Holm
    gain = Decomposition(
        arm=found.arms[0],
        learning_s=-1.0,
        systems_s=-2.0,
        total_s=-3.0,
        learning_percent=-10.0,
        systems_percent=-20.0,
        total_percent=-30.0,
        n_baseline=100.0,
        n_arm=90.0,
        step_ms_baseline=10.0,
        step_ms_arm=8.0,
        note="",
    )
    for steps_as, percent in ((open_steps, None), (apart, -20.0), (cut, -20.0)):
        told = replace(
            found,
            comparisons={**found.comparisons, **steps_as},
            decompositions={gain.arm: gain},
        )
        row = ArmRow(arm=gain.arm, outcome=told)
        assert gain_part(row, part="systems_percent") == percent
        assert (gain_reason(row) == "systems not resolved") == (
            percent is None and has_resolved(told, gain.arm, "learning")
        )


@pytest.mark.parametrize(("length", "is_listed"), [(90, False), (91, True)])
def test_a_fact_too_long_for_a_column_has_a_line_to_itself(length, is_listed):
    box = recipe_box(replace(recipe(), accelerators=("g" * length,)))
    (device,) = [fact for fact in box.facts if fact.text == "g" * length]
    assert device.is_listed == is_listed


def test_a_long_fraction_is_printed_as_in_the_box():
    ran = recipe(base=[lr(0.00299298379547902)], a=[lr(0.02)])
    assert config_differences(ran).rows[0][1][0].text == "0.002993"
    (printed,) = [c.text for c in recipe_box(ran).facts if c.key == "recipe.rates"]
    assert "0.002993" in printed
    assert (
        written_setting("optim.muon_lr", {"optim.muon_lr": ["0.00299298379547902"]}) == "0.002993"
    )


def test_a_processor_s_utilisation_is_not_compared():
    runs = pd.DataFrame([dict.fromkeys((c.key for c in RUN_COLUMNS), None) | {"mfu": 0.3}])
    for device, is_there in (("cpu", False), ("cuda", True)):
        keys = [c.key for c in run_columns(runs.assign(device=device, stale=False), PLAN)]
        assert ("mfu" in keys) == is_there


def test_an_effect_in_percent_has_one_sign_for_its_three_numbers(tmp_path):
    write_experiment(tmp_path, n_seeds=4)
    comparisons = compare_all(load("split", tmp_path)).comparisons
    (c, *_) = [c for (_, metric), c in comparisons.items() if metric == "step_ms"]
    assert re.fullmatch(r"[+−][\d.]+ \[[+−][\d.]+, [+−][\d.]+\] %", effect_text(c))
    assert effect_text(replace(c, ratio_low=None, ratio_high=None)).count("%") == 1


def test_only_no_held_out_text_is_told_beside_the_validation_tokens() -> None:
    recipe: Any = None  # asked for sizes alone
    said = {key: rest_of_words(key, "none", recipe) for key in ("corpus", "heldout", "precision")}
    assert said == {"corpus": "", "heldout": " beside the validation tokens", "precision": ""}
    assert rest_of_words("heldout", "the last tenth", recipe) == ""


@pytest.mark.parametrize(
    ("facts", "is_judged", "is_held"),
    [
        ({}, False, False),
        ({}, True, False),
        ({"design": "shapley"}, True, False),
        ({"design": "chain", "foreign": True}, True, True),
        ({"design": "chain", "imported": True}, True, False),
        ({"design": "ladder", "imported": True, "branch_at": 7}, True, True),
        ({"evidence": "above"}, True, False),
        ({"evidence": "first"}, True, False),
    ],
)
def test_what_does_not_follow_is_told_by_the_design(facts, is_judged, is_held, kept_line) -> None:
    judged = {("a", "val_loss"): SimpleNamespace(level=0.95, low=-1.0, kind="helps")}
    held = {"increments": judged} if is_held else {"comparisons": judged if is_judged else {}}
    kept_line(scope(recipe(replace(PLAN, **facts)), outcome(**held)))


def test_two_names_stand_for_themselves_and_three_are_counted() -> None:
    assert [few_named(list("abc")[:n]) for n in (1, 2, 3)] == ["a", "a and b", "3 arms"]


def test_why_there_is_no_time_to_target_is_told_of_two_reasons_where_no_note_tells_it() -> None:
    reasons = ("One.", "", "One.", "Two.", "Three.", "Four.")
    times = {
        str(n): SimpleNamespace(reason=reason, warnings=()) for n, reason in enumerate(reasons)
    }
    told = "Time to target: {}.".format
    assert notes(outcome(times=times)) == [told("One"), told("Two")]
    assert notes(outcome(times=times, notes=("For: One.",))) == [
        *("For: One.", told("Two"), told("Three")),
    ]


@pytest.mark.parametrize("n", [12, 13])
def test_rows_are_in_the_plans_order_and_of_more_than_twelve_the_best_comes_first(n: int) -> None:
    names = tuple(f"arm{i}" for i in range(n))
    effects = {name: float(-i if i % 2 else i) for i, name in enumerate(names[1:])}
    for better, sign in (("lower", 1), ("higher", -1)):
        told = {}
        for name, delta in effects.items():
            ends = {"delta": delta, "low": -delta, "high": 0.0, "ratio": None}
            told[name, "val_loss"] = SimpleNamespace(better=better, **ends)
        by_effect = sorted(effects, key=lambda name: sign * effects[name])
        wanted = [*names] if n == 12 else [*by_effect, names[0]]
        assert in_order(outcome(arms=names, comparisons=told)) == wanted


def test_undecided_arms_are_those_that_were_judged_so() -> None:
    kinds = {"a": "undecided", "b": "helps", "c": "undecided"}
    judged = {(arm, "val_loss"): SimpleNamespace(kind=kind) for arm, kind in kinds.items()}
    found = outcome(arms=tuple("abcd"), comparisons=judged)
    assert undecided(found, ["d", "c", "b", "e", "a"]) == ["c", "a"]


def test_arms_that_nobody_asked_again_are_those_of_other_changes_or_another_point() -> None:
    def of(*arms: PlanArm) -> Any:
        return SimpleNamespace(plan=replace(PLAN, arms=arms))

    base, one = PlanArm(name="base"), PlanArm(name="one", changes=("a", "b"))
    point = replace(one, name="at", point={"lr": "x2"})
    renamed = replace(one, name="other", changes=("b", "a"))
    again = [SimpleNamespace(experiment=of(renamed)), SimpleNamespace(experiment=of(base))]
    confirmed: Any = again
    assert not_asked_again(of(base, one, point), confirmed) == ["at"]
    assert not_asked_again(of(base, one, point), confirmed[:1]) == ["base", "at"]
    assert not_asked_again(of(base, one), []) == ["base", "one"]


@pytest.mark.parametrize(
    ("arms", "facts", "said"),
    [
        ([], {}, ""),
        (["a"], {}, "`ablate confirm split --arm a -o FILE`, for a, which is undecided here"),
        (
            [*"abcd"],
            {},
            "`ablate confirm split --arm a --arm b --arm c --arm d -o FILE`, for a, b, c and d,"
            " which are undecided here",
        ),
        (
            [*"abcde"],
            {},
            "`ablate confirm split -o FILE`, for a, b, c, d and 1 more, which are undecided here",
        ),
        (["a"], {"foreign": True}, "a new experiment, for a, which is undecided here"),
    ],
)
def test_the_rest_is_asked_again_by_a_command_of_its_arms(arms, facts, said) -> None:
    plan = replace(PLAN, **facts)
    end = " and not asked again"
    assert asking_the_rest(plan, arms, of_parts=False) == (said and f"{said}{end}")
    if arms == ["a"] and not facts:
        assert asking_the_rest(plan, arms, of_parts=True) == (
            "`ablate confirm split -o FILE`, for a, which is undecided here in their own parts"
            f"{end}"
        )


def test_the_baseline_of_a_design_is_the_arm_whose_points_cross_the_axes() -> None:
    arms = (PlanArm(name="base @ x1", of="base"), PlanArm(name="plain"))
    for name, said in (("base @ x1", "base"), ("plain", "plain")):
        experiment: Any = SimpleNamespace(plan=replace(PLAN, arms=arms, baseline=name))
        assert design_baseline(experiment) == said


def test_tokens_of_a_run_whose_batches_grow_come_back_from_a_page() -> None:
    known = {"seed": 0, "budget": 20, "role": "loss"}
    of_runs = pd.DataFrame([{"run_id": r, "arm": r, **known} for r in ("grows", "plain")])
    curves = pd.DataFrame(
        {
            "run_id": ["grows"] * 2 + ["plain"] * 3 + ["gone"],
            "step": [0.0, 20.0, 0.0, 10.0, 20.0, 0.0],
            "val_loss": [5.0, 3.1234567, 5.0, 4.0, None, 9.0],
            "train_time_s": [0.0, 1.00004, 0.0, 0.5, 1.00006, 0.0],
            "tokens": [0.0, 800.0, None, None, None, None],
        }
    )
    embedded = {"runs": embed_table(of_runs), **embed_curves(curves)}
    assert embedded["steps"] == [[0, 20], [0, 10, 20], [0]]
    assert embedded["curves"]["grows"] == {
        **{"step": 0, "val_loss": [5.0, 3.123457], "train_time_s": [0.0, 1.0]},
        "tokens": [0, 800],
    }
    again = restore_curves(embedded)
    assert [*again["arm"]] == [*again["run_id"]] == ["grows"] * 2 + ["plain"] * 3
    assert again["tokens"].dropna().tolist() == [0.0, 800.0]
    assert again["train_time_s"].tolist() == [0.0, 1.0, 0.0, 0.5, 1.0001]
    assert np.isnan(again["val_loss"].iloc[-1]) and set(again["budget"]) == {20}
    without = {"runs": embed_table(of_runs), **embed_curves(curves.drop(columns="tokens"))}
    assert "tokens" not in restore_curves(without)


@pytest.mark.parametrize(
    ("step", "asks_for_none"),
    [
        (NO_STEP, True),
        (f"{ACCEPT}, which is wide", True),
        ("`ablate run x`", False),
        ("more seeds", False),
        ("wider axes", False),
    ],
)
def test_a_step_asks_for_no_run_where_it_is_nothing_or_takes_the_interval(
    step: str, asks_for_none: bool
) -> None:
    following = NextRun(step=step, note=" Then rest.")
    assert following.asks_for_no_run() == asks_for_none
    assert str(following) == f"What to run next: {step}. Then rest."
    again = following.with_runs("`ablate confirm x`")
    said = "" if step == NO_STEP else f". {step[0].upper()}{step[1:]}"
    assert str(again) == f"What to run next: `ablate confirm x`{said}. Then rest."


def test_arms_asked_again_are_whole_where_the_page_judges_the_part_that_each_adds() -> None:
    arms = (*ARMS, PlanArm(name="b", changes=("a", "b")))
    ladder = replace(
        PLAN, design="ladder", arms=(arms[0], replace(arms[1], changes=("a",)), arms[2])
    )
    whole = replace(ladder, design="add-one")
    assert are_whole(ladder, whole)
    assert not any(are_whole(*two) for two in ((ladder, ladder), (whole, whole), (whole, ladder)))


def share(value: float) -> Share:
    return Share(value=value, low=value - 0.1, high=value + 0.1)


def test_a_change_that_others_need_has_its_last_share_in_a_row_with_them(kept_line) -> None:
    shares = {
        "a": {"alone": share(-0.5), "left_out": share(-0.25)},
        "b": {"alone": share(0.5)},
        "c": {"left_out": share(1.0)},
    }
    told = Attribution(
        metric="val_loss",
        unit="nats",
        note="at 10 steps",
        shares=shares,
        leaves_with={"a": ("b", "c"), "c": ()},
        total=share(-1.0),
    )
    only = replace(told, shares={"b": shares["b"]}, leaves_with={}, total=None)
    lines = []
    for table in (told, only, replace(told, metric="seconds", unit="s", note="", title="time")):
        study = attribution_table(table)
        lines += [study.key, study.title, study.lead, " | ".join([study.first, *study.heads])]
        for name, cells in study.rows:
            lines.append(" | ".join([name, *(cell.text for cell in cells)]))
    kept_line("\n".join(lines))


def test_an_experiment_of_which_little_is_known_is_cited_by_its_name() -> None:
    asked = replace(PLAN, question="Is it & so?", name="a/b c")
    assert citation(recipe(asked)) == (
        "@misc{a-b-c,\n  title = {Is it \\& so?},\n  howpublished = {report of speedrun-ablations},\n"
        f"  version = {{{VERSION}}},\n  note = {{experiment a/b c}},\n}}"
    )
    nameless = citation(recipe(replace(PLAN, name="!")))
    assert nameless.startswith("@misc{ablation,\n  title = {!},")
    assert citation(recipe(replace(PLAN, evidence="first"))) == ""


def test_tokens_are_told_where_every_run_read_as_many_in_steps_of_its_own() -> None:
    def told(*tokens: float | None) -> list[str]:
        of_runs: Any = SimpleNamespace(results=[SimpleNamespace(tokens=n) for n in tokens])
        return equal_tokens(of_runs)

    assert told(2e6, 2e6) == ["2.000M tokens in each arm's own steps"]
    assert told() == told(None) == told(2e6, None) == told(None, 2e6) == told(2e6, 3e6) == []


def test_a_statistic_is_printed_unless_it_is_none_or_a_zero_to_hide() -> None:
    def printed(value: Any, **facts: Any) -> str | None:
        column = Column(key="k", meaning="", value=lambda row: row, format="{}", **facts)
        part = part_of(column, value)
        return None if part is None else part.text

    assert [printed(v) for v in (None, 0, 1, -1)] == [None, "0", "1", "-1"]
    assert [printed(v, hides_zero=True) for v in (0, 1, -1)] == [None, "1", "-1"]


def test_facts_of_a_machine_are_counted_and_told_in_words() -> None:
    gpus = [{"name": "H100", "gib": 80}, {"name": "H100"}, {"name": "A100"}, "cpu"]
    assert fact_in_words(gpus) == "2 x H100, A100, cpu"
    assert fact_in_words({"a": {"b": 1}, "c": None, "d": "x"}) == "a.b 1, d x"
    assert fact_in_words("Linux") == "Linux" and fact_in_words([]) == ""


def test_a_hint_is_told_once_with_the_arms_that_it_is_about() -> None:
    one, other = (SimpleNamespace(line=line, text=text) for line, text in ((7, "a"), (7, "b")))

    def told(*of_arms: list[SimpleNamespace]) -> list[str]:
        arms = [SimpleNamespace(name=str(n), hints=hints) for n, hints in enumerate(of_arms)]
        plan: Any = SimpleNamespace(arms=arms)
        return [f"{who}: {hint.text}" for who, hint in hints_by_arms(plan)]

    assert told([one, other], [one], [other]) == ["0, 1: a", "0, 2: b"]
    assert told([one], [one]) == ["every arm: a"]
    assert told([one]) == ["0: a"]
    assert told([], []) == []
