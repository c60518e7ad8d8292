"""An experiment's folder as tables: what a run whose clock ran on while nothing else did still tells."""

import json
from pathlib import Path

import pytest
import yaml

from harness.store.looks import note_look
from reports.inputs.load import confirmations_in, load
from tests.report_arms import LADDER
from tests.report_fixtures import Arm, write_experiment
from tests.sealing import seal_again

ARMS = (Arm(name="base"), Arm(name="arm", step_factor=0.9))
STILL = {"kind": "still", "words": "it stood still for 40 s"}
LOADED = {"kind": "load", "words": "others used its GPU"}


@pytest.mark.parametrize(("disturbance", "keeps_times"), [(STILL, False), (LOADED, True)])
def test_a_run_that_stood_still_has_its_losses_and_no_times(
    tmp_path: Path, disturbance: dict[str, str], keeps_times: bool
) -> None:
    write_experiment(tmp_path, arms=ARMS, n_seeds=2)
    before = load("split", tmp_path)
    run_id = before.runs["run_id"][before.runs["arm"] == "arm"].iloc[0]
    seal_again(tmp_path / "runs" / run_id, disturbed=[disturbance])
    after = load("split", tmp_path)
    others = {run for run in before.step_times if run != run_id}
    assert others and run_id in before.step_times
    assert set(after.step_times) == others | ({run_id} if keeps_times else set())
    for run, curve in after.curves.groupby("run_id"):
        known = curve["train_time_s"].notna()
        expected = run != run_id or keeps_times
        assert list(known) == [expected] * len(known)
        assert curve["val_loss"].notna().all()
    rows = after.runs[after.runs["run_id"] == run_id]
    assert rows["val_loss"].notna().all()
    assert list(rows["train_time_s"].notna()) == [keeps_times] * len(rows)
    # without its times it may have been in time
    assert not rows["censored"].any()
    assert list(rows["first_crossing_s"].notna()) == [keeps_times] * len(rows)


def test_a_run_that_diverged_is_the_one_that_was_seen_whatever_its_last_loss(
    tmp_path: Path,
) -> None:
    write_experiment(
        tmp_path, arms=LADDER[:2], n_seeds=3, outcome={(LADDER[1].name, 1): "diverged"}
    )
    runs = load("split", tmp_path).runs
    run_id = runs["run_id"][runs["status"] == "diverged"].iloc[0]
    seal_again(tmp_path / "runs" / run_id, val_loss=9.5)
    note_look(tmp_path, load("split", tmp_path).plan, "compare")
    assert load("split", tmp_path).memory.lost == {}


def test_runs_that_were_seen_at_seeds_that_are_planned_no_more_are_among_the_others(
    tmp_path: Path,
) -> None:
    write_experiment(tmp_path, arms=LADDER[:2], n_seeds=3, n_points=2)
    before = load("split", tmp_path)
    note_look(tmp_path, before.plan, "compare")
    path = tmp_path / "experiments" / "split" / "experiment.json"
    plan = json.loads(path.read_text())
    plan["seeds"] = [0, 2]
    plan["runs"] = [run for run in plan["runs"] if run["seed"] != 1]
    path.write_text(json.dumps(plan))
    after = load("split", tmp_path)
    assert after.memory.changed and after.plan.seeds == (0, 2, 1)
    assert sorted(after.runs["run_id"]) == sorted(before.runs["run_id"])
    assert [*after.runs["seed"]][-2:] == [1, 1] and after.results == before.results


@pytest.mark.parametrize("key", ["seed", "replicate", "budget"])
def test_a_run_that_is_another_than_its_plan_names_does_not_count(tmp_path: Path, key: str) -> None:
    write_experiment(tmp_path, arms=LADDER[:2], n_seeds=1, n_points=2)
    run = load("split", tmp_path).runs.iloc[0]
    planned, other = int(run[key]), int(run[key]) + 5
    config = tmp_path / "runs" / run["run_id"] / "config.yaml"
    content = yaml.safe_load(config.read_text())
    config.write_text(yaml.safe_dump({**content, key: other}))
    seal_again(config.parent)
    (said,) = load("split", tmp_path).unsound
    assert said.endswith(f"config.yaml: {key} {other}, its plan: {planned}")


def test_an_experiment_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"no experiment 'other' here; run one first: ablate run EXP"
    ):
        load("other", tmp_path)
    write_experiment(tmp_path, arms=ARMS, n_seeds=2, name="one")
    write_experiment(tmp_path, arms=ARMS, n_seeds=2, name="two")
    with pytest.raises(ValueError, match=r"no experiment 'other' here; there are one, two"):
        load("other", tmp_path)
    assert load(str(tmp_path / "experiments" / "one"), tmp_path).name == "one"


def test_only_what_is_there_and_was_planned_to_confirm_has_confirmed(tmp_path: Path) -> None:
    for name, confirm in (("again", True), ("other", False)):
        write_experiment(tmp_path, arms=(Arm(name="base"),), n_seeds=1, n_points=2, confirm=confirm)
        (tmp_path / "experiments" / "split").rename(tmp_path / "experiments" / name)
        plan = tmp_path / "experiments" / name / "experiment.json"
        plan.write_text(json.dumps(json.loads(plan.read_text()) | {"name": name}))
    found = confirmations_in(tmp_path, ["gone", "other", "again"], accept_stale=True)
    assert [other.name for other in found] == ["again"]
