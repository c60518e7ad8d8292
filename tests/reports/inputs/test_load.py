"""An experiment's folder as tables: what a run whose clock ran on while nothing else did still tells."""

import json
from pathlib import Path

import pytest

from reports.inputs.load import confirmations_in, load
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
