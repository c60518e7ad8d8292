"""What came out on fresh seeds begins the page that was asked again, ends its own next steps, and is checked."""

import re
from dataclasses import replace

import pytest

from harness.cli.compare import row
from reports.analysis.compare import compare_all
from reports.inputs.load import load
from reports.page.by_design import ByDesign, Confirmation
from reports.page.confirmed import asked_again
from reports.page.next_run import NO_STEP, next_of_verdicts
from reports.page.write import render
from reports.verify.confirmed import check_confirmed
from reports.verify.page import read_page
from reports.verify.verify import verify
from tests.report_arms import LADDER
from tests.report_fixtures import write_experiment

LATER = 10  # by how much the seeds of the second experiment are later


def made(folder, name, arms, **facts):
    write_experiment(folder / name, arms=arms, design="add-one", target=None, n_points=3, **facts)
    experiment = load("split", folder / name)
    return replace(experiment, name=name, plan=replace(experiment.plan, name=name))


@pytest.fixture
def explored(tmp_path):
    """Three arms, two of which were asked again on six other seeds."""
    first = made(tmp_path, "mine", LADDER[:3], n_seeds=3)
    again = made(tmp_path, "again", LADDER[:2], n_seeds=6, confirm=True)
    runs = tuple(replace(run, seed=run.seed + LATER) for run in again.plan.runs)
    seeds = tuple(seed + LATER for seed in again.plan.seeds)
    plan = replace(again.plan, runs=runs, seeds=seeds)
    table = again.runs.assign(seed=again.runs["seed"] + LATER)
    again = replace(again, plan=plan, runs=table)
    return replace(first, confirmations=(again,), pages={"again": "again.html"})


def told(experiment, folder, change=lambda text: text):
    page = folder / "page.html"
    page.write_text(change(render([experiment])), encoding="utf-8")
    return page


@pytest.mark.slow
def test_the_page_begins_with_what_came_out_and_asks_for_nothing_itself(explored, tmp_path):
    page = told(explored, tmp_path)
    text = page.read_text()
    assert text.index('data-key="asked_again 0"') < text.index('data-key="answer"')
    assert 'Asked again on 6 fresh seeds since (<a href="again.html">again</a>): ' in text
    assert 'data-key="next_action"' not in text and "ablate confirm" not in text.split("notes")[0]
    assert verify(page) == []


def test_what_to_run_next_is_what_the_other_says_and_who_was_not_asked(explored):
    outcome = compare_all(explored)
    by_design = ByDesign.of(explored, outcome)
    [other] = by_design.confirmed
    theirs = next_of_verdicts(other.experiment, other.outcome, other.by_design)
    said = next_of_verdicts(explored, outcome, by_design)
    assert said == f"By again: {theirs} Not asked again: {LADDER[2].name}."
    assert by_design.confirmed and NO_STEP in theirs
    left = LADDER[2].name
    ask = f"`ablate confirm experiments/split.yaml --arm '{left}' -o FILE`, for {left}, which is"
    for kind, is_asked in (("undecided", True), ("helps", False), ("equal", False)):
        judged = {key: replace(c, kind=kind) for key, c in outcome.comparisons.items()}
        after = next_of_verdicts(explored, replace(outcome, comparisons=judged), by_design)
        assert (f"{ask} undecided here and not asked again." in after) is is_asked, after
        assert ("Not asked again: " in after) is not is_asked  # said once
        assert (NO_STEP in after) is not is_asked
    assert {row(c)["next_action"] for c in outcome.comparisons.values()} == {""}


def test_where_the_other_accepts_a_bound_the_rest_is_what_to_run(explored):
    outcome = compare_all(explored)
    judged = {key: replace(c, kind="undecided") for key, c in outcome.comparisons.items()}
    by_design = ByDesign.of(explored, outcome)
    [other] = by_design.confirmed
    bounded = {}
    for key, c in other.outcome.comparisons.items():
        bounded[key] = replace(
            c, kind="undecided", next_action="take the interval as the answer (why)"
        )
    accepting = replace(other, outcome=replace(other.outcome, comparisons=bounded))
    told = next_of_verdicts(
        explored, replace(outcome, comparisons=judged), replace(by_design, confirmed=[accepting])
    )
    assert (
        f"What to run next: `ablate confirm experiments/split.yaml --arm '{LADDER[2].name}'" in told
    )
    assert told.endswith("not asked again. Take the interval as the answer (why), for untied_head.")


def test_where_the_other_judges_nothing_its_runs_are_what_to_run(explored):
    outcome = compare_all(explored)
    by_design = ByDesign.of(explored, outcome)
    [other] = by_design.confirmed
    failed = replace(other, outcome=replace(other.outcome, comparisons={}))
    told = next_of_verdicts(explored, outcome, replace(by_design, confirmed=[failed]))
    assert told == (
        "By again: What to run next: what did not finish of again, which judges nothing yet."
        f" Not asked again: {LADDER[2].name}."
    )


def test_of_a_ladder_asked_again_without_its_rungs_an_arm_is_named_by_all_its_changes(
    explored, tmp_path
):
    """The same name is a part on the one page and all parts up to it on the other: own parts were not asked again."""
    ladder = replace(explored, plan=replace(explored.plan, design="ladder"))
    [again] = ladder.confirmations
    arms = tuple(
        replace(a, changes=("first", *a.changes) if a.changes else ()) for a in again.plan.arms
    )
    ladder = replace(ladder, confirmations=(replace(again, plan=replace(again.plan, arms=arms)),))
    outcome = compare_all(ladder)
    by_design = ByDesign.of(ladder, outcome)
    [said] = asked_again(ladder, by_design.confirmed)
    assert said.answer.count("untied_head (") == said.answer.count("first + untied_head (") == 1
    open_parts = {k: replace(c, kind="undecided") for k, c in outcome.increments.items()}
    after = next_of_verdicts(ladder, replace(outcome, increments=open_parts), by_design)
    assert after.startswith("By again: Shown")
    asks = "`ablate confirm experiments/split.yaml -o FILE`, for untied_head and untied_head + embed_norm,"
    assert f"{asks} which are undecided here in their own parts and not asked again." in after
    [same] = asked_again(ladder, [Confirmation.of(replace(ladder, confirmations=()))])
    assert "first" not in same.answer
    page = told(ladder, tmp_path)
    assert verify(page) == []
    lie = re.sub(r"(first \+ untied_head \([+−]0\.)", r"\g<1>9", page.read_text(), count=1)
    page.write_text(lie)
    read = read_page(page)
    assert len([*check_confirmed(read, 0, read.data["experiments"][0], None)]) == 1


def test_an_unfinished_one_is_not_looked_at_beforehand(explored, tmp_path):
    [again] = explored.confirmations
    status = again.runs["status"].where(again.runs.index > 0, "pending")
    going_on = replace(again, runs=again.runs.assign(status=status))
    unfinished = replace(explored, confirmations=(going_on,))
    [said] = asked_again(unfinished, [Confirmation.of(going_on)])
    assert said.sentence == "Being asked again on 6 fresh seeds (again): 1 run to come."
    outcome = compare_all(unfinished)
    following = next_of_verdicts(unfinished, outcome, ByDesign.of(unfinished, outcome))
    assert following.startswith("What to run next: the rest of again, 1 run to come")
    assert verify(told(unfinished, tmp_path)) == []


@pytest.mark.parametrize(
    ("said", "lie", "names"),
    [
        ("Asked again on 6", "Asked again on 60", "6 seeds"),
        (rf"({re.escape(LADDER[1].name)} \([+−]0\.)", r"\g<1>9", "is said to be"),
    ],
)
def test_a_lie_about_it_is_found_by_the_second_path(explored, tmp_path, said, lie, names):
    read = read_page(told(explored, tmp_path, lambda text: re.sub(said, lie, text, count=1)))
    sentences = [*check_confirmed(read, 0, read.data["experiments"][0], None)]
    assert len(sentences) == 1 and names in sentences[0], sentences


def test_seeds_that_the_first_has_are_not_fresh(explored, tmp_path):
    [again] = explored.confirmations
    same = replace(again, plan=replace(again.plan, seeds=explored.plan.seeds * 2))
    read = read_page(told(replace(explored, confirmations=(same,)), tmp_path))
    sentences = [*check_confirmed(read, 0, read.data["experiments"][0], None)]
    assert any("seeds are not fresh" in sentence for sentence in sentences)
