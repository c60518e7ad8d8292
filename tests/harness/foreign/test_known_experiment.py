"""A foreign experiment that the results folder knows: it goes on by its name, and sees that a script was edited."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import UserError
from harness.foreign.experiment import load_foreign
from harness.foreign.plan import describe_foreign, keep_code, plan_foreign, restored
from harness.store.store import Store
from reports.inputs.load import load
from tests.foreign_bench import CPU, ablate, bench, commit, write
from tests.foreign_logs import late_2024

OPTIONS = (*CPU, "-n", 1, "--env", "SEED={seed}")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return bench(tmp_path, monkeypatch)


def states(name: str, capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[str, str | None]]:
    """arm -> (status, reason)"""
    capsys.readouterr()
    assert ablate("status", name, "--json") == 0
    return {r["arm"]: (r["status"], r["reason"]) for r in json.loads(capsys.readouterr().out)}


def test_an_edited_script_makes_its_runs_stale_and_a_run_by_name_does_them_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablate("ab", "old.py", "new.py", *OPTIONS) == 0
    before = load("ab-old-new")
    Path("new.py").write_text(Path("new.py").read_text().replace("3.27", "3.17"))
    assert states("ab-old-new", capsys) == {
        "old": ("finished", None),
        "new": ("pending", "stale: new.py changed since its result"),
    }
    assert ablate("report", "ab-old-new") == 0
    stale = load("ab-old-new").runs.set_index("arm")
    assert list(stale.loc[["old", "new"], "stale_files"]) == ["", "new.py"]
    assert ablate("run", "ab-old-new", "--no-report") == 0
    after = load("ab-old-new")
    gain = before.runs.set_index("arm")["val_loss"] - after.runs.set_index("arm")["val_loss"]
    assert gain["old"] == 0
    assert gain["new"] == pytest.approx(0.1)
    assert after.plan.command == before.plan.command  # what the page says will make it


def test_what_is_known_goes_on_though_its_scripts_are_gone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablate("ab", "old.py", "new.py", *OPTIONS) == 0
    started = load("ab-old-new").plan.command
    Path("old.py").unlink()
    capsys.readouterr()
    assert ablate("plan", "ab-old-new", "--seeds", 2) == 0
    assert "4 runs of 2 arms, 2 done" in capsys.readouterr().out
    assert ablate("run", "ab-old-new", "--seeds", 2, "--no-report") == 0
    known = load("ab-old-new")
    loss = known.runs.set_index(["arm", "seed"])["val_loss"]
    assert loss["old", 1] - loss["new", 1] == pytest.approx(0.02, abs=2e-4)
    assert known.plan.command.startswith(f"{started} && ablate")


SEEDED = """
name: NAME
question: Better?
trainer: {command: "python {script}", file: old.py, gpus: 0, env: {SEED: "{seed}"}}
changes: {idea: {file: new.py}}
seeds: [SEED]
"""


def seeded(name: str, seed: int, more: str = "") -> str:
    """The file of an experiment of one seed."""
    path = Path(f"{name}.yaml")
    path.write_text(SEEDED.replace("NAME", name).replace("[SEED]", f"[{seed}]") + more)
    return str(path)


def test_what_was_seen_at_other_seeds_of_a_script_counts(folder: Path) -> None:
    """Though no configuration says how long a script trains: that is as in the runs that there are."""
    for seed in (1, 2):
        assert ablate("run", seeded("swapped", seed), "--no-report") == 0
        assert ablate("compare", "swapped") == 0
    shown = load("swapped")
    assert shown.memory.changed and sorted(shown.plan.seeds) == [1, 2]
    assert len(shown.runs) == 4 and shown.runs["budget"].nunique() == 1


def test_a_confirmation_by_seeds_of_a_script_that_have_results_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablate("run", seeded("first", 1000, "confirm: true\n"), "--no-report") == 0
    assert ablate("run", seeded("again", 1000, "confirm: true\n"), "--no-report") == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "again: seeds 1000 have results already (in first)" in said
    assert not Path("results/experiments/again").exists()
    assert ablate("run", "first", "--no-report") == 0  # which is no second one


def test_refs_keep_their_own_runs_when_a_branch_moves(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = Path("old.py").read_text()
    for branch, better in (("main", "0"), ("idea", "0.5")):
        Path("train_gpt.py").write_text(code.replace('"BETTER", "0"', f'"BETTER", "{better}"'))
        commit(branch, "train_gpt.py")
    assert ablate("ab", "main", "idea", *OPTIONS) == 0
    Path("README.md").write_text("A commit that no script sees.")
    commit("idea", "README.md")
    assert {s for s, _ in states("ab-main-idea", capsys).values()} == {"finished"}
    Path("train_gpt.py").write_text(code.replace('"BETTER", "0"', '"BETTER", "0.7"'))
    commit("idea", "train_gpt.py")
    # what only reads asks no git; what runs does
    assert {s for s, _ in states("ab-main-idea", capsys).values()} == {"finished"}
    assert ablate("plan", "ab-main-idea", "--json") == 0
    done = {arm["arm"]: arm["done"] for arm in json.loads(capsys.readouterr().out)["arms"]}
    assert done == {"main": 1, "idea": 0}
    assert ablate("ab", "main", "idea", *OPTIONS) == 0
    runs = load("ab-main-idea").runs  # another script: both run, in a block of its own
    assert sorted(zip(runs["arm"], runs["seed"], strict=True)) == [("idea", 1), ("main", 1)]
    assert runs["session"].nunique() == 1
    assert len(list(Path("results/runs").iterdir())) == 4  # those before are kept


def test_what_cannot_go_on_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.txt").write_text(late_2024(3.28))
    ablate("import", "a.txt", "--experiment", "public")
    capsys.readouterr()
    for arguments, message in (
        (["run", "public"], "experiment 'public' holds imported logs: nothing of it can run"),
        (["plan", "publik"], "unknown experiment 'publik'; did you mean 'public'?"),
    ):
        assert ablate(*arguments) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert ablate("ab", "old.py", "new.py", *OPTIONS) == 0
    capsys.readouterr()
    assert ablate("run", "ab-old-new", "--set", "x=1") == 2
    assert "goes on as it was started" in capsys.readouterr().err
    assert ablate("confirm", "ab-old-new") == 2
    assert "confirmed by a file with `confirm: true`" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--executor", "slurm", "--nodes-per-run", 2],
        ["run", "--oom-retries", 1],
        ["plan", "--detect", 0.01],
    ],
)
def test_an_option_of_our_own_trainer_is_refused_not_ignored(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[object]
) -> None:
    command, *options = arguments
    assert ablate(command, write(folder, changes={"x": {"args": ["--x"]}}), *options) == 2
    assert "is for our own trainer, not for foreign ones" in capsys.readouterr().err
    assert not Path("results").exists()


def test_it_is_planned_by_itself(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(folder, changes={"x": {"args": ["--x"]}})
    assert ablate("plan", "minute", file) == 2
    assert (
        capsys.readouterr().err
        == f"ablate: {file} has foreign trainers: plan it by itself, ablate plan {file}\n"
    )


def test_what_is_known_does_not_go_on_without_its_data_or_the_place_of_its_script(
    folder: Path,
) -> None:
    Path("tokens").mkdir()
    Store.create(folder / "results")
    e = load_foreign(
        write(folder, trainer={"data": "tokens"}, changes={"x": {"args": ["--x"]}}), {}
    )
    keep_code(e, Store(folder / "results"))
    plan = describe_foreign(e, plan_foreign(e), before=None, command="ablate run")
    assert [arm.changes for arm in restored(folder / "results", plan).arms] == [(), ("x",)]
    nowhere = tuple(replace(arm, side=None) for arm in plan.arms)
    with pytest.raises(UserError, match=r"arm 'baseline': experiment\.json does not say where its"):
        restored(folder / "results", replace(plan, arms=nowhere))
    Path("tokens").rmdir()
    said = f"foreign: arm 'baseline': its data {folder / 'tokens'} is gone: put it back, or start"
    with pytest.raises(UserError, match=re.escape(said)):
        restored(folder / "results", plan)
