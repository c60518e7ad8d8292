"""`ablate ab --until decided`: blocks until it is decided or the budget is spent; one exit code for each end."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness.cli.ab_until import Budget, Spent, budget_of
from harness.errors import UserError
from reports.inputs.load import load
from reports.page.write import write_report
from reports.verify.verify import verify
from tests.foreign_bench import CPU, ablate, bench

UNTIL = (*CPU, "--until", "decided", "--json")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "marks").mkdir()
    monkeypatch.setenv("MARKS", str(tmp_path / "marks"))  # a run's noise is that of its turn
    return bench(tmp_path, monkeypatch)


def decided(
    capsys: pytest.CaptureFixture[str], *arguments: object, exit_code: int
) -> dict[str, Any]:
    """What `--json` says of how it ended."""
    capsys.readouterr()
    assert ablate("ab", *arguments) == exit_code
    decision: dict[str, Any] = json.loads(capsys.readouterr().out)["decision"]
    assert decision["exit"] == exit_code
    return decision


@pytest.mark.slow
def test_blocks_are_added_until_it_is_decided_within_the_budget(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scripts = ("old.py", "new.py", *UNTIL)
    first = decided(capsys, *scripts, "--budget", "5runs", exit_code=5)
    assert (first["outcome"], first["blocks"], first["spent"]["runs"]) == ("undecided", 2, 4)
    assert "--budget 5runs" in first["why"]
    whole = decided(capsys, *scripts, "--budget", "1h", exit_code=0)
    assert (whole["outcome"], whole["blocks"], whole["spent"]["runs"]) == ("better", 7, 10)
    turned = decided(capsys, "new.py", "old.py", *UNTIL, exit_code=3)
    assert (turned["outcome"], turned["spent"]["runs"]) == ("worse", 0)  # the same runs
    experiment = load("ab-old-new")
    assert experiment.plan.seeds_rule is not None
    assert len(experiment.plan.locks) == 1  # what the rule adds is no change of plan
    assert verify(write_report([experiment], folder / "page.html")) == []


@pytest.mark.slow
def test_a_difference_within_the_margin_is_equivalent_and_one_that_is_not_is_told_with_its_cost(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy("old.py", "same.py")
    Path("same.py").write_text(Path("same.py").read_text() + "\nsame = True\n")
    scripts = ("old.py", "same.py", *UNTIL)
    equal = decided(capsys, *scripts, "--margin", "0.01", exit_code=4)
    assert equal["outcome"] == "equivalent"
    narrow = decided(capsys, *scripts, "--margin", "0.0005", "-n", "8", exit_code=5)
    assert narrow["blocks"] == 8
    assert narrow["rest"] is None or narrow["rest"]["runs"] >= 2


def test_a_run_that_fails_ends_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("broken.py").write_text("raise SystemExit('no such file')\n")
    assert decided(capsys, "old.py", "broken.py", *UNTIL, exit_code=1)["outcome"] == "failed"


def test_what_is_asked_wrongly_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for wrong, words in (
        (("--until", "bored"), "--until bored"),
        (("--until", "decided", "--budget", "3 days"), "for example 3h"),
        (("--until", "decided", "--budget", "3price"), "--price"),
        (("--until", "decided", "--budget", "1runs", "--wall-limit", 9), "take more"),
        (("--budget", "3h"), "--until decided"),
        (("--until", "decided", "--margin", "0"), "--margin 0"),
    ):
        assert ablate("ab", "old.py", "new.py", *CPU, *wrong) == 2
        assert words in capsys.readouterr().err


def test_a_budget_counts_what_it_names() -> None:
    spent = Spent(runs=8, wall_hours=2.0, hours=16.0, price=40.0)
    for text, allows in (
        ("2h", True),
        ("119min", False),
        ("16gpu-hours", True),
        ("15.9gpu-hours", False),
        ("40price", True),
        ("39price", False),
        ("8runs", True),
        ("7 runs", False),
    ):
        budget = budget_of(text, 2.5)
        assert isinstance(budget, Budget) and budget.allows(spent) == allows
    with pytest.raises(UserError):
        budget_of("3.3.3h", None)


def test_a_script_that_compiles_has_one_run_before_its_first_that_nothing_keeps(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABLATE_CACHE", str(folder / "cache"))
    kernels = "\nKERNELS = 'torch.compile'\n"
    Path("new.py").write_text(Path("new.py").read_text() + kernels)
    assert ablate("ab", "old.py", "new.py", *CPU, "-n", 1) == 0
    out = capsys.readouterr().out
    assert "new.py: a warm-up run" in out and "old.py: a warm-up run" not in out
    assert len(list((folder / "marks").iterdir())) == 3
    assert load("ab-old-new").runs["arm"].tolist().count("new") == 1
    assert ablate("ab", "old.py", "new.py", *CPU, "-n", 2) == 0
    assert "warm-up" not in capsys.readouterr().out
    assert ablate("ab", "new.py", "old.py", *CPU, "-n", 3, "--no-warm-up") == 0
