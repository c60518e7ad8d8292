"""What a page of published evidence says to run next: what asks its question here, and its price."""

from pathlib import Path

import pytest

from reports.analysis.compare import compare_all
from reports.inputs.published_experiments import EVIDENCE, published_experiment
from reports.page import next_evidence
from reports.page.next_evidence import NO_TOGGLE, OF_A_RECORD, AskedHere, asked_here

EXPERIMENTS = Path(__file__).parents[3] / "experiments"


@pytest.fixture(scope="module")
def asked():
    made = {}
    for name in EVIDENCE:
        experiment = published_experiment(name)
        made[name] = asked_here(experiment, compare_all(experiment))
    return made


def test_every_page_names_an_experiment_that_is_there(asked):
    for step in asked.values():
        typed = step.experiment.removeprefix("experiments/").removesuffix(".yaml")
        assert (EXPERIMENTS / f"{typed}.yaml").is_file()
        assert step.commands[0] in step.sentence


def test_every_row_of_the_ladder_has_an_experiment_but_those_that_are_named():
    for arm in EVIDENCE["ladder"].arms()[1:]:
        typed = OF_A_RECORD.format(arm.name).removeprefix("experiments/")
        assert (EXPERIMENTS / typed).is_file() == (arm.name not in NO_TOGGLE)


def test_the_price_is_that_of_the_logs(asked):
    times = published_experiment("r09_ladder").runs["train_time_s"]
    assert asked["r09_ladder"].seconds == pytest.approx(times.sum())
    hours = times.sum() * 8 / 3600
    assert f"one run of each of the 6 rows took {times.sum() / 60:.0f} min" in (
        asked["r09_ladder"].sentence
    )
    assert f"on 8 H100, {hours:.1f} GPU-hours." in asked["r09_ladder"].sentence


def test_the_next_step_is_a_plan_and_a_run_at_full_size_with_minutes_and_gpu_hours() -> None:
    step = AskedHere(experiment="e.yaml", about="the question", seconds=3.6e6, runs="each row")
    plan, run = "ablate plan e.yaml --set scale=gpt2", "ablate run e.yaml --set scale=gpt2"
    assert step.sentence == (
        f"To run next: `{plan}` tells what the question costs here with seeds, `{run}` asks it. "
        "In these logs one run of each row took 60000 min of training on 8 H100, 8000.0 GPU-hours."
    )
    assert step.lines == [
        f"{plan}    # what the same question costs here, with seeds",
        f"{run}    # asks it, and writes its page",
    ]


def test_of_the_ladder_the_widest_open_step_is_asked_again(asked):
    step = asked["ladder"]
    assert step.experiment == "experiments/deltas/r10.yaml"
    runs = published_experiment("ladder").runs.groupby("arm")["train_time_s"].mean()
    assert step.seconds == pytest.approx(runs["r09"] + runs["r10"])
    assert "one run of r09 and one of r10" in step.sentence


def test_a_ladder_whose_rows_are_all_told_from_zero_asks_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ladder = published_experiment("ladder")
    outcome = compare_all(ladder)
    assert asked_here(ladder, outcome) is not None
    monkeypatch.setattr(next_evidence, "widest_open", lambda rows: None)
    assert asked_here(ladder, outcome) is None
