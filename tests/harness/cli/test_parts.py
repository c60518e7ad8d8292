"""An experiment with the seeds that its rule had added, and the plan of one that was never launched."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.cli.lookup import plan_of
from harness.cli.parts import current_part, is_complete, resumed
from harness.errors import UserError
from harness.experiment.experiment import load_experiment
from harness.experiment.plan import plan_runs
from harness.run.plan import Plan, PlanRun, SeedsRule
from harness.store.plans import save_plan
from tests.fake_matrix import EXPERIMENT

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


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of parts whose runs have all ended; what is loaded of one is its name."""
    names: set[str] = set()
    monkeypatch.setattr("harness.cli.parts.is_complete", lambda part, *_: part.name in names)
    monkeypatch.setattr("reports.inputs.load.load", lambda name, results: name)
    return names


def test_a_retuned_experiment_is_its_grid_until_that_is_complete_then_its_arms_at_their_rates(
    tmp_path: Path, complete: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "fake.yaml"
    retuned = "seeds: 2\nestimand: retuned\naxes: {optim.*_lr: [x0.5, x1, x2]}\n"
    file.write_text(EXPERIMENT + retuned)
    whole = load_experiment(str(file), device="cpu")
    assert current_part(whole, tmp_path).name == "fake.grid"
    complete.add("fake.grid")
    rates = {
        arm.name: SimpleNamespace(factor=factor, at_edge=False, how="quadratic")
        for arm, factor in zip(whole.arms, (0.7, 1.4), strict=True)
    }
    best = {"fake.grid": rates}
    monkeypatch.setattr("reports.analysis.adaptive.best_rates", lambda loaded: best[loaded])
    tuned = current_part(whole, tmp_path)
    assert tuned.name == "fake" and tuned.grid is not None and tuned.grid.name == "fake.grid"
    for before, after, factor in zip(whole.arms, tuned.arms, (0.7, 1.4), strict=True):
        assert after.config.optim.muon_lr == pytest.approx(before.config.optim.muon_lr * factor)

    def none(loaded: str) -> None:
        raise ValueError(f"{loaded}: no rate of it has a loss")

    monkeypatch.setattr("reports.analysis.adaptive.best_rates", none)
    with pytest.raises(UserError, match=r"^fake\.grid: no rate of it has a loss$"):
        current_part(whole, tmp_path)


def test_a_halving_is_its_first_rung_that_is_not_complete_or_the_last(
    tmp_path: Path, complete: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "fake.yaml"
    halved = "axes: {optim.muon_lr: [x0.5, x0.7, x1.4, x2]}\nbudgets: [x0.5, 20]\nhalving: 2\n"
    file.write_text(EXPERIMENT.partition("changes:")[0] + halved + "seeds: 2\n")
    whole = load_experiment(str(file), device="cpu")
    kept: list[str] = []

    def best(loaded: str, n: int) -> list[str]:
        assert (loaded, n) == ("fake.rung1", 2)
        if not kept:
            raise ValueError("no point of it has a loss")
        return kept

    monkeypatch.setattr("reports.analysis.adaptive.best_points", best)
    first = current_part(whole, tmp_path)
    assert (first.name, len(first.arms)) == ("fake.rung1", 5)
    complete.update(("fake.rung1", "fake"))
    with pytest.raises(UserError, match=r"^no point of it has a loss$"):
        current_part(whole, tmp_path)
    kept += [arm.name for arm in first.arms[2:4]]
    last = current_part(whole, tmp_path)
    assert (last.name, [arm.name for arm in last.arms[1:]]) == ("fake", kept)


def test_a_part_is_complete_where_every_run_that_is_planned_now_has_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    e = replace(load_experiment("quickstart", device="cpu"), seeds=(0, 1))
    names = {run.spec.run_id for run in plan_runs(e, need_data=False)}
    runs = [
        PlanRun(arm="a", seed=n, replicate=0, budget=1, role="loss", block=0, run_id=name)
        for n, name in enumerate(sorted(names))
    ]
    done = {tmp_path / "runs" / name for name in names}
    monkeypatch.setattr("harness.run.results.read_result", lambda at: at in done or None)
    assert not is_complete(e, tmp_path, None), "it was never launched"
    for planned, expected in ((runs, True), (runs[1:], False)):
        save_plan(tmp_path, Plan(name=e.name, runs=tuple(planned)))
        assert is_complete(e, tmp_path, None) == expected
    save_plan(tmp_path, Plan(name=e.name, runs=tuple(runs)))
    done.pop()
    assert not is_complete(e, tmp_path, None)
