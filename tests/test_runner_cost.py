"""What a matrix costs before it starts: from its own runs where there are any, else from FLOPs and the card."""

from dataclasses import replace
from pathlib import Path

import pytest
from fake_matrix import EXPERIMENT, Matrix

from harness import cost, slots
from harness.cost import check_limit, estimate
from harness.errors import UserError
from harness.experiment import load_experiment
from harness.plan import PlannedRun, plan_runs


@pytest.fixture
def planned(tmp_path: Path) -> list[PlannedRun]:
    file = tmp_path / "fake.yaml"
    file.write_text(EXPERIMENT + "seeds: 3\n")
    return plan_runs(load_experiment(str(file), device="cpu"), need_data=False)


def test_finished_runs_price_their_own_kind_and_scale_the_others(
    planned: list[PlannedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    took = {"baseline": 10.0}
    done = {p.spec.run_id for p in planned if p.arm == "baseline" and p.spec.seed == 0}
    arm_of = {p.spec.run_id: p.arm for p in planned}
    found = lambda run: {"wall": {"total_s": took[arm_of[run.name]] + 3.0, "import_s": 3.0}}  # noqa: E731
    monkeypatch.setattr(cost, "read_result", found)
    monkeypatch.setattr(slots, "find_cpus", lambda: 2)
    got = estimate(planned, done, Path("nowhere"))
    assert (got["runs"], got["source"]) == (5, "1 finished runs")
    # the other arm computes nearly the same, so it is taken to be as slow
    assert got["slot_hours"] * 3600 == pytest.approx(50, rel=0.05)
    assert got["wall_hours"] == pytest.approx(got["slot_hours"] / 2)
    assert got["gpu_hours"] is None


def test_without_runs_the_flops_and_the_card_give_the_time(planned: list[PlannedRun], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "card", lambda: "H100")
    monkeypatch.setattr(slots, "find_gpus", lambda: [str(i) for i in range(8)])
    on_gpus = [replace(p, spec=replace(p.spec, device="cuda", world_size=2)) for p in planned]
    got = estimate(on_gpus, set(), Path("nowhere"))
    run_s = cost.by_flops(on_gpus[0].spec)
    assert got["gpu_hours"] * 3600 == pytest.approx(6 * 2 * run_s, rel=0.05)
    assert got["wall_hours"] == pytest.approx(got["slot_hours"] / 4)
    timing = [replace(p, spec=replace(p.spec, role="timing")) for p in on_gpus]
    alone = estimate(timing, set(), Path("nowhere"))
    assert alone["gpu_hours"] == pytest.approx(4 * got["gpu_hours"])  # a run of two holds all eight
    assert alone["wall_hours"] == pytest.approx(got["slot_hours"])
    twice = [replace(p, spec=replace(p.spec, budget=2 * p.spec.budget)) for p in on_gpus]
    assert estimate(twice, set(), Path("nowhere"))["gpu_hours"] == pytest.approx(2 * got["gpu_hours"], rel=0.15)


def test_nothing_left_costs_nothing(planned: list[PlannedRun], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "read_result", lambda run: {"wall": {"total_s": 1.0}})
    got = estimate(planned, {p.spec.run_id for p in planned}, Path("nowhere"))
    assert (got["runs"], got["slot_hours"], got["wall_hours"]) == (0, 0.0, 0.0)


def test_a_matrix_that_costs_more_than_allowed_is_refused(planned: list[PlannedRun], tmp_path: Path) -> None:
    got = estimate(planned, set(), tmp_path)
    check_limit(got, None)
    check_limit(got, got["slot_hours"] * 1.01)
    with pytest.raises(UserError, match=r"6 runs need about .* more than --max-gpu-hours .*: nothing was started"):
        check_limit(got, got["slot_hours"] * 0.99)


def test_the_limit_stops_a_run_before_it_starts(tmp_path: Path) -> None:
    matrix = Matrix(tmp_path)
    code, out, err = matrix.run("--max-gpu-hours", "0.000000001")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert not matrix.results.exists()
    assert "--max-gpu-hours 1e-09" in err
