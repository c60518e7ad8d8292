"""Scripts of `ablate ab` that change: edited while it runs, another NEW under the same name, every run failed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.cli.ab_table import BENCHMARK_RULES
from harness.foreign import plan as foreign_plan
from harness.foreign.experiment import ForeignExperiment
from harness.run.read import read_lines
from harness.store.plans import read_plan, save_plan
from harness.store.store import Store
from reports.inputs.load import load
from reports.page.write import write_report
from tests.foreign_bench import CPU, TRAINERS, ablate, bench


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return bench(tmp_path, monkeypatch)


def test_a_script_that_is_edited_while_ab_runs_is_judged_as_it_ran_and_that_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit = f"\nfile = open({str(folder / 'new.py')!r}, 'a')\nfile.write('x = 1\\n')\nfile.close()\n"
    Path("new.py").write_text(Path("new.py").read_text() + edit)
    options = (*CPU, "--experiment", "x", "-n", 2)
    assert ablate("ab", "old.py", "new.py", *options, "--json") == 0
    verdict = json.loads(capsys.readouterr().out)
    assert [(arm["arm"], arm["edited"], arm["runs"]) for arm in verdict["arms"]] == [
        ("old", False, 2),
        ("new", True, 2),
    ]
    assert verdict["notes"][0].startswith("new was edited while ab ran: the table is of the script")
    loss = next(c for c in verdict["comparisons"] if c["metric"] == "val_loss")
    assert loss["n"] == 2
    Path("new.py").write_text(Path("new.py").read_text().replace(edit, ""))
    assert ablate("ab", "old.py", "new.py", *options) == 0
    out = capsys.readouterr().out
    assert "edited" not in out
    assert "4 of 4 runs to do" in out or "2 of 4 runs to do" in out


def test_a_script_that_is_edited_while_it_is_being_decided_is_decided_as_it_ran(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("marks").mkdir()
    monkeypatch.setenv("MARKS", str(folder / "marks"))  # a run's noise is that of its turn
    edit = f"\nfile = open({str(folder / 'new.py')!r}, 'a')\nfile.write('x = 1\\n')\nfile.close()\n"
    Path("new.py").write_text(Path("new.py").read_text() + edit)
    options = (*CPU, "--until", "decided", "-n", 9, "--json")
    assert ablate("ab", "old.py", "new.py", *options) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["decision"]["outcome"] == "better"
    assert verdict["decision"]["blocks"] < 9
    assert verdict["notes"][0].startswith("new was edited while ab ran: the table is of the script")


@pytest.mark.slow
def test_an_edited_script_that_is_looked_at_meanwhile_is_judged_as_it_ran(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = Path("new.py").read_text()
    Path("new.py").write_text(ran.replace("0.02", "0.01"))
    options = (*CPU, "--experiment", "x", "-n", 2)
    assert ablate("ab", "old.py", "new.py", *options) == 0  # of the text that it has again below

    def edit_and_look(*_: object) -> None:
        Path("new.py").write_text(ran.replace("0.02", "0.01"))
        assert ablate("compare", "x") == 0
        capsys.readouterr()

    Path("new.py").write_text(ran)
    monkeypatch.setattr("harness.cli.ab.stop_if_stopped", edit_and_look)
    assert ablate("ab", "old.py", "new.py", *options, "--json") == 0
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["notes"][0].startswith("new was edited while ab ran: the table is of the script")
    loss = next(c for c in verdict["comparisons"] if c["metric"] == "val_loss")
    assert loss["delta"] == pytest.approx(-0.02, abs=0.005)
    assert {arm["arm"]: arm["edited"] for arm in verdict["arms"]} == {"old": False, "new": True}


def test_another_new_under_the_same_name_takes_a_name_of_its_own_and_finds_it_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("other.py").write_text(Path("new.py").read_text().replace("0.02", "0.01"))
    options = (*CPU, "--experiment", "x", "-n", 1)
    assert ablate("ab", "old.py", "new.py", *options) == 0
    for runs_to_do in (True, False):
        capsys.readouterr()
        assert ablate("ab", "old.py", "other.py", *options) == 0
        said = capsys.readouterr()
        assert "experiment 'x' holds other scripts (old, new): this one is named 'x-2'" in said.err
        assert ("runs to do" in said.out) is runs_to_do
    assert [arm.name for arm in load("x").plan.arms] == ["old", "new"]
    assert [arm.name for arm in load("x-2").plan.arms] == ["old", "other"]
    capsys.readouterr()
    assert ablate("ab", "old.py", "new.py", *options) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_scripts_of_one_name_in_two_folders_are_two_and_one_that_was_moved_is_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a").mkdir()
    Path("b").mkdir()
    Path("a/new.py").write_text(Path("new.py").read_text())
    Path("b/new.py").write_text(Path("new.py").read_text().replace("0.02", "0.01"))
    assert ablate("ab", "old.py", "a/new.py", *CPU, "-n", 1) == 0
    assert ablate("ab", "old.py", "b/new.py", *CPU, "-n", 1) == 0
    assert "this one is named 'ab-old-new-2'" in capsys.readouterr().err
    Path("a/new.py").rename("moved.py")
    Path("moved.py").rename("new.py")
    assert ablate("ab", "old.py", "new.py", *CPU, "-n", 1) == 0
    said = capsys.readouterr()
    assert (said.err, "runs to do" in said.out) == ("", False)


def test_calls_that_begin_together_take_two_names_and_each_judges_its_own_scripts(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("b").mkdir()
    Path("b/new.py").write_text(Path("new.py").read_text().replace("0.02", "0.01"))
    keep, other = foreign_plan.keep_code, []

    def after_the_other_call(e: ForeignExperiment, store: Store) -> None:
        if not other:  # the name is chosen, nothing is saved
            other.append("b/new.py")
            assert ablate("ab", "old.py", *other, *CPU, "-n", 1) == 0
            capsys.readouterr()
        keep(e, store)

    monkeypatch.setattr(foreign_plan, "keep_code", after_the_other_call)
    assert ablate("ab", "old.py", "new.py", *CPU, "-n", 1, "--json") == 0
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["experiment"] == "ab-old-new-2"
    sides = [load(name).plan.arms[1].side for name in ("ab-old-new", "ab-old-new-2")]
    assert [side.file for side in sides if side] == [folder / "b/new.py", folder / "new.py"]


def test_a_plan_that_another_call_replaced_is_not_judged(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def replan(*_: object) -> None:
        plan = read_plan(Path("results"), "x")
        assert plan is not None
        save_plan(Path("results"), replace(plan, runs=plan.runs[:1]))

    monkeypatch.setattr("harness.cli.ab.stop_if_stopped", replan)
    assert ablate("ab", "old.py", "new.py", *CPU, "--experiment", "x", "-n", 1) == 2
    assert "'x': another call planned other runs meanwhile" in capsys.readouterr().err


def test_a_rule_without_a_loss_says_whose_runs_it_needs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("silent.py").write_text("print('hello')\n")
    assert ablate("ab", "old.py", "silent.py", *CPU, "-n", 1, "--json") == 1
    rules = json.loads(capsys.readouterr().out)["rules"]
    assert [rule["why_not"] for rule in rules] == [
        f"rule {name} needs finished runs of silent" for name in BENCHMARK_RULES
    ]


@pytest.mark.slow
def test_what_follows_is_no_command_that_refuses_these_scripts(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablate("ab", "old.py", "new.py", *CPU, "--experiment", "x", "-n", 1, "--json") == 0
    told = json.loads(capsys.readouterr().out)["comparisons"]
    loss = next(c for c in told if c["metric"] == "val_loss")
    assert loss["next_action"] == "a new experiment: 2 fresh seeds or more (4 runs)"
    assert ablate("confirm", "x") == 2
    Path("other.py").write_text(Path("new.py").read_text().replace("0.02", "0.1"))
    assert ablate("ab", "old.py", "other.py", *CPU, "--experiment", "y", "-n", 5) == 0
    page = write_report([load("y")], folder / "page.html").read_text()
    assert "What to run next: a new experiment, which asks again on fresh runs" in page


def test_rules_are_not_printed_where_every_run_failed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one.py", "two.py"):
        Path(name).write_text((TRAINERS / "faulty.py").read_text() + f"NAME = {name!r}\n")
    options = (*CPU, "-n", 1, "--env", "KIND=raise")
    assert ablate("ab", "one.py", "two.py", *options) == 1
    out = capsys.readouterr().out
    assert "ValueError: the shapes do not match" in out
    assert "rule" not in out
    assert ":0:" not in out
    assert ablate("ab", "one.py", "two.py", *options, "--json") == 1
    assert json.loads(capsys.readouterr().out)["rules"] == []
    statuses = [read_lines(run / "attempts.jsonl")[-1] for run in Path("results/runs").iterdir()]
    assert {row["status"] for row in statuses} == {"failed"}
