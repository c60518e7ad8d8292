"""`ablate run` of scripts whose seeds a rule adds: it stops as told, goes on after a break, and adds none where a run failed."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from reports.inputs.load import load
from reports.page.write import write_report
from reports.verify.verify import verify
from tests.foreign_bench import ablate, bench, write

ARMS = {"better": {"env": {"BETTER": "0.02"}}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "marks").mkdir()
    monkeypatch.setenv("MARKS", str(tmp_path / "marks"))  # a run's noise is that of its turn
    return bench(tmp_path, monkeypatch)


def asked(folder: Path, stop: dict[str, float], *, most: int = 4, **change: object) -> Path:
    rule = {"min": 2, "max": most, "stop": stop}
    return write(folder, changes={"other": {**ARMS["better"], **change}}, seeds=rule)


def test_seeds_are_added_to_the_most_and_a_call_after_a_break_goes_on_with_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = asked(folder, {"half_width": 1e-9})
    assert ablate("plan", path) == 0
    said = capsys.readouterr().out
    assert "4 runs of 2 arms" in said
    assert "then a seed at a time until every interval is within +-1e-09, 4 at most" in said
    assert ablate("run", path) == 0
    assert "3 seeds; open: other: 1 more" in capsys.readouterr().out
    experiment = load("foreign")
    assert experiment.plan.seeds == (0, 1, 2, 3) and len(experiment.plan.runs) == 8
    assert len(experiment.plan.locks) == 1  # what the rule adds is no change of plan
    assert verify(write_report([experiment], folder / "page.html")) == []
    shutil.rmtree(Path("results/runs") / experiment.plan.runs[-1].run_id)
    assert ablate("run", path) == 0
    said = capsys.readouterr().out
    assert "1 of 8 runs to do" in said and "everything is finished: 8 runs" in said


def test_no_seed_is_added_once_every_interval_is_narrow_enough(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablate("run", asked(folder, {"half_width": 1e9}, most=9)) == 0
    said = capsys.readouterr().out  # seven are the least of which there is an interval
    assert "6 seeds; open: other" in said and "everything is finished: 14 runs" in said


def test_no_seed_is_added_after_a_run_that_failed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("broken.py").write_text("raise SystemExit('no such file')\n")
    assert ablate("run", asked(folder, {"half_width": 1e-9}, file="broken.py")) == 1
    assert "2 of 4 runs have a result" in capsys.readouterr().out


def test_what_the_seeds_before_took_counts_towards_the_hours_that_are_allowed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("harness.experiment.cost.spent", lambda *_: 2.0)
    path = asked(folder, {"half_width": 1e-9})
    assert ablate("run", path, "--max-gpu-hours", 1, "--wall-limit", 60) == 2
    assert "after 2 " in capsys.readouterr().err
    assert load("foreign").plan.seeds == (0, 1)


def test_a_plan_of_scripts_tells_its_arms_its_rule_their_clocks_and_what_is_done(
    folder: Path, capsys: pytest.CaptureFixture[str], kept_line: Callable[[str], None]
) -> None:
    path = asked(folder, {"decide": 0.05}, file="new.py")
    told = []
    for words in ((), ("--json",), ("--price", 3, "--seeds", 3)):
        assert ablate("plan", path, *words) == 0
        told.append(capsys.readouterr().out)
    kept_line(re.sub(r"code=\w+", "code=...", "\n".join(told)))
