"""What a plan's table has, and what the seeds for a difference take in runs, hours and price."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.__main__ import main
from harness.cli.plan import device_to_plan, print_overview, print_plan
from harness.cli.plan_facts import PlanQuestion, changes_words, plan_facts, seeds_words
from harness.cli.power import known_of, power_of
from harness.errors import UserError
from harness.experiment.cost import PricedCost
from harness.experiment.experiment import Experiment, load_experiment
from harness.experiment.plan import plan_runs
from harness.run.plan import Plan, PriorNoise, SeedsRule, Target
from reports.analysis.assumptions import Known, Noise
from reports.stats.verdicts import enough_for_sequence, enough_to_permute


@pytest.fixture(scope="module")
def split() -> Experiment:
    overrides = {"scale": "gpt2", "data.corpus": "fineweb10B"}
    return load_experiment("r08_split", device="cuda", overrides=overrides)


def test_the_seeds_for_a_difference_are_told_with_what_they_take(
    split: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path))
    planned = plan_runs(split, world_size=8, need_data=False)
    asked = PlanQuestion(detect=0.002, price=3.0)
    power = plan_facts(split, planned, tmp_path, asked).power
    needed = power.needed
    assert needed is not None and power.seeds_needed is not None
    assert needed.runs == power.seeds_needed * len(planned) / len(split.seeds)
    [said] = [line for line in power.words if line.startswith("a difference of")]
    assert said.startswith(
        f"a difference of 0.002 needs {power.seeds_needed} seeds per arm: {needed.runs} runs in all"
    )
    assert needed.hours is not None and needed.price == pytest.approx(3.0 * needed.hours)
    hours, price = re.findall(r"about ([0-9.]+)", said)
    assert (hours, price) == (f"{needed.hours:.2f}", f"{needed.price:.2f}")
    assert said.endswith(" in price")
    comparisons = f"(power 0.8, {len(split.arms) - 1} comparisons)"
    assert any(comparisons in line for line in power.words)
    nothing = plan_facts(split, planned, tmp_path, PlanQuestion()).power
    assert not any("a difference of" in line for line in nothing.words)


def test_seeds_that_a_rule_adds_decide_less_than_as_many_that_are_given(
    split: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their intervals hold at every look."""
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path))
    given = replace(split, arms=split.arms[:2], seeds=tuple(range(12)))
    added = replace(given, seeds_rule=SeedsRule(stop={"decide": 0.05}, least=3, most=12))
    able = []
    for e, seeds in ((given, "12 seeds detect"), (added, "at most 12 seeds decide")):
        planned = plan_runs(e, world_size=8, need_data=False)
        power = plan_facts(e, planned, tmp_path, PlanQuestion()).power
        assert power.detectable is not None
        able.append(power.detectable)
        said = f"smallest difference that {seeds} (power 0.8, 1 comparison): {able[-1]:.4f} in loss"
        assert any(line.startswith(said) for line in power.words)
    assert able[0] < able[1]


def test_a_table_has_a_parents_column_where_arms_have_parents(
    split: Experiment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path))
    planned = plan_runs(split, world_size=8, need_data=False)
    first, second = split.arms[1].name, split.arms[2].name
    for e, expected in ((split, False), (replace(split, parents={second: first}), True)):
        print_plan(e, planned, tmp_path, PlanQuestion())
        lines = capsys.readouterr().out.splitlines()
        heads = next(line.split() for line in lines if line.startswith("arm "))
        against = ["against"] * expected
        assert heads == ["arm", *against, "runs", "done", "steps", "changes"]
        assert any(line.split()[:2] == [second, first] for line in lines) == expected
        assert f"{len(planned)} runs of {len(e.arms)} arms" in "\n".join(lines)


@pytest.mark.parametrize(
    ("lacking", "expected"),
    [((), "all"), ((0,), "all but {0}"), ((0, 1), None), ((0, 1, 2), None)],
)
def test_an_arm_of_more_than_half_of_four_changes_is_told_by_what_it_lacks(
    lacking: tuple[int, ...], expected: str | None, split: Experiment
) -> None:
    names = ["a", "b", "c", "d"]
    arms = tuple(replace(split.arms[1], name=name, changes=(name,)) for name in names)
    e = replace(split, arms=(split.arms[0], *arms))
    chosen = [name for i, name in enumerate(names) if i not in lacking]
    told = changes_words([*chosen, "lr 0.1"], e)
    if expected is None:
        assert told == ", ".join([*chosen, "lr 0.1"])
    else:
        assert told == expected.format(*names) + ", lr 0.1"


@pytest.mark.parametrize(("other", "code"), [("deltas/r05", 0), ("claims/prefix_loss", 2)])
def test_of_several_experiments_what_can_be_planned_is_and_what_cannot_is_named(
    other: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["plan", "deltas/r04", other, "--set", "scale=tiny", "--results", str(tmp_path)])
    said = capsys.readouterr()
    assert int(end.value.code or 0) == code
    assert "delta_r04" in said.out and ("delta_r05" in said.out) == (code == 0)
    assert said.err.startswith("ablate: 1 experiment cannot be planned so: " if code else "")
    assert bool(said.err) == bool(code)


COST = PricedCost(
    **{"runs": 4, "slot_hours": 3.0, "gpu_hours": None, "source": None, "words": ""},
    **{"price_per_hour": None, "price": None},
)


@pytest.fixture(scope="module")
def known(split: Experiment, tmp_path_factory: pytest.TempPathFactory) -> Known:
    return known_of(split, tmp_path_factory.mktemp("none"))


def test_what_few_seeds_cannot_decide_is_said(split: Experiment, known: Known) -> None:
    two = replace(split, arms=split.arms[:3], seeds=(0,))
    assert power_of(two, [], COST, known, None).words[1:] == [
        "one seed: no difference can be tested"
    ]
    added = replace(two, seeds_rule=SeedsRule(stop={"decide": 0.05}, least=2, most=3))
    least = enough_for_sequence(2, 0.05)
    assert least > 3
    assert power_of(added, [], COST, known, None).words[1:] == [
        f"3 seeds: no difference can be decided, sequences over 2 arms are unbounded below {least}"
    ]
    enough, said = enough_to_permute(2, 0.05), "  should runs diverge, no verdict on the loss is"
    for n in (enough - 1, enough):
        words = power_of(replace(two, seeds=tuple(range(n))), [], COST, known, None).words
        diverging = [line for line in words if line.startswith(said)]
        assert diverging == [f"{said} possible below {enough} seeds"] * (n < enough)


def test_noise_that_is_declared_is_told_with_what_it_counts_for(
    split: Experiment, known: Known
) -> None:
    plain = replace(split, arms=split.arms[:2], seeds=(0, 1, 2))
    declared = replace(plain, prior_noise=PriorNoise(sd=0.00141, df=12.0, source="earlier runs"))
    said = "variance moderated by a declared sd of 0.0014 that counts for 12 degrees of freedom"
    before, after = (
        power_of(plain, [], COST, known, None),
        power_of(declared, [], COST, known, None),
    )
    assert after.words == [*after.words[:-1], said] and said not in before.words
    assert before.detectable is not None and after.detectable is not None
    assert after.detectable < before.detectable


def test_a_difference_that_no_seeds_detect_has_no_runs_and_no_cost(
    split: Experiment, known: Known
) -> None:
    two = replace(split, arms=split.arms[:2])
    power = power_of(two, [], COST, known, 1e-6)
    assert (power.seeds_needed, power.needed) == (None, None)
    assert "a difference of 1e-06 needs more than 1000 seeds per arm" in power.words
    for detect in (0.0, -0.01):
        with pytest.raises(UserError, match=r"^--detect: seeds for a difference of .*: give a pos"):
            power_of(two, [], COST, known, detect)


@pytest.mark.parametrize(("runs", "hours"), [(0, 3.0), (4, None), (4, 3.0)])
def test_what_seeds_take_is_not_known_where_no_run_is_missing_or_none_has_a_cost(
    runs: int, hours: float | None, split: Experiment, known: Known
) -> None:
    e = replace(split, arms=split.arms[:2], seeds=(0, 1))
    planned: list[Any] = [None] * 4
    cost = replace(COST, runs=runs, slot_hours=hours)
    power = power_of(e, planned, cost, known, 0.01)
    needed = power.needed
    assert needed is not None and needed.price is None
    assert needed.runs == 2 * (power.seeds_needed or 0)
    told = needed.runs * hours / runs if hours and runs else None
    assert needed.hours == (None if told is None else pytest.approx(told))


def test_budgets_that_are_offered_are_told_in_tokens_where_steps_are_no_unit(
    split: Experiment, known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = replace(
        split, arms=split.arms[:2], budgets=(1000,), target=Target(val_loss=3.28, reason="of r07")
    )
    monkeypatch.setattr(Experiment, "tells_tokens", False)
    power = power_of(two, [], COST, known, None)
    assert power.budgets is not None
    said = f"budgets that would bracket the target: {power.budgets[0]}, {power.budgets[1]}"
    assert said in power.words
    monkeypatch.setattr(Experiment, "tells_tokens", True)
    tokens = ", ".join(f"{n * power.step_tokens / 1e6:.4g}M" for n in power.budgets)
    assert (
        f"{said} steps, of the baseline {tokens} tokens"
        in power_of(two, [], COST, known, None).words
    )


def test_noise_is_taken_from_another_text_where_none_is_of_this_one_and_is_said_to_be(
    split: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the slope from an experiment with the same baseline, the nearest there is."""
    assumptions = "reports.analysis.assumptions."
    seen: dict[str, Any] = {}
    monkeypatch.setattr(assumptions + "nearest_known", lambda launched, **known: seen.update(known))
    monkeypatch.setattr(assumptions + "same_baseline", lambda *_, **__: "alike")
    monkeypatch.setattr("reports.inputs.load.load", lambda name, results: (name, results))
    of_any = Noise(sd=0.01, df=3, source="of 4 runs")
    monkeypatch.setattr(
        assumptions + "noise_at_scale", lambda *_, corpus=None: None if corpus else of_any
    )
    known_of(split, tmp_path)
    assert seen["noise"] == replace(of_any, source="of 4 runs: on other text")
    assert seen["alike"] == ("alike", tmp_path)
    monkeypatch.setattr(assumptions + "noise_at_scale", lambda *_, corpus=None: None)
    known_of(split, tmp_path)
    assert seen["noise"] is None

    def mixed(*_: object, **__: object) -> None:
        raise ValueError("mixes runs")

    monkeypatch.setattr(assumptions + "noise_at_scale", mixed)
    with pytest.raises(UserError, match=r"^mixes runs$"):
        known_of(split, tmp_path)


def test_a_grid_is_planned_with_what_follows_it_what_is_stale_and_what_is_no_arm(
    split: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path))
    grid = replace(
        split,
        name="split.grid",
        arms=split.arms[:2],
        axes=tuple(SimpleNamespace(name=name) for name in ("optim.*_lr", "optim.x")),
        left_out=("b: needs a",),
        seeds_rule=SeedsRule(stop={"half_width": 0.002}, least=2, most=9),
    )
    planned, plan = plan_runs(grid, world_size=8, need_data=False), Plan(name="split.grid")
    done = tmp_path / "runs" / planned[1].spec.run_id
    monkeypatch.setattr("harness.run.results.read_result", lambda run: run == done or None)
    monkeypatch.setattr("harness.store.plans.read_plan", lambda *_: plan)
    monkeypatch.setattr("harness.store.plans.up_to_date", lambda *_: plan)
    for stale in ([], ["a", "b"]):
        told = (stale, "runs are of older code")
        monkeypatch.setattr("harness.store.plans.stale_runs", lambda *_, told=told: told)
        print_plan(grid, planned, tmp_path, PlanQuestion())
        lines = capsys.readouterr().out.splitlines()
        assert ("2 runs are of older code" in lines) == bool(stale)
        assert len([line for line in lines if "older code" in line]) == bool(stale)
    assert lines[1].endswith(", 1 done")
    until = "then a seed at a time until every interval is within +-0.002, 9 at most"
    follows = "a grid of rates; when it is complete, then every arm at its best optim.*_lr on"
    assert {until, "left out: b: needs a", f"{follows} fresh seeds"} < set(lines)
    print_plan(split, planned, tmp_path, PlanQuestion())
    out = capsys.readouterr().out
    assert not any(word in out for word in ("a grid of rates", "left out", "a seed at a time"))
    decide = SeedsRule(stop={"decide": 0.05}, least=2, most=9)
    said = "then a seed at a time until every arm is decided at 0.05, 9 at most"
    assert seeds_words(decide) == said


def test_several_plans_are_a_list_for_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    plans: list[Any] = [SimpleNamespace(to_mapping=lambda: {"name": "x"})] * 2
    print_overview(plans, json=True)
    assert json.loads(capsys.readouterr().out) == [{"name": "x"}] * 2


@pytest.mark.parametrize(
    ("settings", "device"),
    [
        (None, "of split"),
        (["device=cpu"], None),
        (["name=other"], "of other"),
        (["a=1"], "of split"),
    ],
)
def test_an_experiment_is_planned_again_for_its_device_unless_another_is_asked_for(
    settings: list[str] | None,
    device: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("harness.cli.plan.planned_device", lambda name, results: f"of {name}")
    assert device_to_plan("split", tmp_path, settings) == device
