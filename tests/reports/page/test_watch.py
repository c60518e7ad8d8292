"""A page that follows its runs: written again when they get further, done when all have ended."""

import json
import shutil
from pathlib import Path

import pytest

from harness.__main__ import main
from harness.cli import report as pages
from tests.report_arms import LADDER
from tests.report_fixtures import write_experiment

WAITING = {("untied_head", 1): "pending", ("untied_head", 2): "pending"}


def results_folder(root: Path, outcome: dict[tuple[str, int], str]) -> Path:
    """An experiment whose runs are taken as they are: nothing looks for the source that made them."""
    write_experiment(root, arms=LADDER[:2], n_seeds=3, design="add-one", outcome=outcome)
    plan = root / "experiments" / "split" / "experiment.json"
    plan.write_text(json.dumps(json.loads(plan.read_text()) | {"imported": True, "looks": 0}))
    return root


def test_the_page_follows_its_runs_until_all_have_ended(tmp_path, monkeypatch, capsys):
    now, later = (
        results_folder(tmp_path / "now", WAITING),
        results_folder(tmp_path / "later", {("untied_head", 2): "failed"}),
    )
    page = now / "experiments" / "split" / "report.html"
    seen: list[str] = []

    def between_looks(seconds: float) -> None:
        assert seconds == 0.5
        seen.append(page.read_text(encoding="utf-8"))
        missing = sorted(
            p for p in (later / "runs").iterdir() if not (now / "runs" / p.name).exists()
        )
        shutil.copytree(missing[0], now / "runs" / missing[0].name)

    monkeypatch.setattr(pages.time, "sleep", between_looks)
    with pytest.raises(SystemExit) as end:
        main(["report", "split", "--results", str(now), "--watch", "--every", "0.5"])
    assert end.value.code == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{page}: 2 runs to come",
        f"{page}: 1 run to come",
        str(page),
    ]
    last = page.read_text(encoding="utf-8")
    assert "unfinished: 2 runs to come" in seen[0]
    assert "unfinished: 1 run to come" in seen[1]
    assert "unfinished" not in last
    assert [text.count('http-equiv="refresh"') for text in (*seen, last)] == [1, 1, 0]
    assert "worker exited with 1" in last, "failed runs have their own section with the reason"


def test_a_run_whose_process_died_is_not_shown_as_running(tmp_path):
    root = results_folder(tmp_path, WAITING)
    waiting = next(
        r["run_id"] for r in json.loads((root / "experiments" / "split" / "experiment.json").read_text())["runs"]
        if not (root / "runs" / r["run_id"]).exists()
    )  # fmt: skip
    (root / "runs" / waiting).mkdir()
    row = {"attempt": 1, "started": "2026-01-05T08:00:00+00:00", "host": "gone", "pid": 1}
    (root / "runs" / waiting / "attempts.jsonl").write_text(json.dumps(row) + "\n")
    runs = pages.load_for_report("split", root).runs
    assert sorted(runs["status"].unique()) == ["finished", "interrupted", "pending"]


def test_a_time_between_looks_must_be_positive(tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        main(["report", "split", "--results", str(tmp_path), "--watch", "--every", "0"])
    assert end.value.code == 2
    assert "--every 0: must be a positive number of seconds" in capsys.readouterr().err
