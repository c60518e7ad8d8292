"""Two phases: losses on packed small runs, times on a few runs that have the node to themselves."""

from pathlib import Path

import pytest

from harness.errors import UserError
from harness.experiment.experiment import load_experiment
from harness.experiment.plan import plan_runs
from harness.run.spec import PlannedRun, is_exclusive
from tests.fake_matrix import EXPERIMENT


def planned(tmp_path: Path, keys: str, **options: int) -> list[PlannedRun]:
    file = tmp_path / "phased.yaml"
    file.write_text(
        EXPERIMENT.replace("data.ranks: 1", "data.ranks: 2").replace(
            "micro_tokens: 512", "micro_tokens: 256"
        )
        + keys
    )
    return plan_runs(load_experiment(str(file), device="cpu"), need_data=False, **options)


def test_timing_runs_follow_the_loss_runs_at_the_first_seeds_and_the_longest_budget(
    tmp_path: Path,
) -> None:
    keys = "seeds: 3\nbudgets: [10, 20]\nphases: {timing: {gpus_per_run: 2, seeds: 1}, loss: {}}\n"
    runs = planned(tmp_path, keys)
    assert [(r.spec.role, r.spec.world_size) for r in runs] == [("loss", 1)] * 12 + [
        ("timing", 2)
    ] * 2
    timing = runs[12:]
    assert {(r.arm, r.spec.seed, r.spec.budget) for r in timing} == {
        ("baseline", 0, 20),
        ("untied_head", 0, 20),
    }
    assert [is_exclusive(r.spec) for r in runs] == [False] * 12 + [True] * 2
    assert len({r.spec.run_id for r in runs}) == 14


def test_without_phases_every_run_is_a_loss_run(tmp_path: Path) -> None:
    runs = planned(tmp_path, "seeds: 1\n", world_size=2)
    assert [(r.spec.role, r.spec.world_size) for r in runs] == [("loss", 2)] * 2


def test_phases_and_an_option_do_not_both_say_how_many_gpus(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"its phases say how many GPUs .*: leave --gpus-per-run out"
    ):
        planned(tmp_path, "phases: {loss: {}, timing: {gpus_per_run: 2}}\n", world_size=1)


def test_a_phase_that_the_ranks_cannot_share_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"^phases: timing: gpus_per_run 8 does not divide data.ranks=2"
    ):
        planned(tmp_path, "phases: {loss: {}, timing: {gpus_per_run: 8}}\n")
    with pytest.raises(UserError, match=r"^--gpus-per-run 8 does not divide data.ranks=2"):
        planned(tmp_path, "phases: {loss: {}}\n", world_size=8)
