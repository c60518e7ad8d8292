"""A plan: which runs there are in which order, and what of it is kept where it replaces another."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.config.run import RunConfig, with_fields
from harness.errors import UserError
from harness.experiment.budgets import steps_differ
from harness.experiment.experiment import Experiment, load_experiment
from harness.experiment.plan import plan_runs, with_seeds
from harness.experiment.record import describe, locked_plan, with_history
from harness.run.plan import Lock, Plan, PlanRun
from tests.fake_matrix import EXPERIMENT

PHASES = "phases: {timing: {gpus_per_run: 2, seeds: 1}, loss: {}}\n"


def load(folder: Path, keys: str = "") -> Experiment:
    file = folder / "fake.yaml"
    two_ranks = EXPERIMENT.replace("ranks: 1", "ranks: 2").replace(
        "micro_tokens: 512", "micro_tokens: 256"
    )
    file.write_text(two_ranks + keys)
    return load_experiment(str(file), device="cpu")


def test_losses_come_first_block_by_block_and_a_time_is_taken_at_the_longest_budget(
    tmp_path: Path,
) -> None:
    e = load(tmp_path, f"seeds: [4, 2]\nbudgets: [30, 10]\n{PHASES}")
    runs = plan_runs(e, need_data=False)
    assert [(r.spec.role, r.block, r.spec.seed, r.place) for r in runs] == [
        *(("loss", 0, 4, place) for place in range(4)),
        *(("loss", 1, 2, place) for place in range(4)),
        *(("timing", 0, 4, place) for place in range(2)),
    ]
    for block in (runs[:4], runs[4:8]):
        cells = {(r.arm, r.spec.budget, r.spec.world_size) for r in block}
        assert cells == {(arm.name, steps, 1) for arm in e.arms for steps in (10, 30)}
    assert {(r.arm, r.spec.budget, r.spec.world_size) for r in runs[8:]} == {
        (arm.name, 30, 2) for arm in e.arms
    }
    assert {r.spec.toggles for r in runs} == {
        ("the baseline: nothing is changed",),
        ("model.tied_head = False", "model.embed_init = normal"),
    }
    more = plan_runs(with_seeds(e, [7]), need_data=False)
    assert {(r.spec.seed, r.block) for r in more} == {(7, 0)}


@pytest.mark.parametrize(
    ("keys", "world_size"),
    [
        (PHASES, 1),
        ("phases: {loss: {gpus_per_run: 4}}\n", None),
        ("", 3),
        ("  text: {data.corpus: fineweb10B}\n", None),
    ],
)
def test_what_cannot_be_planned_is_told_in_a_line(
    keys: str, world_size: int | None, tmp_path: Path, kept_line: Callable[[str], None]
) -> None:
    e = load(tmp_path, keys)
    with pytest.raises(UserError) as refused:
        plan_runs(e, world_size=world_size, need_data=False)
    kept_line(str(refused.value))


@pytest.mark.parametrize(("n_tokens", "differ"), [(100, False), (101, False), (102, True)])
def test_steps_are_a_unit_where_arms_read_as_many_tokens_to_a_hundredth(
    n_tokens: int, differ: bool
) -> None:
    arms = []
    for batch_tokens in (n_tokens, 100):
        config = with_fields(RunConfig(), {"data.batch_tokens": batch_tokens})
        arms.append(SimpleNamespace(config=config))
    assert steps_differ(arms, 10) is differ


def row(intent: str, run_id: str, **more: object) -> PlanRun:
    run = PlanRun(
        arm="a",
        seed=0,
        replicate=0,
        budget=1,
        role="loss",
        block=0,
        run_id=run_id,
        intent_id=intent,
    )
    return replace(run, **more)


def test_a_plan_keeps_locks_looks_and_the_older_runs_of_what_it_replaces() -> None:
    lock = Lock(locked="2026-01-01", digest="x", plan={"seeds": [0]})
    rows = (row("i1", "r1", older=("r0",)), row("i2", "r2"), row("i3", "r3"))
    before = Plan(name="x", locks=(lock,), looks=3, looked_at=7, runs=rows)
    now = (row("i1", "r9"), row("i2", "r2"), row("i3", "r8", borrowed=True), row("i4", "r4"))
    plan = with_history(Plan(name="x", runs=now), before, {"seeds": [0, 1]})
    assert [run.older for run in plan.runs] == [("r1", "r0"), (), (), ()]
    assert (plan.looks, plan.looked_at, plan.locks[0], len(plan.locks)) == (3, 7, lock, 2)
    assert plan.locks[1].plan == {"seeds": [0, 1]} and len(plan.locks[1].digest) == 16
    first = with_history(Plan(name="x", runs=now), None, {})
    assert (first.looks, first.looked_at, len(first.locks)) == (0, 0, 1)
    assert [run.older for run in first.runs] == [()] * 4


def test_what_is_written_of_an_experiment_is_what_it_resolves_to(tmp_path: Path) -> None:
    keys = "alters_noise: [untied_head]\nmargin: 0.5\nslope: {per_step: 0.1, se: 0}\n"
    e = load(tmp_path, f"{keys}prior_noise: {{sd: 0.1, source: x}}\n{PHASES}")
    runs = plan_runs(e)
    plan = describe(e, runs, before=None, command="ablate run fake")
    assert [(arm.name, arm.alters_noise) for arm in plan.arms] == [
        ("baseline", False),
        ("untied_head", True),
    ]
    assert plan.phases == {
        "loss": {"gpus_per_run": 1, "seeds": None},
        "timing": {"gpus_per_run": 2, "seeds": 1},
    }
    assert [*plan.phases] == ["loss", "timing"]
    assert plan.slope == {"per_step": 0.1, "se": 0.0, "source": "given"}
    assert (plan.margin, plan.seeds, plan.command) == (0.5, (0, 1, 2), "ablate run fake")
    assert plan.prior_noise == e.prior_noise and plan.protocol == "skip10"
    for planned, run in zip(plan.runs, runs, strict=True):
        spec = run.spec
        assert (planned.run_id, planned.intent_id) == (spec.run_id, spec.intent_id)
        assert (planned.place, planned.block, planned.seed) == (run.place, run.block, spec.seed)
        assert planned.environment == spec.environment_digest and planned.trunk is None
    assert Plan.from_mapping(plan.to_mapping()) == plan


LOCKED = [
    *("question", "base", "scale", "baseline", "design", "arms", "baseline_config", "primary"),
    *("seeds", "seeds_rule", "phases", "budgets", "target", "margin", "estimand", "axes", "grid"),
    *("rates", "confirm", "published", "alters_noise", "slope"),
]
LATE = EXPERIMENT.replace("r08.untied_head", "{schedule.lr_floor: 0.3}")
AXES_ALONE = "axes: {optim.muon_lr: [x0.5, x2]}\n"


@pytest.mark.parametrize(
    ("text", "more"),
    [
        (EXPERIMENT, []),
        (LATE + "branch_at: 12\n", ["branch_at"]),
        (EXPERIMENT + "prior_noise: {sd: 0.1, source: x}\n", ["prior_noise"]),
        (EXPERIMENT + "design: chain\n", ["parents"]),
        (EXPERIMENT + AXES_ALONE + "draw: {random: 2}\n", ["draw"]),
        (
            EXPERIMENT.partition("changes")[0] + AXES_ALONE + "halving: 2\nbudgets: [9, 20]\n",
            ["halving"],
        ),
    ],
)
def test_what_is_locked_has_a_place_for_what_few_plans_have_only_where_they_have_it(
    text: str, more: list[str], tmp_path: Path
) -> None:
    """Another key would be another plan: every older lock would be told as a change."""
    file = tmp_path / "fake.yaml"
    file.write_text(text)
    locked = locked_plan(load_experiment(str(file), device="cpu"))
    assert [*locked] == LOCKED + more
    assert locked["arms"]["baseline"] == {"changes": [], "fields": {}}
    assert locked["grid"] is None and locked["target"] is None and locked["rates"] == {}
