"""What a plan's table has, and what the seeds for a difference take in runs, hours and price."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from harness.__main__ import main
from harness.cli.plan import print_plan
from harness.cli.plan_facts import PlanQuestion, changes_words, plan_facts
from harness.experiment.experiment import Experiment, load_experiment
from harness.experiment.plan import plan_runs
from harness.run.plan import SeedsRule


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
