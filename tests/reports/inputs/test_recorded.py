"""What a run recorded as it went, read from its files."""

import json
from pathlib import Path

import pytest

from harness.run.metrics import Validation
from harness.run.remembered import Remembered
from reports.inputs.load import load
from reports.inputs.recorded import read_run, read_validations
from reports.inputs.step_times import of_points
from tests.report_arms import LADDER
from tests.report_fixtures import write_experiment


def test_a_line_that_a_kill_cut_short_costs_itself_alone(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    rows = [f'{{"kind": "val", "step": {step}, "val_loss": 3.{step}}}' for step in (0, 5, 9)]
    train = '{"kind": "train", "step": 4, "train_loss": 3.5}'
    whole = "\n".join([rows[0], train, *rows[1:]])
    for text, steps in (
        (whole + "\n", [0, 5, 9]),
        (whole[:-3], [0, 5]),
        (f'{rows[0]}\n{{"kind": "val", "st\n{train}\nnull\n{rows[2]}\n', [0, 9]),
        ("", []),
    ):
        path.write_text(text)
        found = read_validations(path)
        assert [(point.step, point.val_loss) for point in found] == [
            (step, float(f"3.{step}")) for step in steps
        ]


def test_single_steps_are_those_that_the_points_list_and_have_a_time() -> None:
    listed = ([1.0, None, 3.0], None, [2.0])
    points = [
        Validation(step=i, val_loss=3.0, train_time_s=1.0, step_times_ms=ms)
        for i, ms in enumerate(listed)
    ]
    found = of_points(points)
    assert found is not None and found.single and found.n == 3
    assert (found.quantiles[0], found.quantiles[-1]) == (1.0, 3.0)
    assert of_points(points[1:2]) is None


def test_a_long_log_is_read_in_pieces_and_loses_no_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reports.inputs.recorded.LINES_AT_ONCE", 3)
    path = tmp_path / "metrics.jsonl"
    for n in (2, 3, 7):
        points = [
            {"kind": "val", "step": i, "val_loss": 3.0, "train_time_s": 1.0} for i in range(n)
        ]
        path.write_text("".join(f"{json.dumps(point)}\n" for point in points))
        assert [point.step for point in read_validations(path)] == [*range(n)]
    assert read_validations(tmp_path / "gone.jsonl") == []


def test_a_run_alone_is_read_as_it_is_among_others(tmp_path: Path) -> None:
    write_experiment(tmp_path, arms=LADDER[:1], n_seeds=1, n_points=2)
    plan = load("split", results=tmp_path).plan
    (planned,) = plan.runs
    alone = read_run(tmp_path / "runs", plan, planned)
    assert alone.status == "finished" and alone.result is not None
    known = Remembered(tmp_path)
    assert read_run(tmp_path / "runs", plan, planned, known) == alone
    known.save()
    (tmp_path / "runs" / planned.run_id / "metrics.jsonl").write_text("")
    assert read_run(tmp_path / "runs", plan, planned).status == "damaged"
