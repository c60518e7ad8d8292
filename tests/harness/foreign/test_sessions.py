"""Old baseline times never pass as interleaved: what `ablate ab` runs again, and which times it compares."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from reports.analysis.machines import within_sessions
from reports.inputs.load import load
from reports.page.write import write_report
from reports.verify.table import side_by_side
from reports.verify.verify import verify
from tests.foreign_bench import CPU, ablate, bench

LOADED = "3000"  # ms of a step under another load of the node, instead of 1000


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = bench(tmp_path, monkeypatch)
    Path("marks").mkdir()
    monkeypatch.setenv("MARKS", str(folder / "marks"))  # a run's noise is that of its turn
    return folder


def judged(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """What `ablate ab old.py new.py` says of two equal scripts."""
    capsys.readouterr()
    assert ablate("ab", "old.py", "new.py", *CPU, "--json", *arguments) == 0
    return json.loads(capsys.readouterr().out)


def time_of(verdict: dict[str, Any]) -> dict[str, Any] | None:
    times = [c for c in verdict["comparisons"] if c["metric"] == "train_time_s"]
    return times[0] if times else None


def edit_new() -> None:
    Path("new.py").write_text(Path("new.py").read_text() + "\nedited = True\n")


def test_an_edited_script_meets_fresh_baseline_runs(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(capsys, "-n", 6)
    monkeypatch.setenv("STEP_MS", LOADED)
    edit_new()
    verdict = judged(capsys, "-n", 3)
    time = time_of(verdict)
    assert time is not None and time["n"] == 3
    assert not time["verdict"].startswith(("slower", "faster"))
    assert abs(time["ratio"] - 1) < 0.01
    assert [arm["runs"] for arm in verdict["arms"]] == [3, 3]
    again = judged(capsys, "-n", 3)
    assert again["comparisons"] == verdict["comparisons"]  # the same call runs nothing again
    experiment = load("ab-old-new")
    assert set(experiment.plan.seeds) == {6, 7, 8}
    assert verify(write_report([experiment], folder / "page.html")) == []


@pytest.mark.slow
def test_another_new_script_meets_fresh_baseline_runs(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(capsys, "-n", 2)
    monkeypatch.setenv("STEP_MS", LOADED)
    Path("other.py").write_text(Path("new.py").read_text() + "\nother = True\n")
    assert ablate("ab", "old.py", "other.py", *CPU, "-n", 2) == 0
    runs = load("ab-old-other").runs
    assert runs["session"].nunique() == 1
    assert runs["train_time_s"].min() > 2.9 * 20


@pytest.mark.slow
def test_runs_added_later_are_compared_within_their_session(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(capsys, "-n", 2)
    monkeypatch.setenv("STEP_MS", LOADED)
    verdict = judged(capsys, "-n", 4)
    runs = load("ab-old-new").runs
    assert runs.groupby("block")["session"].nunique().tolist() == [1, 1, 1, 1]
    time = time_of(verdict)
    assert time is not None and abs(time["ratio"] - 1) < 0.01


@pytest.mark.slow
def test_a_partner_of_another_session_is_no_partner_in_time(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    late = f"import os\nassert os.path.exists({str(folder / 'go')!r})\n"
    Path("late.py").write_text(late + Path("new.py").read_text())
    options = (*CPU, "-n", 3, "--experiment", "x", "--json")
    assert ablate("ab", "old.py", "late.py", *options) == 1
    (folder / "go").touch()
    monkeypatch.setenv("STEP_MS", LOADED)
    capsys.readouterr()
    assert ablate("ab", "old.py", "late.py", *options) == 0  # what is missing is run
    verdict = json.loads(capsys.readouterr().out)
    assert time_of(verdict) is None
    assert any("without a partner in the same session" in note for note in verdict["notes"])
    assert [arm["runs"] for arm in verdict["arms"]] == [3, 3]
    assert verify(write_report([load("x")], folder / "page.html")) == []
    capsys.readouterr()
    assert ablate("ab", "old.py", "late.py", *options, "--fresh") == 0
    time = time_of(json.loads(capsys.readouterr().out))
    assert time is not None and (time["n"], abs(time["ratio"] - 1) < 0.01) == (3, True)


@pytest.mark.slow
def test_fresh_runs_stand_beside_those_that_there_are(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(capsys, "-n", 2)
    verdict = judged(capsys, "-n", 2, "--fresh")
    assert [arm["runs"] for arm in verdict["arms"]] == [4, 4]
    assert load("ab-old-new").runs["session"].nunique() == 2
    loss = next(c for c in verdict["comparisons"] if c["metric"] == "val_loss")
    assert loss["method"] == "anytime-valid t-mixture"  # what was seen counts


def test_times_of_an_unknown_session_are_compared_with_none_of_a_known_one() -> None:
    """A borrowed run whose attempts nobody can read has none."""
    rows = [
        {"arm": arm, "block": block, "session": session, "status": "finished"}
        for block, session in ((1, "here"), (2, None))
        for arm in ("old", "new")
    ]
    known = [row for row in rows if row["session"]]
    kept = within_sessions(pd.DataFrame(rows))
    assert kept["session"].tolist() == ["here", "here"]
    assert [row["session"] for row in side_by_side(rows)] == ["here", "here"]
    unknown = [{**row, "session": None} for row in known]
    assert len(within_sessions(pd.DataFrame(unknown))) == len(side_by_side(unknown)) == 2
