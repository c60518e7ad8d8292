"""The command of a renamed experiment makes it under its new name, and is what a page tells to confirm it by."""

from pathlib import Path

import pytest

from harness.cli.renamed_command import command_of
from harness.run.halving import Halving
from harness.run.plan import Plan
from harness.store.plans import read_plan
from reports.inputs.load import load
from reports.page.selection import as_typed
from tests.fake_matrix import Matrix
from tests.foreign_bench import CPU, ablate, bench, write


@pytest.mark.parametrize(
    ("command", "foreign", "renamed"),
    [
        ("ablate run a.yaml", False, "ablate run a.yaml --set name=new"),
        ("ablate run old --seeds 2", False, "ablate run old --seeds 2 --set name=new"),
        (
            "ablate run a.yaml --set name=old --set 'x=[1, 2]' --set=name=older",
            False,
            "ablate run a.yaml --set 'x=[1, 2]' --set name=new",
        ),
        ("ablate ab a.py b.py -n 2", True, "ablate ab a.py b.py -n 2 --experiment new"),
        (
            "ablate ab a.py b.py --experiment old && ablate run old --seeds 4",
            True,
            "ablate ab a.py b.py --experiment new && ablate run new --seeds 4",
        ),
        ("ablate import logs --experiment=old", True, "ablate import logs --experiment new"),
        ("ablate run 'a.yaml", False, "ablate run 'a.yaml"),
        ("python of_mine.py", False, "python of_mine.py"),
        ("", False, ""),
    ],
)
def test_a_command_gives_the_new_name(command: str, foreign: bool, renamed: str) -> None:
    plan = Plan(name="old", command=command, foreign=foreign)
    assert command_of(plan, "new") == renamed
    again = Plan(name="new", command=renamed, foreign=foreign)
    assert command_of(again, "new") == renamed


def test_the_command_of_a_part_makes_the_whole() -> None:
    first = Halving(one_in=2, budgets=(5, 10), n_points=4)
    typed = "ablate run a.yaml"
    parts = (
        Plan(name="old.rung1", command=typed, halving=first),
        Plan(name="old.grid", command=typed),
    )
    for part in parts:
        assert command_of(part, "new") == part.command
    last = Plan(
        name="old", command="ablate run a.yaml", halving=Halving(**{**vars(first), "rung": 1})
    )
    assert command_of(last, "new") == "ablate run a.yaml --set name=new"


@pytest.mark.slow
def test_a_renamed_experiment_goes_on_and_is_confirmed_by_its_new_name(tmp_path: Path) -> None:
    matrix = Matrix(tmp_path)
    assert matrix.run()[0] == 0
    assert matrix.forked("rename", "fake", "other").returncode == 0
    plan = read_plan(matrix.results, "other")
    assert plan is not None and as_typed(plan) == "fake.yaml --set name=other"
    code, out, _ = matrix.run("--set", "name=other")
    assert (code, "to do" in out) == (0, False), "nothing of it was missing"
    assert [p.name for p in (matrix.results / "experiments").iterdir()] == ["other"]
    asked = ("confirm", str(matrix.file), "--set", "name=other", "--margin", "5", "-o")
    written = matrix.forked(*asked, str(tmp_path / "fresh.yaml"))
    assert written.returncode == 0, written.stderr
    assert "name: other_confirm" in (tmp_path / "fresh.yaml").read_text()


@pytest.mark.slow
def test_scripts_that_are_compared_go_on_by_their_new_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench(tmp_path, monkeypatch)
    assert ablate("ab", "old.py", "new.py", *CPU, "-n", 1, "--experiment", "x") == 0
    assert ablate("rename", "x", "y") == ablate("run", "y", "--seeds", 2, "--no-report") == 0
    assert len(load("y").runs) == 4
    file = write(tmp_path, name="z", changes={"new": {"file": "new.py"}})
    assert ablate("run", file, "--no-report") == ablate("rename", "z", "w") == 0
    assert ablate("run", file, "--no-report", "--set", "name=w") == 0
    assert sorted(p.name for p in Path("results/experiments").iterdir()) == ["w", "y"]
