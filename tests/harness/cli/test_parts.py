"""An experiment with the seeds that its rule had added, and the plan of one that was never launched."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.cli.lookup import plan_of
from harness.cli.parts import resumed
from harness.experiment.experiment import load_experiment
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


def test_an_experiment_that_was_never_launched_has_the_plan_of_its_file(tmp_path: Path) -> None:
    plan = plan_of("quickstart", tmp_path)
    e = load_experiment("quickstart", device="cpu")
    assert (plan.name, plan.seeds) == ("quickstart", tuple(e.seeds))
    assert {run.arm for run in plan.runs} == {arm.name for arm in e.arms}
