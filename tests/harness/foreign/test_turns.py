"""Which blocks are planned: those that there were, and new ones of which all runs are done or none."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.foreign.arm import edited_since
from harness.foreign.experiment import ForeignExperiment, load_foreign
from harness.foreign.plan import describe_foreign, plan_foreign
from harness.foreign.turns import blocks_before, with_blocks
from harness.store.plans import save_plan
from harness.store.store import Store
from tests.foreign_bench import bench, write


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ForeignExperiment:
    """Two arms, old and new."""
    folder = bench(tmp_path, monkeypatch)
    Store.create(folder / "results")
    return load_foreign(write(folder, changes={"new": {"file": "new.py"}}), {})


def finish(e: ForeignExperiment, block: int, *arms: str) -> None:
    for run in plan_foreign(replace(e, seeds=(block,))):
        if run.arm in arms:
            folder = Path("results/runs", run.spec.run_id)
            folder.mkdir(parents=True)
            (folder / "result.json").touch()


def seeds(e: ForeignExperiment, n: int, *, fresh: bool = False) -> tuple[int, ...]:
    return with_blocks(e, Path("results"), n=n, fresh=fresh).seeds


def plan(e: ForeignExperiment, *blocks: int) -> None:
    planned = replace(e, seeds=blocks)
    save_plan(
        Path("results"),
        describe_foreign(planned, plan_foreign(planned), before=None, command="ablate ab"),
    )


BOTH = ("baseline", "new")


def test_new_blocks_are_those_of_which_all_runs_are_done_or_none(
    experiment: ForeignExperiment,
) -> None:
    assert seeds(experiment, 3) == (0, 1, 2)
    finish(experiment, 0, *BOTH)
    finish(experiment, 1, "baseline")
    assert seeds(experiment, 3) == (0, 2, 3)
    assert seeds(experiment, 2, fresh=True) == (2, 3)


def test_blocks_that_were_planned_stay_whatever_is_done_of_them(
    experiment: ForeignExperiment,
) -> None:
    plan(experiment, 4, 1, 2)
    finish(experiment, 1, "new")
    results = Path("results")
    assert blocks_before(experiment, results) == (4, 1, 2)
    assert seeds(experiment, 2) == (4, 1)
    assert seeds(experiment, 5) == (4, 1, 2, 5, 6)
    finish(experiment, 5, *BOTH)
    assert seeds(experiment, 4) == (4, 1, 2, 5)
    assert seeds(experiment, 2, fresh=True) == (4, 1, 2, 6, 7)
    assert seeds(experiment, 1, fresh=True) == (4, 1, 2, 6)


def test_blocks_of_another_script_begin_anew(experiment: ForeignExperiment) -> None:
    plan(experiment, 4, 1)
    Path("new.py").write_text(Path("new.py").read_text() + "\nedited = True\n")
    edited = load_foreign(Path("foreign.yaml"), {})
    assert blocks_before(edited, Path("results")) == ()
    finish(experiment, 0, *BOTH)  # of which only the baseline's counts now
    assert seeds(edited, 2) == (1, 2)


def test_an_arm_more_keeps_the_blocks_and_an_arm_less_does_not(
    experiment: ForeignExperiment,
) -> None:
    fewer = replace(experiment, arms=experiment.arms[:1])
    plan(fewer, 3, 2)
    assert blocks_before(experiment, Path("results")) == (3, 2)
    plan(experiment, 3, 2)
    assert blocks_before(fewer, Path("results")) == ()


def test_a_plan_of_our_own_trainer_lends_no_blocks(experiment: ForeignExperiment) -> None:
    planned = replace(experiment, seeds=(3,))
    made = describe_foreign(planned, plan_foreign(planned), before=None, command="ablate run")
    save_plan(Path("results"), replace(made, foreign=False))
    assert blocks_before(experiment, Path("results")) == ()


def test_arms_whose_script_was_edited_or_is_gone_are_named(experiment: ForeignExperiment) -> None:
    assert edited_since(experiment.arms) == ()
    Path("old.py").write_text("edited = True\n")
    assert edited_since(experiment.arms) == ("baseline",)
    Path("new.py").unlink()
    assert edited_since(experiment.arms) == ("baseline", "new")
