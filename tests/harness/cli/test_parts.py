"""An experiment with the seeds that its rule had added, and the plan of one that was never launched."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.cli.lookup import plan_of
from harness.cli.parts import resumed
from harness.errors import UserError
from harness.experiment.experiment import load_experiment
from harness.experiment.plan import plan_runs
from harness.run.plan import SeedsRule

RULE = SeedsRule(stop={"decide": True}, least=2, most=9)


@pytest.mark.parametrize(
    ("saved", "seeds"),
    [
        (None, (0, 1)),
        ({"seeds_rule": RULE, "seeds": (0, 1, 2, 3)}, (0, 1, 2, 3)),
        ({"seeds_rule": replace(RULE, most=8), "seeds": (0, 1, 2)}, (0, 1)),
        ({"seeds_rule": None, "seeds": (0, 1, 2)}, (0, 1)),
        ({"seeds_rule": RULE, "seeds": (5, 6, 7)}, (0, 1)),  # of an earlier file
        ({"seeds_rule": RULE, "seeds": (0, 1)}, (0, 1)),
    ],
)
def test_seeds_that_a_rule_added_are_those_of_the_same_question(
    saved: dict[str, Any] | None,
    seeds: tuple[int, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = None if saved is None else SimpleNamespace(**saved)
    monkeypatch.setattr("harness.store.plans.read_plan", lambda results, name: plan)
    e = replace(load_experiment("quickstart", device="cpu"), seeds=(0, 1), seeds_rule=RULE)
    assert resumed(e, tmp_path).seeds == seeds
    assert resumed(replace(e, seeds_rule=None), tmp_path).seeds == (0, 1)


def test_runs_are_planned_of_a_corpus_that_is_there_unless_nothing_is_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path))
    overrides = {"scale": "gpt2", "data.corpus": "fineweb10B"}
    e = load_experiment("r08_split", device="cuda", overrides=overrides)
    with pytest.raises(UserError, match="corpus 'fineweb10B' is not prepared"):
        plan_runs(e, world_size=8)
    assert {run.arm for run in plan_runs(e, world_size=8, need_data=False)} == {
        arm.name for arm in e.arms
    }


def test_an_experiment_that_was_never_launched_has_the_plan_of_its_file(tmp_path: Path) -> None:
    plan = plan_of("quickstart", tmp_path)
    e = load_experiment("quickstart", device="cpu")
    assert (plan.name, plan.seeds) == ("quickstart", tuple(e.seeds))
    assert {run.arm for run in plan.runs} == {arm.name for arm in e.arms}
