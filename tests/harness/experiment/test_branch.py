"""branch_at: which changes may begin late, and what a plan of them holds."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.config.run import get
from harness.config.schedule import SCHEDULED, schedule_at
from harness.errors import UserError
from harness.experiment.branch import acts_before, differs_in_schedule
from harness.experiment.cost import by_flops, estimate
from harness.experiment.experiment import Experiment, load_experiment
from harness.experiment.plan import plan_runs
from harness.run.spec import trunks_of

LATE = """
name: late
base: r07
scale: tiny
set: {schedule.steps: 60}
branch_at: 36
changes:
"""
FLOOR = "  floor: {schedule.lr_floor: 0.3}\n"


def load(folder: Path, text: str, **arguments: object) -> Experiment:
    path = folder / "exp.yaml"
    path.write_text(text)
    return load_experiment(str(path), device="cpu", **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        "{schedule.lr_floor: 0.3}",
        "{schedule.cooldown_steps: 4}",
        "{schedule.cooldown_steps: null, schedule.cooldown_frac: 0.25}",
        "{schedule.steps: 330}",
    ],
)
def test_a_change_whose_schedules_are_the_baselines_before_it_may_branch(
    tmp_path: Path, change: str
) -> None:
    text = LATE.replace("set: {schedule.steps: 60}\n", "")
    e = load(tmp_path, f"{text}  late: {change}\n")
    assert e.branch_at == 36
    runs = plan_runs(e, need_data=False)[:2]
    (trunk,) = trunks_of(runs)
    for run in runs:
        assert run.spec.trunk == trunk.spec
    assert (trunk.spec.until, trunk.arm) == (36, "trunk")


REFUSED = {
    "  t: r08.untied_head\n": "arm 't' sets model.tied_head, which acts from the first update on",
    "  t: {schedule.lr_floor: 0.3, optim.muon_lr: 0.01}\n": "arm 't' sets optim.muon_lr, which acts",
    "  t: {schedule.cooldown_steps: 40}\n": "multiplies its learning rates by 0.975 where the "
    "baseline's is 1 at update 21 already: branch at 21, or before",
    "  t: {schedule.warmup_steps: 5}\n": "multiplies its learning rates by 0.2 where the "
    "baseline's is 1 at update 0 already",
    "  t: {optim.muon_momentum: 0.9}\n": "has a momentum of 0.9 where the baseline's is 0.95 at",
    "  t: {data.val_every: 7}\n": "arm 't' sets data.val_every",
    f"{FLOOR}budgets: [60, 80]\n": "branch_at and budgets do not go together",
    f"{FLOOR}axes: {{optim.muon_lr: [x0.5, x1]}}\n": "branch_at and axes do not go together",
    f"{FLOOR}phases: {{loss: {{}}, timing: {{}}}}\n": "branch_at and a timing phase do not go",
    f"{FLOOR}estimand: retuned\n": "branch_at and estimand: retuned do not go together",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_can_act_before_it_is_refused_in_one_line(
    tmp_path: Path, text: str, kept_line: Callable[[str], None]
) -> None:
    with pytest.raises(UserError) as error:
        load(tmp_path, LATE + text)
    assert REFUSED[text] in str(error.value)
    assert f"{tmp_path}/exp.yaml:6: branch_at" in str(error.value)
    assert "\n" not in str(error.value)
    kept_line(str(error.value))


@pytest.mark.parametrize("at", ["0", "60", "x1", "many", "1.5", "true"])
def test_it_lies_within_every_arms_training(
    tmp_path: Path, at: str, kept_line: Callable[[str], None]
) -> None:
    with pytest.raises(
        UserError, match=r"branch_at.* (ends after 60 steps|must be a number)"
    ) as refused:
        load(tmp_path, LATE.replace("branch_at: 36", f"branch_at: {at}") + FLOOR)
    kept_line(str(refused.value))
    assert load(tmp_path, LATE.replace("branch_at: 36", "branch_at: x0.5") + FLOOR).branch_at == 30


def test_another_environment_acts_from_the_first_update_on(tmp_path: Path) -> None:
    baseline, arm = load(tmp_path, LATE + FLOOR).arms
    assert acts_before(36, arm, baseline) is None
    elsewhere = replace(arm, runs_in="other")
    assert acts_before(36, elsewhere, baseline) == (
        "runs in another environment from the first update on: leave branch_at out"
    )
    assert (acts_before(60, arm, baseline) or "").startswith("ends after 60 steps")
    assert "ends after" not in (acts_before(59, arm, baseline) or "")


def test_a_window_counts_by_its_value(tmp_path: Path) -> None:
    """Its warm-up depends on how many updates there are; constant, it does not."""
    base = load(tmp_path, LATE + FLOOR).baseline.config
    base = replace(base, model=replace(base.model, attn_window="token"))
    longer = replace(base, schedule=replace(base.schedule, steps=80))
    assert differs_in_schedule(36, longer, base) is None
    grown = [
        replace(c, schedule=replace(c.schedule, window_warmup="tokens")) for c in (longer, base)
    ]
    said = differs_in_schedule(36, *grown)
    assert said is not None
    assert said.startswith("has windows of ")
    assert {schedule_at(base, step).windows for step in range(36)} == {
        (base.schedule.window_tokens,)
    }
    for name in SCHEDULED:
        get(base, name)


def test_a_price_counts_a_trunk_once_a_seed(tmp_path: Path) -> None:
    e = load(tmp_path, f"{LATE}{FLOOR}  short: {{schedule.cooldown_steps: 4}}\n")
    whole = load(tmp_path, f"{LATE.replace('branch_at: 36', '')}{FLOOR}")
    runs, alone = plan_runs(e, need_data=False), plan_runs(whole, need_data=False)
    cost = estimate(runs, set(), tmp_path)
    batch = e.baseline.config.data.batch_tokens
    assert (cost.runs, cost.tokens) == (9, 3 * (36 + 3 * 24) * batch)
    assert "9 runs and 3 trunks that they go on from" in cost.words
    parts = [by_flops(spec) for spec in (trunks_of(runs)[0].spec, runs[0].spec)]
    assert sum(parts) == pytest.approx(by_flops(alone[0].spec), rel=0.05)
    assert parts[0] / parts[1] == pytest.approx(36 / 24, rel=0.15)
    a_seed_done = {run.spec.run_id for run in runs if run.spec.seed == 0}
    assert estimate(runs, a_seed_done, tmp_path).tokens == 2 * (36 + 3 * 24) * batch


def test_a_run_that_is_not_branched_keeps_its_name(tmp_path: Path) -> None:
    text = LATE + FLOOR
    branched = plan_runs(load(tmp_path, text), need_data=False)
    whole = plan_runs(load(tmp_path, text.replace("branch_at: 36", "")), need_data=False)
    assert not {r.spec.run_id for r in branched} & {r.spec.run_id for r in whole}
    assert all("branch" not in r.spec.asked() and "until" not in r.spec.asked() for r in whole)


def test_the_catalogues_late_cooldown_plans_at_both_scales() -> None:
    for scale, device in (("gpt2", "cuda"), ("tiny", "cpu")):
        e = load_experiment("late_cooldown", device=device, overrides={"scale": scale})
        steps = e.baseline.config.schedule.steps
        assert e.branch_at == round(0.7 * steps)
        assert len(trunks_of(plan_runs(e, need_data=False))) == len(e.seeds)
