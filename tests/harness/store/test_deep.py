"""A whole look at an experiment: its plan, every run with a result, the code and the environments that they name."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.run.plan import Plan, PlanArm, PlanRun
from harness.store.attempt import claim
from harness.store.deep import wrong_in
from harness.store.plans import folder, save_plan
from harness.store.store import Store
from tests.one_run import SPEC, finish

NEW, OLD, UNMADE = (replace(SPEC, seed=seed) for seed in (0, 1, 2))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store.create(tmp_path / "results")
    for spec in (NEW, OLD):
        out = claim(made, spec)
        assert out is not None
        finish(out)
    return made


def plan_of(*runs: PlanRun) -> Plan:
    arms = (PlanArm(name="base", of="base"),)
    return Plan(name="mine", baseline="base", arms=arms, runs=runs)


def run(run_id: str, *older: str) -> PlanRun:
    facts = {"arm": "base", "seed": 0, "replicate": 0, "budget": 10, "role": "loss", "block": 0}
    return PlanRun(run_id=run_id, older=older, **facts)  # type: ignore[arg-type]


def test_what_is_sound_is_not_spoken_of_and_what_is_not_is_told_once(store: Store) -> None:
    plan = plan_of(run(UNMADE.run_id, OLD.run_id), run(NEW.run_id, "0" * 16))
    save_plan(store.root, plan)
    assert [*wrong_in(store.root, plan)] == []
    environment = store.root / "environments" / f"{SPEC.environment_digest}.json"
    environment.write_text("{}")
    said = f"{environment} is not what its name says"
    assert [*wrong_in(store.root, plan)] == [said]
    metrics = store.directory(OLD.run_id) / "metrics.jsonl"
    metrics.write_text("")
    first, second = wrong_in(store.root, plan)
    assert str(metrics) in first and second == said
    environment.unlink()
    assert [*wrong_in(store.root, plan)] == [first]  # what is gone gives no number
    lock = folder(store.root, "mine") / "plan.lock"
    lock.write_text(lock.read_text() + "{}\n")
    assert len([*wrong_in(store.root, plan)]) == 2
    assert [*wrong_in(store.root, plan_of(run(NEW.run_id)))][1:] == []
