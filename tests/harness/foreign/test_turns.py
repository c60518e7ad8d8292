"""Which blocks are planned: those that there were, and new ones of which all runs are done or none."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.foreign.arm import edited_since
from harness.foreign.experiment import ForeignExperiment, load_foreign
from harness.foreign.plan import describe_foreign, plan_foreign, restored
from harness.foreign.turns import blocks_before, with_blocks
from harness.run.foreign import TrainerLimits
from harness.run.plan import SeedsRule
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


def test_blocks_are_asked_for_beside_those_that_were_planned_and_never_half_done_ones(
    experiment: ForeignExperiment,
) -> None:
    plan(experiment, 4, 1, 2)
    finish(experiment, 1, "new")
    finish(experiment, 5, *BOTH)
    asked = [seeds(experiment, n) for n in (2, 4)]
    assert asked == [(4, 1), (4, 1, 2, 5)]
    assert seeds(experiment, 2, fresh=True) == (4, 1, 2, 6, 7)
    new = replace(experiment, name="new")  # of the same scripts, whose runs are the same
    assert [seeds(new, 5), seeds(new, 5, fresh=True)] == [(0, 2, 3, 4, 5), (0, 2, 3, 4, 6)]


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


def test_runs_of_arms_that_differ_in_code_alone_have_numbers_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = bench(tmp_path, monkeypatch)
    Path("beside").mkdir()
    Path("new.py").rename("beside/old.py")
    e = load_foreign(write(folder, changes={"new": {"file": "beside/old.py"}}), {})
    numbers = {}
    for run in plan_foreign(replace(e, seeds=(0, 2))):
        numbers[run.arm, run.block] = run.spec.replicate
    assert numbers == {**{("baseline", 0): 0, ("new", 0): 1}, ("baseline", 1): 4, ("new", 1): 5}


def test_of_seeds_that_a_rule_adds_to_the_first_alone_is_decided_before(
    experiment: ForeignExperiment,
) -> None:
    rule = SeedsRule(least=1, most=9, stop={})
    for seeds_rule, decided in ((None, [4, 1]), (rule, [4])):
        e = replace(experiment, seeds=(4, 1), confirm=True, seeds_rule=seeds_rule)
        made = describe_foreign(e, plan_foreign(e), before=None, command="ablate run")
        assert [lock.plan["seeds"] for lock in made.locks] == [decided]


def test_what_is_kept_of_an_experiment_makes_it_again(experiment: ForeignExperiment) -> None:
    limits = TrainerLimits(retries=2, wall_s=9.0)
    e = replace(experiment, seeds=(2, 1), limits=limits, margin=0.01, question="Why?")
    made = describe_foreign(e, plan_foreign(e), before=None, command="ablate run")
    assert restored(Path("results"), made) == replace(e, started="ablate run")
    usual = restored(Path("results"), replace(made, limits=None))
    assert usual.limits == TrainerLimits()


def test_arms_whose_script_was_edited_or_is_gone_are_named(experiment: ForeignExperiment) -> None:
    assert edited_since(experiment.arms) == ()
    Path("old.py").write_text("edited = True\n")
    assert edited_since(experiment.arms) == ("baseline",)
    Path("new.py").unlink()
    assert edited_since(experiment.arms) == ("baseline", "new")
