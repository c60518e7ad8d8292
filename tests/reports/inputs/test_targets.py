"""A target that the baseline's first block sets: declared before, the mean of its two ends, none of its runs in what rests on it."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.experiment.experiment import Experiment, load_experiment
from reports.analysis.compare import compare_all
from reports.inputs.load import load
from reports.inputs.recorded import read_run
from reports.inputs.targets import decided
from reports.page.write import write_report
from reports.verify.verify import verify
from tests.report_arms import LADDER
from tests.report_fixtures import write_experiment

BUDGETS = (150, 300)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("targets") / "results"
    write_experiment(
        root, arms=LADDER[:2], n_seeds=4, n_points=4, budgets=BUDGETS, design="add-one", target=None
    )
    path = root / "experiments" / "split" / "experiment.json"
    plan = json.loads(path.read_text())
    plan["target"] = {"val_loss": None, "reason": "declared", "from_baseline": True}
    path.write_text(json.dumps(plan))
    return root


def test_it_is_midway_between_the_first_blocks_losses(results: Path) -> None:
    loaded = load("split", results=results)
    runs = loaded.runs[(loaded.runs["arm"] == LADDER[0].name) & (loaded.runs["role"] == "loss")]
    losses = runs[runs["seed"] == 0].set_index("budget")["val_loss"]
    assert loaded.plan.target
    assert loaded.plan.target.val_loss == round((losses[150] + losses[300]) / 2, 3)
    assert loaded.plan.target.reason == "declared"
    assert loaded.runs["first_crossing_s"].notna().any()


def test_before_the_baselines_first_block_has_run_there_is_none(results: Path) -> None:
    plan = replace(load("split", results=results).plan)
    assert plan.target
    plan = replace(plan, target=replace(plan.target, val_loss=None))
    assert decided(plan, [], accept_stale=False) is plan


@pytest.mark.parametrize(
    ("how", "accept_stale", "counts"),
    [
        ({"stale": True}, False, False),
        ({"stale": True}, True, True),
        ({"status": "diverged"}, True, False),
        ({"result": None}, True, False),
    ],
)
def test_it_is_set_where_every_run_of_the_baseline_s_first_block_counts(
    results: Path, how: dict[str, Any], accept_stale: bool, counts: bool
) -> None:
    plan = load("split", results=results).plan
    runs = [read_run(results / "runs", plan, planned) for planned in plan.runs]
    assert plan.target
    unset = replace(plan, target=replace(plan.target, val_loss=None))
    inside, outside = [], []
    for run in runs:
        of_block = run.planned.arm == plan.baseline and run.planned.seed == 0
        changed = replace(run, **how)
        outside.append(run if of_block else changed)
        if of_block:
            inside.append([other if other is not run else changed for other in runs])
    assert decided(unset, outside, accept_stale=accept_stale) == plan
    for others in inside:
        made = decided(unset, others, accept_stale=accept_stale)
        assert made == plan if counts else made is unset
    timing = replace(runs[0].planned, arm=plan.baseline, seed=0, role="timing")
    more = [*runs, replace(runs[0], planned=timing, status="failed", result=None)]
    assert decided(unset, more, accept_stale=accept_stale) == plan
    assert decided(unset, [*runs, *runs], accept_stale=accept_stale) == plan  # replicates


def test_nothing_of_its_block_moves_the_time_to_it(results: Path) -> None:
    """At the same target another loss of another arm's run in that block changes nothing, of another block it does."""
    loaded = load("split", results=results)
    before = compare_all(loaded).times[LADDER[1].name]
    assert before.n_star is not None
    for seed, moves in ((0, False), (1, True)):
        loaded = load("split", results=results)
        runs = loaded.runs
        of_arm = (runs["arm"] == LADDER[1].name) & (runs["seed"] == seed) & (runs["budget"] == 300)
        runs.loc[of_arm, "val_loss"] += 0.01
        after = compare_all(loaded).times[LADDER[1].name]
        assert (after.n_star != before.n_star) is moves


def test_until_its_block_is_there_it_is_none(results: Path, tmp_path: Path) -> None:
    write_experiment(
        tmp_path, arms=LADDER[:2], n_seeds=2, n_points=4, budgets=BUDGETS, design="add-one",
        target=None, outcome={(LADDER[0].name, 0): "pending"},
    )  # fmt: skip
    path = tmp_path / "experiments" / "split" / "experiment.json"
    plan = json.loads(path.read_text())
    plan["target"] = {"val_loss": None, "reason": "declared", "from_baseline": True}
    path.write_text(json.dumps(plan))
    loaded = load("split", results=tmp_path)
    assert loaded.plan.target and loaded.plan.target.val_loss is None
    page = tmp_path / "page.html"
    write_report([loaded], page)
    assert "Target loss not set yet (as planned: declared)" in page.read_text()
    assert verify(page) == []


def test_the_page_shows_it_and_verify_finds_one_that_was_moved(
    results: Path, tmp_path: Path
) -> None:
    loaded, page = load("split", results=results), tmp_path / "page.html"
    write_report([loaded], page)
    assert loaded.plan.target and loaded.plan.target.val_loss
    loss = loaded.plan.target.val_loss
    text = page.read_text()
    assert f"Target loss {loss:g} nats per byte (as planned: declared)" in text
    assert verify(page, results) == []
    forged = re.sub(rf'("target":\s*{{"val_loss":\s*){loss}', rf"\g<1>{loss + 0.01}", text)
    assert forged != text
    page.write_text(forged)
    assert any("first block sets" in said for said in verify(page))


def loaded_with(**overrides: object) -> Experiment:
    return load_experiment(
        "quickstart",
        device="cpu",
        overrides={k.replace("__", "."): v for k, v in overrides.items()},
    )


def test_a_target_belongs_to_the_corpus_of_its_file() -> None:
    own = loaded_with().target
    assert own and own.val_loss == 1.86 and not own.from_baseline
    assert loaded_with(data__corpus="stdlib").target == own
    other = loaded_with(data__corpus="mine").target
    assert other and other.from_baseline and other.val_loss is None
    assert "1.86 was measured on stdlib" in str(other.reason)
    given = loaded_with(data__corpus="mine", target={"val_loss": 5.0}).target
    assert given and given.val_loss == 5.0 and not given.from_baseline
    asked = loaded_with(target="from baseline").target
    assert asked and asked.from_baseline and "as the experiment asks" in str(asked.reason)
