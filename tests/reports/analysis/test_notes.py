"""The sentences above the table: who differs in its environment, who has no partner, what was borrowed, what has no loss."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.run.plan import Plan, PlanArm
from reports.analysis.notes import (
    TELLING,
    environment_notes,
    loss_notes,
    pool_notes,
    session_notes,
    time_notes,
)
from reports.inputs.experiment import Experiment
from reports.inputs.noise import benchmark_noise

PLAN = Plan(
    name="x",
    baseline="base",
    arms=(PlanArm(name="base"), PlanArm(name="a", environment_effect="torch 2.9 instead of 2.8")),
)


def table(*rows: dict[str, Any]) -> pd.DataFrame:
    usual = {"arm": "base", "status": "finished", "node": "n1", "torch": "2.8"}
    return pd.DataFrame([usual | row for row in rows])


def test_an_environment_is_told_as_planned_or_of_imported_runs_as_their_logs_tell() -> None:
    runs = table({}, {"arm": "a", "torch": "2.10"})
    assert environment_notes(PLAN, runs, runs) == [
        "a: environment effect: torch 2.9 instead of 2.8."
    ]
    imported = Plan(**{**vars(PLAN), "imported": True})
    assert environment_notes(imported, runs, runs) == [
        "a: environment effect: torch 2.10 instead of 2.8."
    ]
    arms = (PlanArm(name="base"), PlanArm(name="a"))
    turned = Plan(name="x", baseline="a", arms=arms, imported=True)
    assert environment_notes(turned, runs, runs) == [
        "base: environment effect: torch 2.8 instead of 2.10."
    ]
    assert environment_notes(imported, table({}, {"arm": "a"}), runs) == []
    (note,) = environment_notes(
        imported, table({}, {"arm": "a"}), table({}, {"arm": "a", "node": None})
    )
    nodes = benchmark_noise().nodes
    assert f"carry an sd of {100 * nodes.sd:.1f}% between nodes ({nodes.df} df, " in note
    assert environment_notes(PLAN, table({}), table({"node": None}))[1:] == []


def test_runs_without_a_partner_in_their_session_are_counted() -> None:
    timed = table({}, {}, {}, {"status": "failed"}, {})
    assert session_notes(timed, timed) == []
    assert session_notes(timed, timed[:2])[0].startswith("2 runs were made without a partner")
    assert session_notes(timed, timed[:3])[0].startswith("1 run was made without a partner")
    borrowed = timed.assign(borrowed=[True, False, False, False, False])
    assert session_notes(borrowed, timed[1:]) == []


def pooled(losses: Mapping[str, list[float]], starts: Mapping[str, str | None]) -> list[str]:
    """The notes on borrowed and fresh losses of the baseline, run by run, and one other arm."""
    rows: list[dict[str, Any]] = []
    for kind, values in losses.items():
        for value in values:
            run_id = f"{kind}{len(rows)}"
            rows.append({"run_id": run_id, "val_loss": value, "borrowed": kind == "old"})
    rows.append({"arm": "a", "run_id": "a", "val_loss": 9.0, "borrowed": True})
    rows.append({"status": "failed", "run_id": "f", "val_loss": 9.0, "borrowed": True})
    runs = table(*rows)
    results: Any = {name: SimpleNamespace(started=at) for name, at in starts.items()}
    experiment = Experiment(
        name="x", plan=PLAN, runs=runs, curves=runs, environments={}, configs={}, results=results
    )
    return pool_notes(experiment, runs)


def test_borrowed_losses_are_told_with_their_age_and_whether_fresh_ones_agree() -> None:
    alike = {"old": [3.0, 3.1, 3.2], "new": [3.1, 3.15]}
    (note,) = pooled(alike, {})
    assert note.startswith(
        "3 of 5 losses of base are borrowed from earlier experiments; 2 fresh ones agree with them "
    )
    (note,) = pooled(alike | {"new": [4.1]}, {})
    assert "; 1 fresh ones do not agree with them: run it without --pool (p = 0.0" in note
    assert pooled({"new": [3.0]}, {}) == []
    day = "2026-01-02T{}:00:00+00:00".format
    started = {"old0": day("03"), "old1": day("08"), "new3": day("12"), "new4": day("09")}
    assert "experiments, begun 1.0 to 6.0 h before; 2 fresh" in pooled(alike, started)[0]
    started["old2"] = "2026-01-01T09:00:00+00:00"
    assert "experiments, begun 0.0 to 1.0 days before;" in pooled(alike, started)[0]
    started["old0"] = "2025-12-30T21:00:00+00:00"
    assert "experiments, begun 0.0 to 2.5 days before;" in pooled(alike, started)[0]
    later = {"old0": day("20"), "new3": day("12"), "old1": "damaged", "old2": None}
    assert "experiments, begun 0.0 to 0.0 h before;" in pooled(alike, later)[0]
    assert "experiments; 2 fresh" in pooled(alike, {"old0": day("20")})[0]


def test_without_the_pool_or_without_a_borrowed_loss_nothing_is_told_of_it() -> None:
    runs = table({"run_id": "r", "val_loss": 3.0})
    for losses in (runs, runs.assign(borrowed=False)):
        experiment = Experiment(
            name="x", plan=PLAN, runs=runs, curves=runs, environments={}, configs={}, results={}
        )
        assert pool_notes(experiment, losses) == []


def of_time(metric: str = "step_ms", **how: Any) -> Any:
    """A comparison of a time that tells nothing: three runs of an arm, and three of the baseline."""
    usual = {"arm": "a", "baseline": "base", "kind": "undecided", "ratio_low": 0.9}
    logs = [np.log([90.0, 100.0, 120.5]), np.log([95.0, 99.0, 105.0])]
    samples = {
        "of_arm": SimpleNamespace(values=logs[0]),
        "of_baseline": SimpleNamespace(values=logs[1]),
    }
    return SimpleNamespace(metric=metric, **usual | {"ratio_high": 1.1} | samples | how)


def test_of_times_too_noisy_for_any_claim_the_widest_arm_is_named(
    kept_line: Callable[[str], None],
) -> None:
    (note,) = time_notes([of_time(), of_time("train_time_s"), of_time("val_loss", kind="helps")])
    kept_line(note)
    quiet = SimpleNamespace(values=np.log([99.0, 101.0]))
    (note,) = time_notes([of_time(of_arm=quiet)])
    assert note.endswith(" and runs of base alone took from 95.00 to 105.0 ms a step.")


@pytest.mark.parametrize(
    ("comparisons", "is_told"),
    [
        ([], False),
        ([of_time("train_time_s")], False),
        ([of_time(ratio_low=None)], False),  # no interval
        ([of_time(ratio_high=None)], True),  # one without an end
        ([of_time(ratio_low=0.96, ratio_high=1.04)], False),
        ([of_time(ratio_low=0.96)], True),
        ([of_time(ratio_high=1.04)], True),
        ([of_time(ratio_low=1 - TELLING, ratio_high=1.04)], True),
        ([of_time(ratio_low=0.96, ratio_high=1 + TELLING)], True),
        ([of_time(), of_time(arm="b", ratio_low=0.96, ratio_high=1.04)], False),
        ([of_time(), of_time(arm="b", kind="equal")], False),
        ([of_time(), of_time("time_to_target", kind="helps")], False),
        ([of_time(), of_time("train_time_s", ratio_low=0.96, ratio_high=1.04)], True),
    ],
)
def test_times_are_too_noisy_where_no_interval_of_a_step_tells_five_percent(
    comparisons: list[Any], is_told: bool
) -> None:
    assert bool(time_notes(comparisons)) == is_told


def test_an_arm_without_a_loss_and_arms_without_a_common_end_are_told(
    kept_line: Callable[[str], None],
) -> None:
    runs = table(
        *({"arm": "a", "status": "diverged"} for _ in range(2)),
        {"arm": "b"},
        {"status": "diverged"},
    )
    (note,) = loss_notes(runs, ("a", "b", "c"), 100)
    assert note == "All 2 runs of a diverged: there is no loss to compare, see the outcomes."
    (note,) = loss_notes(runs[1:], ("a",), 100)
    assert note == "The run of a diverged: there is no loss to compare, see the outcomes."
    _, own = loss_notes(runs, ("a",), None)
    kept_line(own)
    assert loss_notes(runs[:0], ("a",), None) == []
    assert loss_notes(table({"arm": "a"}, {"arm": "a", "status": "diverged"}), ("a",), 0) == []
